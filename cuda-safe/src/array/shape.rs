//! Shapes and options of arrays.

use super::array_error;
use super::texel::{Texel, TexelFormat};
use crate::call::{Extent, Result};
use cuda_sys::{
    CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SURFACE_LDST,
    CUDA_ARRAY3D_TEXTURE_GATHER,
};

/// The dimensions of an array, in texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ArrayShape {
    /// One dimension.
    OneD {
        /// The number of texels.
        width: usize,
    },
    /// Two dimensions.
    TwoD {
        /// The number of texels in a row.
        width: usize,
        /// The number of rows.
        height: usize,
    },
    /// Three dimensions.
    ThreeD {
        /// The number of texels in a row.
        width: usize,
        /// The number of rows in a slice.
        height: usize,
        /// The number of slices.
        depth: usize,
    },
    /// Several arrays of one dimension.
    OneDLayered {
        /// The number of texels in a layer.
        width: usize,
        /// The number of layers.
        layers: usize,
    },
    /// Several arrays of two dimensions.
    TwoDLayered {
        /// The number of texels in a row.
        width: usize,
        /// The number of rows in a layer.
        height: usize,
        /// The number of layers.
        layers: usize,
    },
    /// The six square faces of a cube.
    Cubemap {
        /// The number of texels in a row, and of rows in a face.
        width: usize,
    },
    /// The faces of several cubes.
    CubemapLayered {
        /// The number of texels in a row, and of rows in a face.
        width: usize,
        /// The number of cubes.
        cubes: usize,
    },
}

impl ArrayShape {
    /// Returns the extent of copies: layers and faces are slices, and a dimension that the shape does not
    /// have is 1.
    #[inline]
    pub const fn extent(self) -> Extent {
        match self {
            Self::OneD { width } => Extent::new_2d(width, 1),
            Self::TwoD { width, height } => Extent::new_2d(width, height),
            Self::ThreeD { width, height, depth } => Extent::new_3d(width, height, depth),
            Self::OneDLayered { width, layers } => Extent::new_3d(width, 1, layers),
            Self::TwoDLayered { width, height, layers } => Extent::new_3d(width, height, layers),
            Self::Cubemap { width } => Extent::new_3d(width, width, 6),
            Self::CubemapLayered { width, cubes } => {
                Extent::new_3d(width, width, cubes.saturating_mul(6))
            }
        }
    }

    /// Returns the number of levels of a complete mipmapped array: the last level has one texel along
    /// every dimension.
    #[inline]
    pub const fn max_levels(self) -> u32 {
        let Extent { width, height, depth } = self.extent();
        let mut largest = if width > height { width } else { height };
        if matches!(self, Self::ThreeD { .. }) && depth > largest {
            largest = depth;
        }
        match largest {
            0 => 0,
            largest => largest.ilog2() + 1,
        }
    }

    /// Returns the size of the texels in bytes.
    pub(super) fn bytes<T>(self) -> usize {
        let Extent { width, height, depth } = self.extent();
        [height, depth, size_of::<T>()].into_iter().fold(width, usize::saturating_mul)
    }

    /// Returns the shape of a level of a mipmapped array.
    #[inline]
    pub(super) fn level(self, level: u32) -> Self {
        let half = |extent: usize| extent.checked_shr(level).unwrap_or(0).max(1);
        match self {
            Self::OneD { width } => Self::OneD { width: half(width) },
            Self::TwoD { width, height } => Self::TwoD { width: half(width), height: half(height) },
            Self::ThreeD { width, height, depth } => {
                Self::ThreeD { width: half(width), height: half(height), depth: half(depth) }
            }
            Self::OneDLayered { width, layers } => Self::OneDLayered { width: half(width), layers },
            Self::TwoDLayered { width, height, layers } => {
                Self::TwoDLayered { width: half(width), height: half(height), layers }
            }
            Self::Cubemap { width } => Self::Cubemap { width: half(width) },
            Self::CubemapLayered { width, cubes } => {
                Self::CubemapLayered { width: half(width), cubes }
            }
        }
    }

