//! 2-D and 3-D copies and fills.
//!
//! Copies from and to an ordinary (pageable) slice have completed when the call returns. A copy to
//! the device is an asynchronous copy followed by a wait. A copy from the device waits first and
//! then makes a synchronous copy.

use crate::call::{
    Extent, Invalid, Region, Result, call, copy_without_current, refuse_if, refuse_in_host_function,
};
use crate::capture_state::Operation;
use crate::context::Context;
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::same_stream;
use bytemuck::{AnyBitPattern, NoUninit};
use core::ffi::c_void;
use cuda_sys::{
    CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUarray, CUdeviceptr, CUmemorytype, CUstream, Zeroable,
};

impl<T> DeviceSliceMut<'_, T> {
    /// Enqueues a copy of a 2-D or 3-D region of `source` to a region of this memory. Does not
    /// block the host.
    ///
    /// Calls `cuMemcpy2DAsync(&copy, stream)` if `extent` has depth 1, and `cuMemcpy3DAsync`
    /// otherwise. Both slices must be bound to the same stream.
    ///
    /// # Errors
    /// - [`Invalid::Region`] if a region is not within its memory, or if its rows or slices
    ///   overlap.
    /// - [`Invalid::OtherStream`] if the streams differ.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy2DAsync_v2`](fn@cuda_sys::cuMemcpy2DAsync_v2),
    /// [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device, DeviceBuffer};
    /// # use cuda_safe::memory::{Extent, Region};
    /// # let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// // The first two columns of a matrix.
    /// let matrix = DeviceBuffer::<f32>::zeroed(&stream, 100 * 80)?;
    /// let mut columns = DeviceBuffer::<f32>::zeroed(&stream, 2 * 80)?;
    /// let both = Extent::new_2d(2, 80);
    /// let from = Region::new(Extent::new_2d(100, 80));
    /// columns
    ///     .as_mut_slice()
    ///     .copy_3d_from(both, Region::new(both), &matrix, from)?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuMemcpy2DAsync", alias = "cuMemcpy3DAsync")]
    pub fn copy_3d_from<'a>(
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
        same_stream("the source of the copy", source.stream(), self.stream())?;
        let (Some(to), Some(from)) = (to, from) else { return Ok(()) };
        let to = Side::of_device(&self.as_slice(), to);
        let copy = Copy::new::<T>(extent, &Side::of_device(&source, from), &to);
        // SAFETY: both regions are within memory that is bound to this stream and is freed in the
        // order of this stream, or after a wait. They do not overlap, because the target is
        // borrowed mutably.
        unsafe { copy.enqueue(self.stream().context(), self.stream().raw()) }
    }
}

