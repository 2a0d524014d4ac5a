//! Stream memory operations, which write a word, change one or wait for one. The kinds of memory that support them
//! were measured on an H200; the rest is unverified (from documentation).

use crate::api::memory::{check_access, check_given};
use crate::api::prelude::*;
use crate::exec::Work;
use crate::memory::{Kind, Use};
use crate::state::graph::node::{Kind as NodeKind, OperationsNode};
use cuda_sys::{
    CUstreamAtomicReductionDataType as Word, CUstreamAtomicReductionOpType as Operation,
    CUstreamBatchMemOpParams,
    CUstreamBatchMemOpParams_union_CUstreamMemOpAtomicReductionParams_st as Reduction,
    CUstreamBatchMemOpType as Type, CUstreamWaitValue_flags as Wait,
    CUstreamWriteValue_flags as Write, CudaVersion,
};

/// Maximum number of operations in a batch.
pub(crate) const BATCH: c_uint = 255;

/// Checks that the word exists when the operation is enqueued.
fn check(world: &World, address: u64, size: usize, wanted: Use) -> Answer {
    fail_if(address % size as u64 != 0, INVALID)?;
    let around = world.objects.memory.host_around(address);
    fail_if(around.is_some_and(|(.., its)| its.is_managed()), INVALID)?;
    // Measured: only the address is checked.
    check_given(world, address, 1, wanted)
}

/// Checks that the device of a stream has access to the word, and that the word is not in stream-ordered
/// memory, unless the work is captured (measured for a write).
fn check_access_of(world: &World, stream: usize, work: &Work) -> Answer {
    let (at, size, wanted) = match work {
        Work::WriteValue { at, bytes } => (*at, bytes.len(), Use::Write),
        Work::WaitValue { at, size, .. } => (*at, *size, Use::Read),
        Work::ReduceValue { at, size, .. } => (*at, *size, Use::Write),
        _ => return Ok(()),
    };
    let is_captured = world.objects.streams.get(stream).is_some_and(|its| its.capture.is_some());
    let holder = world.objects.memory.containing(at).map(|(_, its)| its.kind);
    fail_if(!is_captured && matches!(holder, Some(Kind::Ordered { .. })), INVALID)?;
    check_access(world, stream, at, size, wanted)
}

fn write(world: &World, address: u64, mut bytes: Vec<u8>, flags: c_uint) -> Answer<Work> {
    fail_if(flags != Write::CU_STREAM_WRITE_VALUE_DEFAULT.0, INVALID)?;
    check(world, address, bytes.len(), Use::Write)?;
    // The GPU writes the rest to memory that belongs to no allocation.
    let holder = world.objects.memory.containing(address);
    let end = holder.map_or(u64::MAX, |(start, its)| start + its.bytes.len() as u64);
    bytes.truncate(usize::try_from(end - address).unwrap_or(usize::MAX));
    Ok(Work::WriteValue { at: address, bytes })
}

fn wait(world: &World, address: u64, value: u64, size: usize, flags: c_uint) -> Answer<Work> {
    let condition = flags & !Wait::CU_STREAM_WAIT_VALUE_FLUSH.0;
    fail_if(condition > Wait::CU_STREAM_WAIT_VALUE_NOR.0, INVALID)?;
    check(world, address, size, Use::Read)?;
    Ok(Work::WaitValue { at: address, value, size, condition })
}

/// Enqueues an operation. Measured: an invalid capture is reported before wrong arguments.
fn enqueue(
    world: &mut World,
    stream: CUstream,
    work: impl FnOnce(&World) -> Answer<Work>,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    world.recording(stream)?;
    let work = work(world)?;
    check_access_of(world, stream, &work)?;
    world.give_or_capture(stream, work)
}

pub(crate) fn write_32(
    world: &mut World,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: c_uint,
) -> Answer {
    enqueue(world, stream, |world| write(world, address, value.to_ne_bytes().to_vec(), flags))
}

