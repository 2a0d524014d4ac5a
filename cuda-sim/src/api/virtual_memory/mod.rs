//! Virtual memory: reservations of addresses, physical memory, and mappings. The calls need no context
//! and wait for no work, and a capture allows them. Measured on an H200 with driver 580, except where a
//! comment says otherwise.

pub(crate) mod endpoint;
pub(crate) mod fabric;
pub(crate) mod multicast;

use crate::api::prelude::*;
use crate::call::fault;
use crate::memory::{
    GRANULARITY, Location, MapError, PAGE, Properties, READ_WRITE, Use, device_of, is_of_host,
};
use cuda_sys::{
    CUmemAccessDesc, CUmemAllocationGranularity_flags as Granularity,
    CUmemAllocationHandleType as HandleType, CUmemAllocationProp,
    CUmemAllocationProp_st__bindgen_ty_1, CUmemAllocationType, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemLocation_st__bindgen_ty_1, CUmemLocationType as LocationType,
    CUmemRangeFlags, CUmemRangeHandleType, CudaVersion,
};

const OUT_OF_MEMORY: CUresult = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
const NOT_PERMITTED: CUresult = CUresult::CUDA_ERROR_NOT_PERMITTED;
const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

const DESCRIPTOR: u32 = HandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;
const FABRIC: u32 = HandleType::CU_MEM_HANDLE_TYPE_FABRIC.0;

/// Reservations of this size or more fail. Measured: 64 TiB succeed and 100 TiB do not.
const TOO_LARGE: u64 = 100 << 40;
/// The same for alignments. Measured: 1 TiB succeeds and 64 TiB does not.
const TOO_ALIGNED: u64 = 64 << 40;
/// The end of the addresses that a program can wish for.
const WISHES_END: u64 = 1 << 47;

fn location(location: &CUmemLocation) -> Location {
    // SAFETY: the union has an id, and any number is one.
    (location.type_.0, unsafe { location.__bindgen_anon_1.id })
}

/// Returns whether `size` is a positive multiple of the granularity.
fn is_granular(size: u64) -> bool {
    size != 0 && size % GRANULARITY == 0
}

/// The query checks nothing but its option and the pointers.
pub(crate) fn granularity(
    _: &mut World,
    properties: *const CUmemAllocationProp,
    option: Granularity,
) -> Answer<usize> {
    let is_known = option == Granularity::CU_MEM_ALLOC_GRANULARITY_MINIMUM
        || option == Granularity::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
    fail_if(properties.is_null() || !is_known, INVALID)?;
    Ok(usize::try_from(GRANULARITY).unwrap_or(usize::MAX))
}

pub(crate) fn reserve(
    world: &mut World,
    size: usize,
    alignment: usize,
    hint: CUdeviceptr,
    flags: c_ulonglong,
) -> Answer<CUdeviceptr> {
    let (size, alignment) = (size as u64, alignment as u64);
    let is_aligned = alignment == 0 || alignment.is_power_of_two();
    fail_if(flags != 0 || !is_granular(size) || !is_aligned || hint % GRANULARITY != 0, INVALID)?;
    fail_if(size >= TOO_LARGE || alignment >= TOO_ALIGNED || hint >= WISHES_END, OUT_OF_MEMORY)?;
    let virtual_memory = &mut world.objects.memory.virtual_memory;
    let start = virtual_memory.reserve(hint, size, alignment);
    start.ok_or(OUT_OF_MEMORY)
}

pub(crate) fn free(world: &mut World, address: CUdeviceptr, size: usize) -> Answer {
    match world.objects.memory.virtual_memory.free(address, size as u64) {
        true => Ok(()),
        false => Err(INVALID),
    }
}

