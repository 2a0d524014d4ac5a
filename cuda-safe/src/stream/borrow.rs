//! Streams of others whose context is asked for.

use super::{Stream, other_context, refuse_default};
use crate::call::call;
use crate::context::{Context, device_of};
use crate::device::Device;
use crate::driver;
use crate::error::{Error, Result};
use cuda_sys::{CUcontext, CUresult, CUstream};

impl Stream {
    /// [`borrow_raw`](Self::borrow_raw) with a look at whose stream it is (`cuStreamGetCtx`, and for
    /// a stream of a green context `cuStreamGetGreenCtx`, with `cuCtxFromGreenCtx` on CUDA 12.5 to
    /// 12.9): for handles of other code that may have another context.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext); as for `borrow_raw`.
    ///
    /// # Safety
    /// `raw` is a stream that stays alive until the last clone of this, and every buffer bound to it,
    /// is gone.
    ///
    /// Since CUDA 9.2. Raw: [`cuStreamGetCtx`](fn@cuda_sys::cuStreamGetCtx),
    /// [`cuStreamGetGreenCtx`](fn@cuda_sys::cuStreamGetGreenCtx).
    #[doc(alias = "cuStreamGetCtx")]
    #[doc(alias = "cuStreamGetGreenCtx")]
    pub unsafe fn borrow_checked(raw: CUstream, context: &Context) -> Result<Self> {
        refuse_default(raw)?;
        let its = context_of(raw)?;
        if its != context.as_raw() && !is_green_of(raw, its, context)? {
            let its = format!("a context ({its:p})");
            return Err(other_context("the stream", its, context));
        }
        // SAFETY: the caller's promise; the context was just asked for.
        unsafe { Self::borrow_raw(raw, context) }
    }
}

impl Stream {
    /// The device that a stream of other code works on (`cuStreamGetCtx`, and `cuCtxGetDevice` of
    /// that): so that its primary context is the one for [`borrow_checked`](Self::borrow_checked).
    ///
    /// # Errors
    /// The handles 0, 1 and 2, which are the default streams of whatever context is current; those of
    /// the driver.
    ///
    /// # Safety
    /// `raw` is a stream that is alive.
    ///
    /// Since CUDA 9.2. Raw: [`cuStreamGetCtx`](fn@cuda_sys::cuStreamGetCtx).
    #[doc(alias = "cuStreamGetCtx")]
    pub unsafe fn device_of_raw(raw: CUstream) -> Result<Device> {
        refuse_default(raw)?;
        driver::init()?;
        device_of(context_of(raw)?)
    }
}

/// The context of a stream that is alive; of a stream of a green context, that one's view.
fn context_of(stream: CUstream) -> Result<CUcontext> {
    let mut its = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer is to a local.
    match unsafe { call!(cuStreamGetCtx(stream, &raw mut its)) } {
        Ok(()) => Ok(its),
        // Drivers of CUDA 12.5 to 12.9 do not tell, of streams of green contexts.
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_SUPPORTED) => {
            let mut green = std::ptr::null_mut();
            // SAFETY: as above.
            unsafe { call!(cuStreamGetGreenCtx(stream, &raw mut green)) }?;
            if green.is_null() {
                return Err(error);
            }
            // SAFETY: a green context is alive while its stream is of use; the pointer is to a local.
            unsafe { call!(cuCtxFromGreenCtx(&raw mut its, green)) }?;
            Ok(its)
        }
        Err(error) => Err(error),
    }
}

/// Whether a stream is of a green context.
///
/// # Safety
/// The stream is alive.
pub(crate) unsafe fn has_green_context(stream: CUstream) -> Result<bool> {
    let mut green = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer is to a local.
    match unsafe { call!(cuStreamGetGreenCtx(stream, &raw mut green)) } {
        // There were none.
        Err(Error::Missing(_)) => Ok(false),
        asked => asked.map(|()| !green.is_null()),
    }
}

/// Whether a stream of that view is one of a green context on the device of a primary context.
fn is_green_of(raw: CUstream, view: CUcontext, primary: &Context) -> Result<bool> {
    // SAFETY: the stream is alive.
    if !unsafe { has_green_context(raw) }? || device_of(view)? != primary.device() {
        return Ok(false);
    }
    Ok(Context::primary(&primary.device())? == *primary)
}
