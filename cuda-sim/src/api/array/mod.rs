//! Arrays. The limits and refusals were measured on an H200 with driver 580, except where a comment says
//! otherwise.

pub(crate) mod tensor_map;
pub(crate) mod texture;

use crate::api::prelude::*;
use crate::call::fault;
use crate::exec::Work;
use crate::memory::Format;
use crate::state::array::Mipmapped;
use crate::thread;
use cuda_sys::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY_MEMORY_REQUIREMENTS, CUDA_ARRAY_SPARSE_PROPERTIES,
    CUDA_ARRAY3D_COLOR_ATTACHMENT, CUDA_ARRAY3D_CUBEMAP, CUDA_ARRAY3D_DEFERRED_MAPPING,
    CUDA_ARRAY3D_DEPTH_TEXTURE, CUDA_ARRAY3D_DESCRIPTOR, CUDA_ARRAY3D_LAYERED, CUDA_ARRAY3D_SPARSE,
    CUDA_ARRAY3D_SURFACE_LDST, CUDA_ARRAY3D_TEXTURE_GATHER, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE,
    CUarrayMapInfo, CUmemOperationType, CUmipmappedArray, CUresourcetype, Zeroable,
};

const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

/// The bit of the usage of physical memory that sparse arrays can map.
const TILE_POOL: u16 = 1;
/// Size of a tile of a sparse array, and alignment of deferred memory.
const TILE: usize = 64 << 10;

fn has(descriptor: &CUDA_ARRAY3D_DESCRIPTOR, flag: c_uint) -> bool {
    descriptor.Flags & flag != 0
}