impl<T: NoUninit> DeviceSliceMut<'_, T> {
    /// Copies a 2-D or 3-D region of `source` to a region of this memory. Blocks the host until the
    /// copy and all earlier work on the stream have completed.
    ///
    /// Calls `cuMemcpy2DAsync(&copy, stream)` if `extent` has depth 1, and `cuMemcpy3DAsync`
    /// otherwise. Then waits for the stream.
    ///
    /// # Errors
    /// - [`Invalid::Region`] if a region is not within its memory, or if its rows or slices
    ///   overlap.
    /// - [`Invalid::StreamIsCaptured`].
    /// - [`Error::InHostFunction`](crate::Error::InHostFunction) inside a host function.
    /// - Errors from earlier work on the stream.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy2DAsync_v2`](fn@cuda_sys::cuMemcpy2DAsync_v2),
    /// [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    #[doc(alias = "cuMemcpy2DAsync", alias = "cuMemcpy3DAsync")]
    pub fn copy_3d_from_slice(
        &mut self,
        extent: Extent,
        region: Region,
        source: &[T],
        from: Region,
    ) -> Result<()> {
        let to = region.checked(extent, self.len())?;
        let from = from.checked(extent, source.len())?;
        let (Some(to), Some(from)) = (to, from) else { return Ok(()) };
        // This check comes before the copy, because the wait after the copy would be rejected.
        refuse_in_host_function()?;
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        let to = Side::of_device(&self.as_slice(), to);
        let copy = Copy::new::<T>(extent, &Side::of_host(source.as_ptr(), from), &to);
        // SAFETY: both regions are within their memory, and the slice has no uninitialized bytes.
        // It is borrowed until the wait below has returned. If that wait fails, the argument in
        // `copy_from_slice` applies.
        let copied = unsafe { copy.enqueue(self.stream().context(), self.stream().raw()) };
        // Wait even if the call failed: the error may be from earlier work, and the copy may be in
        // progress.
        let waited = self.stream().wait_for_host_copies(|_| ());
        copied.and(waited)
    }

    /// Enqueues fills that set all elements of a 2-D or 3-D region to `value`.
    ///
    /// Calls `cuMemsetD2D8Async`, `cuMemsetD2D16Async` or `cuMemsetD2D32Async`, depending on the
    /// size of `T`, once for each slice of the region.
    ///
    /// # Errors
    /// - [`Invalid::Region`] if the region is not within the memory, or if its rows or slices
    ///   overlap.
    /// - [`Invalid::FillSize`] if the size of `T` is not 1, 2 or 4 bytes.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemsetD2D8Async`](fn@cuda_sys::cuMemsetD2D8Async),
    /// [`cuMemsetD2D16Async`](fn@cuda_sys::cuMemsetD2D16Async),
    /// [`cuMemsetD2D32Async`](fn@cuda_sys::cuMemsetD2D32Async).
    #[doc(alias = "cuMemsetD2D8Async", alias = "cuMemsetD2D16Async", alias = "cuMemsetD2D32Async")]
    pub fn fill_3d(&mut self, extent: Extent, region: Region, value: T) -> Result<()> {
        let size = size_of::<T>();
        refuse_if!(!matches!(size, 1 | 2 | 4), Invalid::FillSize { size });
        let Some(region) = region.checked(extent, self.len())? else { return Ok(()) };
        let (width, height) = (extent.width, extent.height);
        let (pitch, stream) = (region.pitch * size, self.stream().raw());
        for z in 0..extent.depth {
            let begin = region.at(0, 0, z).offset * size;
            let at = self.as_raw() + begin as u64;
            let bytes = bytemuck::bytes_of(&value);
            copy_without_current(self.stream().context(), || match *bytes {
                // SAFETY: the rows are within the memory.
                [a] => unsafe { call!(cuMemsetD2D8Async(at, pitch, a, width, height, stream)) },
                [a, b] => {
                    let pattern = u16::from_ne_bytes([a, b]);
                    // SAFETY: the rows are within the memory.
                    unsafe { call!(cuMemsetD2D16Async(at, pitch, pattern, width, height, stream)) }
                }
                [a, b, c, d] => {
                    let pattern = u32::from_ne_bytes([a, b, c, d]);
                    // SAFETY: the rows are within the memory.
                    unsafe { call!(cuMemsetD2D32Async(at, pitch, pattern, width, height, stream)) }
                }
                // The size was checked above.
                _ => Ok(()),
            })?;
        }
        Ok(())
    }
}

impl<T: AnyBitPattern> DeviceSlice<'_, T> {
    /// Copies a 2-D or 3-D region to a region of `target`. Blocks the host until the copy and all
    /// earlier work on the stream have completed.
    ///
    /// Waits for the stream and then calls `cuMemcpy2D(&copy)` if `extent` has depth 1, and
    /// `cuMemcpy3D` otherwise. Elements between the rows of the region in `target` are not changed.
    ///
    /// # Errors
    /// - [`Invalid::Region`] if a region is not within its memory, or if its rows or slices
    ///   overlap.
    /// - [`Invalid::StreamIsCaptured`].
    /// - [`Error::InHostFunction`](crate::Error::InHostFunction) inside a host function.
    /// - Errors from earlier work on the stream. In this case nothing is copied.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy2D_v2`](fn@cuda_sys::cuMemcpy2D_v2),
    /// [`cuMemcpy3D_v2`](fn@cuda_sys::cuMemcpy3D_v2).
    #[doc(alias = "cuMemcpy2D", alias = "cuMemcpy3D")]
    pub fn copy_3d_to_slice(
        &self,
        extent: Extent,
        region: Region,
        target: &mut [T],
        to: Region,
    ) -> Result<()> {
        let from = region.checked(extent, self.len())?;
        let to = to.checked(extent, target.len())?;
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        self.stream().wait_for_work()?;
        let (Some(from), Some(to)) = (from, to) else { return Ok(()) };
        let to = Side::of_host(target.as_mut_ptr(), to);
        let copy = Copy::new::<T>(extent, &Side::of_device(self, from), &to);
        let _current = self.stream().context().enter()?;
        // SAFETY: both regions are within their memory, and every bit pattern is a valid `T`.
        unsafe { copy.run() }
    }
}

/// The source or the target of a copy. What the kind of memory does not have is zero.
pub(crate) struct Side {
    pub(crate) kind: CUmemorytype,
    pub(crate) host: *mut c_void,
    pub(crate) device: CUdeviceptr,
    pub(crate) array: CUarray,
    /// The position in an array, in texels.
    pub(crate) at: [usize; 3],
    /// The distance between the starts of consecutive rows, in bytes.
    pub(crate) pitch: usize,
    pub(crate) rows: usize,
}

