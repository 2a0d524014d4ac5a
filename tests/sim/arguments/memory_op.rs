//! Memory operations of streams.

use super::{Row, Stage, array, value};
use crate::prelude::*;
use cuda_safe::stream::{AtomicReduction, BarrierScope, WaitCondition};
use cuda_safe::sys::{
    CUstreamAtomicReductionDataType as Word, CUstreamAtomicReductionOpType as Reduction,
    CUstreamBatchMemOpType as Type,
};

/// Returns an 8-byte word with all bits set.
fn word(s: &Stage) -> Result<DeviceBuffer<u64>> {
    let mut word = DeviceBuffer::<u64>::zeroed_sync(&s.stream, 1)?;
    word.copy_from_slice(&[u64::MAX])?;
    Ok(word)
}

fn one(s: &Stage, operation: impl Fn(u64) -> MemoryOperation) -> Result<u64> {
    let word = word(s)?;
    // SAFETY: the word outlives the operation, and no other work uses it.
    unsafe { s.stream.memory_operation(operation(word.as_raw())) }?;
    s.stream.synchronize()?;
    Ok(word.as_raw())
}

fn batch(s: &Stage, operation: impl Fn(u64) -> MemoryOperation) -> Result<u64> {
    let word = word(s)?;
    let operations = [operation(word.as_raw())];
    // SAFETY: as above.
    unsafe { s.stream.memory_operations(&operations) }?;
    s.stream.synchronize()?;
    Ok(word.as_raw())
}

fn wait_32(condition: WaitCondition, flush: bool) -> impl Fn(u64) -> MemoryOperation {
    // All conditions except the last are true for this value.
    let value = if condition == WaitCondition::Nor { 0 } else { u32::MAX };
    move |address| MemoryOperation::Wait32 { address, value, condition, flush }
}

fn wait_64(condition: WaitCondition, flush: bool) -> impl Fn(u64) -> MemoryOperation {
    move |address| MemoryOperation::Wait64 { address, value: u64::MAX, condition, flush }
}

fn conditions() -> impl Iterator<Item = Row> {
    [
        ("GEQ", WaitCondition::AtLeast, 0_u32),
        ("EQ", WaitCondition::Equal, 1),
        ("AND", WaitCondition::AnyBit, 2),
    ]
    .into_iter()
    .flat_map(|(name, condition, flags)| {
        let name = format!("CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_{name}");
        let small = move |s: &Stage| one(s, wait_32(condition, false)).map(drop);
        let large = move |s: &Stage| one(s, wait_64(condition, false)).map(drop);
        let in_batch = move |s: &Stage| batch(s, wait_32(condition, false)).map(drop);
        let found = || value("flags");
        [
            Row::new(&name, small, "cuStreamWaitValue32_v2", found(), flags),
            Row::new(&name, large, "cuStreamWaitValue64_v2", found(), flags),
            Row::new(&name, in_batch, "cuStreamBatchMemOp_v2", wait_flags(), flags),
        ]
    })
}

fn wait_flags() -> impl Fn(&Call) -> Option<u32> {
    // SAFETY: the field is a number, for which any bits are valid.
    |call| Some(unsafe { operation(call)?.waitValue.flags })
}

fn operation(call: &Call) -> Option<CUstreamBatchMemOpParams> {
    match array::<CUstreamBatchMemOpParams>("operations")(call)?[..] {
        [operation] => Some(operation),
        _ => None,
    }
}

/// Returns the type, the address and the value of a wait or a write in a batch.
fn found_32(call: &Call) -> Option<(Type, u64, u64)> {
    let operation = operation(call)?;
    // SAFETY: the field is a number, for which any bits are valid.
    let kind = unsafe { operation.operation };
    // SAFETY: as above, and waits and writes have the same layout here.
    let write = unsafe { operation.writeValue };
    // SAFETY: as above.
    let value = unsafe { write.__bindgen_anon_1.value };
    Some((kind, write.address, value.into()))
}

fn found_64(call: &Call) -> Option<(Type, u64, u64)> {
    let operation = operation(call)?;
    // SAFETY: the field is a number, for which any bits are valid.
    let kind = unsafe { operation.operation };
    // SAFETY: as above, and waits and writes have the same layout here.
    let write = unsafe { operation.writeValue };
    // SAFETY: as above.
    let value = unsafe { write.__bindgen_anon_1.value64 };
    Some((kind, write.address, value))
}

