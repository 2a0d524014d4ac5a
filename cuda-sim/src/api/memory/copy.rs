//! 1-D copies. A copy of no bytes does nothing, whatever its addresses are, and a capture makes no node of it
//! (measured).

use crate::api::memory::{call_waits, check_access, check_given, check_given_on};
use crate::api::prelude::*;
use crate::exec::Work;
use crate::memory::Use;
use crate::races::Access;
use crate::state::graph::copy::CopyNode;

/// Copies synchronously, in the order of the default stream.
pub(crate) fn copy_in(
    world: &mut World,
    to: CUdeviceptr,
    from: *const c_void,
    size: usize,
) -> Answer {
    let stream = world.stream_of_copies()?;
    if size == 0 {
        return Ok(());
    }
    world.wait_for(|world| {
        check_given(world, to, size, Use::Write)?;
        check_access(world, stream, to, size, Use::Write)?;
        let bytes = host_bytes(from, size)?;
        Ok(Some(world.give(stream, Work::CopyIn { to, bytes }, Vec::new())))
    })?;
    world.begin_copy_by_call();
    let memory = &mut world.objects.memory;
    memory.note_host_access(from.addr(), size, Access::Read);
    world.end_host_access();
    Ok(())
}

pub(crate) fn copy_out(
    world: &mut World,
    to: *mut c_void,
    from: CUdeviceptr,
    size: usize,
) -> Answer {
    let stream = world.stream_of_copies()?;
    if size == 0 {
        return Ok(());
    }
    check_access(world, stream, from, size, Use::Read)?;
    world.wait_for(|world| Ok(Some(world.give(stream, Work::CopyByCall, Vec::new()))))?;
    copy_to_host(world, to, from, size)
}

pub(crate) fn copy_to_host(
    world: &mut World,
    to: *mut c_void,
    from: CUdeviceptr,
    size: usize,
) -> Answer {
    fail_if(to.is_null(), INVALID)?;
    if world.objects.memory.is_virtual(from) {
        check_given(world, from, size, Use::Read)?;
    }
    world.begin_copy_by_call();
    let memory = &mut world.objects.memory;
    memory.note_host_access(to.addr(), size, Access::Write);
    memory.check_copy(world.runs.executor.calling, from, size);
    let copied = match memory.bytes(from, size) {
        Ok(source) => {
            // SAFETY: the caller passes `size` bytes. The source has the same length and does not overlap
            // them.
            unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), to.cast(), size) };
            Ok(())
        }
        Err(what) => {
            misuse(what);
            Err(INVALID)
        }
    };
    world.end_host_access();
    copied
}

pub(crate) fn host_bytes(from: *const c_void, size: usize) -> Answer<Vec<u8>> {
    fail_if(from.is_null(), INVALID)?;
    let mut bytes: Vec<u8> = Vec::with_capacity(size);
    // SAFETY: the caller passes `size` bytes. The target has room for them and does not overlap them.
    unsafe { core::ptr::copy_nonoverlapping(from.cast(), bytes.as_mut_ptr(), size) };
    // SAFETY: these bytes were written above.
    unsafe { bytes.set_len(size) };
    Ok(bytes)
}

/// Fails if host memory of the driver ends before the copied bytes (measured, except for synchronous copies of
/// which one side is named as host memory).
pub(crate) fn check_host(world: &World, start: usize, size: usize) -> Answer {
    let exceeds = world.objects.memory.host_at(start).is_some_and(|(first, host)| {
        (start - first).checked_add(size).is_none_or(|end| end > host.len)
    });
    fail_if(exceeds, INVALID)
}

pub(crate) fn copy_in_async(
    world: &mut World,
    to: CUdeviceptr,
    from: *const c_void,
    size: usize,
    stream: CUstream,
) -> Answer {
    world.none_or_alive()?;
    let stream = world.stream(stream.addr())?;
    let capture = world.recording(stream)?;
    if size == 0 {
        return Ok(());
    }
    check_given_on(world, stream, to, size, Use::Write)?;
    check_host(world, from.addr(), size)?;
    let work = if world.objects.memory.is_pinned(from.addr(), size) {
        Work::CopyInPinned { to, from: from.addr(), len: size }
    } else if capture.is_some() {
        // Each launch of the graph reads the memory.
        Work::CopyInHost { to, from: from.expose_provenance(), len: size }
    } else {
        // Pageable memory is staged before the call returns (measured).
        Work::CopyIn { to, bytes: host_bytes(from, size)? }
    };
    world.give_or_capture(stream, work)
}

pub(crate) fn copy_out_async(
    world: &mut World,
    to: *mut c_void,
    from: CUdeviceptr,
    size: usize,
    stream: CUstream,
) -> Answer {
    world.none_or_alive()?;
    let stream = world.stream(stream.addr())?;
    let capture = world.recording(stream)?;
    if size == 0 {
        return Ok(());
    }
    check_given_on(world, stream, from, size, Use::Read)?;
    check_host(world, to.addr(), size)?;
    if world.objects.memory.is_pinned(to.addr(), size) {
        let work = Work::CopyOut { from, to: to.addr(), len: size };
        return world.give_or_capture(stream, work);
    }
    if capture.is_some() {
        // Each launch of the graph writes the memory.
        let work = Work::CopyOutHost { from, to: to.expose_provenance(), len: size };
        return world.give_or_capture(stream, work);
    }
    // A copy to pageable memory returns when the copy is complete (measured).
    world.wait_for(|world| Ok(Some(world.give(stream, Work::CopyByCall, Vec::new()))))?;
    copy_to_host(world, to, from, size)
}

