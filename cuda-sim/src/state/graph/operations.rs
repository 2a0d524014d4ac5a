//! Stream memory operations as `CUstreamBatchMemOpParams`, whose fields are words of 32 and 64 bits.

use crate::exec::Work;
use cuda_sys::{
    CUstreamAtomicReductionDataType as Word, CUstreamAtomicReductionOpType,
    CUstreamBatchMemOpType as Type,
};

/// Returns the description of an operation that was captured: its type, address, value and flags.
pub(super) fn describe(work: &Work) -> [u64; 6] {
    if let Work::ReduceValue { at, value, size, reduction } = work {
        return reduction_words(*at, *value, *size, *reduction);
    }
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(word)
    };
    let (kind, address, value, flags) = match work {
        Work::WriteValue { at, bytes } if bytes.len() == 4 => {
            (Type::CU_STREAM_MEM_OP_WRITE_VALUE_32, *at, word(bytes), 0)
        }
        Work::WriteValue { at, bytes } => {
            (Type::CU_STREAM_MEM_OP_WRITE_VALUE_64, *at, word(bytes), 0)
        }
        Work::WaitValue { at, value, size, condition } => {
            let kind = match size {
                4 => Type::CU_STREAM_MEM_OP_WAIT_VALUE_32,
                _ => Type::CU_STREAM_MEM_OP_WAIT_VALUE_64,
            };
            (kind, *at, *value, *condition)
        }
        _ => (Type::CU_STREAM_MEM_OP_BARRIER, 0, 0, 0),
    };
    [kind.0.into(), address, value, flags.into(), 0, 0]
}

/// Returns the description of an atomic operation: its type and flags, its operation and type of words,
/// and the address and the value.
fn reduction_words(
    at: u64,
    value: u64,
    size: usize,
    reduction: CUstreamAtomicReductionOpType,
) -> [u64; 6] {
    let word = match size {
        4 => Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32,
        _ => Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64,
    };
    let kind = Type::CU_STREAM_MEM_OP_ATOMIC_REDUCTION.0;
    let operation = u64::from(reduction.0) | u64::from(word.0) << 32;
    [kind.into(), operation, at, value, 0, 0]
}
