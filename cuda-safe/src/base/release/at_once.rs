//! The path of most releases: nothing prevents the release, and the driver releases the resource
//! immediately.
//!
//! This path is separate from [`release`](super::release), so that it pays nothing for the other cases.
//! If something prevents the release, which is detected before the driver call, the release takes the
//! other path instead.

use super::before::enter;
use super::{Answer, Parent, Resource, exchange_mode, handle_failure, release_again, restore_mode};
use crate::base::capture::{Operation, State};
use crate::base::fork;
use crate::base::zone::in_host_function;
use cuda_sys::{CUresult, CUstreamCaptureMode};

/// Releases a resource whose release waits for nothing and disturbs no capture: an event or a stream.
/// See [`release`](super::release).
///
/// `what` is a closure that creates the value at each use, so that the compiler knows the variant. A
/// value whose address escapes would be matched at run time.
#[inline(always)]
pub(crate) fn release_now(what: impl Fn() -> Resource, parent: &impl Parent) {
    let is_free = !fork::in_child() && !in_host_function();
    let code = if is_free {
        what().call_in_this_mode().code()
    } else {
        None
    };
    end(code, what, parent);
}

/// Releases stream-ordered memory. See [`release`](super::release).
#[inline(always)]
pub(crate) fn release_stream_ordered(
    what: impl Fn() -> Resource,
    state: &State,
    parent: &impl Parent,
) {
    end(free_in_order(&what, state), what, parent);
}

/// Frees the memory. Returns the driver's code, or `None` if the driver was not called.
#[inline(always)]
fn free_in_order(what: &impl Fn() -> Resource, state: &State) -> Option<CUresult> {
    if fork::in_child() || in_host_function() {
        return None;
    }
    let call = state.enter(Operation::Release);
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    if !call.seen().is_plain() || !exchange_mode(&mut mode).is_success() {
        return None;
    }
    let answer = what().call_in_this_mode();
    restore_mode(mode);
    answer.code()
}

/// Handles the driver's code, or `None` if the driver was not called.
#[inline(always)]
fn end(code: Option<CUresult>, what: impl Fn() -> Resource, parent: &impl Parent) {
    match code {
        Some(CUresult::CUDA_SUCCESS) => {}
        Some(code) => refused(what(), parent, code),
        None => otherwise(what(), parent),
    }
}

#[cold]
#[inline(never)]
fn otherwise(resource: Resource, parent: &dyn Parent) {
    release_again(resource, parent, 0);
}

#[cold]
#[inline(never)]
fn refused(resource: Resource, parent: &dyn Parent, code: CUresult) {
    let mut answer = Answer::Said(code, resource.function());
    if answer.needs_context() {
        // A capture may have begun in the meantime.
        answer = match enter(parent) {
            Ok(_calls) => resource.release_under_current(parent, answer),
            Err(answer) => answer,
        };
    }
    if !answer.is_done() {
        handle_failure(resource, parent, 0, answer);
    }
}
