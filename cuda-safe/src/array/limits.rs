//! The limits of a device for arrays, textures and surfaces. The driver accepts some arrays that exceed
//! them (measured, driver 580), and the hardware then reads or writes other texels.

use super::shape::{ArrayOptions, ArrayShape};
use super::{array_error, texture_error};
use crate::call::Result;
use crate::device::Device;
use crate::device::attribute;
use crate::device::attribute::Attribute;

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
    if len == 0 {
        let problem = "a texture has at least one element";
        return Err(texture_error("the memory", problem));
    }
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
