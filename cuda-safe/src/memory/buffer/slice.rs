//! Borrowed slices of device memory, for reading and for writing.

use crate::call::{Invalid, Rejected, Result, convert, copy, debug, debug_struct, refuse_if};
use crate::memory::DeviceBuffer;
use crate::stream::{AccessWindow, MemoryOperation, Stream, same_context};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::CUdeviceptr;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// A borrowed slice of device memory, for reading: a whole buffer or a part of it.
///
/// [`DeviceBuffer::as_slice`](crate::DeviceBuffer::as_slice) and
/// [`DeviceBuffer::slice`](crate::DeviceBuffer::slice) return one. The slice is bound to the
/// buffer's stream. Functions that take `impl Into<DeviceSlice>` also accept `&DeviceBuffer`.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let mut buffer = DeviceBuffer::from_slice(&stream, &[1, 2, 3, 4])?;
/// let (mut low, high) = buffer.as_mut_slice().split_at(2)?;
/// low.copy_from(high)?;
/// assert_eq!(buffer.to_vec()?, [3, 4, 3, 4]);
/// assert_eq!(buffer.slice(1..3)?.to_vec()?, [4, 3]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct DeviceSlice<'a, T> {
    address: CUdeviceptr,
    len: usize,
    stream: &'a Stream,
    elements: PhantomData<&'a T>,
}

/// A mutably borrowed slice of device memory, for reading and writing: a whole buffer or a part of
/// it.
///
/// [`DeviceBuffer::as_mut_slice`](crate::DeviceBuffer::as_mut_slice) and
/// [`DeviceBuffer::slice_mut`](crate::DeviceBuffer::slice_mut) return one. The slice is bound to
/// the buffer's stream. Functions that take `impl Into<DeviceSliceMut>` also accept
/// `&mut DeviceBuffer`.
pub struct DeviceSliceMut<'a, T> {
    whole: DeviceSlice<'a, T>,
    elements: PhantomData<&'a mut T>,
}

impl<'a, T> DeviceSlice<'a, T> {
    /// Creates a slice of memory that is valid for `'a` and is used on `stream`.
    pub(crate) fn new(address: CUdeviceptr, len: usize, stream: &'a Stream) -> Self {
        Self { address, len, stream, elements: PhantomData }
    }

    /// Returns the device address.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the size of all elements in bytes.
    pub fn size_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// Returns the stream that the memory is bound to.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Returns a part of this slice.
    ///
    /// # Errors
    /// [`Invalid::Range`] if the range is not within this slice.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (start, end) = within(&range, self.len)?;
        Ok(self.halves(start).1.halves(end - start).0)
    }

    /// Divides the slice into two at `middle`: the elements before `middle`, and the rest.
    ///
    /// # Errors
    /// [`Invalid::Range`] if `middle` is greater than the length.
    pub fn split_at(self, middle: usize) -> Result<(Self, Self)> {
        within(&(..middle), self.len)?;
        Ok(self.halves(middle))
    }

    /// Divides the slice into two at `middle`, which must not be greater than the length.
    pub(crate) fn halves(self, middle: usize) -> (Self, Self) {
        debug_assert!(middle <= self.len);
        let offset = (middle * size_of::<T>()) as u64;
        let (address, len) = (self.address + offset, self.len - middle);
        (Self::new(self.address, middle, self.stream), Self::new(address, len, self.stream))
    }
}

impl<'a, T> DeviceSliceMut<'a, T> {
    /// Creates a slice of memory that is valid for `'a`, is not aliased, and is used on `stream`.
    pub(crate) fn new(address: CUdeviceptr, len: usize, stream: &'a Stream) -> Self {
        Self { whole: DeviceSlice::new(address, len, stream), elements: PhantomData }
    }

