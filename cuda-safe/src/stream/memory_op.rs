//! Memory operations: single words that a stream writes, or waits for.

use super::Stream;
use crate::call::{answer, call, without_current};
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::memory::DeviceSliceMut;
use cuda_sys::{
    CUdeviceptr, CUresult, CUstreamBatchMemOpParams, CUstreamBatchMemOpType as Type,
    CUstreamMemoryBarrier_flags as BarrierFlags, CUstreamWaitValue_flags as WaitFlags,
    CUstreamWriteValue_flags as WriteFlags,
};

/// What a stream can do with a word of memory, in its order: of [`Stream::memory_operation`].
///
/// Addresses are multiples of the word's size, in memory of the device
/// ([plain](crate::DeviceBuffer::plain_zeroed), pitched, mapped by virtual memory management, or a
/// module's variable) or in pinned memory. Stream-ordered and managed memory is refused, by a driver
/// for CUDA 13.0 on an H200 at least.
///
/// # Deadlocks
/// A wait whose word is written by a later call can deadlock in the driver. A module load or a free of
/// synchronous or pinned memory, on any thread of the process, waits for all running work, and so for the
/// waiting stream. Meanwhile the driver blocks most calls of every other thread, among them the one that would
/// write the word (measured on an H200, driver 580). Enqueue the write before such a call can be made, or write
/// the word from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryOperation {
    /// Writes 4 bytes. What the stream wrote before is visible, to the whole system, before the word
    /// is.
    Write32 {
        /// Where.
        address: CUdeviceptr,
        /// What is written.
        value: u32,
    },
    /// Writes 8 bytes, as the other. On devices with
    /// [`CAN_USE_64_BIT_STREAM_MEM_OPS`](crate::attribute::CAN_USE_64_BIT_STREAM_MEM_OPS).
    Write64 {
        /// Where.
        address: CUdeviceptr,
        /// What is written.
        value: u64,
    },
    /// Lets the work behind it wait until 4 bytes are as they should.
    Wait32 {
        /// Where.
        address: CUdeviceptr,
        /// What it is compared with.
        value: u32,
        /// How the word is to compare with the value.
        condition: WaitCondition,
        /// Then makes what others wrote before, through PCIe, visible to the work behind it. On
        /// devices with [`CAN_FLUSH_REMOTE_WRITES`](crate::attribute::CAN_FLUSH_REMOTE_WRITES).
        flush: bool,
    },
    /// Lets the work behind it wait until 8 bytes are as they should: as the two others say.
    Wait64 {
        /// Where.
        address: CUdeviceptr,
        /// What it is compared with.
        value: u64,
        /// How the word is to compare with the value.
        condition: WaitCondition,
        /// As for 4 bytes.
        flush: bool,
    },
    /// As `flush` of a wait, by itself.
    FlushRemoteWrites,
    /// A fence: what comes before it is visible before what comes after it.
    Barrier(BarrierScope),
}

/// What a word `w` should be, for a value `v`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WaitCondition {
    /// `w - v` is at least 0, as a signed number: `w >= v` for counters that may overflow.
    AtLeast,
    /// `w == v`.
    Equal,
    /// `w & v != 0`: one bit of `v` is set.
    AnyBit,
    /// `!(w | v) != 0`: one bit that `v` has not is not set. On devices with
    /// [`CAN_USE_STREAM_WAIT_VALUE_NOR`](crate::attribute::CAN_USE_STREAM_WAIT_VALUE_NOR).
    Nor,
}

/// Whom a fence is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BarrierScope {
    /// The host and other devices as well.
    #[default]
    System,
    /// The device.
    Device,
}

impl WaitCondition {
    fn flags(self, flush: bool) -> u32 {
        let condition = match self {
            Self::AtLeast => WaitFlags::CU_STREAM_WAIT_VALUE_GEQ,
            Self::Equal => WaitFlags::CU_STREAM_WAIT_VALUE_EQ,
            Self::AnyBit => WaitFlags::CU_STREAM_WAIT_VALUE_AND,
            Self::Nor => WaitFlags::CU_STREAM_WAIT_VALUE_NOR,
        };
        if flush {
            condition.0 | WaitFlags::CU_STREAM_WAIT_VALUE_FLUSH.0
        } else {
            condition.0
        }
    }
}

/// A batch takes no more: NVIDIA's text says less than 256, and so does a driver (580).
const BATCH: usize = 255;

/// The other flag, which does without the fence, is for functions before CUDA 11.7.
const WRITE: u32 = WriteFlags::CU_STREAM_WRITE_VALUE_DEFAULT.0;

