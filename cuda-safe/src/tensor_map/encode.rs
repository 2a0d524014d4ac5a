//! The encoding of tensor maps.

use super::check::{self, MAX_RANK};
use super::options::{Im2colBox, Im2colWideBox, TensorLayout, TensorMapOptions, TiledBox};
use crate::call::{Result, call};
use crate::context::Context;
use core::ffi::c_void;
use cuda_sys::{CUtensorMap, CUtensorMapInterleave};
use std::ops::RangeInclusive;

/// The part of a tensor that one copy transfers: a [`TiledBox`], an [`Im2colBox`] or an [`Im2colWideBox`].
pub trait TensorBox: Encode {}

impl TensorBox for TiledBox<'_> {}
impl TensorBox for Im2colBox<'_> {}
impl TensorBox for Im2colWideBox<'_> {}

const NO_INTERLEAVE: CUtensorMapInterleave = CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE;
const IM2COL_RANKS: (RangeInclusive<usize>, &str) =
    (3..=5, "must have 3, 4 or 5 dimensions for im2col copies");

/// The memory in which a tensor must be, and its context.
#[derive(Clone, Copy, Debug)]
pub struct TensorRange<'a> {
    pub(super) address: u64,
    pub(super) bytes: usize,
    pub(super) context: &'a Context,
}

/// The checked arguments that all encodings have.
#[derive(Debug)]
pub struct Arguments<'a> {
    layout: TensorLayout<'a>,
    rank: u32,
    address: *mut c_void,
    element_strides: &'a [u32],
    options: TensorMapOptions,
}

