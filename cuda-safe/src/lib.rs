//! The CUDA driver API with RAII: contexts and the context stack, green contexts, streams, events,
//! memory, modules and kernels. It costs what C costs.
//!
//! ```no_run
//! use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
//! use cuda_safe::Device;
//!
//! // Two partitions of the GPU that share no multiprocessor (SM), and a stream on each.
//! let device = Device::get(0)?;
//! let split = SmResource::of_device(&device)?.split_by_count(SplitByCount {
//!     min: 32,
//!     max_groups: Some(2),
//!     ..Default::default()
//! })?;
//! for group in split.groups {
//!     let partition = GreenContext::new([group])?;
//!     let stream = partition.stream()?;
//!     println!("{} SMs, stream {stream:?}", partition.sm_count());
//! }
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! # What it is like
//! - **Every object holds its parent.** Dropping in any order, on any thread, with any context
//!   current or none, is right; forgetting leaks and nothing else.
//! - **The context stack is the caller's.** After every call it is what it was before. What needs
//!   a current context gets one for the length of the call; what names a stream, event or buffer
//!   needs none and is one call of the driver.
//! - **A buffer is bound to a stream**, where all safe work on it runs; so chains of work need
//!   neither waits nor events, and a buffer of another stream is an error.
//! - **Errors name the function** of the driver, the value that was refused, or the version that is
//!   needed. Nothing panics because of the driver, its absence or its age.
//! - **Nothing is hidden**: no events, modes, waits or allocations that the names do not tell.
//!   [`sys`] is there for all that has no safe form yet (COVERAGE.md in the repository lists it);
//!   objects give their raw handles (`as_raw`), and those that other code makes as well take them:
//!   `from_raw` takes over, `borrow_raw` never releases, `from_foreign` keeps an owner alive.
//!
//! # Releases that wait
//!
//! Most releases return at once. These wait for running work, and some of them stop other threads
//! meanwhile: a thread that records an event, launches, creates a stream or an event, allocates
//! synchronously or begins a capture in the same context then blocks inside the driver until the release
//! is done (measured on an H200 with driver 580).
//!
//! | released | waits for | other threads of the context | instead |
//! |---|---|---|---|
//! | [`PinnedBuffer`] | all work of the context | stop | keep it and use it again |
//! | a [`PinnedBuffer`] of a registered vector; [`MappedBuffer`] | its stream, then all work | stop while unrelated work runs | keep it and use it again |
//! | synchronous [`DeviceBuffer`], [`PitchedBuffer`], [`ManagedBuffer`] | its stream, then all work | stop while unrelated work runs | stream-ordered memory: [`DeviceBuffer::zeroed`] |
//! | [`Library`] | all work | stop | keep it; its kernels do |
//! | [`Module`] | all work | go on | keep it; its kernels do |
//! | the last [`manager::IpcMemory`] of an allocation | all work | stop | keep it |
//! | memory of a [`manager::DriverManager`] | all work, when enough is pending | stop | a [`manager::CachingManager`] |
//! | a [`manager::OrderedManager`] with a pool of its own | all work | stop if a capture may be open | keep its context |
//! | [`Context`]: created, or the last of a primary one | all work | go on | keep a clone |
//! | [`MemoryPool`] | the frees of its memory | go on | keep a clone |
//! | [`Pending`], [`CopyScope`] | the copies | go on | [`Pending::wait`], where a wait suits |
//! | [`interop::Imported`] and [`interop::ImportedArray`] without a producer's stream | the work on them | go on | import them with the stream |
//! | [`Stream`], [`Event`], [`Graph`], [`ExecutableGraph`], [`Linker`], [`green::GreenContext`], stream-ordered [`DeviceBuffer`], [`SharedBuffer`] and its readers, leases of a [`green::GreenPool`] | nothing | go on | |
//!
//! If an object of the last row is the last owner of one of the others, that is released with it.
//!
//! A release of memory waits for the stream that used the memory first, which stops no other thread. (A
//! wait for the whole context would invalidate every open capture of that context, whichever thread made
//! it.) Loading a module stops other threads as well: load modules before work begins.
//!
//! A release that is not possible at once, during a capture of its stream or on a driver callback thread,
//! is deferred to the next call that creates, copies or synchronizes. That call may then block.
//! [`deferred_releases`] counts them. If a host function waits for a thread, that thread must drop its own
//! objects; dropping them on a callback thread or during a capture can deadlock. A release that depends on
//! a borrowed context or stream (`borrow_raw`) is not deferred: the object is leaked and reported.
//!
//! # What drivers do wrong
//! Seen on an H200 with driver 580 (CUDA 13.0), by a stress test of 16 threads and by plain C. This
//! crate keeps out of the way of:
//!
//! - `cuMemcpyBatchAsync` crashes on streams of green contexts if one of the memories is
//!   stream-ordered: [`CopyBatch`] gives such copies one by one.
//! - A memory pool that is destroyed while there is memory of it, or a free of it is not done, is
//!   used by the driver all the same: memory holds its [`MemoryPool`], which waits for the frees.
//! - `cuGraphInstantiate` crashes if a module of the graph was unloaded: whoever captures its kernels
//!   promises to keep it ([`TypedKernel::launch`]).
//!
//! It cannot keep out of the way of this one: with **two contexts of one device**, and many threads,
//! calls that have to do with both crash now and then (copies between the two, waits of
//! one for events of the other, copies from plain memory with the other one current). Use one, the
//! primary context, and partition that with [`green`] contexts.
//!
//! # Several devices
//! What a thing of one device does on a stream of another, or in its context:
//!
//! | thing | |
//! |---|---|
//! | [`DeviceBuffer`] and its parts, in copies, launches and [`rebind`](DeviceBuffer::rebind) | an error: they are for their stream |
//! | [`MappedBuffer`], [`ManagedBuffer`] and their slices | an error, likewise |
//! | [`MemoryPool`], for buffers | works with [access](MemoryPool::grant_access), else an error |
//! | [`SharedBuffer::on`] | an error: it is for streams of its context |
//! | [`SharedBuffer::on_peer`] | works: the source of a copy; for kernels `unsafe`, as it takes [access](Context::enable_peer_access) |
//! | [`PinnedBuffer`], in copies | works |
//! | [`Kernel`] of a [`Module`] | an error: it is loaded into one context |
//! | [`Library`] | works: [`Library::kernel`] gives a kernel for each context |
//! | [`Event::record`], [`Context::record`] | an error: an event is recorded in its context |
//! | [`Stream::wait`], [`Context::wait`] for an event | works |
//!
//! Two contexts of one device are as apart as two devices, but for copies, which need no link.
//!
//! # Threads
//! | | `Send` | `Sync` | why |
//! |---|---|---|---|
//! | [`Context`], [`Stream`], [`Event`], [`Module`], [`Library`], [`Global`], [`Kernel`], [`TypedKernel`] | yes | yes | the driver locks inside |
//! | [`MemoryPool`], [`ImportedPool`] | yes | yes | the same |
//! | [`Linker`] | yes | no | changed by `&mut` |
//! | [`Done`] | yes | yes | its state has a lock |
//! | [`green::GreenContext`] | yes | yes | the few calls on its handle go one at a time |
//! | [`green::SmResource`], [`green::SmGroup`], [`green::Workqueues`] | yes | yes | plain data |
//! | [`green::GreenPool`], [`green::Lease`], [`green::PooledPartition`] | yes | yes | they lock inside |
//! | [`green::SmProbe`], [`green::SmProbing`] | yes | yes | a kernel, and a buffer |
//! | [`DeviceBuffer`], [`PitchedBuffer`], [`PinnedBuffer`], [`Pending`] | as `T` | as `T` | they own their memory |
//! | [`MappedBuffer`], [`ManagedBuffer`] | as `T` | as `T` | likewise |
//! | [`SharedBuffer`], [`SharedReader`], [`PeerReader`] | as `Arc<T>` | as `Arc<T>` | they share it |
//! | [`DeviceSlice`], [`DeviceSliceMut`] | as `&[T]`, `&mut [T]` | as those | they borrow it |
//! | [`interop::ArrayView`], [`interop::ArrayViewMut`] | as `&[T]`, `&mut [T]` | as those | likewise |
//! | [`interop::Imported`] | yes | yes | it is lent, and its owner is both |
//! | [`interop::ImportedArray`] | as `T` | as `T` | likewise |
//! | [`interop::dlpack::ManagedTensor`] | yes | yes | its deleter is called on any thread |
//! | [`interop::dlpack::Export`] | yes | no | its owner is dropped on any thread |
//! | [`ManagedRange`] | yes | yes | it borrows memory, and only says where that is to be |
//! | [`PointerInfo`] | yes | yes | plain data |
//! | [`manager::MemoryPointer`], [`manager::PinnedMemory`] and their kin | yes | yes | they only say where memory is |
//! | [`manager::MemoryManager`], [`manager::CleanupGuard`] | yes; yes | yes; no | every manager is; a guard is only dropped |
//! | [`Graph`], [`ExecutableGraph`] | yes | no | the driver does not lock them |
//! | [`Capture`] | no | no | it ends on the thread where it began |
//! | [`CurrentContext`], [`green::CurrentGreenContext`], [`DefaultStream`] | no | no | what is current is a matter of one thread |
//! | [`CopyScope`] | no | no | it is borrowed by one thread |
//!
//! # What it is not
//! No kernel compiler: kernels come from nvcc, NVRTC or `nvptx64` Rust, as PTX, cubin or fatbin. No
//! array library, no runtime API.

