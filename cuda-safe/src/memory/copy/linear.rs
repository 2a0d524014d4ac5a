//! Copies between device and host, and fills.
//!
//! Copies from and to an ordinary (pageable) slice have completed when the call returns. A copy to
//! the device is an asynchronous copy followed by a wait. A copy from the device waits first and
//! then makes a synchronous copy, so that no copy into the slice is in progress if the wait fails.

use crate::call::{Invalid, Result, answer, call, copy_without_current, refuse_in_host_function};
use crate::capture_state::Operation;
use crate::memory::{DeviceBuffer, DeviceSlice, DeviceSliceMut, same_length};
use crate::stream::{Stream, same_stream};
use bytemuck::{AnyBitPattern, NoUninit};

impl<T: NoUninit> DeviceSliceMut<'_, T> {
    /// Copies `slice` to this memory. Blocks the host until the copy and all earlier work on the
    /// stream have completed.
    ///
    /// Calls `cuMemcpyHtoDAsync(this, slice, bytes, stream)` and then waits for the stream.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`] if the lengths differ.
    /// - [`Invalid::StreamIsCaptured`].
    /// - [`Error::InHostFunction`](crate::Error::InHostFunction) inside a host function.
    /// - Errors from earlier work on the stream.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyHtoD_v2`](fn@cuda_sys::cuMemcpyHtoD_v2),
    /// [`cuMemcpyHtoDAsync_v2`](fn@cuda_sys::cuMemcpyHtoDAsync_v2).
    #[doc(alias = "cuMemcpyHtoD", alias = "cuMemcpyHtoDAsync")]
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        same_length(slice.len(), self.len())?;
        // This check comes before the copy, because the wait after the copy would be rejected.
        refuse_in_host_function()?;
        if self.size_bytes() == 0 {
            return Ok(());
        }
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        let (target, source) = (self.as_raw(), slice.as_ptr().cast());
        let (bytes, stream) = (self.size_bytes(), self.stream().raw());
        let copied = copy_without_current(self.stream().context(), move || {
            // SAFETY: both sides hold `bytes` (the lengths are equal), and the slice has no
            // uninitialized bytes. It is borrowed until the wait below has returned. If that wait
            // fails, the device may at most still be *reading* the slice's memory, which affects
            // only the buffer: see `Stream::wait_for_host_copies`.
            unsafe { answer!(cuMemcpyHtoDAsync_v2(target, source, bytes, stream)) }
        });
        // Wait even if the call failed: the error may be from earlier work, and the copy may be in
        // progress.
        let waited = self.stream().wait_for_host_copies(|_| ());
        copied.and(waited)
    }

    /// Enqueues a fill that sets all elements to `value`.
    ///
    /// Calls `cuMemsetD8Async`, `cuMemsetD16Async` or `cuMemsetD32Async`, depending on the size of
    /// `T`.
    ///
    /// # Errors
    /// [`Invalid::FillSize`] if the size of `T` is not 1, 2 or 4 bytes.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemsetD8Async`](fn@cuda_sys::cuMemsetD8Async),
    /// [`cuMemsetD16Async`](fn@cuda_sys::cuMemsetD16Async),
    /// [`cuMemsetD32Async`](fn@cuda_sys::cuMemsetD32Async).
    #[doc(alias = "cuMemsetD8Async", alias = "cuMemsetD16Async", alias = "cuMemsetD32Async")]
    pub fn fill(&mut self, value: T) -> Result<()> {
        let (target, stream) = (self.as_raw(), self.stream().raw());
        let count = self.len();
        if !matches!(size_of::<T>(), 1 | 2 | 4) {
            return Err(Invalid::FillSize { size: size_of::<T>() }.into());
        }
        if count == 0 {
            return Ok(());
        }
        let bytes = bytemuck::bytes_of(&value);
        copy_without_current(self.stream().context(), || match *bytes {
            // SAFETY: the memory holds `count` elements of 1 byte.
            [a] => unsafe { call!(cuMemsetD8Async(target, a, count, stream)) },
            [a, b] => {
                let pattern = u16::from_ne_bytes([a, b]);
                // SAFETY: the memory holds `count` elements of 2 bytes. (The driver rejects an odd
                // address, which only a borrowed buffer can have.)
                unsafe { call!(cuMemsetD16Async(target, pattern, count, stream)) }
            }
            [a, b, c, d] => {
                let pattern = u32::from_ne_bytes([a, b, c, d]);
                // SAFETY: the memory holds `count` elements of 4 bytes. (The driver rejects an
                // unaligned address, as above.)
                unsafe { call!(cuMemsetD32Async(target, pattern, count, stream)) }
            }
            // The size was checked above.
            _ => Ok(()),
        })
    }
}

impl<T: AnyBitPattern> DeviceSlice<'_, T> {
    /// Copies all elements into `slice`. Blocks the host until the copy and all earlier work on the
    /// stream have completed.
    ///
    /// Waits for the stream and then calls `cuMemcpyDtoH(slice, this, bytes)`. The driver makes
    /// this copy in the context's legacy default stream, so the call also waits for *blocking*
    /// streams ([`StreamOptions::blocking`](crate::StreamOptions::blocking)).
    ///
    /// # Errors
    /// - [`Invalid::Lengths`] if the lengths differ.
    /// - [`Invalid::StreamIsCaptured`].
    /// - [`Error::InHostFunction`](crate::Error::InHostFunction) inside a host function.
    /// - Errors from earlier work on the stream. In this case nothing is copied.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyDtoH_v2`](fn@cuda_sys::cuMemcpyDtoH_v2).
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        same_length(self.len(), slice.len())?;
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        self.stream().wait_for_work()?;
        if self.size_bytes() == 0 {
            return Ok(());
        }
        let (target, source) = (slice.as_mut_ptr().cast(), self.as_raw());
        let _current = self.stream().context().enter()?;
        // SAFETY: both sides hold `size_bytes` (the lengths are equal), every bit pattern is a
        // valid `T`, and the copy has completed when the call returns.
        unsafe { call!(cuMemcpyDtoH_v2(target, source, self.size_bytes())) }
    }

    /// Copies all elements into a new `Vec`. Blocks the host until the copy and all earlier work on
    /// the stream have completed.
    ///
    /// # Errors
    /// See [`copy_to_slice`](Self::copy_to_slice).
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.len()];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }
}

