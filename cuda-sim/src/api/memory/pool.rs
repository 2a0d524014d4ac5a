//! Memory pools.
//!
//! The pools of locations that are no devices, and managed pools, answer as on an H200 with driver 580.
//! Unverified (from documentation): the memory that a pool reserves beyond its allocations.

use crate::api::prelude::*;
use crate::state::pool::{LocationPools, PORTION, Pool};
use cuda_sys::{
    CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType, CUmemLocation,
    CUmemLocation_st__bindgen_ty_1, CUmemLocationType, CUmemPool_attribute, CUmemPoolProps,
    CUmemoryPool, CudaVersion,
};

fn pointer(handle: usize) -> CUmemoryPool {
    core::ptr::without_provenance_mut(handle)
}

/// Returns a location as numbers, or `None` if a pool cannot be there.
fn place(world: &World, location: &CUmemLocation) -> Option<(u32, i32)> {
    // SAFETY: both members of the union are integers.
    let id = unsafe { location.__bindgen_anon_1.id };
    let is_possible = match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => world.device(id).is_ok(),
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => {
            return (world.settings.profile.driver >= CudaVersion::new(12, 2)).then_some((2, 0));
        }
        CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => {
            world.settings.profile.driver >= CudaVersion::new(12, 2) && id == 0
        }
        _ => false,
    };
    is_possible.then_some((location.type_.0, id))
}

/// Returns a location that only managed pools can have, as numbers.
fn managed_place(world: &World, location: &CUmemLocation) -> Answer<(u32, i32)> {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Ok((location.type_.0, 0)),
        _ => Err(no_pool_at(world, location)),
    }
}

/// Returns the error for a location that has no pools.
fn no_pool_at(world: &World, location: &CUmemLocation) -> CUresult {
    match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST
        | CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => INVALID,
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN
            if world.settings.profile.driver >= CudaVersion::new(13, 4) =>
        {
            INVALID
        }
        _ => CUresult::CUDA_ERROR_NOT_SUPPORTED,
    }
}

