//! Device memory, and the checks of memory that operations use.

pub(crate) mod batch;
pub(crate) mod copies_2d_3d;
pub(crate) mod copy;
pub(crate) mod decompress;
pub(crate) mod fill;
pub(crate) mod host;
pub(crate) mod ipc;
pub(crate) mod managed;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod pool_ipc;

use crate::api::prelude::*;
use crate::call::fault;
use crate::exec::Work;
use crate::memory::{Kind, Use};
use crate::races::Access;
use crate::state::pool::Pool;
use crate::state::process::error_log::because;
use cuda_sys::CUctx_flags;

pub(crate) fn info(world: &mut World, free: Out<usize>, total: Out<usize>) -> Answer {
    let current = world.current()?;
    let device = world.context(current)?.device;
    free.required()?;
    total.required()?;
    let all = world.settings.profile.gpu.memory;
    let left = fault::memory_limit(all).saturating_sub(world.objects.memory.used(device));
    free.set(usize::try_from(left).unwrap_or(0));
    total.put(usize::try_from(all).unwrap_or(0))
}

pub(crate) fn allocate(world: &mut World, address: Out<CUdeviceptr>, size: usize) -> Answer {
    address.required()?;
    let current = world.current()?;
    let owner = world.owner_of(current)?;
    world.forbidden_in_capture()?;
    let device = world.context(owner)?.device;
    let limit = fault::memory_limit(world.settings.profile.gpu.memory);
    if size == 0 {
        because("Requested 0 byte allocation");
        address.set(0);
    }
    make_room(world, size, device, limit);
    let start = world.objects.memory.allocate(size, Kind::Plain, owner, device, limit)?;
    address.put(start)
}

/// If there is too little memory, runs the enqueued frees that are ready.
fn make_room(world: &mut World, size: usize, device: usize, limit: u64) {
    if world.objects.memory.used(device).saturating_add(size as u64) > limit {
        world.runs.executor.free_what_is_next(&mut world.objects.memory);
    }
}

pub(crate) fn free(world: &mut World, address: CUdeviceptr) -> Answer {
    if address == 0 {
        return world.forbidden_in_capture();
    }
    world.none_or_alive()?;
    world.forbidden_in_capture()?;
    if crate::api::memory::managed::free(world, address)? {
        return Ok(());
    }
    fail_if(world.objects.memory.is_virtual(address), INVALID)?;
    if world.objects.memory.is_variable(address) {
        misuse("cuMemFree of a variable of a module");
        return Err(INVALID);
    }
    let its = world.objects.memory.starts_at(address);
    let is_of_graph = its.as_ref().is_some_and(|its| its.is_of_graph);
    let kind = its.map(|its| its.kind);
    match kind {
        // `cuMemFree` may free what a graph has allocated.
        Some(Kind::Ordered { freed: false, .. }) if is_of_graph => {}
        Some(Kind::Plain) => {
            world.run_all()?;
        }
        // `cuMemFree` may free imported pool memory. The importing process has waited for the work on
        // it.
        Some(Kind::Ordered { freed: false, .. })
            if world.objects.pool_shared.is_imported(address) =>
        {
            world.objects.pool_shared.forget(address);
        }
        Some(Kind::Ordered { freed: false, .. }) => {
            misuse("cuMemFree of stream-ordered memory: it does not wait for work that uses it");
        }
        Some(Kind::Ordered { freed: true, .. }) | None => {
            misuse(format!("cuMemFree of {address:#x}, which is not a live allocation"));
            return Err(INVALID);
        }
    }
    world.begin_host_access();
    world.objects.memory.note_lifetime(address, Access::Free);
    world.end_host_access();
    world.objects.memory.free(address);
    Ok(())
}

pub(crate) fn allocate_async(
    world: &mut World,
    address: Out<CUdeviceptr>,
    size: usize,
    stream: CUstream,
) -> Answer {
    let raw = world.stream(stream.addr())?;
    let home = world.objects.streams.get(raw);
    let device = world.context(home.map_or(0, |its| its.context))?.device;
    let pool = world.objects.device_pools[device].current;
    allocate_from(world, address, size, pool, stream)
}

/// Allocates memory from a pool in stream order.
pub(crate) fn allocate_from(
    world: &mut World,
    address: Out<CUdeviceptr>,
    size: usize,
    pool: usize,
    stream: CUstream,
) -> Answer {
    address.required()?;
    let stream = world.stream(stream.addr())?;
    if let Some(capture) = world.recording(stream)? {
        return crate::api::graph::memory::capture_allocation(
            world,
            address,
            size,
            pool,
            (stream, capture),
        );
    }
    world.forbidden_in_capture()?;
    // Measured: there is nothing to free, and freeing 0 is allowed.
    if size == 0 {
        address.set(0);
        return Ok(());
    }
    let context = world.objects.streams.get(stream).map_or(0, |its| its.context);
    let limit = fault::memory_limit(world.settings.profile.gpu.memory);
    let kind = Kind::Ordered { ready: false, freed: false };
    let home = world.context(context)?.device;
    if world.room_in_pool(pool, size).is_err() {
        world.runs.executor.free_what_is_next(&mut world.objects.memory);
    }
    let device = world.room_in_pool(pool, size)?.unwrap_or(home);
    let start = match world.objects.pools.get(pool).and_then(Pool::pages) {
        Some(pages) => world.objects.memory.allocate_managed(size, pages, context, device)?,
        None => {
            make_room(world, size, device, limit);
            world.objects.memory.allocate(size, kind, context, device, limit)?
        }
    };
    world.now_of_pool(start, pool);
    world.give(stream, Work::Allocate(start), Vec::new());
    address.put(start)
}

