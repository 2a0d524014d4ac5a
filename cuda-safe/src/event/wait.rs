//! Calls that take an event: waits of streams, and waits and records of default streams and contexts.

use crate::call::{Result, answer, call, fork, without_current};
use crate::capture_state::{
    CapturedBy, Member, Operation, driver_status, is_capturing, wait_captured,
};
use crate::context::Context;
use crate::event::Event;
use crate::stream::{DefaultStream, Stream, same_context};
use cuda_sys::{CU_STREAM_LEGACY, CUevent_wait_flags};
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
        let Some(event) = event.raw_to_wait() else { return fork::refuse_in_child() };
        without_current(self, || {
            // SAFETY: the context and the event are alive.
            unsafe { answer!(cuCtxWaitEvent(self.as_raw(), event)) }
        })
    }
}

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
        let Some(raw) = event.raw_to_wait() else { return fork::refuse_in_child() };
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
