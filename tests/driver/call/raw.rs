//! Raw calls that several tests use.

use cuda_safe::sys::{CUcontext, CUresult, cuCtxGetCurrent};
use std::ptr::null_mut;

#[track_caller]
pub(crate) fn succeeds(code: CUresult) {
    assert!(code.is_success(), "{code}");
}

/// Returns the current context of this thread, or null if there is none.
#[track_caller]
pub(crate) fn current() -> CUcontext {
    let mut current = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxGetCurrent(&raw mut current) });
    current
}