pub(crate) fn write_64(
    world: &mut World,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> Answer {
    enqueue(world, stream, |world| write(world, address, value.to_ne_bytes().to_vec(), flags))
}

pub(crate) fn wait_32(
    world: &mut World,
    stream: CUstream,
    address: CUdeviceptr,
    value: u32,
    flags: c_uint,
) -> Answer {
    enqueue(world, stream, |world| wait(world, address, value.into(), 4, flags))
}

pub(crate) fn wait_64(
    world: &mut World,
    stream: CUstream,
    address: CUdeviceptr,
    value: u64,
    flags: c_uint,
) -> Answer {
    enqueue(world, stream, |world| wait(world, address, value, 8, flags))
}

pub(crate) fn batch(
    world: &mut World,
    stream: CUstream,
    count: c_uint,
    operations: *mut CUstreamBatchMemOpParams,
    flags: c_uint,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    world.recording(stream)?;
    fail_if(flags != 0 || count > BATCH || operations.is_null(), INVALID)?;
    let mut all = Vec::new();
    for index in 0..count as usize {
        // SAFETY: the caller passes `count` operations.
        let place = unsafe { operations.add(index) };
        // SAFETY: the caller passes `count` operations.
        let operation = unsafe { place.read() };
        let work = work(world, &initialized(&operation))?;
        check_access_of(world, stream, &work)?;
        all.push(work);
    }
    if let Some(capture) = world.recording(stream)? {
        let node = OperationsNode::captured(all);
        return world.capture_node(capture, stream, NodeKind::Operations(Box::new(node)));
    }
    for work in all {
        world.give(stream, work, Vec::new());
    }
    Ok(())
}

/// Returns an operation of a caller with zeros where the caller may leave memory uninitialized: in padding, in the field
/// `alias`, which is for the driver, and in the upper half of a value of 32 bits.
pub(crate) fn initialized(given: &CUstreamBatchMemOpParams) -> CUstreamBatchMemOpParams {
    let mut its = CUstreamBatchMemOpParams::default();
    // SAFETY: all operations begin with their kind, an integer.
    let kind = unsafe { given.operation };
    its.operation = kind;
    match kind {
        Type::CU_STREAM_MEM_OP_WRITE_VALUE_32
        | Type::CU_STREAM_MEM_OP_WRITE_VALUE_64
        | Type::CU_STREAM_MEM_OP_WAIT_VALUE_32
        | Type::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
            // SAFETY: the caller initializes this field. A write has the same fields at the same places.
            its.waitValue.address = unsafe { given.waitValue.address };
            // SAFETY: as above.
            its.waitValue.flags = unsafe { given.waitValue.flags };
            // SAFETY: every union is valid, initialized or not.
            let value = unsafe { &given.waitValue.__bindgen_anon_1 };
            if matches!(
                kind,
                Type::CU_STREAM_MEM_OP_WRITE_VALUE_32 | Type::CU_STREAM_MEM_OP_WAIT_VALUE_32
            ) {
                // SAFETY: the caller initializes the value that the kind selects.
                its.waitValue.__bindgen_anon_1.value = unsafe { value.value };
            } else {
                // SAFETY: as above.
                its.waitValue.__bindgen_anon_1.value64 = unsafe { value.value64 };
            }
        }
        Type::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES | Type::CU_STREAM_MEM_OP_BARRIER => {
            // SAFETY: the caller initializes this field. A flush has the same fields.
            its.memoryBarrier.flags = unsafe { given.memoryBarrier.flags };
        }
        Type::CU_STREAM_MEM_OP_ATOMIC_REDUCTION => {
            // SAFETY: the caller initializes this field, an integer.
            its.atomicReduction.flags = unsafe { given.atomicReduction.flags };
            // SAFETY: as above.
            its.atomicReduction.reductionOp = unsafe { given.atomicReduction.reductionOp };
            // SAFETY: as above.
            its.atomicReduction.dataType = unsafe { given.atomicReduction.dataType };
            // SAFETY: as above.
            its.atomicReduction.address = unsafe { given.atomicReduction.address };
            // SAFETY: as above.
            its.atomicReduction.value = unsafe { given.atomicReduction.value };
        }
        _ => {}
    }
    its
}

/// Returns the work of one operation of a batch, all of whose bytes are initialized.
pub(crate) fn work(world: &World, operation: &CUstreamBatchMemOpParams) -> Answer<Work> {
    // SAFETY: all operations begin with their kind, an integer.
    let kind = unsafe { operation.operation };
    match kind {
        Type::CU_STREAM_MEM_OP_WRITE_VALUE_32 | Type::CU_STREAM_MEM_OP_WRITE_VALUE_64 => {
            // SAFETY: the kind selects this field, which contains integers.
            let its = unsafe { operation.writeValue };
            // SAFETY: both values occupy the same memory, and on a little-endian machine the low bytes
            // of the larger one are the smaller one.
            let value = unsafe { its.__bindgen_anon_1.value64 };
            let size = if kind == Type::CU_STREAM_MEM_OP_WRITE_VALUE_32 { 4 } else { 8 };
            let bytes = value.to_le_bytes()[..size].to_vec();
            write(world, its.address, bytes, its.flags)
        }
        Type::CU_STREAM_MEM_OP_WAIT_VALUE_32 => {
            // SAFETY: the kind selects this field, which contains integers.
            let its = unsafe { operation.waitValue };
            // SAFETY: the kind selects this field, which contains integers.
            let value = unsafe { its.__bindgen_anon_1.value };
            wait(world, its.address, value.into(), 4, its.flags)
        }
        Type::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
            // SAFETY: the kind selects this field, which contains integers.
            let its = unsafe { operation.waitValue };
            // SAFETY: the kind selects this field, which contains integers.
            let value = unsafe { its.__bindgen_anon_1.value64 };
            wait(world, its.address, value, 8, its.flags)
        }
        // Writes are visible at once in this driver.
        Type::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES | Type::CU_STREAM_MEM_OP_BARRIER => {
            Ok(Work::Nothing)
        }
        Type::CU_STREAM_MEM_OP_ATOMIC_REDUCTION => {
            // SAFETY: the kind selects this field, which contains integers.
            reduce(world, &unsafe { operation.atomicReduction })
        }
        _ => Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
    }
}

/// Returns whether the devices have atomic operations.
pub(crate) fn has_reductions(world: &World) -> bool {
    world.settings.profile.driver >= CudaVersion::new(13, 1)
        && world.settings.profile.gpu.capability.0 >= 9
}

fn reduce(world: &World, its: &Reduction) -> Answer<Work> {
    fail_if(!has_reductions(world), CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    let size = match its.dataType {
        Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32 => 4,
        Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64 => 8,
        _ => return Err(INVALID),
    };
    let is_known = matches!(
        its.reductionOp,
        Operation::CU_STREAM_ATOMIC_REDUCTION_OP_ADD
            | Operation::CU_STREAM_ATOMIC_REDUCTION_OP_AND
            | Operation::CU_STREAM_ATOMIC_REDUCTION_OP_OR
    );
    fail_if(its.flags != 0 || !is_known, INVALID)?;
    check(world, its.address, size, Use::Write)?;
    Ok(Work::ReduceValue { at: its.address, value: its.value, size, reduction: its.reductionOp })
}