/// Checks the properties of a pool, or of an allocation node. Returns the location as numbers.
pub(crate) fn check_props(world: &World, props: &CUmemPoolProps) -> Answer<(u32, i32)> {
    let driver = world.settings.profile.driver;
    let is_managed = props.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED
        && driver >= CudaVersion::new(13, 0);
    let is_pinned = props.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    let place = match place(world, &props.location) {
        Some(place) if is_managed || is_pinned => place,
        None if is_managed => managed_place(world, &props.location)?,
        _ => return Err(INVALID),
    };
    // Fields that an older driver does not know must be zero.
    let reserved = props.reserved.iter().any(|byte| *byte != 0)
        || (props.maxSize != 0 && driver < CudaVersion::new(12, 2))
        || (props.usage != 0 && driver < CudaVersion::new(12, 6))
        || (props.gpuDirectRDMACapable != 0 && driver < CudaVersion::new(13, 4));
    // Unverified (from documentation): memory of the host can be shared if it is on a NUMA node.
    let numa = CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA.0;
    let can_be_shared = is_pinned && (place.0 == 1 || place.0 == numa);
    fail_if(reserved || (!can_be_shared && props.handleTypes.0 != 0), INVALID)?;
    fail_if(is_managed && (props.maxSize != 0 || props.usage != 0), INVALID)?;
    if is_managed && !world.settings.profile.concurrent_managed_access {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    Ok(place)
}

pub(crate) fn create(world: &mut World, props: &CUmemPoolProps) -> Answer<CUmemoryPool> {
    let place = check_props(world, props)?;
    world.forbidden_in_capture()?;
    let device = (place.0 == 1).then(|| usize::try_from(place.1).unwrap_or(0));
    let mut new = Pool::new(device, place, props.allocType.0);
    new.max_size = props.maxSize as u64;
    new.handles = props.handleTypes.0;
    new.usage = props.usage;
    Ok(pointer(world.objects.pools.insert(new)))
}

pub(crate) fn destroy(world: &mut World, pool: CUmemoryPool) -> Answer {
    world.forbidden_in_capture()?;
    world.pool(pool)?;
    let handle = pool.addr();
    if world.objects.pool_shared.has_of(handle) {
        misuse("an imported memory pool is destroyed before its memory is freed");
    }
    fail_if(world.location_pools().any(|its| its.default == handle), INVALID)?;
    for its in world.location_pools() {
        if its.current == handle {
            its.current = its.default;
        }
    }
    // The pool's memory stays allocated until it is freed.
    world.objects.pools.remove(handle);
    Ok(())
}

/// An attribute's value with its C type.
enum Value {
    Int(c_int),
    Long(u64),
}

pub(crate) fn attribute(
    world: &mut World,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Answer {
    world.forbidden_in_capture()?;
    let newer = world.settings.profile.driver >= CudaVersion::new(13, 2);
    let used = world.objects.memory.used_of_pool(pool.addr());
    let its = world.pool(pool)?;
    let number = |number: u32| Value::Int(c_int::try_from(number).unwrap_or(0));
    let answer = match attribute.0 {
        1..=3 => Value::Int(c_int::from(its.reuse[attribute.0 as usize - 1])),
        4 => Value::Long(its.threshold),
        5 => Value::Long(its.reserved),
        6 => Value::Long(its.reserved_peak),
        7 => Value::Long(used),
        8 => Value::Long(its.used_high),
        9 if newer => number(its.kind),
        10 if newer => number(its.handles),
        11 if newer => Value::Int(its.location.1),
        12 if newer => number(its.location.0),
        13 if newer => Value::Long(its.max_size),
        14 if newer => number(u32::from(its.usage != 0)),
        _ => return Err(INVALID),
    };
    fail_if(value.is_null(), INVALID)?;
    match answer {
        // SAFETY: the caller passes a place for a value of the attribute's type.
        Value::Int(answer) => unsafe { value.cast::<c_int>().write(answer) },
        // SAFETY: the caller passes a place for a value of the attribute's type.
        Value::Long(answer) => unsafe { value.cast::<u64>().write(answer) },
    }
    Ok(())
}

/// Returns the size of an attribute's value in bytes, or 0 if it cannot be set.
pub(crate) fn size_of_attribute(attribute: CUmemPool_attribute) -> usize {
    match attribute.0 {
        1..=3 => size_of::<c_int>(),
        4 | 6 | 8 => size_of::<u64>(),
        _ => 0,
    }
}

pub(crate) fn set_attribute(
    world: &mut World,
    pool: CUmemoryPool,
    attribute: CUmemPool_attribute,
    value: *mut c_void,
) -> Answer {
    world.forbidden_in_capture()?;
    let used = world.objects.memory.used_of_pool(pool.addr());
    let its = world.own_pool(pool)?;
    fail_if(value.is_null(), INVALID)?;
    match attribute.0 {
        number @ 1..=3 => {
            // SAFETY: the caller passes a value of the attribute's type.
            its.reuse[number as usize - 1] = unsafe { value.cast::<c_int>().read() } != 0;
        }
        number @ (4 | 6 | 8) => {
            // SAFETY: the caller passes a value of the attribute's type.
            let value = unsafe { value.cast::<u64>().read() };
            match number {
                4 => its.threshold = value,
                // A high-water mark can only be reset: the value must be 0, and the mark becomes the
                // current value.
                _ if value != 0 => return Err(INVALID),
                6 => its.reserved_peak = its.reserved,
                _ => its.used_high = used,
            }
        }
        _ => return Err(INVALID),
    }
    Ok(())
}

pub(crate) fn trim(world: &mut World, pool: CUmemoryPool, keep: usize) -> Answer {
    world.forbidden_in_capture()?;
    let used = world.objects.memory.used_of_pool(pool.addr());
    let its = world.pool(pool)?;
    let least = used.next_multiple_of(PORTION).max(keep as u64);
    its.reserved = its.reserved.min(least);
    Ok(())
}

pub(crate) fn access(
    world: &mut World,
    pool: CUmemoryPool,
    location: *mut CUmemLocation,
) -> Answer<CUmemAccess_flags> {
    world.forbidden_in_capture()?;
    // SAFETY: the caller passes null or a pointer to a location.
    let location = unsafe { location.as_ref() }.ok_or(INVALID)?;
    let place = place(world, location).ok_or(INVALID)?;
    let its = world.pool(pool)?;
    let flags = its.access.get(&place).copied().unwrap_or(0);
    Ok(CUmemAccess_flags(flags))
}

pub(crate) fn set_access(
    world: &mut World,
    pool: CUmemoryPool,
    map: *const CUmemAccessDesc,
    count: usize,
) -> Answer {
    world.forbidden_in_capture()?;
    fail_if(map.is_null() && count != 0, INVALID)?;
    world.pool(pool)?;
    for index in 0..count {
        // SAFETY: the caller passes `count` descriptions.
        let place = unsafe { map.add(index) };
        // SAFETY: the caller passes `count` descriptions.
        let description = unsafe { place.read() };
        let place = self::place(world, &description.location);
        let its = world.pool(pool)?;
        // Measured: memory of the device itself, and managed memory, cannot be made read-only.
        let is_own = its.is_managed() || place == Some(its.location);
        let read = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ;
        fail_if(is_own && description.flags == read, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        let place = place.ok_or(INVALID)?;
        let none = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE;
        if place == its.location && description.flags == none {
            // The device that has the memory always has access.
            return Err(CUresult::CUDA_ERROR_INVALID_DEVICE);
        }
        its.access.insert(place, description.flags.0);
        if let (1, Ok(device)) = (place.0, usize::try_from(place.1)) {
            let reach = (pool.addr(), device);
            match description.flags == none {
                true => world.objects.memory.pool_access.remove(&reach),
                false => world.objects.memory.pool_access.insert(reach),
            };
        }
    }
    Ok(())
}

pub(crate) fn allocate(
    world: &mut World,
    address: Out<CUdeviceptr>,
    size: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Answer {
    world.own_pool(pool)?;
    crate::api::memory::allocate_from(world, address, size, pool.addr(), stream)
}

pub(crate) fn default_of_device(world: &mut World, device: CUdevice) -> Answer<CUmemoryPool> {
    let number = world.device(device)?;
    Ok(pointer(world.objects.device_pools[number].default))
}

pub(crate) fn of_device(world: &mut World, device: CUdevice) -> Answer<CUmemoryPool> {
    // Measured: another code than that of the default pool.
    let number = world.device(device).map_err(|_| INVALID)?;
    Ok(pointer(world.objects.device_pools[number].current))
}

pub(crate) fn set_of_device(world: &mut World, device: CUdevice, pool: CUmemoryPool) -> Answer {
    let number = world.device(device)?;
    // The pool must have memory of this device.
    let its = world.own_pool(pool)?;
    let (of, is_managed) = (its.device, its.is_managed());
    fail_if(of != Some(number), INVALID)?;
    world.forbidden_in_capture()?;
    if is_managed {
        // Measured: allocations without a pool stay in memory of the device.
        let mut place = CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id: device },
        };
        let managed = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
        return set_at(world, &raw mut place, managed, pool);
    }
    world.objects.device_pools[number].current = pool.addr();
    Ok(())
}

/// Returns the default pool of a location and kind of memory, and the pool that it allocates from. The
/// pools of other locations than devices, and of managed memory, are created when they are first used.
fn at_location(
    world: &mut World,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Answer<&mut LocationPools> {
    // SAFETY: the caller passes null or a pointer to a location.
    let location = unsafe { location.as_ref() }.ok_or(INVALID)?;
    let is_managed = kind == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
    fail_if(!is_managed && kind != CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED, INVALID)?;
    let device = match location.type_ {
        CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => {
            // SAFETY: both members of the union are integers.
            let id = unsafe { location.__bindgen_anon_1.id };
            Some(world.device(id).map_err(|_| INVALID)?)
        }
        _ => None,
    };
    let nowhere = location.type_ == CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE;
    let place = match place(world, location) {
        Some(place) => place,
        None if is_managed && nowhere => (0, 0),
        None => return Err(no_pool_at(world, location)),
    };
    if is_managed && !world.settings.profile.concurrent_managed_access {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    if let (false, Some(device)) = (is_managed, device) {
        return Ok(&mut world.objects.device_pools[device]);
    }
    let new = || {
        let pool = world.objects.pools.insert(Pool::new(device, place, kind.0));
        LocationPools::new(pool)
    };
    Ok(world.objects.other_pools.entry((kind.0, place)).or_insert_with(new))
}

pub(crate) fn default_at(
    world: &mut World,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Answer<CUmemoryPool> {
    Ok(pointer(at_location(world, location, kind)?.default))
}

pub(crate) fn at(
    world: &mut World,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
) -> Answer<CUmemoryPool> {
    Ok(pointer(at_location(world, location, kind)?.current))
}

pub(crate) fn set_at(
    world: &mut World,
    location: *mut CUmemLocation,
    kind: CUmemAllocationType,
    pool: CUmemoryPool,
) -> Answer {
    let default = at_location(world, location, kind)?.default;
    let required = world.objects.pools.get(default).map(Pool::memory);
    // The pool must have memory of this location and kind.
    fail_if(Some(world.own_pool(pool)?.memory()) != required, INVALID)?;
    at_location(world, location, kind)?.current = pool.addr();
    Ok(())
}
