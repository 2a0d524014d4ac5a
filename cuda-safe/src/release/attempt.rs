//! One attempt to destroy an object: the queries and waits before the driver call, and the call.

use super::failure::{Failure, continue_after, continue_after_answer, is_temporary};
use super::mode::{exchange_mode, restore_mode};
use super::{After, Destroy, Keep};
use crate::call::{
    Answer, ContextHandle, Entered, Error, Outcome, answer, current, in_host_function,
    in_report_hook,
};
use crate::capture_state::{CallGuard, Operation, StreamRef, is_default};
use cuda_sys::{CUresult, CUstreamCaptureMode};

/// Destroys the object if nothing prevents it. See the page of [`release`](super).
#[inline(always)]
pub(super) fn attempt(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
) -> Result<(), Failure> {
    if in_host_function() {
        return Err(Failure::Obstacle);
    }
    let _calls = count_calls(owners)?;
    check_and_destroy(handle, owners)?;
    handle.has_been_destroyed();
    Ok(())
}

/// Counts the release as a call on the streams of the owners.
///
/// # Errors
/// A stream is capturing, or the driver does not answer.
#[inline(always)]
pub(super) fn count_calls(
    owners: &(impl Keep + ?Sized),
) -> Result<[Option<CallGuard<'_>>; 2], Failure> {
    let [first, second] = owners.streams();
    let context = owners.context();
    Ok([count_call(first, context)?, count_call(second, context)?])
}

#[inline(always)]
fn count_call<'a>(
    stream: Option<StreamRef<'a>>,
    context: Option<&dyn ContextHandle>,
) -> Result<Option<CallGuard<'a>>, Failure> {
    let (Some(stream), Some(context)) = (stream, context) else {
        return Ok(None);
    };
    // SAFETY: the owners keep the stream alive. A default stream is that of their context.
    match unsafe { stream.uncaptured(Operation::Release, context) } {
        Ok(call) => Ok(call),
        Err(error) => continue_after(error).map(|()| None),
    }
}

#[inline(always)]
fn check_and_destroy(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
) -> Result<(), Failure> {
    // The handle of a default stream means that of the current context.
    let is_default = |stream: StreamRef<'_>| is_default(stream.raw());
    if handle.after() == After::AllWork || owners.streams().into_iter().flatten().any(is_default) {
        return check_and_destroy_in_context(handle, owners);
    }
    match check_callback(handle).and_then(|()| destroy(handle, owners)) {
        Err(failure) if failure.needs_context() => destroy_in_context(handle, owners, failure),
        done => done,
    }
}

/// Destroys an object whose call needs the context of the owners.
#[cold]
#[inline(never)]
fn check_and_destroy_in_context(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
) -> Result<(), Failure> {
    match owners.context().map(Entered::new) {
        Some(Ok(_current)) => {
            check_callback(handle)?;
            destroy_again(handle, owners)
        }
        Some(Err(Error::Driver(error))) => {
            Err(Failure::Refused(Answer { call: error.call, code: error.code }))
        }
        _ => Err(Failure::Unanswered(Answer {
            call: "cuCtxGetCurrent",
            code: CUresult::CUDA_ERROR_INVALID_CONTEXT,
        })),
    }
}

/// Retries with the context of the owners current, after this failure. This was never observed to be
/// necessary, but drivers differ.
#[cold]
#[inline(never)]
pub(super) fn destroy_in_context(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
    failure: Failure,
) -> Result<(), Failure> {
    match owners.context().map(Entered::new) {
        Some(Ok(_current)) => destroy_again(handle, owners),
        Some(Err(Error::Driver(error))) if is_temporary(error.code) => Err(Failure::Obstacle),
        _ => Err(failure),
    }
}

/// Calls [`destroy`] without inlining, on the rare paths.
#[inline(never)]
fn destroy_again(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
) -> Result<(), Failure> {
    destroy(handle, owners)
}

/// Destroys the object in the relaxed capture mode, which invalidates no capture, after the work that
/// must precede the call.
#[inline(always)]
fn destroy(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
) -> Result<(), Failure> {
    if handle.is_quiet() {
        return destroy_after_work(handle, owners);
    }
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let code = exchange_mode(&mut mode);
    if !code.is_success() {
        mode_is_unchanged(code)?;
        return destroy_after_work(handle, owners);
    }
    let done = destroy_after_work(handle, owners);
    restore_mode(mode);
    done
}

