//! Page-locked host memory.

use super::bytes_of;
use crate::call::call;
use crate::context::Context;
use crate::error::Result;
use crate::release::{self, Resource, release};
use bytemuck::AnyBitPattern;
use core::ffi::c_void;
use cuda_sys::CU_MEMHOSTALLOC_PORTABLE;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Host memory that the device copies from and to without staging; a slice of `T`.
///
/// Every context of the process knows it as pinned. Freeing it waits for *all* running work, so
/// buffers are better kept than made anew.
///
/// A forked child is not to look at it: nothing says that the driver's pages are there.
pub struct PinnedBuffer<T> {
    start: NonNull<T>,
    len: usize,
    context: Context,
}

// SAFETY: the buffer owns its memory, like a `Vec<T>`.
unsafe impl<T: Send> Send for PinnedBuffer<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for PinnedBuffer<T> {}

impl<T: AnyBitPattern> PinnedBuffer<T> {
    /// `cuMemHostAlloc(&start, bytes, PORTABLE)`: pinned memory for `len` elements, all bytes 0.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; a length that cannot be addressed.
    ///
    /// Since CUDA 2.2.
    #[doc(alias = "cuMemHostAlloc")]
    #[doc(alias = "cuMemFreeHost")]
    pub fn zeroed(context: &Context, len: usize) -> Result<Self> {
        release::drain();
        let bytes = bytes_of::<T>(len)?;
        let mut start = std::ptr::null_mut::<c_void>();
        if bytes != 0 {
            let _current = context.enter()?;
            // SAFETY: the pointer is to a local, and the current context is this one.
            unsafe {
                call!(cuMemHostAlloc(
                    &raw mut start,
                    bytes,
                    CU_MEMHOSTALLOC_PORTABLE
                ))
            }?;
            // SAFETY: the driver has just given `bytes` bytes there, and nobody has them but us.
            unsafe { std::ptr::write_bytes(start.cast::<u8>(), 0, bytes) };
        }
        Ok(Self {
            start: NonNull::new(start.cast()).unwrap_or(NonNull::dangling()),
            len,
            context: context.clone(),
        })
    }
}

impl<T> PinnedBuffer<T> {
    /// Without an element, and so without memory.
    pub(super) fn empty(context: &Context) -> Self {
        Self {
            start: NonNull::dangling(),
            len: 0,
            context: context.clone(),
        }
    }

    /// The context that the memory was made in.
    pub fn context(&self) -> &Context {
        &self.context
    }
}

impl<T> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: there are `len` elements, valid from the start on (zeros, and the type allows
        // any bits), aligned as the driver's pages are, and borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and borrowed mutably with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // What is empty was never allocated.
        if self.len * size_of::<T>() != 0 {
            release(Resource::Pinned(self.start.as_ptr().cast()), &self.context);
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for PinnedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
