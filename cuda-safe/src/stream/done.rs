//! Waiting for a stream without a thread that waits.

use super::Stream;
use super::host::{self, Panicked};
use crate::call::{answer, check, without_current};
use crate::capture::Operation;
use crate::error::{Error, Result};
use crate::fork;
use crate::release;
use crate::report::count_leak;
use crate::sync::{Mutex, MutexGuard};
use core::ffi::c_void;
use cuda_sys::{CUresult, CUstream};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context as Task, Poll, Waker};

/// A [`Future`] of the work that a stream had been given when [`Stream::done`] was called; ready
/// with what [`Stream::synchronize`] would have returned then.
///
/// Polling it calls nothing of the driver's, and dropping it neither: it may be dropped, forgotten
/// or sent elsewhere at any time, and the work goes on. It holds the stream. In a forked child it is
/// ready with [`Error::Forked`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Done {
    stream: Stream,
    state: Arc<State>,
}

/// What the future and the driver's callback share.
struct State {
    now: Mutex<Now>,
    panicked: Arc<Panicked>,
}

enum Now {
    /// The callback has not come; whom it is to wake.
    Waiting(Option<Waker>),
    /// What it was told of the work.
    Ended(CUresult),
}

impl Stream {
    /// `cuStreamAddCallback(stream, callback, data, 0)`: a future of all work given to the stream up
    /// to now. No thread waits for it: a thread of the driver's wakes the task.
    ///
    /// One call of the driver here, none later. The
    /// work that is given to the stream afterwards waits until the waker has been called, a few microseconds.
    ///
    /// The callback is the older way of calling the host, and the right one here: it is called with
    /// the error when the stream's work fails, where a
    /// [host function](Self::launch_host_function) is never run and the task would sleep for ever.
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device, DeviceBuffer, Result};
    /// # async fn compute() -> Result<()> {
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let buffer = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
    /// stream.done()?.await?;
    /// // The copy has nothing to wait for.
    /// assert_eq!(buffer.to_vec()?, [0; 1000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); those of earlier work. The
    /// future has those of the work, and [`Error::HostFunctionPanicked`], for a waker too.
    ///
    /// Since CUDA 5.0. Raw: [`cuStreamAddCallback`](fn@cuda_sys::cuStreamAddCallback).
    #[doc(alias = "cuStreamAddCallback")]
    pub fn done(&self) -> Result<Done> {
        release::drain();
        let _call = self.uncaptured(Operation::HostFunction)?;
        let state = Arc::new(State {
            now: Mutex::new(Now::Waiting(None)),
            panicked: Arc::clone(&self.inner.panicked),
        });
        let data = Arc::into_raw(Arc::clone(&state));
        let given = without_current(self.context(), || {
            let data = data.cast_mut().cast::<c_void>();
            // SAFETY: the stream is alive; the callback takes the share that `data` is, once.
            unsafe { answer!(cuStreamAddCallback(self.raw(), Some(reached), data, 0)) }
        });
        match given {
            Ok(()) => Ok(Done {
                stream: self.clone(),
                state,
            }),
            Err(error) => {
                if error.is_refusal() {
                    // SAFETY: the driver did not take it, so the share is still this function's.
                    drop(unsafe { Arc::from_raw(data) });
                } else {
                    // It may be of earlier work, and the driver have the callback all the same.
                    count_leak();
                }
                Err(error)
            }
        }
    }
}

/// What the driver calls, once.
///
/// # Safety
/// `data` is a share of a [`State`], which nobody else gives back.
unsafe extern "C" fn reached(_stream: CUstream, result: CUresult, data: *mut c_void) {
    // SAFETY: the caller's promise.
    let state = unsafe { Arc::from_raw(data.cast_const().cast::<State>()) };
    host::run_inside(&state.panicked, || {
        let before = std::mem::replace(&mut *state.lock(), Now::Ended(result));
        // Not under the lock: a waker does what it likes.
        if let Now::Waiting(Some(waker)) = before {
            waker.wake();
        }
    });
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whom to wake from now on, in the place of whom it was; or what the callback was told.
    fn set_waker(&self, waker: Option<Waker>) -> Option<CUresult> {
        let (ended, _dropped_outside_of_the_lock) = match &mut *self.lock() {
            Now::Waiting(place) => (None, std::mem::replace(place, waker)),
            Now::Ended(result) => (Some(*result), waker),
        };
        ended
    }
}

impl Done {
    /// The stream.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Future for Done {
    type Output = Result<()>;

    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        // There the lock may be another thread's, for ever.
        if fork::in_child() {
            return Poll::Ready(Err(Error::Forked));
        }
        match self.state.set_waker(Some(task.waker().clone())) {
            None => Poll::Pending,
            Some(result) => {
                let done = check("cuStreamAddCallback", result);
                Poll::Ready(done.and_then(|()| self.stream.inner.panicked.take()))
            }
        }
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        if !fork::in_child() {
            // Nobody is to be woken any more.
            self.state.set_waker(None);
        }
    }
}

impl fmt::Debug for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Done")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
