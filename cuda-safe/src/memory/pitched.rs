//! Planes whose rows begin where the device likes it.

use super::allocation::{Allocation, Release};
use super::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Extent, Region, bytes_of};
use crate::call::call;
use crate::capture::Operation;
use crate::error::Result;
use crate::invalid::Invalid;
use crate::release;
use crate::stream::Stream;
use bytemuck::{AnyBitPattern, NoUninit};
use std::fmt;

/// Device memory for a plane of elements, its rows as far apart as the device accesses them best.
///
/// It is plain memory, bound to a stream as a [`DeviceBuffer`] is: freeing it waits for *all* work
/// of the context. (Of a [memory manager](crate::manager), where the context has one.) A kernel gets its [`as_slice`](Self::as_slice) and its [`pitch`](Self::pitch).
///
/// ```no_run
/// use cuda_safe::{Context, Device, PitchedBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let mut plane = PitchedBuffer::<f32>::zeroed(&stream, 1000, 100)?;
/// plane.copy_from_slice(&[1.0; 100_000])?;
/// println!("a row of {} elements each {}", plane.extent().width, plane.pitch());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct PitchedBuffer<T> {
    /// All rows, with what lies between them.
    buffer: DeviceBuffer<T>,
    extent: Extent,
    pitch: usize,
}

/// From row to row in memory of a manager, a multiple of so many bytes: what drivers choose.
const MANAGED_PITCH: usize = 512;

impl<T> PitchedBuffer<T> {
    /// `cuMemAllocPitch(&address, &pitch, width, height, size)`: a plane of `height` rows of `width`
    /// elements, all bytes 0 once the stream comes to it.
    ///
    /// # Errors
    /// [`Invalid::PitchSize`]: the driver aligns rows for elements of 1, 2, 4, 8 and 16 bytes;
    /// [`Invalid::TooLarge`]; [`Invalid::StreamIsCaptured`]; `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemAllocPitch_v2`](fn@cuda_sys::cuMemAllocPitch_v2).
    #[doc(alias = "cuMemAllocPitch")]
    pub fn zeroed(stream: &Stream, width: usize, height: usize) -> Result<Self> {
        release::drain();
        let size = size_of::<T>();
        if !matches!(size, 1 | 2 | 4 | 8 | 16) {
            return Err(Invalid::PitchSize { size, pitch: None }.into());
        }
        let row = bytes_of::<T>(width)?;
        let len = width.saturating_mul(height);
        bytes_of::<T>(len)?;
        let extent = Extent::plane(width, height);
        if extent.is_empty() {
            let buffer = DeviceBuffer::own(0, 0, stream, Release::Nothing);
            let pitch = width;
            return Ok(Self {
                buffer,
                extent,
                pitch,
            });
        }
        let _call = stream.uncaptured(Operation::Allocate)?;
        if let Some(choice) = stream.context().choice() {
            let pitch = row.next_multiple_of(MANAGED_PITCH);
            let bytes = bytes_of::<T>((pitch / size).saturating_mul(height))?;
            if let Some(memory) = Allocation::managed(choice, stream, bytes)? {
                let mut buffer = DeviceBuffer::of_allocation(memory, pitch / size * height);
                buffer.zero()?;
                let pitch = pitch / size;
                return Ok(Self {
                    buffer,
                    extent,
                    pitch,
                });
            }
        }
        let (mut address, mut pitch) = (0, 0);
        // The smallest that the driver has; 1, 2, 4, 8 and 16 fit.
        let element = u32::try_from(size.max(4)).unwrap_or(16);
        {
            let (start, between) = (&raw mut address, &raw mut pitch);
            let _current = stream.context().enter()?;
            // SAFETY: the pointers are to locals, and the current context is the stream's.
            unsafe { call!(cuMemAllocPitch_v2(start, between, row, height, element)) }?;
        }
        // Whatever comes, it is freed.
        let buffer = DeviceBuffer::own(address, pitch / size * height, stream, Release::Plain);
        if pitch % size != 0 || pitch < row {
            return Err(Invalid::PitchSize {
                size,
                pitch: Some(pitch),
            }
            .into());
        }
        Ok(Self {
            buffer: buffer.into_zeroed()?,
            extent,
            pitch: pitch / size,
        })
    }

    /// The elements in a row, and the rows.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// From the beginning of a row to that of the next, in elements.
    pub fn pitch(&self) -> usize {
        self.pitch
    }

    /// Where the plane lies in [`as_slice`](Self::as_slice), for copies of parts.
    pub fn region(&self) -> Region {
        Region {
            offset: 0,
            pitch: self.pitch,
            rows: self.extent.height,
        }
    }

    /// All rows with what lies between them, to read.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.buffer.as_slice()
    }

    /// All rows with what lies between them, to read and write.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.as_mut_slice()
    }

    /// Copies a plane without gaps here, and waits: [`DeviceSliceMut::copy_box_from_slice`].
    ///
    /// # Errors
    /// As there; [`Invalid::Lengths`] if `slice` has not as many elements as the plane.
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        let (extent, region) = (self.extent, self.region());
        super::same_length(slice.len(), extent.width * extent.height)?;
        let from = Region::of(extent);
        self.as_mut_slice()
            .copy_box_from_slice(extent, region, slice, from)
    }

    /// A copy of the plane without gaps, after a wait: [`DeviceSlice::copy_box_to_slice`].
    ///
    /// # Errors
    /// As there.
    pub fn to_vec(&self) -> Result<Vec<T>>
    where
        T: AnyBitPattern,
    {
        let (extent, region) = (self.extent, self.region());
        let mut plane = vec![T::zeroed(); extent.width * extent.height];
        let to = Region::of(extent);
        self.as_slice()
            .copy_box_to_slice(extent, region, &mut plane, to)?;
        Ok(plane)
    }

    /// Sets all elements to one value, in the order of the stream: [`DeviceSliceMut::fill_box`].
    ///
    /// # Errors
    /// As there.
    pub fn fill(&mut self, value: T) -> Result<()>
    where
        T: NoUninit,
    {
        let (extent, region) = (self.extent, self.region());
        self.as_mut_slice().fill_box(extent, region, value)
    }
}

impl<T> fmt::Debug for PitchedBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PitchedBuffer")
            .field("buffer", &self.buffer)
            .field("extent", &self.extent)
            .field("pitch", &self.pitch)
            .finish()
    }
}
