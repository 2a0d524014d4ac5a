//! Several devices: peer access, and copies between contexts. Unverified (from documentation), except
//! where marked.

use crate::api::memory::{call_waits, check_given_to};
use crate::api::prelude::*;
use crate::exec::Work;
use crate::memory::Use;
use core::ffi::CStr;
use cuda_sys::{
    CUatomicOperation, CUatomicOperationCapability, CUdevice_P2PAttribute, CUexecAffinityParam,
    CUexecAffinityParam_st__bindgen_ty_1, CUexecAffinitySmCount, CUexecAffinityType, CudaVersion,
};

pub(crate) fn by_bus_id(world: &mut World, bus_id: *const c_char) -> Answer<CUdevice> {
    fail_if(bus_id.is_null(), INVALID)?;
    // SAFETY: the caller passes a NUL-terminated string.
    let text = unsafe { CStr::from_ptr(bus_id) }.to_string_lossy();
    // The domain is optional, and the function is 0.
    let place = text.strip_suffix(".0").unwrap_or(&text);
    let parts: Option<Vec<u32>> =
        place.split(':').map(|part| u32::from_str_radix(part, 16).ok()).collect();
    let bus = match parts.as_deref() {
        Some([0, bus, 0] | [bus, 0]) => *bus,
        Some([_, _, _] | [_, _]) => return Err(CUresult::CUDA_ERROR_INVALID_DEVICE),
        _ => return Err(INVALID),
    };
    // Device attributes report the device's number as its bus number.
    let number = CUdevice::try_from(bus).map_err(|_| CUresult::CUDA_ERROR_INVALID_DEVICE)?;
    world.device(number)?;
    Ok(number)
}

/// Checks that two devices are valid and different.
fn link(world: &World, device: CUdevice, peer: CUdevice) -> Answer {
    fail_if(world.device(device)? == world.device(peer)?, CUresult::CUDA_ERROR_INVALID_DEVICE)
}

pub(crate) fn can_access(world: &mut World, device: CUdevice, peer: CUdevice) -> Answer<c_int> {
    let apart = world.device(device)? != world.device(peer)?;
    Ok(c_int::from(apart))
}

pub(crate) fn attribute(
    world: &mut World,
    attribute: CUdevice_P2PAttribute,
    device: CUdevice,
    peer: CUdevice,
) -> Answer<c_int> {
    link(world, device, peer)?;
    let answer = match attribute {
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK => 0,
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
        | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
        | CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED => 1,
        CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED
            if world.settings.profile.driver >= CudaVersion::new(13, 0) =>
        {
            0
        }
        _ => return Err(INVALID),
    };
    Ok(answer)
}

/// Returns which atomic operations a device supports: those on 32-bit and 64-bit numbers.
fn capabilities(
    capabilities: *mut c_uint,
    operations: *const CUatomicOperation,
    count: c_uint,
) -> Answer {
    fail_if(capabilities.is_null() || operations.is_null() || count == 0, INVALID)?;
    let all = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_UNSIGNED.0
        | CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SCALAR_32.0
        | CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SCALAR_64.0;
    for index in 0..count as usize {
        // SAFETY: the caller passes `count` operations.
        let operation = unsafe { operations.add(index) };
        // SAFETY: the caller passes `count` operations.
        let operation = unsafe { operation.read() };
        fail_if(operation.0 >= CUatomicOperation::CU_ATOMIC_OPERATION_MAX.0, INVALID)?;
        // SAFETY: the caller passes room for `count` results.
        let place = unsafe { capabilities.add(index) };
        // SAFETY: the caller passes room for `count` results.
        unsafe { place.write(all) };
    }
    Ok(())
}

pub(crate) fn atomics(
    world: &mut World,
    to: *mut c_uint,
    operations: *const CUatomicOperation,
    count: c_uint,
    device: CUdevice,
    peer: CUdevice,
) -> Answer {
    link(world, device, peer)?;
    capabilities(to, operations, count)
}

pub(crate) fn host_atomics(
    world: &mut World,
    to: *mut c_uint,
    operations: *const CUatomicOperation,
    count: c_uint,
    device: CUdevice,
) -> Answer {
    world.device(device)?;
    capabilities(to, operations, count)
}

pub(crate) fn enable(world: &mut World, peer: CUcontext, flags: c_uint) -> Answer {
    let current = world.current()?;
    let (from, to) = (world.owner_of(current)?, world.owner_of(peer.addr())?);
    fail_if(flags != 0, INVALID)?;
    // Measured also for a context and itself.
    if world.context(from)?.device == world.context(to)?.device {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    }
    if !world.objects.memory.peers.insert((from, to)) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    }
    Ok(())
}

pub(crate) fn disable(world: &mut World, peer: CUcontext) -> Answer {
    let current = world.current()?;
    let (from, to) = (world.owner_of(current)?, world.owner_of(peer.addr())?);
    world.forbidden_in_capture()?;
    if !world.objects.memory.peers.remove(&(from, to)) {
        return Err(CUresult::CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    }
    Ok(())
}

pub(crate) fn copy(
    world: &mut World,
    to: CUdeviceptr,
    its: CUcontext,
    from: CUdeviceptr,
    others: CUcontext,
    size: usize,
    stream: CUstream,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    // The copy cannot be captured (measured with driver 580).
    world.forbidden_on_capturing(stream)?;
    if size == 0 {
        // Measured: neither the addresses nor the contexts are checked.
        return Ok(());
    }
    for (address, context, wanted) in [(to, its, Use::Write), (from, others, Use::Read)] {
        let context = world.context_or_current(context.addr())?;
        let device = world.context(context)?.device;
        // Measured: the device of the context that the caller names needs access, and no other does.
        check_given_to(world, Some(device), address, size, wanted)?;
        let holder = world.objects.memory.containing(address);
        fail_if(holder.is_some_and(|(_, holder)| holder.device != device), INVALID)?;
    }
    let work = Work::CopyOnDevice { from, to, len: size };
    world.give_or_capture(stream, work)
}

/// Copies between contexts in the order of the default stream. The call does not wait for copies between device
/// memory.
pub(crate) fn copy_now(
    world: &mut World,
    to: CUdeviceptr,
    its: CUcontext,
    from: CUdeviceptr,
    others: CUcontext,
    size: usize,
) -> Answer {
    world.wait_for(|world| {
        let stream = world.stream_of_copies()?;
        copy(world, to, its, from, others, size, core::ptr::null_mut())?;
        let waits = call_waits(world, stream, &[to, from]);
        Ok(waits.then(|| world.last_to_wait_for(stream)).flatten())
    })
}

/// Execution affinity exists only for clients of MPS, which is not simulated.
pub(crate) fn affinity_support(
    world: &mut World,
    _kind: CUexecAffinityType,
    device: CUdevice,
) -> Answer<c_int> {
    world.device(device)?;
    // Measured: unknown kinds are not supported either.
    Ok(0)
}

pub(crate) fn affinity(
    world: &mut World,
    affinity: Out<CUexecAffinityParam>,
    kind: CUexecAffinityType,
) -> Answer {
    world.current()?;
    affinity.required()?;
    fail_if(kind != CUexecAffinityType::CU_EXEC_AFFINITY_TYPE_SM_COUNT, INVALID)?;
    // Without MPS every context has all SMs.
    let val = world.settings.profile.gpu.sms;
    affinity.put(CUexecAffinityParam {
        type_: kind,
        param: CUexecAffinityParam_st__bindgen_ty_1 { smCount: CUexecAffinitySmCount { val } },
    })
}