/// Returns the properties of physical memory, if there can be such memory.
fn properties(world: &World, wanted: &CUmemAllocationProp) -> Answer<Properties> {
    // Measured: the number of the device is checked first.
    if location(&wanted.location).0 == LocationType::CU_MEM_LOCATION_TYPE_DEVICE.0 {
        world.device(location(&wanted.location).1)?;
    }
    // Managed physical memory is not simulated.
    fail_if(wanted.type_ != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, INVALID)?;
    // Other bits are ignored.
    let handle_types = wanted.requestedHandleTypes.0 & 0xf;
    let (kind, id) = location(&wanted.location);
    match LocationType(kind) {
        LocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            world.device(id)?;
        }
        // Unverified (from documentation): memory of a part of a device.
        LocationType::CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN
            if world.settings.profile.driver >= CudaVersion::new(13, 4) =>
        {
            let [device, domain, ..] = id.to_ne_bytes();
            world.device(device.into())?;
            fail_if(u32::from(domain) >= world.settings.profile.gpu.locality_domains, INVALID)?;
        }
        LocationType::CU_MEM_LOCATION_TYPE_HOST if handle_types == 0 => {}
        LocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA if id == 0 => {}
        _ => return Err(INVALID),
    }
    match handle_types {
        0 | DESCRIPTOR => {}
        handle_types if handle_types & FABRIC != 0 => return Err(NOT_PERMITTED),
        _ => return Err(INVALID),
    }
    let flags = &wanted.allocFlags;
    fail_if(flags.compressionType > 1 || flags.reserved != [0; 4], INVALID)?;
    Ok(Properties {
        location: (kind, id),
        handle_types,
        compression: flags.compressionType,
        is_rdma_capable: flags.gpuDirectRDMACapable != 0,
        usage: flags.usage,
    })
}

pub(crate) fn create(
    world: &mut World,
    size: usize,
    wanted: &CUmemAllocationProp,
    flags: c_ulonglong,
) -> Answer<CUmemGenericAllocationHandle> {
    let size = size as u64;
    fail_if(flags != 0 || !is_granular(size), INVALID)?;
    let properties = properties(world, wanted)?;
    // The host is taken to have as much memory as the device.
    let limit = fault::memory_limit(world.settings.profile.gpu.memory);
    let device = device_of(&properties.location);
    let used = device.map_or(0, |device| world.objects.memory.used(device));
    fail_if(used.saturating_add(size) > limit, OUT_OF_MEMORY)?;
    let made = world.objects.memory.create_physical(properties, size);
    Ok(made.ok_or(OUT_OF_MEMORY)? as c_ulonglong)
}

/// Returns the handle of physical memory. A real driver takes any other value for the address of an
/// object: it crashes, or reads freed memory.
pub(crate) fn known(world: &World, handle: CUmemGenericAllocationHandle) -> Answer<usize> {
    let handle = usize::try_from(handle).map_err(|_| INVALID)?;
    let physical = &world.objects.memory.virtual_memory.physical;
    fail_if(handle == 0, INVALID)?;
    if physical.get(handle).is_some() {
        return Ok(handle);
    }
    misuse(if physical.was_released(handle) {
        "a handle of physical memory is used after it was released"
    } else {
        "a value that is not a handle of physical memory is used as one"
    });
    Err(INVALID)
}

pub(crate) fn release(world: &mut World, handle: CUmemGenericAllocationHandle) -> Answer {
    let handle = known(world, handle)?;
    world.objects.memory.release_physical(handle);
    Ok(())
}

pub(crate) fn map(
    world: &mut World,
    address: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: c_ulonglong,
) -> Answer {
    if size == 0
        || flags != 0
        || address % GRANULARITY != 0
        || !world.objects.memory.is_virtual(address)
    {
        return Err(INVALID);
    }
    let handle = known(world, handle)?;
    let physical = world.objects.memory.virtual_memory.physical.get(handle);
    fail_if(offset != 0 || physical.is_none_or(|its| its.size != size as u64), NOT_SUPPORTED)?;
    world.objects.memory.map(address, handle).map_err(|error| match error {
        MapError::Refused => INVALID,
        MapError::OutOfMemory => OUT_OF_MEMORY,
        MapError::PastEnd => {
            misuse(format!(
                "cuMemMap of {size} bytes at {address:#x} goes past the end of the reservation; a real \
                 driver accepts it"
            ));
            INVALID
        }
    })
}

