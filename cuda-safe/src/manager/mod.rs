//! Memory managers: one allocator for all device memory and pinned memory of a process.
//!
//! Without a memory manager, buffers are allocated directly from the driver. If one is
//! [set](set_memory_manager) before a context is created, it serves every allocation, registration and
//! free of this crate in that context: [`DeviceBuffer`](crate::DeviceBuffer),
//! [`PinnedBuffer`](crate::PinnedBuffer), [`ManagedBuffer`](crate::memory::ManagedBuffer),
//! [`PitchedBuffer`](crate::memory::PitchedBuffer), and the untyped [`MemoryPointer`], [`PinnedMemory`] and
//! [`MappedMemory`] for other libraries of the process. The exception is memory that is allocated from
//! an explicit [`MemoryPool`](crate::memory::MemoryPool).
//!
//! ```no_run
//! use cuda_safe::manager::{DriverManager, set_memory_manager};
//! use cuda_safe::{Context, Device, DeviceBuffer};
//!
//! // Applies to each context that is created from now on.
//! set_memory_manager(|context| DriverManager::new(context))?;
//! let context = Context::primary(&Device::get(0)?)?;
//! let buffer = DeviceBuffer::<f32>::zeroed(&context.stream()?, 1000)?;
//! // The manager frees it later, in a batch with other memory.
//! drop(buffer);
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! # Managers
//! [`DriverManager`] allocates synchronous memory (`cuMemAlloc`) and frees it in batches, each of which
//! waits for all work. The crate `cuda-memory` has all other managers: a caching pool, a manager of
//! stream-ordered memory, and wrappers with limits, fallbacks, statistics and traces. A custom manager
//! implements [`MemoryManager`]; see [below](#writing-a-manager).
//!
//! # Ownership
//! A context owns its manager. The manager holds the same context *without a manager*: memory, streams
//! and events that it creates in that context come directly from the driver and do not hold the
//! manager. So there is no reference cycle, and a manager is dropped with the last clone of its context
//! and the last object created in it. Before that, the manager is [reset](MemoryManager::reset). A
//! manager must not keep the arguments of a call: a clone of such a stream would hold the context that
//! owns the manager.
//!
//! # C code
//! The methods of a manager are called with any context current, or none. A manager that wraps C code
//! which allocates in the current context returns `true` from
//! [`needs_current_context`](MemoryManager::needs_current_context). Its methods are then called with
//! its context current.
//!
//! # Other processes
//! [`AutoFreePointer::export`] creates a [handle](IpcHandle) for synchronous memory, which another
//! process [opens](crate::Context::open_memory). Stream-ordered memory has a handle if its pool is
//! [shareable](crate::memory::MemoryPoolOptions::shareable). The other process opens that handle with the
//! [imported pool](crate::memory::pool::ImportedPool). Managed memory has no handle.
//!
//! # Writing a manager
//! A manager is called in places where most code is not: in host functions and other callbacks of the
//! driver, during captures, in the report hook, and in forked processes. This module has what a manager
//! needs to be correct there:
//!
//! | task | item |
//! |---|---|
//! | allocate and free memory of the driver, also where the driver refuses the call | [`DriverMemory`] |
//! | allocate from a memory pool of the driver | [`DriverMemory::allocate_from_pool`] |
//! | wait for all work of the context, even during a capture | [`DriverMemory::synchronize`] |
//! | find out whether the host must not wait to free memory | [`DriverMemory::is_cleanup_deferred`] |
//! | reuse memory on another stream | [`OrderEvent`], [`Order::wait_event`] |
//! | recognize a stream | [`Order::key`] |
//! | keep a stream for later, without keeping its context alive | [`Stream::downgrade`](crate::Stream::downgrade) |
//! | find out whether the manager will be notified of a stream's end | [`Order::is_transient_for`] |
//! | enqueue the last work on a stream that ends | [`StreamEnd::order`] |
//! | call the driver without invalidating a capture of another thread | [`without_invalidating_captures`] |
//! | call an inner manager that needs its context current | [`with_current_context`] |
//! | do not fail because another thread is just freeing memory | [`FreeCounter`], [`is_out_of_memory`] |
//! | process releases that captures and callbacks have deferred | [`attempt_deferred_releases`](crate::attempt_deferred_releases) |
//! | find out what is possible on this thread | [`in_host_function`], [`in_report_hook`], [`may_block`] |
//! | find out whether a lock may be held forever | [`in_forked_child`] |
//! | unmap virtual memory when the manager is dropped | [`unmap_after_work`](crate::virtual_memory::unmap_after_work) |
//! | give up memory that cannot be freed | [`report_leak`] |
//!
//! # Costs
//! In a context without a manager, each allocation checks once whether there is one.

