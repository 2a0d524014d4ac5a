//! How objects are converted to raw handles of the driver, and created from them.
//!
//! Use these functions to call functions of [`sys`](crate::sys) beside this crate, and to share
//! objects with other code, such as PyTorch or a C library.
//!
//! | function | who releases the handle |
//! |---|---|
//! | `as_raw` | the object. The caller must not release the handle |
//! | `into_raw` | the caller |
//! | `unsafe from_raw` | the object, which takes ownership |
//! | `unsafe borrow_raw` | other code, which keeps the handle alive until the object, its clones and everything created from them are dropped |
//! | `unsafe from_foreign` | other code. The object keeps `owner` alive, which keeps the handle alive, and drops it last |
//!
//! Prefer `from_foreign` to `borrow_raw`: it holds a value that keeps the handle alive instead of a
//! promise. A [release](super::releases) that depends on a borrowed handle cannot be deferred.
//!
//! The three constructors return a `Result` on every type. They reject a null handle with
//! [`Invalid::Handle`](crate::Invalid::Handle), and some of them query the driver. After an error
//! the caller still owns the handle.
//!
//! # Types with all five functions
//!
//! | type | handle | the constructors also take | `into_raw` returns |
//! |---|---|---|---|
//! | [`Context`] | `CUcontext` | nothing | the handle |
//! | [`Stream`] | `CUstream` | the context | the handle |
//! | [`Event`] | `CUevent` | the context | the handle |
//! | [`Module`] | `CUmodule` | the context | the handle |
//! | [`Library`] | `CUlibrary` | nothing | the handle |
//! | [`MemoryPool`] | `CUmemoryPool` | the context | the handle |
//! | [`GreenContext`] | `CUgreenCtx` | the primary context | the handle |
//! | [`Graph`] | `CUgraph` | the context | the handle and the objects that its nodes use |
//! | [`ExecutableGraph`] | `CUgraphExec` | the context | the handle and the objects that its nodes use |
//! | [`DeviceBuffer`], [`ManagedBuffer`] | `CUdeviceptr` | the length and the stream | the address and the stream |
//!
//! Clones of an object of the first seven rows share the handle. `into_raw` therefore leaks one
//! reference: the handle, and the objects that it depends on, stay alive until the process ends or
//! the caller destroys the handle. The other types have no clones, and `into_raw` returns the
//! objects that must outlive the handle.
//!
//! # Types with some of them
//!
//! | type | functions | reason |
//! |---|---|---|
//! | [`Kernel`], [`Global`] | `as_raw` | they belong to a module or library: create that from its handle |
//! | [`Device`] | `as_raw` | the handle is the ordinal: [`Device::get`] |
//! | [`Linker`] | `as_raw` | the driver writes to memory that the linker owns |
//! | [`ExternalMemory`](crate::external::ExternalMemory), [`TimelineSemaphore`](crate::external::TimelineSemaphore), [`BinarySemaphore`](crate::external::BinarySemaphore) | `as_raw`, `from_raw`, `into_raw` | the semaphores are used by `&mut` |
//! | [`RegisteredBuffer`](crate::external::RegisteredBuffer), [`RegisteredImage`](crate::external::RegisteredImage) | `as_raw`, `from_raw`, `into_raw` | they are mapped by `&mut` |
//! | [`EglImage`](crate::external::EglImage), [`EglFrame`](crate::external::EglFrame), [`EglConsumer`](crate::external::EglConsumer), [`EglProducer`](crate::external::EglProducer) | `as_raw` | they are created from objects of EGL |
//! | [`PhysicalMemory`](crate::virtual_memory::PhysicalMemory) | `as_raw`, `from_raw`, `into_raw`, `retain` | each mapping needs an owner of the memory |
//! | [`ImportedPool`] | `as_raw` | only an import tells a pool of another process from one of this process |
//! | [`DefaultStream`] | `as_raw` | the handle means a different stream in each context or thread |
//! | slices, views, [`MappedBuffer`], [`ManagedRange`], [`ImportedArray`], [`IpcMemory`] | `as_raw` | they borrow or contain the owner of the memory |
//! | [`Attribute`], [`KernelAttribute`], [`PoolAttribute`] | `as_raw` | the constants of their modules are the only values |
//! | [`MemoryPointer`], [`PinnedMemory`], [`MappedMemory`] | `from_raw` | the owner and the function that releases the memory are arguments |
//! | [`ManagedTensor`], [`Export`] | `from_raw`, `into_raw` | a DLPack tensor owns its memory and has its own deleter |
//!
//! [`Attribute`]: crate::device::Attribute
//! [`Context`]: crate::Context
//! [`DefaultStream`]: crate::stream::DefaultStream
//! [`Device`]: crate::Device
//! [`Device::get`]: crate::Device::get
//! [`DeviceBuffer`]: crate::DeviceBuffer
//! [`Event`]: crate::Event
//! [`ExecutableGraph`]: crate::ExecutableGraph
//! [`Export`]: crate::interop::dlpack::Export
//! [`Global`]: crate::module::Global
//! [`Graph`]: crate::Graph
//! [`GreenContext`]: crate::green::GreenContext
//! [`ImportedArray`]: crate::interop::ImportedArray
//! [`ImportedPool`]: crate::memory::ImportedPool
//! [`IpcMemory`]: crate::memory::IpcMemory
//! [`Kernel`]: crate::Kernel
//! [`KernelAttribute`]: crate::module::attribute::KernelAttribute
//! [`Library`]: crate::module::Library
//! [`Linker`]: crate::module::Linker
//! [`ManagedBuffer`]: crate::memory::ManagedBuffer
//! [`ManagedRange`]: crate::memory::ManagedRange
//! [`ManagedTensor`]: crate::interop::dlpack::ManagedTensor
//! [`MappedBuffer`]: crate::memory::MappedBuffer
//! [`MappedMemory`]: crate::manager::MappedMemory
//! [`MemoryPointer`]: crate::manager::MemoryPointer
//! [`MemoryPool`]: crate::memory::MemoryPool
//! [`Module`]: crate::Module
//! [`PinnedMemory`]: crate::manager::PinnedMemory
//! [`PoolAttribute`]: crate::memory::pool::attribute::PoolAttribute
//! [`Stream`]: crate::Stream

