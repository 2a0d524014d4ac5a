//! Arrays, textures and surfaces.

use super::{Row, Stage, field, value};
use crate::prelude::*;
use cuda_safe::array::{
    AddressMode, ArrayOptions, FilterMode, Half, MipmappedArray, Normalized, ReadMode, Sampler,
    SparseArray, Surface, Texel, Texture,
};

const CREATE: &str = "cuArray3DCreate_v2";
const TEXTURE: &str = "cuTexObjectCreate";
const COPY: &str = "cuMemcpy3DAsync_v2";

const PLANE: ArrayShape = ArrayShape::TwoD { width: 5, height: 4 };
const VOLUME: ArrayShape = ArrayShape::ThreeD { width: 5, height: 4, depth: 3 };

fn created<T: Texel>(shape: ArrayShape, options: ArrayOptions) -> impl Fn(&Stage) -> Result<()> {
    move |s| Array::<T>::with(&s.stream, shape, options).map(drop)
}

fn format_row<T: Texel>(name: &str, format: CUarray_format) -> Row {
    Row::of(
        &format!("CUarray_format::CU_AD_FORMAT_{name}"),
        created::<T>(PLANE, ArrayOptions::default()),
    )
    .calls(CREATE)
    .with(
        field("descriptor", |its: &CUDA_ARRAY3D_DESCRIPTOR| (its.Format, its.NumChannels)),
        (format, T::CHANNELS),
    )
}

macro_rules! formats {
    ($($ty:ty => $name:ident;)*) => {
        vec![$(format_row::<$ty>(
            stringify!($name).trim_start_matches("CU_AD_FORMAT_"),
            CUarray_format::$name,
        )),*]
    };
}

fn formats() -> Vec<Row> {
    formats! {
        u8 => CU_AD_FORMAT_UNSIGNED_INT8;
        [u16; 2] => CU_AD_FORMAT_UNSIGNED_INT16;
        [u32; 4] => CU_AD_FORMAT_UNSIGNED_INT32;
        [i8; 4] => CU_AD_FORMAT_SIGNED_INT8;
        i16 => CU_AD_FORMAT_SIGNED_INT16;
        [i32; 2] => CU_AD_FORMAT_SIGNED_INT32;
        Half<[u16; 2]> => CU_AD_FORMAT_HALF;
        [f32; 4] => CU_AD_FORMAT_FLOAT;
        Normalized<u8> => CU_AD_FORMAT_UNORM_INT8X1;
        Normalized<[u8; 2]> => CU_AD_FORMAT_UNORM_INT8X2;
        Normalized<[u8; 4]> => CU_AD_FORMAT_UNORM_INT8X4;
        Normalized<u16> => CU_AD_FORMAT_UNORM_INT16X1;
        Normalized<[u16; 2]> => CU_AD_FORMAT_UNORM_INT16X2;
        Normalized<[u16; 4]> => CU_AD_FORMAT_UNORM_INT16X4;
        Normalized<i8> => CU_AD_FORMAT_SNORM_INT8X1;
        Normalized<[i8; 2]> => CU_AD_FORMAT_SNORM_INT8X2;
        Normalized<[i8; 4]> => CU_AD_FORMAT_SNORM_INT8X4;
        Normalized<i16> => CU_AD_FORMAT_SNORM_INT16X1;
        Normalized<[i16; 2]> => CU_AD_FORMAT_SNORM_INT16X2;
        Normalized<[i16; 4]> => CU_AD_FORMAT_SNORM_INT16X4;
    }
}

