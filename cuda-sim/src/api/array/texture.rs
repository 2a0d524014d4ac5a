//! Texture and surface objects. Their handles are numbers of the current context, and a real driver checks
//! little: what it accepts although it is wrong is a misuse here. Measured on an H200 with driver 580.

use crate::api::prelude::*;
use crate::memory::{Format, Object, Texels};
use crate::state::array::{Array, Description};
use cuda_ptx::texture::{AddressMode, Level, Sampler, Texels as Shape, Texture};
use cuda_sys::{
    CU_TRSF_NORMALIZED_COORDINATES, CU_TRSF_READ_AS_INTEGER, CU_TRSF_SRGB,
    CUDA_ARRAY3D_SURFACE_LDST, CUDA_RESOURCE_DESC, CUDA_RESOURCE_VIEW_DESC, CUDA_TEXTURE_DESC,
    CUarray_format, CUresourcetype as Type, CUsurfObject, CUtexObject,
};
use std::sync::Arc;

/// Alignment of linear memory, and of the pitch of 2-D memory.
const ALIGNMENT: u64 = 512;
const PITCH_ALIGNMENT: usize = 32;
/// Linear textures of this size are refused.
const TOO_LARGE: usize = 1 << 40;
/// The device's limit of texels of linear memory, which is not checked.
const MOST_LINEAR: usize = 1 << 28;
/// The extents of 2-D memory, which are checked.
const MOST_PITCHED: [usize; 2] = [131_072, 65_000];
/// All flags of textures.
const FLAGS: u32 = 0x73;

fn accepted(what: &str) {
    misuse(format!("a texture of {what}; a real driver accepts it"));
}

/// The texels of an object.
struct Source {
    format: Format,
    levels: Vec<Level>,
    layers: u32,
    is_cubemap: bool,
    is_memory: bool,
}

impl Source {
    /// Returns the texels as kernels read them, or `None` if they cannot read them.
    fn texels(self, wants_integers: bool, is_srgb: bool) -> Option<Shape> {
        let Self { format, levels, layers, is_cubemap, is_memory } = self;
        let format = format.texel(wants_integers, is_srgb)?;
        Some(Shape { format, levels, layers, is_cubemap, is_memory })
    }
}

/// Returns the texels of an array that the current context may use.
fn of_context(array: &Array, context: usize) -> Answer<Source> {
    fail_if(array.context != context, CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED)?;
    fail_if(array.format.is_srgb, INVALID)?;
    let (layers, is_cubemap) = array.layers();
    let levels = vec![array.texels().level(layers > 0 || is_cubemap)];
    Ok(Source { format: array.format, levels, layers, is_cubemap, is_memory: false })
}

/// Returns the texels of memory that is not an array.
fn of_memory(texels: Texels) -> Source {
    let (format, levels) = (texels.format, vec![texels.level(false)]);
    Source { format, levels, layers: 0, is_cubemap: false, is_memory: true }
}

/// Returns the format of memory that is not an array.
fn linear_format(format: CUarray_format, channels: u32) -> Answer<Format> {
    let format = Format::of(format.0, channels);
    format.filter(Format::is_plain).ok_or(INVALID)
}

/// Reports memory that the object does not fit into. `end` is the number of bytes that it uses.
fn check_memory(world: &World, address: u64, end: usize) {
    if crate::api::memory::batch::is_in_memory(world, address, end) {
        return;
    }
    accepted(&format!("{end} bytes at {address:#x}, which are not in one allocation"));
}

