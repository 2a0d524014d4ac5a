//! Guards for calls that enqueue work in a stream. They check whether the stream is captured, and
//! prevent that a capture begins during the call.

use super::Stream;
use crate::call::without_current;
use crate::capture::{CallGuard, Entry, Kind, Operation, State, is_capturing};
use crate::context::Context;
use crate::error::Result;
use cuda_sys::{CUstream, CUstreamCaptureStatus};
use std::sync::Arc;

/// A stream in which a release enqueues work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum OrderedOn<'a> {
    Stream(&'a Stream),
    /// A stream of other code, or a default stream.
    Foreign(&'a ForeignStream),
    /// A stream of other code, without its capture state. The caller promised that it is not captured.
    Raw(CUstream),
}

impl OrderedOn<'_> {
    pub(crate) fn raw(self) -> CUstream {
        match self {
            Self::Stream(stream) => stream.raw(),
            Self::Foreign(stream) => stream.raw(),
            Self::Raw(stream) => stream,
        }
    }
}

/// The handle of a stream that other code keeps alive. It may be a stream of this crate, or a default
/// stream.
#[derive(Clone, Debug)]
pub(crate) struct ForeignStream {
    raw: CUstream,
    state: Arc<State>,
}

// SAFETY: this is the handle of a stream, which any thread may use.
unsafe impl Send for ForeignStream {}
// SAFETY: see the argument for `Send`.
unsafe impl Sync for ForeignStream {}

impl ForeignStream {
    pub(crate) fn new(raw: CUstream) -> Self {
        let state = match is_default(raw) {
            true => State::of_default(),
            false => State::of_shared(Kind::Stream, raw.addr()),
        };
        Self { raw, state }
    }

    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    /// Counts a call that must not be captured.
    ///
    /// # Errors
    /// See [`Stream::uncaptured`].
    ///
    /// # Safety
    /// The stream is alive. If it is a default stream, it is the default stream of `context`.
    pub(crate) unsafe fn uncaptured(
        &self,
        operation: Operation,
        context: &Context,
    ) -> Result<CallGuard<'_>> {
        let ask = || {
            let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
            let mut ask = || {
                // SAFETY: the caller guarantees that the stream is alive, and the context of a default
                // stream is current.
                status = unsafe { is_capturing(self.raw) }?;
                Ok(())
            };
            if is_default(self.raw) {
                let _current = context.enter()?;
                ask()?;
            } else {
                without_current(context, ask)?;
            }
            Ok(status)
        };
        self.state.enter(operation).uncaptured(operation, ask)
    }
}

/// Whether a handle is a default stream, which means a different stream in each context or thread.
pub(crate) fn is_default(stream: CUstream) -> bool {
    stream.addr() <= cuda_sys::CU_STREAM_PER_THREAD.addr()
}

impl Stream {
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
        self.enter(operation)
            .uncaptured(operation, || self.ask_driver())
    }

    /// Counts a call that may be captured, and finds the capture.
    ///
    /// # Errors
    /// For a shared stream, the errors of the driver call.
    pub(crate) fn entry(&self, operation: Operation) -> Result<Entry<'_>> {
        self.enter(operation)
            .resolve(operation, || self.ask_driver())
    }

    /// Asks the driver whether the stream is captured.
    pub(super) fn ask_driver(&self) -> Result<CUstreamCaptureStatus> {
        let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        without_current(self.context(), || {
            // SAFETY: the stream is alive.
            status = unsafe { is_capturing(self.raw()) }?;
            Ok(())
        })?;
        Ok(status)
    }
}
