//! One attempt to destroy an object: the queries and waits before the driver call, the call, and what
//! its failure means. [`release_now`] and [`release_stream_ordered`] are the path of most releases,
//! which nothing prevents; they take the other path if something does.

use crate::call::{
    Answer, ContextHandle, Entered, Error, Invalid, Outcome, Report, Result, answer, count_leak,
    current, fail, fork, in_host_function, in_report_hook, is_fatal, refuse_if, report,
};
use crate::capture_state::{CallGuard, Operation, State, StreamRef, is_default};
use crate::release::{After, Destroy, Keep, Leftover, has_failed, release};
use cuda_sys::{CUevent, CUresult, CUstreamCaptureMode};

/// Destroys the object if nothing prevents it. See the page of [`release`](super).
#[inline(always)]
pub(super) fn attempt(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
) -> Result<(), Failure> {
    refuse_if!(in_host_function(), Failure::Obstacle);
    check_thread(handle)?;
    let _calls = count_calls(owners)?;
    check_and_destroy(handle, owners)?;
    handle.has_been_destroyed();
    Ok(())
}

/// Returns an error if another thread alone can make the call.
#[inline(always)]
fn check_thread(handle: &(impl Destroy + ?Sized)) -> Result<(), Failure> {
    match handle.thread() {
        Some(thread) if thread.is_current() => Ok(()),
        Some(thread) if thread.has_ended() => Err(Failure::ThreadHasEnded),
        Some(_) => Err(Failure::Obstacle),
        None => Ok(()),
    }
}

/// Counts the release as a call on the streams of the owners.
///
/// # Errors
/// A stream is capturing, or the driver does not answer.
#[inline(always)]
fn count_calls(owners: &(impl Keep + ?Sized)) -> Result<[Option<CallGuard<'_>>; 2], Failure> {
    let [first, second] = owners.streams();
    let context = owners.context();
    Ok([count_call(first, context)?, count_call(second, context)?])
}

#[inline(always)]
fn count_call<'a>(
    stream: Option<StreamRef<'a>>,
    context: Option<&dyn ContextHandle>,
) -> Result<Option<CallGuard<'a>>, Failure> {
    let (Some(stream), Some(context)) = (stream, context) else { return Ok(None) };
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
    if handle.after() == After::AllWork || any_is_default(&owners.streams()) {
        return check_and_destroy_in_context(handle, owners);
    }
    match check_callback(handle).and_then(|()| destroy(handle, owners)) {
        Err(failure) if failure.needs_context() => destroy_in_context(handle, owners, failure),
        done => done,
    }
}

/// Returns whether one of the streams is a default stream, whose handle means that of the current context.
#[inline(always)]
fn any_is_default([first, second]: &[Option<StreamRef<'_>>; 2]) -> bool {
    let is_default = |stream: &StreamRef<'_>| is_default(stream.raw());
    first.as_ref().is_some_and(is_default) || second.as_ref().is_some_and(is_default)
}

/// Destroys an object whose call needs the context of the owners.
#[cold]
#[inline(never)]
fn check_and_destroy_in_context(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
) -> Result<(), Failure> {
    let _current = enter(owners.context())?;
    check_callback(handle)?;
    destroy_again(handle, owners)
}

/// Retries with the context of the owners current, after this failure. This was never observed to be
/// necessary, but drivers differ.
#[cold]
#[inline(never)]
fn destroy_in_context(
    handle: &mut (impl Destroy + ?Sized),
    owners: &(impl Keep + ?Sized),
    failure: Failure,
) -> Result<(), Failure> {
    let _current = enter(owners.context()).map_err(|refused| match refused {
        Failure::Refused(answer) if is_temporary(answer.code) => Failure::Obstacle,
        _ => failure,
    })?;
    destroy_again(handle, owners)
}

/// Makes the context of the owners current.
#[cold]
#[inline(never)]
fn enter(
    context: Option<&dyn ContextHandle>,
) -> Result<Entered<'_, dyn ContextHandle + '_>, Failure> {
    match context.map(Entered::new) {
        Some(Ok(current)) => Ok(current),
        Some(Err(Error::Driver(error))) => {
            Err(Failure::Refused(Answer { call: error.call, code: error.code }))
        }
        _ => Err(Failure::Unanswered(Answer {
            call: "cuCtxGetCurrent",
            code: CUresult::CUDA_ERROR_INVALID_CONTEXT,
        })),
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
            // SAFETY: the owners keep their events alive.
            unsafe { wait_for_events(owners.events()) }?;
            wait_for_streams(owners.streams())?;
        }
        // The events may belong to streams of other contexts.
        After::AllWork => {
            // SAFETY: the owners keep their events alive.
            unsafe { wait_for_events(owners.events()) }?;
            wait_for_all_work(owners.context())?;
        }
    }
    // SAFETY: the work that must precede the call is complete, or ordered before it. The release ends
    // when a call has succeeded, so no earlier one has.
    accept(unsafe { handle.destroy() })
}

