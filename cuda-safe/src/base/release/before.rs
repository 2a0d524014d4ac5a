//! Queries and waits before a release.

use super::{Answer, Parent, is_for_now};
use crate::base::capture::{CallGuard, Operation, StreamRef, uncaptured};
use crate::base::current::{ContextHandle, Entered};
use crate::base::error::{Error, is_fatal};
use cuda_sys::{CUevent, CUresult, CUstream, CUstreamCaptureStatus};

/// Waits for the streams on which memory was used that is not freed in stream order. Returns the answer
/// of the first wait that fails.
pub(super) fn wait_for_uses(parent: &(impl Parent + ?Sized)) -> Option<Answer> {
    let streams = parent.ordered_on().into_iter().flatten();
    streams.map(|on| on.raw()).find_map(|stream| {
        // SAFETY: the parent keeps the stream alive.
        let code = unsafe { cuda_sys::cuStreamSynchronize(stream) };
        (!code.is_success()).then_some(Answer::Said(code, "cuStreamSynchronize"))
    })
}

/// Waits for all work of the parent's context. Returns the answer if that fails.
#[cold]
pub(super) fn wait_for_everything(parent: &(impl Parent + ?Sized)) -> Option<Answer> {
    let waited = parent.context().map(ContextHandle::wait_for_all_work);
    match waited {
        Some(Ok(())) => None,
        // More memory may be available later.
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

/// Waits for events. Returns the answer of the first wait that fails.
#[cold]
pub(super) fn wait_for_all(events: &[CUevent]) -> Option<Answer> {
    events.iter().find_map(|event| {
        // SAFETY: the parent keeps the event alive.
        let code = unsafe { cuda_sys::cuEventSynchronize(*event) };
        (!code.is_success()).then_some(Answer::Said(code, "cuEventSynchronize"))
    })
}

/// Counts the release as a call on the streams on which it enqueues work.
///
/// # Errors
/// The outcome of the release if it cannot continue: a stream is capturing, or the driver does not
/// answer.
#[inline(always)]
pub(super) fn enter(parent: &(impl Parent + ?Sized)) -> Result<[Option<CallGuard<'_>>; 2], Answer> {
    let [first, second] = parent.ordered_on();
    let context = parent.context();
    Ok([enter_one(first, context)?, enter_one(second, context)?])
}

#[inline(always)]
fn enter_one<'a>(
    on: Option<StreamRef<'a>>,
    context: Option<&dyn ContextHandle>,
) -> Result<Option<CallGuard<'a>>, Answer> {
    let state = on.and_then(|on| Some((on.raw(), on.state()?)));
    let (Some(on), Some(context)) = (state, context) else {
        // The driver is asked later: see `raw_capture`.
        return Ok(None);
    };
    // SAFETY: the parent keeps the stream alive until the release.
    let entered = unsafe { uncaptured(on, Operation::Release, context) };
    entered.map(Some).or_else(not_entered)
}

/// Returns the outcome of a release that a stream prevents, or `None` to continue because the driver is
/// too old to be asked.
#[cold]
#[inline(never)]
fn not_entered<T>(error: Error) -> Result<Option<T>, Answer> {
    match error {
        Error::Driver(error) => match unanswered(error.call, error.code) {
            Some(answer) => Err(answer),
            None => Ok(None),
        },
        Error::Invalid(_) => Err(Answer::Later),
        _ => Ok(None),
    }
}

/// Returns an answer if a foreign stream on which the release enqueues work is capturing.
pub(super) fn raw_capture(parent: &(impl Parent + ?Sized)) -> Option<Answer> {
    let streams = parent.ordered_on().into_iter().flatten();
    let mut raw = streams
        .filter(|on| on.state().is_none())
        .map(StreamRef::raw);
    raw.find_map(|stream| ask_for_capture(stream, parent))
}

/// Asks the driver whether the stream is capturing.
#[inline(never)]
fn ask_for_capture(stream: CUstream, parent: &(impl Parent + ?Sized)) -> Option<Answer> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the buffer keeps its stream alive, and the pointer refers to a local variable.
    let mut ask = || unsafe { cuda_sys::cuStreamIsCapturing(stream, &raw mut status) };
    let mut code = ask();
    if code == CUresult::CUDA_ERROR_INVALID_CONTEXT {
        // The release itself is retried in the same way.
        if let Some(Ok(_current)) = parent.context().map(Entered::new) {
            code = ask();
        }
    }
    match code {
        CUresult::CUDA_SUCCESS => (status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
            .then_some(Answer::Later),
        code => unanswered("cuStreamIsCapturing", code),
    }
}

/// Returns the outcome of a release after a query before it failed, or `None` to continue.
pub(super) fn unanswered(function: &'static str, code: CUresult) -> Option<Answer> {
    match code {
        // The driver is too old, or will refuse the release for the same reason.
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

/// Returns whether the driver refuses calls on this thread, because it runs a driver callback, or whether
/// that is unknown.
pub(crate) fn in_driver_callback() -> bool {
    callback_thread().is_some()
}

/// Returns an answer if the driver refuses calls on this thread because it runs a driver callback, or
/// if that is unknown. A wait on such a thread might never end.
pub(super) fn callback_thread() -> Option<Answer> {
    let mut current = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    match unsafe { cuda_sys::cuCtxGetCurrent(&raw mut current) } {
        CUresult::CUDA_SUCCESS => None,
        code => unanswered("cuCtxGetCurrent", code),
    }
}