impl<T> DeviceSliceMut<'_, T> {
    /// Enqueues a copy of all elements of `source` to this memory. Does not block the host.
    ///
    /// Calls `cuMemcpyDtoDAsync(this, source, bytes, stream)`. Both slices must be bound to the
    /// same stream.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`] if the lengths differ.
    /// - [`Invalid::OtherStream`] if the streams differ.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyDtoDAsync_v2`](fn@cuda_sys::cuMemcpyDtoDAsync_v2).
    #[doc(alias = "cuMemcpyDtoDAsync")]
    #[inline]
    pub fn copy_from<'a>(&mut self, source: impl Into<DeviceSlice<'a, T>>) -> Result<()>
    where
        T: 'a,
    {
        let source = source.into();
        if source.len() != self.len() || source.stream() != self.stream() {
            let lengths = (source.len(), self.len());
            return source_error(lengths, source.stream(), self.stream());
        }
        let (bytes, stream) = (self.size_bytes(), self.stream());
        if bytes == 0 {
            return Ok(());
        }
        let (from, to) = (source.as_raw(), self.as_raw());
        copy_without_current(stream.context(), move || {
            // SAFETY: both sides hold `bytes` and are bound to this stream. They are freed in the
            // order of this stream, or after a wait. They do not overlap, because the target is
            // borrowed mutably.
            unsafe { answer!(cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw())) }
        })
    }

    /// Enqueues a fill that sets all bytes to 0.
    ///
    /// Calls `cuMemsetD8Async(this, 0, bytes, stream)`. If there are no elements, no call is made.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2.
    #[inline]
    pub fn zero(&mut self) -> Result<()> {
        let (target, bytes, stream) = (self.as_raw(), self.size_bytes(), self.stream().raw());
        if bytes == 0 {
            return Ok(());
        }
        copy_without_current(self.stream().context(), move || {
            // SAFETY: the memory holds `bytes`.
            unsafe { answer!(cuMemsetD8Async(target, 0, bytes, stream)) }
        })
    }
}

/// Returns the error for a rejected copy. This is a separate cold function, so that valid copies do
/// not pay for the error path.
#[cold]
#[inline(never)]
fn source_error(lengths: (usize, usize), its: &Stream, expected: &Stream) -> Result<()> {
    same_length(lengths.0, lengths.1)?;
    same_stream("the source of the copy", its, expected)
}

/// Copies and fills of the whole buffer.
impl<T> DeviceBuffer<T> {
    /// Enqueues a copy of all elements of `source` to this buffer. Does not block the host.
    ///
    /// See [`DeviceSliceMut::copy_from`].
    ///
    /// # Errors
    /// - [`Invalid::Lengths`] if the lengths differ.
    /// - [`Invalid::OtherStream`] if the streams differ.
    #[doc(alias = "memcpy_dtod")]
    #[inline]
    pub fn copy_from<'a>(&mut self, source: impl Into<DeviceSlice<'a, T>>) -> Result<()>
    where
        T: 'a,
    {
        self.as_mut_slice().copy_from(source)
    }

    /// Enqueues a fill that sets all bytes to 0.
    ///
    /// See [`DeviceSliceMut::zero`].
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    #[doc(alias = "memset_zeros")]
    #[inline]
    pub fn zero(&mut self) -> Result<()> {
        self.as_mut_slice().zero()
    }
}

impl<T: NoUninit> DeviceBuffer<T> {
    /// Copies `slice` to this buffer. Blocks the host until the copy and all earlier work on the
    /// stream have completed.
    ///
    /// # Errors
    /// See [`DeviceSliceMut::copy_from_slice`].
    #[doc(alias = "memcpy_htod")]
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        self.as_mut_slice().copy_from_slice(slice)
    }

    /// Enqueues a fill that sets all elements to `value`.
    ///
    /// See [`DeviceSliceMut::fill`].
    ///
    /// # Errors
    /// [`Invalid::FillSize`] if the size of `T` is not 1, 2 or 4 bytes.
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.as_mut_slice().fill(value)
    }
}

impl<T: AnyBitPattern> DeviceBuffer<T> {
    /// Copies all elements into `slice`. Blocks the host until the copy and all earlier work on the
    /// stream have completed.
    ///
    /// # Errors
    /// See [`DeviceSlice::copy_to_slice`].
    #[doc(alias = "memcpy_dtoh")]
    pub fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        self.as_slice().copy_to_slice(slice)
    }

    /// Copies all elements into a new `Vec`. Blocks the host until the copy and all earlier work on
    /// the stream have completed.
    ///
    /// # Errors
    /// See [`DeviceSlice::copy_to_slice`].
    #[doc(alias = "clone_dtoh")]
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.as_slice().to_vec()
    }
}
