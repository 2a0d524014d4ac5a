//! The works of `plain.c` in this folder through `cuda-sys`, line by line.

use super::{ENCODE, OF_SLICES, ON_DEVICE, PART, PARTS, REPLACE};
use crate::raw::{Objects, call};
use crate::work::{Work, Works};
use cuda_sys::{
    CUdeviceptr, CUmemLocation, CUmemcpyAttributes, CUmemcpySrcAccessOrder, CUstream, CUtensorMap,
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapInterleave, CUtensorMapL2promotion,
    CUtensorMapSwizzle,
};
use std::ffi::c_void;
use std::mem::MaybeUninit;

pub(crate) fn works(o: Objects) -> Works {
    let [to, from, ..] = o.buffers;
    let stream = o.streams[0];
    let slices: &'static [u8] = Box::leak(vec![0; PART * PARTS].into_boxed_slice());
    let slices = slices.as_ptr().expose_provenance() as u64;
    let mut replaced = MaybeUninit::uninit();
    encode(to, replaced.as_mut_ptr());
    vec![
        (
            ON_DEVICE,
            Work::each(move || {
                let order = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM;
                copy_parts(to, from, order, stream);
            }),
        ),
        (
            OF_SLICES,
            Work::each(move || {
                let order = CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL;
                copy_parts(to, slices, order, stream);
            }),
        ),
        (ENCODE, Work::each(move || encode(to, MaybeUninit::uninit().as_mut_ptr()))),
        (
            REPLACE,
            Work::batch(move |n| {
                for i in 0..n {
                    let address = pointer(o.buffers[i % 2]);
                    call!(cuTensorMapReplaceAddress(replaced.as_mut_ptr(), address));
                }
            }),
        ),
    ]
}

fn pointer(address: CUdeviceptr) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0))
}

#[inline(always)]
fn copy_parts(
    target: CUdeviceptr,
    source: CUdeviceptr,
    order: CUmemcpySrcAccessOrder,
    stream: CUstream,
) {
    let (mut to, mut from) = ([0; PARTS], [0; PARTS]);
    let (mut sizes, mut first) = ([0; PARTS], 0);
    for part in 0..PARTS {
        to[part] = target + (part * PART) as u64;
        from[part] = source + (part * PART) as u64;
        sizes[part] = PART;
    }
    let mut attributes = CUmemcpyAttributes {
        srcAccessOrder: order,
        srcLocHint: CUmemLocation::default(),
        dstLocHint: CUmemLocation::default(),
        flags: 0,
    };
    call!(cuMemcpyBatchAsync_v2(
        to.as_mut_ptr(),
        from.as_mut_ptr(),
        sizes.as_mut_ptr(),
        PARTS,
        &raw mut attributes,
        &raw mut first,
        1,
        stream
    ));
}

#[inline(always)]
fn encode(memory: CUdeviceptr, map: *mut CUtensorMap) {
    let (dims, strides) = ([32, 32], [128]);
    let (shape, steps) = ([8, 8], [1, 1]);
    call!(cuTensorMapEncodeTiled(
        map,
        CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        2,
        pointer(memory),
        dims.as_ptr(),
        strides.as_ptr(),
        shape.as_ptr(),
        steps.as_ptr(),
        CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
        CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
        CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    ));
}
