//! Memory managers: one allocator for all of a process's device and pinned memory.
//!
//! Without one, buffers come straight from the driver. With one, [chosen](set_memory_manager) before a
//! context is made, everything that this crate allocates, pins and frees in that context goes through
//! it: [`DeviceBuffer`](crate::DeviceBuffer), [`PinnedBuffer`](crate::PinnedBuffer),
//! [`ManagedBuffer`](crate::ManagedBuffer), [`PitchedBuffer`](crate::PitchedBuffer), and the untyped
//! [`MemoryPointer`] and its kin, which other libraries of the process are given. (Memory of a
//! [`MemoryPool`](crate::MemoryPool) that is named comes from that pool.)
//!
//! ```no_run
//! use cuda_safe::manager::{DriverManager, set_memory_manager};
//! use cuda_safe::{Context, Device, DeviceBuffer};
//!
//! // Of each context that is made from now on.
//! set_memory_manager(|context| DriverManager::new(context))?;
//! let context = Context::primary(&Device::get(0)?)?;
//! let buffer = DeviceBuffer::<f32>::zeroed(&context.stream()?, 1000)?;
//! // Freed by the manager, later and with others.
//! drop(buffer);
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! # Which there are
//! | manager | allocates | frees |
//! |---|---|---|
//! | [`DriverManager`] | plain memory | together, when enough is pending: waits for all work |
//! | [`OrderedManager`] | of the driver's pools | in the order of streams |
//! | [`CachingManager`] | what was freed before, without a call | to itself, without a call; to the manager below it when told |
//!
//! Around any of them: [`LimitManager`], [`FallbackManager`], [`SerialManager`], [`StatisticsManager`],
//! [`LoggingManager`] (whose [traces](trace) can be replayed), [`LeakManager`]. One of one's own is a
//! [`MemoryManager`] with a [`DriverMemory`] for what it does not do itself.
//!
//! # Whose is what
//! A context holds its manager. The manager has the same context *without a manager*: what it makes in
//! that one (memory, streams, events) is the driver's own, and does not hold the manager. So there is no
//! cycle, and a manager goes with the last clone of its context and everything made in it; before that it is
//! [reset](MemoryManager::reset), which says what that means for memory in use. What a manager must not keep is what it is called with: a clone of such a
//! stream would hold the context that holds the manager.
//!
//! # C code
//! Methods of a manager are called with any context current, or none. A manager around C code that allocates in the
//! current context [says so](MemoryManager::needs_current_context), and is then called with its context current.
//!
//! # Other processes
//! [`AutoFreePointer::export`] makes a [handle](IpcHandle) of plain memory, which another process
//! [opens](crate::Context::open_memory). Stream-ordered memory has one if its pool is
//! [shareable](crate::MemoryPoolOptions::shareable), as that of [`OrderedManager::with`] may be: the other
//! process opens it by the [pool](crate::pool::ImportedPool). Managed memory has none.
//!
//! # What it costs
//! A context without a manager is asked once for each allocation whether it has one.

mod block;
mod caching;
mod capture;
mod choice;
mod current;
mod defer;
mod driver;
mod forward;
mod host;
mod ipc;
mod limit;
mod lock;
mod logging;
mod order;
mod ordered;
mod owned;
mod part;
mod pointer;
mod serial;
mod statistics;
pub mod trace;

pub use block::{Block, HostBlock};
pub use caching::{CacheFigures, CachingManager, CachingOptions};
pub(crate) use choice::{Choice, reset_primary_manager};
pub use choice::{clear_memory_manager, set_memory_manager};
pub use defer::{CleanupGuard, DeferOptions};
pub use driver::DriverManager;
pub use host::{HostPointer, MappedMemory, PinnedMemory};
pub use ipc::{ExportedMemory, IpcHandle, IpcKind, IpcMemory};
pub use limit::{Fallback, FallbackManager, LimitManager};
pub use logging::{LeakManager, LoggingManager, Outstanding};
pub use order::{Order, StreamEnd};
pub use ordered::OrderedManager;
pub use part::DriverMemory;
pub(crate) use part::wait_for_context;
pub use pointer::{AutoFreePointer, Finalizer, MemoryPointer};
pub use serial::SerialManager;
pub use statistics::{Sample, Statistics, StatisticsManager, Timeline};

use crate::context::MemoryInfo;
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::memory::PinnedFlags;
use cuda_sys::CUresult;
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

/// The version of [`MemoryManager`] that this crate speaks.
pub const INTERFACE_VERSION: u32 = 1;

