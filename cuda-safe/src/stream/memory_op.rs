//! Stream memory operations: a stream writes or changes a word of memory, or waits for its value.

use super::Stream;
use crate::call::{Error, Invalid, Result, answer, c_enum, call, init, without_current};
use crate::context::Context;
use cuda_sys::{
    CUdeviceptr, CUresult, CUstreamAtomicReductionDataType as Word,
    CUstreamAtomicReductionOpType as ReductionType, CUstreamBatchMemOpParams,
    CUstreamBatchMemOpParams_union_CUstreamMemOpAtomicReductionParams_st as Reduction,
    CUstreamBatchMemOpType as Type, CUstreamMemoryBarrier_flags as BarrierFlags,
    CUstreamWaitValue_flags as WaitFlags, CUstreamWriteValue_flags as WriteFlags, CudaVersion,
};

/// An operation on a word of memory in stream order, for [`Stream::memory_operation`].
///
/// The address must be a multiple of the word size. The memory must be device memory
/// ([synchronous](crate::DeviceBuffer::zeroed_sync), pitched, mapped by virtual memory management, or a
/// variable of a module) or pinned memory. At least the driver for CUDA 13.0 on an H200 rejects
/// stream-ordered and managed memory.
///
/// # Deadlocks
/// A wait whose word is written by a later call can deadlock in the driver. A module load or a free of
/// synchronous or pinned memory, on any thread of the process, waits for all running work, and so for
/// the waiting stream. Meanwhile the driver blocks most calls of every other thread, among them the one
/// that would write the word (measured on an H200, driver 580). Enqueue the write before such a call
/// can be made, or write the word from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryOperation {
    /// Writes 4 bytes. Earlier writes of the stream become visible to the whole system before this
    /// write.
    Write32 {
        /// The address of the word.
        address: CUdeviceptr,
        /// The value to write.
        value: u32,
    },
    /// Writes 8 bytes. Earlier writes of the stream become visible to the whole system before this
    /// write. Needs a device with
    /// [`CAN_USE_64_BIT_STREAM_MEM_OPS`](crate::device::attribute::CAN_USE_64_BIT_STREAM_MEM_OPS).
    Write64 {
        /// The address of the word.
        address: CUdeviceptr,
        /// The value to write.
        value: u64,
    },
    /// Makes later work wait until a word of 4 bytes satisfies a condition.
    Wait32 {
        /// The address of the word.
        address: CUdeviceptr,
        /// The value for the comparison.
        value: u32,
        /// The condition for the word and the value.
        condition: WaitCondition,
        /// Whether earlier remote writes through PCIe become visible to later work after the wait.
        /// Needs a device with [`CAN_FLUSH_REMOTE_WRITES`](crate::device::attribute::CAN_FLUSH_REMOTE_WRITES).
        flush: bool,
    },
    /// Makes later work wait until a word of 8 bytes satisfies a condition. Needs a device with
    /// [`CAN_USE_64_BIT_STREAM_MEM_OPS`](crate::device::attribute::CAN_USE_64_BIT_STREAM_MEM_OPS).
    Wait64 {
        /// The address of the word.
        address: CUdeviceptr,
        /// The value for the comparison.
        value: u64,
        /// The condition for the word and the value.
        condition: WaitCondition,
        /// Whether earlier remote writes through PCIe become visible to later work after the wait.
        /// Needs a device with [`CAN_FLUSH_REMOTE_WRITES`](crate::device::attribute::CAN_FLUSH_REMOTE_WRITES).
        flush: bool,
    },
    /// Makes earlier remote writes visible to later work, like `flush` of a wait, but without a wait.
    FlushRemoteWrites,
    /// A memory barrier: earlier writes become visible before later writes.
    Barrier(BarrierScope),
    /// Changes a word of 4 bytes by an atomic operation. Needs CUDA 13.1, and a device with
    /// [`ATOMIC_REDUCTION_SUPPORTED`](crate::device::attribute::ATOMIC_REDUCTION_SUPPORTED). Unverified (from
    /// documentation).
    Reduce32 {
        /// The address of the word.
        address: CUdeviceptr,
        /// The second operand. The first one is the word.
        value: u32,
        /// How the operands are combined.
        reduction: AtomicReduction,
    },
    /// Changes a word of 8 bytes by an atomic operation. Needs CUDA 13.1, and a device with
    /// [`ATOMIC_REDUCTION_SUPPORTED`](crate::device::attribute::ATOMIC_REDUCTION_SUPPORTED). Unverified (from
    /// documentation).
    Reduce64 {
        /// The address of the word.
        address: CUdeviceptr,
        /// The second operand. The first one is the word.
        value: u64,
        /// How the operands are combined.
        reduction: AtomicReduction,
    },
}

