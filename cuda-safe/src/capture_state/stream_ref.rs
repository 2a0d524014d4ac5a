//! Streams as releases and captures see them: a handle and its capture state.

use super::guard::{CallGuard, refuse_capturing};
use super::is_capturing;
use super::state::{Kind, Operation, State};
use crate::call::{ContextHandle, Entered, Result, without_current};
use cuda_sys::{CUstream, CUstreamCaptureStatus};
use std::sync::Arc;

/// A stream in which a release enqueues work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamRef<'a> {
    raw: CUstream,
    /// The capture state. `None` for a stream of other code whose caller promised that it is not captured.
    state: Option<&'a State>,
}

impl<'a> StreamRef<'a> {
    #[inline(always)]
    pub(crate) fn new(raw: CUstream, state: &'a State) -> Self {
        let state = Some(state);
        Self { raw, state }
    }

    #[inline]
    pub(crate) fn without_state(raw: CUstream) -> Self {
        Self { raw, state: None }
    }

    #[inline(always)]
    pub(crate) fn raw(self) -> CUstream {
        self.raw
    }

    /// Counts a call that must not be captured. A stream without a capture state is only checked, and the
    /// result is `None`.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), and the errors of the driver.
    ///
    /// # Safety
    /// The stream is alive. If it is a default stream, it is the default stream of `context`.
    #[inline(always)]
    pub(crate) unsafe fn uncaptured(
        self,
        operation: Operation,
        context: &(impl ContextHandle + ?Sized),
    ) -> Result<Option<CallGuard<'a>>> {
        let Some(state) = self.state else {
            // SAFETY: the caller's promise.
            return refuse_capturing(unsafe { capture_status(self.raw, context) }?).map(|()| None);
        };
        // SAFETY: the caller's promise.
        unsafe { uncaptured((self.raw, state), operation, context) }.map(Some)
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
    #[inline]
    pub(crate) fn new(raw: CUstream) -> Self {
        let state = match is_default(raw) {
            true => State::of_default(),
            false => State::of_shared(Kind::Stream, raw.addr()),
        };
        Self { raw, state }
    }

    #[inline]
    pub(crate) fn raw(&self) -> CUstream {
        self.raw
    }

    #[inline]
    pub(crate) fn by_ref(&self) -> StreamRef<'_> {
        StreamRef::new(self.raw, &self.state)
    }

    /// Counts a call that must not be captured.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), and the errors of the driver.
    ///
    /// # Safety
    /// The stream is alive. If it is a default stream, it is the default stream of `context`.
    #[inline]
    pub(crate) unsafe fn uncaptured(
        &self,
        operation: Operation,
        context: &(impl ContextHandle + ?Sized),
    ) -> Result<CallGuard<'_>> {
        // SAFETY: the caller's promise.
        unsafe { uncaptured((self.raw, &self.state), operation, context) }
    }
}

/// Counts a call on a stream that must not be captured.
///
/// # Errors
/// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), and the errors of the driver.
///
/// # Safety
/// The stream is alive. If it is a default stream, it is the default stream of `context`.
#[inline(always)]
pub(crate) unsafe fn uncaptured<'a>(
    (raw, state): (CUstream, &'a State),
    operation: Operation,
    context: &(impl ContextHandle + ?Sized),
) -> Result<CallGuard<'a>> {
    // SAFETY: the caller's promise.
    let ask = || unsafe { capture_status(raw, context) };
    state.enter(operation).uncaptured(operation, ask)
}

/// Asks the driver whether a stream is captured.
///
/// # Safety
/// The stream is alive. If it is a default stream, it is the default stream of `context`.
#[cold]
#[inline]
pub(crate) unsafe fn capture_status(
    raw: CUstream,
    context: &(impl ContextHandle + ?Sized),
) -> Result<CUstreamCaptureStatus> {
    if is_default(raw) {
        let _current = Entered::new(context)?;
        // SAFETY: the context of the default stream is current.
        return unsafe { is_capturing(raw) };
    }
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    without_current(context, || {
        // SAFETY: the caller's promise.
        status = unsafe { is_capturing(raw) }?;
        Ok(())
    })?;
    Ok(status)
}

/// Returns whether a handle is a default stream, which is a different stream in each context or thread.
#[inline]
pub(crate) fn is_default(stream: CUstream) -> bool {
    stream.addr() <= cuda_sys::CU_STREAM_PER_THREAD.addr()
}
