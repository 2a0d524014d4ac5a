//! Texture objects.

use super::object::{Kind, Object};
use super::owned::{Array, ArrayRef, MipmappedArray};
use super::shape::{check_linear, check_pitched};
use super::sparse::SparseArray;
use super::texel::{Texel, TexelFormat, check_texel};
use super::texture_error;
use crate::call::{Rejected, Result, c_enum, call, debug_struct, out};
use crate::memory::{DeviceBuffer, DeviceSlice, PitchedBuffer};
use crate::stream::Stream;
use cuda_sys::{
    CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION, CU_TRSF_NORMALIZED_COORDINATES,
    CU_TRSF_READ_AS_INTEGER, CU_TRSF_SEAMLESS_CUBEMAP, CU_TRSF_SRGB, CUDA_RESOURCE_DESC,
    CUDA_TEXTURE_DESC, CUaddress_mode, CUarray, CUfilter_mode, CUmipmappedArray, CUresourcetype,
    CUtexObject, Zeroable,
};

/// A texture object: memory that kernels sample. It owns or borrows the memory, and is an argument of
/// kernels for a parameter of the type [`TextureObject`](super::TextureObject) (`cudaTextureObject_t` in
/// CUDA C++).
///
/// The object is bound to the stream of its memory, and so belongs to one context: a launch on another
/// stream is an error. (The driver accepts a handle of another context, and the kernel reads other memory.)
/// While the object exists, its memory cannot be written. Creating an object takes about 2 µs;
/// [`into_source`](Self::into_source) returns memory that it owns.
///
/// A fetch outside of the texture reads what the [`Sampler`] says, or 0 in linear memory.
///
/// # Drop
/// Dropping does not block: the object is destroyed after the work on the stream, and in a later call of
/// this crate if that work is in progress. If the stream is [borrowed](Stream::borrow_raw), the drop waits.
///
/// ```no_run
/// use cuda_safe::array::{Array, ArrayShape, Sampler, FilterMode, Texture, TextureObject};
/// use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module};
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let mut line = Array::<f32>::new(&stream, ArrayShape::OneD { width: 4 })?;
/// line.copy_from_slice(&[0.0, 1.0, 4.0, 9.0])?;
/// let sampler = Sampler {
///     filter: FilterMode::Linear,
///     ..Default::default()
/// };
/// let texture = Texture::new(&line, &sampler)?;
/// // `ptx` has a kernel `sample(cudaTextureObject_t texture, float *results, unsigned n)`.
/// let sample = Module::from_ptx(&context, ptx)?
///     .kernel("sample")?
///     .typed::<(TextureObject, &mut [f32], u32)>()?;
/// let mut results = DeviceBuffer::<f32>::zeroed(&stream, 100)?;
/// let config = LaunchConfig::for_elements(100, 128)?;
/// // SAFETY: `sample` reads the texture and writes the first 100 elements of `results`.
/// unsafe { sample.launch(&stream, config, (&texture, &mut results, 100)) }?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct Texture<S> {
    /// Declared before the memory, so that it is dropped first.
    object: Object,
    format: TexelFormat,
    source: S,
}

/// What a [`Texture`] with a [`Sampler`] reads: `Array<T>`, `&Array<T>`, [`ArrayRef<T>`](ArrayRef),
/// `MipmappedArray<T>`, `SparseArray<T>`, `PitchedBuffer<T>`, or a reference to one of these. This trait
/// is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sampled as a texture",
    note = "pass an array or a pitched buffer, or a reference to one; `Texture::linear` takes buffers and \
            slices"
)]
pub trait TextureSource: sealed::Source {}

/// Linear memory that a [`Texture`] reads by index: `DeviceBuffer<T>`, `&DeviceBuffer<T>` or
/// [`DeviceSlice<T>`](DeviceSlice). This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not linear memory of a texture",
    note = "pass a `DeviceBuffer` or a `DeviceSlice`; `Texture::new` takes arrays and pitched buffers"
)]
pub trait LinearSource: sealed::Source {}

mod sealed {
    use super::{CUDA_RESOURCE_DESC, Result, Stream, Texel};

    pub trait Source {
        type Texel: Texel;
        fn stream(&self) -> &Stream;
        /// Checks the memory, and describes it for the driver.
        fn resource(&self) -> Result<CUDA_RESOURCE_DESC>;
    }
}

#[inline]
fn of_array(array: CUarray) -> CUDA_RESOURCE_DESC {
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    resource
}

/// Describes a whole array or level.
///
/// # Errors
/// [`Invalid::Array`](crate::Invalid::Array).
pub(super) fn of_part<T>(array: &ArrayRef<'_, T>) -> Result<CUDA_RESOURCE_DESC> {
    array.expect_whole()?;
    Ok(of_array(array.as_raw()))
}

