//! Host functions: Rust code that runs in stream order.

use super::Stream;
use crate::call::{HostPanic, Result, answer, count_leak, run_host_function, without_current};
use crate::capture_state::Operation;
use crate::release;
use core::ffi::c_void;
use cuda_sys::CUhostFn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

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
        release::drain();
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
