//! The release of driver resources, all in one place.
//!
//! The rules, with measurements on a real driver behind them:
//!
//! - A release never panics, and leaves the caller's current context unchanged.
//! - Earlier errors do not prevent a release. After a fatal error, the driver refuses every release,
//!   and the resource is leaked without a report.
//! - In a forked child no driver call is made, because the driver crashes there.
//! - A right to read shared memory is released too. If that fails, the memory is leaked, because it
//!   must never be written or freed.
//! - When the process exits, the driver returns `DEINITIALIZED`. All resources are destroyed then, and
//!   nothing remains to be done.
//! - In a host function of this crate no driver call is allowed, so none is made. On the threads of
//!   other driver callbacks, the driver refuses most calls (`NOT_PERMITTED`), and a call that waits for
//!   all work would wait for the callback itself. In these cases, and if the call would be captured or
//!   invalidate a capture, the release is deferred: it stays in the release queue until the next call
//!   that creates, copies or synchronizes finds that it is possible.
//! - Possible obstacles are queried before the release. If the driver does not answer a query, the
//!   release is deferred too, but only for a limited number of attempts; then the resource is reported
//!   as leaked.
//! - A resource that depends on a borrowed context or stream is never deferred: its foreign owner does
//!   not know the release queue, and may destroy the context or stream as soon as everything created
//!   with it is dropped. Such a resource is leaked and reported.
//! - A release counts as a call on the streams on which it enqueues work, so no capture begins there
//!   meanwhile.
//! - A release on one thread would invalidate captures of the whole process, so releases run in the
//!   relaxed capture mode.

mod at_once;
mod before;
mod mode;
mod parent;
mod queue;

pub(crate) use at_once::{release_now, release_stream_ordered};
pub(crate) use before::in_driver_callback;
pub(crate) use mode::{relaxed, restore_mode};
pub(crate) use parent::{Parent, Root};
pub use queue::deferred_releases;
pub(crate) use queue::drain;

use self::before::{
    callback_thread, enter, raw_capture, unanswered, wait_for_all, wait_for_everything,
    wait_for_uses,
};
use self::mode::exchange_mode;
use self::queue::defer;
use crate::base::call::fail;
use crate::base::current::Entered;
use crate::base::error::{Error, is_fatal};
use crate::base::fork;
use crate::base::report::{Report, count_leak, report};
use crate::base::vector::VectorMemory;
use crate::base::zone::in_host_function;
use core::ffi::c_void;
use cuda_sys::{
    CU_STREAM_LEGACY, CUcontext, CUdevice, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgreenCtx,
    CUlibrary, CUlinkState, CUmemoryPool, CUmodule, CUresult, CUstream, CUstreamCaptureMode,
};

/// A driver resource that must be released once.
#[derive(Debug)]
pub(crate) enum Resource {
    Stream(CUstream),
    Event(CUevent),
    Module(CUmodule),
    Library(CUlibrary),
    Linker(CUlinkState),
    /// Memory from `cuMemAlloc`.
    Memory(CUdeviceptr),
    /// Memory of a memory pool, freed on this stream. (`cuMemFree` would not wait for kernels that use
    /// it.)
    OrderedMemory(CUdeviceptr, CUstream),
    /// Memory of a memory pool that the parent keeps alive, freed on this stream.
    PoolMemory(CUdeviceptr, CUstream),
    /// Memory of a memory pool that is not ordered on one stream. It is freed after all work of the
    /// context.
    LoosePoolMemory(CUdeviceptr),
    /// Memory from `cuMemHostAlloc`.
    Pinned(*mut c_void),
    /// Memory from `cuIpcOpenMemHandle`.
    IpcMemory(CUdeviceptr),
    /// Memory from `cuMemPoolImportPointer`.
    ImportedMemory(CUdeviceptr),
    /// Memory registered with `cuMemHostRegister`. The vector is freed after it is unregistered.
    Registered(VectorMemory),
    /// Memory registered with `cuMemHostRegister`, whose owner the parent keeps alive.
    RegisteredOf(*mut c_void),
    /// A pool from `cuMemPoolCreate`. A driver (580) still uses a destroyed pool while frees of its
    /// memory are pending, so the parent holds events that were recorded after them.
    Pool(CUmemoryPool),
    /// A pool from `cuMemPoolCreate` that a memory manager used. It is destroyed after all work of the
    /// context.
    LoosePool(CUmemoryPool),
    /// A pool owned by foreign code. Its owner is released when the frees are complete; the parent
    /// holds the events.
    LentPool,
    Context(CUcontext),
    /// One retain of a device's primary context.
    Primary(CUdevice),
    GreenContext(CUgreenCtx),
    /// The right to read memory on a stream. The memory's home stream, on which it will be written or
    /// freed, must wait for the reads. If that is not possible, the memory is leaked.
    Reads {
        end: CUevent,
        stream: CUstream,
        home: CUstream,
    },
    Graph(CUgraph),
    ExecutableGraph(CUgraphExec),
    /// No driver resource: the last clone of the parent, which must not be dropped in a host function.
    LastClone,
}

