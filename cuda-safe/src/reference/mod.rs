//! Reference tables: which releases block, what works across devices, which types cross threads,
//! raw handles, and which driver bugs to know.
//!
//! - [`releases`]: what each type waits for when it is dropped, and deferred releases.
//! - [`devices`]: what works between objects of different devices.
//! - [`threads`]: which types are `Send` and `Sync`.
//! - [`raw_handles`]: how objects are created from raw handles, and converted to them.
//! - [`driver_bugs`]: bugs of NVIDIA's driver that were found with this crate.

pub mod raw_handles;

pub mod releases {
    //! What each type waits for when it is dropped.
    //!
    //! Most releases return at once. The releases in the first table block the thread that drops
    //! the object. Some of them also block other threads: a thread of the same context that records
    //! an event, launches a kernel, creates a stream or an event, allocates synchronously or begins
    //! a capture is then blocked inside the driver until the release is done. (Measured on an H200
    //! with driver 580.)
    //!
    //! # Releases that block
    //!
    //! | dropped object | waits for | other threads of the context | to avoid the wait |
    //! |---|---|---|---|
    //! | [`PinnedBuffer`], last [`PinnedRange`] of one | all work of the context | blocked | keep the buffer and reuse it |
    //! | [`PinnedBuffer`] of a registered vector, [`MappedBuffer`] | its stream, then all work of the context | blocked while unrelated work runs | keep the buffer and reuse it |
    //! | [`DeviceBuffer`] of synchronous memory, [`PitchedBuffer`], [`ManagedBuffer`] | its stream, then all work of the context | blocked while unrelated work runs | use stream-ordered memory ([`DeviceBuffer::zeroed`]) |
    //! | [`Array`], [`MipmappedArray`], [`SparseArray`] | its stream, then all work of the context | blocked while unrelated work runs | keep it and copy into it again |
    //! | buffer and image of [`ExternalMemory`] | its stream; perhaps all work of the context (not measured) | not measured | map it once |
    //! | [`RegisteredBuffer`], [`RegisteredImage`] | the work of its mappings | not measured | keep it registered |
    //! | last array of an [`EglImage`] | its stream | not measured | keep it registered |
    //! | last owner of a [`Library`], its kernels included | all work of the context | blocked | keep a kernel of it |
    //! | last owner of a [`Module`], its kernels included | all work of the context | not blocked | keep a kernel of it |
    //! | last [`IpcMemory`] of an allocation | all work of the context | blocked | keep it |
    //! | memory of a [`DriverManager`] | all work of the context, when enough frees are pending | blocked | use the `CachingManager` of the crate `cuda-memory` |
    //! | last owner of a [`Context`] | all work of the context | not blocked | keep a clone |
    //! | last owner of a [`MemoryPool`] | the frees of its memory | not blocked | keep a clone |
    //! | last owner of a [`MemoryPool`] that a memory manager [has used](crate::manager::DriverMemory::allocate_from_pool) | all work of the context | blocked if a capture may be open | keep a clone |
    //! | [`Pending`] of a [`PinnedBuffer`], [`CopyScope`] | all work of its stream | not blocked | call [`Pending::synchronize`] where waiting is acceptable |
    //! | [`Pending`] of a [`PinnedRange`] | its copy | not blocked | call [`Pending::synchronize`] where waiting is acceptable |
    //! | [`Imported`], [`ImportedArray`], if the host waits at the end (see [`StreamSync`]) | all work of the import's stream | not blocked | import with the producer's stream |
    //!
    //! A release of memory first waits for the stream that used the memory, which blocks no other
    //! thread. It does not synchronize the whole context, since that would invalidate every open
    //! capture of the context, whichever thread began it.
    //!
    //! Loading a module blocks other threads too. Load modules before work begins.
    //!
    //! # Releases that do not block
    //!
    //! These do not wait: [`Stream`], [`Event`], [`Graph`], [`ExecutableGraph`] (whose objects are
    //! released after its launches), [`Linker`],
    //! [`GreenContext`], stream-ordered [`DeviceBuffer`], [`SharedBuffer`] with its readers,
    //! [`Texture`] and [`Surface`] (which are destroyed after the work on their stream),
    //! [`TimelineSemaphore`] and [`BinarySemaphore`] (which are destroyed after the work on their streams), and
    //! leases of a [`GreenPool`]. An [`ExecutableGraph`] to which foreign code added conditional nodes
    //! is an exception: its release waits for all running work.
    //!
    //! If such an object is the last owner of an object in the table above, it releases that object
    //! too, and the release blocks as the table says.
    //!
    //! # Copies that block
    //!
    //! Copies of ordinary slices block: the host needs the data, or must not change it earlier. All
    //! other copies are enqueued.
    //!
    //! | call | blocks the host |
    //! |---|---|
    //! | [`DeviceBuffer::from_slice`], [`DeviceBuffer::copy_from_slice`], `copy_3d_from_slice` | until the copy and all earlier work on the stream have completed |
    //! | [`DeviceBuffer::copy_to_slice`], [`DeviceBuffer::to_vec`], `copy_3d_to_slice` | as above, and for the streams that synchronize with the legacy default stream |
    //! | [`DeviceBuffer::copy_from_pinned`], [`DeviceBuffer::copy_to_pinned`] | no, except for deferred releases |
    //! | [`Pending::synchronize`] of a [`PinnedRange`] | until its copy has completed |
    //! | [`Pending::synchronize`] of a [`PinnedBuffer`], [`Stream::copy_scope`] | until all work on the stream has completed |
    //! | [`DeviceBuffer::copy_from`], `copy_3d_from`, `copy_from_peer`, [`CopyBatch::enqueue`] between device memory | no |
    //! | [`CopyBatch::enqueue`] with host memory | until all work on the stream has completed; with slices of at most 64 KiB in total alone, until they have been read |
    //! | [`CopyScope::enqueue`] | until slices of more than 64 KiB in total have been copied |
    //!
    //! Every call that enqueues work can block inside the driver while too much earlier work is
    //! unfinished, and while another thread makes a release that the first table marks as blocking
    //! other threads.
    //!
    //! # Deferred releases
    //!
    //! A release that is not possible at once, during a capture of its stream or on a driver
    //! callback thread, is deferred to the next call that creates, copies or synchronizes. That
    //! call may then block, as long as the release would have blocked.
    //!
    //! These calls attempt all deferred releases first:
    //!
    //! - functions that create an object or allocate memory, such as [`DeviceBuffer::zeroed`] and
    //!   [`Context::event`];
    //! - copies of host memory, such as [`DeviceBuffer::copy_from_slice`] and
    //!   [`DeviceBuffer::copy_from_pinned`];
    //! - functions that synchronize, begin a capture or launch a host function, such as
    //!   [`Stream::synchronize`].
    //!
    //! Launches of kernels and graphs, fills, copies between buffers, and records of events and
    //! waits for them on a stream do not. [`deferred_releases`] returns how many releases are
    //! deferred: while it returns 0, none of these calls blocks for a release.
    //!
    //! If a host function waits for a thread, that thread must drop its own objects; dropping them
    //! on a callback thread or during a capture can deadlock.
    //!
    //! A release that depends on a borrowed context or stream (`borrow_raw`) is not deferred, since
    //! the owner may destroy the handle at any time. The object is leaked and reported to the
    //! function that [`set_report_hook`] set.
    //!
    //! [`Array`]: crate::array::Array
    //! [`Context`]: crate::Context
    //! [`Context::event`]: crate::Context::event
    //! [`CopyBatch::enqueue`]: crate::memory::CopyBatch::enqueue
    //! [`CopyScope`]: crate::memory::CopyScope
    //! [`CopyScope::enqueue`]: crate::memory::CopyScope::enqueue
    //! [`DeviceBuffer`]: crate::DeviceBuffer
    //! [`DeviceBuffer::copy_from`]: crate::DeviceBuffer::copy_from
    //! [`DeviceBuffer::copy_from_pinned`]: crate::DeviceBuffer::copy_from_pinned
    //! [`DeviceBuffer::copy_from_slice`]: crate::DeviceBuffer::copy_from_slice
    //! [`DeviceBuffer::copy_to_pinned`]: crate::DeviceBuffer::copy_to_pinned
    //! [`DeviceBuffer::copy_to_slice`]: crate::DeviceBuffer::copy_to_slice
    //! [`DeviceBuffer::from_slice`]: crate::DeviceBuffer::from_slice
    //! [`DeviceBuffer::to_vec`]: crate::DeviceBuffer::to_vec
    //! [`DeviceBuffer::zeroed`]: crate::DeviceBuffer::zeroed
    //! [`DriverManager`]: crate::manager::DriverManager
    //! [`DriverMemory`]: crate::manager::DriverMemory
    //! [`Event`]: crate::Event
    //! [`ExecutableGraph`]: crate::ExecutableGraph
    //! [`Graph`]: crate::Graph
    //! [`GreenContext`]: crate::green::GreenContext
    //! [`GreenPool`]: crate::green::GreenPool
    //! [`Imported`]: crate::interop::Imported
    //! [`ImportedArray`]: crate::interop::ImportedArray
    //! [`IpcMemory`]: crate::memory::IpcMemory
    //! [`Library`]: crate::module::Library
    //! [`Linker`]: crate::module::Linker
    //! [`ManagedBuffer`]: crate::memory::ManagedBuffer
    //! [`MappedBuffer`]: crate::memory::MappedBuffer
    //! [`MemoryPool`]: crate::memory::MemoryPool
    //! [`MipmappedArray`]: crate::array::MipmappedArray
    //! [`BinarySemaphore`]: crate::external::BinarySemaphore
    //! [`EglImage`]: crate::external::EglImage
    //! [`ExternalMemory`]: crate::external::ExternalMemory
    //! [`RegisteredBuffer`]: crate::external::RegisteredBuffer
    //! [`RegisteredImage`]: crate::external::RegisteredImage
    //! [`TimelineSemaphore`]: crate::external::TimelineSemaphore
    //! [`Module`]: crate::Module
    //! [`Pending`]: crate::memory::Pending
    //! [`Pending::synchronize`]: crate::memory::Pending::synchronize
    //! [`PinnedBuffer`]: crate::PinnedBuffer
    //! [`PinnedRange`]: crate::memory::PinnedRange
    //! [`PitchedBuffer`]: crate::memory::PitchedBuffer
    //! [`SharedBuffer`]: crate::SharedBuffer
    //! [`Stream`]: crate::Stream
    //! [`Stream::copy_scope`]: crate::Stream::copy_scope
    //! [`Stream::synchronize`]: crate::Stream::synchronize
    //! [`StreamSync`]: crate::interop::StreamSync
    //! [`SparseArray`]: crate::array::SparseArray
    //! [`Surface`]: crate::array::Surface
    //! [`Texture`]: crate::array::Texture
    //! [`deferred_releases`]: crate::deferred_releases
    //! [`set_report_hook`]: crate::set_report_hook
}