fn source(world: &World, resource: &CUDA_RESOURCE_DESC, context: usize) -> Answer<Source> {
    match resource.resType {
        Type::CU_RESOURCE_TYPE_ARRAY => {
            // SAFETY: the type says that the resource is an array.
            let array = unsafe { resource.res.array }.hArray;
            of_context(world.array(array.addr())?, context)
        }
        Type::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
            // SAFETY: the type says that the resource is a mipmapped array.
            let array = unsafe { resource.res.mipmap }.hMipmappedArray;
            let mut levels = world.mipmapped(array.addr())?.levels.iter();
            let first = world.array(*levels.next().ok_or(INVALID)?)?;
            let mut source = of_context(first, context)?;
            for level in levels {
                source.levels.extend(of_context(world.array(*level)?, context)?.levels);
            }
            Ok(source)
        }
        Type::CU_RESOURCE_TYPE_LINEAR => {
            // SAFETY: the type says that the resource is linear memory.
            let its = unsafe { resource.res.linear };
            let format = linear_format(its.format, its.numChannels)?;
            let is_aligned = its.devPtr % ALIGNMENT == 0;
            fail_if(its.devPtr == 0 || !is_aligned || its.sizeInBytes >= TOO_LARGE, INVALID)?;
            let count = its.sizeInBytes / format.bytes;
            if count == 0 {
                accepted("no whole element");
            } else if count > MOST_LINEAR {
                accepted("more elements than the device allows");
            } else {
                check_memory(world, its.devPtr, its.sizeInBytes);
            }
            Ok(of_memory(Texels {
                address: its.devPtr,
                format,
                extent: [count, 0, 0],
                pitch: its.sizeInBytes,
                slice: its.sizeInBytes,
            }))
        }
        Type::CU_RESOURCE_TYPE_PITCH2D => {
            // SAFETY: the type says that the resource is pitched memory.
            let its = unsafe { resource.res.pitch2D };
            let format = linear_format(its.format, its.numChannels)?;
            let [width, height] = MOST_PITCHED;
            let is_aligned = its.devPtr % ALIGNMENT == 0;
            let is_pitched = its.pitchInBytes % PITCH_ALIGNMENT == 0;
            let fits = its.width <= width && its.height <= height;
            fail_if(its.devPtr == 0 || !is_aligned || !is_pitched || !fits, INVALID)?;
            let row = its.width * format.bytes;
            if row == 0 || its.height == 0 {
                accepted("no rows or columns");
            } else if its.pitchInBytes < row {
                accepted("rows that overlap");
            } else {
                let end = (its.height - 1).saturating_mul(its.pitchInBytes).saturating_add(row);
                check_memory(world, its.devPtr, end);
            }
            Ok(of_memory(Texels {
                address: its.devPtr,
                format,
                extent: [its.width, its.height, 0],
                pitch: its.pitchInBytes,
                slice: its.pitchInBytes.saturating_mul(its.height),
            }))
        }
        _ => Err(INVALID),
    }
}

fn sampler(texture: &CUDA_TEXTURE_DESC, source: &Source, is_memory: bool) -> Answer<Sampler> {
    let mut address_modes = [AddressMode::Clamp; 3];
    for (its, mode) in address_modes.iter_mut().zip(texture.addressMode) {
        *its = match mode.0 {
            0 => AddressMode::Wrap,
            1 => AddressMode::Clamp,
            2 => AddressMode::Mirror,
            3 => AddressMode::Border,
            _ => return Err(INVALID),
        };
    }
    let is_filter = texture.filterMode.0 <= 1 && texture.mipmapFilterMode.0 <= 1;
    fail_if(!is_filter || texture.flags & !FLAGS != 0 || texture.reserved != [0; 12], INVALID)?;
    let wants_integers = texture.flags & CU_TRSF_READ_AS_INTEGER != 0;
    let read = source.format.texel(wants_integers, false);
    let as_integers = read.is_some_and(|its| its.is_integer());
    let is_linear = texture.filterMode.0 == 1;
    let is_normalized = texture.flags & CU_TRSF_NORMALIZED_COORDINATES != 0;
    if is_linear && as_integers {
        accepted("integers with a linear filter");
    } else if texture.maxAnisotropy > 16 {
        accepted("an anisotropy above 16");
    } else if is_memory && is_normalized && source.levels[0].extent[1] == 0 {
        accepted("linear memory with normalized coordinates");
    }
    Ok(Sampler {
        address_modes,
        is_linear,
        is_mipmap_linear: texture.mipmapFilterMode.0 == 1,
        is_normalized,
        border: texture.borderColor,
        level_bias: texture.mipmapLevelBias,
        levels: [texture.minMipmapLevelClamp, texture.maxMipmapLevelClamp],
    })
}

fn add(world: &mut World, object: Object, description: Description) -> Answer<c_ulonglong> {
    let context = world.home()?.0;
    let number = world.objects.memory.objects.add(context, object);
    let number = number.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    world.objects.arrays.descriptions.insert((context, number), description);
    Ok(number)
}