/// Checks the signatures of the first table.
const _: () = {
    use crate::green::GreenContext;
    use crate::memory::{ManagedBuffer, MemoryPool};
    use crate::module::Library;
    use crate::{Context, DeviceBuffer, Event, ExecutableGraph, Graph, Module, Result, Stream};
    use cuda_sys::{
        CUcontext, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgreenCtx, CUlibrary, CUmemoryPool,
        CUmodule, CUstream,
    };

    type New<R, T> = unsafe fn(R) -> Result<T>;
    type In<R, T> = unsafe fn(R, &Context) -> Result<T>;
    type On<T> = unsafe fn(CUdeviceptr, usize, &Stream) -> Result<T>;

    let _: [New<CUcontext, Context>; 2] = [Context::from_raw, Context::borrow_raw];
    let _: [New<CUlibrary, Library>; 2] = [Library::from_raw, Library::borrow_raw];
    let _: [In<CUstream, Stream>; 2] = [Stream::from_raw, Stream::borrow_raw];
    let _: [In<CUevent, Event>; 2] = [Event::from_raw, Event::borrow_raw];
    let _: [In<CUmodule, Module>; 2] = [Module::from_raw, Module::borrow_raw];
    let _: [In<CUmemoryPool, MemoryPool>; 2] = [MemoryPool::from_raw, MemoryPool::borrow_raw];
    let _: [In<CUgreenCtx, GreenContext>; 2] = [GreenContext::from_raw, GreenContext::borrow_raw];
    let _: [In<CUgraph, Graph>; 2] = [Graph::from_raw, Graph::borrow_raw];
    let _: [In<CUgraphExec, ExecutableGraph>; 2] =
        [ExecutableGraph::from_raw, ExecutableGraph::borrow_raw];
    let _: [On<DeviceBuffer<u8>>; 2] = [DeviceBuffer::from_raw, DeviceBuffer::borrow_raw];
    let _: [On<ManagedBuffer<u8>>; 2] = [ManagedBuffer::from_raw, ManagedBuffer::borrow_raw];
};