    /// Returns the device address.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.whole.address
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.whole.len
    }

    /// Returns whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Returns the size of all elements in bytes.
    pub fn size_bytes(&self) -> usize {
        self.whole.size_bytes()
    }

    /// Returns the stream that the memory is bound to.
    pub fn stream(&self) -> &'a Stream {
        self.whole.stream
    }

    /// Borrows the same memory for reading.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.whole
    }

    /// Borrows the same memory for reading and writing, with a shorter lifetime.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.whole.address, self.whole.len, self.whole.stream)
    }

    /// Returns a part of this slice.
    ///
    /// # Errors
    /// [`Invalid::Range`] if the range is not within this slice.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self { whole: self.whole.slice(range)?, elements: PhantomData })
    }

    /// Divides the slice into two disjoint slices at `middle`: the elements before `middle`, and
    /// the rest.
    ///
    /// # Errors
    /// [`Invalid::Range`] if `middle` is greater than the length.
    #[doc(alias = "split_at_mut")]
    pub fn split_at(self, middle: usize) -> Result<(Self, Self)> {
        let (before, from) = self.whole.split_at(middle)?;
        Ok((Self::of_whole(before), Self::of_whole(from)))
    }

    /// Takes a slice of memory that is not aliased.
    pub(crate) fn of_whole(whole: DeviceSlice<'a, T>) -> Self {
        Self { whole, elements: PhantomData }
    }

    pub(crate) fn into_whole(self) -> DeviceSlice<'a, T> {
        self.whole
    }
}

