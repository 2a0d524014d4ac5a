//! The shapes and options of tensor maps.

use crate::call::c_enum;
use cuda_sys::{
    CUtensorMapDataType, CUtensorMapFloatOOBfill, CUtensorMapIm2ColWideMode,
    CUtensorMapL2promotion, CUtensorMapSwizzle,
};

/// A tensor in device memory: its elements, and where they are.
///
/// All lists start with the innermost dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorLayout<'l> {
    /// The type of the elements.
    pub data_type: TensorDataType,
    /// The number of elements along each dimension: 1 to 5 dimensions (3 to 5 for im2col), each of 1 to
    /// 2³² elements.
    pub dims: &'l [u64],
    /// The distance in bytes between consecutive indices of each dimension but the innermost, whose
    /// elements are contiguous. Each is a multiple of 16 below 2⁴⁰. The dimensions may be in any order
    /// in memory, but must not overlap.
    pub strides: &'l [u64],
}

/// The part of a tensor that one tiled copy transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TiledBox<'l> {
    /// The number of elements along each dimension, from 1 to 256. The innermost dimension is a multiple
    /// of 16 bytes, and at most the span of the swizzle.
    pub dims: &'l [u32],
    /// The distance in elements between the copied elements of each dimension, from 1 to 8; empty means 1
    /// everywhere. A copy transfers `dims / element_strides` elements, rounded up. The driver ignores the
    /// value of the innermost dimension.
    pub element_strides: &'l [u32],
}

impl<'l> TiledBox<'l> {
    /// Returns a box of contiguous elements.
    #[inline]
    pub const fn new(dims: &'l [u32]) -> Self {
        Self { dims, element_strides: &[] }
    }
}

/// The part of a tensor that one im2col copy transfers: pixels of a bounding box.
///
/// The dimensions of the tensor are channels, then one to three spatial dimensions, then the batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Im2colBox<'l> {
    /// The offset of the lower corner of the bounding box from the start of the tensor, for each spatial
    /// dimension. From -2¹⁵ to 2¹⁵ - 1 with one, from -128 to 127 with two, and from -16 to 15 with three
    /// spatial dimensions.
    pub lower_corner: &'l [i32],
    /// The offset of the upper corner of the bounding box from the end of the tensor, with the same
    /// limits.
    pub upper_corner: &'l [i32],
    /// The number of channels of each pixel, from 1 to 256. Their size is a multiple of 16 bytes, and at
    /// most the span of the swizzle.
    pub channels_per_pixel: u32,
    /// The number of pixels, from 1 to 1024.
    pub pixels_per_column: u32,
    /// See [`TiledBox::element_strides`].
    pub element_strides: &'l [u32],
}

/// The part of a tensor that one wide im2col copy transfers: pixels along the width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Im2colWideBox<'l> {
    /// The offset of the lower corner of the bounding box along the width, from -2¹⁵ to 2¹⁵ - 1.
    pub lower_corner_width: i32,
    /// The offset of the upper corner of the bounding box along the width, from -2¹⁵ to 2¹⁵ - 1.
    pub upper_corner_width: i32,
    /// See [`Im2colBox::channels_per_pixel`].
    pub channels_per_pixel: u32,
    /// See [`Im2colBox::pixels_per_column`].
    pub pixels_per_column: u32,
    /// See [`TiledBox::element_strides`].
    pub element_strides: &'l [u32],
    /// The kind of wide copy.
    pub mode: Im2colWideMode,
}

/// Options of all tensor maps.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TensorMapOptions {
    /// How elements are arranged in shared memory. The default is none.
    pub swizzle: Swizzle,
    /// The size of the reads from memory into the L2 cache. The default is none.
    pub l2_promotion: L2Promotion,
    /// The value of elements outside of the tensor. The default is zero.
    pub fill: TensorFill,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

