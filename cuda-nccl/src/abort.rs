//! Aborts, and errors that occur after a call has returned.

use crate::error::{Error, Result};
use crate::shared::Shared;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A handle that any thread can use to abort a communicator, and to learn of its errors. The page of the
/// [crate](crate#failures) has a watchdog.
///
/// It does not keep the communicator of NCCL alive, and its drop destroys nothing.
#[derive(Clone)]
pub struct Abort {
    pub(crate) shared: Arc<Shared>,
}

impl Abort {
    /// Aborts the communicator: ends its operations, complete or not, and frees it. Calls `ncclCommAbort`.
    ///
    /// The buffers of operations that were not complete have unspecified contents. Later calls with the communicator
    /// return [`Error::Aborted`]. If the communicator was aborted before, or was dropped, nothing happens. A drop that
    /// waits for the operations of a communicator ends, too.
    ///
    /// The other ranks learn nothing of the abort, and must abort their communicators as well.
    ///
    /// Waits for a call that another thread makes with the communicator. Such a call may wait for other ranks; if the
    /// communicator is [interruptible](crate::Config::interruptible), it ends with [`Error::Aborted`].
    ///
    /// # Errors
    /// Errors of NCCL and the driver. The communicator is not used again nevertheless.
    ///
    /// Raw: [`ncclCommAbort`](fn@crate::sys::ncclCommAbort).
    #[doc(alias = "ncclCommAbort")]
    #[inline]
    pub fn abort(&self) -> Result<()> {
        self.shared.abort()
    }

    /// Returns whether [`abort`](Self::abort) was called.
    #[inline]
    pub fn is_aborted(&self) -> bool {
        self.shared.is_aborted()
    }

    /// Returns the error that has occurred in the work of the communicator, if any. Calls `ncclCommGetAsyncError`, and
    /// does not block. Returns `None` while another thread makes a call with the communicator, and after its drop.
    ///
    /// Raw: [`ncclCommGetAsyncError`](fn@crate::sys::ncclCommGetAsyncError).
    #[doc(alias = "ncclCommGetAsyncError")]
    #[inline]
    pub fn error(&self) -> Option<Error> {
        self.state()?.err()
    }

    /// Returns the state, or `None` if it is not known now.
    #[inline]
    fn state(&self) -> Option<Result<()>> {
        match self.shared.is_dropped() {
            true => None,
            false => self.shared.poll(),
        }
    }

    /// Returns a future that is ready when an error has occurred in the work of the communicator, with the error, or
    /// when the communicator has been dropped, with `None`.
    ///
    /// NCCL has no notifications, so a thread of the future asks in this interval, from the first poll until it is ready or
    /// dropped.
    #[inline]
    pub fn failure(&self, interval: Duration) -> Failure {
        Failure { abort: self.clone(), interval, watch: None }
    }
}

impl fmt::Debug for Abort {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Abort").field("aborted", &self.is_aborted()).finish_non_exhaustive()
    }
}

/// The future of [`Abort::failure`].
#[derive(Debug)]
#[must_use = "a future does nothing before it is polled"]
pub struct Failure {
    abort: Abort,
    interval: Duration,
    watch: Option<Arc<Watch>>,
}

/// What the future and its thread share.
#[derive(Debug, Default)]
struct Watch {
    /// The waker of the last poll. `None` after the end of the future or the thread.
    waker: Mutex<Option<Waker>>,
}

impl Watch {
    #[inline]
    fn waker(&self) -> std::sync::MutexGuard<'_, Option<Waker>> {
        self.waker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Failure {
    /// Returns the result, if there is one.
    #[inline]
    fn outcome(abort: &Abort) -> Option<Option<Error>> {
        match abort.shared.is_dropped() {
            true => Some(None),
            false => abort.shared.poll()?.err().map(Some),
        }
    }
}

impl Future for Failure {
    type Output = Option<Error>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(outcome) = Self::outcome(&self.abort) {
            self.watch = None;
            return Poll::Ready(outcome);
        }
        if let Some(watch) = &self.watch {
            let mut waker = watch.waker();
            if waker.is_some() {
                *waker = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        let watch = Arc::new(Watch { waker: Mutex::new(Some(context.waker().clone())) });
        self.watch = Some(Arc::clone(&watch));
        let (abort, interval) = (self.abort.clone(), self.interval);
        let watching = std::thread::Builder::new().spawn(move || {
            while watch.waker().is_some() {
                std::thread::sleep(interval);
                if Self::outcome(&abort).is_some() {
                    let waker = watch.waker().take();
                    waker.into_iter().for_each(Waker::wake);
                }
            }
        });
        if watching.is_err() {
            // There is no thread: the executor asks again at once.
            context.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl Drop for Failure {
    #[inline]
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            watch.waker().take();
        }
    }
}
