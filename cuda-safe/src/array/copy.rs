//! Copies between arrays and other memory.
//!
//! Copies from and to an ordinary (pageable) slice have completed when the call returns, as those of
//! buffers have: a copy to the array is an asynchronous copy followed by a wait, and a copy from the array
//! waits first and then makes a synchronous copy. No copy is captured.

pub(crate) use crate::memory::copy::batch::CopyBatch;

use super::owned::Array;
use super::{ArrayMut, ArrayRef, Texel};
use crate::call::{Region, Rejected, Result, answer, call, refuse_in_host_function};
use crate::capture_state::Operation;
use crate::memory::copy::volume::{Copy, Side, volume};
use crate::memory::{DeviceSlice, DeviceSliceMut, Pending, Pinned, same_length};
use crate::stream::{Stream, same_stream};

/// Enqueues a copy on a stream that is not captured. A graph would have the handles of arrays, which are
/// pointers of the driver that it follows when the graph is instantiated, also if an array was destroyed.
///
/// # Errors
/// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured); errors of the driver.
///
/// # Safety
/// Both sides stay alive, and are not used by other work, until the copy has completed.
#[inline]
unsafe fn enqueue(copy: &Copy, stream: &Stream) -> Result<()> {
    let _call = stream.uncaptured(Operation::ArrayCopy)?;
    // SAFETY: as the caller promises.
    unsafe { copy.enqueue(stream.context(), stream.raw()) }
}