/// Returns the start and the end of a range within `len` elements.
#[inline]
pub(crate) fn within(range: &impl RangeBounds<usize>, len: usize) -> Result<(usize, usize)> {
    let start = match range.start_bound() {
        Bound::Included(start) => Some(*start),
        Bound::Excluded(before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.checked_add(1),
        Bound::Excluded(end) => Some(*end),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok((start, end)),
        (start, end) => Err(Invalid::Range {
            start: start.unwrap_or(usize::MAX),
            end: end.unwrap_or(usize::MAX),
            len,
        }
        .into()),
    }
}

copy! { [T] DeviceSlice<'_, T> }

/// Implements `Debug` of a buffer, and the conversions of borrowed buffers to slices, by the methods `as_slice` and
/// `as_mut_slice`.
macro_rules! device_slices {
    ($buffer:ident) => {
        $crate::call::convert! {
            ['a, T] |buffer: &'a $buffer<T>| -> DeviceSlice<'a, T> { buffer.as_slice() }
            ['a, T] |buffer: &'a mut $buffer<T>| -> DeviceSlice<'a, T> { buffer.as_slice() }
            ['a, T] |buffer: &'a mut $buffer<T>| -> DeviceSliceMut<'a, T> { buffer.as_mut_slice() }
        }

        $crate::call::debug! {
            [T] $buffer<T> |its, f|
                $crate::memory::buffer::slice::debug(stringify!($buffer), &its.as_slice(), f)
        }
    };
}
pub(crate) use device_slices;

convert! { ['a, T] |slice: DeviceSliceMut<'a, T>| -> DeviceSlice<'a, T> { slice.whole } }

debug! { [T] DeviceSlice<'_, T> |its, f| debug("DeviceSlice", its, f) }

debug! { [T] DeviceSliceMut<'_, T> |its, f| debug("DeviceSliceMut", &its.whole, f) }

/// Formats device memory under the name of the type that holds it.
pub(crate) fn debug<T>(
    name: &str,
    slice: &DeviceSlice<'_, T>,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    f.debug_struct(name)
        .field("address", &format_args!("{:#x}", slice.address))
        .field("len", &slice.len)
        .field("element", &std::any::type_name::<T>())
        .field("stream", slice.stream)
        .finish()
}

/// An iterator over consecutive parts of device memory that have the same length.
///
/// [`DeviceSlice::chunks_exact`] and
/// [`DeviceBuffer::chunks_exact`](crate::DeviceBuffer::chunks_exact) return one.
/// [`remainder`](Self::remainder) returns the elements after the last part.
#[must_use = "iterators do nothing unless they are consumed"]
pub struct DeviceChunksExact<'a, T> {
    /// The parts that were not returned yet: a multiple of `chunk`.
    rest: DeviceSlice<'a, T>,
    remainder: DeviceSlice<'a, T>,
    /// The length of a part, at least 1.
    chunk: usize,
}

/// An iterator over consecutive, disjoint parts of mutably borrowed device memory that have the
/// same length.
///
/// [`DeviceSliceMut::chunks_exact_mut`] and
/// [`DeviceBuffer::chunks_exact_mut`](crate::DeviceBuffer::chunks_exact_mut) return one.
/// [`into_remainder`](Self::into_remainder) returns the elements after the last part.
#[must_use = "iterators do nothing unless they are consumed"]
pub struct DeviceChunksExactMut<'a, T> {
    /// Returns each element once, so the parts are disjoint.
    chunks: DeviceChunksExact<'a, T>,
    elements: PhantomData<&'a mut T>,
}

impl<'a, T> DeviceSlice<'a, T> {
    /// Returns an iterator over parts of `len` elements, from the first element on.
    ///
    /// The elements after the last part, fewer than `len`, are the iterator's
    /// [`remainder`](DeviceChunksExact::remainder).
    ///
    /// # Errors
    /// [`Invalid::EmptyChunks`] if `len` is 0.
    pub fn chunks_exact(self, len: usize) -> Result<DeviceChunksExact<'a, T>> {
        refuse_if!(len == 0, Invalid::EmptyChunks);
        let (rest, remainder) = self.halves(self.len() - self.len() % len);
        Ok(DeviceChunksExact { rest, remainder, chunk: len })
    }
}

impl<'a, T> DeviceSliceMut<'a, T> {
    /// Returns an iterator over disjoint parts of `len` elements, from the first element on.
    ///
    /// The elements after the last part, fewer than `len`, are the iterator's
    /// [`into_remainder`](DeviceChunksExactMut::into_remainder).
    ///
    /// # Errors
    /// [`Invalid::EmptyChunks`] if `len` is 0.
    pub fn chunks_exact_mut(self, len: usize) -> Result<DeviceChunksExactMut<'a, T>> {
        Ok(DeviceChunksExactMut {
            chunks: self.into_whole().chunks_exact(len)?,
            elements: PhantomData,
        })
    }
}

impl<'a, T> DeviceChunksExact<'a, T> {
    /// Returns the elements after the last part, which the iterator does not return.
    pub fn remainder(&self) -> DeviceSlice<'a, T> {
        self.remainder
    }
}

impl<'a, T> DeviceChunksExactMut<'a, T> {
    /// Returns the elements after the last part, which the iterator does not return.
    pub fn into_remainder(self) -> DeviceSliceMut<'a, T> {
        DeviceSliceMut::of_whole(self.chunks.remainder)
    }
}

impl<'a, T> Iterator for DeviceChunksExact<'a, T> {
    type Item = DeviceSlice<'a, T>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (first, rest) = self.rest.halves(self.chunk);
        self.rest = rest;
        Some(first)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.rest.len() / self.chunk;
        (count, Some(count))
    }
}

impl<T> DoubleEndedIterator for DeviceChunksExact<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let start = self.rest.len().checked_sub(self.chunk)?;
        let (rest, last) = self.rest.halves(start);
        self.rest = rest;
        Some(last)
    }
}

impl<T> ExactSizeIterator for DeviceChunksExact<'_, T> {}

impl<T> FusedIterator for DeviceChunksExact<'_, T> {}

impl<'a, T> Iterator for DeviceChunksExactMut<'a, T> {
    type Item = DeviceSliceMut<'a, T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.chunks.next().map(DeviceSliceMut::of_whole)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.chunks.size_hint()
    }
}

impl<T> DoubleEndedIterator for DeviceChunksExactMut<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.chunks.next_back().map(DeviceSliceMut::of_whole)
    }
}

impl<T> ExactSizeIterator for DeviceChunksExactMut<'_, T> {}

