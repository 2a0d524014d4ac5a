//! Textures and surfaces: what a device says of them, and how the engine reads them.
//!
//! A [`Device`](crate::Device) describes the texture or surface of a handle. The engine finds the texels, reads them
//! through [`Device::region`](crate::Device::region), and filters them as a GPU does: with weights of 8 bits.

mod filter;
mod format;
mod place;
mod read;
mod srgb;

pub use format::{Format, Number};
pub use place::Boundary;
pub use read::{Coordinates, Lod, Read};

/// The texels of a texture or surface.
#[derive(Clone, Debug, PartialEq)]
pub struct Texels {
    /// The format of a texel.
    pub format: Format,
    /// The levels of a mipmap, the largest first. Other textures have one.
    pub levels: Vec<Level>,
    /// The number of layers, or 0 without layers. A layer of a cubemap has six faces.
    pub layers: u32,
    /// Whether the slices are the faces of cubes.
    pub is_cubemap: bool,
    /// Whether the texels are in linear memory, which is no array.
    pub is_memory: bool,
}

/// A level of a mipmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// The address of the first texel.
    pub address: u64,
    /// The width, height and depth in texels. Height and depth are 0 if the texels have fewer dimensions; layers and
    /// faces do not count.
    pub extent: [u32; 3],
    /// The bytes from a row to the next.
    pub pitch: u64,
    /// The bytes from a slice, layer or face to the next.
    pub slice: u64,
}

/// A texture: texels, and how they are read.
#[derive(Clone, Debug, PartialEq)]
pub struct Texture {
    /// The texels.
    pub texels: Texels,
    /// How they are read.
    pub sampler: Sampler,
}

/// How the texels of a texture are read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampler {
    /// What coordinates outside of the texture mean, along each axis.
    pub address_modes: [AddressMode; 3],
    /// Whether the nearest texels are interpolated.
    pub is_linear: bool,
    /// Whether the nearest levels are interpolated.
    pub is_mipmap_linear: bool,
    /// Whether coordinates from 0 to 1 cover the texture.
    pub is_normalized: bool,
    /// The color outside of the texture.
    pub border: [f32; 4],
    /// The number that is added to a level.
    pub level_bias: f32,
    /// The least and the greatest level that is read.
    pub levels: [f32; 2],
}

/// What coordinates outside of a texture mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressMode {
    /// The texture repeats, if coordinates are normalized. Otherwise as `Clamp`.
    Wrap,
    /// The nearest texel.
    Clamp,
    /// The texture repeats mirrored, if coordinates are normalized. Otherwise as `Clamp`.
    Mirror,
    /// The color of the border.
    Border,
}

impl Texels {
    /// Returns the bytes of the rows, from the first to the last texel of a row.
    fn row(&self, level: &Level) -> u64 {
        u64::from(level.extent[0]) * u64::from(self.format.bytes())
    }

    /// Returns the number of slices of a level.
    fn slices(&self, level: &Level) -> u32 {
        match (self.is_cubemap, self.layers) {
            (true, layers) => 6 * layers.max(1),
            (false, 0) => level.extent[2].max(1),
            (false, layers) => layers,
        }
    }
}