pub(crate) fn free_async(world: &mut World, address: CUdeviceptr, stream: CUstream) -> Answer {
    let stream = world.stream(stream.addr())?;
    if world.recording(stream)?.is_some() {
        return crate::api::graph::memory::capture_free(world, address, stream);
    }
    world.forbidden_in_capture()?;
    if address == 0 {
        return Ok(());
    }
    fail_if(world.objects.memory.is_virtual(address), INVALID)?;
    match world.objects.memory.starts_at(address).map(|its| its.kind) {
        Some(Kind::Ordered { freed: false, .. }) => {}
        // Measured: the driver accepts other memory of a device.
        Some(Kind::Plain) => misuse("cuMemFreeAsync of memory that is not stream-ordered"),
        None if world.objects.memory.is_managed(address) => {
            misuse("cuMemFreeAsync of memory of cuMemAllocManaged");
            return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
        }
        _ => {
            misuse(format!("cuMemFreeAsync of {address:#x}, which is not a live allocation"));
            return Err(INVALID);
        }
    }
    world.give(stream, Work::Free(address), Vec::new());
    world.objects.memory.note_free(address);
    Ok(())
}

/// Checks, when an operation is enqueued, that its memory is in one allocation and that no free was
/// enqueued for it.
pub(crate) fn check_given(world: &World, address: CUdeviceptr, size: usize, wanted: Use) -> Answer {
    check_given_to(world, None, address, size, wanted)
}

/// The same for an operation of a device, which must have access to virtual memory.
pub(crate) fn check_given_to(
    world: &World,
    device: Option<usize>,
    address: CUdeviceptr,
    size: usize,
    wanted: Use,
) -> Answer {
    if world.objects.memory.is_virtual(address) {
        return crate::api::virtual_memory::check_mapped(world, device, address, size, wanted);
    }
    // Host memory, named by its device address.
    if world.objects.memory.host_reached(address, size).is_some() {
        return Ok(());
    }
    let holder = world.objects.memory.containing(address);
    if let Some((_, Kind::Ordered { freed: true, .. })) = holder.map(|(at, its)| (at, its.kind)) {
        misuse(format!("{size} bytes at {address:#x} are used after their free was enqueued"));
        return Err(INVALID);
    }
    let end = holder.map(|(start, its)| start + its.bytes.len() as u64 - address);
    match end {
        Some(room) if room >= size as u64 => Ok(()),
        _ => {
            misuse(format!("{size} bytes at {address:#x} are not in one allocation"));
            Err(INVALID)
        }
    }
}

/// The same for an operation on a stream. A capture may use the memory of an allocation node, which has
/// not been allocated.
pub(crate) fn check_given_on(
    world: &World,
    stream: usize,
    address: CUdeviceptr,
    size: usize,
    wanted: Use,
) -> Answer {
    let home = world.objects.streams.get(stream);
    let is_capturing = home.is_some_and(|its| its.capture.is_some());
    // A capture does not check that reserved addresses are mapped (measured).
    let is_later = || world.objects.memory.is_virtual(address);
    if is_capturing && (world.objects.memory.is_reserved(address, size as u64) || is_later()) {
        return Ok(());
    }
    check_given(world, address, size, wanted)?;
    check_access(world, stream, address, size, wanted)
}

/// Returns whether a synchronous call on a stream waits until its work is complete (measured): it does if it
/// uses host memory or managed memory, and if the memory or the context has the setting `SYNC_MEMOPS`. That memory
/// of the host that is mapped counts as memory of a device is unverified.
pub(crate) fn call_waits(world: &World, stream: usize, addresses: &[CUdeviceptr]) -> bool {
    let context = world.objects.streams.get(stream).map(|its| its.context);
    let context = context.and_then(|its| world.objects.contexts.get(its));
    let flag = CUctx_flags::CU_CTX_SYNC_MEMOPS.0;
    if context.is_some_and(|its| its.settings.flags & flag != 0) {
        return true;
    }
    addresses.iter().any(|address| {
        let holder = world.objects.memory.containing(*address);
        let is_synchronous = holder.is_some_and(|(_, its)| its.is_synchronous);
        is_synchronous
            || world.objects.memory.host_around(*address).is_some()
            || world.objects.memory.is_managed_of_pool(*address, 1)
    })
}

/// Fails if the device of a stream has no access to memory of a pool (from a test of NVIDIA), or to virtual memory
/// (measured).
pub(crate) fn check_access(
    world: &World,
    stream: usize,
    address: CUdeviceptr,
    size: usize,
    wanted: Use,
) -> Answer {
    match world.objects.streams.get(stream) {
        Some(stream) => check_access_of(world, stream.context, address, size, wanted),
        None => Ok(()),
    }
}

/// Fails if the device of a context has no access to memory of a pool, or to virtual memory.
pub(crate) fn check_access_of(
    world: &World,
    context: usize,
    address: CUdeviceptr,
    size: usize,
    wanted: Use,
) -> Answer {
    let device = world.context(context)?.device;
    if world.objects.memory.is_virtual(address) {
        return crate::api::virtual_memory::check_mapped(
            world,
            Some(device),
            address,
            size,
            wanted,
        );
    }
    let allocation = world.objects.memory.containing(address).map(|(_, its)| its);
    // All devices can use managed memory.
    let allocation = allocation.filter(|its| its.managed.is_none());
    let Some((pool, owner)) = allocation.and_then(|its| Some((its.pool?, its.device))) else {
        return Ok(());
    };
    if owner == device || world.objects.memory.pool_access.contains(&(pool, device)) {
        return Ok(());
    }
    Err(INVALID)
}
