//! The one place that releases what the driver made.
//!
//! The rules, with what was measured on a real driver behind them:
//!
//! - It never panics, and the caller's current context is what it was.
//! - No earlier error stops it. After a fatal one the driver refuses every release: leaked quietly.
//! - In a forked child nothing is called: the driver crashes there.
//! - The end of a right to read shared memory is released as well: where it fails, the memory is
//!   kept for ever, as nobody may write it or free it.
//! - At the end of the process the driver says so (`DEINITIALIZED`): everything is gone, done.
//! - In a host function of this crate no call at all is allowed, so none is made. On the threads of
//!   the driver's other callbacks most calls are refused (`NOT_PERMITTED`), and one that waits for
//!   all work would wait for the callback itself. There, and where the call would become part of a
//!   capture or break it, the release stands in a queue until the next call that creates, copies or
//!   synchronises something finds it possible.
//! - What could be in the way is asked first. Where that gets no answer the release waits in the
//!   queue as well, but not for ever: in the end it is reported as leaked.
//! - What hangs on a borrowed context or stream does not stand in the queue: whoever lent that sees no
//!   queue, and may destroy it as soon as everything made with it is dropped. It is leaked, and
//!   reported.
//! - A release counts itself as a call on the streams that it enqueues work on, so no capture begins
//!   there meanwhile.
//! - A release on one thread breaks captures of the whole process, unless it runs in the relaxed
//!   capture mode: so it does.

mod at_once;
mod before;
mod behind;
mod mode;
mod parent;
mod queue;

pub(crate) use at_once::{release_at_once, release_in_order};
pub(crate) use before::may_wait;
pub(crate) use behind::Behind;
pub(crate) use mode::{relaxed, restore_mode};
pub(crate) use parent::{Parent, Root};
pub use queue::deferred_releases;
pub(crate) use queue::drain;

use self::before::{
    callback_thread, enter, raw_capture, unanswered, wait_for_all, wait_for_everything,
    wait_for_uses,
};
use self::mode::exchange_mode;
use self::queue::put_off;
use crate::call::fail;
use crate::context::Context;
use crate::error::{Error, is_fatal};
use crate::fork;
use crate::memory::VectorMemory;
use crate::report::{Report, count_leak, report};
use crate::stream::is_inside;
use core::ffi::c_void;
use cuda_sys::{
    CU_STREAM_LEGACY, CUcontext, CUdevice, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgreenCtx,
    CUlibrary, CUlinkState, CUmemoryPool, CUmodule, CUresult, CUstream, CUstreamCaptureMode,
};

/// Something of the driver's that has to be given back, once.
#[derive(Debug)]
pub(crate) enum Resource {
    Stream(CUstream),
    Event(CUevent),
    Module(CUmodule),
    Library(CUlibrary),
    Linker(CUlinkState),
    /// Of `cuMemAlloc`.
    Memory(CUdeviceptr),
    /// Of a memory pool. (`cuMemFree` of it would not wait for kernels that use it.)
    OrderedMemory(CUdeviceptr, CUstream),
    /// Likewise, of a pool that its parent holds.
    PoolMemory(CUdeviceptr, CUstream),
    /// Likewise, of no stream's order: behind all work of the context.
    LoosePoolMemory(CUdeviceptr),
    /// Of `cuMemHostAlloc`.
    Pinned(*mut c_void),
    /// Of `cuIpcOpenMemHandle`.
    IpcMemory(CUdeviceptr),
    /// Of `cuMemPoolImportPointer`.
    ImportedMemory(CUdeviceptr),
    /// Of `cuMemHostRegister`. It is freed when it is no longer registered.
    Registered(VectorMemory),
    /// The same of memory whose owner its parent keeps.
    RegisteredOf(*mut c_void),
    /// Of `cuMemPoolCreate`. A driver (580) goes on to use it, if frees of its memory were not done: its
    /// parent has events behind them.
    Pool(CUmemoryPool),
    /// Likewise, of a manager: behind all work of the context.
    LoosePool(CUmemoryPool),
    /// A pool of somebody else's, who is to have it back when the frees are done; as above.
    LentPool,
    Context(CUcontext),
    /// One retain of a device's primary context.
    Primary(CUdevice),
    GreenContext(CUgreenCtx),
    /// The right to read memory on a stream, which its home, where it will be written or freed, has
    /// to come behind. If it cannot, the memory is kept for ever.
    Reads {
        end: CUevent,
        stream: CUstream,
        home: CUstream,
    },
    Graph(CUgraph),
    ExecutableGraph(CUgraphExec),
    /// Nothing of the driver's: the last clone of what its parent is, which ends elsewhere than in a host
    /// function.
    LastClone,
}