pub(crate) fn unmap(world: &mut World, address: CUdeviceptr, size: usize) -> Answer {
    // Measured: a range without mappings is accepted, and one that is larger than the reservation.
    let mappings = world.objects.memory.virtual_memory.mappings_in(address, size as u64);
    let next = world.runs.executor.next_operation();
    world.objects.memory.unmap(&mappings.ok_or(INVALID)?, next);
    Ok(())
}

pub(crate) fn set_access(
    world: &mut World,
    address: CUdeviceptr,
    size: usize,
    access: *const CUmemAccessDesc,
    count: usize,
) -> Answer {
    fail_if(access.is_null() || count == 0, INVALID)?;
    let mappings = world.objects.memory.virtual_memory.whole_mappings(address, size as u64);
    let mappings = mappings.ok_or(INVALID)?;
    let mut end = address;
    let mut is_host_memory = true;
    for start in &mappings {
        let its = world.objects.memory.virtual_memory.mapping(*start).ok_or(INVALID)?.1;
        fail_if(*start != end, INVALID)?;
        end = start + its.size;
        let its = world.objects.memory.virtual_memory.properties_of(its.physical);
        is_host_memory &= its.is_some_and(|its| is_of_host(&its.location));
    }
    fail_if(end != address + size as u64, INVALID)?;
    let mut rights = Vec::new();
    for index in 0..count {
        // SAFETY: the caller passes `count` descriptions.
        let its = unsafe { access.add(index) };
        // SAFETY: the caller passes `count` descriptions.
        let its = unsafe { its.read() };
        let place = location(&its.location);
        fail_if(!matches!(its.flags.0, 0 | 1 | READ_WRITE), INVALID)?;
        match LocationType(place.0) {
            LocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
                world.device(place.1).map_err(|_| INVALID)?;
            }
            LocationType::CU_MEM_LOCATION_TYPE_HOST
            | LocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
                fail_if(!is_host_memory, NOT_SUPPORTED)?;
            }
            _ => return Err(INVALID),
        }
        rights.push((place, its.flags.0));
    }
    let virtual_memory = &mut world.objects.memory.virtual_memory;
    let mut sets = rights.into_iter();
    match sets.all(|(place, flags)| virtual_memory.set_access(&mappings, place, flags)) {
        true => Ok(()),
        false => Err(OUT_OF_MEMORY),
    }
}

pub(crate) fn access(
    world: &mut World,
    place: *const CUmemLocation,
    address: CUdeviceptr,
) -> Answer<c_ulonglong> {
    // SAFETY: the caller passes null or a pointer to a location.
    let place = location(unsafe { place.as_ref() }.ok_or(INVALID)?);
    world.device(place.1)?;
    let found = match world.objects.memory.virtual_memory.mapping(address) {
        // Measured: for a place on the host, the access of the device with this number.
        Some((_, its)) => {
            let device = (LocationType::CU_MEM_LOCATION_TYPE_DEVICE.0, place.1);
            its.access.get(&place).or(its.access.get(&device)).copied().unwrap_or(0)
        }
        None => {
            // Memory of `cuMemAlloc`.
            let (_, its) = world.objects.memory.containing(address).ok_or(INVALID)?;
            let is_its = usize::try_from(place.1) == Ok(its.device) && !is_of_host(&place);
            if is_its { READ_WRITE } else { 0 }
        }
    };
    Ok(found.into())
}

pub(crate) fn retain(
    world: &mut World,
    address: *mut c_void,
) -> Answer<CUmemGenericAllocationHandle> {
    let virtual_memory = &mut world.objects.memory.virtual_memory;
    let (_, mapping) = virtual_memory.mapping(address.addr() as u64).ok_or(INVALID)?;
    let physical = mapping.physical;
    virtual_memory.physical.retain(physical);
    Ok(physical as c_ulonglong)
}