c_enum! {
    /// The type of the elements of a tensor (`CUtensorMapDataType`).
    #[non_exhaustive]
    pub enum TensorDataType = CUtensorMapDataType {
        /// 8-bit integers.
        U8 = CU_TENSOR_MAP_DATA_TYPE_UINT8,
        /// 16-bit integers.
        U16 = CU_TENSOR_MAP_DATA_TYPE_UINT16,
        /// 32-bit integers.
        U32 = CU_TENSOR_MAP_DATA_TYPE_UINT32,
        /// 32-bit signed integers.
        I32 = CU_TENSOR_MAP_DATA_TYPE_INT32,
        /// 64-bit integers.
        U64 = CU_TENSOR_MAP_DATA_TYPE_UINT64,
        /// 64-bit signed integers.
        I64 = CU_TENSOR_MAP_DATA_TYPE_INT64,
        /// 16-bit floating-point numbers.
        F16 = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        /// 32-bit floating-point numbers.
        F32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        /// 64-bit floating-point numbers.
        F64 = CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
        /// 16-bit floating-point numbers with an exponent of 8 bits.
        BF16 = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        /// 32-bit floating-point numbers, whose subnormal values become zero.
        F32Ftz = CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
        /// 32-bit floating-point numbers that are rounded to a mantissa of 10 bits.
        TF32 = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
        /// As `TF32`, and subnormal values become zero.
        TF32Ftz = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
    }
}

impl TensorDataType {
    /// Returns the size of an element in bytes.
    #[inline]
    pub const fn size_bytes(self) -> u64 {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::U32 | Self::I32 | Self::F32 | Self::F32Ftz | Self::TF32 | Self::TF32Ftz => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    #[inline]
    pub(super) const fn is_integer(self) -> bool {
        matches!(self, Self::U8 | Self::U16 | Self::U32 | Self::I32 | Self::U64 | Self::I64)
    }
}

c_enum! {
    /// How the elements of a box are arranged in shared memory, so that threads access different banks
    /// (`CUtensorMapSwizzle`).
    #[derive(Default)]
    #[non_exhaustive]
    pub enum Swizzle = CUtensorMapSwizzle {
        /// In order.
        #[default]
        None = CU_TENSOR_MAP_SWIZZLE_NONE,
        /// Chunks of 16 bytes are exchanged within 32 bytes.
        Span32 = CU_TENSOR_MAP_SWIZZLE_32B,
        /// Chunks of 16 bytes are exchanged within 64 bytes.
        Span64 = CU_TENSOR_MAP_SWIZZLE_64B,
        /// Chunks of 16 bytes are exchanged within 128 bytes.
        Span128 = CU_TENSOR_MAP_SWIZZLE_128B,
        /// Chunks of 32 bytes are exchanged within 128 bytes. Since CUDA 12.8; needs compute capability
        /// 10.0.
        Span128Atom32 = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B,
        /// Chunks of 32 bytes are exchanged within 128 bytes, and their halves of 8 bytes in every other
        /// row. Since CUDA 12.8; needs compute capability 10.0.
        Span128Atom32Flip8 = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B,
        /// Chunks of 64 bytes are exchanged within 128 bytes. Since CUDA 12.8; needs compute capability
        /// 10.0.
        Span128Atom64 = CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B,
    }
}

impl Swizzle {
    /// Returns the greatest size of the innermost dimension of a box, in bytes.
    #[inline]
    pub(super) const fn span(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Span32 => Some(32),
            Self::Span64 => Some(64),
            Self::Span128
            | Self::Span128Atom32
            | Self::Span128Atom32Flip8
            | Self::Span128Atom64 => Some(128),
        }
    }
}

c_enum! {
    /// The size of the reads of a copy from memory into the L2 cache (`CUtensorMapL2promotion`).
    #[derive(Default)]
    #[non_exhaustive]
    pub enum L2Promotion = CUtensorMapL2promotion {
        /// As needed.
        #[default]
        None = CU_TENSOR_MAP_L2_PROMOTION_NONE,
        /// 64 bytes.
        Bytes64 = CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
        /// 128 bytes.
        Bytes128 = CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        /// 256 bytes.
        Bytes256 = CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    }
}

c_enum! {
    /// The value of elements outside of a tensor (`CUtensorMapFloatOOBfill`).
    #[derive(Default)]
    #[non_exhaustive]
    pub enum TensorFill = CUtensorMapFloatOOBfill {
        /// Zero.
        #[default]
        Zero = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        /// A special NaN, which multiply-add instructions of tensor cores treat as zero. For
        /// floating-point elements only.
        NanRequestZeroFma = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA,
    }
}

c_enum! {
    /// The kind of a wide im2col copy (`CUtensorMapIm2ColWideMode`).
    #[derive(Default)]
    #[non_exhaustive]
    pub enum Im2colWideMode = CUtensorMapIm2ColWideMode {
        /// Pixels along the width.
        #[default]
        W = CU_TENSOR_MAP_IM2COL_WIDE_MODE_W,
        /// 128 pixels along the width.
        W128 = CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128,
    }
}
