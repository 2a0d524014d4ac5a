//! Attempts that did not destroy their object: whether the release is deferred or the object is leaked.

use super::{Destroy, Keep, Leftover};
use crate::call::{Answer, Error, Invalid, Report, count_leak, fail, is_fatal, report};
use cuda_sys::CUresult;

/// The maximum number of retries after a query failed. (A *known* obstacle, a capture or a callback,
/// ends eventually and is not counted.)
pub(crate) const MAX_RETRIES: u32 = 16;

/// Why an attempt did not destroy the object.
#[derive(Clone, Copy, Debug)]
pub(super) enum Failure {
    /// A capture or a host function prevents the release until it ends.
    Obstacle,
    /// The driver returned this error from a call of the release.
    Refused(Answer),
    /// A query before the release failed with this error, so the release might invalidate a capture or
    /// deadlock.
    Unanswered(Answer),
}

impl Failure {
    /// Returns whether the attempt may succeed when the context of the object is current.
    #[inline(always)]
    pub(super) fn needs_context(self) -> bool {
        match self {
            Self::Refused(answer) | Self::Unanswered(answer) => {
                answer.code == CUresult::CUDA_ERROR_INVALID_CONTEXT
            }
            Self::Obstacle => false,
        }
    }

    /// Decides whether a release that was retried `retries` times is deferred. Returns the new number of
    /// retries then. Otherwise leaks the object and returns `None`.
    #[inline]
    pub(super) fn retries_or_leak(
        self,
        handle: &dyn Destroy,
        owners: &dyn Keep,
        retries: u32,
    ) -> Option<u32> {
        let retried = self.retried(retries);
        // A borrowed object may be destroyed before the retry.
        if retried.is_some() && !owners.is_borrowed() {
            return retried;
        }
        handle.has_leaked(owners);
        self.record_leak(handle);
        None
    }

    /// Returns the number of retries after one more, or `None` if another retry is useless.
    #[inline]
    fn retried(self, retries: u32) -> Option<u32> {
        match self {
            Self::Obstacle => Some(retries),
            // The thread runs a callback, or the work that the release comes after is not complete.
            Self::Refused(Answer {
                code: CUresult::CUDA_ERROR_NOT_PERMITTED | CUresult::CUDA_ERROR_NOT_READY,
                ..
            }) => Some(retries),
            // The error is about a capture that was not detected, and that ends at an unknown time.
            Self::Refused(answer) if !is_temporary(answer.code) => None,
            Self::Refused(_) | Self::Unanswered(_) => (retries < MAX_RETRIES).then(|| retries + 1),
        }
    }

    /// Reports or counts the leak of an object.
    #[inline]
    fn record_leak(self, handle: &dyn Destroy) {
        let leaked = |error| {
            report(&Report::Leaked { what: handle.name(), error });
        };
        let answer = match self {
            Self::Obstacle => return leaked(Invalid::BorrowedCannotWait.into()),
            Self::Refused(answer) | Self::Unanswered(answer) => answer,
        };
        let leftover = handle.leftover();
        match answer.code {
            _ if leftover == Leftover::MemoryInUse => leaked(fail(answer.call, answer.code)),
            // The process exits, and nothing remains to be done.
            CUresult::CUDA_ERROR_DEINITIALIZED => {}
            CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
                if leftover == Leftover::Object {
                    count_leak();
                }
            }
            code if is_fatal(code) => count_leak(),
            code => leaked(fail(answer.call, code)),
        }
    }
}

/// Returns whether an error code is only temporary: it is about a callback thread, or about a capture
/// that began after the check.
#[inline]
pub(super) fn is_temporary(code: CUresult) -> bool {
    let captures = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED.0
        ..=CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD.0;
    code == CUresult::CUDA_ERROR_NOT_PERMITTED || captures.contains(&code.0)
}

/// Decides whether an attempt continues after a query returned an error.
#[cold]
#[inline(never)]
pub(super) fn continue_after(error: Error) -> Result<(), Failure> {
    match error {
        Error::Driver(error) => {
            continue_after_answer(Answer { call: error.call, code: error.code })
        }
        // The stream is capturing, or its state is being changed.
        Error::Invalid(_) => Err(Failure::Obstacle),
        // The driver has no such query.
        _ => Ok(()),
    }
}

/// Decides whether an attempt continues after a query failed with this code.
#[inline]
pub(super) fn continue_after_answer(answer: Answer) -> Result<(), Failure> {
    match answer.code {
        // The driver is too old, or will refuse the release for the same reason.
        CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
        | CUresult::CUDA_ERROR_NOT_FOUND
        | CUresult::CUDA_ERROR_NOT_INITIALIZED
        | CUresult::CUDA_ERROR_INVALID_HANDLE
        | CUresult::CUDA_ERROR_INVALID_CONTEXT => Ok(()),
        CUresult::CUDA_ERROR_DEINITIALIZED | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED => {
            Err(Failure::Refused(answer))
        }
        code if is_fatal(code) || is_temporary(code) => Err(Failure::Refused(answer)),
        _ => Err(Failure::Unanswered(answer)),
    }
}
