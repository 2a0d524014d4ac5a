//! The thread's capture mode, in which releases break nobody's capture.

use crate::call::fail;
use crate::error::{Result, is_fatal};
use crate::report::{Report, report};
use cuda_sys::{CUresult, CUstreamCaptureMode};

/// Sets the thread's capture mode; `mode` is then the one before.
#[inline]
pub(super) fn exchange_mode(mode: &mut CUstreamCaptureMode) -> CUresult {
    // SAFETY: the pointer is to a borrowed value.
    unsafe { cuda_sys::cuThreadExchangeStreamCaptureMode(mode) }
}

/// Puts the thread's capture mode back; once more, should the driver refuse.
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
        report(&Report::CaptureMode {
            error: fail("cuThreadExchangeStreamCaptureMode", code),
        });
    }
}

/// Calls something in the capture mode that breaks nobody's capture. Its error is that of the mode, if the driver
/// refuses it: then nothing was called.
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
