//! The way of most releases: nothing is in the way, and the driver takes it back at once.
//!
//! It is a way through [`release`](super::release) by itself, so that it costs nothing of the others.
//! Where something is in the way, which is seen before the call, the release goes there instead.

use super::before::enter;
use super::{Answer, Parent, Resource, exchange_mode, not_yet, release_again, restore_mode};
use crate::capture::Operation;
use crate::fork;
use crate::stream::{Stream, is_inside};
use cuda_sys::{CUresult, CUstreamCaptureMode};

/// As [`release`](super::release), for what waits for nothing and disturbs no capture: events, streams.
/// (`what` is made anew wherever it is needed: where its address is known, what it is would be asked.)
#[inline(always)]
pub(crate) fn release_at_once(what: impl Fn() -> Resource, parent: &impl Parent) {
    let is_free = !fork::in_child() && !is_inside();
    let code = if is_free {
        what().call_in_this_mode().code()
    } else {
        None
    };
    end(code, what, parent);
}

/// As [`release`](super::release), for memory that is freed in the order of a stream.
#[inline(always)]
pub(crate) fn release_in_order(what: impl Fn() -> Resource, stream: &Stream) {
    end(free_in_order(&what, stream), what, stream);
}

/// What the driver says to a free; none, if it was not asked.
#[inline(always)]
fn free_in_order(what: &impl Fn() -> Resource, stream: &Stream) -> Option<CUresult> {
    if fork::in_child() || is_inside() {
        return None;
    }
    let call = stream.enter(Operation::Release);
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    if !call.seen().is_plain() || !exchange_mode(&mut mode).is_success() {
        return None;
    }
    let answer = what().call_in_this_mode();
    restore_mode(mode);
    answer.code()
}

/// What becomes of a release by the driver's code; none, if it was not asked.
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
    if answer.wants_a_context() {
        // A capture may have begun since.
        answer = match enter(parent) {
            Ok(_calls) => resource.release_under_current(parent, answer),
            Err(answer) => answer,
        };
    }
    if !answer.is_done() {
        not_yet(resource, parent, 0, answer);
    }
}