mod choice;
mod conditions;
mod current;
mod defer;
mod driver;
mod event;
mod free_counter;
mod ipc;
pub(crate) mod order;
mod pointer;
pub(crate) mod registered;

pub(crate) use choice::ManagerSlot;
pub use choice::{clear_memory_manager, set_default_memory_manager, set_memory_manager};
pub use conditions::{in_forked_child, in_host_function, in_report_hook, may_block, report_leak};
pub use current::with_current_context;
pub use defer::{CleanupGuard, DeferOptions};
pub use driver::{DriverManager, DriverMemory};
pub use event::OrderEvent;
pub use free_counter::{FreeCounter, FreeInProgress};
pub(crate) use ipc::UNSHAREABLE_POOL;
#[cfg(unix)]
pub(crate) use ipc::not_of_a_shared_pool;
pub use ipc::{ExportedMemory, IpcHandle, IpcKind};
pub use order::{Order, StreamEnd, without_invalidating_captures};
pub use pointer::{
    AutoFreePointer, Finalizer, HostPointer, MappedMemory, MemoryPointer, PinnedMemory,
};

use crate::call::{Error, Invalid, Result, error};
use crate::context::MemoryInfo;
use bitflags::bitflags;
use cuda_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE, CUdeviceptr,
};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

/// The version of the [`MemoryManager`] interface that this crate supports.
pub const INTERFACE_VERSION: u32 = 1;

/// The allocator of a context. The function given to [`set_memory_manager`] creates one for each
/// context.
///
/// A manager allocates [blocks](Block), which are plain values. The owner of a block must free it
/// exactly once; [`MemoryPointer`] does that. A manager for device memory only implements
/// [`allocate`](Self::allocate), [`free`](Self::free) and [`base`](Self::base), which returns the
/// [`DriverMemory`] for everything else. An implementation of [`reset`](Self::reset) or
/// [`defer_cleanup`](Self::defer_cleanup) must include that of the base.
///
/// Every method may be called from several threads at once. Any context may be current at that time, or
/// none, unless the manager [needs its own](Self::needs_current_context).
///
/// Methods that free memory may be called in a host function or on another callback thread of the
/// driver, where the driver refuses nearly every call, during a capture, and in a forked child, where
/// the driver must not be called. [`DriverMemory`] handles all of these cases.
///
/// # Safety
/// An allocated block must be memory as its method describes: of the requested size, aligned to 256
/// bytes, accessible to the manager's context, and not shared with any other block until it is freed.
/// Memory that was freed in the [order](Order) of a stream must be reused only after the work that was
/// enqueued on that stream before the free. Memory that was freed without a stream must be reused only
/// after all work of the context at that time. The contents of a block value do not change, and the
/// memory stays valid until it is freed, whatever else happens. [`wrapped`](Self::wrapped) must return
/// the same manager each time, and following it repeatedly must end.
pub unsafe trait MemoryManager: AsAny + fmt::Debug + Send + Sync {
    /// Returns the version of this interface that the manager implements. [`set_memory_manager`]
    /// rejects a manager of any other version than [`INTERFACE_VERSION`].
    ///
    /// A manager outside of this crate must return the number itself. The constant would report the
    /// version of the crate that the manager is compiled with.
    fn interface_version() -> u32
    where
        Self: Sized;

    /// Returns whether the manager's context must be current while a method of the manager runs. The
    /// default is `false`.
    ///
    /// A manager that wraps C code returns `true` if that code uses the current context, as everything
    /// based on the runtime API does. The context is then current during every call, from
    /// [`initialize`](Self::initialize) to the drop of the manager, and the previous current context of
    /// the thread is restored afterwards. Each call queries the current context (`cuCtxGetCurrent`),
    /// and pushes and pops if another one is current.
    ///
    /// The driver refuses to make a context current in host functions and on its other callback
    /// threads. Methods that return a `Result` fail there. The other methods, in particular those that
    /// free memory, are called without a current context.
    ///
    /// The returned value must not change. A wrapper returns the value of the manager that it wraps,
    /// unless it stores that manager [`with_current_context`].
    /// [`interface_version`](Self::interface_version), [`base`](Self::base) and
    /// [`wrapped`](Self::wrapped) are called without the context being made current.
    fn needs_current_context(&self) -> bool {
        false
    }

    /// Returns the [`DriverMemory`] that allocates everything except device memory. It allocates device
    /// memory only for this manager.
    fn base(&self) -> &DriverMemory;

    /// Returns the manager that this manager wraps, if there is one. This is how a pool is found inside
    /// its wrappers, and how inner managers are notified of [ending streams](Self::stream_ends). A pool
    /// that cannot be found this way from the manager of a context treats the streams of that context
    /// as [transient](Order::transient).
    fn wrapped(&self) -> Option<&dyn MemoryManager> {
        None
    }

