//! Borrowed streams with a check of their context.

use super::{Stream, other_context, refuse_default};
use crate::call::{Error, Result, call, init, out, refuse_if, without_current};
use crate::context::{Context, device_of};
use crate::device::Device;
use cuda_sys::{CUcontext, CUresult, CUstream};

impl Stream {
    /// Borrows a stream of other code after a check that it belongs to `context`.
    ///
    /// Calls `cuStreamGetCtx`. For a stream of a green context it also calls `cuStreamGetGreenCtx`, and
    /// `cuCtxFromGreenCtx` on CUDA 12.5 to 12.9. Use it instead of [`borrow_raw`](Self::borrow_raw) if
    /// the stream may belong to a different context.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext);
    /// [`Invalid::Handle`](crate::Invalid::Handle) for the handles 0, 1 and 2, which are default
    /// streams.
    ///
    /// # Safety
    /// `raw` is a stream that stays alive until the last clone of the returned stream and every buffer
    /// bound to it is dropped.
    ///
    /// Since CUDA 9.2. Raw: [`cuStreamGetCtx`](fn@cuda_sys::cuStreamGetCtx),
    /// [`cuStreamGetGreenCtx`](fn@cuda_sys::cuStreamGetGreenCtx).
    #[doc(alias = "cuStreamGetCtx", alias = "cuStreamGetGreenCtx")]
    #[inline]
    pub unsafe fn borrow_checked(raw: CUstream, context: &Context) -> Result<Self> {
        refuse_default(raw)?;
        let actual = context_of(raw)?;
        if actual != context.as_raw() && !is_green_of(raw, actual, context)? {
            let actual = format!("a context ({actual:p})");
            return Err(other_context("the stream", actual, context));
        }
        // SAFETY: the caller guarantees that the stream stays alive, and its context was just checked.
        unsafe { Self::borrow_raw(raw, context) }
    }
}

impl Stream {
    /// Returns the device of a stream of other code. Calls `cuStreamGetCtx` and `cuCtxGetDevice`.
    ///
    /// The primary context of this device can then be passed to
    /// [`borrow_checked`](Self::borrow_checked).
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) for the handles 0, 1 and 2, which are the default
    /// streams of the current context; the errors of the driver calls.
    ///
    /// # Safety
    /// `raw` is a live stream.
    ///
    /// Since CUDA 9.2. Raw: [`cuStreamGetCtx`](fn@cuda_sys::cuStreamGetCtx).
    #[doc(alias = "cuStreamGetCtx")]
    #[inline]
    pub unsafe fn device_of_raw(raw: CUstream) -> Result<Device> {
        refuse_default(raw)?;
        init::init()?;
        device_of(context_of(raw)?)
    }
}

impl Stream {
    /// Returns whether the stream may belong to a green context. Calls `cuStreamGetGreenCtx` only for a
    /// stream that was not created here.
    #[inline]
    pub(crate) fn may_have_green_context(&self) -> bool {
        if self.is_own() {
            return self.partition().is_some();
        }
        // If the driver does not answer, the stream may belong to one.
        let mut has_green = true;
        let _ = without_current(self.context(), || {
            // SAFETY: the stream is alive.
            unsafe { has_green_context(self.raw()) }.map(|actual| has_green = actual)
        });
        has_green
    }
}

/// Returns the context of a live stream. For a stream of a green context this is the view of that green
/// context (`cuCtxFromGreenCtx`).
#[inline]
fn context_of(stream: CUstream) -> Result<CUcontext> {
    let mut actual = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer is to a local.
    match unsafe { call!(cuStreamGetCtx(stream, &raw mut actual)) } {
        Ok(()) => Ok(actual),
        // Drivers of CUDA 12.5 to 12.9 do not support this call for streams of green contexts.
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_SUPPORTED) => {
            // SAFETY: as above.
            let green = out(|place| unsafe { call!(cuStreamGetGreenCtx(stream, place)) })?;
            refuse_if!(green.is_null(), error);
            // SAFETY: the green context is alive, because its stream is in use; the pointer is to a
            // local.
            unsafe { call!(cuCtxFromGreenCtx(&raw mut actual, green)) }?;
            Ok(actual)
        }
        Err(error) => Err(error),
    }
}

/// Returns whether a stream belongs to a green context.
///
/// # Safety
/// The stream is alive.
#[inline]
unsafe fn has_green_context(stream: CUstream) -> Result<bool> {
    let mut green = std::ptr::null_mut();
    // SAFETY: the stream is alive, and the pointer is to a local.
    match unsafe { call!(cuStreamGetGreenCtx(stream, &raw mut green)) } {
        // A driver without this function has no green contexts.
        Err(Error::Missing(_)) => Ok(false),
        result => result.map(|()| !green.is_null()),
    }
}

/// Returns whether a stream with this view belongs to a green context on the device of `primary`, and
/// `primary` is a primary context.
#[inline]
fn is_green_of(raw: CUstream, view: CUcontext, primary: &Context) -> Result<bool> {
    // SAFETY: the stream is alive.
    if !unsafe { has_green_context(raw) }? || device_of(view)? != primary.device() {
        return Ok(false);
    }
    Ok(Context::primary(&primary.device())? == *primary)
}
