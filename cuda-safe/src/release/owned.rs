//! Owners of handles that need nothing else.

use super::{Destroy, Root, release};
use crate::call::{Outcome, Result};
use std::mem::ManuallyDrop;
use std::ops::Deref;

/// An object whose handle owns everything that the object needs. Dropping this releases the object.
#[derive(Debug)]
pub(crate) struct Owned<H: Destroy>(ManuallyDrop<H>);

impl<H: Destroy> Owned<H> {
    pub(crate) fn new(handle: H) -> Self {
        Self(ManuallyDrop::new(handle))
    }

    /// Destroys the object now, in the current state of the thread.
    ///
    /// # Errors
    /// Errors of the driver call. The object is then dropped.
    ///
    /// # Safety
    /// See [`Destroy::destroy`].
    pub(crate) unsafe fn destroy(self) -> Result<()> {
        // SAFETY: the caller's promise. The value stands for the object.
        unsafe { self.0.destroy() }.result()?;
        let mut destroyed = ManuallyDrop::new(self);
        // SAFETY: the drop of this value does not run, and the handle is not used again.
        unsafe { ManuallyDrop::drop(&mut destroyed.0) };
        Ok(())
    }
}

impl<H: Destroy> Deref for Owned<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.0
    }
}

impl<H: Destroy> Drop for Owned<H> {
    fn drop(&mut self) {
        // SAFETY: the handle is not used again.
        let handle = unsafe { ManuallyDrop::take(&mut self.0) };
        release(handle, &Root { is_borrowed: false });
    }
}