#[inline(always)]
fn accept(answer: Answer) -> Result<(), Failure> {
    if answer.is_done() { Ok(()) } else { Err(Failure::Refused(answer)) }
}

/// Waits for events.
///
/// # Safety
/// The events are alive.
#[inline]
unsafe fn wait_for_events(events: Vec<CUevent>) -> Result<(), Failure> {
    events.into_iter().try_for_each(|event| {
        // SAFETY: the caller's promise.
        accept(unsafe { answer!(cuEventSynchronize(event)) })
    })
}

/// Waits for streams that the owners keep alive.
#[inline]
fn wait_for_streams(streams: [Option<StreamRef<'_>>; 2]) -> Result<(), Failure> {
    streams.into_iter().flatten().try_for_each(|stream| {
        // SAFETY: the owners keep the stream alive.
        accept(unsafe { answer!(cuStreamSynchronize(stream.raw())) })
    })
}

#[cold]
#[inline]
fn wait_for_all_work(context: Option<&dyn ContextHandle>) -> Result<(), Failure> {
    let answer = match context.map(ContextHandle::wait_for_all_work) {
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

/// Destroys an object whose call is [quiet](Destroy::is_quiet) and comes after nothing: an event or a
/// stream.
// The handle is copied, so that its address does not escape: it stays in a register.
#[inline(always)]
pub(crate) fn release_now(handle: impl Destroy + Copy, owners: &impl Keep) {
    if fork::in_child() || in_host_function() {
        return take_other_path(handle, owners);
    }
    // SAFETY: this is the first call, and nothing must precede it.
    let answer = unsafe { handle.destroy() };
    if !answer.is_done() {
        is_refused(handle, owners, answer.call, answer.code);
    }
}

/// Frees stream-ordered memory on the stream of the owners, whose capture state is `state`.
#[inline(always)]
pub(crate) fn release_stream_ordered(
    handle: impl Destroy + Copy,
    state: &State,
    owners: &impl Keep,
) {
    match free_in_order(handle, state) {
        None => take_other_path(handle, owners),
        Some(answer) if !answer.is_done() => {
            is_refused(handle, owners, answer.call, answer.code);
        }
        Some(_) => {}
    }
}

/// Frees the memory. Returns the driver's answer, or `None` if the driver was not called.
#[inline(always)]
fn free_in_order(handle: impl Destroy + Copy, state: &State) -> Option<Answer> {
    if fork::in_child() || in_host_function() {
        return None;
    }
    let call = state.enter(Operation::Release);
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    if !call.seen().is_plain() || !exchange_mode(&mut mode).is_success() {
        return None;
    }
    // SAFETY: this is the first call, and the stream orders it after the uses of the memory.
    let answer = unsafe { handle.destroy() };
    restore_mode(mode);
    Some(answer)
}

#[cold]
#[inline(never)]
fn take_other_path(handle: impl Destroy, owners: &impl Keep) {
    release(handle, owners);
}

// The answer is passed in parts, in registers. As a whole it would be stored before the test whether the
// call has succeeded: 5 more instructions for each event and stream.
#[cold]
#[inline(never)]
fn is_refused(mut handle: impl Destroy, owners: &impl Keep, call: &'static str, code: CUresult) {
    let failure = Failure::Refused(Answer { call, code });
    let mut done = Err(failure);
    if failure.needs_context() {
        // A capture may have begun in the meantime.
        done =
            count_calls(owners).and_then(|_calls| destroy_in_context(&mut handle, owners, failure));
    }
    if let Err(failure) = done {
        has_failed(handle, owners, failure);
    }
}

/// Sets the thread's capture mode, and stores the previous one in `mode`.
#[inline]
fn exchange_mode(mode: &mut CUstreamCaptureMode) -> CUresult {
    // SAFETY: the pointer refers to a borrowed value.
    unsafe { cuda_sys::cuThreadExchangeStreamCaptureMode(mode) }
}

/// Restores the thread's capture mode, with one retry if the driver refuses.
#[inline]
pub(crate) fn restore_mode(before: CUstreamCaptureMode) {
    let mut mode = before;
    let code = exchange_mode(&mut mode);
    if !code.is_success() {
        restore_again(before, code);
    }
}

#[cold]
#[inline(never)]
fn restore_again(before: CUstreamCaptureMode, code: CUresult) {
    let mut mode = before;
    if exchange_mode(&mut mode).is_success() {
        return;
    }
    let nothing_is_left = code == CUresult::CUDA_ERROR_DEINITIALIZED || is_fatal(code);
    if !nothing_is_left {
        report(&Report::CaptureMode { error: fail("cuThreadExchangeStreamCaptureMode", code) });
    }
}

/// Calls a function in the relaxed capture mode, which invalidates no capture. If the driver refuses to
/// change the mode, the function is not called.
///
/// # Errors
/// The driver's refusal to change the mode; errors of `f`.
pub(crate) fn relaxed<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let code = exchange_mode(&mut mode);
    refuse_if!(!code.is_success(), fail("cuThreadExchangeStreamCaptureMode", code));
    let done = f();
    restore_mode(mode);
    done
}

/// The maximum number of retries after a query failed. (A *known* obstacle, a capture or a callback,
/// ends eventually and is not counted.)
pub(crate) const MAX_RETRIES: u32 = 16;

/// Why an attempt did not destroy the object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// A capture or a host function prevents the release until it ends, or only another thread can make the call.
    Obstacle,
    /// Only a thread that has ended could make the call.
    ThreadHasEnded,
    /// The driver returned this error from a call of the release.
    Refused(Answer),
    /// A query before the release failed with this error, so the release might invalidate a capture or
    /// deadlock.
    Unanswered(Answer),
}

impl Failure {
    /// Returns whether the attempt may succeed when the context of the object is current.
    #[inline(always)]
    fn needs_context(self) -> bool {
        match self {
            Self::Refused(answer) | Self::Unanswered(answer) => {
                answer.code == CUresult::CUDA_ERROR_INVALID_CONTEXT
            }
            Self::Obstacle | Self::ThreadHasEnded => false,
        }
    }

    /// Decides whether a release that was retried `retries` times is deferred. Returns the new number of
    /// retries then. Otherwise leaks the object and returns `None`.
    #[inline]
    pub(super) fn retries_or_leak(
        self,
        handle: &dyn Destroy,
        owners: &dyn Keep,
        retries: u32,
    ) -> Option<u32> {
        let retried = self.retried(retries);
        // A borrowed object may be destroyed before the retry.
        if retried.is_some() && !owners.is_borrowed() {
            return retried;
        }
        handle.has_leaked(owners);
        self.record_leak(handle);
        None
    }

    /// Returns the number of retries after one more, or `None` if another retry is useless.
    #[inline]
    fn retried(self, retries: u32) -> Option<u32> {
        match self {
            Self::Obstacle => Some(retries),
            Self::ThreadHasEnded => None,
            // The thread runs a callback, or the work that the release comes after is not complete.
            Self::Refused(Answer {
                code: CUresult::CUDA_ERROR_NOT_PERMITTED | CUresult::CUDA_ERROR_NOT_READY,
                ..
            }) => Some(retries),
            // The error is about a capture that was not detected, and that ends at an unknown time.
            Self::Refused(answer) if !is_temporary(answer.code) => None,
            Self::Refused(_) | Self::Unanswered(_) => (retries < MAX_RETRIES).then(|| retries + 1),
        }
    }

    /// Reports or counts the leak of an object.
    #[inline]
    fn record_leak(self, handle: &dyn Destroy) {
        let leaked = |error| {
            report(&Report::Leaked { what: handle.name(), error });
        };
        let answer = match self {
            Self::Obstacle => return leaked(Invalid::BorrowedCannotWait.into()),
            Self::ThreadHasEnded => return leaked(Invalid::ThreadHasEnded.into()),
            Self::Refused(answer) | Self::Unanswered(answer) => answer,
        };
        let leftover = handle.leftover();
        match answer.code {
            _ if leftover == Leftover::MemoryInUse => leaked(fail(answer.call, answer.code)),
            // The process exits, and nothing remains to be done.
            CUresult::CUDA_ERROR_DEINITIALIZED => {}
            CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
                if leftover == Leftover::Object {
                    count_leak();
                }
            }
            code if is_fatal(code) => count_leak(),
            code => leaked(fail(answer.call, code)),
        }
    }
}

