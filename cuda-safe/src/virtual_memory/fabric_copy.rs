//! Copies over the fabric, from and to logical endpoints.

use crate::call::{Result, answer, debug_struct, without_current};
use crate::capture_state::Operation;
use crate::memory::{DeviceSlice, DeviceSliceMut, same_length};
use crate::stream::{Stream, same_stream};
use crate::virtual_memory::{LogicalEndpoint, check_within};
use cuda_sys::{
    CUDA_FABRIC_COPY_BATCH_OP, CUdeviceptr, CUfabricCpyOperand, CUfabricCpyOperandType, Zeroable,
};
use std::marker::PhantomData;

/// A batch of copies between device memory and [`LogicalEndpoint`]s, in one call.
///
/// An endpoint reaches memory of other devices and of other processes over the fabric. A copy
/// [to an endpoint](Self::push_to_endpoint) of several devices writes to all of them.
///
/// Unverified (from documentation), and shown on the software driver only.
///
/// ```no_run
/// use cuda_safe::virtual_memory::{FabricCopyBatch, LogicalEndpoint};
/// use cuda_safe::{DeviceBuffer, Result, Stream};
///
/// fn publish(stream: &Stream, values: &DeviceBuffer<f32>, endpoint: &LogicalEndpoint) -> Result<()> {
///     let mut batch = FabricCopyBatch::new(stream);
///     batch.push_to_endpoint(endpoint, 0, values)?;
///     // SAFETY: no other copy and no kernel, in any process, uses the start of the endpoint until the
///     // stream has been waited for, and its memory stays bound until then.
///     unsafe { batch.enqueue() }?;
///     stream.synchronize()
/// }
/// # let _ = publish;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[must_use = "nothing is copied until it is enqueued"]
pub struct FabricCopyBatch<'a> {
    stream: &'a Stream,
    copies: Vec<CUDA_FABRIC_COPY_BATCH_OP>,
    memory: PhantomData<&'a mut ()>,
}

impl<'a> FabricCopyBatch<'a> {
    /// Creates an empty batch on `stream`.
    #[inline]
    pub fn new(stream: &'a Stream) -> Self {
        Self { stream, copies: Vec::new(), memory: PhantomData }
    }