c_enum! {
    /// How an atomic operation combines a word and a value, which are unsigned numbers.
    #[non_exhaustive]
    pub enum AtomicReduction = ReductionType {
        /// The sum, which wraps around.
        Add = CU_STREAM_ATOMIC_REDUCTION_OP_ADD,
        /// The bits that are set in both.
        And = CU_STREAM_ATOMIC_REDUCTION_OP_AND,
        /// The bits that are set in at least one.
        Or = CU_STREAM_ATOMIC_REDUCTION_OP_OR,
    }
}

c_enum! {
    /// The condition of a wait for a word `w` and a value `v`.
    pub enum WaitCondition = WaitFlags {
        /// `w - v >= 0` as a signed number. This is `w >= v` for counters that may overflow.
        AtLeast = CU_STREAM_WAIT_VALUE_GEQ,
        /// `w == v`.
        Equal = CU_STREAM_WAIT_VALUE_EQ,
        /// `w & v != 0`: at least one bit of `v` is set in `w`.
        AnyBit = CU_STREAM_WAIT_VALUE_AND,
        /// `!(w | v) != 0`: at least one bit is set in neither `w` nor `v`. Needs a device with
        /// [`CAN_USE_STREAM_WAIT_VALUE_NOR`](crate::device::attribute::CAN_USE_STREAM_WAIT_VALUE_NOR).
        Nor = CU_STREAM_WAIT_VALUE_NOR,
    }
}

c_enum! {
    /// The scope of a memory barrier.
    #[derive(Default)]
    pub enum BarrierScope = BarrierFlags {
        /// The whole system: the device, the host and other devices.
        #[default]
        System = CU_STREAM_MEMORY_BARRIER_TYPE_SYS,
        /// The device only.
        Device = CU_STREAM_MEMORY_BARRIER_TYPE_GPU,
    }
}

impl WaitCondition {
    #[inline]
    fn flags(self, flush: bool) -> u32 {
        let flush = if flush { WaitFlags::CU_STREAM_WAIT_VALUE_FLUSH } else { WaitFlags(0) };
        self.raw().0 | flush.0
    }

    /// Returns the condition of a wait with these flags, or `None` if it is not known.
    #[inline]
    fn of_flags(flags: u32) -> Option<Self> {
        Self::from_raw(WaitFlags(flags & !WaitFlags::CU_STREAM_WAIT_VALUE_FLUSH.0))
    }
}

/// The maximum number of operations in a batch. The documentation of NVIDIA says fewer than 256, and
/// driver 580 enforces this.
const MAX_OPERATIONS: usize = 255;

/// The version since which there are atomic operations.
const REDUCTIONS_SINCE: CudaVersion = CudaVersion::new(13, 1);

/// The flags of a write. The other flag, which omits the fence, is only for the functions before CUDA
/// 11.7.
const WRITE: u32 = WriteFlags::CU_STREAM_WRITE_VALUE_DEFAULT.0;