    /// Prepares the manager for its first use. It is called before that, and may be called again; a
    /// repeated call must not undo anything.
    ///
    /// # Errors
    /// The manager cannot work. The allocation that caused this call fails with the same error.
    fn initialize(&self) -> Result<()> {
        Ok(())
    }

    /// Frees the memory that the manager has cached or whose free it has deferred. May be called before
    /// [`initialize`](Self::initialize), and more than once.
    ///
    /// A reset never frees a block that is still allocated: memory in use stays valid, and is freed
    /// when its pointer is dropped. (Memory managers of Numba free all memory of the context instead.)
    ///
    /// This crate calls it when a context ends or is reset:
    /// - When the last clone of the context and of everything created in it has been dropped, whether
    ///   the context is then destroyed, released, or left to its owner. No memory is in use then, as
    ///   memory keeps its context alive. The manager is dropped next.
    /// - In [`Device::reset_primary`](crate::Device::reset_primary), before the driver destroys all
    ///   memory of the context, including memory in use, which must not be accessed afterwards. A
    ///   context that is created later has a new manager.
    ///
    /// It is not called in a forked child.
    fn reset(&self) {
        self.base().reset();
    }

    /// Allocates `size` bytes of device memory, at least one. The memory is for use in the order of a
    /// stream, or without a stream.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if there is not enough memory; other errors of the manager.
    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block>;

    /// Frees device memory. It cannot fail: memory that cannot be freed now is freed later, or is
    /// leaked, counted and [reported](crate::set_report_hook).
    ///
    /// # Safety
    /// - `block` was returned by [`allocate`](Self::allocate) of this manager and has not been freed.
    /// - The memory is used only by work that was enqueued before, on the stream of `order`; or on any
    ///   stream, if `order` has none.
    /// - The stream of `order` is ordered after the stream that the block was allocated on.
    /// - The stream belongs to a context that has this manager, so that the manager is notified when
    ///   the stream [ends](Self::stream_ends); or it outlives the manager; or the order is
    ///   [transient](Order::transient).
    unsafe fn free(&self, block: Block, order: Order<'_>);

    /// Allocates page-locked host memory.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if there is not enough memory; other errors of the manager.
    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        self.base().allocate_host(size, flags)
    }

    /// Frees page-locked host memory.
    ///
    /// # Safety
    /// See [`free`](Self::free). `block` was returned by [`allocate_host`](Self::allocate_host), and
    /// the host does not use the memory either.
    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.base().free_host(block, order) }
    }

    /// Registers (pins) host memory of the caller.
    ///
    /// # Errors
    /// Errors of the driver.
    ///
    /// # Safety
    /// `start` points to `size` bytes, which stay allocated until the driver has unregistered them.
    unsafe fn pin(&self, start: NonNull<u8>, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        // SAFETY: the caller's promise.
        unsafe { self.base().pin(start, size, flags) }
    }

    /// Unregisters pinned memory at once. Waits for all running work.
    ///
    /// # Errors
    /// Errors of the driver. The memory is then still registered.
    ///
    /// # Safety
    /// `block` was returned by [`pin`](Self::pin) of this manager and is still registered.
    unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.base().unpin(block) }
    }

    /// Unregisters pinned memory, possibly later, and then drops its owner. The owner is never dropped
    /// before the memory is unregistered: if that fails, the owner is leaked. While a
    /// [guard](Self::defer_cleanup) is alive, the release is deferred. An owner that holds the context
    /// then keeps the context and so the manager alive.
    ///
    /// # Safety
    /// See [`unpin`](Self::unpin). In addition, the memory is used only by work that was enqueued
    /// before on the stream of `order`.
    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.base().release_pin(block, owner, order) }
    }

    /// Allocates managed memory, attached to all streams if `global`, otherwise to the host.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY` if there is not enough memory; `CUDA_ERROR_NOT_SUPPORTED`; other
    /// errors of the manager.
    fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        self.base().allocate_managed(size, global)
    }

    /// Frees managed memory.
    ///
    /// # Safety
    /// See [`free`](Self::free). `block` was returned by [`allocate_managed`](Self::allocate_managed).
    unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.base().free_managed(block, order) }
    }

    /// Returns the free and the total device memory that this manager can allocate from.
    ///
    /// # Errors
    /// [`Invalid::ManagerCannot`] if the manager does not know.
    fn memory_info(&self) -> Result<MemoryInfo> {
        Err(Invalid::ManagerCannot { what: "report how much memory is free" }.into())
    }

    /// Returns a handle with which another process opens the memory.
    ///
    /// # Errors
    /// [`Invalid::NotShareable`]; errors of the driver.
    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        IpcHandle::of(self.base().context(), block)
    }

    /// Returns a guard. While it is alive, clean-up that waits for work is deferred: frees of device
    /// memory and of host memory, and the unregistration of pinned memory, whose owner also stays
    /// alive. Guards nest.
    fn defer_cleanup(&self) -> CleanupGuard {
        self.base().defer_cleanup()
    }

    /// Frees cached memory until at most `keep` bytes are cached, and returns the number of bytes that
    /// were freed. May wait for the work that used the memory.
    ///
    /// # Errors
    /// Errors of that work.
    fn trim(&self, keep: usize) -> Result<usize> {
        let _ = keep;
        Ok(0)
    }

    /// Notifies the manager that a stream which was used in an [order](Order::of) ends: its last clone
    /// was dropped, and its handle may belong to another stream afterwards. The stream is alive during
    /// the call.
    ///
    /// This crate calls it on the manager of the stream's context and on each manager that it
    /// [wraps](Self::wrapped), so a wrapper must not forward it. An implementation must not wait for
    /// another thread. The call can occur in the middle of an allocation on the same thread. It does
    /// not occur in callbacks of the driver: a stream whose last clone is dropped there ends with a
    /// later call elsewhere. It does not occur for [borrowed](crate::Stream::borrow_raw) streams, whose
    /// order is [transient](Order::is_transient).
    fn stream_ends(&self, end: &StreamEnd<'_>) {
        let _ = end;
    }
}

