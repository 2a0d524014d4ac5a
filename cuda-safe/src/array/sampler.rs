//! How textures are sampled.

use super::texel::{Texel, TexelFormat};
use super::texture_error;
use crate::call::{Result, c_enum};
use cuda_sys::{
    CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION, CU_TRSF_NORMALIZED_COORDINATES,
    CU_TRSF_READ_AS_INTEGER, CU_TRSF_SEAMLESS_CUBEMAP, CU_TRSF_SRGB, CUDA_TEXTURE_DESC,
    CUaddress_mode, CUfilter_mode,
};

/// How a [`Texture`](super::Texture) is sampled: what a kernel reads at coordinates.
///
/// The default reads the texel that contains the coordinates (no filter), takes the nearest texel for
/// coordinates outside of the texture, and counts coordinates in texels.
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sampler {
    /// What coordinates outside of the texture mean, along each dimension.
    pub address_modes: [AddressMode; 3],
    /// How the texels around the coordinates are combined.
    pub filter: FilterMode,
    /// What kernels read from integers.
    pub read: ReadMode,
    /// Whether coordinates are from 0 to 1 instead of counted in texels. Mipmapped arrays require this.
    pub normalized_coordinates: bool,
    /// The channels outside of a texture with [`AddressMode::Border`].
    pub border_color: [f32; 4],
    /// Whether sRGB values are converted to linear ones, in textures of `u8` that are read as fractions.
    pub srgb: bool,
    /// The largest anisotropy, up to 16. 0 means 1.
    pub max_anisotropy: u32,
    /// How two levels of a mipmapped array are combined.
    pub mipmap_filter: FilterMode,
    /// Added to the level of a mipmapped array.
    pub mipmap_level_bias: f32,
    /// The smallest level that is sampled.
    pub min_mipmap_level: f32,
    /// The largest level that is sampled.
    pub max_mipmap_level: f32,
    /// Whether the hardware must not approximate a filter between levels.
    pub disable_trilinear_optimization: bool,
    /// Whether a filter at the edge of a face of a cubemap uses the texels of the neighboring face.
    pub seamless_cubemap: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

c_enum! {
    /// What coordinates outside of a texture mean. C: `CUaddress_mode`.
    #[derive(Default)]
    pub enum AddressMode = CUaddress_mode {
        /// The texture is repeated. Only with [normalized coordinates](Sampler::normalized_coordinates).
        Wrap = CU_TR_ADDRESS_MODE_WRAP,
        /// The nearest texel.
        #[default]
        Clamp = CU_TR_ADDRESS_MODE_CLAMP,
        /// The texture is repeated, reversed each time. Only with
        /// [normalized coordinates](Sampler::normalized_coordinates).
        Mirror = CU_TR_ADDRESS_MODE_MIRROR,
        /// The [border color](Sampler::border_color).
        Border = CU_TR_ADDRESS_MODE_BORDER,
    }
}

c_enum! {
    /// How texels are combined. C: `CUfilter_mode`.
    #[derive(Default)]
    pub enum FilterMode = CUfilter_mode {
        /// The nearest texel.
        #[default]
        Point = CU_TR_FILTER_MODE_POINT,
        /// Interpolation between the texels around the coordinates. The weights have 8 bits.
        Linear = CU_TR_FILTER_MODE_LINEAR,
    }
}

/// What kernels read from texels of integers. C: `CU_TRSF_READ_AS_INTEGER`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReadMode {
    /// The integers themselves. Texels of other formats are read as `f32`.
    #[default]
    Element,
    /// `f32` fractions of the largest integer: from 0 to 1 for unsigned integers of 8 and 16 bits, and from
    /// -1 to 1 for signed ones. Texels of other formats are read as `f32`.
    Normalized,
}

impl ReadMode {
    /// # Errors
    /// [`Invalid::Texture`](crate::Invalid::Texture).
    #[inline]
    pub(super) fn check(self, format: TexelFormat) -> Result<()> {
        let is_wide = format.is_integer() && format.size_bytes() == 4;
        if self == Self::Normalized && is_wide {
            let problem = format!("{format:?} cannot be read as fractions: use ReadMode::Element");
            return Err(texture_error("the read mode", problem));
        }
        Ok(())
    }

    /// Returns whether kernels read integers.
    #[inline]
    fn is_integer(self, format: TexelFormat) -> bool {
        self == Self::Element && format.is_integer()
    }
}

impl Sampler {
    /// Returns the sampler of linear memory, which kernels read by index.
    #[inline]
    pub(super) fn of_linear(read: ReadMode) -> Self {
        Self { read, ..Self::default() }
    }

