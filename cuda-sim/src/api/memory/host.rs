//! Pinned and registered host memory.

use crate::api::prelude::*;
use crate::memory::HostKind;
use cuda_sys::{
    CU_MEMHOSTALLOC_DEVICEMAP, CU_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_WRITECOMBINED,
    CU_MEMHOSTREGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_PORTABLE,
};

pub(crate) fn allocate(
    world: &mut World,
    start: Out<*mut c_void>,
    size: usize,
    flags: c_uint,
) -> Answer {
    start.required()?;
    let home = world.home()?;
    let known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    world.forbidden_in_capture()?;
    fail_if(flags & !known != 0, INVALID)?;
    if size == 0 {
        start.set(core::ptr::null_mut());
        return Ok(());
    }
    let address = world.objects.memory.pin(size, flags, home)?;
    start.put(core::ptr::with_exposed_provenance_mut(address))
}

pub(crate) fn allocate_simply(world: &mut World, start: Out<*mut c_void>, size: usize) -> Answer {
    allocate(world, start, size, 0)
}

pub(crate) fn free(world: &mut World, start: *mut c_void) -> Answer {
    world.none_or_alive()?;
    world.forbidden_in_capture()?;
    if start.is_null() {
        return Ok(());
    }
    world.run_all()?;
    let is_pinned = |kind: &HostKind| matches!(kind, HostKind::Pinned(_));
    if world.objects.memory.forget_host(start.addr(), is_pinned) {
        return Ok(());
    }
    misuse("cuMemFreeHost of an address that is not a live pinned allocation");
    Err(INVALID)
}

/// Returns the flags as they were passed, with that of mapped memory. For an address within the memory, that of
/// portable memory is absent (measured).
pub(crate) fn flags(world: &mut World, start: *mut c_void) -> Answer<c_uint> {
    world.current()?;
    match world.objects.memory.host_at(start.addr()) {
        Some((first, host)) if matches!(host.kind, HostKind::Pinned(_)) => {
            let hidden = if first == start.addr() { 0 } else { CU_MEMHOSTALLOC_PORTABLE };
            Ok(host.flags & !hidden | CU_MEMHOSTALLOC_DEVICEMAP)
        }
        _ => Err(INVALID),
    }
}

pub(crate) fn device_pointer(
    world: &mut World,
    start: *mut c_void,
    flags: c_uint,
) -> Answer<CUdeviceptr> {
    world.current()?;
    let known = world.objects.memory.host_at(start.addr());
    let known = known.filter(|(_, host)| flags == 0 && !host.is_managed());
    let (_, host) = known.ok_or(INVALID)?;
    Ok(start.addr() as CUdeviceptr + host.distance)
}

/// Unverified: during a capture, registering memory is treated like allocating pinned memory.
pub(crate) fn register(
    world: &mut World,
    start: *mut c_void,
    size: usize,
    flags: c_uint,
) -> Answer {
    let home = world.home()?;
    if start.is_null() || size == 0 || world.objects.memory.is_virtual(start.addr() as u64) {
        return Err(INVALID);
    }
    if flags & !(CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP) != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    world.forbidden_in_capture()?;
    let address = start.expose_provenance();
    world.objects.memory.register(address, size, flags, home)
}

/// Waits for all work (measured).
pub(crate) fn unregister(world: &mut World, start: *mut c_void) -> Answer {
    world.forbidden_in_capture()?;
    world.run_all()?;
    let is_registered = |kind: &HostKind| matches!(kind, HostKind::Registered);
    if world.objects.memory.forget_host(start.addr(), is_registered) {
        return Ok(());
    }
    misuse("cuMemHostUnregister of memory that is not registered");
    Err(CUresult::CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
}
