//! Events of a whole context.

use crate::call::{Result, answer, fork, without_current};
use crate::context::Context;
use crate::event::Event;
use crate::stream::same_context;

impl Context {
    /// Records an event after all work that has been enqueued in the streams of the context and of its
    /// green contexts. Calls `cuCtxRecordEvent`.
    ///
    /// # Errors
    /// The event belongs to another context; `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if one of the
    /// streams is being captured, which invalidates that capture;
    /// [`Error::Missing`](crate::Error::Missing).
    ///
    /// Since CUDA 12.5. Raw: [`cuCtxRecordEvent`](fn@cuda_sys::cuCtxRecordEvent).
    #[doc(alias = "cuCtxRecordEvent")]
    #[inline]
    pub fn record_event(&self, event: &Event) -> Result<()> {
        same_context("the event", event.context(), self)?;
        without_current(self, || {
            // SAFETY: the context and the event are alive.
            unsafe { answer!(cuCtxRecordEvent(self.as_raw(), event.raw())) }
        })
    }

    /// Makes all later work of the context and of its green contexts wait for the event. The thread
    /// does not wait. Calls `cuCtxWaitEvent`.
    ///
    /// The event may belong to another context or device.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if one of the streams is being captured, and
    /// `CUDA_ERROR_CAPTURED_EVENT` if the event was recorded in a capture: both invalidate that
    /// capture, and no stream joins a capture through this call.
    /// [`Error::Missing`](crate::Error::Missing).
    ///
    /// Since CUDA 12.5. Raw: [`cuCtxWaitEvent`](fn@cuda_sys::cuCtxWaitEvent).
    #[doc(alias = "cuCtxWaitEvent")]
    #[inline]
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        let Some(event) = event.raw_to_wait() else {
            return fork::refuse_in_child();
        };
        without_current(self, || {
            // SAFETY: the context and the event are alive.
            unsafe { answer!(cuCtxWaitEvent(self.as_raw(), event)) }
        })
    }
}
