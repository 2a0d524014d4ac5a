//! Copies of 2-D and 3-D regions in a batch.

use super::attributes::Access;
use super::{CopyBatch, host};
use crate::call::{Extent, Region, Result, call, newest_or};
use crate::memory::copy::volume::{Copy, Side};
use crate::memory::{DeviceSlice, DeviceSliceMut, PinnedBuffer};
use crate::stream::Stream;
use bytemuck::{AnyBitPattern, NoUninit};
use cuda_sys::{
    CUDA_MEMCPY3D_BATCH_OP, CUdeviceptr, CUextent3D, CUmemLocation, CUmemcpy3DOperand,
    CUmemcpy3DOperand_st__bindgen_ty_1, CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_1,
    CUmemcpy3DOperandType, CUmemorytype,
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
        self.check_source(&source)?;
        self.check_target(&target)?;
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
        self.check_target(&target)?;
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
        self.check_target(&target)?;
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
        self.check_source(&source)?;
        if let (Some(to), Some(from)) = (to, from) {
            let to = Side::of_host(target.start(), to);
            let from = Side::of_device(&source, from);
            self.add_volume::<T>(extent, &from, &to, self.attributes.of_device_source());
        }
        self.host.pinned.push(target);
        Ok(())
    }

    fn add_volume<T>(&mut self, extent: Extent, from: &Side, to: &Side, access: Access) {
        let single = Copy::new::<T>(extent, from, to);
        let width = extent.width * size_of::<T>();
        if width != 0 {
            let operation = CUDA_MEMCPY3D_BATCH_OP {
                src: operand(from, access.source()),
                dst: operand(to, access.target()),
                extent: CUextent3D { width, height: extent.height, depth: extent.depth },
                srcAccessOrder: access.order(),
                flags: access.flags(),
            };
            self.volumes.push(Volume { operation, single });
        }
    }
}

/// Returns a side of a copy. Between pointers, an element is one byte.
#[inline]
fn operand(side: &Side, hint: CUmemLocation) -> CUmemcpy3DOperand {
    let address = if side.kind == CUmemorytype::CU_MEMORYTYPE_HOST {
        host::address(side.host)
    } else {
        side.device
    };
    pointer(address, side.pitch, side.rows, hint)
}

/// Returns linear memory as a side of a copy, with the distance between rows in elements and between
/// slices in rows.
#[inline]
pub(crate) fn pointer(
    address: CUdeviceptr,
    pitch: usize,
    rows: usize,
    hint: CUmemLocation,
) -> CUmemcpy3DOperand {
    CUmemcpy3DOperand {
        type_: CUmemcpy3DOperandType::CU_MEMCPY_OPERAND_TYPE_POINTER,
        op: CUmemcpy3DOperand_st__bindgen_ty_1 {
            ptr: CUmemcpy3DOperand_st__bindgen_ty_1__bindgen_ty_1 {
                ptr: address,
                rowLength: pitch,
                layerHeight: rows,
                locHint: hint,
            },
        },
    }
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