impl Side {
    pub(crate) fn of_device<T>(slice: &DeviceSlice<'_, T>, region: Region) -> Self {
        let begin = region.offset * size_of::<T>();
        let device = slice.as_raw() + begin as u64;
        Self { device, ..Self::new::<T>(CUmemorytype::CU_MEMORYTYPE_DEVICE, region) }
    }

    pub(crate) fn of_host<T>(start: *const T, region: Region) -> Self {
        let host = start.wrapping_add(region.offset).cast_mut().cast();
        Self { host, ..Self::new::<T>(CUmemorytype::CU_MEMORYTYPE_HOST, region) }
    }

    #[inline]
    pub(crate) fn of_array(array: CUarray, at: [usize; 3]) -> Self {
        let none = Region { offset: 0, pitch: 0, rows: 0 };
        Self { array, at, ..Self::new::<u8>(CUmemorytype::CU_MEMORYTYPE_ARRAY, none) }
    }

    fn new<T>(kind: CUmemorytype, region: Region) -> Self {
        let null = std::ptr::null_mut();
        let (pitch, rows) = (region.pitch * size_of::<T>(), region.rows);
        Self { kind, host: null, device: 0, array: null.cast(), at: [0; 3], pitch, rows }
    }

    #[inline]
    pub(crate) fn is_array(&self) -> bool {
        !self.array.is_null()
    }
}

/// Returns a 3-D copy in the driver's format.
pub(crate) fn volume<T>(extent: Extent, from: &Side, to: &Side) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        srcXInBytes: from.at[0] * size_of::<T>(),
        srcY: from.at[1],
        srcZ: from.at[2],
        srcMemoryType: from.kind,
        srcHost: from.host,
        srcDevice: from.device,
        srcArray: from.array,
        srcPitch: from.pitch,
        srcHeight: from.rows,
        dstXInBytes: to.at[0] * size_of::<T>(),
        dstY: to.at[1],
        dstZ: to.at[2],
        dstMemoryType: to.kind,
        dstHost: to.host,
        dstDevice: to.device,
        dstArray: to.array,
        dstPitch: to.pitch,
        dstHeight: to.rows,
        WidthInBytes: extent.width * size_of::<T>(),
        Height: extent.height,
        Depth: extent.depth,
        ..CUDA_MEMCPY3D::zeroed()
    }
}

/// A 2-D or 3-D copy in the driver's format.
pub(crate) enum Copy {
    Nothing,
    Plane(CUDA_MEMCPY2D),
    Volume(CUDA_MEMCPY3D),
}

impl Copy {
    pub(crate) fn new<T>(extent: Extent, from: &Side, to: &Side) -> Self {
        let width = extent.width * size_of::<T>();
        if width == 0 {
            return Self::Nothing;
        }
        if extent.depth == 1 && !from.is_array() && !to.is_array() {
            return Self::Plane(CUDA_MEMCPY2D {
                srcMemoryType: from.kind,
                srcHost: from.host,
                srcDevice: from.device,
                srcPitch: from.pitch,
                dstMemoryType: to.kind,
                dstHost: to.host,
                dstDevice: to.device,
                dstPitch: to.pitch,
                WidthInBytes: width,
                Height: extent.height,
                ..CUDA_MEMCPY2D::zeroed()
            });
        }
        Self::Volume(volume::<T>(extent, from, to))
    }

    /// Enqueues the copy on a stream.
    ///
    /// # Safety
    /// Both regions are within memory that stays allocated, and is not used by other code, until
    /// the copy has completed.
    #[inline]
    pub(crate) unsafe fn enqueue(&self, context: &Context, stream: CUstream) -> Result<()> {
        copy_without_current(context, || match self {
            Self::Nothing => Ok(()),
            // SAFETY: the caller guarantees valid memory, and the pointer is to a borrowed value.
            Self::Plane(copy) => unsafe { call!(cuMemcpy2DAsync_v2(&raw const *copy, stream)) },
            // SAFETY: as above.
            Self::Volume(copy) => unsafe { call!(cuMemcpy3DAsync_v2(&raw const *copy, stream)) },
        })
    }

    /// Makes the copy synchronously, in the current context.
    ///
    /// # Safety
    /// Both regions are within memory that no other code uses. The target is host memory.
    #[inline]
    unsafe fn run(&self) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            // SAFETY: the caller guarantees valid memory, and the pointer is to a borrowed value.
            Self::Plane(copy) => unsafe { call!(cuMemcpy2D_v2(&raw const *copy)) },
            // SAFETY: as above.
            Self::Volume(copy) => unsafe { call!(cuMemcpy3D_v2(&raw const *copy)) },
        }
    }
}