mod attempts;
mod call;
mod capture;
mod context;
pub mod device;
mod driver;
mod error;
mod event;
#[cfg(feature = "explore")]
pub mod explore;
mod fork;
mod graph;
pub mod green;
mod hold;
pub mod interop;
mod invalid;
mod launch;
pub mod manager;
mod memory;
mod module;
#[cfg(doctest)]
mod must_not_compile;
mod release;
mod report;
mod stream;
mod sync;

pub use bytemuck;
pub use context::{
    CachePreference, Context, ContextFlags, CurrentContext, GraphicsClient, Limit, MemoryInfo,
    PrimaryState,
};
pub use cuda_sys as sys;
pub use cuda_sys::{CUresult, CudaVersion};
pub use device::{Device, Uuid, attribute};
pub use driver::{init, version};
pub use error::{CompileError, DriverError, Error, Rejected, Result};
pub use event::{Event, EventIpcHandle, EventOptions};
pub use graph::{ExecutableGraph, Graph};
pub use invalid::Invalid;
pub use launch::{
    AccessPolicyWindow, Argument, Arguments, LaunchAttributes, LaunchConfig, MemoryDomainMap,
    Param, Params, ProgrammaticEvent, TypedKernel, Value,
};
pub use memory::{
    Advice, CopyBatch, CopyScope, DeviceBuffer, DeviceSlice, DeviceSliceMut, Extent, ImportedPool,
    ManagedBuffer, ManagedRange, MappedBuffer, MemoryAccess, MemoryLocation, MemoryPool,
    MemoryPoolOptions, MemoryType, PeerReader, Pending, PinnedBuffer, PinnedFlags, PinnedOptions,
    PitchedBuffer, PointerInfo, RangeInfo, Region, RegisterOptions, SharedBuffer, SharedReader,
    pool,
};
pub use module::attribute as kernel_attribute;
pub use module::{
    Global, JitOptions, Kernel, Library, LinkInput, Linked, Linker, LoadingMode, Module,
    OccupancyOptions, Parameter, SuggestedBlock,
};
pub use release::deferred_releases;
pub use report::{Report, leaked, set_report_hook};
pub use stream::{
    AccessProperty, AccessWindow, BarrierScope, Capture, CaptureMode, CaptureStatus, DefaultStream,
    Done, MemoryOperation, MemorySyncDomain, MemorySyncDomainMap, Stream, StreamOptions,
    SynchronizationPolicy, WaitCondition,
};