#[inline]
fn of_mipmapped(array: CUmipmappedArray) -> CUDA_RESOURCE_DESC {
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    resource.res.mipmap.hMipmappedArray = array;
    resource
}

/// Returns an error for the formats that only arrays can have.
#[inline]
fn check_plain(format: TexelFormat) -> Result<()> {
    if format.is_normalized() {
        let problem =
            format!("only arrays have {format:?}: use integers with ReadMode::Normalized");
        return Err(texture_error("the format", problem));
    }
    Ok(())
}

/// Returns an error for a mipmapped array whose coordinates are counted in texels.
#[inline]
fn check_mipmapped(resource: &CUDA_RESOURCE_DESC, sampler: &Sampler) -> Result<()> {
    let is_mipmapped = resource.resType == CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
    if is_mipmapped && !sampler.normalized_coordinates {
        let problem = "a mipmapped array needs normalized coordinates: its levels differ in texels";
        return Err(texture_error("the coordinates", problem));
    }
    Ok(())
}

fn of_linear<T: Texel>(slice: &DeviceSlice<'_, T>) -> Result<CUDA_RESOURCE_DESC> {
    check_plain(T::FORMAT)?;
    let device = slice.stream().context().device();
    check_linear(&device, slice.as_raw(), slice.len())?;
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear.devPtr = slice.as_raw();
    resource.res.linear.format = T::FORMAT.raw(T::CHANNELS);
    resource.res.linear.numChannels = T::CHANNELS;
    resource.res.linear.sizeInBytes = slice.size_bytes();
    Ok(resource)
}

fn of_pitched<T: Texel>(plane: &PitchedBuffer<T>) -> Result<CUDA_RESOURCE_DESC> {
    check_plain(T::FORMAT)?;
    let rows = plane.as_slice();
    let device = rows.stream().context().device();
    let (extent, pitch) = (plane.extent(), plane.pitch() * size_of::<T>());
    let size = [extent.width, extent.height];
    check_pitched(&device, rows.as_raw(), size, pitch)?;
    let mut resource = CUDA_RESOURCE_DESC::zeroed();
    resource.resType = CUresourcetype::CU_RESOURCE_TYPE_PITCH2D;
    resource.res.pitch2D.devPtr = rows.as_raw();
    resource.res.pitch2D.format = T::FORMAT.raw(T::CHANNELS);
    resource.res.pitch2D.numChannels = T::CHANNELS;
    [resource.res.pitch2D.width, resource.res.pitch2D.height] = size;
    resource.res.pitch2D.pitchInBytes = pitch;
    Ok(resource)
}

macro_rules! sources {
    ($($source:ty: $name:ident, |$its:ident| $stream:expr, $resource:expr;)*) => {$(
        impl<T: Texel> sealed::Source for $source {
            type Texel = T;
            fn stream(&self) -> &Stream {
                let $its = self;
                $stream
            }
            fn resource(&self) -> Result<CUDA_RESOURCE_DESC> {
                let $its = self;
                $resource
            }
        }
        impl<T: Texel> $name for $source {}
    )*};
}

sources! {
    Array<T>: TextureSource, |its| its.stream(), Ok(of_array(its.as_raw()));
    &Array<T>: TextureSource, |its| Array::stream(its), Ok(of_array(its.as_raw()));
    ArrayRef<'_, T>: TextureSource, |its| ArrayRef::stream(its), of_part(its);
    SparseArray<T>: TextureSource, |its| its.stream(), Ok(of_array(its.as_raw()));
    &SparseArray<T>: TextureSource, |its| SparseArray::stream(its), Ok(of_array(its.as_raw()));
    MipmappedArray<T>: TextureSource, |its| its.stream(), Ok(of_mipmapped(its.as_raw()));
    &MipmappedArray<T>: TextureSource,
        |its| MipmappedArray::stream(its), Ok(of_mipmapped(its.as_raw()));
    PitchedBuffer<T>: TextureSource, |its| its.as_slice().stream(), of_pitched(its);
    &PitchedBuffer<T>: TextureSource, |its| its.as_slice().stream(), of_pitched(its);
    DeviceBuffer<T>: LinearSource, |its| its.stream(), of_linear(&its.as_slice());
    &DeviceBuffer<T>: LinearSource, |its| DeviceBuffer::stream(its), of_linear(&its.as_slice());
    DeviceSlice<'_, T>: LinearSource, |its| DeviceSlice::stream(its), of_linear(its);
}

