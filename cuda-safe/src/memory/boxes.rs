//! Copies of planes and volumes, and setting them.
//!
//! As for plain copies: a slice is copied before the call returns, to the device by an asynchronous
//! copy and a wait, from the device by the wait first and then a synchronous copy.

use super::{DeviceSlice, DeviceSliceMut, Extent, Region};
use crate::call::{call, without_current};
use crate::capture::Operation;
use crate::context::Context;
use crate::error::Result;
use crate::invalid::Invalid;
use crate::release;
use crate::stream::refuse_inside;
use bytemuck::{AnyBitPattern, NoUninit};
use core::ffi::c_void;
use cuda_sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr, CUmemorytype, CUstream};

impl<T> DeviceSliceMut<'_, T> {
    /// `cuMemcpy2DAsync(&copy, stream)`, for volumes `cuMemcpy3DAsync`: copies a box of `source` here,
    /// in the order of the stream that both are bound to.
    ///
    /// # Errors
    /// [`Invalid::Region`] if a box is not within its memory; [`Invalid::OtherStream`] if the streams
    /// differ.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy2DAsync_v2`](fn@cuda_sys::cuMemcpy2DAsync_v2),
    /// [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device, DeviceBuffer, Extent, Region};
    /// # let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// // The first two columns of a matrix.
    /// let matrix = DeviceBuffer::<f32>::zeroed(&stream, 100 * 80)?;
    /// let mut columns = DeviceBuffer::<f32>::zeroed(&stream, 2 * 80)?;
    /// let both = Extent::plane(2, 80);
    /// let from = Region::of(Extent::plane(100, 80));
    /// columns
    ///     .as_mut_slice()
    ///     .copy_box_from(both, Region::of(both), &matrix, from)?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuMemcpy2DAsync")]
    #[doc(alias = "cuMemcpy3DAsync")]
    pub fn copy_box_from<'a>(
        &mut self,
        extent: Extent,
        region: Region,
        source: impl Into<DeviceSlice<'a, T>>,
        from: Region,
    ) -> Result<()>
    where
        T: 'a,
    {
        let source = source.into();
        let to = region.checked(extent, self.len())?;
        let from = from.checked(extent, source.len())?;
        source.check_stream(|| "the source of the copy".to_owned(), self.stream())?;
        let (Some(to), Some(from)) = (to, from) else {
            return Ok(());
        };
        let to = Place::of_device(&self.as_slice(), to);
        let copy = Copy::new::<T>(extent, &Place::of_device(&source, from), &to);
        // SAFETY: both boxes are within memory that is bound to this stream, and freed in its order
        // or after a wait; they do not overlap, as this one is borrowed mutably.
        unsafe { copy.give(self.stream().context(), self.stream().raw()) }
    }

    /// `cuMemcpy2DAsync(&copy, stream)`, for volumes `cuMemcpy3DAsync`, and a wait: copies a box of
    /// `source` here.
    ///
    /// # Errors
    /// [`Invalid::Region`] if a box is not within its memory; [`Invalid::StreamIsCaptured`];
    /// [`Error::InHostFunction`](crate::Error); those of earlier work on the stream.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy2DAsync_v2`](fn@cuda_sys::cuMemcpy2DAsync_v2),
    /// [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    #[doc(alias = "cuMemcpy2DAsync")]
    #[doc(alias = "cuMemcpy3DAsync")]
    pub fn copy_box_from_slice(
        &mut self,
        extent: Extent,
        region: Region,
        source: &[T],
        from: Region,
    ) -> Result<()>
    where
        T: NoUninit,
    {
        let to = region.checked(extent, self.len())?;
        let from = from.checked(extent, source.len())?;
        let (Some(to), Some(from)) = (to, from) else {
            return Ok(());
        };
        // Before the copy: the wait behind it would be refused.
        refuse_inside()?;
        release::drain();
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        let to = Place::of_device(&self.as_slice(), to);
        let copy = Copy::new::<T>(extent, &Place::of_host(source.as_ptr(), from), &to);
        // SAFETY: both boxes are within their memory, and the slice has no uninitialised byte. It is
        // borrowed until the wait below is over; should that fail, see `copy_from_slice`.
        let copied = unsafe { copy.give(self.stream().context(), self.stream().raw()) };
        // Even if the call failed: its code may be of earlier work, and the copy under way.
        let waited = self.stream().wait_for_work();
        copied.and(waited)
    }

    /// `cuMemsetD2D8Async` and its kin: sets all elements of a box to one value, in the order of the
    /// stream. A call for each slice.
    ///
    /// # Errors
    /// [`Invalid::Region`] if the box is not within the memory; [`Invalid::FillSize`] for elements of
    /// other sizes than 1, 2 and 4 bytes.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemsetD2D8Async`](fn@cuda_sys::cuMemsetD2D8Async),
    /// [`cuMemsetD2D16Async`](fn@cuda_sys::cuMemsetD2D16Async),
    /// [`cuMemsetD2D32Async`](fn@cuda_sys::cuMemsetD2D32Async).
    #[doc(alias = "cuMemsetD2D8Async")]
    #[doc(alias = "cuMemsetD2D16Async")]
    #[doc(alias = "cuMemsetD2D32Async")]
    pub fn fill_box(&mut self, extent: Extent, region: Region, value: T) -> Result<()>
    where
        T: NoUninit,
    {
        let size = size_of::<T>();
        if !matches!(size, 1 | 2 | 4) {
            return Err(Invalid::FillSize { size }.into());
        }
        let Some(region) = region.checked(extent, self.len())? else {
            return Ok(());
        };
        let (width, height) = (extent.width, extent.height);
        let (pitch, stream) = (region.pitch * size, self.stream().raw());
        for z in 0..extent.depth {
            let begin = region.at(0, 0, z).offset * size;
            let at = self.as_raw() + begin as u64;
            let bytes = bytemuck::bytes_of(&value);
            without_current(self.stream().context(), || match *bytes {
                // SAFETY: the rows are within the memory.
                [a] => unsafe { call!(cuMemsetD2D8Async(at, pitch, a, width, height, stream)) },
                [a, b] => {
                    let pattern = u16::from_ne_bytes([a, b]);
                    // SAFETY: as above.
                    unsafe {
                        call!(cuMemsetD2D16Async(
                            at, pitch, pattern, width, height, stream
                        ))
                    }
                }
                [a, b, c, d] => {
                    let pattern = u32::from_ne_bytes([a, b, c, d]);
                    // SAFETY: as above.
                    unsafe {
                        call!(cuMemsetD2D32Async(
                            at, pitch, pattern, width, height, stream
                        ))
                    }
                }
                // The size was checked above.
                _ => Ok(()),
            })?;
        }
        Ok(())
    }
}