impl<T> FusedIterator for DeviceChunksExactMut<'_, T> {}

impl<T> Clone for DeviceChunksExact<'_, T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

debug_struct! { [T] DeviceChunksExact<'_, T> |its| { rest: its.rest, chunk: its.chunk, .. } }
debug_struct! {
    [T] DeviceChunksExactMut<'_, T> |its| { rest: its.chunks.rest, chunk: its.chunks.chunk, .. }
}

impl<'a, T: NoUninit> DeviceSlice<'a, T> {
    /// Reinterprets the memory as elements of `U`, without a copy.
    ///
    /// The rules are those of [`bytemuck::try_cast_slice`]: the size in bytes must be a multiple of
    /// the size of `U`, and the address must be aligned for `U`. The result has as many elements as
    /// fit.
    ///
    /// # Errors
    /// [`Invalid::Cast`] if the size or the alignment does not fit.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let buffer = DeviceBuffer::from_slice(&stream, &[1.0f32, -2.0])?;
    /// let bits = buffer.as_slice().cast::<u32>()?.to_vec()?;
    /// assert_eq!(bits, [0x3f80_0000, 0xc000_0000]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn cast<U: AnyBitPattern>(self) -> Result<DeviceSlice<'a, U>> {
        let len = length_as::<T, U>(self.as_raw(), self.len())?;
        Ok(DeviceSlice::new(self.as_raw(), len, self.stream()))
    }
}

impl<'a, T: NoUninit + AnyBitPattern> DeviceSliceMut<'a, T> {
    /// Reinterprets the memory as elements of `U`, without a copy.
    ///
    /// See [`DeviceSlice::cast`]. What is written as `U` is also read as `T`, so both types must
    /// have neither padding nor invalid bit patterns, as every [`Pod`](bytemuck::Pod) type does.
    ///
    /// # Errors
    /// [`Invalid::Cast`] if the size or the alignment does not fit.
    pub fn cast<U: NoUninit + AnyBitPattern>(self) -> Result<DeviceSliceMut<'a, U>> {
        let len = length_as::<T, U>(self.as_raw(), self.len())?;
        Ok(DeviceSliceMut::new(self.as_raw(), len, self.stream()))
    }
}

impl<T: NoUninit> DeviceBuffer<T> {
    /// Reinterprets the buffer as elements of `U`, without a copy. The buffer stays bound to its
    /// stream and is freed in the same way.
    ///
    /// See [`DeviceSlice::cast`].
    ///
    /// # Errors
    /// [`Invalid::Cast`] if the size or the alignment does not fit. The buffer is then dropped.
    /// [`try_cast`](Self::try_cast) returns it with the error.
    pub fn cast<U: AnyBitPattern>(self) -> Result<DeviceBuffer<U>> {
        Ok(self.try_cast()?)
    }

    /// Does the same as [`cast`](Self::cast), but returns the unchanged buffer with the error.
    ///
    /// # Errors
    /// See [`cast`](Self::cast).
    pub fn try_cast<U: AnyBitPattern>(self) -> Result<DeviceBuffer<U>, Rejected<Self>> {
        let len = length_as::<T, U>(self.as_raw(), self.len());
        let (len, buffer) = Rejected::unless(len, self)?;
        Ok(DeviceBuffer::of_allocation(buffer.into_allocation(), len))
    }
}

/// Returns the number of elements of `U` in the memory of `len` elements of `T`.
fn length_as<T, U>(address: CUdeviceptr, len: usize) -> Result<usize> {
    let (size, element, align) = (len * size_of::<T>(), size_of::<U>(), align_of::<U>());
    let fits = if size_of::<T>() == element {
        Some(len)
    } else if size == 0 {
        Some(0)
    } else {
        (element != 0 && size % element == 0).then(|| size / element)
    };
    match fits {
        Some(len) if address % align as u64 == 0 => Ok(len),
        _ => Err(Invalid::Cast { address, size, element, align }.into()),
    }
}

