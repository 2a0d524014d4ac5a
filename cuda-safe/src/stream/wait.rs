//! Waits of a stream for events.

use super::{Need, Stream};
use crate::call::{answer, without_current};
use crate::capture::{CapturedBy, DriverStatus, Member, Operation, driver_status, wait_captured};
use crate::error::Result;
use crate::event::Event;
use cuda_sys::CUevent_wait_flags;

impl Stream {
    /// `cuStreamWaitEvent(stream, event, 0)`: work given to the stream from now on starts after
    /// the work that the event recorded last. The thread does not wait. An event that was never
    /// recorded makes nothing wait.
    ///
    /// The event may be of another context or device. One that was recorded in a captured stream
    /// makes this one part of the [capture](Self::begin_capture); a second call
    /// (`cuStreamGetCaptureInfo`) then asks whether it did.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_ISOLATION` and related codes: in a capture the stream cannot wait for
    /// what is outside of it, or in another one. [`Invalid::CallsUnderWay`](crate::Invalid): the stream
    /// would join a capture, and other threads use it.
    ///
    /// Since CUDA 3.2. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn wait(&self, event: &Event) -> Result<()> {
        let state = event.state();
        let on_event = state.enter(Operation::Wait);
        if on_event.seen().is_plain() {
            let _call = self.enter(Operation::Wait);
            return self.enqueue_wait(event, 0);
        }
        let member = self.member();
        let ask = || self.driver_status();
        wait_captured(
            &member,
            (state, &on_event),
            || self.enqueue_wait(event, 0),
            ask,
        )
    }

    /// As [`wait`](Self::wait), for an event that no other code and no capture knows.
    pub(crate) fn wait_private(&self, event: &Event) -> Result<()> {
        let _call = self.uncaptured(Operation::Wait)?;
        self.enqueue_wait(event, 0)
    }

    /// `cuStreamWaitEvent(stream, event, EXTERNAL)`: makes the wait itself a part of what a captured
    /// stream records. Each launch of the graph waits for what the event has recorded by then;
    /// [`wait`](Self::wait) in a capture is an order within the graph only. The graph retains the event.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the stream is not captured.
    ///
    /// Since CUDA 11.1. Raw: [`cuStreamWaitEvent`](fn@cuda_sys::cuStreamWaitEvent).
    #[doc(alias = "cuStreamWaitEvent")]
    pub fn wait_external(&self, event: &Event) -> Result<()> {
        let entry = self.entry(Operation::Wait)?;
        if let CapturedBy::Crate(open) = &entry.captured_by {
            open.retain(Need::Event(event.clone()));
        }
        self.enqueue_wait(event, CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL.0)
    }

    fn enqueue_wait(&self, event: &Event, flags: u32) -> Result<()> {
        without_current(self.context(), || {
            // SAFETY: the stream and the event are alive; the driver keeps what it needs of the event,
            // which may be recorded anew or destroyed while the stream waits.
            unsafe { answer!(cuStreamWaitEvent(self.raw(), event.raw(), flags)) }
        })
    }

    /// This stream as a member of a capture.
    pub(super) fn member(&self) -> Member<'_> {
        Member {
            state: self.state(),
            stream: Some(self),
            need: self.need(),
        }
    }

    /// Asks the driver which capture the stream belongs to.
    pub(super) fn driver_status(&self) -> Result<DriverStatus> {
        let mut status = DriverStatus::None;
        without_current(self.context(), || {
            // SAFETY: the stream is alive.
            status = unsafe { driver_status(self.raw()) }?;
            Ok(())
        })?;
        Ok(status)
    }
}