/// Checks the extent and the flags. Not checked by a real driver: the depth of a 3-D array, and the width
/// of an array for surfaces.
fn check_shape(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Answer {
    let (width, height, depth) = (descriptor.Width, descriptor.Height, descriptor.Depth);
    let known = 2 * CUDA_ARRAY3D_VIDEO_ENCODE_DECODE - 1;
    let refused = CUDA_ARRAY3D_DEPTH_TEXTURE | CUDA_ARRAY3D_COLOR_ATTACHMENT;
    let both = CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING;
    let flags = descriptor.Flags;
    let fits = if has(descriptor, CUDA_ARRAY3D_CUBEMAP) {
        let is_layered = has(descriptor, CUDA_ARRAY3D_LAYERED);
        let faces = depth == 6 || (is_layered && depth != 0 && depth % 6 == 0 && depth <= 2046);
        width == height && width <= 32768 && faces
    } else if has(descriptor, CUDA_ARRAY3D_LAYERED) {
        width <= 131_072 && height <= 65_536 && (1..=2048).contains(&depth)
    } else if depth != 0 {
        width <= 16_384 && (1..=16_384).contains(&height)
    } else {
        width <= 131_072 && height <= 65_536
    };
    let can_gather = depth == 0 && (1..=32_768).contains(&height) && width <= 32_768;
    let wants_gather = has(descriptor, CUDA_ARRAY3D_TEXTURE_GATHER);
    if width == 0
        || flags & !known != 0
        || flags & refused != 0
        || flags & both == both
        || !fits
        || (wants_gather && !can_gather)
    {
        return Err(INVALID);
    }
    Ok(())
}

pub(crate) fn check(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Answer<Format> {
    check_shape(descriptor)?;
    let Some(format) = Format::of(descriptor.Format.0, descriptor.NumChannels) else {
        // With the flag a real driver creates them.
        let is_video = has(descriptor, CUDA_ARRAY3D_VIDEO_ENCODE_DECODE);
        return Err(if is_video { NOT_SUPPORTED } else { INVALID });
    };
    fail_if(format.is_compressed() && has(descriptor, CUDA_ARRAY3D_SURFACE_LDST), NOT_SUPPORTED)?;
    Ok(format)
}

fn make(world: &mut World, array: Out<CUarray>, descriptor: CUDA_ARRAY3D_DESCRIPTOR) -> Answer {
    array.required()?;
    world.current()?;
    world.forbidden_in_capture()?;
    let format = check(&descriptor)?;
    let limit = fault::memory_limit(world.settings.profile.gpu.memory);
    array.put(pointer(world.make_array(descriptor, format, false, limit)?))
}

pub(crate) fn create(
    world: &mut World,
    array: Out<CUarray>,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to a descriptor.
    let its = unsafe { descriptor.as_ref() }.ok_or(INVALID)?;
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: its.Width,
        Height: its.Height,
        Depth: 0,
        Format: its.Format,
        NumChannels: its.NumChannels,
        Flags: 0,
    };
    make(world, array, descriptor)
}

pub(crate) fn create_3d(
    world: &mut World,
    array: Out<CUarray>,
    descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
) -> Answer {
    make(world, array, *descriptor)
}

/// Fails in a host function, where a real driver waits for the function itself.
fn not_in_callback(function: &str) -> Answer {
    if thread::in_callback() {
        misuse(format!("{function} in a host function; a real driver hangs"));
        return Err(CUresult::CUDA_ERROR_NOT_PERMITTED);
    }
    Ok(())
}

/// Waits for all work.
pub(crate) fn destroy(world: &mut World, array: CUarray) -> Answer {
    not_in_callback("cuArrayDestroy")?;
    let is_level = world.array(array.addr())?.is_level;
    world.forbidden_in_capture()?;
    if is_level {
        misuse("cuArrayDestroy of a level of a mipmapped array has no effect");
        return Ok(());
    }
    world.run_all()?;
    world.remove_array(array.addr());
    Ok(())
}

pub(crate) fn descriptor(world: &mut World, array: CUarray) -> Answer<CUDA_ARRAY_DESCRIPTOR> {
    let its = world.array(array.addr())?.descriptor;
    Ok(CUDA_ARRAY_DESCRIPTOR {
        Width: its.Width,
        Height: its.Height,
        Format: its.Format,
        NumChannels: its.NumChannels,
    })
}

pub(crate) fn descriptor_3d(world: &mut World, array: CUarray) -> Answer<CUDA_ARRAY3D_DESCRIPTOR> {
    Ok(world.array(array.addr())?.descriptor)
}

/// Arrays with several planes are not simulated, and those of one plane are refused.
pub(crate) fn plane(world: &mut World, array: CUarray, _: c_uint) -> Answer<CUarray> {
    world.array(array.addr())?;
    Err(INVALID)
}

/// Returns the properties of a sparse array. What is said of the tail is unverified (from
/// documentation), and so are the tiles of texels that do not have 4 bytes.
fn sparse(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> Answer<CUDA_ARRAY_SPARSE_PROPERTIES> {
    fail_if(!has(descriptor, CUDA_ARRAY3D_SPARSE), INVALID)?;
    let format = check(descriptor)?;
    let is_volume = descriptor.Depth != 0 && !has(descriptor, CUDA_ARRAY3D_LAYERED);
    let (width, height, depth) = match (format.bytes, is_volume) {
        (1, false) => (256, 256, 1),
        (2, false) => (256, 128, 1),
        (4, false) => (128, 128, 1),
        (8, false) => (128, 64, 1),
        (_, false) => (64, 64, 1),
        (1, true) => (64, 32, 32),
        (2, true) => (32, 32, 32),
        (4, true) => (32, 32, 16),
        (8, true) => (32, 16, 16),
        (_, true) => (16, 16, 16),
    };
    let mut properties = CUDA_ARRAY_SPARSE_PROPERTIES::zeroed();
    properties.tileExtent.width = width;
    properties.tileExtent.height = height;
    properties.tileExtent.depth = depth;
    Ok(properties)
}

pub(crate) fn sparse_properties(
    world: &mut World,
    array: CUarray,
) -> Answer<CUDA_ARRAY_SPARSE_PROPERTIES> {
    fail_if(array.is_null(), INVALID)?;
    sparse(&world.array(array.addr())?.descriptor)
}

fn requirements(
    descriptor: &CUDA_ARRAY3D_DESCRIPTOR,
    size: usize,
) -> Answer<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
    fail_if(!has(descriptor, CUDA_ARRAY3D_DEFERRED_MAPPING), INVALID)?;
    Ok(CUDA_ARRAY_MEMORY_REQUIREMENTS {
        size: size.next_multiple_of(TILE),
        alignment: TILE,
        reserved: [0; 4],
    })
}

pub(crate) fn memory_requirements(
    world: &mut World,
    array: CUarray,
    device: CUdevice,
) -> Answer<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
    fail_if(array.is_null(), INVALID)?;
    let array = world.array(array.addr())?;
    let found = requirements(&array.descriptor, array.size())?;
    world.device(device)?;
    Ok(found)
}

