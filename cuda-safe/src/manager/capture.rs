//! Memory managers and stream captures: the one place where managers look at captures.
//!
//! Memory that is allocated on a captured stream belongs to the graph, and an event that is recorded there
//! does not order real execution. So a manager enqueues nothing on a captured stream.

use super::Order;
use crate::context::Context;
use crate::error::{Error, Result};
use crate::release::relaxed;
use crate::stream::{
    a_capture_may_be_open, outside_captures_raw, refuse_captured_raw, refuse_inside,
    stay_outside_raw,
};
use cuda_sys::CUstream;

/// Enqueues an operation on the stream of an order, for an allocation. Enqueues nothing for an order without
/// a stream.
///
/// # Errors
/// The stream is captured; those of `call`.
pub(super) fn enqueue(
    order: Order<'_>,
    context: &Context,
    call: impl FnMut(CUstream) -> Result<()>,
) -> Result<()> {
    let Some(raw) = order.raw() else {
        return Ok(());
    };
    outside_captures_raw(raw, || enqueue_unless_captured(order, context, call))
}

/// Enqueues an operation on the stream of an order, for a release: it does not wait for a thread that begins a
/// capture.
///
/// # Errors
/// The stream is captured or is about to be; this is a host function; those of `call`.
pub(super) fn enqueue_now(
    order: Order<'_>,
    context: &Context,
    call: impl FnMut(CUstream) -> Result<()>,
) -> Result<()> {
    refuse_inside()?;
    let Some(_outside) = order.raw().and_then(stay_outside_raw) else {
        return Err(Error::InHostFunction);
    };
    enqueue_unless_captured(order, context, call)
}

fn enqueue_unless_captured(
    order: Order<'_>,
    context: &Context,
    call: impl FnMut(CUstream) -> Result<()>,
) -> Result<()> {
    if a_capture_may_be_open() {
        // SAFETY: the order promises that the stream is alive; a default stream is that of the context.
        order.call(context, |raw| unsafe { refuse_captured_raw(raw) })?;
    }
    order.call(context, call)
}

/// Whether a call that waits for all work could invalidate a capture.
pub(super) fn may_be_capturing() -> bool {
    a_capture_may_be_open()
}

/// Runs driver calls in a mode in which they invalidate no capture of another thread.
pub(super) fn sparing_captures<T>(calls: impl FnOnce() -> Result<T>) -> Result<T> {
    match may_be_capturing() {
        true => relaxed(calls),
        false => calls(),
    }
}
