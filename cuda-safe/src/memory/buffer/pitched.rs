//! 2-D arrays in device memory with pitched rows.

use crate::call::{Extent, Invalid, Region, Result, bytes_of, call, debug_struct, refuse_if};
use crate::capture_state::Operation;
use crate::memory::buffer::allocation::{Allocation, Release};
use crate::memory::{DeviceBuffer, DeviceSlice, DeviceSliceMut};
use crate::release;
use crate::stream::Stream;
use bytemuck::{AnyBitPattern, NoUninit};

/// An owned 2-D array in device memory. The driver chooses the distance between rows (the pitch)
/// for efficient access.
///
/// [`zeroed`](Self::zeroed) allocates one. The array is bound to a stream, as a [`DeviceBuffer`]
/// is. The memory is a synchronous allocation, so freeing it waits for *all* work of the context.
/// If the context has a [memory manager](crate::manager), the manager allocates and frees the
/// memory. To use the array in a kernel, pass [`as_slice`](Self::as_slice) and
/// [`pitch`](Self::pitch).
///
/// ```no_run
/// use cuda_safe::{Context, Device};
/// use cuda_safe::memory::PitchedBuffer;
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let mut plane = PitchedBuffer::<f32>::zeroed(&stream, 1000, 100)?;
/// plane.copy_from_slice(&[1.0; 100_000])?;
/// println!("a row of {} elements each {}", plane.extent().width, plane.pitch());
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct PitchedBuffer<T> {
    /// All rows, including the padding between them.
    buffer: DeviceBuffer<T>,
    extent: Extent,
    pitch: usize,
}

/// The alignment of rows in memory from a memory manager, in bytes. Drivers choose the same value.
const MANAGED_PITCH: usize = 512;

impl<T> PitchedBuffer<T> {
    /// Allocates `height` rows of `width` elements and enqueues a fill that sets all bytes to 0.
    ///
    /// Calls `cuMemAllocPitch(&address, &pitch, width, height, size)`.
    ///
    /// # Errors
    /// - [`Invalid::PitchSize`] if the size of `T` is not 1, 2, 4, 8 or 16 bytes, because the
    ///   driver aligns rows only for these sizes.
    /// - [`Invalid::TooLarge`] if the elements do not fit in the address space.
    /// - [`Invalid::StreamIsCaptured`].
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemAllocPitch_v2`](fn@cuda_sys::cuMemAllocPitch_v2).
    #[doc(alias = "cuMemAllocPitch")]
    pub fn zeroed(stream: &Stream, width: usize, height: usize) -> Result<Self> {
        release::drain();
        let size = size_of::<T>();
        refuse_if!(!matches!(size, 1 | 2 | 4 | 8 | 16), Invalid::PitchSize { size, pitch: None });
        let row = bytes_of::<T>(width)?;
        let len = width.saturating_mul(height);
        bytes_of::<T>(len)?;
        let extent = Extent::new_2d(width, height);
        if extent.is_empty() {
            let buffer = DeviceBuffer::own(0, 0, stream, Release::Nothing);
            let pitch = width;
            return Ok(Self { buffer, extent, pitch });
        }
        let _call = stream.uncaptured(Operation::Allocate)?;
        if let Some(choice) = stream.context().choice() {
            let pitch = row.next_multiple_of(MANAGED_PITCH);
            let bytes = bytes_of::<T>((pitch / size).saturating_mul(height))?;
            if let Some(memory) = Allocation::managed(choice, stream, bytes)? {
                let mut buffer = DeviceBuffer::of_allocation(memory, pitch / size * height);
                buffer.zero()?;
                let pitch = pitch / size;
                return Ok(Self { buffer, extent, pitch });
            }
        }
        let (mut address, mut pitch) = (0, 0);
        // The driver accepts 4, 8 and 16. The value 4 also works for sizes 1 and 2.
        let element = u32::try_from(size.max(4)).unwrap_or(16);
        {
            let (start, between) = (&raw mut address, &raw mut pitch);
            let _current = stream.context().enter()?;
            // SAFETY: the pointers point to local variables, and the current context is the
            // stream's context.
            unsafe { call!(cuMemAllocPitch_v2(start, between, row, height, element)) }
                .map_err(|error| error.with_requested_bytes(row.saturating_mul(height)))?;
        }
        // The buffer owns the memory from here on, so errors free it.
        let buffer = DeviceBuffer::own(address, pitch / size * height, stream, Release::Sync);
        if pitch % size != 0 || pitch < row {
            return Err(Invalid::PitchSize { size, pitch: Some(pitch) }.into());
        }
        Ok(Self { buffer: buffer.into_zeroed()?, extent, pitch: pitch / size })
    }

    /// Returns the number of elements in a row and the number of rows.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the distance between the starts of consecutive rows, in elements.
    pub fn pitch(&self) -> usize {
        self.pitch
    }

    /// Returns the region of the array within [`as_slice`](Self::as_slice), for copies of parts.
    pub fn region(&self) -> Region {
        Region { offset: 0, pitch: self.pitch, rows: self.extent.height }
    }

    /// Borrows all rows for reading, including the padding between them.
    pub fn as_slice(&self) -> DeviceSlice<'_, T> {
        self.buffer.as_slice()
    }

    /// Borrows all rows for reading and writing, including the padding between them.
    pub fn as_mut_slice(&mut self) -> DeviceSliceMut<'_, T> {
        self.buffer.as_mut_slice()
    }

    /// Copies the array without padding into a new `Vec`. Blocks the host until the copy and all
    /// earlier work on the stream have completed.
    ///
    /// # Errors
    /// See [`DeviceSlice::copy_3d_to_slice`].
    pub fn to_vec(&self) -> Result<Vec<T>>
    where
        T: AnyBitPattern,
    {
        let (extent, region) = (self.extent, self.region());
        let mut plane = vec![T::zeroed(); extent.width * extent.height];
        let to = Region::new(extent);
        self.as_slice().copy_3d_to_slice(extent, region, &mut plane, to)?;
        Ok(plane)
    }
}

impl<T: NoUninit> PitchedBuffer<T> {
    /// Copies a slice without padding to this array. Blocks the host until the copy and all earlier
    /// work on the stream have completed.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`] if the number of elements in `slice` differs from `width * height`.
    /// - The errors of [`DeviceSliceMut::copy_3d_from_slice`].
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        let (extent, region) = (self.extent, self.region());
        crate::memory::same_length(slice.len(), extent.width * extent.height)?;
        let from = Region::new(extent);
        self.as_mut_slice().copy_3d_from_slice(extent, region, slice, from)
    }

    /// Enqueues fills that set all elements to `value`.
    ///
    /// # Errors
    /// See [`DeviceSliceMut::fill_3d`].
    pub fn fill(&mut self, value: T) -> Result<()> {
        let (extent, region) = (self.extent, self.region());
        self.as_mut_slice().fill_3d(extent, region, value)
    }
}

debug_struct! {
    [T] PitchedBuffer<T> |its| { buffer: its.buffer, extent: its.extent, pitch: its.pitch }
}