impl<T: Texel> ArrayMut<'_, T> {
    /// Copies `slice` to these texels, row by row and slice by slice. Blocks the host until the copy and
    /// all earlier work on the stream have completed.
    ///
    /// Calls `cuMemcpy3DAsync(&copy, stream)` and then waits for the stream.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the slice does not have as many texels.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - [`Error::InHostFunction`](crate::Error::InHostFunction) inside a host function.
    /// - Errors from earlier work on the stream.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    #[doc(alias = "cuMemcpy3DAsync")]
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        same_length(slice.len(), self.len())?;
        // This check comes before the copy, because the wait after the copy would be rejected.
        refuse_in_host_function()?;
        if self.is_empty() {
            return Ok(());
        }
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        let (extent, target) = (self.extent(), self.as_ref().side());
        let source = Side::of_host(slice.as_ptr(), Region::new(extent));
        // SAFETY: the texels are within the array, and the slice has as many. It has no uninitialized
        // bytes, and is borrowed until the wait below has returned. If that wait fails, the argument in
        // `DeviceSliceMut::copy_from_slice` applies.
        let copied = unsafe { enqueue(&Copy::new::<T>(extent, &source, &target), self.stream()) };
        // Wait even if the call failed: the error may be from earlier work, and the copy may be in
        // progress.
        let waited = self.stream().wait_for_host_copies(|_| ());
        copied.and(waited)
    }

    /// Enqueues a copy of all elements of `source` to these texels. Does not block the host.
    ///
    /// Calls `cuMemcpy3DAsync(&copy, stream)`. Both must be bound to the same stream.
    ///
    /// # Errors
    /// [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ;
    /// [`Invalid::OtherStream`](crate::Invalid::OtherStream);
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    #[doc(alias = "cuMemcpy3DAsync")]
    pub fn copy_from<'s>(&mut self, source: impl Into<DeviceSlice<'s, T>>) -> Result<()>
    where
        T: 's,
    {
        let source = source.into();
        same_length(source.len(), self.len())?;
        let extent = self.extent();
        self.copy_3d_from(source, Region::new(extent))
    }

    /// Enqueues a copy of a region of `source` to these texels. Does not block the host.
    ///
    /// The region has the extent of these texels. Calls `cuMemcpy3DAsync(&copy, stream)`.
    ///
    /// # Errors
    /// [`Invalid::Region`](crate::Invalid::Region) if the region is not within the source, or if its rows
    /// or slices overlap; [`Invalid::OtherStream`](crate::Invalid::OtherStream);
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    pub fn copy_3d_from<'s>(
        &mut self,
        source: impl Into<DeviceSlice<'s, T>>,
        from: Region,
    ) -> Result<()>
    where
        T: 's,
    {
        let (source, extent) = (source.into(), self.extent());
        let from = from.checked(extent, source.len())?;
        same_stream("the source of the copy", source.stream(), self.stream())?;
        let Some(from) = from else { return Ok(()) };
        let sides = (Side::of_device(&source, from), self.as_ref().side());
        // SAFETY: both sides are within memory that is bound to this stream and is released after its work.
        // Nothing else uses the texels, which are borrowed mutably.
        unsafe { enqueue(&Copy::new::<T>(extent, &sides.0, &sides.1), self.stream()) }
    }

    /// Enqueues a copy of the texels of `source` to these texels. Does not block the host.
    ///
    /// Both have the same extent and are bound to the same stream. Calls `cuMemcpy3DAsync(&copy, stream)`.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array) if the extents differ;
    /// [`Invalid::OtherStream`](crate::Invalid::OtherStream);
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    #[doc(alias = "cuMemcpy3DAsync")]
    pub fn copy_from_array<'s>(&mut self, source: impl Into<ArrayRef<'s, T>>) -> Result<()>
    where
        T: 's,
    {
        let (source, extent) = (source.into(), self.extent());
        source.expect_extent(extent)?;
        same_stream("the source of the copy", source.stream(), self.stream())?;
        if extent.is_empty() {
            return Ok(());
        }
        let sides = (source.side(), self.as_ref().side());
        // SAFETY: both sides are texels of arrays that are bound to this stream and are destroyed after its
        // work. They do not overlap, because the target is borrowed mutably.
        unsafe { enqueue(&Copy::new::<T>(extent, &sides.0, &sides.1), self.stream()) }
    }

    /// Enqueues a copy from pinned memory to these texels. Does not block the host.
    ///
    /// Calls `cuMemcpy3DAsync(&copy, stream)`. See [`DeviceSliceMut::copy_from_pinned`].
    ///
    /// # Errors
    /// See [`DeviceSliceMut::copy_from_pinned`]. On an error, the source is dropped.
    /// [`try_copy_from_pinned`](Self::try_copy_from_pinned) returns it with the error.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    #[doc(alias = "cuMemcpy3DAsync")]
    pub fn copy_from_pinned<H: Pinned<T>>(&mut self, source: H) -> Result<Pending<T, H>> {
        Ok(self.try_copy_from_pinned(source)?)
    }

    /// Does the same as [`copy_from_pinned`](Self::copy_from_pinned), but returns the source with the error.
    ///
    /// # Errors
    /// See [`copy_from_pinned`](Self::copy_from_pinned).
    pub fn try_copy_from_pinned<H: Pinned<T>>(
        &mut self,
        source: H,
    ) -> Result<Pending<T, H>, Rejected<H>> {
        let (extent, target) = (self.extent(), self.as_ref().side());
        let copy =
            volume::<T>(extent, &Side::of_host(source.start(), Region::new(extent)), &target);
        DeviceSlice::new(0, self.len(), self.stream()).copy_pinned(source, |_, stream| {
            // SAFETY: the texels are within the array, and the source has as many (the lengths are equal)
            // without uninitialized bytes. The source is kept until the copy has completed.
            unsafe { answer!(cuMemcpy3DAsync_v2(&raw const copy, stream)) }
        })
    }
}