impl Stream {
    /// Enqueues a memory operation. Calls `cuStreamWriteValue32`, `cuStreamWriteValue64`,
    /// `cuStreamWaitValue32`, `cuStreamWaitValue64` or, for other operations, `cuStreamBatchMemOp`.
    ///
    /// If the condition of a wait is never satisfied, the stream blocks forever, and so does everything
    /// that waits for the stream, including the process when it exits. (The simulated driver reports
    /// this instead.) There is no safe wait, because safe code cannot write a word that another stream
    /// reads.
    ///
    /// # Errors
    /// - [`Invalid::NoMemoryOperations`] for stream-ordered and managed memory, if the driver rejects
    ///   it.
    /// - `CUDA_ERROR_INVALID_VALUE` for an address that is not a multiple of the word size.
    /// - [`Invalid::NeedsNewerDriver`] for atomic operations, before CUDA 13.1.
    /// - `CUDA_ERROR_NOT_SUPPORTED`.
    ///
    /// If a captured operation is invalid, the driver rejects the launch of the graph with
    /// `CUDA_ERROR_INVALID_VALUE`.
    ///
    /// # Safety
    /// - Until the operation is complete, the word is in memory that the device of the stream can
    ///   access, and stays allocated.
    /// - While the operation can run, no other code reads or writes a word that it writes, except
    ///   atomically or through memory operations.
    /// - The written bits are valid for the type of the memory.
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamWriteValue32_v2`](fn@cuda_sys::cuStreamWriteValue32_v2),
    /// [`cuStreamWriteValue64_v2`](fn@cuda_sys::cuStreamWriteValue64_v2),
    /// [`cuStreamWaitValue32_v2`](fn@cuda_sys::cuStreamWaitValue32_v2),
    /// [`cuStreamWaitValue64_v2`](fn@cuda_sys::cuStreamWaitValue64_v2).
    #[doc(alias = "cuStreamWriteValue32", alias = "cuStreamWriteValue64")]
    #[doc(alias = "cuStreamWaitValue32", alias = "cuStreamWaitValue64")]
    #[inline]
    pub unsafe fn memory_operation(&self, operation: MemoryOperation) -> Result<()> {
        let stream = self.raw();
        let done = without_current(self.context(), || match operation {
            MemoryOperation::Write32 { address, value } => {
                // SAFETY: the stream is alive, and the caller guarantees that the address is valid.
                unsafe { call!(cuStreamWriteValue32_v2(stream, address, value, WRITE)) }
            }
            MemoryOperation::Write64 { address, value } => {
                // SAFETY: as above.
                unsafe { call!(cuStreamWriteValue64_v2(stream, address, value, WRITE)) }
            }
            MemoryOperation::Wait32 { address, value, condition, flush } => {
                let flags = condition.flags(flush);
                // SAFETY: as above.
                unsafe { call!(cuStreamWaitValue32_v2(stream, address, value, flags)) }
            }
            MemoryOperation::Wait64 { address, value, condition, flush } => {
                let flags = condition.flags(flush);
                // SAFETY: as above.
                unsafe { call!(cuStreamWaitValue64_v2(stream, address, value, flags)) }
            }
            MemoryOperation::FlushRemoteWrites
            | MemoryOperation::Barrier(_)
            | MemoryOperation::Reduce32 { .. }
            | MemoryOperation::Reduce64 { .. } => {
                // SAFETY: as above.
                unsafe { self.memory_operations(&[operation]) }
            }
        });
        done.map_err(|error| explain(self.context(), error, &[operation]))
    }

    /// Enqueues several memory operations, which run one after the other, with one call. Calls
    /// `cuStreamBatchMemOp`.
    ///
    /// # Errors
    /// [`Invalid::TooManyOperations`]; the errors of [`memory_operation`](Self::memory_operation).
    ///
    /// # Safety
    /// Each operation satisfies the conditions of [`memory_operation`](Self::memory_operation).
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamBatchMemOp_v2`](fn@cuda_sys::cuStreamBatchMemOp_v2).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    /// use cuda_safe::stream::{MemoryOperation, WaitCondition};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let (producer, consumer) = (context.stream()?, context.stream()?);
    /// let flag = DeviceBuffer::<u32>::zeroed_sync(&producer, 1)?;
    /// producer.synchronize()?;
    /// let address = flag.as_raw();
    /// let wait = MemoryOperation::Wait32 {
    ///     address,
    ///     value: 1,
    ///     condition: WaitCondition::AtLeast,
    ///     flush: false,
    /// };
    /// let write = MemoryOperation::Write32 { address, value: 1 };
    /// // SAFETY: the flag outlives both operations, and no other code uses it.
    /// unsafe { producer.memory_operations(&[write]) }?;
    /// // SAFETY: as above.
    /// unsafe { consumer.memory_operations(&[wait]) }?;
    /// consumer.synchronize()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuStreamBatchMemOp")]
    #[inline]
    pub unsafe fn memory_operations(&self, operations: &[MemoryOperation]) -> Result<()> {
        if operations.is_empty() {
            return Ok(());
        }
        let (mut raw, number) = batch(operations)?;
        let first = raw.as_mut_ptr();
        let done = without_current(self.context(), || {
            // SAFETY: the stream is alive, and there are `number` operations, which the driver copies.
            // The caller guarantees that the addresses are valid.
            unsafe { answer!(cuStreamBatchMemOp_v2(self.raw(), number, first, 0)) }
        });
        done.map_err(|error| explain(self.context(), error, operations))
    }
}

