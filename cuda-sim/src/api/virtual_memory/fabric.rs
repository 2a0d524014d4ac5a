//! Copies over the fabric. Unverified (from documentation).

use crate::api::memory::batch::{Place, not_capturing, place};
use crate::api::prelude::*;
use crate::api::virtual_memory::endpoint::is_unicast_supported;
use crate::exec::{FabricCopy, FabricSide, Work};
use crate::memory::Use;
use cuda_sys::{CUDA_FABRIC_COPY_BATCH_OP, CUfabricCpyOperand, CUfabricCpyOperandType as Type};

/// Checks one side of a copy of `len` bytes.
fn side(
    world: &mut World,
    operand: &CUfabricCpyOperand,
    len: usize,
    wanted: Use,
) -> Answer<FabricSide> {
    match operand.type_ {
        Type::CU_FABRIC_COPY_OPERAND_TYPE_POINTER => {
            // SAFETY: the type says that the operand is a pointer.
            let address = unsafe { operand.op.ptr }.ptr;
            match place(world, address, len, wanted)? {
                Place::Device => Ok(FabricSide::Memory(address)),
                // Host memory is possible too, but `cuda-safe` copies device memory only.
                Place::Pinned(_) | Place::Pageable(_) => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            }
        }
        Type::CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT => {
            // SAFETY: the type says that the operand is an endpoint.
            let its = unsafe { operand.op.le };
            let endpoint = world.objects.memory.endpoints.get(its.id).ok_or(INVALID)?;
            let end = its.offset.checked_add(len as u64);
            let fits = end.is_some_and(|end| end <= endpoint.size);
            // Only a target can be an endpoint of several devices.
            fail_if(!fits || (endpoint.owner.is_none() && wanted == Use::Read), INVALID)?;
            Ok(FabricSide::Endpoint(its.id, its.offset))
        }
        _ => Err(INVALID),
    }
}

fn copy(world: &mut World, its: &CUDA_FABRIC_COPY_BATCH_OP) -> Answer<FabricCopy> {
    let from = side(world, &its.src, its.size, Use::Read)?;
    let to = side(world, &its.dst, its.size, Use::Write)?;
    let is_between_endpoints =
        matches!((&from, &to), (FabricSide::Endpoint(..), FabricSide::Endpoint(..)));
    fail_if(its.flags != 0 || is_between_endpoints, INVALID)?;
    let len = its.size;
    Ok(FabricCopy { from, to, len })
}

pub(crate) fn copy_batch(
    world: &mut World,
    count: usize,
    copies: *mut CUDA_FABRIC_COPY_BATCH_OP,
    flags: c_ulonglong,
    stream: CUstream,
) -> Answer {
    fail_if(stream.addr() <= cuda_sys::CU_STREAM_LEGACY.addr(), INVALID)?;
    let stream = world.stream(stream.addr())?;
    fail_if(copies.is_null() || count == 0 || flags != 0, INVALID)?;
    fail_if(!is_unicast_supported(world), CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    not_capturing(world, stream)?;
    let mut work = Vec::with_capacity(count);
    for index in 0..count {
        let place = copies.wrapping_add(index);
        // SAFETY: the caller passes `count` copies.
        let its = unsafe { place.read() };
        work.push(Work::Fabric(Box::new(copy(world, &its)?)));
    }
    world.give(stream, Work::All(work), Vec::new());
    Ok(())
}