fn types() -> Vec<Row> {
    let function = "cuStreamBatchMemOp_v2";
    let row = |name: &str, act: fn(u64) -> MemoryOperation, kind, value: u64| {
        let name = format!("CUstreamBatchMemOpType::CU_STREAM_MEM_OP_{name}");
        let act = move |s: &Stage| Ok((kind, batch(s, act)?, value));
        let find = match name.ends_with("64") {
            true => found_64,
            false => found_32,
        };
        Row::of(&name, act).calls(function).with_told(find)
    };
    let flush = |_| MemoryOperation::FlushRemoteWrites;
    let kind = |call: &Call| {
        // SAFETY: the field is a number, for which any bits are valid.
        Some(unsafe { operation(call)?.operation })
    };
    let barrier = |scope| move |_: u64| MemoryOperation::Barrier(scope);
    let scope = |call: &Call| {
        // SAFETY: the fields are numbers, for which any bits are valid.
        Some(unsafe { operation(call)?.memoryBarrier }.flags)
    };
    let barrier_name = "CUstreamBatchMemOpType::CU_STREAM_MEM_OP_BARRIER";
    vec![
        row(
            "WAIT_VALUE_32",
            |address| wait_32(WaitCondition::Equal, false)(address),
            Type::CU_STREAM_MEM_OP_WAIT_VALUE_32,
            u32::MAX.into(),
        ),
        row(
            "WAIT_VALUE_64",
            |address| wait_64(WaitCondition::Equal, false)(address),
            Type::CU_STREAM_MEM_OP_WAIT_VALUE_64,
            u64::MAX,
        ),
        row(
            "WRITE_VALUE_32",
            |address| MemoryOperation::Write32 { address, value: 7 },
            Type::CU_STREAM_MEM_OP_WRITE_VALUE_32,
            7,
        ),
        row(
            "WRITE_VALUE_64",
            |address| MemoryOperation::Write64 { address, value: 7 << 32 },
            Type::CU_STREAM_MEM_OP_WRITE_VALUE_64,
            7 << 32,
        ),
        Row::of("CUstreamBatchMemOpType::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES", move |s| {
            batch(s, flush)
        })
        .calls(function)
        .with(kind, Type::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES),
        Row::of(barrier_name, move |s| batch(s, barrier(BarrierScope::System)))
            .calls(function)
            .with(kind, Type::CU_STREAM_MEM_OP_BARRIER),
        Row::of("CUstreamMemoryBarrier_flags::CU_STREAM_MEMORY_BARRIER_TYPE_SYS", move |s| {
            one(s, barrier(BarrierScope::System))
        })
        .calls(function)
        .with(scope, 0),
        Row::of("CUstreamMemoryBarrier_flags::CU_STREAM_MEMORY_BARRIER_TYPE_GPU", move |s| {
            one(s, barrier(BarrierScope::Device))
        })
        .calls(function)
        .with(scope, 1),
    ]
}