/// Returns whether an error code is only temporary: it is about a callback thread, or about a capture
/// that began after the check.
#[inline]
fn is_temporary(code: CUresult) -> bool {
    let captures = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0
        ..=CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.0;
    code == CUresult::CUDA_ERROR_NOT_PERMITTED || captures.contains(&code.0)
}

/// Decides whether an attempt continues after a query returned an error.
#[cold]
#[inline(never)]
fn continue_after(error: Error) -> Result<(), Failure> {
    match error {
        Error::Driver(error) => {
            continue_after_answer(Answer { call: error.call, code: error.code })
        }
        // The stream is capturing, or its state is being changed.
        Error::Invalid(_) => Err(Failure::Obstacle),
        // The driver has no such query.
        _ => Ok(()),
    }
}

/// Decides whether an attempt continues after a query failed with this code.
#[inline]
fn continue_after_answer(answer: Answer) -> Result<(), Failure> {
    match answer.code {
        // The driver is too old, or will refuse the release for the same reason.
        CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
        | CUresult::CUDA_ERROR_NOT_FOUND
        | CUresult::CUDA_ERROR_NOT_INITIALIZED
        | CUresult::CUDA_ERROR_INVALID_HANDLE
        | CUresult::CUDA_ERROR_INVALID_CONTEXT => Ok(()),
        CUresult::CUDA_ERROR_DEINITIALIZED | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            Err(Failure::Refused(answer))
        }
        code if is_fatal(code) || is_temporary(code) => Err(Failure::Refused(answer)),
        _ => Err(Failure::Unanswered(answer)),
    }
}
