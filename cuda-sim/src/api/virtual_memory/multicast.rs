//! Multicast objects. Unverified (from documentation), except that a machine with one device does not
//! support them: they are simulated with two devices or more of compute capability 9.0 or later.

use crate::api::prelude::*;
use crate::api::virtual_memory::known;
use crate::memory::{Binding, GRANULARITY, Properties, device_of};
use cuda_sys::{CUmemGenericAllocationHandle, CUmulticastGranularity_flags, CUmulticastObjectProp};

const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

pub(crate) fn is_supported(world: &World) -> bool {
    world.settings.profile.devices > 1 && world.settings.profile.gpu.capability.0 >= 9
}

fn supported(world: &World) -> Answer {
    match is_supported(world) {
        true => Ok(()),
        false => Err(NOT_SUPPORTED),
    }
}

fn is_granular(bytes: u64) -> bool {
    bytes % GRANULARITY == 0
}

pub(crate) fn granularity(
    world: &mut World,
    properties: *const CUmulticastObjectProp,
    option: CUmulticastGranularity_flags,
) -> Answer<usize> {
    fail_if(properties.is_null() || option.0 > 1, INVALID)?;
    supported(world)?;
    Ok(usize::try_from(GRANULARITY).unwrap_or(usize::MAX))
}

pub(crate) fn create(
    world: &mut World,
    properties: *const CUmulticastObjectProp,
) -> Answer<CUmemGenericAllocationHandle> {
    // SAFETY: the caller passes null or a pointer to properties.
    let its = unsafe { properties.as_ref() }.ok_or(INVALID)?;
    supported(world)?;
    let size = its.size as u64;
    let is_team = (1..=world.settings.profile.devices).contains(&its.numDevices);
    if !is_team || size == 0 || !is_granular(size) || its.flags != 0 || its.handleTypes > 1 {
        return Err(INVALID);
    }
    let properties = Properties {
        location: (0, 0),
        handle_types: u32::from(its.handleTypes != 0),
        compression: 0,
        is_rdma_capable: false,
        usage: 0,
    };
    let physical = &mut world.objects.memory.virtual_memory.physical;
    let made = physical.create_team(properties, size, its.numDevices);
    Ok(made.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)? as c_ulonglong)
}

/// All devices are added before memory is bound.
pub(crate) fn add_device(
    world: &mut World,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
) -> Answer {
    let object = known(world, object)?;
    world.device(device)?;
    let team = world.objects.memory.virtual_memory.physical.team(object);
    let team = team.ok_or(INVALID)?;
    fail_if(team.is_complete() || team.devices.contains(&device), INVALID)?;
    team.devices.push(device);
    Ok(())
}

fn bind(world: &mut World, object: usize, binding: Binding, flags: c_ulonglong) -> Answer {
    let physical = &mut world.objects.memory.virtual_memory.physical;
    let whole = physical.get(object).map_or(0, |its| its.size);
    let memory = physical.get(binding.physical).or_else(|| physical.kept(binding.physical));
    let memory = memory.filter(|its| its.team.is_none()).ok_or(INVALID)?.size;
    let team = physical.team(object).ok_or(INVALID)?;
    let end = |start: u64| start.checked_add(binding.size);
    let fits = end(binding.offset).is_some_and(|end| end <= whole)
        && end(binding.start).is_some_and(|end| end <= memory);
    let is_aligned = [binding.offset, binding.start, binding.size].into_iter().all(is_granular);
    if flags != 0
        || binding.size == 0
        || !fits
        || !is_aligned
        || !team.is_complete()
        || !team.devices.contains(&binding.device)
    {
        return Err(INVALID);
    }
    let mut others = team.bindings.iter();
    fail_if(others.any(|its| its.overlaps(binding.device, binding.offset, binding.size)), INVALID)?;
    physical.bind(object, binding);
    Ok(())
}

pub(crate) fn bind_memory_on(
    world: &mut World,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    start: usize,
    size: usize,
    flags: c_ulonglong,
) -> Answer {
    let (object, physical) = (known(world, object)?, known(world, memory)?);
    let binding =
        Binding { device, offset: offset as u64, size: size as u64, physical, start: start as u64 };
    bind(world, object, binding, flags)
}

/// The device is that of the memory.
pub(crate) fn bind_memory(
    world: &mut World,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    memory: CUmemGenericAllocationHandle,
    start: usize,
    size: usize,
    flags: c_ulonglong,
) -> Answer {
    let device = device_of_handle(world, known(world, memory)?);
    bind_memory_on(world, object, device, offset, memory, start, size, flags)
}

/// Returns the number of the device that has memory, or -1.
fn device_number(properties: &Properties) -> CUdevice {
    let device = device_of(&properties.location);
    device.and_then(|its| its.try_into().ok()).unwrap_or(-1)
}

/// Returns the device of the memory of a handle, or -1.
pub(crate) fn device_of_handle(world: &World, handle: usize) -> CUdevice {
    let properties = world.objects.memory.virtual_memory.properties_of(handle);
    properties.map_or(-1, |its| device_number(&its))
}

/// Returns the memory that is mapped at an address: its handle, the offset in it, and its device.
pub(crate) fn mapped(world: &World, address: CUdeviceptr) -> Answer<(usize, u64, i32)> {
    let virtual_memory = &world.objects.memory.virtual_memory;
    let (start, mapping) = virtual_memory.mapping(address).ok_or(INVALID)?;
    let its = virtual_memory.properties_of(mapping.physical).ok_or(INVALID)?;
    Ok((mapping.physical, address - start, device_number(&its)))
}

pub(crate) fn bind_address_on(
    world: &mut World,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    address: CUdeviceptr,
    size: usize,
    flags: c_ulonglong,
) -> Answer {
    let object = known(world, object)?;
    let (physical, start, _) = mapped(world, address)?;
    let binding = Binding { device, offset: offset as u64, size: size as u64, physical, start };
    bind(world, object, binding, flags)
}

/// The device is that of the memory.
pub(crate) fn bind_address(
    world: &mut World,
    object: CUmemGenericAllocationHandle,
    offset: usize,
    address: CUdeviceptr,
    size: usize,
    flags: c_ulonglong,
) -> Answer {
    let (_, _, device) = mapped(world, address)?;
    bind_address_on(world, object, device, offset, address, size, flags)
}

pub(crate) fn unbind(
    world: &mut World,
    object: CUmemGenericAllocationHandle,
    device: CUdevice,
    offset: usize,
    size: usize,
) -> Answer {
    let object = known(world, object)?;
    match world.objects.memory.unbind(object, device, offset as u64, size as u64) {
        true => Ok(()),
        false => Err(INVALID),
    }
}