/// Returns the address and the value of a single operation.
fn single() -> Vec<Row> {
    let write = "CUstreamWriteValue_flags::CU_STREAM_WRITE_VALUE_DEFAULT";
    let flush = "CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_FLUSH";
    let small = |address| MemoryOperation::Write32 { address, value: 9 };
    let large = |address| MemoryOperation::Write64 { address, value: 9 << 40 };
    let nor = wait_32(WaitCondition::Nor, false);
    let flush_32 = |s: &Stage| one(s, wait_32(WaitCondition::Equal, true)).map(drop);
    let flush_64 = |s: &Stage| one(s, wait_64(WaitCondition::Equal, true)).map(drop);
    vec![
        Row::of(write, move |s| Ok((one(s, small)?, 9, 0)))
            .calls("cuStreamWriteValue32_v2")
            .with_told(|call| {
                let flags: u32 = value("flags")(call)?;
                Some((value("address")(call)?, value::<u32>("value")(call)?, flags))
            }),
        Row::of(write, move |s| Ok((one(s, large)?, 9 << 40, 0)))
            .calls("cuStreamWriteValue64_v2")
            .with_told(|call| {
                let flags: u32 = value("flags")(call)?;
                Some((value("address")(call)?, value::<u64>("value")(call)?, flags))
            }),
        Row::of("cuStreamWaitValue32_v2", move |s| {
            Ok((one(s, wait_32(WaitCondition::Equal, false))?, u32::MAX))
        })
        .calls("cuStreamWaitValue32_v2")
        .with_told(|call| Some((value("address")(call)?, value("value")(call)?))),
        Row::of("cuStreamWaitValue64_v2", move |s| {
            Ok((one(s, wait_64(WaitCondition::Equal, false))?, u64::MAX))
        })
        .calls("cuStreamWaitValue64_v2")
        .with_told(|call| Some((value("address")(call)?, value("value")(call)?))),
        Row::of("CUstreamWaitValue_flags::CU_STREAM_WAIT_VALUE_NOR", move |s| {
            let mut zero = DeviceBuffer::<u64>::zeroed_sync(&s.stream, 1)?;
            zero.zero()?;
            // SAFETY: the word outlives the operation, and no other work uses it.
            unsafe { s.stream.memory_operation(nor(zero.as_raw())) }?;
            s.stream.synchronize()
        })
        .calls("cuStreamWaitValue32_v2")
        .with(value("flags"), 3_u32),
        Row::new(flush, flush_32, "cuStreamWaitValue32_v2", value("flags"), 1_u32 | 1 << 30),
        Row::new(flush, flush_64, "cuStreamWaitValue64_v2", value("flags"), 1_u32 | 1 << 30),
    ]
}

/// The address, the value, the operation and the type of the words of an atomic operation.
type Reduced = (Type, u64, u64, Reduction, Word);

fn found_reduction(call: &Call) -> Option<Reduced> {
    // SAFETY: the fields are numbers, for which any bits are valid.
    let its = unsafe { operation(call)?.atomicReduction };
    Some((its.operation, its.address, its.value, its.reductionOp, its.dataType))
}

fn reductions() -> Vec<Row> {
    let kind = Type::CU_STREAM_MEM_OP_ATOMIC_REDUCTION;
    let add = Reduction::CU_STREAM_ATOMIC_REDUCTION_OP_ADD;
    let and = Reduction::CU_STREAM_ATOMIC_REDUCTION_OP_AND;
    let or = Reduction::CU_STREAM_ATOMIC_REDUCTION_OP_OR;
    let small =
        |reduction| move |address| MemoryOperation::Reduce32 { address, value: 7, reduction };
    let large =
        |reduction| move |address| MemoryOperation::Reduce64 { address, value: 7 << 40, reduction };
    let narrow = Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32;
    let wide = Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64;
    let function = "cuStreamBatchMemOp_v2";
    let of_small = |name: &str, reduction, raw| {
        let act = move |s: &Stage| Ok((kind, one(s, small(reduction))?, 7, raw, narrow));
        Row::of(name, act).calls(function).with_told(found_reduction)
    };
    let of_large = |name: &str, reduction, raw| {
        let act = move |s: &Stage| Ok((kind, batch(s, large(reduction))?, 7 << 40, raw, wide));
        Row::of(name, act).calls(function).with_told(found_reduction)
    };
    vec![
        of_small(
            "CUstreamBatchMemOpType::CU_STREAM_MEM_OP_ATOMIC_REDUCTION",
            AtomicReduction::Add,
            add,
        ),
        of_small(
            "CUstreamAtomicReductionOpType::CU_STREAM_ATOMIC_REDUCTION_OP_ADD",
            AtomicReduction::Add,
            add,
        ),
        of_large(
            "CUstreamAtomicReductionOpType::CU_STREAM_ATOMIC_REDUCTION_OP_AND",
            AtomicReduction::And,
            and,
        ),
        of_large(
            "CUstreamAtomicReductionOpType::CU_STREAM_ATOMIC_REDUCTION_OP_OR",
            AtomicReduction::Or,
            or,
        ),
        of_small(
            "CUstreamAtomicReductionDataType::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32",
            AtomicReduction::Or,
            or,
        ),
        of_large(
            "CUstreamAtomicReductionDataType::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64",
            AtomicReduction::Add,
            add,
        ),
    ]
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = types();
    rows.extend(reductions());
    rows.extend(conditions());
    rows.extend(single());
    rows
}