impl Stream {
    /// `cuStreamWriteValue32(stream, address, value, flags)` and its kin: one memory operation, in the
    /// order of the stream.
    ///
    /// A wait whose value never comes stops the stream for good, and with it whatever waits for the
    /// stream: the process too, at its end. (The software driver says so instead.) There is no safe
    /// wait, as safe code writes no word that another stream reads.
    ///
    /// # Errors
    /// [`Invalid::NoMemoryOperations`] for stream-ordered and managed memory, where the driver refuses
    /// it; `CUDA_ERROR_INVALID_VALUE` for an address that is no multiple of the size;
    /// `CUDA_ERROR_NOT_SUPPORTED`. Of an operation that is captured the driver refuses the launch of the
    /// graph, with `CUDA_ERROR_INVALID_VALUE`.
    ///
    /// # Safety
    /// Until it is done, the word is memory that the stream's device can access, and stays allocated.
    /// Nobody else writes or reads what is written there at the same time, but through such operations
    /// or atomically; and the bits are allowed for the type that the memory has.
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamWriteValue32_v2`](fn@cuda_sys::cuStreamWriteValue32_v2),
    /// [`cuStreamWriteValue64_v2`](fn@cuda_sys::cuStreamWriteValue64_v2),
    /// [`cuStreamWaitValue32_v2`](fn@cuda_sys::cuStreamWaitValue32_v2),
    /// [`cuStreamWaitValue64_v2`](fn@cuda_sys::cuStreamWaitValue64_v2).
    #[doc(alias = "cuStreamWriteValue32")]
    #[doc(alias = "cuStreamWriteValue64")]
    #[doc(alias = "cuStreamWaitValue32")]
    #[doc(alias = "cuStreamWaitValue64")]
    pub unsafe fn memory_operation(&self, operation: MemoryOperation) -> Result<()> {
        let stream = self.raw();
        let done = without_current(self.context(), || match operation {
            MemoryOperation::Write32 { address, value } => {
                // SAFETY: the stream is alive; for the address the caller's promise.
                unsafe { call!(cuStreamWriteValue32_v2(stream, address, value, WRITE)) }
            }
            MemoryOperation::Write64 { address, value } => {
                // SAFETY: as above.
                unsafe { call!(cuStreamWriteValue64_v2(stream, address, value, WRITE)) }
            }
            MemoryOperation::Wait32 {
                address,
                value,
                condition,
                flush,
            } => {
                let flags = condition.flags(flush);
                // SAFETY: as above.
                unsafe { call!(cuStreamWaitValue32_v2(stream, address, value, flags)) }
            }
            MemoryOperation::Wait64 {
                address,
                value,
                condition,
                flush,
            } => {
                let flags = condition.flags(flush);
                // SAFETY: as above.
                unsafe { call!(cuStreamWaitValue64_v2(stream, address, value, flags)) }
            }
            MemoryOperation::FlushRemoteWrites | MemoryOperation::Barrier(_) => {
                // SAFETY: as above.
                unsafe { self.memory_operations(&[operation]) }
            }
        });
        done.map_err(|error| self.explain(error, &[operation]))
    }

    /// `cuStreamBatchMemOp(stream, count, operations, 0)`: memory operations one after the other, in
    /// one call and in the order of the stream.
    ///
    /// # Errors
    /// [`Invalid::TooManyOperations`]; else as for [`memory_operation`](Self::memory_operation).
    ///
    /// # Safety
    /// As for [`memory_operation`](Self::memory_operation), of each.
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamBatchMemOp_v2`](fn@cuda_sys::cuStreamBatchMemOp_v2).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, MemoryOperation, WaitCondition};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let (producer, consumer) = (context.stream()?, context.stream()?);
    /// let flag = DeviceBuffer::<u32>::plain_zeroed(&producer, 1)?;
    /// producer.synchronize()?;
    /// let address = flag.as_raw();
    /// let wait = MemoryOperation::Wait32 {
    ///     address,
    ///     value: 1,
    ///     condition: WaitCondition::AtLeast,
    ///     flush: false,
    /// };
    /// let write = MemoryOperation::Write32 { address, value: 1 };
    /// // SAFETY: the flag outlives both, which are all that use it.
    /// unsafe { consumer.memory_operations(&[wait]) }?;
    /// // SAFETY: as above.
    /// unsafe { producer.memory_operations(&[write]) }?;
    /// consumer.synchronize()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuStreamBatchMemOp")]
    pub unsafe fn memory_operations(&self, operations: &[MemoryOperation]) -> Result<()> {
        if operations.is_empty() {
            return Ok(());
        }
        let count = operations.len();
        let number = u32::try_from(count).ok().filter(|_| count <= BATCH);
        let Some(number) = number else {
            return Err(Invalid::TooManyOperations { count, max: BATCH }.into());
        };
        let mut raw: Vec<CUstreamBatchMemOpParams> = operations.iter().map(raw).collect();
        let first = raw.as_mut_ptr();
        let done = without_current(self.context(), || {
            // SAFETY: the stream is alive, and there are `number` operations, which the driver copies;
            // for the addresses the caller's promise.
            unsafe { answer!(cuStreamBatchMemOp_v2(self.raw(), number, first, 0)) }
        });
        done.map_err(|error| self.explain(error, operations))
    }

    /// Looks for the memory that made the driver refuse operations, as its code does not tell.
    #[cold]
    fn explain(&self, error: Error, operations: &[MemoryOperation]) -> Error {
        if error.code() != Some(CUresult::CUDA_ERROR_INVALID_VALUE) {
            return error;
        }
        let words = operations.iter().filter_map(MemoryOperation::word);
        if words.clone().any(|(address, size)| address % size != 0) {
            return error;
        }
        for (address, _) in words {
            let Ok(Some(info)) = self.context().pointer_info(address) else {
                continue;
            };
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
}

impl MemoryOperation {
    /// The word that it is about, and how many bytes that has.
    fn word(&self) -> Option<(CUdeviceptr, u64)> {
        match *self {
            Self::Write32 { address, .. } | Self::Wait32 { address, .. } => Some((address, 4)),
            Self::Write64 { address, .. } | Self::Wait64 { address, .. } => Some((address, 8)),
            Self::FlushRemoteWrites | Self::Barrier(_) => None,
        }
    }
}

/// As C has it. The driver's own field, `alias`, stays 0.
fn raw(operation: &MemoryOperation) -> CUstreamBatchMemOpParams {
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
        MemoryOperation::Wait32 {
            address,
            value,
            condition,
            flush,
        } => {
            raw.waitValue.operation = Type::CU_STREAM_MEM_OP_WAIT_VALUE_32;
            raw.waitValue.address = address;
            raw.waitValue.__bindgen_anon_1.value = value;
            raw.waitValue.flags = condition.flags(flush);
        }
        MemoryOperation::Wait64 {
            address,
            value,
            condition,
            flush,
        } => {
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
            raw.memoryBarrier.flags = match scope {
                BarrierScope::System => BarrierFlags::CU_STREAM_MEMORY_BARRIER_TYPE_SYS.0,
                BarrierScope::Device => BarrierFlags::CU_STREAM_MEMORY_BARRIER_TYPE_GPU.0,
            };
        }
    }
    raw
}

