//! The driver as a whole: start and version.

use crate::call::call;
use crate::error::{Error, Result};
use crate::fork;
use crate::invalid::Invalid;
use cuda_sys::{CUresult, CudaVersion};
use std::sync::atomic::{AtomicBool, Ordering};

static READY: AtomicBool = AtomicBool::new(false);

/// `cuInit(0)`: starts the driver, once in a process. Takes some 200 ms the first time.
///
/// Everything that needs it calls it by itself; call it to have the time pass, and the errors
/// appear, at a chosen moment. A failure is not kept: the next call tries again.
///
/// # Errors
/// No driver ([`Error::Load`]), a driver without a GPU ([`Error::NoDevice`]), a forked process
/// ([`Error::Forked`]).
///
/// Since CUDA 2.0. Raw: [`cuInit`](fn@cuda_sys::cuInit).
#[doc(alias = "cuInit")]
pub fn init() -> Result<()> {
    if fork::in_child() {
        return Err(Error::Forked);
    }
    if READY.load(Ordering::Acquire) {
        return Ok(());
    }
    // SAFETY: cuInit takes no pointer, and any number of threads may call it.
    match fork::start(|| unsafe { call!(cuInit(0)) }) {
        Ok(()) => {
            READY.store(true, Ordering::Release);
            Ok(())
        }
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NO_DEVICE) => Err(Error::NoDevice),
        Err(error) => Err(error),
    }
}

/// `cuDriverGetVersion()`: the CUDA version that the driver offers. Needs no [`init`].
///
/// # Errors
/// There is no driver.
///
/// Since CUDA 2.2. Raw: [`cuDriverGetVersion`](fn@cuda_sys::cuDriverGetVersion).
#[doc(alias = "cuDriverGetVersion")]
pub fn version() -> Result<CudaVersion> {
    cuda_sys::driver_version().map_err(Error::Load)
}

/// For what an older driver would refuse with a bare code, or ignore.
pub(crate) fn needs(what: &'static str, since: CudaVersion) -> Result<()> {
    let driver = version()?;
    if driver < since {
        return Err(Invalid::NeedsNewerDriver {
            what,
            since,
            driver,
        }
        .into());
    }
    Ok(())
}
