//! Copies of 2-D and 3-D regions in a batch.

use super::attributes::Access;
use super::{CopyBatch, host};
use crate::call::{Extent, Region, Result, call, newest_or};
use crate::memory::copy::volume::{Copy, Side};
use crate::memory::{DeviceSlice, DeviceSliceMut, PinnedBuffer};
use crate::stream::{Stream, same_stream};
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::{
    CUDA_MEMCPY3D_BATCH_OP, CUextent3D, CUmemLocation, CUmemcpy3DOperand,
    CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_1 as Pointer,
    CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_2 as Texels, CUmemcpy3DOperandType,
    CUmemorytype, CUoffset3D, Zeroable,
};

/// The copy of a 2-D or 3-D region, as a part of a batch and as a single copy.
pub(crate) struct Volume {
    pub(crate) operation: CUDA_MEMCPY3D_BATCH_OP,
    pub(crate) single: Copy,
}

impl<'a> CopyBatch<'a> {
    /// Adds a copy of a 2-D or 3-D region of `source` to a region of `target`.
    ///
    /// # Errors
    /// - [`Invalid::Region`](crate::Invalid::Region) if a region is not within its memory, or if its rows
    ///   or slices overlap.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `source` or `target` is bound to
    ///   another stream than the batch.
    pub fn push_3d<T: 'a>(
        &mut self,
        extent: Extent,
        target: impl Into<DeviceSliceMut<'a, T>>,
        region: Region,
        source: impl Into<DeviceSlice<'a, T>>,
        from: Region,
    ) -> Result<()> {
        let (target, source) = (target.into(), source.into());
        let to = region.checked(extent, target.len())?;
        let from = from.checked(extent, source.len())?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        if let (Some(to), Some(from)) = (to, from) {
            let to = Side::of_device(&target.as_slice(), to);
            let from = Side::of_device(&source, from);
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        Ok(())
    }

    /// Adds a copy of a 2-D or 3-D region of a slice to a region of `target`.
    ///
    /// The slice can be pageable or pinned memory. [`enqueue`](Self::enqueue) waits for the copy.
    ///
    /// # Errors
    /// See [`push_3d`](Self::push_3d).
    pub fn push_3d_from_slice<T: NoUninit>(
        &mut self,
        extent: Extent,
        target: impl Into<DeviceSliceMut<'a, T>>,
        region: Region,
        source: &'a [T],
        from: Region,
    ) -> Result<()> {
        let target = target.into();
        let to = region.checked(extent, target.len())?;
        let from = from.checked(extent, source.len())?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        if let (Some(to), Some(from)) = (to, from) {
            let to = Side::of_device(&target.as_slice(), to);
            let from = Side::of_host(source.as_ptr(), from);
            self.host.has_slice_regions = true;
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        Ok(())
    }

    /// Adds a copy of a 2-D or 3-D region of pinned memory to a region of `target`. The pinned memory
    /// stays borrowed until the copy has completed.
    ///
    /// # Errors
    /// See [`push_3d`](Self::push_3d).
    pub fn push_3d_from_pinned<T: NoUninit + Send + Sync>(
        &mut self,
        extent: Extent,
        target: impl Into<DeviceSliceMut<'a, T>>,
        region: Region,
        source: &'a mut PinnedBuffer<T>,
        from: Region,
    ) -> Result<()> {
        let target = target.into();
        let to = region.checked(extent, target.len())?;
        let from = from.checked(extent, source.count())?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        if let (Some(to), Some(from)) = (to, from) {
            let to = Side::of_device(&target.as_slice(), to);
            let from = Side::of_host(source.start(), from);
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_pinned_source());
        }
        self.host.pinned.push(source);
        Ok(())
    }

    /// Adds a copy of a 2-D or 3-D region of `source` to a region of pinned memory. The pinned memory
    /// stays borrowed until the copy has completed. Elements between the rows of the region in pinned
    /// memory are not changed.
    ///
    /// # Errors
    /// See [`push_3d`](Self::push_3d).
    pub fn push_3d_to_pinned<T: AnyBitPattern + Send + Sync>(
        &mut self,
        extent: Extent,
        source: impl Into<DeviceSlice<'a, T>>,
        region: Region,
        target: &'a mut PinnedBuffer<T>,
        to: Region,
    ) -> Result<()> {
        let source = source.into();
        let from = region.checked(extent, source.len())?;
        let to = to.checked(extent, target.count())?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        if let (Some(to), Some(from)) = (to, from) {
            let to = Side::of_host(target.start(), to);
            let from = Side::of_device(&source, from);
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        self.host.pinned.push(target);
        Ok(())
    }

    /// Adds a copy that is not empty. Between arrays and memory, lengths are in texels, and else in bytes.
    pub(crate) fn add_volume<T>(&mut self, extent: Extent, from: &Side, to: &Side, access: Access) {
        let single = Copy::new::<T>(extent, from, to);
        let (bytes, height, depth) = (extent.width * size_of::<T>(), extent.height, extent.depth);
        if bytes == 0 {
            return;
        }
        let has_array = from.is_array() || to.is_array();
        let unit = if has_array { size_of::<T>() } else { 1 };
        let operation = CUDA_MEMCPY3D_BATCH_OP {
            src: operand(from, unit, access.source()),
            dst: operand(to, unit, access.target()),
            extent: CUextent3D { width: bytes / unit, height, depth },
            srcAccessOrder: access.order(),
            flags: access.flags(),
        };
        self.volumes.push(Volume { operation, single });
        self.has_arrays |= has_array;
    }
}

/// Returns a side of a copy whose lengths are multiples of `unit` bytes.
#[inline]
fn operand(side: &Side, unit: usize, hint: CUmemLocation) -> CUmemcpy3DOperand {
    let mut operand = CUmemcpy3DOperand::zeroed();
    if side.is_array() {
        let [x, y, z] = side.at;
        operand.type_ = CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_ARRAY;
        operand.op.array = Texels { array: side.array, offset: CUoffset3D { x, y, z } };
        return operand;
    }
    let ptr = match side.kind {
        CUmemorytype::CU_MEMORYTYPE_HOST => host::address(side.host),
        _ => side.device,
    };
    operand.type_ = CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER;
    let row = side.pitch / unit;
    operand.op.ptr = Pointer { ptr, rowLength: row, layerHeight: side.rows, locHint: hint };
    operand
}

/// Enqueues copies, in the current context.
#[inline]
pub(super) fn enqueue(volumes: &mut [Volume], stream: &Stream) -> Result<()> {
    let mut operations: Vec<_> = volumes.iter().map(|volume| volume.operation).collect();
    match operations.as_mut_slice() {
        [] => Ok(()),
        [one] => {
            newest_or(enqueue_one(one, stream), || enqueue_batch(std::slice::from_mut(one), stream))
        }
        several => enqueue_batch(several, stream),
    }
}

#[inline]
fn enqueue_one(operation: &mut CUDA_MEMCPY3D_BATCH_OP, stream: &Stream) -> Result<()> {
    let stream = stream.raw();
    // SAFETY: the region of each side is within its memory. The rest is argued in
    // `CopyBatch::enqueue_newest`.
    unsafe { call!(cuMemcpy3DWithAttributesAsync(&raw mut *operation, 0, stream)) }
}

#[inline]
fn enqueue_batch(operations: &mut [CUDA_MEMCPY3D_BATCH_OP], stream: &Stream) -> Result<()> {
    let (count, operations) = (operations.len(), operations.as_mut_ptr());
    let stream = stream.raw();
    newest_or(
        // SAFETY: the list has `count` entries, and the region of each side is within its memory. The
        // rest is argued in `CopyBatch::enqueue_newest`.
        unsafe { call!(cuMemcpy3DBatchAsync_v2(count, operations, 0, stream)) },
        || {
            let mut failed = 0;
            // SAFETY: see the previous call. The output for the index of the failed copy is a local
            // variable.
            unsafe {
                call!(abi::cuMemcpy3DBatchAsync(count, operations, &raw mut failed, 0, stream))
            }
        },
    )
}

impl Volume {
    #[inline]
    pub(super) fn enqueue_single(&self, stream: &Stream) -> Result<()> {
        // SAFETY: see `CopyBatch::enqueue_newest`.
        unsafe { self.single.enqueue(stream.context(), stream.raw()) }
    }
}
