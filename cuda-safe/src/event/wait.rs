//! Waits of streams for events.

use crate::call::{Result, answer, fork, without_current};
use crate::capture_state::{CapturedBy, Operation, wait_captured};
use crate::event::Event;
use crate::stream::Stream;
use cuda_sys::CUevent_wait_flags;
use std::sync::Arc;

impl Stream {
    /// Makes all later work in the stream wait for the most recent record of the event. The thread does
    /// not wait. Calls `cuStreamWaitEvent`.
    ///
    /// If the event was never recorded, the call has no effect. The event may belong to another context
    /// or device. If the event was recorded in a captured stream, this stream joins that
    /// [capture](Self::begin_capture); a second call (`cuStreamGetCaptureInfo`) then checks whether it
    /// joined.
    ///
    /// # Errors
    /// - `CUDA_ERROR_STREAM_CAPTURE_ISOLATION` and related codes: a captured stream cannot wait for an
    ///   event outside of its capture or in another capture.
    /// - [`Invalid::CallsInProgress`](crate::Invalid::CallsInProgress): the stream would join a capture
    ///   while other threads use it.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    #[inline]
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        if event.raw_to_wait().is_none() {
            return fork::refuse_in_child();
        }
        let state = event.state();
        let on_event = state.enter(Operation::Wait);
        if on_event.seen().is_plain() {
            let _call = self.enter(Operation::Wait);
            return self.enqueue_wait(event, 0);
        }
        let member = self.member();
        let ask = || self.driver_status();
        wait_captured(&member, (state, &on_event), || self.enqueue_wait(event, 0), ask)
    }

    /// [`wait_event`](Self::wait_event) for an event that no other code knows and that is not part of a
    /// capture.
    #[inline]
    pub(crate) fn wait_private(&self, event: &Event) -> Result<()> {
        let _call = self.uncaptured(Operation::Wait)?;
        self.enqueue_wait(event, 0)
    }

    /// Captures an external wait: each launch of the graph waits for the event. Calls
    /// `cuStreamWaitEvent` with `CU_EVENT_WAIT_EXTERNAL`.
    ///
    /// A launch waits for the most recent record of the event at that time. In contrast,
    /// [`wait_event`](Self::wait_event) in a capture only orders work within the graph. The graph
    /// retains the event.
    ///
    /// # Errors
    /// `CUDA_ERROR_ILLEGAL_STATE` if the stream is not captured.
    ///
    /// Since CUDA 11.1. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    #[inline]
    pub fn wait_external(&self, event: &Event) -> Result<()> {
        let entry = self.entry(Operation::Wait)?;
        if let CapturedBy::Crate(open) = &entry.captured_by {
            open.retain(Arc::new(event.clone()));
        }
        self.enqueue_wait(event, CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0)
    }

    #[inline]
    fn enqueue_wait(&self, event: &Event, flags: u32) -> Result<()> {
        without_current(self.context(), || {
            // SAFETY: the stream and the event are alive. The driver keeps the state that the wait
            // needs, so that the event may be recorded again or destroyed while the stream waits.
            unsafe { answer!(cuStreamWaitEvent(self.raw(), event.handle(), flags)) }
        })
    }
}
