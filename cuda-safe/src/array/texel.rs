//! The types of texels.

use bytemuck::{AnyBitPattern, NoUninit, Pod, Zeroable};
use cuda_sys::CUarray_format as Raw;

/// A type whose values are texels of an array or a texture: a number, or an array of 2 or 4 numbers.
///
/// The number types of 8, 16 and 32 bits implement it, and arrays of 2 and 4 of them, [`Half`] and
/// [`Normalized`]. Implement it for a type of your own to use its fields as channels:
///
/// ```
/// use cuda_safe::array::{Texel, TexelFormat};
/// use cuda_safe::bytemuck::{Pod, Zeroable};
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Rgba {
///     red: u8,
///     green: u8,
///     blue: u8,
///     alpha: u8,
/// }
///
/// // SAFETY: every field is zeroable.
/// unsafe impl Zeroable for Rgba {}
/// // SAFETY: the type is `repr(C)`, its fields are plain bytes, and it has no padding.
/// unsafe impl Pod for Rgba {}
///
/// impl Texel for Rgba {
///     const FORMAT: TexelFormat = TexelFormat::Unsigned8;
///     const CHANNELS: u32 = 4;
/// }
/// ```
///
/// The size of the type must be that of the channels. This is checked when an array is compiled for it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of texels",
    label = "not a texel",
    note = "use a number of 8, 16 or 32 bits, an array of 2 or 4 of them, `Half` or `Normalized`",
    note = "a texel has 1, 2 or 4 channels: there is no format with 3"
)]
pub trait Texel: NoUninit + AnyBitPattern {
    /// The format of a channel.
    const FORMAT: TexelFormat;
    /// The number of channels: 1, 2 or 4.
    const CHANNELS: u32;
}

/// The format of a channel of a texel. C: `CUarray_format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TexelFormat {
    /// `u8`.
    Unsigned8,
    /// `u16`.
    Unsigned16,
    /// `u32`.
    Unsigned32,
    /// `i8`.
    Signed8,
    /// `i16`.
    Signed16,
    /// `i32`.
    Signed32,
    /// A floating-point number of 16 bits.
    Half,
    /// `f32`.
    Float,
    /// `u8`, which is read as a number from 0 to 1.
    Unorm8,
    /// `u16`, which is read as a number from 0 to 1.
    Unorm16,
    /// `i8`, which is read as a number from -1 to 1.
    Snorm8,
    /// `i16`, which is read as a number from -1 to 1.
    Snorm16,
}

impl TexelFormat {
    /// Every format, with the values of C for 1, 2 and 4 channels.
    const ALL: [(Self, [Raw; 3]); 12] = [
        (Self::Unsigned8, [Raw::CU_AD_FORMAT_UNSIGNED_INT8; 3]),
        (Self::Unsigned16, [Raw::CU_AD_FORMAT_UNSIGNED_INT16; 3]),
        (Self::Unsigned32, [Raw::CU_AD_FORMAT_UNSIGNED_INT32; 3]),
        (Self::Signed8, [Raw::CU_AD_FORMAT_SIGNED_INT8; 3]),
        (Self::Signed16, [Raw::CU_AD_FORMAT_SIGNED_INT16; 3]),
        (Self::Signed32, [Raw::CU_AD_FORMAT_SIGNED_INT32; 3]),
        (Self::Half, [Raw::CU_AD_FORMAT_HALF; 3]),
        (Self::Float, [Raw::CU_AD_FORMAT_FLOAT; 3]),
        (
            Self::Unorm8,
            [
                Raw::CU_AD_FORMAT_UNORM_INT8X1,
                Raw::CU_AD_FORMAT_UNORM_INT8X2,
                Raw::CU_AD_FORMAT_UNORM_INT8X4,
            ],
        ),
        (
            Self::Unorm16,
            [
                Raw::CU_AD_FORMAT_UNORM_INT16X1,
                Raw::CU_AD_FORMAT_UNORM_INT16X2,
                Raw::CU_AD_FORMAT_UNORM_INT16X4,
            ],
        ),
        (
            Self::Snorm8,
            [
                Raw::CU_AD_FORMAT_SNORM_INT8X1,
                Raw::CU_AD_FORMAT_SNORM_INT8X2,
                Raw::CU_AD_FORMAT_SNORM_INT8X4,
            ],
        ),
        (
            Self::Snorm16,
            [
                Raw::CU_AD_FORMAT_SNORM_INT16X1,
                Raw::CU_AD_FORMAT_SNORM_INT16X2,
                Raw::CU_AD_FORMAT_SNORM_INT16X4,
            ],
        ),
    ];

