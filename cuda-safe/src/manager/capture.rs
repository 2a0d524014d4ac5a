//! Memory managers and stream captures. All checks for captures in managers are in this file.
//!
//! Memory that is allocated on a captured stream belongs to the graph, and an event that is recorded
//! there does not order real execution. So a manager enqueues nothing on a captured stream.

use super::Order;
use crate::call::{Result, refuse_in_host_function};
use crate::capture_state as capture;
use crate::capture_state::{Operation, refuse_captured};
use crate::context::Context;
use crate::stream::CaptureMode;
use cuda_sys::CUstream;

/// Enqueues an operation on the stream of an order. Enqueues nothing for an order without a stream.
///
/// # Errors
/// The stream is captured; the errors of `call`.
pub(crate) fn enqueue(
    order: Order<'_>,
    operation: Operation,
    context: &Context,
    call: impl FnMut(CUstream) -> Result<()>,
) -> Result<()> {
    let _call = match order.stream() {
        Some(stream) => Some(stream.uncaptured(operation)?),
        None => {
            // SAFETY: the order promises that the stream is alive; a default stream is that of the
            // context.
            order.call(context, |raw| unsafe { refuse_captured(raw) })?;
            None
        }
    };
    order.call(context, call)
}

/// Enqueues an operation on the stream of an order, for a release.
///
/// # Errors
/// The stream is captured; the caller is a host function; the errors of `call`.
pub(crate) fn enqueue_now(
    order: Order<'_>,
    operation: Operation,
    context: &Context,
    call: impl FnMut(CUstream) -> Result<()>,
) -> Result<()> {
    refuse_in_host_function()?;
    enqueue(order, operation, context, call)
}

/// Makes driver calls that could invalidate captures of other threads, such as an allocation or the
/// query of an event, in a way that does not.
///
/// While a capture may be open, `calls` runs in the mode
/// [`Relaxed`](CaptureMode::Relaxed). See [`CaptureMode::with`].
///
/// # Errors
/// The driver refuses to change the mode; errors of `calls`.
pub fn without_invalidating_captures<T>(calls: impl FnOnce() -> Result<T>) -> Result<T> {
    match capture::may_be_open() {
        true => CaptureMode::Relaxed.with(calls)?,
        false => calls(),
    }
}
