//! Logical endpoints. Unverified (from documentation). They are simulated on devices of compute capability
//! 9.0 or later; those of several devices need several devices. Handles for other processes are not
//! simulated.

use crate::api::prelude::*;
use crate::api::virtual_memory::known;
use crate::api::virtual_memory::multicast::{is_supported, mapped};
use crate::memory::{Binding, Endpoint, GRANULARITY, Team};
use cuda_sys::{
    CUlogicalEndpointId, CUlogicalEndpointProp, CUlogicalEndpointType as Type,
    CUmemGenericAllocationHandle,
};

const NOT_SUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

pub(crate) fn is_unicast_supported(world: &World) -> bool {
    world.settings.profile.gpu.capability.0 >= 9
}

fn supported(world: &World, is_multicast: bool) -> Answer {
    let can = match is_multicast {
        true => is_supported(world),
        false => is_unicast_supported(world),
    };
    if can { Ok(()) } else { Err(NOT_SUPPORTED) }
}

fn is_granular(bytes: u64) -> bool {
    bytes % GRANULARITY == 0
}

pub(crate) fn reserve_ids(world: &mut World, count: u32) -> Answer<CUlogicalEndpointId> {
    supported(world, false)?;
    fail_if(count == 0, INVALID)?;
    let reserved = world.objects.memory.endpoints.reserve(count);
    reserved.ok_or(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
}

/// Fails unless all of the ids are reserved and have no endpoint.
pub(crate) fn release_ids(world: &mut World, first: CUlogicalEndpointId, count: u32) -> Answer {
    let end = first.checked_add(count).ok_or(INVALID)?;
    let all = &mut world.objects.memory.endpoints.all;
    let is_free = |id: u32| matches!(all.get(&id), Some(None));
    fail_if(count == 0 || !(first..end).all(is_free), INVALID)?;
    all.retain(|id, _| !(first..end).contains(id));
    Ok(())
}

/// Returns the owner and the number of devices of an endpoint with these properties.
fn devices(world: &World, wanted: &CUlogicalEndpointProp) -> Answer<(Option<i32>, u32)> {
    match wanted.type_ {
        Type::CU_LOGICAL_ENDPOINT_TYPE_UNICAST => {
            supported(world, false)?;
            // SAFETY: the type says that the endpoint has one device.
            let device = unsafe { wanted.__bindgen_anon_1.unicast }.device;
            world.device(device)?;
            Ok((Some(device), 1))
        }
        Type::CU_LOGICAL_ENDPOINT_TYPE_MULTICAST => {
            supported(world, true)?;
            // SAFETY: the type says that the endpoint has several devices.
            let count = unsafe { wanted.__bindgen_anon_1.multicast }.numDevices;
            let is_team = (1..=world.settings.profile.devices).contains(&count);
            if is_team { Ok((None, count)) } else { Err(INVALID) }
        }
        _ => Err(INVALID),
    }
}

fn largest(world: &World) -> u64 {
    world.settings.profile.gpu.memory / GRANULARITY * GRANULARITY
}

pub(crate) fn limits(
    world: &mut World,
    alignment: Out<u64>,
    size: Out<u64>,
    wanted: &CUlogicalEndpointProp,
) -> Answer {
    devices(world, wanted)?;
    alignment.set(GRANULARITY);
    size.put(largest(world))
}

pub(crate) fn create(
    world: &mut World,
    id: CUlogicalEndpointId,
    wanted: &CUlogicalEndpointProp,
) -> Answer {
    let (owner, count) = devices(world, wanted)?;
    let size = wanted.size;
    let is_size = size != 0 && is_granular(size) && size <= largest(world);
    fail_if(!is_size || wanted.flags > 1 || wanted.ipcHandleTypes > 1, INVALID)?;
    let place = world.objects.memory.endpoints.all.get_mut(&id);
    let place = place.filter(|its| its.is_none()).ok_or(INVALID)?;
    *place = Some(Endpoint {
        owner,
        team: Team { wanted: count, devices: owner.into_iter().collect(), bindings: Vec::new() },
        size,
        queries: 0,
    });
    Ok(())
}

pub(crate) fn add_device(world: &mut World, id: CUlogicalEndpointId, device: CUdevice) -> Answer {
    world.device(device)?;
    let its = world.objects.memory.endpoints.get(id).ok_or(INVALID)?;
    let team = &mut its.team;
    fail_if(its.owner.is_some() || team.is_complete() || team.devices.contains(&device), INVALID)?;
    team.devices.push(device);
    Ok(())
}

/// Construction takes until the second query.
pub(crate) fn query(world: &mut World, first: CUlogicalEndpointId, count: u32) -> Answer<c_int> {
    let end = first.checked_add(count).ok_or(INVALID)?;
    let mut are_constructed = true;
    for id in first..end {
        let its = world.objects.memory.endpoints.get(id).ok_or(INVALID)?;
        if its.team.is_complete() {
            its.queries = its.queries.saturating_add(1);
        }
        are_constructed &= its.is_constructed();
    }
    Ok(are_constructed.into())
}

/// Destroys an endpoint. The id stays reserved.
pub(crate) fn destroy(world: &mut World, id: CUlogicalEndpointId) -> Answer {
    let place = world.objects.memory.endpoints.all.get_mut(&id);
    let its = place.and_then(Option::take).ok_or(INVALID)?;
    for binding in its.team.bindings {
        world.objects.memory.release_binding(binding);
    }
    Ok(())
}

fn bind(
    world: &mut World,
    id: CUlogicalEndpointId,
    binding: Binding,
    home: i32,
    flags: c_ulonglong,
) -> Answer {
    let physical = &world.objects.memory.virtual_memory.physical;
    let memory = physical.kept(binding.physical);
    let memory = memory.filter(|its| its.team.is_none()).ok_or(INVALID)?.size;
    let its = world.objects.memory.endpoints.get(id).ok_or(INVALID)?;
    if !its.is_constructed() {
        misuse(
            "memory is bound to a logical endpoint before cuLogicalEndpointQuery says that it exists",
        );
        return Err(INVALID);
    }
    let end = |start: u64| start.checked_add(binding.size);
    let fits = end(binding.offset).is_some_and(|end| end <= its.size)
        && end(binding.start).is_some_and(|end| end <= memory);
    let numbers = [binding.offset, binding.start, binding.size];
    let is_its = its.team.devices.contains(&binding.device) && home == binding.device;
    if flags != 0 || binding.size == 0 || !fits || !numbers.into_iter().all(is_granular) || !is_its
    {
        return Err(INVALID);
    }
    let mut others = its.team.bindings.iter();
    fail_if(others.any(|its| its.overlaps(binding.device, binding.offset, binding.size)), INVALID)?;
    world.objects.memory.bind_endpoint(id, binding);
    Ok(())
}

pub(crate) fn bind_memory(
    world: &mut World,
    id: CUlogicalEndpointId,
    device: CUdevice,
    offset: u64,
    memory: CUmemGenericAllocationHandle,
    start: u64,
    size: u64,
    flags: c_ulonglong,
) -> Answer {
    let physical = known(world, memory)?;
    let home = crate::api::virtual_memory::multicast::device_of_handle(world, physical);
    let binding = Binding { device, offset, size, physical, start };
    bind(world, id, binding, home, flags)
}

pub(crate) fn bind_address(
    world: &mut World,
    id: CUlogicalEndpointId,
    device: CUdevice,
    offset: u64,
    address: *mut c_void,
    size: u64,
    flags: c_ulonglong,
) -> Answer {
    let (physical, start, home) = mapped(world, address.addr() as u64)?;
    let binding = Binding { device, offset, size, physical, start };
    bind(world, id, binding, home, flags)
}

pub(crate) fn unbind(
    world: &mut World,
    id: CUlogicalEndpointId,
    device: CUdevice,
    offset: u64,
    size: u64,
) -> Answer {
    let its = world.objects.memory.endpoints.get(id).ok_or(INVALID)?;
    let bindings = &mut its.team.bindings;
    let is_it = |its: &Binding| (its.device, its.offset, its.size) == (device, offset, size);
    let index = bindings.iter().position(is_it).ok_or(INVALID)?;
    let binding = bindings.swap_remove(index);
    world.objects.memory.release_binding(binding);
    Ok(())
}
