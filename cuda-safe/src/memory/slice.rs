//! Parts of device memory, to read and to write.

use crate::error::Result;
use crate::invalid::Invalid;
use crate::stream::Stream;
use cuda_sys::CUdeviceptr;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};

/// Device memory to read: a buffer or a part of it, which is borrowed.
///
/// It is bound to the buffer's stream. Whatever takes one takes `&DeviceBuffer` as well.
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

/// Device memory to read and write: a buffer or a part of it, which is borrowed mutably.
///
/// It is bound to the buffer's stream. Whatever takes one takes `&mut DeviceBuffer` as well.
pub struct DeviceSliceMut<'a, T> {
    whole: DeviceSlice<'a, T>,
    elements: PhantomData<&'a mut T>,
}

impl<'a, T> DeviceSlice<'a, T> {
    /// Of memory that is valid for `'a`, used on that stream.
    pub(crate) fn new(address: CUdeviceptr, len: usize, stream: &'a Stream) -> Self {
        Self {
            address,
            len,
            stream,
            elements: PhantomData,
        }
    }

    /// The address on the device.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes of all elements.
    pub fn size_bytes(&self) -> usize {
        self.len * size_of::<T>()
    }

    /// The stream that all work on the memory runs on.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// A part.
    ///
    /// # Errors
    /// [`Invalid::Range`]: it is not within this.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let (start, end) = within(&range, self.len)?;
        let offset = start * size_of::<T>();
        Ok(Self::new(
            self.address + offset as u64,
            end - start,
            self.stream,
        ))
    }

    /// The parts before and from `middle`.
    ///
    /// # Errors
    /// [`Invalid::Range`]: it is beyond the end.
    pub fn split_at(self, middle: usize) -> Result<(Self, Self)> {
        Ok((self.slice(..middle)?, self.slice(middle..)?))
    }

    /// An error that names both streams, unless the memory is bound to `stream`.
    #[inline]
    pub(crate) fn check_stream(
        &self,
        what: impl FnOnce() -> String,
        stream: &Stream,
    ) -> Result<()> {
        if *self.stream == *stream {
            return Ok(());
        }
        Err(self.stream.other_stream(what, stream))
    }
}

impl<'a, T> DeviceSliceMut<'a, T> {
    /// Of memory that is valid for `'a`, which nobody else has, used on that stream.
    pub(crate) fn new(address: CUdeviceptr, len: usize, stream: &'a Stream) -> Self {
        Self {
            whole: DeviceSlice::new(address, len, stream),
            elements: PhantomData,
        }
    }

    /// The address on the device.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.whole.address
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.whole.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// The bytes of all elements.
    pub fn size_bytes(&self) -> usize {
        self.whole.size_bytes()
    }

    /// The stream that all work on the memory runs on.
    pub fn stream(&self) -> &'a Stream {
        self.whole.stream
    }

    /// The same memory, to read, for as long as this is borrowed.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.whole
    }

    /// The same memory, for as long as this is borrowed.
    pub fn reborrow(&mut self) -> DeviceSliceMut<'_, T> {
        DeviceSliceMut::new(self.whole.address, self.whole.len, self.whole.stream)
    }

    /// A part.
    ///
    /// # Errors
    /// [`Invalid::Range`]: it is not within this.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        Ok(Self {
            whole: self.whole.slice(range)?,
            elements: PhantomData,
        })
    }

    /// The parts before and from `middle`, which do not overlap.
    ///
    /// # Errors
    /// [`Invalid::Range`]: it is beyond the end.
    pub fn split_at(self, middle: usize) -> Result<(Self, Self)> {
        let (before, from) = self.whole.split_at(middle)?;
        let part = |whole| Self {
            whole,
            elements: PhantomData,
        };
        Ok((part(before), part(from)))
    }
}

/// Where a range of `len` elements starts and ends.
pub(super) fn within(range: &impl RangeBounds<usize>, len: usize) -> Result<(usize, usize)> {
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

/// What there is to say of device memory, under the name of what has it.
pub(super) fn debug<T>(
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
