//! Copies of the texels of arrays in a batch.

use crate::array::{ArrayMut, ArrayRef, Texel};
use crate::call::{Region, Result};
pub(crate) use crate::memory::copy::batch::CopyBatch;
use crate::memory::copy::volume::Side;
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::same_stream;

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