/// Decides whether an attempt continues in the capture mode of the thread.
#[cold]
#[inline(never)]
fn mode_is_unchanged(code: CUresult) -> Result<(), Failure> {
    let call = "cuThreadExchangeStreamCaptureMode";
    match code {
        // The error is about the context that is current now, which may be another one than the
        // object's.
        CUresult::CUDA_ERROR_INVALID_CONTEXT | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            let code = CUresult::CUDA_ERROR_INVALID_CONTEXT;
            Err(Failure::Unanswered(Answer { call, code }))
        }
        code => continue_after_answer(Answer { call, code }),
    }
}

#[inline(always)]
fn destroy_after_work(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
) -> Result<(), Failure> {
    match handle.after() {
        // The order of the streams is that of the calls on them.
        After::Nothing | After::StreamOrder => {}
        // In such calls the driver waits for all work of the context and blocks other threads
        // meanwhile. Waiting for the stream that used the memory blocks no other thread. (Waiting
        // for the whole context would invalidate its captures, even in the relaxed mode: measured
        // with driver 580.)
        After::Uses => {
            wait_for_events(owners)?;
            wait_for_streams(owners)?;
        }
        // The events may belong to streams of other contexts.
        After::AllWork => {
            wait_for_events(owners)?;
            wait_for_all_work(owners)?;
        }
    }
    // SAFETY: the work that must precede the call is complete, or ordered before it. The release ends
    // when a call has succeeded, so no earlier one has.
    accept(unsafe { handle.destroy() })
}

#[inline(always)]
fn accept(answer: Answer) -> Result<(), Failure> {
    match answer.is_done() {
        true => Ok(()),
        false => Err(Failure::Refused(answer)),
    }
}

#[inline]
fn wait_for_events(owners: &(impl Keep + ?Sized)) -> Result<(), Failure> {
    owners.events().into_iter().try_for_each(|event| {
        // SAFETY: the owners keep the event alive.
        accept(unsafe { answer!(cuEventSynchronize(event)) })
    })
}

#[inline]
fn wait_for_streams(owners: &(impl Keep + ?Sized)) -> Result<(), Failure> {
    let mut streams = owners.streams().into_iter().flatten();
    streams.try_for_each(|stream| {
        // SAFETY: the owners keep the stream alive.
        accept(unsafe { answer!(cuStreamSynchronize(stream.raw())) })
    })
}

#[cold]
#[inline]
fn wait_for_all_work(owners: &(impl Keep + ?Sized)) -> Result<(), Failure> {
    let answer = match owners.context().map(ContextHandle::wait_for_all_work) {
        Some(Ok(())) => return Ok(()),
        Some(Err(Error::Driver(error))) => Answer { call: error.call, code: error.code },
        _ => {
            return Err(Failure::Unanswered(Answer {
                call: "cuCtxSynchronize",
                code: CUresult::CUDA_ERROR_INVALID_CONTEXT,
            }));
        }
    };
    Err(match answer.code {
        // More memory may be available later.
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Failure::Unanswered(answer),
        _ => Failure::Refused(answer),
    })
}

/// Returns an error on a callback thread, unless the call waits for nothing. (The driver itself refuses
/// calls there that it does not permit.)
#[inline(always)]
fn check_callback(handle: &(impl Destroy + ?Sized)) -> Result<(), Failure> {
    match handle.is_quiet() || handle.after() == After::StreamOrder {
        true => Ok(()),
        false => check_callback_thread(),
    }
}

/// Returns an error if the driver refuses calls on this thread because it runs a driver callback, or if
/// that is unknown. A wait on such a thread might never end.
#[inline]
fn check_callback_thread() -> Result<(), Failure> {
    match current() {
        Ok(_) => Ok(()),
        Err(error) => continue_after(error),
    }
}

/// Returns whether a wait on this thread can end: the thread runs neither a host function, nor a driver
/// callback of other code, nor the report hook.
#[cold]
#[inline]
pub(crate) fn may_block() -> bool {
    !in_host_function() && !in_report_hook() && check_callback_thread().is_ok()
}
