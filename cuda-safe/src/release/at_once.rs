//! The path of most releases: nothing prevents the release, and the driver destroys the object
//! immediately.
//!
//! This path is separate from [`release`](super::release), so that it pays nothing for the other cases.
//! If something prevents the release, which is detected before the driver call, the release takes the
//! other path instead.

use super::attempt::{count_calls, destroy_in_context};
use super::failure::Failure;
use super::mode::{exchange_mode, restore_mode};
use super::{Destroy, Keep, has_failed, release};
use crate::call::{Answer, Outcome, fork, in_host_function};
use crate::capture_state::{Operation, State};
use cuda_sys::{CUresult, CUstreamCaptureMode};

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
