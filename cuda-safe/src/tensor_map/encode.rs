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

/// The arguments that all encodings have.
struct Common<'a> {
    data_type: TensorDataType,
    rank: u32,
    address: *mut c_void,
    dims: &'a [u64],
    strides: &'a [u64],
    element_strides: &'a [u32],
    extent_bytes: usize,
}

impl<'a> Common<'a> {
    #[inline]
    fn new(
        memory: TensorRange<'_>,
        layout: TensorLayout<'a>,
        (ranks, rule): (std::ops::RangeInclusive<usize>, &'static str),
        element_strides: &'a [u32],
        options: TensorMapOptions,
    ) -> Result<Self> {
        let extent_bytes = check::layout(layout, ranks, rule)?;
        check::address(memory.address)?;
        check::extent(extent_bytes, memory.bytes)?;
        check::options(options, layout.data_type)?;
        let rank = layout.dims.len();
        check::element_strides(element_strides, rank)?;
        let TensorLayout { data_type, dims, strides } = layout;
        Ok(Self {
            data_type,
            // At most 5.
            rank: rank as u32,
            address: pointer(memory.address),
            dims,
            strides,
            element_strides: match element_strides {
                [] => &[1; MAX_RANK],
                given => given,
            },
            extent_bytes,
        })
    }
}

/// Returns an address of device memory as the driver takes it for tensor maps. The host does not access
/// it.
#[inline]
pub(super) fn pointer(address: u64) -> *mut c_void {
    #[allow(clippy::cast_possible_truncation, reason = "64-bit targets only")]
    std::ptr::without_provenance_mut(address as usize)
}

/// Encodes a map into `raw`. Returns the size of the memory from the first to the last element of the tensor. This
/// applies to the next functions too.
///
/// The driver requires a current context.
#[inline]
pub(super) fn tiled(
    memory: TensorRange<'_>,
    layout: TensorLayout<'_>,
    shape: TiledBox<'_>,
    options: TensorMapOptions,
    raw: &mut CUtensorMap,
) -> Result<usize> {
    let ranks = (1..=5, "must have from 1 to 5 dimensions");
    let its = Common::new(memory, layout, ranks, shape.element_strides, options)?;
    check::tiled_box(shape.dims, layout.dims.len())?;
    check::inner("box dims", shape.dims[0], its.data_type, options.swizzle)?;
    let _current = memory.context.enter()?;
    // SAFETY: the first pointer is to the map. Each list has a value for each dimension of
    // the tensor. The driver does not access the memory.
    unsafe {
        call!(cuTensorMapEncodeTiled(
            &raw mut *raw,
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
    }?;
    Ok(its.extent_bytes)
}

#[inline]
pub(super) fn im2col(
    memory: TensorRange<'_>,
    layout: TensorLayout<'_>,
    shape: Im2colBox<'_>,
    options: TensorMapOptions,
    raw: &mut CUtensorMap,
) -> Result<usize> {
    let ranks = (3..=5, IM2COL_RANKS);
    let its = Common::new(memory, layout, ranks, shape.element_strides, options)?;
    check::corner("lower_corner", shape.lower_corner, layout.dims.len())?;
    check::corner("upper_corner", shape.upper_corner, layout.dims.len())?;
    let column = (shape.channels_per_pixel, shape.pixels_per_column);
    check::column(column, its.data_type, options.swizzle)?;
    let _current = memory.context.enter()?;
    // SAFETY: the first pointer is to the map. Each list has a value for each dimension of
    // the tensor, and each corner has one for each spatial dimension. The driver does not access the
    // memory.
    unsafe {
        call!(cuTensorMapEncodeIm2col(
            &raw mut *raw,
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
    }?;
    Ok(its.extent_bytes)
}

#[inline]
pub(super) fn im2col_wide(
    memory: TensorRange<'_>,
    layout: TensorLayout<'_>,
    shape: Im2colWideBox<'_>,
    options: TensorMapOptions,
    raw: &mut CUtensorMap,
) -> Result<usize> {
    let ranks = (3..=5, IM2COL_RANKS);
    let its = Common::new(memory, layout, ranks, shape.element_strides, options)?;
    // The limits are those of one spatial dimension.
    check::corner("lower_corner_width", &[shape.lower_corner_width], 3)?;
    check::corner("upper_corner_width", &[shape.upper_corner_width], 3)?;
    let column = (shape.channels_per_pixel, shape.pixels_per_column);
    check::column(column, its.data_type, options.swizzle)?;
    let _current = memory.context.enter()?;
    // SAFETY: the first pointer is to the map. Each list has a value for each dimension of
    // the tensor. The driver does not access the memory.
    unsafe {
        call!(cuTensorMapEncodeIm2colWide(
            &raw mut *raw,
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
    }?;
    Ok(its.extent_bytes)
}
