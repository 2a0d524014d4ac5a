//! Host functions in captures.

use crate::call::{Invalid, Result, answer, count_leak, without_current};
use crate::capture_state::{CapturedBy, Operation};
use crate::graph::HostFunction;
use crate::graph::Retained;
use crate::stream::Stream;
use std::sync::Arc;

impl Stream {
    /// Captures a host function, which each launch of the graph runs once on a driver thread. Calls
    /// `cuLaunchHostFunc`.
    ///
    /// The graph owns the function. If the function panics,
    /// [`ExecutableGraph::take_panic`](crate::ExecutableGraph::take_panic) returns the panic, and the
    /// launch continues. See [`Graph::add_host_function`](crate::Graph::add_host_function).
    ///
    /// # Errors
    /// - [`Invalid::NotCaptured`] if the stream is not part of a capture that this crate began. Use
    ///   [`launch_host_function`](Self::launch_host_function) to run a function now.
    /// - `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED`.
    ///
    /// Since CUDA 10.0. Raw: [`cuLaunchHostFunc`](fn@cuda_sys::cuLaunchHostFunc).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device};
    /// use cuda_safe::capture::CaptureMode;
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let graph = stream.capture(CaptureMode::default(), |stream| {
    ///     stream.capture_host_function(|| println!("launched"))
    /// })?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuLaunchHostFunc")]
    pub fn capture_host_function(&self, function: impl Fn() + Send + Sync + 'static) -> Result<()> {
        let entry = self.entry(Operation::HostFunction)?;
        let open = match &entry.captured_by {
            CapturedBy::Crate(open) if open.is_recording() => open,
            _ => {
                let what = "a host function of a graph";
                return Err(Invalid::NotCaptured { what }.into());
            }
        };
        let function = HostFunction::new(function);
        let parameters = function.parameters();
        let retained = Retained::HostFunction(Arc::clone(&function));
        open.retain(Arc::new(retained));
        let launched = without_current(self.context(), || {
            let (run, data) = (parameters.fn_, parameters.userData);
            // SAFETY: the stream is alive. The graph owns the function until its launches are complete;
            // if the call is not captured after all, the function is leaked below.
            unsafe { answer!(cuLaunchHostFunc(self.raw(), run, data)) }
        });
        if !open.is_recording() {
            // Another thread ends the capture meanwhile. The driver may run the function now.
            count_leak();
            std::mem::forget(function);
        }
        launched
    }
}