impl<T: AnyBitPattern> DeviceSlice<'_, T> {
    /// A wait for the stream and `cuMemcpy2D(&copy)`, for volumes `cuMemcpy3D`: copies a box into
    /// `target`; what lies between its rows there stays as it is.
    ///
    /// # Errors
    /// [`Invalid::Region`] if a box is not within its memory; [`Invalid::StreamIsCaptured`]; those of
    /// earlier work on the stream, and then nothing is copied.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy2D_v2`](fn@cuda_sys::cuMemcpy2D_v2),
    /// [`cuMemcpy3D_v2`](fn@cuda_sys::cuMemcpy3D_v2).
    #[doc(alias = "cuMemcpy2D")]
    #[doc(alias = "cuMemcpy3D")]
    pub fn copy_box_to_slice(
        &self,
        extent: Extent,
        region: Region,
        target: &mut [T],
        to: Region,
    ) -> Result<()> {
        let from = region.checked(extent, self.len())?;
        let to = to.checked(extent, target.len())?;
        release::drain();
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        self.stream().wait_for_work()?;
        let (Some(from), Some(to)) = (from, to) else {
            return Ok(());
        };
        let to = Place::of_host(target.as_mut_ptr(), to);
        let copy = Copy::new::<T>(extent, &Place::of_device(self, from), &to);
        let _current = self.stream().context().enter()?;
        // SAFETY: both boxes are within their memory; any bits are a `T`.
        unsafe { copy.make() }
    }
}

