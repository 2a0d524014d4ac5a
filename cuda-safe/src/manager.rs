//! Memory managers: one allocator for all device memory and pinned memory of a process.
//!
//! Without a memory manager, buffers are allocated directly from the driver. If one is
//! [set](set_memory_manager) before a context is created, it serves every allocation, registration and
//! free of this crate in that context: [`DeviceBuffer`](crate::DeviceBuffer),
//! [`PinnedBuffer`](crate::PinnedBuffer), [`ManagedBuffer`](crate::ManagedBuffer),
//! [`PitchedBuffer`](crate::PitchedBuffer), and the untyped [`MemoryPointer`], [`PinnedMemory`] and
//! [`MappedMemory`] for other libraries of the process. The exception is memory that is allocated from
//! an explicit [`MemoryPool`](crate::MemoryPool).
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
//! | manager | allocates | frees |
//! |---|---|---|
//! | [`DriverManager`] | synchronous memory (`cuMemAlloc`) | in batches; each batch waits for all work |
//! | [`OrderedManager`] | stream-ordered memory from a pool of the driver | in stream order |
//! | [`CachingManager`] | from its cache, without a driver call unless the cache is empty | into its cache |
//!
//! These can be wrapped in a [`LimitManager`], [`FallbackManager`], [`StatisticsManager`],
//! [`LoggingManager`] (whose [traces](trace) can be replayed) or [`LeakManager`]. A custom manager implements [`MemoryManager`] and uses a [`DriverMemory`] for
//! everything that it does not implement itself.
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
//! [shareable](crate::MemoryPoolOptions::shareable), which is an option of [`OrderedManager::with`].
//! The other process opens that handle with the [imported pool](crate::pool::ImportedPool). Managed
//! memory has no handle.
//!
//! # Costs
//! In a context without a manager, each allocation checks once whether there is one.

pub use crate::memory::manager::{
    AutoFreePointer, Block, CleanupGuard, DeferOptions, DriverManager, DriverMemory,
    ExportedMemory, Finalizer, FreeCounter, FreeInProgress, HostBlock, HostPointer,
    INTERFACE_VERSION, IpcHandle, IpcKind, IpcMemory, MappedMemory, MemoryManager, MemoryPointer,
    Order, OrderEvent, PinnedMemory, StreamEnd, clear_memory_manager, in_forked_child,
    in_host_function, in_report_hook, is_out_of_memory, may_block, report_leak, set_memory_manager,
    with_current_context, without_invalidating_captures,
};
pub use crate::policy::{
    CacheStats, CachingManager, CachingOptions, Fallback, FallbackManager, LeakManager,
    LimitManager, LoggingManager, OrderedManager, Outstanding, Sample, Statistics,
    StatisticsManager, Timeline, trace,
};