pub mod devices {
    //! What works between objects of different devices.
    //!
    //! The table says what happens when an object of one device is used on a stream of another
    //! device, or in a context of another device. "Error" is [`Invalid::OtherContext`] or
    //! [`Invalid::OtherStream`], before the driver is called, unless the row says otherwise.
    //!
    //! | object | on a stream or in a context of another device |
    //! |---|---|
    //! | [`DeviceBuffer`] and its slices, in copies, launches and [`rebind`] | error: a buffer is bound to its stream |
    //! | [`MappedBuffer`], [`ManagedBuffer`] and their slices | error: they are bound to their stream |
    //! | [`MemoryPool`], for a new buffer | works if the pool [grants access](crate::memory::MemoryPool::grant_access) to the device; otherwise [`Invalid::NoAccessToPool`] |
    //! | [`SharedBuffer::on`] | error: the stream must be of the buffer's context |
    //! | [`SharedBuffer::on_peer`] | works as the source of a copy; for kernels it is `unsafe`, as the device needs [peer access](crate::Context::enable_peer_access) |
    //! | [`PinnedBuffer`], [`PinnedRange`], in copies | works |
    //! | [`Kernel`] of a [`Module`] | error: a module is loaded into one context |
    //! | [`Library`] | works: [`Library::kernel`] returns a kernel for each context |
    //! | [`Event::record`], [`Context::record_event`], [`GreenContext::record_event`] | error: an event is recorded in its own context |
    //! | [`Stream::wait_event`], [`Context::wait_event`], [`GreenContext::wait_event`] for an event | works |
    //!
    //! Two contexts of one device are treated like two devices, but copies between them need no
    //! peer access.
    //! [`Stream`](crate::Stream#several-devices) has the table for the methods of streams.
    //!
    //! [`Context::record_event`]: crate::Context::record_event
    //! [`Context::wait_event`]: crate::Context::wait_event
    //! [`DeviceBuffer`]: crate::DeviceBuffer
    //! [`Event::record`]: crate::Event::record
    //! [`GreenContext::record_event`]: crate::green::GreenContext::record_event
    //! [`GreenContext::wait_event`]: crate::green::GreenContext::wait_event
    //! [`Invalid::NoAccessToPool`]: crate::Invalid::NoAccessToPool
    //! [`Invalid::OtherContext`]: crate::Invalid::OtherContext
    //! [`Invalid::OtherStream`]: crate::Invalid::OtherStream
    //! [`Kernel`]: crate::Kernel
    //! [`Library`]: crate::module::Library
    //! [`Library::kernel`]: crate::module::Library::kernel
    //! [`ManagedBuffer`]: crate::memory::ManagedBuffer
    //! [`MappedBuffer`]: crate::memory::MappedBuffer
    //! [`MemoryPool`]: crate::memory::MemoryPool
    //! [`Module`]: crate::Module
    //! [`PinnedBuffer`]: crate::PinnedBuffer
    //! [`PinnedRange`]: crate::memory::PinnedRange
    //! [`SharedBuffer::on`]: crate::SharedBuffer::on
    //! [`SharedBuffer::on_peer`]: crate::SharedBuffer::on_peer
    //! [`Stream::wait_event`]: crate::Stream::wait_event
    //! [`rebind`]: crate::DeviceBuffer::rebind
}

