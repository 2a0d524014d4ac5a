//! Guards of calls in progress.

use super::state::{Operation, State};
use super::word::{CaptureId, Seen};
use super::{Open, is_capturing};
use crate::call::{Error, Invalid, Result, fork};
use cuda_sys::CUstreamCaptureStatus;
use std::sync::Arc;

/// A counted call. No capture begins on the handle until this guard is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct CallGuard<'a> {
    state: &'a State,
    seen: Seen,
}

/// A counted call, and the capture of its stream.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    #[allow(dead_code, reason = "held, not read")]
    call: CallGuard<'a>,
    pub(crate) captured_by: CapturedBy,
}

/// The capture that a stream belongs to.
#[derive(Debug)]
pub(crate) enum CapturedBy {
    /// The stream is not capturing, and no capture begins on it while the call is counted.
    None,
    /// A capture that this crate began.
    Crate(Arc<Open>),
    /// A capture of foreign code.
    Foreign,
}

impl<'a> CallGuard<'a> {
    #[inline(always)]
    pub(super) fn new(state: &'a State, seen: Seen) -> Self {
        Self { state, seen }
    }

    /// Returns the capture word from before the call.
    #[inline(always)]
    pub(crate) fn seen(&self) -> Seen {
        self.seen
    }

    /// Determines which capture the stream belongs to.
    ///
    /// # Errors
    /// Errors of `ask`; calls in progress.
    #[cold]
    #[inline(never)]
    pub(crate) fn resolve(
        self,
        operation: Operation,
        ask: impl FnOnce() -> Result<CUstreamCaptureStatus>,
    ) -> Result<Entry<'a>> {
        if self.seen.is_plain() {
            return Ok(Entry { call: self, captured_by: CapturedBy::None });
        }
        fork::refuse_in_child()?;
        let call = match self.seen.capture() {
            Some(CaptureId::UNRESOLVED) => {
                let state = self.state;
                drop(self);
                let call = state.enter_resolved(operation);
                call.map_err(|seen| state.refused("use the stream", seen))?
            }
            _ => self,
        };
        // If no capture is open, it was closed in the meantime. None begins while this call is counted.
        let open = call.seen.capture();
        let open = open.and_then(|capture| call.state.open(capture));
        let captured_by = match open {
            Some(open) => CapturedBy::Crate(open),
            None if !call.seen.is_shared() => CapturedBy::None,
            None => match ask()? {
                CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => CapturedBy::None,
                _ => CapturedBy::Foreign,
            },
        };
        Ok(Entry { call, captured_by })
    }

    /// Keeps the guard if the stream is not capturing.
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`]; errors of `ask`.
    #[inline(always)]
    pub(crate) fn uncaptured(
        self,
        operation: Operation,
        ask: impl FnOnce() -> Result<CUstreamCaptureStatus>,
    ) -> Result<Self> {
        if self.seen.is_plain() {
            return Ok(self);
        }
        let entry = self.resolve(operation, ask)?;
        match entry.captured_by {
            CapturedBy::None => Ok(entry.call),
            CapturedBy::Crate(_) | CapturedBy::Foreign => Err(captured()),
        }
    }
}

#[cold]
#[inline]
fn captured() -> Error {
    Invalid::StreamIsCaptured.into()
}

impl Drop for CallGuard<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.state.leave();
    }
}

/// Returns an error if a stream of foreign code is capturing.
///
/// # Errors
/// [`Invalid::StreamIsCaptured`]; errors of the driver.
///
/// # Safety
/// See [`is_capturing`].
#[inline]
pub(crate) unsafe fn refuse_captured(stream: cuda_sys::CUstream) -> Result<()> {
    // SAFETY: the caller guarantees the conditions of `is_capturing`.
    refuse_capturing(unsafe { is_capturing(stream) }?)
}

/// Returns an error for the status of a stream that is capturing.
///
/// # Errors
/// [`Invalid::StreamIsCaptured`].
#[inline]
pub(super) fn refuse_capturing(status: CUstreamCaptureStatus) -> Result<()> {
    match status {
        CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE => Ok(()),
        _ => Err(captured()),
    }
}