impl Stream {
    /// Sets the L2 access policy for `memory`, for kernels that are enqueued later, and replaces the
    /// previous policy. Calls `cuStreamSetAttribute` with `CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW`.
    ///
    /// The policy is a hint and does not access the memory, so the memory can be freed while the policy
    /// is set. The policy then applies to later allocations at the same addresses.
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device, DeviceBuffer};
    /// # use cuda_safe::stream::{AccessProperty, AccessWindow};
    /// # let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let table = DeviceBuffer::<f32>::zeroed(&stream, 1024)?;
    /// stream.set_access_window(&table, AccessWindow {
    ///     hit: AccessProperty::Persisting,
    ///     miss: AccessProperty::Streaming,
    ///     ..Default::default()
    /// })?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid::OtherContext`]; [`Invalid::AccessWindow`]; `CUDA_ERROR_INVALID_VALUE` for more bytes
    /// than [`MAX_ACCESS_POLICY_WINDOW_SIZE`](crate::device::attribute::MAX_ACCESS_POLICY_WINDOW_SIZE).
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    pub fn set_access_window<'a, T: 'a>(
        &self,
        memory: impl Into<DeviceSlice<'a, T>>,
        window: AccessWindow,
    ) -> Result<()> {
        let memory = memory.into();
        same_context("the memory", memory.stream().context(), self.context())?;
        self.set_access_window_of((memory.as_raw(), memory.size_bytes()), window)
    }
}

impl DeviceSliceMut<'_, u32> {
    /// Writes one element in stream order, after a fence of system scope. Calls `cuStreamWriteValue32`.
    ///
    /// # Errors
    /// - [`Invalid::Range`] if the index is out of bounds.
    /// - [`Invalid::NoMemoryOperations`] for stream-ordered or managed memory. Use a buffer of
    ///   [`zeroed_sync`](crate::DeviceBuffer::zeroed_sync) or mapped pinned memory.
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamWriteValue32_v2`](fn@cuda_sys::cuStreamWriteValue32_v2).
    #[doc(alias = "cuStreamWriteValue32")]
    #[inline]
    pub fn write_value(&mut self, index: usize, value: u32) -> Result<()> {
        let element = self.reborrow().slice(element(index))?;
        let write = MemoryOperation::Write32 { address: element.as_raw(), value };
        // SAFETY: the element belongs to a buffer that is bound to this stream, and that is freed in
        // stream order or after a wait. Any bits are a valid u32, and the driver checks the alignment.
        unsafe { self.stream().memory_operation(write) }
    }
}

impl DeviceSliceMut<'_, u64> {
    /// Writes one element in stream order, after a fence of system scope. Calls `cuStreamWriteValue64`.
    ///
    /// # Errors
    /// - [`Invalid::Range`] if the index is out of bounds.
    /// - [`Invalid::NoMemoryOperations`] for stream-ordered or managed memory. Use a buffer of
    ///   [`zeroed_sync`](crate::DeviceBuffer::zeroed_sync) or mapped pinned memory.
    /// - `CUDA_ERROR_NOT_SUPPORTED` on devices without
    ///   [`CAN_USE_64_BIT_STREAM_MEM_OPS`](crate::device::attribute::CAN_USE_64_BIT_STREAM_MEM_OPS).
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamWriteValue64_v2`](fn@cuda_sys::cuStreamWriteValue64_v2).
    #[doc(alias = "cuStreamWriteValue64")]
    #[inline]
    pub fn write_value(&mut self, index: usize, value: u64) -> Result<()> {
        let element = self.reborrow().slice(element(index))?;
        let write = MemoryOperation::Write64 { address: element.as_raw(), value };
        // SAFETY: see the argument for `u32`; any bits are a valid u64.
        unsafe { self.stream().memory_operation(write) }
    }
}

/// Returns the range that contains one element.
#[inline]
fn element(index: usize) -> std::ops::Range<usize> {
    index..index.saturating_add(1)
}