pub mod threads {
    //! Which types are `Send` and `Sync`.
    //!
    //! The compiler checks the rows with `yes` and the rows of generic types: the source of this
    //! module asserts them.
    //!
    //! | type | `Send` | `Sync` | reason |
    //! |---|---|---|---|
    //! | [`Context`], [`Stream`], [`WeakStream`], [`Event`], [`Module`], [`Library`], [`Linked`], [`Global`], [`Kernel`], [`TypedKernel`] | yes | yes | the driver synchronizes calls on them |
    //! | [`MemoryPool`], [`ImportedPool`] | yes | yes | the driver synchronizes calls on them |
    //! | [`Linker`] | yes | no | its methods take `&mut self` |
    //! | [`StreamFuture`] | yes | yes | a lock protects its state |
    //! | [`GreenContext`] | yes | yes | a lock serializes the few calls that take its handle |
    //! | [`SmResource`], [`SmGroup`], [`Workqueues`] | yes | yes | they hold descriptions, not handles |
    //! | [`GreenPool`], [`Lease`], [`PooledPartition`] | yes | yes | a lock protects their state |
    //! | [`SmProbe`], [`SmProbing`] | yes | yes | they hold a kernel and a buffer |
    //! | [`DeviceBuffer`], [`PitchedBuffer`], [`PinnedBuffer`], [`PinnedRange`], [`Pending`] | as `T` | as `T` | they own their elements |
    //! | [`MappedBuffer`], [`ManagedBuffer`] | as `T` | as `T` | they own their elements |
    //! | [`SharedBuffer`], [`SharedReader`], [`PeerReader`] | as `Arc<T>` | as `Arc<T>` | they share their elements |
    //! | [`DeviceSlice`], [`DeviceChunksExact`], [`DeviceSliceMut`], [`DeviceChunksExactMut`] | as `&[T]`, `&mut [T]` | as `&[T]`, `&mut [T]` | they borrow their elements |
    //! | [`ArrayView`], [`ArrayViewMut`] | as `&[T]`, `&mut [T]` | as `&[T]`, `&mut [T]` | they borrow their elements |
    //! | [`Imported`] | yes | yes | the owner that it keeps is `Send` and `Sync` |
    //! | [`ImportedArray`] | as `T` | as `T` | it stands for its elements |
    //! | [`ManagedTensor`] | yes | yes | any thread may call its deleter |
    //! | [`Export`] | yes | no | any thread may drop its owner |
    //! | [`ManagedRange`] | yes | yes | it borrows memory only to say where the memory should reside |
    //! | [`PointerInfo`] | yes | yes | it holds a description |
    //! | [`MemoryPointer`], [`AutoFreePointer`], [`PinnedMemory`], [`MappedMemory`], [`IpcMemory`] | yes | yes | they hold an address and give no access to the elements |
    //! | [`MemoryManager`] | yes | yes | the trait requires both |
    //! | [`OrderEvent`], [`DriverMemory`], [`FreeCounter`] | yes | yes | managers use them on every thread |
    //! | [`CleanupGuard`] | yes | no | it can only be dropped |
    //! | [`Graph`] | yes | no | the driver does not lock graphs |
    //! | [`ExecutableGraph`] | yes | yes | the driver locks executable graphs |
    //! | [`Error`](crate::Error) | yes | yes | it holds no handle |
    //! | [`LogCallback`](crate::process::logs::LogCallback), [`DumpCallback`](crate::process::coredump::DumpCallback), [`CoredumpGuard`](crate::process::coredump::CoredumpGuard), [`ProfilerRange`](crate::process::profiler::ProfilerRange) | yes | yes | they can only be ended |
    //! | [`RunningProcess`](crate::process::checkpoint::RunningProcess), [`LockedProcess`](crate::process::checkpoint::LockedProcess), [`CheckpointedProcess`](crate::process::checkpoint::CheckpointedProcess) | yes | yes | they hold the id of a process |
    //! | [`Capture`] | no | no | a capture must end on the thread that began it |
    //! | [`EglImage`](crate::external::EglImage) | yes | yes | the driver synchronizes calls on it |
    //! | [`RegisteredBuffer`](crate::external::RegisteredBuffer), [`RegisteredImage`](crate::external::RegisteredImage), [`Mapped`](crate::external::Mapped) | no | no | a context of OpenGL is current on one thread |
    //! | [`EglFrame`](crate::external::EglFrame), [`EglConsumer`](crate::external::EglConsumer), [`EglProducer`](crate::external::EglProducer), [`AcquiredFrame`](crate::external::AcquiredFrame) | no | no | they hold pointers of the driver |
    //! | [`CurrentContext`], [`CurrentGreenContext`], [`DefaultStream`] | no | no | the current context belongs to one thread |
    //! | [`CopyScope`] | no | no | one thread borrows it |
    //! | [`LaunchBuilder`] | no | no | the types of its arguments, which may not be `Send`, are erased |
    //!
    //! [`ArrayView`]: crate::interop::ArrayView
    //! [`ArrayViewMut`]: crate::interop::ArrayViewMut
    //! [`AutoFreePointer`]: crate::manager::AutoFreePointer
    //! [`Capture`]: crate::capture::Capture
    //! [`CleanupGuard`]: crate::manager::CleanupGuard
    //! [`Context`]: crate::Context
    //! [`CopyScope`]: crate::memory::CopyScope
    //! [`CurrentContext`]: crate::context::CurrentContext
    //! [`CurrentGreenContext`]: crate::green::CurrentGreenContext
    //! [`DefaultStream`]: crate::stream::DefaultStream
    //! [`DeviceBuffer`]: crate::DeviceBuffer
    //! [`DeviceChunksExact`]: crate::memory::DeviceChunksExact
    //! [`DeviceChunksExactMut`]: crate::memory::DeviceChunksExactMut
    //! [`DeviceSlice`]: crate::DeviceSlice
    //! [`DeviceSliceMut`]: crate::DeviceSliceMut
    //! [`DriverMemory`]: crate::manager::DriverMemory
    //! [`Event`]: crate::Event
    //! [`ExecutableGraph`]: crate::ExecutableGraph
    //! [`Export`]: crate::interop::dlpack::Export
    //! [`FreeCounter`]: crate::manager::FreeCounter
    //! [`Global`]: crate::module::Global
    //! [`Graph`]: crate::Graph
    //! [`GreenContext`]: crate::green::GreenContext
    //! [`GreenPool`]: crate::green::GreenPool
    //! [`Imported`]: crate::interop::Imported
    //! [`ImportedArray`]: crate::interop::ImportedArray
    //! [`ImportedPool`]: crate::memory::ImportedPool
    //! [`IpcMemory`]: crate::memory::IpcMemory
    //! [`Kernel`]: crate::Kernel
    //! [`LaunchBuilder`]: crate::launch::LaunchBuilder
    //! [`Lease`]: crate::green::Lease
    //! [`Library`]: crate::module::Library
    //! [`Linked`]: crate::module::Linked
    //! [`Linker`]: crate::module::Linker
    //! [`ManagedBuffer`]: crate::memory::ManagedBuffer
    //! [`ManagedRange`]: crate::memory::ManagedRange
    //! [`ManagedTensor`]: crate::interop::dlpack::ManagedTensor
    //! [`MappedBuffer`]: crate::memory::MappedBuffer
    //! [`MappedMemory`]: crate::manager::MappedMemory
    //! [`MemoryManager`]: crate::manager::MemoryManager
    //! [`MemoryPointer`]: crate::manager::MemoryPointer
    //! [`MemoryPool`]: crate::memory::MemoryPool
    //! [`Module`]: crate::Module
    //! [`OrderEvent`]: crate::manager::OrderEvent
    //! [`PeerReader`]: crate::memory::PeerReader
    //! [`Pending`]: crate::memory::Pending
    //! [`PinnedBuffer`]: crate::PinnedBuffer
    //! [`PinnedMemory`]: crate::manager::PinnedMemory
    //! [`PinnedRange`]: crate::memory::PinnedRange
    //! [`PitchedBuffer`]: crate::memory::PitchedBuffer
    //! [`PointerInfo`]: crate::memory::PointerInfo
    //! [`PooledPartition`]: crate::green::PooledPartition
    //! [`SharedBuffer`]: crate::SharedBuffer
    //! [`SharedReader`]: crate::memory::SharedReader
    //! [`SmGroup`]: crate::green::SmGroup
    //! [`SmProbe`]: crate::green::SmProbe
    //! [`SmProbing`]: crate::green::SmProbing
    //! [`SmResource`]: crate::green::SmResource
    //! [`Stream`]: crate::Stream
    //! [`StreamFuture`]: crate::stream::StreamFuture
    //! [`TypedKernel`]: crate::TypedKernel
    //! [`WeakStream`]: crate::stream::WeakStream
    //! [`Workqueues`]: crate::green::Workqueues