impl dyn MemoryManager {
    /// Returns the manager as its concrete type, or `None` if it is of another type.
    ///
    /// To find a manager inside of its wrappers, follow [`wrapped`](MemoryManager::wrapped).
    pub fn downcast_ref<M: MemoryManager>(&self) -> Option<&M> {
        current::without_current(self).as_any().downcast_ref()
    }
}

/// Iterates over the manager and those that it [wraps](MemoryManager::wrapped), from the outermost to
/// the innermost.
#[inline]
fn with_wrapped(manager: &dyn MemoryManager) -> impl Iterator<Item = &dyn MemoryManager> {
    std::iter::successors(Some(manager), |its| its.wrapped())
}

/// Returns whether an allocation failed because there was not enough memory, of the driver or within
/// the limit of a manager.
#[inline]
pub fn is_out_of_memory(error: &Error) -> bool {
    match error {
        Error::Driver(error) => error::is_out_of_memory(error),
        Error::OutOfMemory(_) => true,
        Error::Invalid(what) => matches!(**what, Invalid::MemoryLimit { .. }),
        _ => false,
    }
}

/// Converts a manager to [`Any`], for downcasts to its concrete type. Implemented for every type.
#[doc(hidden)]
pub trait AsAny: Any {
    fn as_any(&self) -> &dyn Any;
}

impl<T: Any> AsAny for T {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A block of device memory of a [manager](MemoryManager). It is a plain value, which must be
/// passed to the free function unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// The address of its first byte.
    pub address: CUdeviceptr,
    /// The requested size in bytes.
    pub size: usize,
    /// The manager's identifier of the block.
    pub token: u64,
}

/// A block of pinned host memory of a [manager](MemoryManager). It is a plain value, which must
/// be passed to the free function unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostBlock {
    /// The host address of its first byte.
    pub start: NonNull<u8>,
    /// The requested size in bytes.
    pub size: usize,
    /// The device address of its first byte if it is mapped, otherwise 0.
    pub address: CUdeviceptr,
    /// The manager's identifier of the block.
    pub token: u64,
}

// SAFETY: the value only describes where memory is. It does not access the memory.
unsafe impl Send for HostBlock {}
// SAFETY: the value only describes where memory is. It does not access the memory.
unsafe impl Sync for HostBlock {}

bitflags! {
    /// Flags of pinned memory (`CU_MEMHOSTALLOC_*`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct PinnedFlags: u32 {
        /// Pinned for all contexts.
        const PORTABLE = CU_MEMHOSTALLOC_PORTABLE;
        /// Accessible to kernels.
        const MAPPED = CU_MEMHOSTALLOC_DEVICEMAP;
        /// Write-combined: reading it is slow for the host.
        const WRITE_COMBINED = CU_MEMHOSTALLOC_WRITECOMBINED;
        // Unknown flags of newer drivers are preserved.
        const _ = !0;
    }
}

// The flags of `cuMemHostRegister` have the same bits as those of `cuMemHostAlloc`.
const _: () = assert!(
    CU_MEMHOSTREGISTER_PORTABLE == CU_MEMHOSTALLOC_PORTABLE
        && CU_MEMHOSTREGISTER_DEVICEMAP == CU_MEMHOSTALLOC_DEVICEMAP
);

impl PinnedFlags {
    /// Returns the flags of `cuMemHostRegister`, where memory cannot become write-combined.
    #[inline]
    pub(crate) fn register_bits(self) -> u32 {
        (self & (Self::PORTABLE | Self::MAPPED)).bits()
    }
}
