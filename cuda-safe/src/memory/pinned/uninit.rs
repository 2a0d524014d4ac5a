//! Pinned memory without initialization.

use super::{PinnedBuffer, PinnedOptions, Source};
use crate::call::Result;
use crate::context::Context;
use crate::memory::same_length;
use std::mem::MaybeUninit;

impl<T: Copy> PinnedBuffer<T> {
    /// Allocates pinned memory for `len` elements without initializing it. The memory is pinned for
    /// all contexts.
    ///
    /// The elements are `MaybeUninit<T>`.
    /// [`write_copy_of_slice`](PinnedBuffer::write_copy_of_slice) and
    /// [`write_with`](PinnedBuffer::write_with) initialize them and return a `PinnedBuffer<T>`.
    ///
    /// # Errors
    /// See [`uninit_with`](Self::uninit_with).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, PinnedBuffer};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let host = PinnedBuffer::<f32>::uninit(&context, 3)?.write_copy_of_slice(&[1.0, 2.0, 3.0])?;
    /// let squares = PinnedBuffer::<u32>::uninit(&context, 4)?.write_with(|i| (i * i) as u32);
    /// assert_eq!((&*host, &*squares), (&[1.0, 2.0, 3.0][..], &[0, 1, 4, 9][..]));
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn uninit(context: &Context, len: usize) -> Result<PinnedBuffer<MaybeUninit<T>>> {
        Self::uninit_with(context, len, PinnedOptions::default())
    }

    /// Allocates pinned memory for `len` elements with the given options, without initializing it.
    ///
    /// Calls `cuMemHostAlloc(&start, bytes, flags)`.
    ///
    /// # Errors
    /// See [`zeroed_with`](Self::zeroed_with).
    ///
    /// Since CUDA 2.2. Raw: [`cuMemHostAlloc`](fn@cuda_sys::cuMemHostAlloc).
    #[doc(alias = "cuMemHostAlloc")]
    pub fn uninit_with(
        context: &Context,
        len: usize,
        options: PinnedOptions,
    ) -> Result<PinnedBuffer<MaybeUninit<T>>> {
        PinnedBuffer::allocate(context, len, options)
    }
}

/// Initialization of the elements.
impl<T: Copy> PinnedBuffer<MaybeUninit<T>> {
    /// Copies all elements of `slice` to the buffer, which is then initialized. The host copies.
    ///
    /// # Errors
    /// [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ. The buffer, which has no
    /// data yet, is then dropped.
    pub fn write_copy_of_slice(mut self, slice: &[T]) -> Result<PinnedBuffer<T>> {
        same_length(slice.len(), self.len())?;
        let start = slice.as_ptr().cast::<MaybeUninit<T>>();
        // SAFETY: `MaybeUninit<T>` has the layout of `T`, and every `T` is a valid one.
        let source = unsafe { std::slice::from_raw_parts(start, slice.len()) };
        self.copy_from_slice(source);
        // SAFETY: every element was just written (the lengths are equal).
        Ok(unsafe { self.assume_init() })
    }

    /// Sets each element to the value that `value` returns for its index, from 0 on. The buffer is
    /// then initialized.
    pub fn write_with(mut self, mut value: impl FnMut(usize) -> T) -> PinnedBuffer<T> {
        for (index, element) in self.iter_mut().enumerate() {
            element.write(value(index));
        }
        // SAFETY: every element was just written.
        unsafe { self.assume_init() }
    }

    /// Converts the buffer into one with initialized elements, without writing them.
    ///
    /// # Safety
    /// Each element is initialized with a valid `T`.
    pub unsafe fn assume_init(mut self) -> PinnedBuffer<T> {
        PinnedBuffer {
            start: self.start.cast(),
            len: self.len,
            source: std::mem::replace(&mut self.source, Source::Nothing),
            context: self.context.clone(),
        }
    }
}