// SAFETY: these are handles of the driver, whose releasing functions may be called on any thread;
// nothing is read through the pointers.
unsafe impl Send for Resource {}

/// What becomes of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The driver's code, and the function that gave it.
    Said(CUresult, &'static str),
    /// This is no moment for it: it stands in the queue.
    Later,
    /// A question before it got this code, so that nobody knows what it would break now.
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

    /// Whether it may be another one with the resource's context current.
    #[inline(always)]
    fn wants_a_context(self) -> bool {
        self.code() == Some(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    }
}

/// How often a release is put off for want of an answer. (What *is* known to be in the way, a
/// capture or a callback, ends some time.)
const PATIENCE: u32 = 16;

/// Releases a resource now, or as soon as that is possible.
// Inline all the way: who drops something knows what it is, and so nothing has to be asked here.
#[inline(always)]
pub(crate) fn release(resource: Resource, parent: &(impl Parent + ?Sized)) {
    release_again(resource, parent, 0);
}

/// Has a release wait in the queue, of what hangs on nothing that is lent.
pub(crate) fn later(resource: Resource, parent: &(impl Parent + ?Sized)) {
    put_off(resource, parent, 0, Answer::Later);
}

/// As [`release`], put off `before` times for want of an answer.
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
        (false, resource) => not_yet(resource, parent, before, answer),
    }
}