/// Who allocates in a context: one for each, made by what [`set_memory_manager`] was given.
///
/// What it hands out are [blocks](Block), plain values; who has one gives it back, once, and
/// [`MemoryPointer`] sees to that. A manager for device memory alone supplies
/// [`allocate`](Self::allocate), [`free`](Self::free) and a [`DriverMemory`] for the
/// [rest](Self::base); whoever overrides [`reset`](Self::reset) or
/// [`defer_cleanup`](Self::defer_cleanup) includes the base's.
///
/// Every method may be called by several threads at once. Any context may be current then, or none, unless the
/// manager [needs its own](Self::needs_current_context).
/// What frees may be called in a host function or on another thread of the driver's callbacks, where the
/// driver refuses nearly everything, in a capture, and in a forked child, where nobody may call the
/// driver; [`DriverMemory`] copes with all of these.
///
/// # Safety
/// A block that is handed out is memory as its method says, of the size asked for, aligned to 256
/// bytes, accessible to the manager's context, and nobody else's until it is given back. Memory that was
/// given back in the [order](Order) of a stream is used again only behind what that stream was given
/// before; memory of no stream's order behind all work of the context at that time. What a block says does
/// not change, and memory stays until it is given back, whatever else happens.
/// [`wrapped`](Self::wrapped) returns the same manager each time, and following it comes to an end.
pub unsafe trait MemoryManager: AsAny + fmt::Debug + Send + Sync {
    /// Returns the version of this interface that the manager is written for. [`set_memory_manager`] refuses a
    /// manager of any other version than [`INTERFACE_VERSION`].
    ///
    /// A manager outside of this crate returns the number itself. The constant would claim the version of
    /// whichever crate it is compiled with.
    fn interface_version() -> u32
    where
        Self: Sized;

    /// Returns whether the manager's context must be current while a method of the manager runs. The default is
    /// `false`.
    ///
    /// A manager around C code returns `true` if that code uses the current context, as everything on the
    /// runtime API does. The context is then current during every call, from [`initialize`](Self::initialize) to
    /// the drop of the manager, and the thread has its former current context back afterwards. Each call asks for
    /// the current context (`cuCtxGetCurrent`), and pushes and pops if another one is current.
    ///
    /// The driver refuses to make a context current in host functions and on the threads of its other callbacks.
    /// Methods that return a `Result` fail there. The other methods, those that free above all, are called
    /// without a current context.
    ///
    /// The answer must not change. A wrapper returns that of the manager it wraps, unless it makes the context
    /// current itself, as [`CachingManager`] does for its upstream manager. [`interface_version`](Self::interface_version),
    /// [`base`](Self::base) and [`wrapped`](Self::wrapped) are called without.
    fn needs_current_context(&self) -> bool {
        false
    }

    /// What allocates everything but device memory, and device memory for nobody else.
    fn base(&self) -> &DriverMemory;

    /// Returns the manager that this is around, if it is around one. By that a pool is found inside its
    /// wrappers, and the managers inside hear of [ends of streams](Self::stream_ends). A pool that is not found
    /// there from the manager of a context treats the streams of that context as [passing](Order::passing).
    fn wrapped(&self) -> Option<&dyn MemoryManager> {
        None
    }

    /// Called before the first use; may be called again, and then undoes nothing.
    ///
    /// # Errors
    /// The manager cannot work; the allocation that it was called for fails with this.
    fn initialize(&self) -> Result<()> {
        Ok(())
    }

    /// Frees the memory that the manager has cached or whose free it has deferred. May be called before
    /// [`initialize`](Self::initialize), and more than once.
    ///
    /// A reset never frees a block that was handed out and not given back: memory in use stays valid, and is freed
    /// when its pointer is dropped. (Managers of Numba free all memory of the context instead.)
    ///
    /// The crate calls it when a context ends or is reset:
    /// - When the last clone of the context and of everything made in it has been dropped, whether the context is
    ///   then destroyed, released, or left to its owner. No memory is in use then, as memory keeps its context
    ///   alive. The manager is dropped next.
    /// - In [`Device::reset_primary`](crate::Device::reset_primary), before the driver destroys all memory of the
    ///   context, including memory in use, which must not be touched afterwards. A context that is made later has
    ///   a new manager.
    ///
    /// It is not called in a forked child.
    fn reset(&self) {
        self.base().reset();
    }

    /// Device memory, of at least one byte; for use in the order of a stream, or of none.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`, if there is no more; what else the manager says.
    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block>;

    /// Takes device memory back. It does not fail: what cannot be freed now is freed later, or leaked,
    /// counted and [reported](crate::set_report_hook).
    ///
    /// # Safety
    /// The block is of [`allocate`](Self::allocate) of this manager, and was not given back. Nobody uses
    /// it but work that was given to the order's stream before; or, if that is none, to any. That stream
    /// comes behind the one that it was allocated in the order of. It is of a context that has this manager,
    /// which so hears that it [ends](Self::stream_ends), or stays longer than the manager; or the order is
    /// [passing](Order::passing).
    unsafe fn free(&self, block: Block, order: Order<'_>);

    /// Page-locked host memory.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate).
    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        self.base().allocate_host(size, flags)
    }