impl DeviceSliceMut<'_, u32> {
    /// `cuStreamWriteValue32(stream, address, value, 0)`: writes one element in the order of the
    /// stream, behind a fence for the whole system.
    ///
    /// # Errors
    /// [`Invalid::Range`]: there is no such element; [`Invalid::NoMemoryOperations`]: it is of
    /// stream-ordered or managed memory (a buffer made by
    /// [`plain_zeroed`](crate::DeviceBuffer::plain_zeroed) will do, and mapped pinned memory).
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamWriteValue32_v2`](fn@cuda_sys::cuStreamWriteValue32_v2).
    #[doc(alias = "cuStreamWriteValue32")]
    pub fn write_value(&mut self, index: usize, value: u32) -> Result<()> {
        let element = self.reborrow().slice(element(index))?;
        let write = MemoryOperation::Write32 {
            address: element.as_raw(),
            value,
        };
        // SAFETY: the element is of a buffer that is bound to this stream, and freed in its order or
        // after a wait; any bits are a u32, and it is aligned (the driver checks).
        unsafe { self.stream().memory_operation(write) }
    }
}

impl DeviceSliceMut<'_, u64> {
    /// `cuStreamWriteValue64(stream, address, value, 0)`: writes one element in the order of the
    /// stream, behind a fence for the whole system.
    ///
    /// # Errors
    /// As for elements of 4 bytes; `CUDA_ERROR_NOT_SUPPORTED` on devices without
    /// [`CAN_USE_64_BIT_STREAM_MEM_OPS`](crate::attribute::CAN_USE_64_BIT_STREAM_MEM_OPS).
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamWriteValue64_v2`](fn@cuda_sys::cuStreamWriteValue64_v2).
    #[doc(alias = "cuStreamWriteValue64")]
    pub fn write_value(&mut self, index: usize, value: u64) -> Result<()> {
        let element = self.reborrow().slice(element(index))?;
        let write = MemoryOperation::Write64 {
            address: element.as_raw(),
            value,
        };
        // SAFETY: as for u32.
        unsafe { self.stream().memory_operation(write) }
    }
}

/// The range of one element.
fn element(index: usize) -> std::ops::Range<usize> {
    index..index.saturating_add(1)
}