pub(crate) fn create(
    world: &mut World,
    resource: *const CUDA_RESOURCE_DESC,
    texture: *const CUDA_TEXTURE_DESC,
    view: *const CUDA_RESOURCE_VIEW_DESC,
) -> Answer<CUtexObject> {
    // SAFETY: the caller passes null or a pointer to a resource.
    let resource = *unsafe { resource.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the caller passes null or a pointer to a description.
    let texture = *unsafe { texture.as_ref() }.ok_or(INVALID)?;
    // SAFETY: the caller passes null or a pointer to a view.
    let view = unsafe { view.as_ref() }.copied();
    let (context, _) = world.home()?;
    world.forbidden_in_capture()?;
    fail_if(resource.flags != 0 || view.is_some_and(|its| its.reserved != [0; 16]), INVALID)?;
    let is_memory = resource.resType == Type::CU_RESOURCE_TYPE_LINEAR
        || resource.resType == Type::CU_RESOURCE_TYPE_PITCH2D;
    let source = source(world, &resource, context)?;
    let sampler = sampler(&texture, &source, is_memory)?;
    let wants_integers = texture.flags & CU_TRSF_READ_AS_INTEGER != 0;
    let texels = source.texels(wants_integers, texture.flags & CU_TRSF_SRGB != 0);
    let object = match texels {
        Some(texels) => Object::Texture(Arc::new(Texture { texels, sampler })),
        None => Object::Opaque { is_texture: true },
    };
    let description = Description { resource, texture: Some(texture), view };
    add(world, object, description)
}

pub(crate) fn create_surface(
    world: &mut World,
    resource: *const CUDA_RESOURCE_DESC,
) -> Answer<CUsurfObject> {
    // SAFETY: the caller passes null or a pointer to a resource.
    let resource = *unsafe { resource.as_ref() }.ok_or(INVALID)?;
    let (context, _) = world.home()?;
    world.forbidden_in_capture()?;
    fail_if(resource.flags != 0 || resource.resType != Type::CU_RESOURCE_TYPE_ARRAY, INVALID)?;
    // SAFETY: the type says that the resource is an array.
    let array = unsafe { resource.res.array }.hArray;
    let array = world.array(array.addr())?;
    let source = of_context(array, context)?;
    if array.descriptor.Flags & CUDA_ARRAY3D_SURFACE_LDST == 0 {
        misuse("a surface of an array without SURFACE_LDST; a real driver accepts it");
    }
    let description = Description { resource, texture: None, view: None };
    let object = match source.texels(true, false) {
        Some(texels) => Object::Surface(Arc::new(texels)),
        None => Object::Opaque { is_texture: false },
    };
    add(world, object, description)
}

/// Destroys an object without waiting. A real driver checks nothing.
fn end(world: &mut World, number: u64, is_texture: bool) -> Answer {
    let (context, _) = world.home()?;
    world.forbidden_in_capture()?;
    let found = world.objects.memory.objects.get(context, number);
    if found.is_none_or(|its| its.is_texture() != is_texture) {
        misuse(format!(
            "{number:#x} is destroyed, which is not a {} object of the current context; a real driver \
             accepts it",
            if is_texture { "texture" } else { "surface" }
        ));
        return Ok(());
    }
    world.objects.memory.objects.remove(context, number);
    world.objects.arrays.descriptions.remove(&(context, number));
    Ok(())
}

pub(crate) fn destroy(world: &mut World, object: CUtexObject) -> Answer {
    end(world, object, true)
}

pub(crate) fn destroy_surface(world: &mut World, object: CUsurfObject) -> Answer {
    end(world, object, false)
}

/// Returns what an object was created from. The answer for other numbers is unverified.
fn described(world: &World, number: u64, is_texture: bool) -> Answer<Description> {
    let (context, _) = world.home()?;
    let found = world.objects.arrays.descriptions.get(&(context, number)).copied();
    let found = found.filter(|its| its.texture.is_some() == is_texture);
    found.ok_or(INVALID)
}

pub(crate) fn resource(world: &mut World, object: CUtexObject) -> Answer<CUDA_RESOURCE_DESC> {
    Ok(described(world, object, true)?.resource)
}

pub(crate) fn texture(world: &mut World, object: CUtexObject) -> Answer<CUDA_TEXTURE_DESC> {
    described(world, object, true)?.texture.ok_or(INVALID)
}

/// Fails for an object without a view. Unverified (from documentation).
pub(crate) fn view(world: &mut World, object: CUtexObject) -> Answer<CUDA_RESOURCE_VIEW_DESC> {
    described(world, object, true)?.view.ok_or(INVALID)
}

pub(crate) fn surface_resource(
    world: &mut World,
    object: CUsurfObject,
) -> Answer<CUDA_RESOURCE_DESC> {
    Ok(described(world, object, false)?.resource)
}
