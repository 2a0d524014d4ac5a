//! Guards for calls that enqueue work in a stream. They check whether the stream is captured, and
//! prevent that a capture begins during the call.

use super::Stream;
use crate::call::Result;
use crate::capture_state::{CallGuard, Entry, Operation, State, StreamRef, capture_status};
use cuda_sys::CUstreamCaptureStatus;
use std::sync::Arc;

impl Stream {
    /// Returns the stream as releases see it.
    #[inline(always)]
    pub(crate) fn by_ref(&self) -> StreamRef<'_> {
        StreamRef::new(self.raw(), self.state())
    }

    /// The capture state of the handle.
    #[inline(always)]
    pub(crate) fn state(&self) -> &Arc<State> {
        &self.inner.state
    }

    /// Counts a call on the stream until the guard is dropped.
    #[inline(always)]
    pub(crate) fn enter(&self, operation: Operation) -> CallGuard<'_> {
        self.inner.state.enter(operation)
    }

    /// Counts a call that must not be captured.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); for a shared stream also the
    /// errors of the driver call.
    #[inline(always)]
    pub(crate) fn uncaptured(&self, operation: Operation) -> Result<CallGuard<'_>> {
        self.enter(operation).uncaptured(operation, || self.ask_driver())
    }

    /// Counts a call that may be captured, and finds the capture.
    ///
    /// # Errors
    /// For a shared stream, the errors of the driver call.
    #[inline]
    pub(crate) fn entry(&self, operation: Operation) -> Result<Entry<'_>> {
        self.enter(operation).resolve(operation, || self.ask_driver())
    }

    /// Asks the driver whether the stream is captured.
    #[inline]
    pub(crate) fn ask_driver(&self) -> Result<CUstreamCaptureStatus> {
        // SAFETY: the stream is alive, and it is not a default stream.
        unsafe { capture_status(self.raw(), self.context()) }
    }
}