impl<T: Texel> ArrayRef<'_, T> {
    /// Copies these texels into `slice`, row by row and slice by slice. Blocks the host until the copy and
    /// all earlier work on the stream have completed.
    ///
    /// Waits for the stream and then calls `cuMemcpy3D(&copy)`.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the slice does not have as many texels.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - [`Error::InHostFunction`](crate::Error::InHostFunction) inside a host function.
    /// - Errors from earlier work on the stream. In this case nothing is copied.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy3D_v2`](fn@cuda_sys::cuMemcpy3D_v2).
    #[doc(alias = "cuMemcpy3D")]
    pub fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        same_length(self.len(), slice.len())?;
        let _call = self.stream().uncaptured(Operation::HostCopy)?;
        self.stream().wait_for_work()?;
        if self.is_empty() {
            return Ok(());
        }
        let target = Side::of_host(slice.as_mut_ptr(), Region::new(self.extent()));
        let copy = volume::<T>(self.extent(), &self.side(), &target);
        let _current = self.stream().context().enter()?;
        // SAFETY: the texels are within the array, the slice has as many, every bit pattern is a texel, and
        // the copy has completed when the call returns.
        unsafe { call!(cuMemcpy3D_v2(&raw const copy)) }
    }

    /// Copies these texels into a new `Vec`. Blocks the host until the copy and all earlier work on the
    /// stream have completed.
    ///
    /// # Errors
    /// See [`copy_to_slice`](Self::copy_to_slice).
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut texels = vec![T::zeroed(); self.len()];
        self.copy_to_slice(&mut texels)?;
        Ok(texels)
    }

    /// Enqueues a copy of these texels to `target`. Does not block the host.
    ///
    /// Calls `cuMemcpy3DAsync(&copy, stream)`. Both must be bound to the same stream.
    ///
    /// # Errors
    /// [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ;
    /// [`Invalid::OtherStream`](crate::Invalid::OtherStream);
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    #[doc(alias = "cuMemcpy3DAsync")]
    pub fn copy_to<'s>(&self, target: impl Into<DeviceSliceMut<'s, T>>) -> Result<()>
    where
        T: 's,
    {
        let target = target.into();
        same_length(self.len(), target.len())?;
        self.copy_3d_to(target, Region::new(self.extent()))
    }

    /// Enqueues a copy of these texels to a region of `target`. Does not block the host.
    ///
    /// The region has the extent of these texels. Calls `cuMemcpy3DAsync(&copy, stream)`.
    ///
    /// # Errors
    /// [`Invalid::Region`](crate::Invalid::Region) if the region is not within the target, or if its rows
    /// or slices overlap; [`Invalid::OtherStream`](crate::Invalid::OtherStream);
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    pub fn copy_3d_to<'s>(&self, target: impl Into<DeviceSliceMut<'s, T>>, to: Region) -> Result<()>
    where
        T: 's,
    {
        let target = target.into();
        let to = to.checked(self.extent(), target.len())?;
        same_stream("the target of the copy", target.stream(), self.stream())?;
        let Some(to) = to else { return Ok(()) };
        let sides = (self.side(), Side::of_device(&target.as_slice(), to));
        // SAFETY: both sides are within memory that is bound to this stream and is released after its work.
        // Nothing else uses the target, which is borrowed mutably.
        unsafe { enqueue(&Copy::new::<T>(self.extent(), &sides.0, &sides.1), self.stream()) }
    }

    /// Enqueues a copy of these texels into pinned memory. Does not block the host.
    ///
    /// Calls `cuMemcpy3DAsync(&copy, stream)`. See [`DeviceSlice::copy_to_pinned`].
    ///
    /// # Errors
    /// See [`DeviceSlice::copy_to_pinned`]. On an error, the target is dropped.
    /// [`try_copy_to_pinned`](Self::try_copy_to_pinned) returns it with the error.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemcpy3DAsync_v2`](fn@cuda_sys::cuMemcpy3DAsync_v2).
    #[doc(alias = "cuMemcpy3DAsync")]
    pub fn copy_to_pinned<H: Pinned<T>>(&self, target: H) -> Result<Pending<T, H>> {
        Ok(self.try_copy_to_pinned(target)?)
    }

    /// Does the same as [`copy_to_pinned`](Self::copy_to_pinned), but returns the target with the error.
    ///
    /// # Errors
    /// See [`copy_to_pinned`](Self::copy_to_pinned).
    pub fn try_copy_to_pinned<H: Pinned<T>>(
        &self,
        target: H,
    ) -> Result<Pending<T, H>, Rejected<H>> {
        let host = Side::of_host(target.start(), Region::new(self.extent()));
        let copy = volume::<T>(self.extent(), &self.side(), &host);
        DeviceSlice::new(0, self.len(), self.stream()).copy_pinned(target, |_, stream| {
            // SAFETY: the texels are within the array, the target has as many (the lengths are equal), and
            // every bit pattern is a texel. The target is kept, and no code accesses it, until the copy has
            // completed.
            unsafe { answer!(cuMemcpy3DAsync_v2(&raw const copy, stream)) }
        })
    }
}

/// Copies of the whole array.
impl<T: Texel> Array<T> {
    /// Copies `slice` to the array. See [`ArrayMut::copy_from_slice`].
    ///
    /// # Errors
    /// See [`ArrayMut::copy_from_slice`].
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()> {
        self.as_mut().copy_from_slice(slice)
    }