    /// Returns the size of a channel in bytes.
    #[inline]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::Unsigned8 | Self::Signed8 | Self::Unorm8 | Self::Snorm8 => 1,
            Self::Unsigned16 | Self::Signed16 | Self::Half | Self::Unorm16 | Self::Snorm16 => 2,
            Self::Unsigned32 | Self::Signed32 | Self::Float => 4,
        }
    }

    /// Returns whether the channels are integers, which a texture can read as integers or, up to 16 bits,
    /// as fractions.
    #[inline]
    pub const fn is_integer(self) -> bool {
        matches!(
            self,
            Self::Unsigned8
                | Self::Unsigned16
                | Self::Unsigned32
                | Self::Signed8
                | Self::Signed16
                | Self::Signed32
        )
    }

    /// Returns whether the format itself makes integers fractions. Only arrays can have such a format.
    #[inline]
    pub const fn is_normalized(self) -> bool {
        matches!(self, Self::Unorm8 | Self::Unorm16 | Self::Snorm8 | Self::Snorm16)
    }

    /// Returns the value of C for 1, 2 or 4 channels.
    #[inline]
    pub(super) fn raw(self, channels: u32) -> Raw {
        let index = channels.ilog2() as usize;
        let found = Self::ALL.iter().find(|(its, _)| *its == self);
        // Every format is in the table, and the number of channels was checked.
        found.map_or(Raw(0), |(_, raw)| raw[index.min(2)])
    }

    /// Returns the format of a value of C, if it has this number of channels.
    #[inline]
    pub(super) fn from_raw(raw: Raw, channels: u32) -> Option<Self> {
        if !matches!(channels, 1 | 2 | 4) {
            return None;
        }
        let index = channels.ilog2() as usize;
        let found = Self::ALL.iter().find(|(_, its)| its[index] == raw);
        found.map(|(format, _)| *format)
    }
}

/// Checks at compile time that a type has the size of its channels.
pub(super) const fn check_texel<T: Texel>() {
    const {
        assert!(matches!(T::CHANNELS, 1 | 2 | 4), "a texel has 1, 2 or 4 channels");
        assert!(
            size_of::<T>() == T::FORMAT.size_bytes() * T::CHANNELS as usize,
            "the type of a texel has the size of its channels"
        );
    }
}

/// Channels of half precision, as their bits: `Half(u16)`, or `Half([u16; N])` with 2 or 4 channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Half<B>(pub B);

// SAFETY: the type is transparent, so zeros are a value of it as of the field.
unsafe impl<B: Zeroable> Zeroable for Half<B> {}
// SAFETY: the type is transparent, so it is plain data as its field is.
unsafe impl<B: Pod> Pod for Half<B> {}

/// Channels whose integers are read as fractions, in every texture: from 0 to 1 for unsigned integers of
/// 8 and 16 bits, and from -1 to 1 for signed ones.
///
/// A texture of plain integers does the same with [`ReadMode::Normalized`](super::ReadMode::Normalized).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Normalized<B>(pub B);

// SAFETY: the type is transparent, so zeros are a value of it as of the field.
unsafe impl<B: Zeroable> Zeroable for Normalized<B> {}
// SAFETY: the type is transparent, so it is plain data as its field is.
unsafe impl<B: Pod> Pod for Normalized<B> {}

macro_rules! texels {
    ($($channel:ty => $format:ident, $wrapper:ident;)*) => {$(
        texels!($wrapper, $channel, $format, 1);
        texels!($wrapper, [$channel; 2], $format, 2);
        texels!($wrapper, [$channel; 4], $format, 4);
    )*};
    (plain, $ty:ty, $format:ident, $channels:literal) => {
        texels!($ty, $format, $channels);
    };
    ($wrapper:ident, $ty:ty, $format:ident, $channels:literal) => {
        texels!($wrapper<$ty>, $format, $channels);
    };
    ($ty:ty, $format:ident, $channels:literal) => {
        impl Texel for $ty {
            const FORMAT: TexelFormat = TexelFormat::$format;
            const CHANNELS: u32 = $channels;
        }
    };
}

texels! {
    u8 => Unsigned8, plain;
    u16 => Unsigned16, plain;
    u32 => Unsigned32, plain;
    i8 => Signed8, plain;
    i16 => Signed16, plain;
    i32 => Signed32, plain;
    f32 => Float, plain;
    u16 => Half, Half;
    u8 => Unorm8, Normalized;
    u16 => Unorm16, Normalized;
    i8 => Snorm8, Normalized;
    i16 => Snorm16, Normalized;
}
