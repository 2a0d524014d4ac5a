//! Copies between device and host, and setting memory.
//!
//! A plain slice is copied before the call returns. To the device: an asynchronous copy and a
//! wait. From the device: the wait first and then the driver's synchronous copy, so that no copy
//! into the slice is under way if the wait fails.

use super::{DeviceBuffer, DeviceSlice, DeviceSliceMut, same_length};
use crate::call::{answer, call, without_current};
use crate::capture::Operation;
use crate::error::Result;
use crate::invalid::Invalid;
use crate::release;
use crate::stream::{Stream, refuse_inside};
use bytemuck::{AnyBitPattern, NoUninit};

impl<T: NoUninit> DeviceSliceMut<'_, T> {
    /// `cuMemcpyHtoDAsync(this, slice, bytes, stream)` and a wait: copies `slice` here.
    ///
    /// # Errors
    /// [`Invalid::Lengths`] if the lengths differ; [`Invalid::StreamIsCaptured`];
    /// [`Error::InHostFunction`](crate::Error); those of
    /// earlier work on the stream.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyHtoD_v2`](fn@cuda_sys::cuMemcpyHtoD_v2),
    /// [`cuMemcpyHtoDAsync_v2`](fn@cuda_sys::cuMemcpyHtoDAsync_v2).
    #[doc(alias = "cuMemcpyHtoD")]
    #[doc(alias = "cuMemcpyHtoDAsync")]
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        same_length(slice.len(), self.len())?;
        // Before the copy: the wait behind it would be refused.
        refuse_inside()?;
        release::drain();
        if self.size_bytes() == 0 {
            return Ok(());
        }
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        let (target, source) = (self.as_raw(), slice.as_ptr().cast());
        let (bytes, stream) = (self.size_bytes(), self.stream().raw());
        let copied = without_current(self.stream().context(), move || {
            // SAFETY: both sides hold `bytes` (the lengths are equal), and the slice has no
            // uninitialised byte. It is borrowed until the wait below is over. Should that fail,
            // the device is at most still *reading* the slice's memory, which harms nobody but
            // the buffer: what was pageable is read by the driver's own staging, and the release
            // of pinned memory waits.
            unsafe { answer!(cuMemcpyHtoDAsync_v2(target, source, bytes, stream)) }
        });
        // Even if the call failed: its code may be of earlier work, and the copy under way.
        let waited = self.stream().wait_for_work();
        copied.and(waited)
    }

    /// `cuMemsetD8Async` and its kin: sets all elements to one value, in the order of the stream.
    ///
    /// # Errors
    /// [`Invalid::FillSize`] for elements of other sizes than 1, 2 and 4 bytes.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemsetD8Async`](fn@cuda_sys::cuMemsetD8Async),
    /// [`cuMemsetD16Async`](fn@cuda_sys::cuMemsetD16Async),
    /// [`cuMemsetD32Async`](fn@cuda_sys::cuMemsetD32Async).
    #[doc(alias = "cuMemsetD8Async")]
    #[doc(alias = "cuMemsetD16Async")]
    #[doc(alias = "cuMemsetD32Async")]
    pub fn fill(&mut self, value: T) -> Result<()> {
        let (target, stream) = (self.as_raw(), self.stream().raw());
        let count = self.len();
        if !matches!(size_of::<T>(), 1 | 2 | 4) {
            return Err(Invalid::FillSize {
                size: size_of::<T>(),
            }
            .into());
        }
        if count == 0 {
            return Ok(());
        }
        let bytes = bytemuck::bytes_of(&value);
        without_current(self.stream().context(), || match *bytes {
            // SAFETY: the memory holds `count` elements of 1 byte.
            [a] => unsafe { call!(cuMemsetD8Async(target, a, count, stream)) },
            [a, b] => {
                let pattern = u16::from_ne_bytes([a, b]);
                // SAFETY: the memory holds `count` elements of 2 bytes. (The driver refuses an odd
                // address, which only a borrowed buffer can have.)
                unsafe { call!(cuMemsetD16Async(target, pattern, count, stream)) }
            }
            [a, b, c, d] => {
                let pattern = u32::from_ne_bytes([a, b, c, d]);
                // SAFETY: the memory holds `count` elements of 4 bytes; as above.
                unsafe { call!(cuMemsetD32Async(target, pattern, count, stream)) }
            }
            // The size was checked above.
            _ => Ok(()),
        })
    }
}