/// The number of levels is clamped to those that the extent allows.
pub(crate) fn create_mipmapped(
    world: &mut World,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
) -> Answer<CUmipmappedArray> {
    // SAFETY: the caller passes null or a pointer to a descriptor.
    let descriptor = *unsafe { descriptor.as_ref() }.ok_or(INVALID)?;
    world.home()?;
    world.forbidden_in_capture()?;
    let format = check(&descriptor)?;
    // Measured for a depth of 2^20. A 3-D array without levels can have it.
    fail_if(is_volume(&descriptor) && descriptor.Depth > 16_384, INVALID)?;
    let levels = levels.clamp(1, max_levels(&descriptor));
    let limit = fault::memory_limit(world.settings.profile.gpu.memory);
    make_mipmapped(world, descriptor, levels, |world, its| {
        world.make_array(its, format, true, limit)
    })
}

fn is_volume(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> bool {
    !has(descriptor, CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)
}

/// Returns the number of levels that the extent allows.
pub(crate) fn max_levels(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> c_uint {
    let depth = if is_volume(descriptor) { descriptor.Depth } else { 0 };
    descriptor.Width.max(descriptor.Height).max(depth).ilog2() + 1
}

/// Makes a mipmapped array of levels that `make` makes by their descriptors.
pub(crate) fn make_mipmapped(
    world: &mut World,
    descriptor: CUDA_ARRAY3D_DESCRIPTOR,
    levels: c_uint,
    mut make: impl FnMut(&mut World, CUDA_ARRAY3D_DESCRIPTOR) -> Answer<usize>,
) -> Answer<CUmipmappedArray> {
    let (context, _) = world.home()?;
    let mut made = Vec::new();
    for level in 0..levels {
        let half = |extent: usize| match extent {
            0 => 0,
            extent => (extent >> level).max(1),
        };
        let its = CUDA_ARRAY3D_DESCRIPTOR {
            Width: half(descriptor.Width),
            Height: half(descriptor.Height),
            Depth: match is_volume(&descriptor) {
                true => half(descriptor.Depth),
                false => descriptor.Depth,
            },
            ..descriptor
        };
        match make(world, its) {
            Ok(level) => made.push(level),
            Err(code) => {
                made.into_iter().for_each(|level| world.remove_array(level));
                return Err(code);
            }
        }
    }
    Ok(pointer(world.add_mipmapped(Mipmapped { context, descriptor, levels: made })))
}

/// Returns the same handle each time.
pub(crate) fn level(
    world: &mut World,
    mipmapped: CUmipmappedArray,
    level: c_uint,
) -> Answer<CUarray> {
    let its = world.mipmapped(mipmapped.addr())?;
    let level = its.levels.get(level as usize).ok_or(INVALID)?;
    Ok(pointer(*level))
}

/// Waits for all work. Unverified: it is taken to behave as the function for arrays.
pub(crate) fn destroy_mipmapped(world: &mut World, mipmapped: CUmipmappedArray) -> Answer {
    not_in_callback("cuMipmappedArrayDestroy")?;
    world.mipmapped(mipmapped.addr())?;
    world.forbidden_in_capture()?;
    world.run_all()?;
    world.remove_mipmapped(mipmapped.addr());
    Ok(())
}

pub(crate) fn mipmapped_sparse_properties(
    world: &mut World,
    mipmapped: CUmipmappedArray,
) -> Answer<CUDA_ARRAY_SPARSE_PROPERTIES> {
    sparse(&world.mipmapped(mipmapped.addr())?.descriptor)
}

pub(crate) fn mipmapped_memory_requirements(
    world: &mut World,
    mipmapped: CUmipmappedArray,
    device: CUdevice,
) -> Answer<CUDA_ARRAY_MEMORY_REQUIREMENTS> {
    world.device(device)?;
    let its = world.mipmapped(mipmapped.addr())?;
    let levels = its.levels.iter();
    let sizes = levels.map(|level| world.array(*level).map_or(0, |its| its.size()));
    requirements(&its.descriptor, sizes.sum())
}

/// Maps tiles of sparse arrays. The texels of an array exist here whether they are mapped or not; only the
/// arguments are checked.
pub(crate) fn map(
    world: &mut World,
    list: *mut CUarrayMapInfo,
    count: c_uint,
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    fail_if(list.is_null() || count == 0, INVALID)?;
    for index in 0..count as usize {
        // SAFETY: the caller passes `count` operations.
        let its = unsafe { list.add(index) };
        // SAFETY: the caller passes `count` operations.
        let its = unsafe { its.read() };
        let descriptor = match its.resourceType {
            CUresourcetype::CU_RESOURCE_TYPE_ARRAY => {
                // SAFETY: the type says that the resource is an array.
                let array = unsafe { its.resource.array };
                world.array(array.addr())?.descriptor
            }
            CUresourcetype::CU_RESOURCE_TYPE_MIPMAPPED_ARRAY => {
                // SAFETY: the type says that the resource is a mipmapped array.
                let mipmapped = unsafe { its.resource.mipmap };
                world.mipmapped(mipmapped.addr())?.descriptor
            }
            _ => return Err(INVALID),
        };
        if !has(&descriptor, CUDA_ARRAY3D_SPARSE) || its.flags != 0 || its.reserved != [0; 2] {
            return Err(INVALID);
        }
        match its.memOperationType {
            CUmemOperationType::CU_MEM_OPERATION_TYPE_UNMAP => {}
            CUmemOperationType::CU_MEM_OPERATION_TYPE_MAP => {
                // SAFETY: the union has only this member.
                let handle = unsafe { its.memHandle.memHandle };
                let handle = crate::api::virtual_memory::known(world, handle)?;
                let physical = world.objects.memory.virtual_memory.physical.get(handle);
                fail_if(physical.is_none_or(|its| its.properties.usage & TILE_POOL == 0), INVALID)?;
            }
            _ => return Err(INVALID),
        }
    }
    world.give_or_capture(stream, Work::Nothing)
}

/// Returns the address of `len` bytes of the first row of an array, from `offset` on. `stream` is that of the copy, or
/// `None` for a copy that the call waits for. Measured: its errors come first, and the array of no bytes is not checked.
fn linear(
    world: &mut World,
    stream: Option<CUstream>,
    array: CUarray,
    offset: usize,
    len: usize,
) -> Answer<u64> {
    match stream {
        Some(stream) => world.stream(stream.addr())?,
        None => world.stream_of_copies()?,
    };
    if len == 0 {
        return Ok(0);
    }
    fail_if(array.is_null(), INVALID)?;
    let its = world.array(array.addr())?;
    let end = offset.checked_add(len).ok_or(INVALID)?;
    let row = its.format.rows(its.descriptor.Width, 1).0;
    fail_if(end > row, INVALID)?;
    Ok(its.storage + offset as u64)
}

pub(crate) fn copy_in(
    world: &mut World,
    array: CUarray,
    offset: usize,
    from: *const c_void,
    size: usize,
) -> Answer {
    let to = linear(world, None, array, offset, size)?;
    crate::api::memory::copy::copy_in(world, to, from, size)
}

pub(crate) fn copy_in_async(
    world: &mut World,
    array: CUarray,
    offset: usize,
    from: *const c_void,
    size: usize,
    stream: CUstream,
) -> Answer {
    let to = linear(world, Some(stream), array, offset, size)?;
    crate::api::memory::copy::copy_in_async(world, to, from, size, stream)
}

pub(crate) fn copy_out(
    world: &mut World,
    to: *mut c_void,
    array: CUarray,
    offset: usize,
    size: usize,
) -> Answer {
    let from = linear(world, None, array, offset, size)?;
    crate::api::memory::copy::copy_out(world, to, from, size)
}

pub(crate) fn copy_out_async(
    world: &mut World,
    to: *mut c_void,
    array: CUarray,
    offset: usize,
    size: usize,
    stream: CUstream,
) -> Answer {
    let from = linear(world, Some(stream), array, offset, size)?;
    crate::api::memory::copy::copy_out_async(world, to, from, size, stream)
}

pub(crate) fn copy_from_device(
    world: &mut World,
    array: CUarray,
    offset: usize,
    from: CUdeviceptr,
    size: usize,
) -> Answer {
    let to = linear(world, None, array, offset, size)?;
    crate::api::memory::copy::copy_on_device(world, to, from, size)
}

pub(crate) fn copy_to_device(
    world: &mut World,
    to: CUdeviceptr,
    array: CUarray,
    offset: usize,
    size: usize,
) -> Answer {
    let from = linear(world, None, array, offset, size)?;
    crate::api::memory::copy::copy_on_device(world, to, from, size)
}

pub(crate) fn copy_to_array(
    world: &mut World,
    to: CUarray,
    to_offset: usize,
    from: CUarray,
    from_offset: usize,
    size: usize,
) -> Answer {
    let to = linear(world, None, to, to_offset, size)?;
    let from = linear(world, None, from, from_offset, size)?;
    crate::api::memory::copy::copy_on_device(world, to, from, size)
}