fn shapes() -> Vec<Row> {
    let none = ArrayOptions::default();
    let part = |name: &str, find: fn(&CUDA_ARRAY3D_DESCRIPTOR) -> usize, number: usize| {
        let name = format!("CUDA_ARRAY3D_DESCRIPTOR::{name}");
        let found = field("descriptor", find);
        Row::new(&name, created::<[f32; 2]>(VOLUME, none), CREATE, found, number)
    };
    let flag = |name: &str, shape, options, number: u32| {
        let found = field("descriptor", |its: &CUDA_ARRAY3D_DESCRIPTOR| its.Flags);
        Row::new(name, created::<f32>(shape, options), CREATE, found, number)
    };
    let surface = ArrayOptions { surface: true, ..none };
    let gather = ArrayOptions { gather: true, ..none };
    let lines = ArrayShape::OneDLayered { width: 4, layers: 2 };
    let cubes = ArrayShape::CubemapLayered { width: 4, cubes: 2 };
    let cube = ArrayShape::Cubemap { width: 4 };
    let mipmapped = |s: &Stage| MipmappedArray::<f32>::new(&s.stream, PLANE, 3).map(drop);
    vec![
        part("Width", |its| its.Width, 5),
        part("Height", |its| its.Height, 4),
        part("Depth", |its| its.Depth, 3),
        part("Format", |its| its.Format.0 as usize, 32),
        part("NumChannels", |its| its.NumChannels as usize, 2),
        flag("CUDA_ARRAY3D_DESCRIPTOR::Flags", PLANE, surface, 2),
        flag("CUDA_ARRAY3D::CUDA_ARRAY3D_LAYERED", lines, none, 1),
        flag("CUDA_ARRAY3D::CUDA_ARRAY3D_LAYERED", cubes, none, 5),
        flag("CUDA_ARRAY3D::CUDA_ARRAY3D_SURFACE_LDST", PLANE, surface, 2),
        flag("CUDA_ARRAY3D::CUDA_ARRAY3D_CUBEMAP", cube, none, 4),
        flag("CUDA_ARRAY3D::CUDA_ARRAY3D_TEXTURE_GATHER", PLANE, gather, 8),
        Row::of("cuMipmappedArrayCreate", mipmapped)
            .calls("cuMipmappedArrayCreate")
            .with(value("levels"), 3u32),
        Row::call("cuMipmappedArrayGetLevel", mipmapped),
        Row::call("cuMipmappedArrayDestroy", mipmapped),
        Row::call("cuArrayDestroy", created::<f32>(PLANE, none)),
        Row::call("cuArray3DGetDescriptor_v2", |s| {
            let array = Array::<u8>::new(&s.stream, PLANE)?;
            array.descriptor()
        }),
    ]
}

/// Maps and unmaps a tile.
fn tiles(s: &Stage) -> Result<()> {
    let shape = ArrayShape::TwoD { width: 300, height: 200 };
    let mut plane = SparseArray::<f32>::new(&s.stream, shape)?;
    plane.map([0; 3], Extent::new_2d(1, 1))?;
    plane.unmap([0; 3], shape.extent())
}

fn sparse() -> Vec<Row> {
    vec![
        Row::of("CUDA_ARRAY3D::CUDA_ARRAY3D_SPARSE", tiles)
            .calls(CREATE)
            .with(field("descriptor", |its: &CUDA_ARRAY3D_DESCRIPTOR| its.Flags), 0x40u32),
        Row::call("cuArrayGetSparseProperties", tiles),
        Row::call("cuMemMapArrayAsync", tiles),
    ]
}

fn copies() -> Vec<Row> {
    const AT: [usize; 3] = [1, 2, 1];
    const ONE: Extent = Extent::new_2d(2, 1);
    fn copied(s: &Stage) -> Result<[CUarray; 2]> {
        let mut buffer = DeviceBuffer::<u32>::zeroed(&s.stream, 2)?;
        let from = Array::<u32>::new(&s.stream, VOLUME)?;
        let mut to = Array::<u32>::new(&s.stream, VOLUME)?;
        from.as_ref().part(AT, ONE)?.copy_to(&mut buffer)?;
        to.as_mut().part(AT, ONE)?.copy_from(&buffer)?;
        let source = from.as_ref().part(AT, ONE)?;
        to.as_mut().part(AT, ONE)?.copy_from_array(source)?;
        Ok([from.as_raw(), to.as_raw()])
    }
    let row = |name: &str, find: fn(&CUDA_MEMCPY3D) -> usize, number: usize| {
        let name = format!("CUDA_MEMCPY3D::{name}");
        let act = |s: &Stage| copied(s).map(drop);
        Row::new(&name, act, COPY, field("copy", find), number)
    };
    let arrays = |name: &str| {
        let found = field("copy", |its: &CUDA_MEMCPY3D| [its.srcArray, its.dstArray]);
        Row::of(&format!("CUDA_MEMCPY3D::{name}"), copied).calls(COPY).with_told(found)
    };
    vec![
        arrays("srcArray"),
        arrays("dstArray"),
        row("srcXInBytes", |its| its.srcXInBytes, 4),
        row("srcY", |its| its.srcY, 2),
        row("srcZ", |its| its.srcZ, 1),
        row("dstXInBytes", |its| its.dstXInBytes, 4),
        row("dstY", |its| its.dstY, 2),
        row("dstZ", |its| its.dstZ, 1),
        Row::of("CUmemorytype::CU_MEMORYTYPE_ARRAY", copied).calls(COPY).with(
            field("copy", |its: &CUDA_MEMCPY3D| [its.srcMemoryType, its.dstMemoryType]),
            [CUmemorytype::CU_MEMORYTYPE_ARRAY; 2],
        ),
    ]
}

