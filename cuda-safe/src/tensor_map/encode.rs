//! The encoding of tensor maps.

use super::check::{self, MAX_RANK};
use super::options::{
    Im2colBox, Im2colWideBox, TensorDataType, TensorLayout, TensorMapOptions, TiledBox,
};
use crate::call::{Result, call};
use crate::context::Context;
use core::ffi::c_void;
use cuda_sys::{CUtensorMap, CUtensorMapInterleave};

const NO_INTERLEAVE: CUtensorMapInterleave = CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
const IM2COL_RANKS: &str = "must have 3, 4 or 5 dimensions for im2col copies";

/// The memory in which a tensor must be, and its context.
#[derive(Clone, Copy)]
pub(super) struct TensorRange<'a> {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) context: &'a Context,
}

/// An encoded map.
pub(super) struct Encoded {
    pub(super) raw: CUtensorMap,
    /// The size of the memory from the first to the last element of the tensor.
    pub(super) extent_bytes: usize,
}

/// The arguments that all encodings have.
struct Common {
    data_type: TensorDataType,
    rank: u32,
    address: *mut c_void,
    dims: [u64; MAX_RANK],
    strides: [u64; MAX_RANK],
    element_strides: [u32; MAX_RANK],
    extent_bytes: usize,
}

impl Common {
    #[inline]
    fn new(
        memory: TensorRange<'_>,
        layout: TensorLayout<'_>,
        (ranks, rule): (std::ops::RangeInclusive<usize>, &'static str),
        element_strides: &[u32],
        options: TensorMapOptions,
    ) -> Result<Self> {
        let extent_bytes = check::layout(layout, ranks, rule)?;
        check::address(memory.address)?;
        check::extent(extent_bytes, memory.bytes)?;
        check::options(options, layout.data_type)?;
        let rank = layout.dims.len();
        Ok(Self {
            data_type: layout.data_type,
            rank: u32::try_from(rank).unwrap_or(0),
            address: pointer(memory.address),
            dims: padded(layout.dims, 0),
            strides: padded(layout.strides, 0),
            element_strides: {
                check::element_strides(element_strides, rank)?;
                padded(element_strides, 1)
            },
            extent_bytes,
        })
    }
}

/// Returns the values of at most [`MAX_RANK`] dimensions, followed by `rest`.
fn padded<T: Copy>(values: &[T], rest: T) -> [T; MAX_RANK] {
    let mut all = [rest; MAX_RANK];
    for (place, value) in all.iter_mut().zip(values) {
        *place = *value;
    }
    all
}

/// Returns an address of device memory as the driver takes it for tensor maps. The host does not access
/// it.
#[inline]
pub(super) fn pointer(address: u64) -> *mut c_void {
    #[allow(clippy::cast_possible_truncation, reason = "64-bit targets only")]
    std::ptr::without_provenance_mut(address as usize)
}

/// Encodes a map with the context of the memory current, which the driver requires.
fn encode(
    memory: TensorRange<'_>,
    common: &Common,
    encode: impl FnOnce(*mut CUtensorMap) -> Result<()>,
) -> Result<Encoded> {
    let mut raw = CUtensorMap { opaque: [0; 16] };
    let _current = memory.context.enter()?;
    encode(&raw mut raw)?;
    Ok(Encoded { raw, extent_bytes: common.extent_bytes })
}

#[inline]
pub(super) fn tiled(
    memory: TensorRange<'_>,
    layout: TensorLayout<'_>,
    shape: TiledBox<'_>,
    options: TensorMapOptions,
) -> Result<Encoded> {
    let ranks = (1..=5, "must have from 1 to 5 dimensions");
    let its = Common::new(memory, layout, ranks, shape.element_strides, options)?;
    check::tiled_box(shape.dims, layout.dims.len())?;
    check::inner("box dims", shape.dims[0], its.data_type, options.swizzle)?;
    encode(memory, &its, |raw| {
        // SAFETY: the first pointer is to a local variable. Each list has a value for each dimension of
        // the tensor. The driver does not access the memory.
        unsafe {
            call!(cuTensorMapEncodeTiled(
                raw,
                its.data_type.raw(),
                its.rank,
                its.address,
                its.dims.as_ptr(),
                its.strides.as_ptr(),
                shape.dims.as_ptr(),
                its.element_strides.as_ptr(),
                NO_INTERLEAVE,
                options.swizzle.raw(),
                options.l2_promotion.raw(),
                options.fill.raw()
            ))
        }
    })
}

#[inline]
pub(super) fn im2col(
    memory: TensorRange<'_>,
    layout: TensorLayout<'_>,
    shape: Im2colBox<'_>,
    options: TensorMapOptions,
) -> Result<Encoded> {
    let ranks = (3..=5, IM2COL_RANKS);
    let its = Common::new(memory, layout, ranks, shape.element_strides, options)?;
    check::corner("lower_corner", shape.lower_corner, layout.dims.len())?;
    check::corner("upper_corner", shape.upper_corner, layout.dims.len())?;
    let column = (shape.channels_per_pixel, shape.pixels_per_column);
    check::column(column, its.data_type, options.swizzle)?;
    encode(memory, &its, |raw| {
        // SAFETY: the first pointer is to a local variable. Each list has a value for each dimension of
        // the tensor, and each corner has one for each spatial dimension. The driver does not access the
        // memory.
        unsafe {
            call!(cuTensorMapEncodeIm2col(
                raw,
                its.data_type.raw(),
                its.rank,
                its.address,
                its.dims.as_ptr(),
                its.strides.as_ptr(),
                shape.lower_corner.as_ptr(),
                shape.upper_corner.as_ptr(),
                shape.channels_per_pixel,
                shape.pixels_per_column,
                its.element_strides.as_ptr(),
                NO_INTERLEAVE,
                options.swizzle.raw(),
                options.l2_promotion.raw(),
                options.fill.raw()
            ))
        }
    })
}

#[inline]
pub(super) fn im2col_wide(
    memory: TensorRange<'_>,
    layout: TensorLayout<'_>,
    shape: Im2colWideBox<'_>,
    options: TensorMapOptions,
) -> Result<Encoded> {
    let ranks = (3..=5, IM2COL_RANKS);
    let its = Common::new(memory, layout, ranks, shape.element_strides, options)?;
    // The limits are those of one spatial dimension.
    check::corner("lower_corner_width", &[shape.lower_corner_width], 3)?;
    check::corner("upper_corner_width", &[shape.upper_corner_width], 3)?;
    let column = (shape.channels_per_pixel, shape.pixels_per_column);
    check::column(column, its.data_type, options.swizzle)?;
    encode(memory, &its, |raw| {
        // SAFETY: the first pointer is to a local variable. Each list has a value for each dimension of
        // the tensor. The driver does not access the memory.
        unsafe {
            call!(cuTensorMapEncodeIm2colWide(
                raw,
                its.data_type.raw(),
                its.rank,
                its.address,
                its.dims.as_ptr(),
                its.strides.as_ptr(),
                shape.lower_corner_width,
                shape.upper_corner_width,
                shape.channels_per_pixel,
                shape.pixels_per_column,
                its.element_strides.as_ptr(),
                NO_INTERLEAVE,
                shape.mode.raw(),
                options.swizzle.raw(),
                options.l2_promotion.raw(),
                options.fill.raw()
            ))
        }
    })
}
