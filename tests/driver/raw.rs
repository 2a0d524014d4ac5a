//! Raw calls that several tests make.

use cuda_safe::sys::{CUcontext, CUresult, cuCtxGetCurrent};
use std::ptr::null_mut;

#[track_caller]
pub(crate) fn well(code: CUresult) {
    assert!(code.is_success(), "{code}");
}

/// The current context of this thread; null if there is none.
#[track_caller]
pub(crate) fn current() -> CUcontext {
    let mut current = null_mut();
    // SAFETY: the pointer is to a local.
    well(unsafe { cuCtxGetCurrent(&raw mut current) });
    current
}