/// How a shape is checked and passed to the driver. Private, so that the crate has all implementations of
/// [`TensorBox`].
pub trait Encode: Copy {
    /// The possible numbers of dimensions of the tensor, and what the error says about them.
    const RANKS: (RangeInclusive<usize>, &'static str);

    fn element_strides(&self) -> &[u32];

    /// Checks what only this kind of shape has.
    fn check(&self, layout: TensorLayout<'_>, options: TensorMapOptions) -> Result<()>;

    /// Calls the driver, which requires a current context.
    fn call(&self, its: &Arguments<'_>, raw: &mut CUtensorMap) -> Result<()>;

    /// Encodes a map into `raw`. Returns the size of the memory from the first to the last element of the
    /// tensor.
    #[inline(always)]
    fn encode(
        self,
        memory: TensorRange<'_>,
        layout: TensorLayout<'_>,
        options: TensorMapOptions,
        raw: &mut CUtensorMap,
    ) -> Result<usize> {
        let extent_bytes = check::layout(layout, Self::RANKS)?;
        check::address(memory.address)?;
        check::extent(extent_bytes, memory.bytes)?;
        check::options(options, layout.data_type)?;
        let (rank, element_strides) = (layout.dims.len(), self.element_strides());
        check::element_strides(element_strides, rank)?;
        self.check(layout, options)?;
        let element_strides = match element_strides {
            [] => &[1; MAX_RANK],
            given => given,
        };
        let address = pointer(memory.address);
        // The rank is at most 5.
        let its = Arguments { layout, rank: rank as u32, address, element_strides, options };
        let _current = memory.context.enter()?;
        self.call(&its, raw)?;
        Ok(extent_bytes)
    }
}

/// Returns an address of device memory as the driver takes it for tensor maps. The host does not access
/// it.
#[inline]
pub(super) fn pointer(address: u64) -> *mut c_void {
    #[allow(clippy::cast_possible_truncation, reason = "64-bit targets only")]
    std::ptr::without_provenance_mut(address as usize)
}

impl Encode for TiledBox<'_> {
    const RANKS: (RangeInclusive<usize>, &'static str) =
        (1..=5, "must have from 1 to 5 dimensions");

    #[inline(always)]
    fn element_strides(&self) -> &[u32] {
        self.element_strides
    }

    #[inline(always)]
    fn check(&self, layout: TensorLayout<'_>, options: TensorMapOptions) -> Result<()> {
        check::tiled_box(self.dims, layout.dims.len())?;
        check::inner("box dims", self.dims[0], layout.data_type, options.swizzle)
    }

    #[inline(always)]
    fn call(&self, its: &Arguments<'_>, raw: &mut CUtensorMap) -> Result<()> {
        // SAFETY: the first pointer is to the map. Each list has a value for each dimension of
        // the tensor. The driver does not access the memory.
        unsafe {
            call!(cuTensorMapEncodeTiled(
                &raw mut *raw,
                its.layout.data_type.raw(),
                its.rank,
                its.address,
                its.layout.dims.as_ptr(),
                its.layout.strides.as_ptr(),
                self.dims.as_ptr(),
                its.element_strides.as_ptr(),
                NO_INTERLEAVE,
                its.options.swizzle.raw(),
                its.options.l2_promotion.raw(),
                its.options.fill.raw()
            ))
        }
    }
}

impl Encode for Im2colBox<'_> {
    const RANKS: (RangeInclusive<usize>, &'static str) = IM2COL_RANKS;

    #[inline(always)]
    fn element_strides(&self) -> &[u32] {
        self.element_strides
    }

    #[inline(always)]
    fn check(&self, layout: TensorLayout<'_>, options: TensorMapOptions) -> Result<()> {
        check::corner("lower_corner", self.lower_corner, layout.dims.len())?;
        check::corner("upper_corner", self.upper_corner, layout.dims.len())?;
        let column = (self.channels_per_pixel, self.pixels_per_column);
        check::column(column, layout.data_type, options.swizzle)
    }

    #[inline(always)]
    fn call(&self, its: &Arguments<'_>, raw: &mut CUtensorMap) -> Result<()> {
        // SAFETY: the first pointer is to the map. Each list has a value for each dimension of
        // the tensor, and each corner has one for each spatial dimension. The driver does not access the
        // memory.
        unsafe {
            call!(cuTensorMapEncodeIm2col(
                &raw mut *raw,
                its.layout.data_type.raw(),
                its.rank,
                its.address,
                its.layout.dims.as_ptr(),
                its.layout.strides.as_ptr(),
                self.lower_corner.as_ptr(),
                self.upper_corner.as_ptr(),
                self.channels_per_pixel,
                self.pixels_per_column,
                its.element_strides.as_ptr(),
                NO_INTERLEAVE,
                its.options.swizzle.raw(),
                its.options.l2_promotion.raw(),
                its.options.fill.raw()
            ))
        }
    }
}

impl Encode for Im2colWideBox<'_> {
    const RANKS: (RangeInclusive<usize>, &'static str) = IM2COL_RANKS;

    #[inline(always)]
    fn element_strides(&self) -> &[u32] {
        self.element_strides
    }

    #[inline(always)]
    fn check(&self, layout: TensorLayout<'_>, options: TensorMapOptions) -> Result<()> {
        // The limits are those of one spatial dimension.
        check::corner("lower_corner_width", &[self.lower_corner_width], 3)?;
        check::corner("upper_corner_width", &[self.upper_corner_width], 3)?;
        let column = (self.channels_per_pixel, self.pixels_per_column);
        check::column(column, layout.data_type, options.swizzle)
    }

    #[inline(always)]
    fn call(&self, its: &Arguments<'_>, raw: &mut CUtensorMap) -> Result<()> {
        // SAFETY: the first pointer is to the map. Each list has a value for each dimension of
        // the tensor. The driver does not access the memory.
        unsafe {
            call!(cuTensorMapEncodeIm2colWide(
                &raw mut *raw,
                its.layout.data_type.raw(),
                its.rank,
                its.address,
                its.layout.dims.as_ptr(),
                its.layout.strides.as_ptr(),
                self.lower_corner_width,
                self.upper_corner_width,
                self.channels_per_pixel,
                self.pixels_per_column,
                its.element_strides.as_ptr(),
                NO_INTERLEAVE,
                self.mode.raw(),
                its.options.swizzle.raw(),
                its.options.l2_promotion.raw(),
                its.options.fill.raw()
            ))
        }
    }
}