/// The table of threads in the documentation, held by the compiler.
const _: () = {
    const fn send_and_sync<T: Send + Sync + ?Sized>() {}
    send_and_sync::<Context>();
    send_and_sync::<Stream>();
    send_and_sync::<Event>();
    send_and_sync::<Done>();
    send_and_sync::<Module>();
    send_and_sync::<Library>();
    send_and_sync::<Kernel>();
    send_and_sync::<Global>();
    send_and_sync::<Linked>();
    const fn send<T: Send>() {}
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
    send_and_sync::<DeviceBuffer<f32>>();
    send_and_sync::<SharedBuffer<f32>>();
    send_and_sync::<SharedReader<f32>>();
    send_and_sync::<PeerReader<f32>>();
    send_and_sync::<DeviceSlice<'_, f32>>();
    send_and_sync::<DeviceSliceMut<'_, f32>>();
    send_and_sync::<PinnedBuffer<f32>>();
    send_and_sync::<Pending<f32>>();
    send_and_sync::<MappedBuffer<f32>>();
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
    send_and_sync::<manager::IpcMemory>();
    send_and_sync::<PointerInfo>();
    send_and_sync::<manager::MemoryPointer>();
    send_and_sync::<manager::AutoFreePointer>();
    send_and_sync::<manager::PinnedMemory>();
    send_and_sync::<manager::MappedMemory>();
    send_and_sync::<dyn manager::MemoryManager>();
    send::<manager::CleanupGuard>();
    send_and_sync::<Error>();
    send::<Graph>();
    send::<ExecutableGraph>();
};
