//! Events that order memory between streams.

use super::Order;
use super::order::enqueue_now;
use crate::call::{Invalid, Result, call, fork};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::event::Event;
use crate::stream::{Stream, same_context};

/// An event with which a memory manager orders memory between streams: it is recorded in the
/// [order](Order) of a free, and waited for in the order of a later allocation.
///
/// In contrast to an [`Event`](crate::Event), it is never part of a capture, its creation attempts no
/// deferred releases, and it does not keep the manager of its context alive. So a manager may use it
/// while it frees memory. Every method makes one driver call.
///
/// ```no_run
/// use cuda_safe::manager::{Order, OrderEvent};
/// use cuda_safe::{Context, Device};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let (used, next) = (context.stream()?, context.stream()?);
/// // A block was used on one stream, and will be used on another one.
/// let last_use = OrderEvent::new(&context)?;
/// last_use.record(Order::of(&used), &context)?;
/// if !last_use.is_complete()? {
///     Order::of(&next).wait_event(&last_use, &context)?;
/// }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Debug)]
pub struct OrderEvent {
    /// No other code has this event, and it is recorded only in streams that are not captured.
    event: Event,
}

impl OrderEvent {
    /// Creates an event. Calls `cuEventCreate`.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; an error of earlier work.
    ///
    /// Since CUDA 2.0. Raw: [`cuEventCreate`](fn@cuda_sys::cuEventCreate).
    #[doc(alias = "cuEventCreate")]
    #[inline]
    pub fn new(context: &Context) -> Result<Self> {
        let event = context.without_extension().event_now()?;
        Ok(Self { event })
    }

    /// Returns the context of the event, without a manager.
    #[inline]
    pub fn context(&self) -> &Context {
        self.event.context()
    }

    /// Records the event after all work that the stream of `order` was given. Calls `cuEventRecord`.
    ///
    /// `context` is the manager's context: a default stream of the order is the one of this context.
    ///
    /// # Errors
    /// - [`Invalid::OrderWithoutStream`].
    /// - [`Invalid::OtherContext`] if the stream is of another context than the event.
    /// - [`Invalid::StreamIsCaptured`].
    /// - [`Error::InHostFunction`](crate::Error::InHostFunction).
    ///
    /// Since CUDA 2.0. Raw: [`cuEventRecord`](fn@cuda_sys::cuEventRecord).
    #[doc(alias = "cuEventRecord")]
    #[inline]
    pub fn record(&self, order: Order<'_>, context: &Context) -> Result<()> {
        order.expect_stream("an event record")?;
        let its = order.stream().map_or(context, Stream::context);
        same_context("the event", self.context(), its)?;
        let event = self.event.raw_to_record();
        enqueue_now(order, Operation::Record, context, |raw| {
            // SAFETY: the event is alive, and the order promises that the stream is.
            unsafe { call!(cuEventRecord(event, raw)) }
        })
    }

    /// Returns whether the work before the last record is complete. Returns `true` if the event was
    /// never recorded. Calls `cuEventQuery`.
    ///
    /// # Errors
    /// Errors of the work.
    ///
    /// Since CUDA 2.0. Raw: [`cuEventQuery`](fn@cuda_sys::cuEventQuery).
    #[doc(alias = "cuEventQuery")]
    #[inline]
    pub fn is_complete(&self) -> Result<bool> {
        self.event.is_complete()
    }
}

impl Order<'_> {
    /// Makes the stream wait for the last record of `event`. The host does not wait. Calls
    /// `cuStreamWaitEvent`.
    ///
    /// The event may be of another context. `context` is the manager's context: a default stream of
    /// the order is the one of this context.
    ///
    /// # Errors
    /// - [`Invalid::OrderWithoutStream`].
    /// - [`Invalid::StreamIsCaptured`].
    /// - [`Error::InHostFunction`](crate::Error::InHostFunction).
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    #[inline]
    pub fn wait_event(self, event: &OrderEvent, context: &Context) -> Result<()> {
        self.expect_stream("a wait for an event")?;
        let Some(event) = event.event.raw_to_wait() else { return fork::refuse_in_child() };
        enqueue_now(self, Operation::Wait, context, |raw| {
            // SAFETY: the event is alive and not part of a capture, and the order promises that the
            // stream is alive. The driver keeps the state that the wait needs.
            unsafe { call!(cuStreamWaitEvent(raw, event, 0)) }
        })
    }

    /// Returns an error if the order has no stream.
    #[inline]
    pub(crate) fn expect_stream(self, what: &'static str) -> Result<()> {
        match self.raw() {
            Some(_) => Ok(()),
            None => Err(Invalid::OrderWithoutStream { what }.into()),
        }
    }
}
