//! Operations of streams on buffers: access policies and memory operations.

use crate::call::Result;
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::{AccessWindow, MemoryOperation, Stream, same_context};

impl Stream {
    /// Sets the L2 access policy for `memory`, for kernels that are enqueued later, and replaces the
    /// previous policy. Calls `cuStreamSetAttribute` with `CU_STREAM_ATTRIBUTE_ACCESS_POLICY_WINDOW`.
    ///
    /// The policy is a hint and does not access the memory, so the memory can be freed while the policy
    /// is set. The policy then applies to later allocations at the same addresses.
    ///
    /// ```no_run
    /// # use cuda_safe::{Context, Device, DeviceBuffer};
    /// # use cuda_safe::stream::{AccessProperty, AccessWindow};
    /// # let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let table = DeviceBuffer::<f32>::zeroed(&stream, 1024)?;
    /// stream.set_access_window(&table, AccessWindow {
    ///     hit: AccessProperty::Persisting,
    ///     miss: AccessProperty::Streaming,
    ///     ..Default::default()
    /// })?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext); [`Invalid::AccessWindow`](crate::Invalid::AccessWindow); `CUDA_ERROR_INVALID_VALUE` for more bytes
    /// than [`MAX_ACCESS_POLICY_WINDOW_SIZE`](crate::device::attribute::MAX_ACCESS_POLICY_WINDOW_SIZE).
    ///
    /// Since CUDA 11.0. Raw: [`cuStreamSetAttribute`](fn@cuda_sys::cuStreamSetAttribute).
    #[doc(alias = "cuStreamSetAttribute")]
    pub fn set_access_window<'a, T: 'a>(
        &self,
        memory: impl Into<DeviceSlice<'a, T>>,
        window: AccessWindow,
    ) -> Result<()> {
        let memory = memory.into();
        same_context("the memory", memory.stream().context(), self.context())?;
        self.set_access_window_of((memory.as_raw(), memory.size_bytes()), window)
    }
}

impl DeviceSliceMut<'_, u32> {
    /// Writes one element in stream order, after a fence of system scope. Calls `cuStreamWriteValue32`.
    ///
    /// # Errors
    /// - [`Invalid::Range`](crate::Invalid::Range) if the index is out of bounds.
    /// - [`Invalid::NoMemoryOperations`](crate::Invalid::NoMemoryOperations) for stream-ordered or managed memory. Use a buffer of
    ///   [`zeroed_sync`](crate::DeviceBuffer::zeroed_sync) or mapped pinned memory.
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamWriteValue32_v2`](fn@cuda_sys::cuStreamWriteValue32_v2).
    #[doc(alias = "cuStreamWriteValue32")]
    #[inline]
    pub fn write_value(&mut self, index: usize, value: u32) -> Result<()> {
        let element = self.reborrow().slice(element(index))?;
        let write = MemoryOperation::Write32 { address: element.as_raw(), value };
        // SAFETY: the element belongs to a buffer that is bound to this stream, and that is freed in
        // stream order or after a wait. Any bits are a valid u32, and the driver checks the alignment.
        unsafe { self.stream().memory_operation(write) }
    }
}

impl DeviceSliceMut<'_, u64> {
    /// Writes one element in stream order, after a fence of system scope. Calls `cuStreamWriteValue64`.
    ///
    /// # Errors
    /// - [`Invalid::Range`](crate::Invalid::Range) if the index is out of bounds.
    /// - [`Invalid::NoMemoryOperations`](crate::Invalid::NoMemoryOperations) for stream-ordered or managed memory. Use a buffer of
    ///   [`zeroed_sync`](crate::DeviceBuffer::zeroed_sync) or mapped pinned memory.
    /// - `CUDA_ERROR_NOT_SUPPORTED` on devices without
    ///   [`CAN_USE_64_BIT_STREAM_MEM_OPS`](crate::device::attribute::CAN_USE_64_BIT_STREAM_MEM_OPS).
    ///
    /// Since CUDA 11.7. Raw: [`cuStreamWriteValue64_v2`](fn@cuda_sys::cuStreamWriteValue64_v2).
    #[doc(alias = "cuStreamWriteValue64")]
    #[inline]
    pub fn write_value(&mut self, index: usize, value: u64) -> Result<()> {
        let element = self.reborrow().slice(element(index))?;
        let write = MemoryOperation::Write64 { address: element.as_raw(), value };
        // SAFETY: see the argument for `u32`; any bits are a valid u64.
        unsafe { self.stream().memory_operation(write) }
    }
}

/// Returns the range that contains one element.
#[inline]
fn element(index: usize) -> std::ops::Range<usize> {
    index..index.saturating_add(1)
}
