//! The way of most releases: nothing is in the way, and the driver takes it back at once.
//!
//! It is a way through [`release`](super::release) by itself, so that it costs nothing of the others.
//! Where something is in the way, which is seen before the call, the release goes there instead.

use super::{Answer, Parent, Resource, exchange_mode, release_again, restore_mode, settle};
use crate::fork;
use crate::stream::{a_capture_may_be_open, is_inside};
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

/// As [`release`](super::release), for memory that is freed in the order of its parent, a stream.
#[inline(always)]
pub(crate) fn release_in_order(what: impl Fn() -> Resource, parent: &impl Parent) {
    end(free_in_order(&what, parent), what, parent);
}

/// What the driver says to a free; none, if it was not asked.
#[inline(always)]
fn free_in_order(what: &impl Fn() -> Resource, parent: &impl Parent) -> Option<CUresult> {
    // The second time it is known to stay so; the first saves the way to the gate.
    if fork::in_child() || is_inside() || a_capture_may_be_open() {
        return None;
    }
    let _outside = parent.stay_outside_captures()?;
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    if a_capture_may_be_open() || !exchange_mode(&mut mode).is_success() {
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
    let answer = Answer::Said(code, resource.function());
    if !answer.wants_a_context() {
        return settle(resource, parent, 0, answer);
    }
    let answer = match parent.stay_outside_captures() {
        // A capture may have begun since.
        Some(_outside) => match resource.obstacle(parent) {
            Some(obstacle) => obstacle,
            None => resource.release_under_current(parent, answer),
        },
        None => Answer::Later,
    };
    settle(resource, parent, 0, answer);
}