    /// Checks what the driver accepts although the hardware does something else.
    ///
    /// # Errors
    /// [`Invalid::Texture`](crate::Invalid::Texture).
    pub(super) fn check<T: Texel>(&self) -> Result<()> {
        self.read.check(T::FORMAT)?;
        let reads_integers = self.read.is_integer(T::FORMAT);
        let filters = [self.filter, self.mipmap_filter];
        if reads_integers && filters.contains(&FilterMode::Linear) {
            let problem = format!(
                "{:?} is read as integers, which have no linear filter: use ReadMode::Normalized or \
                 FilterMode::Point",
                T::FORMAT
            );
            return Err(texture_error("the filter", problem));
        }
        let repeats = |mode: &AddressMode| matches!(mode, AddressMode::Wrap | AddressMode::Mirror);
        if !self.normalized_coordinates && self.address_modes.iter().any(repeats) {
            let problem = format!("{:?} need normalized coordinates", self.address_modes);
            return Err(texture_error("the address modes", problem));
        }
        if self.max_anisotropy > 16 {
            let problem = format!("{} is more than 16", self.max_anisotropy);
            return Err(texture_error("the anisotropy", problem));
        }
        let reads_fractions = self.read == ReadMode::Normalized;
        if self.srgb && !(reads_fractions && T::FORMAT == TexelFormat::Unsigned8) {
            let problem = format!(
                "only `u8` that is read as fractions is converted, but the texels are {:?} with {:?}",
                T::FORMAT,
                self.read
            );
            return Err(texture_error("the option srgb", problem));
        }
        Ok(())
    }

    #[inline]
    pub(super) fn raw(&self, format: TexelFormat) -> CUDA_TEXTURE_DESC {
        let Self {
            address_modes,
            filter,
            read,
            normalized_coordinates,
            border_color,
            srgb,
            max_anisotropy,
            mipmap_filter,
            mipmap_level_bias,
            min_mipmap_level,
            max_mipmap_level,
            disable_trilinear_optimization,
            seamless_cubemap,
            _non_exhaustive: (),
        } = *self;
        let flags = [
            (read.is_integer(format), CU_TRSF_READ_AS_INTEGER),
            (normalized_coordinates, CU_TRSF_NORMALIZED_COORDINATES),
            (srgb, CU_TRSF_SRGB),
            (disable_trilinear_optimization, CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION),
            (seamless_cubemap, CU_TRSF_SEAMLESS_CUBEMAP),
        ];
        let flags = flags.iter().filter(|(is_set, _)| *is_set);
        CUDA_TEXTURE_DESC {
            addressMode: address_modes.map(AddressMode::raw),
            filterMode: filter.raw(),
            flags: flags.fold(0, |all, (_, flag)| all | flag),
            maxAnisotropy: max_anisotropy,
            mipmapFilterMode: mipmap_filter.raw(),
            mipmapLevelBias: mipmap_level_bias,
            minMipmapLevelClamp: min_mipmap_level,
            maxMipmapLevelClamp: max_mipmap_level,
            borderColor: border_color,
            reserved: [0; 12],
        }
    }

    #[inline]
    pub(super) fn from_raw(raw: &CUDA_TEXTURE_DESC, format: TexelFormat) -> Self {
        let has = |flag: u32| raw.flags & flag != 0;
        let reads_fractions = format.is_integer() && !has(CU_TRSF_READ_AS_INTEGER);
        Self {
            // The driver accepts no values but those of the enums.
            address_modes: raw
                .addressMode
                .map(|its| AddressMode::from_raw(its).unwrap_or_default()),
            filter: FilterMode::from_raw(raw.filterMode).unwrap_or_default(),
            read: match reads_fractions {
                true => ReadMode::Normalized,
                false => ReadMode::Element,
            },
            normalized_coordinates: has(CU_TRSF_NORMALIZED_COORDINATES),
            border_color: raw.borderColor,
            srgb: has(CU_TRSF_SRGB),
            max_anisotropy: raw.maxAnisotropy,
            mipmap_filter: FilterMode::from_raw(raw.mipmapFilterMode).unwrap_or_default(),
            mipmap_level_bias: raw.mipmapLevelBias,
            min_mipmap_level: raw.minMipmapLevelClamp,
            max_mipmap_level: raw.maxMipmapLevelClamp,
            disable_trilinear_optimization: has(CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION),
            seamless_cubemap: has(CU_TRSF_SEAMLESS_CUBEMAP),
            _non_exhaustive: (),
        }
    }
}