    /// Adds a copy of all elements of `source` to `target`. Both are device memory, and at least one of
    /// them is memory of the stream's device.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `source` or `target` is bound to
    ///   another stream than the batch.
    pub fn push<T: 'a>(
        &mut self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        source: impl Into<DeviceSlice<'a, T>>,
    ) -> Result<()> {
        let (target, source) = (target.into(), source.into());
        same_length(source.len(), target.len())?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        let sides = (in_memory(target.as_raw()), in_memory(source.as_raw()));
        self.add(sides, source.size_bytes());
        Ok(())
    }

    /// Adds a copy of all elements of `source` to an endpoint, at `offset` bytes from its start.
    ///
    /// # Errors
    /// - [`Invalid::Range`](crate::Invalid::Range) if the elements do not fit into the endpoint.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `source` is bound to another stream than
    ///   the batch.
    pub fn push_to_endpoint<T: 'a>(
        &mut self,
        endpoint: &'a LogicalEndpoint,
        offset: usize,
        source: impl Into<DeviceSlice<'a, T>>,
    ) -> Result<()> {
        let source = source.into();
        same_stream("the source of the copy", source.stream(), self.stream)?;
        let bytes = source.size_bytes();
        let target = in_endpoint(endpoint, offset, bytes)?;
        self.add((target, in_memory(source.as_raw())), bytes);
        Ok(())
    }

    /// Adds a copy from an endpoint of one device, at `offset` bytes from its start, to all elements of
    /// `target`.
    ///
    /// # Errors
    /// - [`Invalid::Range`](crate::Invalid::Range) if the endpoint ends before.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `target` is bound to another stream than
    ///   the batch.
    pub fn push_from_endpoint<T: 'a>(
        &mut self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        endpoint: &'a LogicalEndpoint,
        offset: usize,
    ) -> Result<()> {
        let target = target.into();
        same_stream("the target of the copy", target.stream(), self.stream)?;
        let bytes = target.size_bytes();
        let source = in_endpoint(endpoint, offset, bytes)?;
        self.add((in_memory(target.as_raw()), source), bytes);
        Ok(())
    }

    #[inline]
    fn add(&mut self, (dst, src): (CUfabricCpyOperand, CUfabricCpyOperand), size: usize) {
        if size != 0 {
            let flags = 0;
            self.copies.push(CUDA_FABRIC_COPY_BATCH_OP { src, dst, size, flags });
        }
    }

    /// Returns the number of copies. Copies without bytes are not counted.
    #[inline]
    pub fn len(&self) -> usize {
        self.copies.len()
    }

    /// Returns whether the batch has no copies.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    /// Enqueues all copies on the stream. Does not block the host, except for
    /// [deferred releases](crate::reference::releases#deferred-releases).
    ///
    /// Calls `cuFabricCpyBatchAsync(count, copies, 0, stream)`. The copies run after earlier work on the
    /// stream and before later work, in any order among each other.
    ///
    /// # Errors
    /// - [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured).
    /// - [`Error::Missing`](crate::Error::Missing) before CUDA 13.5.
    /// - `CUDA_ERROR_NOT_SUPPORTED` if no device has logical endpoints, and `CUDA_ERROR_INVALID_VALUE` for
    ///   the legacy default stream, for a source that is an endpoint of several devices, and for memory of
    ///   which none is local.
    /// - Errors from earlier work.
    ///
    /// # Safety
    /// The following holds for each endpoint of the batch until the copies have completed:
    /// - Memory of each of its devices is bound to the copied range.
    /// - No other copy of this batch, no other work and no other process accesses the range, unless both
    ///   only read it.
    ///
    /// The bytes that are copied from an endpoint are a valid value of the target's elements. On a stream of
    /// a green context, no memory of the batch is stream-ordered: a driver (580) crashes if such memory is
    /// copied by `cuMemcpyBatchAsync`, and it is not known whether this function has the same defect.
    ///
    /// Since CUDA 13.5. Raw: [`cuFabricCpyBatchAsync`](fn@cuda_sys::cuFabricCpyBatchAsync).
    #[doc(alias = "cuFabricCpyBatchAsync")]
    #[inline]
    pub unsafe fn enqueue(mut self) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        let _call = self.stream.uncaptured(Operation::FabricCopy)?;
        let (copies, count) = (self.copies.as_mut_ptr(), self.copies.len());
        let stream = self.stream.raw();
        without_current(self.stream.context(), || {
            // SAFETY: the list has `count` copies, whose two sides have the given size. Device memory is
            // bound to this stream, so it is freed after them, and targets in device memory overlap with
            // no other side, because they are borrowed mutably. The caller guarantees the same of the
            // endpoints, which are borrowed.
            unsafe { answer!(cuFabricCpyBatchAsync(count, copies, 0, stream)) }
        })
    }
}

/// Returns the operand for device memory.
#[inline]
fn in_memory(address: CUdeviceptr) -> CUfabricCpyOperand {
    let mut operand = CUfabricCpyOperand::zeroed();
    operand.type_ = CUfabricCpyOperandType::CU_FABRIC_COPY_OPERAND_TYPE_POINTER;
    operand.op.ptr.ptr = address;
    operand
}

/// Returns the operand for a range of an endpoint.
#[inline]
fn in_endpoint(
    endpoint: &LogicalEndpoint,
    offset: usize,
    bytes: usize,
) -> Result<CUfabricCpyOperand> {
    check_within(offset, bytes, endpoint.size())?;
    let mut operand = CUfabricCpyOperand::zeroed();
    operand.type_ = CUfabricCpyOperandType::CU_FABRIC_COPY_OPERAND_TYPE_LOGICAL_ENDPOINT;
    operand.op.le.id = endpoint.id();
    operand.op.le.offset = offset as u64;
    Ok(operand)
}

debug_struct! { FabricCopyBatch<'_> |its| { stream: its.stream, len: its.len(), .. } }
