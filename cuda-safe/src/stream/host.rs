//! Rust code that runs in stream order: host functions, and the futures that they complete.

use crate::call::{
    Error, HostPanic, Result, answer, check, count_leak, debug_struct, fork, run_host_function,
    without_current,
};
use crate::capture_state::Operation;
use crate::stream::{Stream, host};
use crate::sync::{Mutex, lock};
use core::ffi::c_void;
use cuda_sys::{CUhostFn, CUresult, CUstream};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, Waker};

/// A host function that was passed to the driver.
struct Job {
    function: Box<dyn FnOnce() + Send>,
    host_panic: Arc<HostPanic>,
}

impl Stream {
    /// Enqueues a function that runs once on a driver thread, after all earlier work in the stream.
    /// Later work waits until it returns. Calls `cuLaunchHostFunc`.
    ///
    /// If the function panics, the next [`synchronize`](Self::synchronize) returns the panic as an
    /// error. If the work of the stream fails, the function never runs.
    ///
    /// Inside the function the driver rejects most calls, and this crate rejects blocking calls. The
    /// release of an object that is dropped there is deferred to a later call on another thread.
    ///
    /// # Errors
    /// - The errors of earlier work. In this case it is not known whether the driver has accepted the
    ///   function. If it does not run, the function is leaked with everything it owns.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured): a graph would run the
    ///   function more than once. [`capture_host_function`](Self::capture_host_function) captures a
    ///   function that can be called repeatedly.
    ///
    /// Since CUDA 10.0. Raw: [`cuLaunchHostFunc`](fn@cuda_sys::cuLaunchHostFunc).
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device};
    /// # let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let (sender, done) = std::sync::mpsc::channel();
    /// stream.launch_host_function(move || {
    ///     // The receiver may already be dropped.
    ///     let _ = sender.send("the earlier work is complete");
    /// })?;
    /// println!("{:?}", done.recv());
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn launch_host_function(&self, function: impl FnOnce() + Send + 'static) -> Result<()> {
        let _call = self.uncaptured(Operation::HostFunction)?;
        launch(function, &self.inner.host_panic, |run, data| {
            without_current(self.context(), || {
                // SAFETY: the stream is alive, and the function runs once and takes the box in `data`.
                unsafe { answer!(cuLaunchHostFunc(self.raw(), run, data)) }
            })
        })
    }
}

/// Passes a function to the driver. The function is dropped if the driver rejects it.
pub(super) fn launch(
    function: impl FnOnce() + Send + 'static,
    host_panic: &Arc<HostPanic>,
    launch: impl FnOnce(CUhostFn, *mut c_void) -> Result<()>,
) -> Result<()> {
    let job = Box::new(Job { function: Box::new(function), host_panic: Arc::clone(host_panic) });
    let data = Box::into_raw(job).cast::<c_void>();
    let launched = launch(Some(run), data);
    match &launched {
        Ok(()) => {}
        Err(error) if error.is_refusal() => {
            // SAFETY: the driver rejected the function, so the box is still owned here.
            drop(unsafe { Box::from_raw(data.cast::<Job>()) });
        }
        // The error may come from earlier work, and the driver may have accepted the function: the box
        // is leaked.
        Err(_) => count_leak(),
    }
    launched
}

/// The function that the driver calls.
///
/// # Safety
/// `data` is a raw box of a [`Job`], which no other code owns.
#[inline]
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the caller guarantees that `data` is an owned raw box of a `Job`.
    let job = unsafe { Box::from_raw(data.cast::<Job>()) };
    let Job { function, host_panic } = *job;
    run_inside(&host_panic, function);
}

/// Runs a function on a driver thread, where waiting is not allowed.
pub(crate) fn run_inside(host_panic: &HostPanic, function: impl FnOnce()) {
    run_host_function(|| {
        // Unwinding into the driver would be undefined behavior.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(function)) {
            host_panic.keep_first(payload);
        }
    });
}

/// A [`Future`] that completes when the work in a stream is complete. Created by [`Stream::completion`].
///
/// It covers the work that was in the stream when `completion` was called, and its output is the result
/// that [`Stream::synchronize`] would have returned.
///
/// Polling or dropping the future makes no driver call. It can be dropped, forgotten or sent to another
/// thread at any time; the work continues. The future keeps the stream alive. In a forked child it
/// completes with [`Error::Forked`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct StreamFuture {
    stream: Stream,
    state: Arc<State>,
}

/// The state that the future shares with the driver callback.
struct State {
    progress: Mutex<Progress>,
    host_panic: Arc<HostPanic>,
}

