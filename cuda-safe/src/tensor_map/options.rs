//! The shapes and options of tensor maps.

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

/// The type of the elements of a tensor (`CUtensorMapDataType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorDataType {
    /// 8-bit integers.
    U8,
    /// 16-bit integers.
    U16,
    /// 32-bit integers.
    U32,
    /// 32-bit signed integers.
    I32,
    /// 64-bit integers.
    U64,
    /// 64-bit signed integers.
    I64,
    /// 16-bit floating-point numbers.
    F16,
    /// 32-bit floating-point numbers.
    F32,
    /// 64-bit floating-point numbers.
    F64,
    /// 16-bit floating-point numbers with an exponent of 8 bits.
    BF16,
    /// 32-bit floating-point numbers, whose subnormal values become zero.
    F32Ftz,
    /// 32-bit floating-point numbers that are rounded to a mantissa of 10 bits.
    TF32,
    /// As `TF32`, and subnormal values become zero.
    TF32Ftz,
}

impl TensorDataType {
    #[inline]
    pub(super) fn raw(self) -> CUtensorMapDataType {
        match self {
            Self::U8 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
            Self::U16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT16,
            Self::U32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT32,
            Self::I32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT32,
            Self::U64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT64,
            Self::I64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_INT64,
            Self::F16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
            Self::F32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
            Self::F64 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT64,
            Self::BF16 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
            Self::F32Ftz => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ,
            Self::TF32 => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,
            Self::TF32Ftz => CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ,
        }
    }

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

/// How the elements of a box are arranged in shared memory, so that threads access different banks
/// (`CUtensorMapSwizzle`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Swizzle {
    /// In order.
    #[default]
    None,
    /// Chunks of 16 bytes are exchanged within 32 bytes.
    Span32,
    /// Chunks of 16 bytes are exchanged within 64 bytes.
    Span64,
    /// Chunks of 16 bytes are exchanged within 128 bytes.
    Span128,
    /// Chunks of 32 bytes are exchanged within 128 bytes. Since CUDA 12.8; needs compute capability
    /// 10.0.
    Span128Atom32,
    /// Chunks of 32 bytes are exchanged within 128 bytes, and their halves of 8 bytes in every other
    /// row. Since CUDA 12.8; needs compute capability 10.0.
    Span128Atom32Flip8,
    /// Chunks of 64 bytes are exchanged within 128 bytes. Since CUDA 12.8; needs compute capability
    /// 10.0.
    Span128Atom64,
}

impl Swizzle {
    #[inline]
    pub(super) fn raw(self) -> CUtensorMapSwizzle {
        match self {
            Self::None => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_NONE,
            Self::Span32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_32B,
            Self::Span64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
            Self::Span128 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
            Self::Span128Atom32 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B,
            Self::Span128Atom32Flip8 => {
                CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_32B_FLIP_8B
            }
            Self::Span128Atom64 => CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B_ATOM_64B,
        }
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

/// The size of the reads of a copy from memory into the L2 cache (`CUtensorMapL2promotion`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum L2Promotion {
    /// As needed.
    #[default]
    None,
    /// 64 bytes.
    Bytes64,
    /// 128 bytes.
    Bytes128,
    /// 256 bytes.
    Bytes256,
}

impl L2Promotion {
    #[inline]
    pub(super) fn raw(self) -> CUtensorMapL2promotion {
        match self {
            Self::None => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            Self::Bytes64 => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_64B,
            Self::Bytes128 => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
            Self::Bytes256 => CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        }
    }
}

/// The value of elements outside of a tensor (`CUtensorMapFloatOOBfill`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorFill {
    /// Zero.
    #[default]
    Zero,
    /// A special NaN, which multiply-add instructions of tensor cores treat as zero. For
    /// floating-point elements only.
    NanRequestZeroFma,
}

impl TensorFill {
    #[inline]
    pub(super) fn raw(self) -> CUtensorMapFloatOOBfill {
        match self {
            Self::Zero => CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
            Self::NanRequestZeroFma => {
                CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
            }
        }
    }
}

/// The kind of a wide im2col copy (`CUtensorMapIm2ColWideMode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Im2colWideMode {
    /// Pixels along the width.
    #[default]
    W,
    /// 128 pixels along the width.
    W128,
}

impl Im2colWideMode {
    #[inline]
    pub(super) fn raw(self) -> CUtensorMapIm2ColWideMode {
        match self {
            Self::W => CUtensorMapIm2ColWideMode::CU_TENSOR_MAP_IM2COL_WIDE_MODE_W,
            Self::W128 => CUtensorMapIm2ColWideMode::CU_TENSOR_MAP_IM2COL_WIDE_MODE_W128,
        }
    }
}
