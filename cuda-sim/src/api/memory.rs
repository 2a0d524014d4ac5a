//! Device memory and copies.

use super::Out;
use crate::account::misuse;
use crate::call::fault;
use crate::exec::Work;
use crate::memory::{Kind, Use};
use crate::races::Access;
use crate::state::error_log::because;
use crate::state::{Answer, World};
use core::ffi::{c_uint, c_void};
use cuda_sys::{CUdeviceptr, CUresult, CUstream};

pub(super) fn info(world: &mut World, free: &mut Out<usize>, total: &mut Out<usize>) -> Answer {
    let current = world.current()?;
    let device = world.context(current)?.device;
    free.required()?;
    total.required()?;
    let all = world.profile.gpu.memory;
    let left = fault::memory_limit(all).saturating_sub(world.memory.used(device));
    free.set(usize::try_from(left).unwrap_or(0));
    total.set(usize::try_from(all).unwrap_or(0));
    Ok(())
}

pub(super) fn allocate(world: &mut World, address: &mut Out<CUdeviceptr>, size: usize) -> Answer {
    address.required()?;
    let current = world.current()?;
    let owner = world.owner_of(current)?;
    world.forbidden_in_capture()?;
    let device = world.context(owner)?.device;
    let limit = fault::memory_limit(world.profile.gpu.memory);
    if size == 0 {
        because("Requested 0 byte allocation");
        address.set(0);
    }
    make_room(world, size, device, limit);
    let start = world
        .memory
        .allocate(size, Kind::Plain, owner, device, limit)?;
    address.set(start);
    Ok(())
}

/// If there is too little memory, runs the enqueued frees that are ready.
fn make_room(world: &mut World, size: usize, device: usize, limit: u64) {
    if world.memory.used(device).saturating_add(size as u64) > limit {
        world.executor.free_what_is_next(&mut world.memory);
    }
}