enum Progress {
    /// The callback has not run yet. It will wake this waker.
    Waiting(Option<Waker>),
    /// The result of the work, which the callback received.
    Ended(CUresult),
}

impl Stream {
    /// Returns a future that completes when all work that is now in the stream is complete. Calls
    /// `cuStreamAddCallback`.
    ///
    /// No thread blocks: a driver thread wakes the task. This function makes one driver call; polling
    /// makes none. Later work in the stream waits until the waker was called, a few microseconds.
    ///
    /// This function uses the older callback API because a callback also runs when the work fails, and
    /// receives the error. A [host function](Self::launch_host_function) does not run in that case, so
    /// the task would never wake up.
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device, DeviceBuffer, Result};
    /// # async fn compute() -> Result<()> {
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let buffer = DeviceBuffer::<u32>::zeroed(&stream, 1000)?;
    /// stream.completion()?.await?;
    /// // The work is complete, so the copy does not wait.
    /// assert_eq!(buffer.to_vec()?, [0; 1000]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); the errors of earlier work. The
    /// future returns the errors of its work, and [`Error::HostFunctionPanicked`], also if a waker
    /// panicked.
    ///
    /// Since CUDA 5.0. Raw: [`cuStreamAddCallback`](fn@cuda_sys::cuStreamAddCallback).
    #[doc(alias = "cuStreamAddCallback")]
    #[inline]
    pub fn completion(&self) -> Result<StreamFuture> {
        let _call = self.uncaptured(Operation::HostFunction)?;
        let state = Arc::new(State {
            progress: Mutex::new(Progress::Waiting(None)),
            host_panic: Arc::clone(&self.inner.host_panic),
        });
        let data = Arc::into_raw(Arc::clone(&state));
        let added = without_current(self.context(), || {
            let data = data.cast_mut().cast::<c_void>();
            // SAFETY: the stream is alive, and the callback runs once and takes the reference in `data`.
            unsafe { answer!(cuStreamAddCallback(self.raw(), Some(on_completion), data, 0)) }
        });
        match added {
            Ok(()) => Ok(StreamFuture { stream: self.clone(), state }),
            Err(error) => {
                if error.is_refusal() {
                    // SAFETY: the driver rejected the callback, so this function still owns the
                    // reference.
                    drop(unsafe { Arc::from_raw(data) });
                } else {
                    // The error may come from earlier work, and the driver may have accepted the
                    // callback.
                    count_leak();
                }
                Err(error)
            }
        }
    }
}

/// The callback, which the driver calls once.
///
/// # Safety
/// `data` is a reference from `Arc::into_raw` to a [`State`], which no other code releases.
#[inline]
unsafe extern "C" fn on_completion(_stream: CUstream, result: CUresult, data: *mut c_void) {
    // SAFETY: the caller guarantees that `data` is an owned reference to a `State`.
    let state = unsafe { Arc::from_raw(data.cast_const().cast::<State>()) };
    host::run_inside(&state.host_panic, || {
        let previous = std::mem::replace(&mut *lock(&state.progress), Progress::Ended(result));
        // The lock is released first, because a waker can run arbitrary code.
        if let Progress::Waiting(Some(waker)) = previous {
            waker.wake();
        }
    });
}

impl State {
    /// Replaces the waker. Returns the result of the work if the callback has already run.
    #[inline]
    fn set_waker(&self, waker: Option<Waker>) -> Option<CUresult> {
        let (ended, _dropped_outside_of_the_lock) = match &mut *lock(&self.progress) {
            Progress::Waiting(current) => (None, std::mem::replace(current, waker)),
            Progress::Ended(result) => (Some(*result), waker),
        };
        ended
    }
}

impl StreamFuture {
    /// Returns the stream.
    #[inline]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }
}

impl Future for StreamFuture {
    type Output = Result<()>;

    #[inline]
    fn poll(self: Pin<&mut Self>, task: &mut Task<'_>) -> Poll<Result<()>> {
        // In a forked child the lock may be held forever by a thread that does not exist there.
        if fork::in_child() {
            return Poll::Ready(Err(Error::Forked));
        }
        match self.state.set_waker(Some(task.waker().clone())) {
            None => Poll::Pending,
            Some(result) => {
                let done = check(result, "cuStreamAddCallback");
                Poll::Ready(done.and_then(|()| self.stream.inner.host_panic.take()))
            }
        }
    }
}

impl Drop for StreamFuture {
    #[inline]
    fn drop(&mut self) {
        if !fork::in_child() {
            // No task waits any more.
            self.state.set_waker(None);
        }
    }
}

debug_struct! { StreamFuture |its| { stream: its.stream, .. } }
