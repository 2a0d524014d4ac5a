//! Events on default streams.

use crate::call::{Result, call, fork};
use crate::capture_state::{Member, Operation, driver_status, is_capturing, wait_captured};
use crate::event::Event;
use crate::stream::{DefaultStream, same_context};
use cuda_sys::CU_STREAM_LEGACY;
use std::sync::Arc;

impl DefaultStream<'_> {
    /// Makes all later work in the stream wait for the most recent record of the event. The thread does
    /// not wait. Calls `cuStreamWaitEvent`.
    ///
    /// The event may belong to another context or device. If the event was recorded in a captured
    /// stream, the per-thread default stream joins that capture.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` and related codes: the legacy default stream cannot wait
    /// for an event that was recorded in a captured stream.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    #[inline]
    pub fn wait_event(&self, event: &Event) -> Result<()> {
        let Some(raw) = event.raw_to_wait() else {
            return fork::refuse_in_child();
        };
        let _current = self.current_context().enter()?;
        let on_event = event.state().enter(Operation::Wait);
        // SAFETY: the context of the stream is current. The event is alive, and the driver keeps the state that the
        // wait needs.
        let wait = || unsafe { call!(cuStreamWaitEvent(self.as_raw(), raw, 0)) };
        if on_event.seen().is_plain() || self.as_raw() == CU_STREAM_LEGACY {
            return wait();
        }
        let state = self.state();
        let member = Member { state: &state, stream: None, retained: Arc::new(self.retained()) };
        // SAFETY: the context of the stream is current.
        let ask = || unsafe { driver_status(self.as_raw()) };
        wait_captured(&member, (event.state(), &on_event), wait, ask)
    }

    /// Records an event after all work that is in the stream. Calls `cuEventRecord`.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext).
    ///
    /// Since CUDA 2.0. Raw: [`cuEventRecord`](fn@cuda_sys::cuEventRecord).
    #[doc(alias = "cuEventRecord")]
    #[inline]
    pub fn record_event(&self, event: &Event) -> Result<()> {
        same_context("the event", event.context(), self.context())?;
        let _current = self.current_context().enter()?;
        if self.as_raw() == CU_STREAM_LEGACY {
            return self.enqueue_record(event);
        }
        let state = self.state();
        let call = state.enter(Operation::Record);
        // SAFETY: the context of the stream is current.
        let entry = call.resolve(Operation::Record, || unsafe { is_capturing(self.as_raw()) })?;
        event.prepare_record(&entry)?;
        self.enqueue_record(event)
    }

    /// The context of the stream must be current.
    #[inline]
    fn enqueue_record(&self, event: &Event) -> Result<()> {
        // SAFETY: the context of the stream is current, and the event is alive.
        unsafe { call!(cuEventRecord(event.raw_to_record(), self.as_raw())) }
    }
}