    /// Takes host memory back.
    ///
    /// # Safety
    /// As for [`free`](Self::free), of [`allocate_host`](Self::allocate_host); and the host does not use it
    /// either.
    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.base().free_host(block, order) }
    }

    /// Pins host memory that the caller has.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// There are `size` bytes, and they stay until the driver has let go of them.
    unsafe fn pin(&self, start: NonNull<u8>, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        // SAFETY: the caller's promise.
        unsafe { self.base().pin(start, size, flags) }
    }

    /// Lets go of pinned memory at once: waits for all running work.
    ///
    /// # Errors
    /// Those of the driver; then it is still pinned.
    ///
    /// # Safety
    /// The block is of [`pin`](Self::pin) of this manager and still pinned.
    unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.base().unpin(block) }
    }

    /// Unregisters pinned memory, perhaps later, and then drops its owner. The owner is never dropped before the
    /// memory is unregistered: if that fails, it is leaked. While a [guard](Self::defer_cleanup) lives this is
    /// held back. An owner that holds the context then keeps the context alive, and so the manager.
    ///
    /// # Safety
    /// As for [`unpin`](Self::unpin), and nobody uses it but work that was given to the order's stream
    /// before.
    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.base().release_pin(block, owner, order) }
    }

    /// Managed memory, attached to all streams or, if not `global`, to the host.
    ///
    /// # Errors
    /// As for [`allocate`](Self::allocate); `CUDA_ERROR_NOT_SUPPORTED`.
    fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        self.base().allocate_managed(size, global)
    }

    /// Takes managed memory back.
    ///
    /// # Safety
    /// As for [`free`](Self::free), of [`allocate_managed`](Self::allocate_managed).
    unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller's promise.
        unsafe { self.base().free_managed(block, order) }
    }

    /// The device memory that is free, and all there is, as far as allocations of this manager go.
    ///
    /// # Errors
    /// [`Invalid::ManagerCannot`], if it does not know.
    fn memory_info(&self) -> Result<MemoryInfo> {
        Err(Invalid::ManagerCannot {
            what: "tell how much memory is free",
        }
        .into())
    }

    /// For another process, which opens the memory by it.
    ///
    /// # Errors
    /// [`Invalid::NotShareable`]; those of the driver.
    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        IpcHandle::of(self.base().context(), block)
    }

    /// Returns a guard. While it lives, clean-up that waits for work is held back: frees of device memory and of
    /// host memory, and the unregistration of pinned memory, whose owner stays alive for as long. Guards nest.
    fn defer_cleanup(&self) -> CleanupGuard {
        self.base().defer_cleanup()
    }

    /// Gives kept memory back, until no more than `keep` bytes are kept; how many were given back.
    /// May wait for the work that used it.
    ///
    /// # Errors
    /// Those of that work.
    fn trim(&self, keep: usize) -> Result<usize> {
        let _ = keep;
        Ok(0)
    }

    /// Notes that a stream which was named in an [order](Order::of) ends: the last clone was dropped, and the
    /// handle may be another stream's afterwards. The stream is alive during the call.
    ///
    /// The crate calls this on the manager of the stream's context and on each manager that it is
    /// [around](Self::wrapped), so a wrapper does not pass it on. An implementation must not wait for another
    /// thread. The call may come in the middle of an allocation, on the same thread. It does not come in callbacks
    /// of the driver: a stream whose last clone is dropped there ends with a later call elsewhere. It does not come
    /// for [borrowed](crate::Stream::borrow_raw) streams, whose order is [passing](Order::is_passing).
    fn stream_ends(&self, end: &StreamEnd<'_>) {
        let _ = end;
    }
}

/// The manager, and those that it is [around](MemoryManager::wrapped), from the outside to the inside.
pub(crate) fn with_wrapped(
    manager: &dyn MemoryManager,
) -> impl Iterator<Item = &dyn MemoryManager> {
    std::iter::successors(Some(manager), |its| its.wrapped())
}

/// Whether an allocation failed for want of memory: of the driver's, or of a manager's limit.
pub fn is_out_of_memory(error: &Error) -> bool {
    match error {
        // Other functions have the code for other wants.
        Error::Driver(error) => {
            error.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY && error.call.starts_with("cuMem")
        }
        Error::Invalid(what) => matches!(**what, Invalid::MemoryLimit { .. }),
        _ => false,
    }
}

/// A manager as what it is; every type is this.
#[doc(hidden)]
pub trait AsAny: Any {
    fn as_any(&self) -> &dyn Any;
}

impl<T: Any> AsAny for T {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