/// Returns the operations of a batch in the driver's format, and their number.
///
/// # Errors
/// [`Invalid::TooManyOperations`]; [`Invalid::NeedsNewerDriver`].
#[inline]
pub(crate) fn batch(
    operations: &[MemoryOperation],
) -> Result<(Vec<CUstreamBatchMemOpParams>, u32)> {
    if operations.iter().any(MemoryOperation::is_reduction) {
        init::needs("an atomic memory operation", REDUCTIONS_SINCE)?;
    }
    let count = operations.len();
    let number = u32::try_from(count).ok().filter(|_| count <= MAX_OPERATIONS);
    let Some(number) = number else {
        return Err(Invalid::TooManyOperations { count, max: MAX_OPERATIONS }.into());
    };
    Ok((operations.iter().map(to_raw).collect(), number))
}

/// Finds the memory that the driver rejected, which the error code does not name.
#[cold]
#[inline]
pub(crate) fn explain(context: &Context, error: Error, operations: &[MemoryOperation]) -> Error {
    if error.code() != Some(CUresult::CUDA_ERROR_INVALID_VALUE) {
        return error;
    }
    let targets = operations.iter().filter_map(MemoryOperation::target);
    if targets.clone().any(|(address, size)| address % size != 0) {
        return error;
    }
    for (address, _) in targets {
        let Ok(Some(info)) = context.pointer_info(address) else { continue };
        let memory = if info.managed {
            "managed"
        } else if !info.pool.is_null() {
            "stream-ordered"
        } else {
            continue;
        };
        return Invalid::NoMemoryOperations { memory, address }.into();
    }
    error
}

impl MemoryOperation {
    /// Returns the address of the word and its size in bytes.
    #[inline]
    fn target(&self) -> Option<(CUdeviceptr, u64)> {
        match *self {
            Self::Write32 { address, .. }
            | Self::Wait32 { address, .. }
            | Self::Reduce32 { address, .. } => Some((address, 4)),
            Self::Write64 { address, .. }
            | Self::Wait64 { address, .. }
            | Self::Reduce64 { address, .. } => Some((address, 8)),
            Self::FlushRemoteWrites | Self::Barrier(_) => None,
        }
    }

    #[inline]
    fn is_reduction(&self) -> bool {
        matches!(self, Self::Reduce32 { .. } | Self::Reduce64 { .. })
    }
}

/// Converts an operation to the C type. The field `alias`, which is for the driver, stays 0.
#[inline]
fn to_raw(operation: &MemoryOperation) -> CUstreamBatchMemOpParams {
    let mut raw = CUstreamBatchMemOpParams::default();
    match *operation {
        MemoryOperation::Write32 { address, value } => {
            raw.writeValue.operation = Type::CU_STREAM_MEM_OP_WRITE_VALUE_32;
            raw.writeValue.address = address;
            raw.writeValue.__bindgen_anon_1.value = value;
            raw.writeValue.flags = WRITE;
        }
        MemoryOperation::Write64 { address, value } => {
            raw.writeValue.operation = Type::CU_STREAM_MEM_OP_WRITE_VALUE_64;
            raw.writeValue.address = address;
            raw.writeValue.__bindgen_anon_1.value64 = value;
            raw.writeValue.flags = WRITE;
        }
        MemoryOperation::Wait32 { address, value, condition, flush } => {
            raw.waitValue.operation = Type::CU_STREAM_MEM_OP_WAIT_VALUE_32;
            raw.waitValue.address = address;
            raw.waitValue.__bindgen_anon_1.value = value;
            raw.waitValue.flags = condition.flags(flush);
        }
        MemoryOperation::Wait64 { address, value, condition, flush } => {
            raw.waitValue.operation = Type::CU_STREAM_MEM_OP_WAIT_VALUE_64;
            raw.waitValue.address = address;
            raw.waitValue.__bindgen_anon_1.value64 = value;
            raw.waitValue.flags = condition.flags(flush);
        }
        MemoryOperation::FlushRemoteWrites => {
            raw.flushRemoteWrites.operation = Type::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES;
        }
        MemoryOperation::Barrier(scope) => {
            raw.memoryBarrier.operation = Type::CU_STREAM_MEM_OP_BARRIER;
            raw.memoryBarrier.flags = scope.raw().0;
        }
        MemoryOperation::Reduce32 { address, value, reduction } => {
            let word = Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32;
            raw.atomicReduction = reduce(address, value.into(), reduction, word);
        }
        MemoryOperation::Reduce64 { address, value, reduction } => {
            let word = Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64;
            raw.atomicReduction = reduce(address, value, reduction, word);
        }
    }
    raw
}