pub(crate) fn copy_on_device_async(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
    stream: CUstream,
) -> Answer {
    world.none_or_alive()?;
    let stream = world.stream(stream.addr())?;
    world.recording(stream)?;
    if size == 0 {
        return Ok(());
    }
    check_given_on(world, stream, from, size, Use::Read)?;
    check_given_on(world, stream, to, size, Use::Write)?;
    let work = Work::CopyOnDevice { from, to, len: size };
    world.give_or_capture(stream, work)
}

/// Copies on the device, in the order of the default stream. The call does not wait for copies between device
/// memory.
pub(crate) fn copy_on_device(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
) -> Answer {
    let stream = world.stream_of_copies()?;
    if size == 0 {
        return Ok(());
    }
    world.wait_for(|world| {
        for (address, wanted) in [(from, Use::Read), (to, Use::Write)] {
            check_given_on(world, stream, address, size, wanted)?;
        }
        let len = size;
        let work = Work::CopyOnDevice { from, to, len };
        let given = world.give(stream, work, Vec::new());
        Ok(call_waits(world, stream, &[from, to]).then_some(given))
    })
}

/// Returns a pointer to host memory, which may be named by its host address or its device address.
fn host_pointer(world: &World, address: CUdeviceptr) -> Answer<*mut c_void> {
    let Some(host) = world.objects.memory.on_host(address) else {
        misuse(format!("{address:#x} is not allocated, or was freed"));
        return Err(INVALID);
    };
    Ok(std::ptr::with_exposed_provenance_mut(host))
}

/// Copies between any two addresses in the order of the default stream. The call does not wait for copies between
/// device memory.
pub(crate) fn copy(world: &mut World, to: CUdeviceptr, from: CUdeviceptr, size: usize) -> Answer {
    let stream = world.stream_of_copies()?;
    if size == 0 {
        return Ok(());
    }
    let memory = &world.objects.memory;
    match (memory.is_on_device(to), memory.is_on_device(from)) {
        (true, true) => copy_on_device(world, to, from, size),
        (true, false) => {
            let from = host_pointer(world, from)?;
            check_host(world, from.addr(), size)?;
            copy_in(world, to, from, size)
        }
        (false, true) => {
            let to = host_pointer(world, to)?;
            check_host(world, to.addr(), size)?;
            copy_out(world, to, from, size)
        }
        (false, false) => copy_on_host(world, to, from, size, stream),
    }
}

/// Copies between any two addresses in stream order.
pub(crate) fn copy_async(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
    stream: CUstream,
) -> Answer {
    let home = world.stream(stream.addr())?;
    let capture = world.recording(home)?;
    if size == 0 {
        return Ok(());
    }
    if let Some(capture) = capture {
        return capture_copy(world, to, from, size, (home, capture));
    }
    let memory = &world.objects.memory;
    match (memory.is_on_device(to), memory.is_on_device(from)) {
        (true, true) => copy_on_device_async(world, to, from, size, stream),
        (true, false) => {
            let from = host_pointer(world, from)?;
            copy_in_async(world, to, from, size, stream)
        }
        (false, true) => {
            let to = host_pointer(world, to)?;
            copy_out_async(world, to, from, size, stream)
        }
        (false, false) => copy_on_host(world, to, from, size, home),
    }
}

/// Captures a copy between any two addresses on a stream. Its node has the unified type of memory (measured).
fn capture_copy(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
    (stream, capture): (usize, u64),
) -> Answer {
    for (address, wanted) in [(from, Use::Read), (to, Use::Write)] {
        if world.objects.memory.is_on_device(address) {
            check_given_on(world, stream, address, size, wanted)?;
        } else if host_pointer(world, address)?.is_null() {
            return Err(INVALID);
        }
    }
    let node = CopyNode::unified(to, from, size).added(&world.objects.memory);
    world.capture_node(capture, stream, node)
}

/// Copies within host memory after the work on a stream, and waits (measured).
fn copy_on_host(
    world: &mut World,
    to: CUdeviceptr,
    from: CUdeviceptr,
    size: usize,
    stream: usize,
) -> Answer {
    let (to, from) = (host_pointer(world, to)?, host_pointer(world, from)?);
    fail_if(to.is_null() || from.is_null(), INVALID)?;
    for host in [to, from] {
        check_host(world, host.addr(), size)?;
    }
    world.wait_for(|world| Ok(Some(world.give(stream, Work::CopyByCall, Vec::new()))))?;
    world.begin_copy_by_call();
    let memory = &mut world.objects.memory;
    memory.note_host_access(from.addr(), size, Access::Read);
    memory.note_host_access(to.addr(), size, Access::Write);
    world.end_host_access();
    // SAFETY: the caller passes `size` bytes to read and as many to write, which may overlap.
    unsafe { core::ptr::copy(from.cast::<u8>().cast_const(), to.cast::<u8>(), size) };
    Ok(())
}