/// The properties of an import have no handle types.
pub(crate) fn properties_of(
    world: &mut World,
    handle: CUmemGenericAllocationHandle,
) -> Answer<CUmemAllocationProp> {
    let handle = known(world, handle)?;
    let physical = world.objects.memory.virtual_memory.physical.get(handle);
    let its = physical.ok_or(INVALID)?.properties;
    Ok(CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: HandleType(its.handle_types),
        location: CUmemLocation {
            type_: LocationType(its.location.0),
            __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id: its.location.1 },
        },
        win32HandleMetaData: core::ptr::null_mut(),
        allocFlags: CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: its.compression,
            gpuDirectRDMACapable: its.is_rdma_capable.into(),
            usage: its.usage,
            reserved: [0; 4],
        },
    })
}

/// The descriptor is that of a file in memory. It keeps the contents, also in another process that runs
/// on this driver.
pub(crate) fn export(
    world: &mut World,
    place: *mut c_void,
    handle: CUmemGenericAllocationHandle,
    kind: HandleType,
    flags: c_ulonglong,
) -> Answer {
    let handle = known(world, handle)?;
    let physical = &world.objects.memory.virtual_memory.physical;
    let its = physical.get(handle).ok_or(INVALID)?.properties;
    let is_asked_for = kind.0 == DESCRIPTOR && its.handle_types & DESCRIPTOR != 0;
    fail_if(place.is_null() || flags != 0 || !is_asked_for, INVALID)?;
    let made = physical.export(handle);
    let made = made.ok_or(CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    // SAFETY: the handle type says that the caller passes a place for a descriptor.
    unsafe { place.cast::<c_int>().write(made) };
    Ok(())
}

/// The import does not take the descriptor.
pub(crate) fn import(
    world: &mut World,
    descriptor: *mut c_void,
    kind: HandleType,
) -> Answer<CUmemGenericAllocationHandle> {
    match kind.0 {
        DESCRIPTOR => {}
        FABRIC => return Err(NOT_SUPPORTED),
        _ => return Err(INVALID),
    }
    // A pointer with the descriptor's bits, of which C uses those of an int.
    #[allow(clippy::cast_possible_truncation, reason = "the bits of an int")]
    let descriptor = descriptor.addr() as c_int;
    let made = world.objects.memory.virtual_memory.physical.import(descriptor);
    Ok(made.ok_or(CUresult::CUDA_ERROR_UNKNOWN)? as c_ulonglong)
}

/// Returns a descriptor of a range for other drivers (DMA-BUF). Such a range is whole pages of memory of one
/// device. The descriptor keeps nothing here.
pub(crate) fn range_handle(
    world: &mut World,
    place: *mut c_void,
    address: CUdeviceptr,
    size: usize,
    kind: CUmemRangeHandleType,
    flags: c_ulonglong,
) -> Answer {
    let is_buffer = kind == CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
    let pcie = CUmemRangeFlags::CU_MEM_RANGE_FLAG_DMA_BUF_MAPPING_TYPE_PCIE.0;
    let is_whole = size != 0 && size % PAGE == 0 && address % PAGE as u64 == 0;
    let is_managed = world.objects.memory.is_managed_of_pool(address, 0);
    let is_device = !is_managed
        && (world.objects.memory.is_virtual(address)
            || world.objects.memory.containing(address).is_some());
    if place.is_null() || !is_buffer || flags > pcie.into() || !is_whole || !is_device {
        return Err(INVALID);
    }
    fail_if(!crate::api::memory::batch::is_in_memory(world, address, size), INVALID)?;
    let made = crate::memory::range_descriptor();
    let made = made.ok_or(CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    // SAFETY: the handle type says that the caller passes a place for a descriptor.
    unsafe { place.cast::<c_int>().write(made) };
    Ok(())
}

/// Checks a copy or a fill of a reservation. A real driver refuses the call, and nothing is harmed. The device
/// must have access, or any device if it is `None`.
pub(crate) fn check_mapped(
    world: &World,
    device: Option<usize>,
    address: u64,
    size: usize,
    wanted: Use,
) -> Answer {
    let kind = LocationType::CU_MEM_LOCATION_TYPE_DEVICE.0;
    let location = device.map(|device| (kind, c_int::try_from(device).unwrap_or(-1)));
    let checked = world.objects.memory.check_virtual(address, size, location, wanted);
    checked.map_err(|_| INVALID)
}