    const _: () = {
        use crate::memory::{
            DeviceChunksExact, DeviceChunksExactMut, ImportedPool, ManagedBuffer, ManagedRange,
            MappedBuffer, MemoryPool, PeerReader, Pending, PinnedRange, PitchedBuffer, PointerInfo,
            SharedReader,
        };
        use crate::module::{Global, Library, Linked, Linker};
        use crate::stream::{StreamFuture, WeakStream};
        use crate::{
            Context, DeviceBuffer, DeviceSlice, DeviceSliceMut, Error, Event, ExecutableGraph,
            Graph, Kernel, Module, PinnedBuffer, SharedBuffer, Stream, TypedKernel, green, interop,
            manager, virtual_memory,
        };

        const fn send<T: Send>() {}
        const fn send_and_sync<T: Send + Sync + ?Sized>() {}
        send_and_sync::<Context>();
        send_and_sync::<Stream>();
        send_and_sync::<WeakStream>();
        send_and_sync::<Event>();
        send_and_sync::<StreamFuture>();
        send_and_sync::<Module>();
        send_and_sync::<Library>();
        send_and_sync::<Kernel>();
        send_and_sync::<Global>();
        send_and_sync::<Linked>();
        send::<Linker>();
        send_and_sync::<TypedKernel<(&[f32], u32)>>();
        send_and_sync::<green::GreenContext>();
        send_and_sync::<green::SmResource>();
        send_and_sync::<green::SmGroup>();
        send_and_sync::<green::Workqueues>();
        send_and_sync::<green::GreenPool>();
        send_and_sync::<green::Lease>();
        send_and_sync::<green::PooledPartition>();
        send_and_sync::<green::SmProbe>();
        send_and_sync::<green::SmProbing>();
        send_and_sync::<crate::array::Array<f32>>();
        send_and_sync::<crate::array::MipmappedArray<f32>>();
        send_and_sync::<crate::array::SparseArray<f32>>();
        send_and_sync::<crate::array::Texture<crate::array::Array<f32>>>();
        send_and_sync::<crate::array::Surface<crate::array::Array<f32>>>();
        send_and_sync::<DeviceBuffer<f32>>();
        send_and_sync::<SharedBuffer<f32>>();
        send_and_sync::<SharedReader<f32>>();
        send_and_sync::<PeerReader<f32>>();
        send_and_sync::<DeviceSlice<'_, f32>>();
        send_and_sync::<DeviceSliceMut<'_, f32>>();
        send_and_sync::<DeviceChunksExact<'_, f32>>();
        send_and_sync::<DeviceChunksExactMut<'_, f32>>();
        send_and_sync::<PinnedBuffer<f32>>();
        send_and_sync::<PitchedBuffer<f32>>();
        send_and_sync::<PinnedRange<f32>>();
        send_and_sync::<Pending<f32>>();
        send_and_sync::<Pending<f32, PinnedRange<f32>>>();
        send_and_sync::<MappedBuffer<f32>>();
        send_and_sync::<crate::process::logs::LogCallback>();
        send_and_sync::<crate::process::coredump::DumpCallback>();
        send_and_sync::<crate::process::coredump::CoredumpGuard>();
        send_and_sync::<crate::process::profiler::ProfilerRange>();
        send_and_sync::<crate::process::checkpoint::RunningProcess>();
        send_and_sync::<crate::process::checkpoint::LockedProcess>();
        send_and_sync::<crate::process::checkpoint::CheckpointedProcess>();
        send_and_sync::<crate::external::ExternalMemory>();
        send_and_sync::<crate::external::ExternalMapping>();
        send_and_sync::<crate::external::TimelineSemaphore>();
        send_and_sync::<crate::external::BinarySemaphore>();
        send_and_sync::<crate::external::EglImage>();
        send_and_sync::<virtual_memory::PhysicalMemory>();
        send_and_sync::<virtual_memory::Reservation>();
        send_and_sync::<virtual_memory::Mapping>();
        send_and_sync::<virtual_memory::GrowableBuffer<f32>>();
        send_and_sync::<ManagedBuffer<f32>>();
        send_and_sync::<interop::ArrayView<'_, f32>>();
        send_and_sync::<interop::ArrayViewMut<'_, f32>>();
        send_and_sync::<interop::Imported>();
        send_and_sync::<interop::ImportedArray<f32>>();
        send_and_sync::<interop::dlpack::ManagedTensor>();
        send::<interop::dlpack::Export>();
        send_and_sync::<ManagedRange<'_>>();
        send_and_sync::<MemoryPool>();
        send_and_sync::<ImportedPool>();
        send_and_sync::<crate::memory::IpcMemory>();
        send_and_sync::<PointerInfo>();
        send_and_sync::<manager::MemoryPointer>();
        send_and_sync::<manager::AutoFreePointer>();
        send_and_sync::<manager::PinnedMemory>();
        send_and_sync::<manager::MappedMemory>();
        send_and_sync::<dyn manager::MemoryManager>();
        send_and_sync::<manager::OrderEvent>();
        send_and_sync::<manager::DriverMemory>();
        send_and_sync::<manager::FreeCounter>();
        send::<manager::CleanupGuard>();
        send_and_sync::<Error>();
        send::<Graph>();
        send_and_sync::<ExecutableGraph>();
    };
}

