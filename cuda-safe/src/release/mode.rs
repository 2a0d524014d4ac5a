//! The thread's capture mode. Releases run in the relaxed mode, which invalidates no capture.

use crate::call::{Report, Result, fail, is_fatal, report};
use cuda_sys::{CUresult, CUstreamCaptureMode};

/// Sets the thread's capture mode, and stores the previous one in `mode`.
#[inline]
pub(super) fn exchange_mode(mode: &mut CUstreamCaptureMode) -> CUresult {
    // SAFETY: the pointer refers to a borrowed value.
    unsafe { cuda_sys::cuThreadExchangeStreamCaptureMode(mode) }
}

/// Restores the thread's capture mode, with one retry if the driver refuses.
#[inline]
pub(crate) fn restore_mode(before: CUstreamCaptureMode) {
    let mut mode = before;
    let code = exchange_mode(&mut mode);
    if !code.is_success() {
        restore_again(before, code);
    }
}

#[cold]
#[inline(never)]
fn restore_again(before: CUstreamCaptureMode, code: CUresult) {
    let mut mode = before;
    if exchange_mode(&mut mode).is_success() {
        return;
    }
    let nothing_is_left = code == CUresult::CUDA_ERROR_DEINITIALIZED || is_fatal(code);
    if !nothing_is_left {
        report(&Report::CaptureMode { error: fail("cuThreadExchangeStreamCaptureMode", code) });
    }
}

/// Calls a function in the relaxed capture mode, which invalidates no capture. If the driver refuses to
/// change the mode, the function is not called.
///
/// # Errors
/// The driver's refusal to change the mode; errors of `f`.
pub(crate) fn relaxed<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let code = exchange_mode(&mut mode);
    if !code.is_success() {
        return Err(fail("cuThreadExchangeStreamCaptureMode", code));
    }
    let done = f();
    restore_mode(mode);
    done
}