/// What becomes of a release that has not succeeded.
#[cold]
#[inline(never)]
fn not_yet(resource: Resource, parent: &(impl Parent + ?Sized), before: u32, answer: Answer) {
    let (code, function) = match answer {
        Answer::Said(CUresult::CUDA_ERROR_NOT_PERMITTED, _) => {
            return put_off(resource, parent, before, answer);
        }
        // Of a capture that was not seen, and of which nobody knows when it ends.
        Answer::Said(code, _) if is_for_now(code) && before < PATIENCE => {
            return put_off(resource, parent, before + 1, answer);
        }
        Answer::Later => return put_off(resource, parent, before, answer),
        Answer::Unknown(..) if before < PATIENCE => {
            return put_off(resource, parent, before + 1, answer);
        }
        Answer::Said(code, function) | Answer::Unknown(code, function) => (code, function),
    };
    let leaked = || {
        report(&Report::Leaked {
            what: resource.name(),
            error: fail(function, code),
        });
    };
    resource.keep_what_is_used(parent);
    match code {
        _ if matches!(resource, Resource::Reads { .. }) => leaked(),
        // The process ends, and nothing is left to do.
        CUresult::CUDA_ERROR_DEINITIALIZED => {}
        // The context has taken the resource along; but pools and their memory are the device's,
        // and whether a vector is still pinned nobody says.
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

/// Whether a code speaks of this moment only: of a callback's thread, or of a capture that began
/// after the look for one.
fn is_for_now(code: CUresult) -> bool {
    let captures = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0
        ..=CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.0;
    code == CUresult::CUDA_ERROR_NOT_PERMITTED || captures.contains(&code.0)
}

impl Resource {
    /// What it is, the function that releases it.
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

    /// For what is not released: nobody may write or free what may still be read, whatever the reason,
    /// and a library that is still loaded may be compiled for a context that is made later.
    fn keep_what_is_used(&self, parent: &(impl Parent + ?Sized)) {
        parent.has_leaked();
        if matches!(self, Self::Reads { .. } | Self::Library(_) | Self::LentPool) {
            std::mem::forget(parent.keep());
        }
    }

    /// Releases it, if this is the moment: while no stream is captured that it enqueues work on.
    #[inline(always)]
    fn release_uncaptured(&self, parent: &(impl Parent + ?Sized)) -> Answer {
        if is_inside() {
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

    /// What is left to do as long as no capture can begin on the stream that it was enqueued on.
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
        if answer.wants_a_context() {
            return self.release_under_current(parent, answer);
        }
        answer
    }

    /// What has to do with the legacy default stream, which is that of the current context.
    #[cold]
    #[inline(never)]
    fn release_in_context(&self, parent: &(impl Parent + ?Sized)) -> Answer {
        match parent.context().map(Context::enter) {
            Some(Ok(_current)) => match self.obstacle(parent) {
                Some(answer) => answer,
                None => self.call_again(parent),
            },
            Some(Err(Error::Driver(error))) => Answer::Said(error.code, error.call),
            _ => Answer::Unknown(CUresult::CUDA_ERROR_INVALID_CONTEXT, "cuCtxGetCurrent"),
        }
    }

    /// Never seen, but drivers differ: once more with the context current.
    #[cold]
    #[inline(never)]
    fn release_under_current(&self, parent: &(impl Parent + ?Sized), answer: Answer) -> Answer {
        match parent.context().map(Context::enter) {
            Some(Ok(_current)) => self.call_again(parent),
            Some(Err(Error::Driver(error))) if is_for_now(error.code) => Answer::Later,
            _ => answer,
        }
    }

    /// Why this is no moment for the release: see the head of this file.
    #[inline(always)]
    fn obstacle(&self, parent: &(impl Parent + ?Sized)) -> Option<Answer> {
        match *self {
            // These wait for nothing and are permitted everywhere else.
            Self::Stream(_) | Self::Event(_) | Self::LastClone => None,
            Self::OrderedMemory(..) | Self::PoolMemory(..) | Self::Reads { .. } => {
                raw_capture(parent)
            }
            _ => raw_capture(parent).or_else(callback_thread),
        }
    }

    /// Makes the call, in the capture mode that breaks nobody's capture.
    #[inline(always)]
    fn call(&self, parent: &(impl Parent + ?Sized)) -> Answer {
        // These disturb no capture (measured), so they go without the exchange.
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
            // Of the context that is current now, which need not be the resource's.
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
            Self::Pool(_) | Self::LentPool => wait_for_all(parent.waited_for()),
            Self::LoosePoolMemory(_) => wait_for_everything(parent),
            // The events are of streams of other contexts, perhaps.
            Self::LoosePool(_) => {
                wait_for_all(parent.waited_for()).or_else(|| wait_for_everything(parent))
            }
            // The driver waits for all work of the context in these calls, and stops its other threads
            // meanwhile. A wait for the stream that used the memory stops none. (A wait for the whole
            // context would break its captures, in the relaxed mode too: measured with driver 580.)
            Self::Memory(_) | Self::Pinned(_) | Self::Registered(_) | Self::RegisteredOf(_) => {
                wait_for_all(parent.waited_for()).or_else(|| wait_for_uses(parent))
            }
            _ => None,
        };
        let answer = failed.unwrap_or_else(|| self.call_in_this_mode());
        if exchanged.is_success() {
            restore_mode(mode);
        }
        answer
    }

    /// The same where it is not known what the resource is.
    #[inline(never)]
    fn call_again(&self, parent: &(impl Parent + ?Sized)) -> Answer {
        self.call(parent)
    }

    #[inline(always)]
    fn call_in_this_mode(&self) -> Answer {
        // For all of these: the handle is of a resource that the driver made, its owner is being
        // dropped and has given it here, once, and nothing else of this crate uses it any more.
        let code = match *self {
            // SAFETY: as said above; running work is not disturbed.
            Self::Stream(stream) => unsafe { cuda_sys::cuStreamDestroy_v2(stream) },
            // SAFETY: as said above.
            Self::Event(event) => unsafe { cuda_sys::cuEventDestroy_v2(event) },
            // SAFETY: as said above; the driver waits for kernels of it.
            Self::Module(module) => unsafe { cuda_sys::cuModuleUnload(module) },
            // SAFETY: as said above; the driver waits for kernels of it.
            Self::Library(library) => unsafe { cuda_sys::cuLibraryUnload(library) },
            // SAFETY: as said above; what it writes into is kept by its parent.
            Self::Linker(linker) => unsafe { cuda_sys::cuLinkDestroy(linker) },
            // SAFETY: as said above; whoever used it by its address has waited.
            Self::IpcMemory(address) => unsafe { cuda_sys::cuIpcCloseMemHandle(address) },
            // SAFETY: as said above; likewise: this free waits for nothing.
            Self::ImportedMemory(address) => unsafe { cuda_sys::cuMemFree_v2(address) },
            // SAFETY: as said above; the stream on which all of its uses were is idle.
            Self::Memory(address) => unsafe { cuda_sys::cuMemFree_v2(address) },
            // SAFETY: as said above; the stream orders the free behind the uses of the memory,
            // which safe code can make on this stream only.
            Self::OrderedMemory(address, stream) | Self::PoolMemory(address, stream) => unsafe {
                cuda_sys::cuMemFreeAsync(address, stream)
            },
            // SAFETY: as said above; all work of its context is done, and the stream is the default one of
            // the current context, which is that.
            Self::LoosePoolMemory(address) => unsafe {
                cuda_sys::cuMemFreeAsync(address, CU_STREAM_LEGACY)
            },
            // SAFETY: as said above; safe copies of it are over when they return, the stream that
            // used it by its address is idle, and the driver waits for all other work.
            Self::Pinned(address) => unsafe { cuda_sys::cuMemFreeHost(address) },
            Self::Registered(ref vector) => {
                let start = vector.start().cast();
                // SAFETY: as for pinned memory; it is registered from there on.
                unsafe { cuda_sys::cuMemHostUnregister(start) }
            }
            // SAFETY: as said above; its memory has held it, so that is freed, and its frees are done.
            Self::Pool(pool) | Self::LoosePool(pool) => unsafe { cuda_sys::cuMemPoolDestroy(pool) },
            // SAFETY: as for the vector; its owner is held by its parent.
            Self::RegisteredOf(start) => unsafe { cuda_sys::cuMemHostUnregister(start) },
            // The owner, or the object, is dropped with the parent.
            Self::LentPool | Self::LastClone => CUresult::CUDA_SUCCESS,
            // SAFETY: as said above; whatever lives in the context has held it.
            Self::Context(context) => unsafe { cuda_sys::cuCtxDestroy_v2(context) },
            // SAFETY: as said above; it takes back one retain.
            Self::Primary(device) => unsafe { cuda_sys::cuDevicePrimaryCtxRelease_v2(device) },
            // SAFETY: as said above; its streams hold it, so they are gone.
            Self::GreenContext(context) => unsafe { cuda_sys::cuGreenCtxDestroy(context) },
            // SAFETY: as said above; executable graphs are copies.
            Self::Graph(graph) => unsafe { cuda_sys::cuGraphDestroy(graph) },
            // SAFETY: as said above; launches of it go on, with what they need.
            Self::ExecutableGraph(graph) => unsafe { cuda_sys::cuGraphExecDestroy(graph) },
            Self::Reads { end, stream, home } => {
                // SAFETY: the event and the stream are the reader's, which keeps them alive.
                let recorded = unsafe { cuda_sys::cuEventRecord(end, stream) };
                if !recorded.is_success() {
                    return Answer::Said(recorded, "cuEventRecord");
                }
                // SAFETY: as above; the memory keeps its stream alive.
                unsafe { cuda_sys::cuStreamWaitEvent(home, end, 0) }
            }
        };
        Answer::Said(code, self.function())
    }
}