pub(super) fn free(world: &mut World, address: CUdeviceptr) -> Answer {
    if address == 0 {
        return Ok(());
    }
    world.forbidden_in_capture()?;
    if super::managed::free(world, address)? {
        return Ok(());
    }
    if world.memory.is_virtual(address) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if world.memory.is_variable(address) {
        misuse("cuMemFree of a variable of a module");
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let its = world.memory.starts_at(address);
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
        Some(Kind::Ordered { freed: false, .. }) if world.pool_shared.is_imported(address) => {
            world.pool_shared.forget(address);
        }
        Some(Kind::Ordered { freed: false, .. }) => {
            misuse("cuMemFree of stream-ordered memory: it does not wait for work that uses it");
        }
        Some(Kind::Ordered { freed: true, .. }) | None => {
            misuse(format!(
                "cuMemFree of {address:#x}, which is not a live allocation"
            ));
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
    }
    world.begin_host_access();
    world.memory.note_lifetime(address, Access::Free);
    world.end_host_access();
    world.memory.free(address);
    Ok(())
}

pub(super) fn allocate_async(
    world: &mut World,
    address: &mut Out<CUdeviceptr>,
    size: usize,
    stream: CUstream,
) -> Answer {
    let raw = world.stream(stream.addr())?;
    let home = world.streams.get(raw);
    let device = world.context(home.map_or(0, |its| its.context))?.device;
    let pool = world.device_pools[device].current;
    allocate_from(world, address, size, pool, stream)
}

/// Allocates memory from a pool in stream order.
pub(super) fn allocate_from(
    world: &mut World,
    address: &mut Out<CUdeviceptr>,
    size: usize,
    pool: usize,
    stream: CUstream,
) -> Answer {
    address.required()?;
    let stream = world.stream(stream.addr())?;
    if let Some(capture) = world.recording(stream)? {
        return super::graph::memory::capture_allocation(
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
    let context = world.streams.get(stream).map_or(0, |its| its.context);
    let limit = fault::memory_limit(world.profile.gpu.memory);
    let kind = Kind::Ordered {
        ready: false,
        freed: false,
    };
    let home = world.context(context)?.device;
    if world.room_in_pool(pool, size).is_err() {
        world.executor.free_what_is_next(&mut world.memory);
    }
    let device = world.room_in_pool(pool, size)?.unwrap_or(home);
    make_room(world, size, device, limit);
    let start = world.memory.allocate(size, kind, context, device, limit)?;
    world.now_of_pool(start, pool);
    world.give(stream, Work::Allocate(start), Vec::new());
    address.set(start);
    Ok(())
}

pub(super) fn free_async(world: &mut World, address: CUdeviceptr, stream: CUstream) -> Answer {
    let stream = world.stream(stream.addr())?;
    if world.recording(stream)?.is_some() {
        return super::graph::memory::capture_free(world, address, stream);
    }
    world.forbidden_in_capture()?;
    if address == 0 {
        return Ok(());
    }
    if world.memory.is_virtual(address) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    match world.memory.starts_at(address).map(|its| its.kind) {
        Some(Kind::Ordered { freed: false, .. }) => {}
        Some(Kind::Plain) => {
            misuse("cuMemFreeAsync of memory that is not stream-ordered");
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        _ => {
            misuse(format!(
                "cuMemFreeAsync of {address:#x}, which is not a live allocation"
            ));
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
    }
    world.give(stream, Work::Free(address), Vec::new());
    world.memory.note_free(address);
    Ok(())
}

/// Copies synchronously, in the order of the default stream.
pub(super) fn copy_in(
    world: &mut World,
    to: CUdeviceptr,
    from: *const c_void,
    size: usize,
) -> Answer {
    world.wait_for(|world| {
        let stream = world.stream_of_copies()?;
        if size != 0 {
            check_given(world, to, size, Use::Write)?;
            check_pool_access(world, stream, to)?;
        }
        let bytes = host_bytes(from, size)?;
        Ok(Some(world.give(
            stream,
            Work::CopyIn { to, bytes },
            Vec::new(),
        )))
    })?;
    world.begin_copy_by_call();
    let memory = &mut world.memory;
    memory.note_host_access(from.addr(), size, Access::Read);
    world.end_host_access();
    Ok(())
}

pub(super) fn copy_out(
    world: &mut World,
    to: *mut c_void,
    from: CUdeviceptr,
    size: usize,
) -> Answer {
    let stream = world.stream_of_copies()?;
    check_pool_access(world, stream, from)?;
    world.wait_for(|world| Ok(Some(world.give(stream, Work::CopyByCall, Vec::new()))))?;
    copy_to_host(world, to, from, size)
}

pub(super) fn copy_to_host(
    world: &mut World,
    to: *mut c_void,
    from: CUdeviceptr,
    size: usize,
) -> Answer {
    if to.is_null() && size != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if world.memory.is_virtual(from) {
        check_given(world, from, size, Use::Read)?;
    }
    world.begin_copy_by_call();
    let memory = &mut world.memory;
    memory.note_host_access(to.addr(), size, Access::Write);
    let copied = match memory.bytes(from, size) {
        Ok(source) => {
            // SAFETY: the caller passes `size` bytes. The source has the same length and does not overlap
            // them.
            unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), to.cast(), size) };
            Ok(())
        }
        Err(what) => {
            misuse(what);
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
    };
    world.end_host_access();
    copied
}

pub(super) fn host_bytes(from: *const c_void, size: usize) -> Answer<Vec<u8>> {
    if from.is_null() && size != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let mut bytes: Vec<u8> = Vec::with_capacity(size);
    // SAFETY: the caller passes `size` bytes. The target has room for them and does not overlap them.
    unsafe { core::ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), size) };
    // SAFETY: these bytes were written above.
    unsafe { bytes.set_len(size) };
    Ok(bytes)
}

/// Checks, when an operation is enqueued, that its memory is in one allocation and that no free was
/// enqueued for it.
pub(super) fn check_given(world: &World, address: CUdeviceptr, size: usize, wanted: Use) -> Answer {
    if world.memory.is_virtual(address) {
        return super::virtual_memory::check_mapped(world, address, size, wanted);
    }
    // Host memory, named by its device address.
    if world.memory.host_reached(address, size).is_some() {
        return Ok(());
    }
    let holder = world.memory.containing(address);
    if let Some((_, Kind::Ordered { freed: true, .. })) = holder.map(|(at, its)| (at, its.kind)) {
        misuse(format!(
            "{size} bytes at {address:#x} are used after their free was enqueued"
        ));
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let end = holder.map(|(start, its)| start + its.bytes.len() as u64 - address);
    match end {
        Some(room) if room >= size as u64 => Ok(()),
        _ => {
            misuse(format!(
                "{size} bytes at {address:#x} are not in one allocation"
            ));
            Err(CUresult::CUDA_ERROR_INVALID_VALUE)
        }
    }
}

/// The same for an operation on a stream. A capture may use the memory of an allocation node, which has
/// not been allocated.
pub(super) fn check_given_on(
    world: &World,
    stream: usize,
    address: CUdeviceptr,
    size: usize,
    wanted: Use,
) -> Answer {
    let home = world.streams.get(stream);
    let is_capturing = home.is_some_and(|its| its.capture.is_some());
    // A capture does not check that reserved addresses are mapped (measured).
    let is_later = || world.memory.is_virtual(address);
    if is_capturing && (world.memory.is_reserved(address, size as u64) || is_later()) {
        return Ok(());
    }
    check_given(world, address, size, wanted)?;
    check_pool_access(world, stream, address)
}

/// Fails for memory of a pool of another device if the pool gives the stream's device no access (from a test
/// of NVIDIA).
pub(super) fn check_pool_access(world: &World, stream: usize, address: CUdeviceptr) -> Answer {
    match world.streams.get(stream) {
        Some(stream) => check_pool_access_of(world, stream.context, address),
        None => Ok(()),
    }
}

/// Fails for memory of a pool of another device if the pool gives the context's device no access.
pub(super) fn check_pool_access_of(world: &World, context: usize, address: CUdeviceptr) -> Answer {
    let allocation = world.memory.containing(address).map(|(_, its)| its);
    let Some((pool, owner)) = allocation.and_then(|its| Some((its.pool?, its.device))) else {
        return Ok(());
    };
    let device = world.context(context)?.device;
    if owner == device || world.memory.pool_access.contains(&(pool, device)) {
        return Ok(());
    }
    Err(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(super) fn copy_in_async(
    world: &mut World,
    to: CUdeviceptr,
    from: *const c_void,
    size: usize,
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    check_given_on(world, stream, to, size, Use::Write)?;
    if size == 0 && world.recording(stream)?.is_some() {
        // Measured: no node.
        return Ok(());
    }
    let work = if world.memory.is_pinned(from.addr(), size) {
        Work::CopyInPinned {
            to,
            from: from.addr(),
            len: size,
        }
    } else if world.recording(stream)?.is_some() {
        // Each launch of the graph reads the memory.
        Work::CopyInHost {
            to,
            from: from.expose_provenance(),
            len: size,
        }
    } else {
        // Pageable memory is staged before the call returns (measured).
        Work::CopyIn {
            to,
            bytes: host_bytes(from, size)?,
        }
    };
    world.give_or_capture(stream, work)
}

pub(super) fn copy_out_async(
    world: &mut World,
    to: *mut c_void,
    from: CUdeviceptr,
    size: usize,
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    check_given_on(world, stream, from, size, Use::Read)?;
    if size == 0 && world.recording(stream)?.is_some() {
        return Ok(());
    }
    if world.memory.is_pinned(to.addr(), size) {
        let work = Work::CopyOut {
            from,
            to: to.addr(),
            len: size,
        };
        return world.give_or_capture(stream, work);
    }
    if world.recording(stream)?.is_some() {
        // Each launch of the graph writes the memory.
        let work = Work::CopyOutHost {
            from,
            to: to.expose_provenance(),
            len: size,
        };
        return world.give_or_capture(stream, work);
    }
    // A copy to pageable memory returns when the copy is complete (measured).
    world.wait_for(|world| Ok(Some(world.give(stream, Work::CopyByCall, Vec::new()))))?;
    copy_to_host(world, to, from, size)
}

pub(super) fn copy_on_device_async(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    check_given_on(world, stream, from, size, Use::Read)?;
    check_given_on(world, stream, to, size, Use::Write)?;
    if size == 0 && world.recording(stream)?.is_some() {
        return Ok(());
    }
    let work = Work::CopyOnDevice {
        from,
        to,
        len: size,
    };
    world.give_or_capture(stream, work)
}

/// Copies on the device, in the order of the default stream, and waits.
pub(super) fn copy_on_device(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
) -> Answer {
    let stream = world.stream_of_copies()?;
    world.wait_for(|world| {
        for (address, wanted) in [(from, Use::Read), (to, Use::Write)] {
            check_given(world, address, size, wanted)?;
            check_pool_access(world, stream, address)?;
        }
        let len = size;
        let work = Work::CopyOnDevice { from, to, len };
        Ok(Some(world.give(stream, work, Vec::new())))
    })
}

/// Returns whether an address is one of device memory or managed memory. The memory of an allocation node is
/// device memory before the graph is launched.
fn is_on_device(world: &World, address: CUdeviceptr) -> bool {
    let managed = || {
        let host = world.memory.host_around(address);
        host.is_some_and(|(_, _, host)| host.is_managed())
    };
    let memory = &world.memory;
    memory.containing(address).is_some()
        || memory.is_virtual(address)
        || memory.is_reserved(address, 1)
        || managed()
}

/// Returns a pointer to host memory, which may be named by its host address or its device address.
fn host_pointer(world: &World, address: CUdeviceptr) -> Answer<*mut c_void> {
    let around = world.memory.host_around(address);
    if around.is_none() && world.memory.is_of_device(address) {
        misuse(format!("{address:#x} is not allocated, or was freed"));
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let host = around.map_or(address as usize, |(_, host, _)| host);
    Ok(std::ptr::with_exposed_provenance_mut(host))
}

/// Copies between any two addresses in the order of the default stream, and waits.
pub(super) fn copy(world: &mut World, to: CUdeviceptr, from: CUdeviceptr, size: usize) -> Answer {
    match (is_on_device(world, to), is_on_device(world, from)) {
        (true, true) => copy_on_device(world, to, from, size),
        (true, false) => {
            let from = host_pointer(world, from)?;
            copy_in(world, to, from, size)
        }
        (false, true) => {
            let to = host_pointer(world, to)?;
            copy_out(world, to, from, size)
        }
        (false, false) => {
            let stream = world.stream_of_copies()?;
            copy_on_host(world, to, from, size, stream)
        }
    }
}

/// Copies between any two addresses in stream order.
pub(super) fn copy_async(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
    stream: CUstream,
) -> Answer {
    match (is_on_device(world, to), is_on_device(world, from)) {
        (true, true) => copy_on_device_async(world, to, from, size, stream),
        (true, false) => {
            let from = host_pointer(world, from)?;
            copy_in_async(world, to, from, size, stream)
        }
        (false, true) => {
            let to = host_pointer(world, to)?;
            copy_out_async(world, to, from, size, stream)
        }
        (false, false) => {
            let stream = world.stream(stream.addr())?;
            if world.recording(stream)?.is_some() {
                return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
            }
            copy_on_host(world, to, from, size, stream)
        }
    }
}

/// Copies within host memory after the work on a stream, and waits (from documentation).
fn copy_on_host(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
    stream: usize,
) -> Answer {
    let (to, from) = (host_pointer(world, to)?, host_pointer(world, from)?);
    if size != 0 && (to.is_null() || from.is_null()) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    world.wait_for(|world| Ok(Some(world.give(stream, Work::CopyByCall, Vec::new()))))?;
    if size != 0 {
        world.begin_copy_by_call();
        let memory = &mut world.memory;
        memory.note_host_access(from.addr(), size, Access::Read);
        memory.note_host_access(to.addr(), size, Access::Write);
        world.end_host_access();
        // SAFETY: the caller passes `size` bytes to read and as many to write, which may overlap.
        unsafe { core::ptr::copy(from.cast::<u8>().cast_const(), to.cast::<u8>(), size) };
    }
    Ok(())
}

fn fill(
    world: &mut World,
    at: CUdeviceptr,
    pattern: Vec<u8>,
    count: usize,
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    if at % pattern.len() as u64 != 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let size = pattern.len().checked_mul(count);
    check_given_on(
        world,
        stream,
        at,
        size.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?,
        Use::Write,
    )?;
    world.give_or_capture(stream, Work::Fill { at, pattern, count })
}

/// Fills memory in the order of the default stream with the function `give`. The call returns before device
/// memory is filled, and after host memory and managed memory are (from documentation).
pub(super) fn fill_now(
    world: &mut World,
    at: CUdeviceptr,
    give: impl FnOnce(&mut World) -> Answer,
) -> Answer {
    if world.memory.host_around(at).is_none() {
        return give(world);
    }
    world.wait_for(|world| {
        give(world)?;
        let stream = world.stream(0)?;
        Ok(world.last_to_wait_for(stream))
    })
}

pub(super) fn fill_now_8(world: &mut World, at: CUdeviceptr, value: u8, count: usize) -> Answer {
    fill_now(world, at, |world| {
        fill_8(world, at, value, count, core::ptr::null_mut())
    })
}

pub(super) fn fill_now_16(world: &mut World, at: CUdeviceptr, value: u16, count: usize) -> Answer {
    fill_now(world, at, |world| {
        fill_16(world, at, value, count, core::ptr::null_mut())
    })
}

pub(super) fn fill_now_32(
    world: &mut World,
    at: CUdeviceptr,
    value: c_uint,
    count: usize,
) -> Answer {
    fill_now(world, at, |world| {
        fill_32(world, at, value, count, core::ptr::null_mut())
    })
}

pub(super) fn fill_8(
    world: &mut World,
    at: CUdeviceptr,
    value: u8,
    count: usize,
    stream: CUstream,
) -> Answer {
    fill(world, at, vec![value], count, stream)
}

pub(super) fn fill_16(
    world: &mut World,
    at: CUdeviceptr,
    value: u16,
    count: usize,
    stream: CUstream,
) -> Answer {
    fill(world, at, value.to_ne_bytes().to_vec(), count, stream)
}

pub(super) fn fill_32(
    world: &mut World,
    at: CUdeviceptr,
    value: c_uint,
    count: usize,
    stream: CUstream,
) -> Answer {
    fill(world, at, value.to_ne_bytes().to_vec(), count, stream)
}
