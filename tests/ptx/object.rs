//! The texture or surface of a form: its texels, and how they are read.

use crate::common::random::Random;

/// The arrangement of texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    OneD,
    TwoD,
    ThreeD,
    OneDLayered,
    TwoDLayered,
    Cubemap,
    CubemapLayered,
    /// Linear memory.
    Linear,
    /// Pitched memory.
    Pitched,
}

/// The numbers of texels. `Unorm` and `Snorm` are formats of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    U8,
    U16,
    U32,
    S8,
    S16,
    S32,
    F16,
    F32,
    Unorm8,
    Unorm16,
    Snorm8,
    Snorm16,
}

impl Number {
    /// Returns the bytes of a channel.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::S8 | Self::Unorm8 | Self::Snorm8 => 1,
            Self::U16 | Self::S16 | Self::F16 | Self::Unorm16 | Self::Snorm16 => 2,
            Self::U32 | Self::S32 | Self::F32 => 4,
        }
    }
}

/// What the texels are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Random,
    /// 0 and 1 in turn, along each axis.
    Checkered,
    /// Each value of 8 bits in turn, in the highest byte of a channel.
    Ascending,
}

/// How a texture is read, as in `CUDA_TEXTURE_DESC`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sampler {
    /// 0 is wrap, 1 clamp, 2 mirror, 3 border.
    pub(crate) modes: [u32; 3],
    pub(crate) is_linear: bool,
    pub(crate) flags: u32,
    pub(crate) is_mipmap_linear: bool,
    pub(crate) bias: f32,
    pub(crate) levels: [f32; 2],
    pub(crate) border: [f32; 4],
    pub(crate) anisotropy: u32,
}

/// The flags of a sampler.
pub(crate) const INTEGERS: u32 = 1;
pub(crate) const NORMALIZED: u32 = 2;
pub(crate) const SRGB: u32 = 0x10;
pub(crate) const SEAMLESS: u32 = 0x40;

impl Default for Sampler {
    fn default() -> Self {
        Self {
            modes: [1; 3],
            is_linear: false,
            flags: 0,
            is_mipmap_linear: false,
            bias: 0.0,
            levels: [0.0, 20.0],
            border: [0.25, -0.75, 3.0, 1.0e6],
            anisotropy: 0,
        }
    }
}

/// A texture, or a surface.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    pub(crate) shape: Shape,
    /// In texels. Dimensions that the shape does not have are 0; the last one counts layers and faces.
    pub(crate) extent: [usize; 3],
    pub(crate) levels: usize,
    pub(crate) number: Number,
    pub(crate) channels: usize,
    pub(crate) content: Content,
    /// `None` for a surface.
    pub(crate) sampler: Option<Sampler>,
    /// Whether the array is made for `tld4`.
    pub(crate) is_gathered: bool,
}

impl Object {
    /// Returns a texture of random texels.
    pub(crate) fn texture(
        shape: Shape,
        extent: [usize; 3],
        number: Number,
        channels: usize,
        sampler: Sampler,
    ) -> Self {
        let (content, sampler) = (Content::Random, Some(sampler));
        let is_gathered = false;
        Self { shape, extent, levels: 1, number, channels, content, sampler, is_gathered }
    }

    /// Returns a surface of random texels.
    pub(crate) fn surface(
        shape: Shape,
        extent: [usize; 3],
        number: Number,
        channels: usize,
    ) -> Self {
        let texture = Self::texture(shape, extent, number, channels, Sampler::default());
        Self { sampler: None, ..texture }
    }

    /// Returns the bytes of a texel.
    pub(crate) fn texel(&self) -> usize {
        self.number.bytes() * self.channels
    }

    /// Returns whether the last dimension is not halved from level to level.
    fn has_layers(&self) -> bool {
        !matches!(self.shape, Shape::OneD | Shape::TwoD | Shape::ThreeD)
    }

    /// Returns the extent of a level.
    pub(crate) fn extent_of(&self, level: usize) -> [usize; 3] {
        let [width, height, depth] = self.extent;
        let half = |extent: usize| match extent {
            0 => 0,
            extent => (extent >> level).max(1),
        };
        [half(width), half(height), if self.has_layers() { depth } else { half(depth) }]
    }

    /// Returns the texels of a level, row after row.
    pub(crate) fn texels(&self, level: usize) -> Vec<u8> {
        let [width, height, depth] = self.extent_of(level).map(|extent| extent.max(1));
        let mut random = Random(7 + level as u64);
        let mut bytes = Vec::new();
        for index in 0..width * height * depth {
            let [x, y, z] = [index % width, index / width % height, index / width / height];
            for channel in 0..self.channels {
                let one = (x + y + z + channel) % 2 == 1;
                let value = match self.content {
                    Content::Random => self.random(&mut random),
                    Content::Checkered => self.checkered(one),
                    Content::Ascending => {
                        let high = (index + 64 * channel) % 256;
                        ((high as u32) << (8 * self.number.bytes() - 8)) | (index as u32 / 256)
                    }
                };
                bytes.extend(&value.to_le_bytes()[..self.number.bytes()]);
            }
        }
        bytes
    }

    fn random(&self, random: &mut Random) -> u32 {
        let bits = random.next();
        match self.number {
            // From 2^-6 to 2^6.
            Number::F32 => bits as u32 & 0x807f_ffff | (121 + random.below(12) as u32) << 23,
            Number::F16 => bits as u32 & 0x83ff | (9 + random.below(12) as u32) << 10,
            _ => bits as u32,
        }
    }

    fn checkered(&self, one: bool) -> u32 {
        match (one, self.number) {
            (false, _) => 0,
            (true, Number::F32) => 0x3f80_0000,
            (true, Number::F16) => 0x3c00,
            (true, Number::S8 | Number::Snorm8) => 0x7f,
            (true, Number::S16 | Number::Snorm16) => 0x7fff,
            (true, _) => u32::MAX,
        }
    }
}