#[inline]
fn reduce(address: CUdeviceptr, value: u64, reduction: AtomicReduction, word: Word) -> Reduction {
    Reduction {
        operation: Type::CU_STREAM_MEM_OP_ATOMIC_REDUCTION,
        flags: 0,
        reductionOp: reduction.raw(),
        dataType: word,
        address,
        value,
        alias: 0,
    }
}

/// Converts an operation from the C type, which must be initialized completely.
///
/// # Errors
/// [`Invalid::UnknownMemoryOperation`].
#[inline]
pub(crate) fn from_raw(raw: &CUstreamBatchMemOpParams) -> Result<MemoryOperation> {
    // SAFETY: each variant begins with the type.
    let operation = unsafe { raw.operation };
    // SAFETY: all bits are valid for numbers. A write has the same fields at the same places.
    let wait = unsafe { raw.waitValue };
    // SAFETY: all bits are valid for numbers.
    let barrier = unsafe { raw.memoryBarrier };
    // SAFETY: all bits are valid for numbers.
    let word = unsafe { wait.__bindgen_anon_1.value };
    // SAFETY: all bits are valid for numbers.
    let value = unsafe { wait.__bindgen_anon_1.value64 };
    let address = wait.address;
    let unknown = |flags| Invalid::UnknownMemoryOperation { operation: operation.0, flags };
    let condition = || WaitCondition::of_flags(wait.flags).ok_or_else(|| unknown(wait.flags));
    let flush = wait.flags & WaitFlags::CU_STREAM_WAIT_VALUE_FLUSH.0 != 0;
    Ok(match operation {
        Type::CU_STREAM_MEM_OP_WRITE_VALUE_32 => MemoryOperation::Write32 { address, value: word },
        Type::CU_STREAM_MEM_OP_WRITE_VALUE_64 => MemoryOperation::Write64 { address, value },
        Type::CU_STREAM_MEM_OP_WAIT_VALUE_32 => {
            MemoryOperation::Wait32 { address, value: word, condition: condition()?, flush }
        }
        Type::CU_STREAM_MEM_OP_WAIT_VALUE_64 => {
            MemoryOperation::Wait64 { address, value, condition: condition()?, flush }
        }
        Type::CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES => MemoryOperation::FlushRemoteWrites,
        Type::CU_STREAM_MEM_OP_BARRIER => {
            let scope = BarrierScope::from_raw(BarrierFlags(barrier.flags));
            MemoryOperation::Barrier(scope.ok_or_else(|| unknown(barrier.flags))?)
        }
        Type::CU_STREAM_MEM_OP_ATOMIC_REDUCTION => {
            // SAFETY: all bits are valid for numbers.
            let its = unsafe { raw.atomicReduction };
            from_reduction(&its).ok_or_else(|| unknown(its.flags))?
        }
        _ => return Err(unknown(wait.flags).into()),
    })
}

/// Returns the atomic operation, or `None` if it is not known.
#[inline]
fn from_reduction(its: &Reduction) -> Option<MemoryOperation> {
    let (address, value) = (its.address, its.value);
    let reduction = AtomicReduction::from_raw(its.reductionOp)?;
    match its.dataType {
        Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_32 => Some(MemoryOperation::Reduce32 {
            address,
            value: u32::try_from(value).ok()?,
            reduction,
        }),
        Word::CU_STREAM_ATOMIC_REDUCTION_UNSIGNED_64 => {
            Some(MemoryOperation::Reduce64 { address, value, reduction })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::WaitCondition;

    #[test]
    fn a_condition_is_read_from_flags_with_and_without_a_flush() {
        use WaitCondition::{AnyBit, AtLeast, Equal, Nor};
        for condition in [AtLeast, Equal, AnyBit, Nor] {
            for flush in [false, true] {
                assert_eq!(WaitCondition::of_flags(condition.flags(flush)), Some(condition));
            }
        }
    }
}
