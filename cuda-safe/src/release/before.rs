//! What is asked before a release, and what is waited for.

use super::{Answer, Parent, is_for_now};
use crate::context::Context;
use crate::error::{Error, is_fatal};
use crate::event::Event;
use crate::manager::wait_for_context;
use crate::report::in_hook;
use crate::stream::{a_capture_may_be_open, is_inside};
use cuda_sys::{CUresult, CUstream, CUstreamCaptureStatus};

/// Plain memory may be in use on its stream until that is idle. The free waits for all work anyway;
/// this says so for green streams as well. What the wait answers, if it fails.
pub(super) fn wait_for_uses(stream: CUstream) -> Option<Answer> {
    // SAFETY: the buffer kept its stream alive.
    let code = unsafe { cuda_sys::cuStreamSynchronize(stream) };
    (!code.is_success()).then_some(Answer::Said(code, "cuStreamSynchronize"))
}

/// Waits for all work of the parent's context; what that answers, if it fails.
#[cold]
pub(super) fn wait_for_everything(parent: &(impl Parent + ?Sized)) -> Option<Answer> {
    let waited = parent.context().map(wait_for_context);
    match waited {
        Some(Ok(())) => None,
        Some(Err(Error::InHostFunction)) => Some(Answer::Later),
        // There may be more later.
        Some(Err(Error::Driver(error))) if error.code == CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            Some(Answer::Unknown(error.code, error.call))
        }
        Some(Err(Error::Driver(error))) => Some(Answer::Said(error.code, error.call)),
        _ => Some(Answer::Unknown(
            CUresult::CUDA_ERROR_INVALID_CONTEXT,
            "cuCtxSynchronize",
        )),
    }
}

/// Waits for events; what the first that fails answers.
#[cold]
pub(super) fn wait_for_all(events: &[Event]) -> Option<Answer> {
    events.iter().find_map(|event| {
        // SAFETY: the event is alive.
        let code = unsafe { cuda_sys::cuEventSynchronize(event.raw()) };
        (!code.is_success()).then_some(Answer::Said(code, "cuEventSynchronize"))
    })
}

/// Whether work given to a stream is being recorded into a graph: then the release has to wait.
#[inline]
pub(super) fn capture(stream: CUstream, parent: &(impl Parent + ?Sized)) -> Option<Answer> {
    if !a_capture_may_be_open() {
        return None;
    }
    ask_for_capture(stream, parent)
}

/// The driver's word on it.
#[inline(never)]
fn ask_for_capture(stream: CUstream, parent: &(impl Parent + ?Sized)) -> Option<Answer> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the buffer kept its stream alive, and the pointer is to a local.
    let mut ask = || unsafe { cuda_sys::cuStreamIsCapturing(stream, &raw mut status) };
    let mut code = ask();
    if code == CUresult::CUDA_ERROR_INVALID_CONTEXT {
        // As for the release itself.
        if let Some(Ok(_current)) = parent.context().map(Context::enter) {
            code = ask();
        }
    }
    match code {
        CUresult::CUDA_SUCCESS => (status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
            .then_some(Answer::Later),
        code => unanswered("cuStreamIsCapturing", code),
    }
}

/// What becomes of a release if a question before it was not answered; none: it goes on.
pub(super) fn unanswered(function: &'static str, code: CUresult) -> Option<Answer> {
    match code {
        // The driver is older, or will refuse the release for the same reason.
        CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
        | CUresult::CUDA_ERROR_NOT_FOUND
        | CUresult::CUDA_ERROR_NOT_INITIALIZED
        | CUresult::CUDA_ERROR_INVALID_HANDLE
        | CUresult::CUDA_ERROR_INVALID_CONTEXT => None,
        CUresult::CUDA_ERROR_DEINITIALIZED | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            Some(Answer::Said(code, function))
        }
        code if is_fatal(code) || is_for_now(code) => Some(Answer::Said(code, function)),
        _ => Some(Answer::Unknown(code, function)),
    }
}

/// Whether nobody who is waited for can be waiting for this thread, and what is waited for is not this
/// thread's own: not in a host function of this crate, nor in a callback of other code, nor in the report hook.
#[cold]
pub(crate) fn may_wait() -> bool {
    !is_inside() && !in_hook() && callback_thread().is_none()
}

/// Whether the driver refuses this thread, because it is running one of its callbacks: or may, as what
/// waits there may wait for ever.
pub(super) fn callback_thread() -> Option<Answer> {
    let mut current = std::ptr::null_mut();
    // SAFETY: the pointer is to a local.
    match unsafe { cuda_sys::cuCtxGetCurrent(&raw mut current) } {
        CUresult::CUDA_SUCCESS => None,
        code => unanswered("cuCtxGetCurrent", code),
    }
}