    /// Returns the descriptor of an array of this shape.
    pub(super) fn descriptor<T: Texel>(self, options: ArrayOptions) -> CUDA_ARRAY3D_DESCRIPTOR {
        let Extent { width, height, depth } = self.extent();
        let (has_rows, has_slices, flags) = match self {
            Self::OneD { .. } => (false, false, 0),
            Self::TwoD { .. } => (true, false, 0),
            Self::ThreeD { .. } => (true, true, 0),
            Self::OneDLayered { .. } => (false, true, CUDA_ARRAY3D_LAYERED),
            Self::TwoDLayered { .. } => (true, true, CUDA_ARRAY3D_LAYERED),
            Self::Cubemap { .. } => (true, true, CUDA_ARRAY3D_CUBEMAP),
            Self::CubemapLayered { .. } => {
                (true, true, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED)
            }
        };
        CUDA_ARRAY3D_DESCRIPTOR {
            Width: width,
            Height: if has_rows { height } else { 0 },
            Depth: if has_slices { depth } else { 0 },
            Format: T::FORMAT.raw(T::CHANNELS),
            NumChannels: T::CHANNELS,
            Flags: flags | options.flags(),
        }
    }

    #[inline]
    fn from_raw(raw: &CUDA_ARRAY3D_DESCRIPTOR) -> Self {
        let (width, height, depth) = (raw.Width, raw.Height, raw.Depth);
        let is_layered = raw.Flags & CUDA_ARRAY3D_LAYERED != 0;
        match (raw.Flags & CUDA_ARRAY3D_CUBEMAP != 0, is_layered) {
            (true, false) => Self::Cubemap { width },
            (true, true) => Self::CubemapLayered { width, cubes: depth / 6 },
            (false, true) if height == 0 => Self::OneDLayered { width, layers: depth },
            (false, true) => Self::TwoDLayered { width, height, layers: depth },
            (false, false) if depth != 0 => Self::ThreeD { width, height, depth },
            (false, false) if height != 0 => Self::TwoD { width, height },
            (false, false) => Self::OneD { width },
        }
    }
}

/// Options of a new [`Array`](super::Array).
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ArrayOptions {
    /// Whether kernels can write the array through a [`Surface`](super::Surface).
    pub surface: bool,
    /// Whether kernels can gather four texels of a two-dimensional texture at once (`tex2Dgather`).
    pub gather: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl ArrayOptions {
    #[inline]
    fn flags(self) -> u32 {
        let Self { surface, gather, _non_exhaustive: () } = self;
        let surface = if surface { CUDA_ARRAY3D_SURFACE_LDST } else { 0 };
        let gather = if gather { CUDA_ARRAY3D_TEXTURE_GATHER } else { 0 };
        surface | gather
    }

    #[inline]
    fn from_raw(flags: u32) -> Self {
        Self {
            surface: flags & CUDA_ARRAY3D_SURFACE_LDST != 0,
            gather: flags & CUDA_ARRAY3D_TEXTURE_GATHER != 0,
            _non_exhaustive: (),
        }
    }
}

/// What the driver knows about an array. [`Array::descriptor`](super::Array::descriptor) returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ArrayDescriptor {
    /// The dimensions.
    pub shape: ArrayShape,
    /// The format of a channel, or `None` if this crate does not know it.
    pub format: Option<TexelFormat>,
    /// The number of channels of a texel.
    pub channels: u32,
    /// The options.
    pub options: ArrayOptions,
    /// All flags, as in C.
    pub flags: u32,
}

impl ArrayDescriptor {
    #[inline]
    pub(super) fn from_raw(raw: &CUDA_ARRAY3D_DESCRIPTOR) -> Self {
        Self {
            shape: ArrayShape::from_raw(raw),
            format: TexelFormat::from_raw(raw.Format, raw.NumChannels),
            channels: raw.NumChannels,
            options: ArrayOptions::from_raw(raw.Flags),
            flags: raw.Flags,
        }
    }

    /// Checks that the texels of the array have the type `T`.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array).
    pub(super) fn expect_texels<T: Texel>(&self) -> Result<()> {
        if self.format == Some(T::FORMAT) && self.channels == T::CHANNELS {
            return Ok(());
        }
        let problem = format!(
            "{:?} with {} channels, where {:?} with {} channels are expected",
            self.format,
            self.channels,
            T::FORMAT,
            T::CHANNELS
        );
        Err(array_error("the format", problem))
    }
}