impl<S: TextureSource> Texture<S> {
    /// Creates a texture object of an array or of pitched memory.
    ///
    /// Calls `cuTexObjectCreate(&object, &resource, &texture, null)`.
    ///
    /// # Errors
    /// On an error, the source is dropped. [`try_new`](Self::try_new) returns it with the error.
    ///
    /// - [`Invalid::Texture`](crate::Invalid::Texture) if the sampler does not suit the texels, if the
    ///   coordinates of a mipmapped array are not normalized, or if pitched memory is not aligned, too large, or of a [`Normalized`](super::Normalized) format. The
    ///   driver accepts most of these.
    /// - [`Invalid::Array`](crate::Invalid::Array) for a part of an array.
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - `CUDA_ERROR_OUT_OF_MEMORY` if the context has too many objects (1,040,383
    ///   textures and surfaces on a driver 580).
    ///
    /// Since CUDA 5.0. Raw: [`cuTexObjectCreate`](fn@cuda_sys::cuTexObjectCreate),
    /// [`cuTexObjectDestroy`](fn@cuda_sys::cuTexObjectDestroy).
    #[doc(alias = "cuTexObjectCreate", alias = "cuTexObjectDestroy")]
    pub fn new(source: S, sampler: &Sampler) -> Result<Self> {
        Ok(Self::try_new(source, sampler)?)
    }

    /// Does the same as [`new`](Self::new), but returns the source with the error.
    ///
    /// # Errors
    /// See [`new`](Self::new).
    pub fn try_new(source: S, sampler: &Sampler) -> Result<Self, Rejected<S>> {
        Self::make(source, sampler)
    }
}

impl<S: LinearSource> Texture<S> {
    /// Creates a texture object of linear memory, which kernels read by the index of an element
    /// (`tex1Dfetch`).
    ///
    /// Calls `cuTexObjectCreate(&object, &resource, &texture, null)`.
    ///
    /// # Errors
    /// See [`new`](Self::new). The memory must start at a multiple of 512 bytes
    /// ([`TEXTURE_ALIGNMENT`](crate::device::attribute::TEXTURE_ALIGNMENT)) and
    /// have at most 2^28 elements
    /// ([`MAXIMUM_TEXTURE1D_LINEAR_WIDTH`](crate::device::attribute::MAXIMUM_TEXTURE1D_LINEAR_WIDTH)).
    /// On an error, the source is dropped. [`try_linear`](Self::try_linear) returns it with the error.
    pub fn linear(source: S, read: ReadMode) -> Result<Self> {
        Ok(Self::try_linear(source, read)?)
    }

    /// Does the same as [`linear`](Self::linear), but returns the source with the error.
    ///
    /// # Errors
    /// See [`linear`](Self::linear).
    pub fn try_linear(source: S, read: ReadMode) -> Result<Self, Rejected<S>> {
        Self::make(source, &Sampler::of_linear(read))
    }
}

impl<S: sealed::Source> Texture<S> {
    fn make(source: S, sampler: &Sampler) -> Result<Self, Rejected<S>> {
        check_texel::<S::Texel>();
        let format = S::Texel::FORMAT;
        let checked = sampler.check::<S::Texel>().and_then(|()| {
            let resource = source.resource()?;
            check_mipmapped(&resource, sampler)?;
            Ok(resource)
        });
        let object = checked.and_then(|resource| {
            let texture = sampler.raw(format);
            let (from, how) = (&raw const resource, &raw const texture);
            Object::new(Kind::Texture, source.stream(), |place| {
                // SAFETY: the pointers refer to local variables. The memory is checked, belongs to the
                // current context, and stays alive until the last use of the object.
                unsafe { call!(cuTexObjectCreate(place, from, how, std::ptr::null())) }
            })
        });
        let (object, source) = Rejected::unless(object, source)?;
        Ok(Self { object, format, source })
    }
}

impl<S> Texture<S> {
    /// Returns the memory.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Destroys the object after the work on the stream, and returns the memory. Does not block.
    pub fn into_source(self) -> S {
        self.source
    }

    /// Returns the stream that the memory is bound to.
    pub fn stream(&self) -> &Stream {
        self.object.stream()
    }

    /// Returns the raw handle: a number, which means this object only in its context. Do not destroy it.
    pub fn as_raw(&self) -> CUtexObject {
        self.object.raw()
    }

    /// Queries how the texture is sampled. Calls `cuTexObjectGetTextureDesc`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 5.0. Raw: [`cuTexObjectGetTextureDesc`](fn@cuda_sys::cuTexObjectGetTextureDesc).
    #[doc(alias = "cuTexObjectGetTextureDesc")]
    pub fn sampler(&self) -> Result<Sampler> {
        let _current = self.stream().context().enter()?;
        // SAFETY: the object is alive, its context is current, and `out` passes a valid pointer.
        let raw = out(|place| unsafe { call!(cuTexObjectGetTextureDesc(place, self.as_raw())) })?;
        Ok(Sampler::from_raw(&raw, self.format))
    }
}

debug_struct! {
    [S: std::fmt::Debug] Texture<S> |its| { raw: its.as_raw(), source: its.source, .. }
}

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
            read: if reads_fractions { ReadMode::Normalized } else { ReadMode::Element },
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