/// One side of a copy.
struct Place {
    kind: CUmemorytype,
    host: *mut c_void,
    device: CUdeviceptr,
    /// In bytes.
    pitch: usize,
    rows: usize,
}

impl Place {
    fn of_device<T>(slice: &DeviceSlice<'_, T>, region: Region) -> Self {
        let begin = region.offset * size_of::<T>();
        Self {
            kind: CUmemorytype::CU_MEMORYTYPE_DEVICE,
            host: std::ptr::null_mut(),
            device: slice.as_raw() + begin as u64,
            pitch: region.pitch * size_of::<T>(),
            rows: region.rows,
        }
    }

    fn of_host<T>(start: *const T, region: Region) -> Self {
        Self {
            kind: CUmemorytype::CU_MEMORYTYPE_HOST,
            host: start.wrapping_add(region.offset).cast_mut().cast(),
            device: 0,
            pitch: region.pitch * size_of::<T>(),
            rows: region.rows,
        }
    }
}

/// A copy of a box, as the driver has it.
enum Copy {
    Nothing,
    Plane(CUDA_MEMCPY2D),
    Volume(CUDA_MEMCPY3D),
}

impl Copy {
    fn new<T>(extent: Extent, from: &Place, to: &Place) -> Self {
        let none = std::ptr::null_mut::<c_void>();
        let width = extent.width * size_of::<T>();
        if width == 0 {
            return Self::Nothing;
        }
        if extent.depth == 1 {
            return Self::Plane(CUDA_MEMCPY2D {
                srcXInBytes: 0,
                srcY: 0,
                srcMemoryType: from.kind,
                srcHost: from.host,
                srcDevice: from.device,
                srcArray: none.cast(),
                srcPitch: from.pitch,
                dstXInBytes: 0,
                dstY: 0,
                dstMemoryType: to.kind,
                dstHost: to.host,
                dstDevice: to.device,
                dstArray: none.cast(),
                dstPitch: to.pitch,
                WidthInBytes: width,
                Height: extent.height,
            });
        }
        Self::Volume(CUDA_MEMCPY3D {
            srcXInBytes: 0,
            srcY: 0,
            srcZ: 0,
            srcLOD: 0,
            srcMemoryType: from.kind,
            srcHost: from.host,
            srcDevice: from.device,
            srcArray: none.cast(),
            reserved0: none,
            srcPitch: from.pitch,
            srcHeight: from.rows,
            dstXInBytes: 0,
            dstY: 0,
            dstZ: 0,
            dstLOD: 0,
            dstMemoryType: to.kind,
            dstHost: to.host,
            dstDevice: to.device,
            dstArray: none.cast(),
            reserved1: none,
            dstPitch: to.pitch,
            dstHeight: to.rows,
            WidthInBytes: width,
            Height: extent.height,
            Depth: extent.depth,
        })
    }

    /// Gives the copy to a stream.
    ///
    /// # Safety
    /// Both boxes are within memory that stays until the copy is done, and that nobody else uses.
    unsafe fn give(&self, context: &Context, stream: CUstream) -> Result<()> {
        without_current(context, || match self {
            Self::Nothing => Ok(()),
            // SAFETY: the caller's promise; the pointer is to a borrowed value.
            Self::Plane(copy) => unsafe { call!(cuMemcpy2DAsync_v2(&raw const *copy, stream)) },
            // SAFETY: as above.
            Self::Volume(copy) => unsafe { call!(cuMemcpy3DAsync_v2(&raw const *copy, stream)) },
        })
    }

    /// Makes the copy, in the current context; it is done when this returns.
    ///
    /// # Safety
    /// Both boxes are within memory that nobody else uses, the target is the host's.
    unsafe fn make(&self) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            // SAFETY: the caller's promise; the pointer is to a borrowed value.
            Self::Plane(copy) => unsafe { call!(cuMemcpy2D_v2(&raw const *copy)) },
            // SAFETY: as above.
            Self::Volume(copy) => unsafe { call!(cuMemcpy3D_v2(&raw const *copy)) },
        }
    }
}
