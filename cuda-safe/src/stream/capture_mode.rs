//! The capture mode of a thread.

use crate::call::{Result, c_enum, call, fork};
use crate::release;
use cuda_sys::CUstreamCaptureMode;

c_enum! {
    /// The capture mode (`CUstreamCaptureMode`): which threads cannot make unsafe calls during a capture.
    ///
    /// Unsafe calls are calls that could wait for work that is captured and never executed: synchronous and
    /// pinned allocations and their frees, waits, and others. An unsafe call fails and invalidates the
    /// capture. (Objects of this crate can be dropped at any time: their release does not invalidate a
    /// capture.)
    #[derive(Default)]
    pub enum CaptureMode = CUstreamCaptureMode {
        /// No thread of the process can make unsafe calls, including code that is unrelated to the capture.
        Global = CU_STREAM_CAPTURE_MODE_GLOBAL,
        /// The thread that began the capture cannot make unsafe calls.
        #[default]
        ThreadLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        /// All threads can make unsafe calls.
        Relaxed = CU_STREAM_CAPTURE_MODE_RELAXED,
    }
}

impl CaptureMode {
    /// Runs `f` with this capture mode on the calling thread, and then restores the previous mode, also
    /// if `f` panics. Calls `cuThreadExchangeStreamCaptureMode`.
    ///
    /// The initial mode of a thread is [`Global`](Self::Global). In the mode
    /// [`Relaxed`](Self::Relaxed), calls of the thread never invalidate a capture, and incorrect calls
    /// are not detected.
    ///
    /// # Errors
    /// An error of the driver call. On an error, `f` is not called. If the mode cannot be restored, the
    /// failure is reported to the function of [`set_report_hook`](crate::set_report_hook).
    ///
    /// Since CUDA 10.1. Raw:
    /// [`cuThreadExchangeStreamCaptureMode`](fn@cuda_sys::cuThreadExchangeStreamCaptureMode).
    #[doc(alias = "cuThreadExchangeStreamCaptureMode")]
    pub fn with<R>(self, f: impl FnOnce() -> R) -> Result<R> {
        /// The previous mode, which `Drop` restores.
        struct RestoreMode(CUstreamCaptureMode);
        impl Drop for RestoreMode {
            #[inline]
            fn drop(&mut self) {
                // In a forked child the driver cannot be called.
                if !fork::in_child() {
                    release::restore_mode(self.0);
                }
            }
        }
        let mut mode = self.raw();
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuThreadExchangeStreamCaptureMode(&raw mut mode)) }?;
        let _restore = RestoreMode(mode);
        Ok(f())
    }
}
