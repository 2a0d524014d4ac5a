//! Borrowed slices of device memory, for reading and for writing.

use crate::call::{Invalid, Result};
use crate::stream::Stream;
use cuda_sys::CUdeviceptr;
use std::fmt;
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

impl<T> Clone for DeviceSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceSlice<'_, T> {}

/// Implements `Debug` of a buffer, and the conversions of borrowed buffers to slices, by the methods `as_slice` and
/// `as_mut_slice`.
macro_rules! device_slices {
    ($buffer:ident) => {
        impl<'a, T> From<&'a $buffer<T>> for DeviceSlice<'a, T> {
            fn from(buffer: &'a $buffer<T>) -> Self {
                buffer.as_slice()
            }
        }

        impl<'a, T> From<&'a mut $buffer<T>> for DeviceSlice<'a, T> {
            fn from(buffer: &'a mut $buffer<T>) -> Self {
                buffer.as_slice()
            }
        }

        impl<'a, T> From<&'a mut $buffer<T>> for DeviceSliceMut<'a, T> {
            fn from(buffer: &'a mut $buffer<T>) -> Self {
                buffer.as_mut_slice()
            }
        }

        impl<T> std::fmt::Debug for $buffer<T> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::memory::buffer::slice::debug(stringify!($buffer), &self.as_slice(), f)
            }
        }
    };
}
pub(crate) use device_slices;

impl<'a, T> From<DeviceSliceMut<'a, T>> for DeviceSlice<'a, T> {
    fn from(slice: DeviceSliceMut<'a, T>) -> Self {
        slice.whole
    }
}

impl<T> fmt::Debug for DeviceSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("DeviceSlice", self, f)
    }
}

impl<T> fmt::Debug for DeviceSliceMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("DeviceSliceMut", &self.whole, f)
    }
}

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