    /// Enqueues a copy of a buffer to the array. See [`ArrayMut::copy_from`].
    ///
    /// # Errors
    /// See [`ArrayMut::copy_from`].
    pub fn copy_from<'s>(&mut self, source: impl Into<DeviceSlice<'s, T>>) -> Result<()>
    where
        T: 's,
    {
        self.as_mut().copy_from(source)
    }

    /// Enqueues a copy of the array to a buffer. See [`ArrayRef::copy_to`].
    ///
    /// # Errors
    /// See [`ArrayRef::copy_to`].
    pub fn copy_to<'s>(&self, target: impl Into<DeviceSliceMut<'s, T>>) -> Result<()>
    where
        T: 's,
    {
        self.as_ref().copy_to(target)
    }

    /// Copies the texels into a new `Vec`. See [`ArrayRef::to_vec`].
    ///
    /// # Errors
    /// See [`ArrayRef::copy_to_slice`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.as_ref().to_vec()
    }
}

impl<'a> CopyBatch<'a> {
    /// Adds a copy of a region of `source` to the texels of an array, or of a
    /// [part](crate::array::ArrayMut::part) of one. The region has the extent of these texels.
    ///
    /// # Errors
    /// - [`Invalid::Region`](crate::Invalid::Region) if the region is not within `source`, or if its rows
    ///   or slices overlap.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `source` or `target` is bound to
    ///   another stream than the batch.
    ///
    /// [`enqueue`](Self::enqueue) then returns
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured) if the stream is captured.
    ///
    /// ```no_run
    /// use cuda_safe::array::{Array, ArrayShape};
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    /// use cuda_safe::memory::{CopyBatch, Extent, Region};
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let from = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0, 4.0])?;
    /// let mut array = Array::<f32>::new(&stream, ArrayShape::TwoD { width: 2, height: 2 })?;
    /// let mut batch = CopyBatch::new(&stream);
    /// batch.push_to_array(&mut array, &from, Region::new(Extent::new_2d(2, 2)))?;
    /// batch.enqueue()?;
    /// assert_eq!(array.to_vec()?, [1.0, 2.0, 3.0, 4.0]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn push_to_array<T: Texel>(
        &mut self,
        target: impl Into<ArrayMut<'a, T>>,
        source: impl Into<DeviceSlice<'a, T>>,
        from: Region,
    ) -> Result<()> {
        let (target, source) = (target.into(), source.into());
        let extent = target.extent();
        let from = from.checked(extent, source.len())?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        if let Some(from) = from {
            let (from, to) = (Side::of_device(&source, from), target.as_ref().side());
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        Ok(())
    }

    /// Adds a copy of the texels of an array, or of a [part](crate::array::ArrayRef::part) of one, to a
    /// region of `target`. The region has the extent of these texels.
    ///
    /// # Errors
    /// See [`push_to_array`](Self::push_to_array).
    pub fn push_from_array<T: Texel>(
        &mut self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        to: Region,
        source: impl Into<ArrayRef<'a, T>>,
    ) -> Result<()> {
        let (target, source) = (target.into(), source.into());
        let extent = source.extent();
        let to = to.checked(extent, target.len())?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        if let Some(to) = to {
            let (from, to) = (source.side(), Side::of_device(&target.as_slice(), to));
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        Ok(())
    }

    /// Adds a copy of the texels of `source` to the texels of `target`, which have the same extent. Both
    /// can be [parts](crate::array::ArrayRef::part) of arrays.
    ///
    /// # Errors
    /// - [`Invalid::Array`](crate::Invalid::Array) if the extents differ.
    /// - See also [`push_to_array`](Self::push_to_array).
    pub fn push_array<T: Texel>(
        &mut self,
        target: impl Into<ArrayMut<'a, T>>,
        source: impl Into<ArrayRef<'a, T>>,
    ) -> Result<()> {
        let (target, source) = (target.into(), source.into());
        let extent = target.extent();
        source.expect_extent(extent)?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        if !extent.is_empty() {
            let (from, to) = (source.side(), target.as_ref().side());
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        Ok(())
    }
}