fn resources() -> Vec<Row> {
    let sampler = Sampler::default();
    let row = |name: &str, act: fn(&Stage, &Sampler) -> Result<()>, kind: CUresourcetype| {
        let name = format!("CUresourcetype::CU_RESOURCE_TYPE_{name}");
        let found = field("resource", |its: &CUDA_RESOURCE_DESC| its.resType);
        Row::new(&name, move |s| act(s, &sampler), TEXTURE, found, kind)
    };
    let surface = |s: &Stage| {
        let options = ArrayOptions { surface: true, ..ArrayOptions::default() };
        Surface::new(Array::<u32>::with(&s.stream, PLANE, options)?).map(drop)
    };
    vec![
        row(
            "ARRAY",
            |s, how| Texture::new(Array::<u8>::new(&s.stream, PLANE)?, how).map(drop),
            CUresourcetype::CU_RESOURCE_TYPE_ARRAY,
        ),
        row(
            "MIPMAPPED_ARRAY",
            |s, how| {
                let how = Sampler { normalized_coordinates: true, ..*how };
                Texture::new(MipmappedArray::<u8>::new(&s.stream, PLANE, 2)?, &how).map(drop)
            },
            CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY,
        ),
        row(
            "LINEAR",
            |s, _| {
                let buffer = DeviceBuffer::<u8>::zeroed(&s.stream, 8)?;
                Texture::linear(buffer, ReadMode::Element).map(drop)
            },
            CUresourcetype::CU_RESOURCE_TYPE_LINEAR,
        ),
        row(
            "PITCH2D",
            |s, how| Texture::new(PitchedBuffer::<u8>::zeroed(&s.stream, 8, 2)?, how).map(drop),
            CUresourcetype::CU_RESOURCE_TYPE_PITCH2D,
        ),
        Row::call("cuSurfObjectCreate", surface),
        Row::call("cuSurfObjectDestroy", surface),
    ]
}

fn sampled<T: Texel>(sampler: Sampler) -> impl Fn(&Stage) -> Result<()> {
    move |s| {
        let texture = Texture::new(Array::<T>::new(&s.stream, PLANE)?, &sampler)?;
        assert_eq!(texture.sampler()?, sampler);
        Ok(())
    }
}

