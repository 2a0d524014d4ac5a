//! Calls that create objects. They attempt the deferred releases first, which may free what they need.

use super::drain;
use crate::call::{ContextHandle, Entered, Result, out};
use cuda_sys::Zeroable;

/// Returns the object that a call creates through its pointer. See [`out`].
#[inline(always)]
pub(crate) fn create<T: Zeroable>(call: impl FnOnce(*mut T) -> Result<()>) -> Result<T> {
    drain();
    out(call)
}

/// Returns the object that a call creates with a context current.
#[inline(always)]
pub(crate) fn create_in<T: Zeroable>(
    context: &(impl ContextHandle + ?Sized),
    call: impl FnOnce(*mut T) -> Result<()>,
) -> Result<T> {
    drain();
    let _current = Entered::new(context)?;
    out(call)
}
