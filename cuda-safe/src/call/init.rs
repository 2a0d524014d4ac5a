//! Initialization and version of the driver.

use crate::call::error::{Error, Result};
use crate::call::function::call;
use crate::call::invalid::Invalid;
use crate::call::{fork, refuse_if};
use cuda_sys::{CUresult, CudaVersion};
use std::sync::atomic::{AtomicBool, Ordering};

static READY: AtomicBool = AtomicBool::new(false);

/// Initializes the driver, once per process. Calls `cuInit(0)`. The first call takes about 200 ms.
///
/// Functions that need an initialized driver call this function themselves. Call it explicitly to
/// choose when the initialization runs and its errors appear. A failure is not cached: the next call
/// tries again.
///
/// # Errors
/// [`Error::Load`] without a driver, [`Error::NoDevice`] without a GPU, [`Error::Forked`] in a forked
/// process.
///
/// Since CUDA 2.0. Raw: [`cuInit`](fn@cuda_sys::cuInit).
#[doc(alias = "cuInit")]
#[inline]
pub fn init() -> Result<()> {
    fork::refuse_in_child()?;
    if READY.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: `cuInit` takes no pointer, and any number of threads may call it at the same time.
    match fork::start(|| unsafe { call!(cuInit(0)) }) {
        Ok(()) => {
            READY.store(true, Ordering::Release);
            Ok(())
        }
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NO_DEVICE) => Err(Error::NoDevice),
        Err(error) => Err(error),
    }
}

/// Returns whether [`init`] has succeeded.
#[inline]
pub(crate) fn is_initialized() -> bool {
    READY.load(Ordering::Acquire)
}

/// Returns the CUDA version that the driver supports. Calls `cuDriverGetVersion`. Does not need
/// [`init`].
///
/// # Errors
/// [`Error::Load`] without a driver.
///
/// Since CUDA 2.2. Raw: [`cuDriverGetVersion`](fn@cuda_sys::cuDriverGetVersion).
#[doc(alias = "cuDriverGetVersion")]
#[inline]
pub fn version() -> Result<CudaVersion> {
    cuda_sys::driver_version().map_err(Error::Load)
}

/// Checks that the driver is new enough for `what`, which an older driver would ignore or reject with a
/// bare error code.
#[inline]
pub(crate) fn needs(what: &'static str, since: CudaVersion) -> Result<()> {
    let driver = version()?;
    refuse_if!(driver < since, Invalid::NeedsNewerDriver { what, since, driver });
    Ok(())
}