impl<T: AnyBitPattern> DeviceSlice<'_, T> {
    /// A wait for the stream and `cuMemcpyDtoH(slice, this, bytes)`: copies all elements into
    /// `slice`.
    ///
    /// # Errors
    /// [`Invalid::Lengths`] if the lengths differ; [`Invalid::StreamIsCaptured`]; those of earlier
    /// work on the stream, and then nothing is copied.
    ///
    /// The driver makes this copy in the legacy default stream of the context, so it also waits
    /// for *blocking* streams ([`StreamOptions::blocking`](crate::StreamOptions::blocking)).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpyDtoH_v2`](fn@cuda_sys::cuMemcpyDtoH_v2).
    #[doc(alias = "cuMemcpyDtoH")]
    pub fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        same_length(self.len(), slice.len())?;
        release::drain();
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        self.stream().wait_for_work()?;
        if self.size_bytes() == 0 {
            return Ok(());
        }
        let (target, source) = (slice.as_mut_ptr().cast(), self.as_raw());
        let _current = self.stream().context().enter()?;
        // SAFETY: both sides hold `size_bytes` (the lengths are equal); any bits are a `T`; the
        // copy is done when the call returns.
        unsafe { call!(cuMemcpyDtoH_v2(target, source, self.size_bytes())) }
    }

    /// A copy of the elements. Waits for the work on the memory.
    ///
    /// # Errors
    /// As for [`copy_to_slice`](Self::copy_to_slice).
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.len()];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }
}

impl<T> DeviceSliceMut<'_, T> {
    /// `cuMemcpyDtoDAsync(this, source, bytes, stream)`: copies all elements of `source` here, in
    /// the order of the stream that both are bound to.
    ///
    /// # Errors
    /// [`Invalid::Lengths`] if the lengths differ, [`Invalid::OtherStream`] if the streams do.
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
            return refuse_source(lengths, source.stream(), self.stream());
        }
        let (bytes, stream) = (self.size_bytes(), self.stream());
        if bytes == 0 {
            return Ok(());
        }
        let (from, to) = (source.as_raw(), self.as_raw());
        without_current(stream.context(), move || {
            // SAFETY: both hold `bytes`, are bound to this stream, and are freed in its order or
            // after a wait; they do not overlap, as this one is borrowed mutably.
            unsafe { answer!(cuMemcpyDtoDAsync_v2(to, from, bytes, stream.raw())) }
        })
    }

    /// `cuMemsetD8Async(this, 0, bytes, stream)`: sets all bytes to 0, in the order of the
    /// stream.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error). Without elements there is no call.
    ///
    /// Since CUDA 3.2.
    #[inline]
    pub fn zero(&mut self) -> Result<()> {
        let (target, bytes, stream) = (self.as_raw(), self.size_bytes(), self.stream().raw());
        if bytes == 0 {
            return Ok(());
        }
        without_current(self.stream().context(), move || {
            // SAFETY: the memory holds `bytes`.
            unsafe { answer!(cuMemsetD8Async(target, 0, bytes, stream)) }
        })
    }
}

/// Why a copy on the device cannot be made: by itself, so that those that can cost nothing of it.
#[cold]
#[inline(never)]
fn refuse_source(lengths: (usize, usize), its: &Stream, expected: &Stream) -> Result<()> {
    same_length(lengths.0, lengths.1)?;
    Err(its.other_stream(|| "the source of the copy".to_owned(), expected))
}

/// The whole buffer: as for its slices.
impl<T> DeviceBuffer<T> {
    /// Copies `slice` here, and waits: [`DeviceSliceMut::copy_from_slice`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        self.as_mut_slice().copy_from_slice(slice)
    }

    /// Copies all elements into `slice`, after a wait: [`DeviceSlice::copy_to_slice`].
    ///
    /// # Errors
    /// As there.
    pub fn copy_to_slice(&self, slice: &mut [T]) -> Result<()>
    where
        T: AnyBitPattern,
    {
        self.as_slice().copy_to_slice(slice)
    }

    /// A copy of the elements, after a wait: [`DeviceSlice::to_vec`].
    ///
    /// # Errors
    /// As there.
    pub fn to_vec(&self) -> Result<Vec<T>>
    where
        T: AnyBitPattern,
    {
        self.as_slice().to_vec()
    }

    /// Copies `source` here, in the order of the stream of both: [`DeviceSliceMut::copy_from`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn copy_from<'a>(&mut self, source: impl Into<DeviceSlice<'a, T>>) -> Result<()>
    where
        T: 'a,
    {
        self.as_mut_slice().copy_from(source)
    }

    /// Sets all elements to one value, in the order of the stream: [`DeviceSliceMut::fill`].
    ///
    /// # Errors
    /// As there.
    pub fn fill(&mut self, value: T) -> Result<()>
    where
        T: NoUninit,
    {
        self.as_mut_slice().fill(value)
    }

    /// Sets all bytes to 0, in the order of the stream: [`DeviceSliceMut::zero`].
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn zero(&mut self) -> Result<()> {
        self.as_mut_slice().zero()
    }
}
