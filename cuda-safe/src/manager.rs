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
//! [shareable](crate::MemoryPoolOptions::shareable). The other process opens that handle with the
//! [imported pool](crate::pool::ImportedPool). Managed memory has no handle.
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

pub use crate::memory::manager::{
    AutoFreePointer, Block, CleanupGuard, DeferOptions, DriverManager, DriverMemory,
    ExportedMemory, Finalizer, FreeCounter, FreeInProgress, HostBlock, HostPointer,
    INTERFACE_VERSION, IpcHandle, IpcKind, IpcMemory, MappedMemory, MemoryManager, MemoryPointer,
    Order, OrderEvent, PinnedMemory, StreamEnd, clear_memory_manager, in_forked_child,
    in_host_function, in_report_hook, is_out_of_memory, may_block, report_leak,
    set_default_memory_manager, set_memory_manager, with_current_context,
    without_invalidating_captures,
};