fn samplers() -> Vec<Row> {
    let part = |name: &str, sampler: Sampler, find: fn(&CUDA_TEXTURE_DESC) -> f32, number: f32| {
        let name = format!("CUDA_TEXTURE_DESC::{name}");
        let found = field("texture", find);
        Row::new(&name, sampled::<f32>(sampler), TEXTURE, found, number)
    };
    let base = Sampler::default();
    let modes = |mode| Sampler {
        address_modes: [mode, AddressMode::Clamp, mode],
        normalized_coordinates: true,
        ..base
    };
    let clamp = CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP;
    let mode = |name: &str, sampler, raw: CUaddress_mode| {
        let found = field("texture", |its: &CUDA_TEXTURE_DESC| its.addressMode);
        Row::new(name, sampled::<f32>(sampler), TEXTURE, found, [raw, clamp, raw])
    };
    let filters = |filter, mipmap_filter| Sampler { filter, mipmap_filter, ..base };
    let (point, linear) = (FilterMode::Point, FilterMode::Linear);
    let filter = |name: &str, sampler, raw: [u32; 2]| {
        let found =
            field("texture", |its: &CUDA_TEXTURE_DESC| [its.filterMode, its.mipmapFilterMode]);
        let raw = raw.map(CUfilter_mode);
        Row::new(name, sampled::<f32>(sampler), TEXTURE, found, raw)
    };
    let flags = |name: &str, sampler, flags: u32| {
        let found = field("texture", |its: &CUDA_TEXTURE_DESC| its.flags);
        Row::new(name, sampled::<u8>(sampler), TEXTURE, found, flags)
    };
    let read = ReadMode::Normalized;
    let with_integers = base;
    let normalized = Sampler { normalized_coordinates: true, read, ..base };
    let srgb = Sampler { srgb: true, read, ..base };
    let exact = Sampler { disable_trilinear_optimization: true, read, ..base };
    let seamless = Sampler { seamless_cubemap: true, read, ..base };
    let all = Sampler {
        border_color: [1.0, 2.0, 3.0, 4.0],
        max_anisotropy: 8,
        mipmap_level_bias: 0.5,
        min_mipmap_level: 1.0,
        max_mipmap_level: 2.0,
        ..base
    };
    vec![
        mode(
            "CUDA_TEXTURE_DESC::addressMode",
            modes(AddressMode::Border),
            CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER,
        ),
        mode(
            "CUaddress_mode::CU_TR_ADDRESS_MODE_WRAP",
            modes(AddressMode::Wrap),
            CUaddress_mode::CU_TR_ADDRESS_MODE_WRAP,
        ),
        mode("CUaddress_mode::CU_TR_ADDRESS_MODE_CLAMP", modes(AddressMode::Clamp), clamp),
        mode(
            "CUaddress_mode::CU_TR_ADDRESS_MODE_MIRROR",
            modes(AddressMode::Mirror),
            CUaddress_mode::CU_TR_ADDRESS_MODE_MIRROR,
        ),
        mode(
            "CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER",
            modes(AddressMode::Border),
            CUaddress_mode::CU_TR_ADDRESS_MODE_BORDER,
        ),
        filter("CUDA_TEXTURE_DESC::filterMode", filters(linear, point), [1, 0]),
        filter("CUDA_TEXTURE_DESC::mipmapFilterMode", filters(point, linear), [0, 1]),
        filter("CUfilter_mode::CU_TR_FILTER_MODE_POINT", filters(point, point), [0, 0]),
        filter("CUfilter_mode::CU_TR_FILTER_MODE_LINEAR", filters(linear, linear), [1, 1]),
        flags("CUDA_TEXTURE_DESC::flags", with_integers, 1),
        flags("CU_TRSF::CU_TRSF_READ_AS_INTEGER", with_integers, 1),
        flags("CU_TRSF::CU_TRSF_NORMALIZED_COORDINATES", normalized, 2),
        flags("CU_TRSF::CU_TRSF_SRGB", srgb, 0x10),
        flags("CU_TRSF::CU_TRSF_DISABLE_TRILINEAR_OPTIMIZATION", exact, 0x20),
        flags("CU_TRSF::CU_TRSF_SEAMLESS_CUBEMAP", seamless, 0x40),
        part("maxAnisotropy", all, |its| its.maxAnisotropy as f32, 8.0),
        part("mipmapLevelBias", all, |its| its.mipmapLevelBias, 0.5),
        part("minMipmapLevelClamp", all, |its| its.minMipmapLevelClamp, 1.0),
        part("maxMipmapLevelClamp", all, |its| its.maxMipmapLevelClamp, 2.0),
        part("borderColor", all, |its| its.borderColor[2], 3.0),
        Row::call("cuTexObjectGetTextureDesc", sampled::<f32>(base)),
        Row::call("cuTexObjectDestroy", sampled::<f32>(base)),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let all = [formats(), shapes(), sparse(), copies(), resources(), samplers()];
    all.into_iter().flatten().collect()
}
