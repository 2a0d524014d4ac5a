//! Copies of the texels of arrays in a batch.

use crate::array::{ArrayMut, ArrayRef, Side, Texel, copy};
use crate::call::{Extent, Region, Result};
pub(crate) use crate::memory::copy::batch::CopyBatch;
pub(crate) use crate::memory::copy::batch::volume::{Volume, pointer};
pub(crate) use crate::memory::copy::volume::Copy;
use crate::memory::{DeviceSlice, DeviceSliceMut};
use cuda_sys::{
    CUDA_MEMCPY3D_BATCH_OP, CUextent3D, CUmemLocation, CUmemcpy3DOperand,
    CUmemcpy3DOperand_st__bindgen_ty_1, CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_2,
    CUmemcpy3DOperandType, CUoffset3D,
};

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
        self.check_source(&source)?;
        self.check_array("the target of the copy", &target.as_ref())?;
        if let Some(from) = from {
            let from =
                Operand::of_device(&source, from, self.attributes.of_device_source().source());
            let to = Operand::of_array(&target.as_ref());
            self.add_texels::<T>(extent, &from, &to);
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
        self.check_target(&target)?;
        self.check_array("the source of the copy", &source)?;
        if let Some(to) = to {
            let from = Operand::of_array(&source);
            let to = Operand::of_device(
                &target.as_slice(),
                to,
                self.attributes.of_device_source().target(),
            );
            self.add_texels::<T>(extent, &from, &to);
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
        self.check_array("the source of the copy", &source)?;
        self.check_array("the target of the copy", &target.as_ref())?;
        if !extent.is_empty() {
            let from = Operand::of_array(&source);
            let to = Operand::of_array(&target.as_ref());
            self.add_texels::<T>(extent, &from, &to);
        }
        Ok(())
    }

    fn check_array<T>(&self, what: &str, array: &ArrayRef<'_, T>) -> Result<()> {
        if array.stream() == self.stream {
            return Ok(());
        }
        Err(array.stream().other_stream(|| what.to_owned(), self.stream))
    }

    /// Adds a copy whose elements are texels.
    fn add_texels<T>(&mut self, extent: Extent, from: &Operand, to: &Operand) {
        let access = self.attributes.of_device_source();
        let operation = CUDA_MEMCPY3D_BATCH_OP {
            src: from.raw,
            dst: to.raw,
            extent: CUextent3D { width: extent.width, height: extent.height, depth: extent.depth },
            srcAccessOrder: access.order(),
            flags: access.flags(),
        };
        let single = Copy::Volume(copy::<T>(extent, &from.side, &to.side));
        self.volumes.push(Volume { operation, single });
        self.has_arrays = true;
    }
}

/// The source or the target of a copy, for a single copy and for a batch.
struct Operand {
    side: Side,
    raw: CUmemcpy3DOperand,
}

impl Operand {
    fn of_array<T>(array: &ArrayRef<'_, T>) -> Self {
        let [x, y, z] = array.origin();
        let raw = CUmemcpy3DOperand {
            type_: CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY,
            op: CUmemcpy3DOperand_st__bindgen_ty_1 {
                array: CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_2 {
                    array: array.as_raw(),
                    offset: CUoffset3D { x, y, z },
                },
            },
        };
        Self { side: Side::array(array), raw }
    }

    /// Device memory. Beside an array, the distances between rows and slices are in texels, whose size
    /// the array determines.
    fn of_device<T>(slice: &DeviceSlice<'_, T>, region: Region, hint: CUmemLocation) -> Self {
        let start = slice.as_raw() + (region.offset * size_of::<T>()) as u64;
        Self {
            side: Side::device(slice, region),
            raw: pointer(start, region.pitch, region.rows, hint),
        }
    }
}
