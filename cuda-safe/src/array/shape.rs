//! Shapes and options of arrays, and the limits of a device for them. The driver accepts some arrays that exceed
//! the limits (measured, driver 580), and the hardware then reads or writes other texels.

use super::texel::{Texel, TexelFormat};
use super::{array_error, texture_error};
use crate::call::{Extent, Result, refuse_if};
use crate::device::attribute::Attribute;
use crate::device::{Device, attribute};
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
    pub(crate) fn descriptor<T: Texel>(self, options: ArrayOptions) -> CUDA_ARRAY3D_DESCRIPTOR {
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

/// A dimension, its size, and the attribute with the largest size.
type Bound = (&'static str, usize, Attribute<u32>);

#[inline]
fn within(device: &Device, bounds: &[Bound]) -> Result<Option<(&'static str, usize, u32)>> {
    for (what, size, attribute) in bounds {
        let most = device.attribute(*attribute)?;
        if *size > most as usize {
            return Ok(Some((what, *size, most)));
        }
    }
    Ok(None)
}

/// Checks the dimensions of a new array.
///
/// # Errors
/// [`Invalid::Array`](crate::Invalid::Array); errors of the driver.
#[inline]
pub(super) fn check_array(
    device: &Device,
    shape: ArrayShape,
    options: ArrayOptions,
    is_mipmapped: bool,
) -> Result<()> {
    if shape.extent().is_empty() {
        return Err(array_error("the shape", format!("{shape:?} has no texels")));
    }
    if options.gather && !matches!(shape, ArrayShape::TwoD { .. }) {
        let problem = "only a two-dimensional array has gathers".to_owned();
        return Err(array_error("the option gather", problem));
    }
    let dimensions = dimensions(shape);
    let exceeds = |name: usize, limits: &[Attribute<u32>]| {
        let bound = |((names, size), limit): (&([_; 2], _), _)| (names[name], *size, limit);
        let bounds: Vec<Bound> = dimensions.iter().zip(limits.iter().copied()).map(bound).collect();
        within(device, &bounds)
    };
    let mut exceeded = exceeds(0, textures(shape, options.gather, is_mipmapped))?;
    if exceeded.is_some() && matches!(shape, ArrayShape::ThreeD { .. }) {
        // Devices support a second shape of three-dimensional textures.
        exceeded = exceeds(0, &FLAT_VOLUME)?.and(exceeded);
    }
    if exceeded.is_none() && options.surface {
        exceeded = exceeds(1, surfaces(shape))?;
    }
    match exceeded {
        None => Ok(()),
        Some((what, size, most)) => Err(array_error(
            what,
            format!("{size} is more than the device supports for {shape:?}, which is {most}"),
        )),
    }
}

/// Returns the dimensions of a shape: the names of each, for textures and for surfaces, and its size.
#[inline]
fn dimensions(shape: ArrayShape) -> Vec<([&'static str; 2], usize)> {
    let extent = shape.extent();
    let width = (["the width", "the width of a surface"], extent.width);
    let height = (["the height", "the height of a surface"], extent.height);
    let depth = (["the depth", "the depth of a surface"], extent.depth);
    let layers = (["the number of layers", "the number of layers of a surface"], extent.depth);
    match shape {
        ArrayShape::OneD { .. } | ArrayShape::Cubemap { .. } => vec![width],
        ArrayShape::TwoD { .. } => vec![width, height],
        ArrayShape::ThreeD { .. } => vec![width, height, depth],
        ArrayShape::OneDLayered { .. } | ArrayShape::CubemapLayered { .. } => vec![width, layers],
        ArrayShape::TwoDLayered { .. } => vec![width, height, layers],
    }
}

/// Returns the limits of the dimensions of a texture.
#[inline]
fn textures(shape: ArrayShape, gather: bool, is_mipmapped: bool) -> &'static [Attribute<u32>] {
    use attribute as most;
    match shape {
        ArrayShape::OneD { .. } if is_mipmapped => &[most::MAXIMUM_TEXTURE1D_MIPMAPPED_WIDTH],
        ArrayShape::OneD { .. } => &[most::MAXIMUM_TEXTURE1D_WIDTH],
        ArrayShape::TwoD { .. } if is_mipmapped => {
            &[most::MAXIMUM_TEXTURE2D_MIPMAPPED_WIDTH, most::MAXIMUM_TEXTURE2D_MIPMAPPED_HEIGHT]
        }
        ArrayShape::TwoD { .. } if gather => {
            &[most::MAXIMUM_TEXTURE2D_GATHER_WIDTH, most::MAXIMUM_TEXTURE2D_GATHER_HEIGHT]
        }
        ArrayShape::TwoD { .. } => &[most::MAXIMUM_TEXTURE2D_WIDTH, most::MAXIMUM_TEXTURE2D_HEIGHT],
        ArrayShape::ThreeD { .. } => &[
            most::MAXIMUM_TEXTURE3D_WIDTH,
            most::MAXIMUM_TEXTURE3D_HEIGHT,
            most::MAXIMUM_TEXTURE3D_DEPTH,
        ],
        ArrayShape::OneDLayered { .. } => {
            &[most::MAXIMUM_TEXTURE1D_LAYERED_WIDTH, most::MAXIMUM_TEXTURE1D_LAYERED_LAYERS]
        }
        ArrayShape::TwoDLayered { .. } => &[
            most::MAXIMUM_TEXTURE2D_LAYERED_WIDTH,
            most::MAXIMUM_TEXTURE2D_LAYERED_HEIGHT,
            most::MAXIMUM_TEXTURE2D_LAYERED_LAYERS,
        ],
        ArrayShape::Cubemap { .. } => &[most::MAXIMUM_TEXTURECUBEMAP_WIDTH],
        ArrayShape::CubemapLayered { .. } => &[
            most::MAXIMUM_TEXTURECUBEMAP_LAYERED_WIDTH,
            most::MAXIMUM_TEXTURECUBEMAP_LAYERED_LAYERS,
        ],
    }
}

/// The limits of the second shape of three-dimensional textures.
const FLAT_VOLUME: [Attribute<u32>; 3] = [
    attribute::MAXIMUM_TEXTURE3D_WIDTH_ALTERNATE,
    attribute::MAXIMUM_TEXTURE3D_HEIGHT_ALTERNATE,
    attribute::MAXIMUM_TEXTURE3D_DEPTH_ALTERNATE,
];

/// Returns the limits of the dimensions of a surface.
#[inline]
fn surfaces(shape: ArrayShape) -> &'static [Attribute<u32>] {
    use attribute as most;
    match shape {
        ArrayShape::OneD { .. } => &[most::MAXIMUM_SURFACE1D_WIDTH],
        ArrayShape::TwoD { .. } => &[most::MAXIMUM_SURFACE2D_WIDTH, most::MAXIMUM_SURFACE2D_HEIGHT],
        ArrayShape::ThreeD { .. } => &[
            most::MAXIMUM_SURFACE3D_WIDTH,
            most::MAXIMUM_SURFACE3D_HEIGHT,
            most::MAXIMUM_SURFACE3D_DEPTH,
        ],
        ArrayShape::OneDLayered { .. } => {
            &[most::MAXIMUM_SURFACE1D_LAYERED_WIDTH, most::MAXIMUM_SURFACE1D_LAYERED_LAYERS]
        }
        ArrayShape::TwoDLayered { .. } => &[
            most::MAXIMUM_SURFACE2D_LAYERED_WIDTH,
            most::MAXIMUM_SURFACE2D_LAYERED_HEIGHT,
            most::MAXIMUM_SURFACE2D_LAYERED_LAYERS,
        ],
        ArrayShape::Cubemap { .. } => &[most::MAXIMUM_SURFACECUBEMAP_WIDTH],
        ArrayShape::CubemapLayered { .. } => &[
            most::MAXIMUM_SURFACECUBEMAP_LAYERED_WIDTH,
            most::MAXIMUM_SURFACECUBEMAP_LAYERED_LAYERS,
        ],
    }
}

/// Checks linear memory of a texture.
///
/// # Errors
/// [`Invalid::Texture`](crate::Invalid::Texture); errors of the driver.
#[inline]
pub(super) fn check_linear(device: &Device, address: u64, len: usize) -> Result<()> {
    refuse_if!(len == 0, texture_error("the memory", "a texture has at least one element"));
    check_alignment(device, address)?;
    let bounds = [("the number of elements", len, attribute::MAXIMUM_TEXTURE1D_LINEAR_WIDTH)];
    exceeds_none(device, &bounds)
}

/// Checks rows of a texture. The pitch is in bytes.
///
/// # Errors
/// [`Invalid::Texture`](crate::Invalid::Texture); errors of the driver.
#[inline]
pub(super) fn check_pitched(
    device: &Device,
    address: u64,
    [width, height]: [usize; 2],
    pitch: usize,
) -> Result<()> {
    if width == 0 || height == 0 {
        let problem = "a texture has at least one element";
        return Err(texture_error("the memory", problem));
    }
    check_alignment(device, address)?;
    let between = device.attribute(attribute::TEXTURE_PITCH_ALIGNMENT)? as usize;
    if pitch % between.max(1) != 0 {
        let problem = format!("{pitch} bytes are not a multiple of {between} bytes");
        return Err(texture_error("the pitch", problem));
    }
    let bounds = [
        ("the width", width, attribute::MAXIMUM_TEXTURE2D_LINEAR_WIDTH),
        ("the height", height, attribute::MAXIMUM_TEXTURE2D_LINEAR_HEIGHT),
        ("the pitch", pitch, attribute::MAXIMUM_TEXTURE2D_LINEAR_PITCH),
    ];
    exceeds_none(device, &bounds)
}

#[inline]
fn check_alignment(device: &Device, address: u64) -> Result<()> {
    let alignment = u64::from(device.attribute(attribute::TEXTURE_ALIGNMENT)?).max(1);
    if address % alignment == 0 {
        return Ok(());
    }
    let problem = format!(
        "{address:#x} is not a multiple of {alignment} bytes: begin the texture at the start of an \
         allocation"
    );
    Err(texture_error("the address", problem))
}

#[inline]
fn exceeds_none(device: &Device, bounds: &[Bound]) -> Result<()> {
    match within(device, bounds)? {
        None => Ok(()),
        Some((what, size, most)) => Err(texture_error(
            what,
            format!("{size} is more than the device supports, which is {most}"),
        )),
    }
}