pub mod driver_bugs {
    //! Bugs of NVIDIA's driver that were found with this crate.
    //!
    //! They were found on an H200 with driver 580 (CUDA 13.0), by a stress test with 16 threads and
    //! by C programs.
    //!
    //! # Bugs that this crate avoids
    //!
    //! - `cuMemcpyBatchAsync` crashes on a stream of a green context if a source or target is
    //!   stream-ordered memory. On such streams [`CopyBatch`] issues one copy at a time.
    //! - The driver continues to use a memory pool that was destroyed while it still had
    //!   allocations, or while a free was not done. Each allocation therefore keeps its
    //!   [`MemoryPool`] alive, and the pool is destroyed only after the frees are done.
    //! - Destroying a green context does not return all of its memory: 4 MiB of device memory and
    //!   1.7 MiB of host memory stay allocated each time. A [`GreenPool`] reuses green contexts
    //!   instead.
    //! - `cuLogsUnregisterCallback` crashes if a callback is unregistered twice. A
    //!   [`LogCallback`](crate::process::logs::LogCallback) is unregistered once.
    //! - The driver crashes if core dumps are enabled before `cuInit`. [`CoredumpSettings::apply`] calls
    //!   it first.
    //!
    //! # Bugs that the caller must avoid
    //!
    //! - While [core dumps](crate::process::coredump) are on, the first wait after a fault of a kernel succeeds.
    //! - A process that imported memory of another process by a file descriptor or an IPC handle can be
    //!   [checkpointed](crate::process::checkpoint), but never restored.
    //! - `cuGraphInstantiate` crashes if a module whose kernels are in the graph was unloaded. The
    //!   caller of [`TypedKernel::launch`] promises that the module of a captured kernel stays
    //!   loaded.
    //! - **Two contexts of one device, used by many threads,** crash occasionally in calls that
    //!   involve both: copies between the two (`cuMemcpyPeerAsync`), waits of one context for an
    //!   event of the other (`cuCtxWaitEvent`), and copies from pageable memory
    //!   (`cuMemcpyHtoDAsync`) while the other context is current. Use one context per device, the
    //!   primary context, and partition the device with [green contexts](crate::green).
    //!
    //! [`CopyBatch`]: crate::memory::CopyBatch
    //! [`CoredumpSettings::apply`]: crate::process::coredump::CoredumpSettings::apply
    //! [`GreenPool`]: crate::green::GreenPool
    //! [`MemoryPool`]: crate::memory::MemoryPool
    //! [`TypedKernel::launch`]: crate::TypedKernel::launch
}