// SAFETY: these are driver handles, whose release functions may be called on any thread. Nothing is
// read through the pointers.
unsafe impl Send for Resource {}

/// The outcome of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The driver returned this code from this function.
    Said(CUresult, &'static str),
    /// The release is not possible now, so it is deferred.
    Later,
    /// A query before the release failed with this code, so the release might invalidate a capture or
    /// deadlock.
    Unknown(CUresult, &'static str),
}

impl Answer {
    #[inline(always)]
    fn code(self) -> Option<CUresult> {
        match self {
            Self::Said(code, _) | Self::Unknown(code, _) => Some(code),
            Self::Later => None,
        }
    }

    #[inline(always)]
    fn is_done(self) -> bool {
        matches!(self, Self::Said(CUresult::CUDA_SUCCESS, _))
    }

    /// Returns whether the outcome may differ when the resource's context is current.
    #[inline(always)]
    fn needs_context(self) -> bool {
        self.code() == Some(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    }
}

/// The maximum number of retries after a query failed. (A *known* obstacle, a capture or a callback,
/// ends eventually and is not counted.)
const MAX_RETRIES: u32 = 16;

/// Releases a resource now, or as soon as that is possible.
// Always inlined: each caller knows the variant, so the compiler removes the matches.
#[inline(always)]
pub(crate) fn release(resource: Resource, parent: &(impl Parent + ?Sized)) {
    release_again(resource, parent, 0);
}

/// Defers the release of a resource, unless it depends on a borrowed object.
pub(crate) fn later(resource: Resource, parent: &(impl Parent + ?Sized)) {
    defer(resource, parent, 0, Answer::Later);
}

/// Releases a resource whose release was retried `before` times after a query failed.
#[inline(always)]
fn release_again(resource: Resource, parent: &(impl Parent + ?Sized), before: u32) {
    if fork::in_child() {
        count_leak();
        return;
    }
    let answer = resource.release_uncaptured(parent);
    match (answer.is_done(), resource) {
        (true, Resource::Registered(vector)) => vector.free(),
        (true, _) => {}
        (false, resource) => handle_failure(resource, parent, before, answer),
    }
}

/// Handles a release that did not succeed.
#[cold]
#[inline(never)]
fn handle_failure(
    resource: Resource,
    parent: &(impl Parent + ?Sized),
    before: u32,
    answer: Answer,
) {
    let (code, function) = match answer {
        Answer::Said(CUresult::CUDA_ERROR_NOT_PERMITTED, _) => {
            return defer(resource, parent, before, answer);
        }
        // The error is about a capture that was not detected, and that ends at an unknown time.
        Answer::Said(code, _) if is_for_now(code) && before < MAX_RETRIES => {
            return defer(resource, parent, before + 1, answer);
        }
        Answer::Later => return defer(resource, parent, before, answer),
        Answer::Unknown(..) if before < MAX_RETRIES => {
            return defer(resource, parent, before + 1, answer);
        }
        Answer::Said(code, function) | Answer::Unknown(code, function) => (code, function),
    };
    let leaked = || {
        report(&Report::Leaked {
            what: resource.name(),
            error: fail(function, code),
        });
    };
    resource.leak_dependents(parent);
    match code {
        _ if matches!(resource, Resource::Reads { .. }) => leaked(),
        // The process exits, and nothing remains to be done.
        CUresult::CUDA_ERROR_DEINITIALIZED => {}
        // The resource was destroyed with its context. However, pools and their memory belong to the
        // device, and the driver does not report whether a vector is still pinned.
        CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            if let Resource::OrderedMemory(..)
            | Resource::PoolMemory(..)
            | Resource::LoosePoolMemory(_)
            | Resource::Registered(..)
            | Resource::RegisteredOf(..)
            | Resource::Pool(_)
            | Resource::LoosePool(_)
            | Resource::ImportedMemory(_) = resource
            {
                count_leak();
            }
        }
        code if is_fatal(code) => count_leak(),
        _ => leaked(),
    }
}

/// Returns whether an error code is only temporary: it is about a callback thread, or about a capture
/// that began after the check.
fn is_for_now(code: CUresult) -> bool {
    let captures = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0
        ..=CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.0;
    code == CUresult::CUDA_ERROR_NOT_PERMITTED || captures.contains(&code.0)
}

impl Resource {
    /// Returns the name of the resource for messages, and the function that releases it.
    #[inline(always)]
    fn names(&self) -> (&'static str, &'static str) {
        match self {
            Self::Stream(_) => ("a stream", "cuStreamDestroy_v2"),
            Self::Event(_) => ("an event", "cuEventDestroy_v2"),
            Self::Module(_) => ("a module", "cuModuleUnload"),
            Self::Library(_) => ("a library", "cuLibraryUnload"),
            Self::Linker(_) => ("a linker", "cuLinkDestroy"),
            Self::Memory(..) => ("device memory", "cuMemFree_v2"),
            Self::OrderedMemory(..) | Self::PoolMemory(..) | Self::LoosePoolMemory(_) => {
                ("stream-ordered device memory", "cuMemFreeAsync")
            }
            Self::IpcMemory(_) => ("memory of another process", "cuIpcCloseMemHandle"),
            Self::ImportedMemory(_) => ("pool memory of another process", "cuMemFree_v2"),
            Self::Pinned(..) => ("pinned memory", "cuMemFreeHost"),
            Self::Registered(..) | Self::RegisteredOf(..) => {
                ("registered host memory", "cuMemHostUnregister")
            }
            Self::Pool(_) | Self::LoosePool(_) => ("a memory pool", "cuMemPoolDestroy"),
            Self::LentPool => ("the owner of a memory pool", "cuEventSynchronize"),
            Self::Context(_) => ("a context", "cuCtxDestroy_v2"),
            Self::Primary(_) => ("a primary context", "cuDevicePrimaryCtxRelease_v2"),
            Self::GreenContext(_) => ("a green context", "cuGreenCtxDestroy"),
            Self::Reads { .. } => (
                "shared memory that a reader may still use",
                "cuStreamWaitEvent",
            ),
            Self::Graph(_) => ("a graph", "cuGraphDestroy"),
            Self::ExecutableGraph(_) => ("an executable graph", "cuGraphExecDestroy"),
            Self::LastClone => ("an object", "cuCtxGetCurrent"),
        }
    }

    fn name(&self) -> &'static str {
        self.names().0
    }

    #[inline(always)]
    fn function(&self) -> &'static str {
        self.names().1
    }

    /// Keeps objects alive that a leaked resource still uses. Memory that may still be read must never
    /// be written or freed, and a library that is still loaded may be compiled for a context that is
    /// created later.
    fn leak_dependents(&self, parent: &(impl Parent + ?Sized)) {
        parent.has_leaked();
        if matches!(self, Self::Reads { .. } | Self::Library(_) | Self::LentPool) {
            std::mem::forget(parent.keep());
        }
    }

    /// Releases the resource, unless a stream on which the release enqueues work is capturing.
    #[inline(always)]
    fn release_uncaptured(&self, parent: &(impl Parent + ?Sized)) -> Answer {
        if in_host_function() {
            return Answer::Later;
        }
        let _calls = match enter(parent) {
            Ok(calls) => calls,
            Err(answer) => return answer,
        };
        let answer = self.release_once(parent);
        if answer.is_done() {
            self.has_been_enqueued(parent);
        }
        answer
    }

    /// Runs the part of a release that must happen while no capture can begin on the stream of the
    /// release.
    #[inline(always)]
    fn has_been_enqueued(&self, parent: &(impl Parent + ?Sized)) {
        if let Self::PoolMemory(..) = self {
            parent.has_been_freed();
        }
    }

    #[inline(always)]
    fn release_once(&self, parent: &(impl Parent + ?Sized)) -> Answer {
        match *self {
            Self::Reads { stream, home, .. }
                if stream == CU_STREAM_LEGACY || home == CU_STREAM_LEGACY =>
            {
                return self.release_in_context(parent);
            }
            Self::LoosePoolMemory(_) | Self::LoosePool(_) => {
                return self.release_in_context(parent);
            }
            _ => {}
        }
        let answer = match self.obstacle(parent) {
            Some(answer) => answer,
            None => self.call(parent),
        };
        if answer.needs_context() {
            return self.release_under_current(parent, answer);
        }
        answer
    }

    /// Releases a resource with its context current, because the legacy default stream is the one of
    /// the current context.
    #[cold]
    #[inline(never)]
    fn release_in_context(&self, parent: &(impl Parent + ?Sized)) -> Answer {
        match parent.context().map(Entered::new) {
            Some(Ok(_current)) => match self.obstacle(parent) {
                Some(answer) => answer,
                None => self.call_again(parent),
            },
            Some(Err(Error::Driver(error))) => Answer::Said(error.code, error.call),
            _ => Answer::Unknown(CUresult::CUDA_ERROR_INVALID_CONTEXT, "cuCtxGetCurrent"),
        }
    }

    /// Retries with the resource's context current. This was never observed to be necessary, but
    /// drivers differ.
    #[cold]
    #[inline(never)]
    fn release_under_current(&self, parent: &(impl Parent + ?Sized), answer: Answer) -> Answer {
        match parent.context().map(Entered::new) {
            Some(Ok(_current)) => self.call_again(parent),
            Some(Err(Error::Driver(error))) if is_for_now(error.code) => Answer::Later,
            _ => answer,
        }
    }

    /// Returns why the release is not possible now. See the module documentation.
    #[inline(always)]
    fn obstacle(&self, parent: &(impl Parent + ?Sized)) -> Option<Answer> {
        match *self {
            // These calls wait for nothing and are permitted everywhere else.
            Self::Stream(_) | Self::Event(_) | Self::LastClone => None,
            Self::OrderedMemory(..) | Self::PoolMemory(..) | Self::Reads { .. } => {
                raw_capture(parent)
            }
            _ => raw_capture(parent).or_else(callback_thread),
        }
    }

    /// Makes the call in the relaxed capture mode, which invalidates no capture.
    #[inline(always)]
    fn call(&self, parent: &(impl Parent + ?Sized)) -> Answer {
        // Measured: these calls disturb no capture, so the mode is not changed for them.
        let is_quiet = matches!(
            self,
            Self::Stream(_) | Self::Event(_) | Self::Reads { .. } | Self::LastClone
        );
        if is_quiet {
            return self.call_in_this_mode();
        }
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let exchanged = exchange_mode(&mut mode);
        let function = "cuThreadExchangeStreamCaptureMode";
        match exchanged {
            CUresult::CUDA_SUCCESS => {}
            // The error is about the context that is current now, which may be another one than the
            // resource's.
            CUresult::CUDA_ERROR_INVALID_CONTEXT | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
                return Answer::Unknown(CUresult::CUDA_ERROR_INVALID_CONTEXT, function);
            }
            code => {
                if let Some(answer) = unanswered(function, code) {
                    return answer;
                }
            }
        }
        let failed = match self {
            Self::Pool(_) | Self::LentPool => wait_for_all(&parent.waited_for()),
            Self::LoosePoolMemory(_) => wait_for_everything(parent),
            // The events may belong to streams of other contexts.
            Self::LoosePool(_) => {
                wait_for_all(&parent.waited_for()).or_else(|| wait_for_everything(parent))
            }
            // In these calls the driver waits for all work of the context and blocks other threads
            // meanwhile. Waiting for the stream that used the memory blocks no other thread. (Waiting
            // for the whole context would invalidate its captures, even in the relaxed mode: measured
            // with driver 580.)
            Self::Memory(_) | Self::Pinned(_) | Self::Registered(_) | Self::RegisteredOf(_) => {
                wait_for_all(&parent.waited_for()).or_else(|| wait_for_uses(parent))
            }
            _ => None,
        };
        let answer = failed.unwrap_or_else(|| self.call_in_this_mode());
        if exchanged.is_success() {
            restore_mode(mode);
        }
        answer
    }

    /// Calls [`call`](Self::call) without inlining, where the variant is not known at compile time.
    #[inline(never)]
    fn call_again(&self, parent: &(impl Parent + ?Sized)) -> Answer {
        self.call(parent)
    }

    #[inline(always)]
    fn call_in_this_mode(&self) -> Answer {
        // This holds for all calls below: the driver created the resource of the handle, its owner is
        // being dropped and has passed it here once, and no other code of this crate uses it any more.
        let code = match *self {
            // SAFETY: see above. Running work is not affected.
            Self::Stream(stream) => unsafe { cuda_sys::cuStreamDestroy_v2(stream) },
            // SAFETY: see above.
            Self::Event(event) => unsafe { cuda_sys::cuEventDestroy_v2(event) },
            // SAFETY: see above. The driver waits for kernels of the module.
            Self::Module(module) => unsafe { cuda_sys::cuModuleUnload(module) },
            // SAFETY: see above. The driver waits for kernels of the library.
            Self::Library(library) => unsafe { cuda_sys::cuLibraryUnload(library) },
            // SAFETY: see above. The parent keeps the memory alive to which the linker writes.
            Self::Linker(linker) => unsafe { cuda_sys::cuLinkDestroy(linker) },
            // SAFETY: see above. All code that used the memory by its address has waited.
            Self::IpcMemory(address) => unsafe { cuda_sys::cuIpcCloseMemHandle(address) },
            // SAFETY: see above. This free waits for nothing, but all code that used the memory by its
            // address has waited.
            Self::ImportedMemory(address) => unsafe { cuda_sys::cuMemFree_v2(address) },
            // SAFETY: see above. The stream on which all uses of the memory were enqueued is idle.
            Self::Memory(address) => unsafe { cuda_sys::cuMemFree_v2(address) },
            // SAFETY: see above. The stream orders the free after the uses of the memory, which safe
            // code can enqueue only on this stream.
            Self::OrderedMemory(address, stream) | Self::PoolMemory(address, stream) => unsafe {
                cuda_sys::cuMemFreeAsync(address, stream)
            },
            // SAFETY: see above. All work of the memory's context is complete. That context is current,
            // so the stream is its default stream.
            Self::LoosePoolMemory(address) => unsafe {
                cuda_sys::cuMemFreeAsync(address, CU_STREAM_LEGACY)
            },
            // SAFETY: see above. Safe copies of the memory are complete when they return, the stream
            // that used it by its address is idle, and the driver waits for all other work.
            Self::Pinned(address) => unsafe { cuda_sys::cuMemFreeHost(address) },
            Self::Registered(ref vector) => {
                let start = vector.start().cast();
                // SAFETY: as for pinned memory. The memory is registered from this address on.
                unsafe { cuda_sys::cuMemHostUnregister(start) }
            }
            // SAFETY: see above. The pool's memory keeps the pool alive, so that memory is freed, and
            // the frees are complete.
            Self::Pool(pool) | Self::LoosePool(pool) => unsafe { cuda_sys::cuMemPoolDestroy(pool) },
            // SAFETY: as for the vector. The parent keeps the owner of the memory alive.
            Self::RegisteredOf(start) => unsafe { cuda_sys::cuMemHostUnregister(start) },
            // The owner, or the object, is dropped with the parent.
            Self::LentPool | Self::LastClone => CUresult::CUDA_SUCCESS,
            // SAFETY: see above. Every object that lives in the context keeps it alive.
            Self::Context(context) => unsafe { cuda_sys::cuCtxDestroy_v2(context) },
            // SAFETY: see above. This releases one retain.
            Self::Primary(device) => unsafe { cuda_sys::cuDevicePrimaryCtxRelease_v2(device) },
            // SAFETY: see above. The streams of a green context keep it alive, so they are already
            // destroyed.
            Self::GreenContext(context) => unsafe { cuda_sys::cuGreenCtxDestroy(context) },
            // SAFETY: see above. Executable graphs are copies.
            Self::Graph(graph) => unsafe { cuda_sys::cuGraphDestroy(graph) },
            // SAFETY: see above. Its launches continue with the objects that they require.
            Self::ExecutableGraph(graph) => unsafe { cuda_sys::cuGraphExecDestroy(graph) },
            Self::Reads { end, stream, home } => {
                // SAFETY: the event and the stream belong to the reader, which keeps them alive.
                let recorded = unsafe { cuda_sys::cuEventRecord(end, stream) };
                if !recorded.is_success() {
                    return Answer::Said(recorded, "cuEventRecord");
                }
                // SAFETY: the reader keeps the event alive, and the memory keeps its stream alive.
                unsafe { cuda_sys::cuStreamWaitEvent(home, end, 0) }
            }
        };
        Answer::Said(code, self.function())
    }
}
