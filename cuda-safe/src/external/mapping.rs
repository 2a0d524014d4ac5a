//! Ranges of external memory with addresses.

use super::memory::{ExternalMemory, create};
use crate::call::{Invalid, Result, answer, call, debug_struct, refuse_if};
use crate::memory::buffer::allocation::Release;
use crate::memory::{Backing, DeviceBuffer};
use crate::release::{destroy, release};
use crate::stream::{Stream, same_context};
use crate::virtual_memory::check_within;
use cuda_sys::{CUDA_EXTERNAL_MEMORY_BUFFER_DESC, CUdeviceptr, Zeroable};
use std::any::Any;

/// A range of [`ExternalMemory`] that is mapped to device addresses. Created by [`ExternalMemory::map`].
///
/// It is not bound to a stream, so no work of safe code uses it: [`into_buffer`](Self::into_buffer) binds it to one. Code
/// that uses the [address](Self::address) must keep the mapping until that work is complete.
///
/// Dropping it frees the addresses (`cuMemFree`), not the memory of the other API.
///
/// # Ordering
/// A buffer of the mapping orders the work of its stream, but knows nothing of the other API: before the first work that
/// reads what the other API has written, the stream waits for a semaphore that the other API signals after a release, and
/// after the last work, it signals one that the other API waits for before it acquires the memory. The page of the
/// [module](super#ordering) has the barriers.
pub struct ExternalMapping {
    /// `None` after the mapping was taken.
    handle: Option<MappedRange>,
    size: usize,
}

impl ExternalMemory {
    /// Maps `size` bytes from `offset` on. Calls `cuExternalMemoryGetMappedBuffer`.
    ///
    /// The offset of a resource in its allocation is that of `vkBindBufferMemory`. It must be aligned as the other
    /// API requires.
    ///
    /// Map a range once. The addresses of two mappings that overlap may differ, and writes through one of them then need
    /// not be visible through the other.
    ///
    /// # Errors
    /// [`Invalid::Range`] if the range, in bytes, is not within the allocation;
    /// `CUDA_ERROR_INVALID_VALUE` if `size` is 0, or if the allocation is
    /// [dedicated](super::ExternalMemoryOptions::dedicated) and `offset` is not 0.
    ///
    /// Since CUDA 10.0. Raw:
    /// [`cuExternalMemoryGetMappedBuffer`](fn@cuda_sys::cuExternalMemoryGetMappedBuffer),
    /// [`cuMemFree_v2`](fn@cuda_sys::cuMemFree_v2).
    #[doc(alias = "cuExternalMemoryGetMappedBuffer", alias = "cuMemFree")]
    #[inline]
    pub fn map(&self, offset: usize, size: usize) -> Result<ExternalMapping> {
        check_within(offset, size, self.size())?;
        let mut description = CUDA_EXTERNAL_MEMORY_BUFFER_DESC::zeroed();
        (description.offset, description.size) = (offset as u64, size as u64);
        let (raw, from) = (self.as_raw(), &raw const description);
        let address = create(self.context(), |place| {
            // SAFETY: the import is alive, and the pointers refer to variables.
            unsafe { call!(cuExternalMemoryGetMappedBuffer(place, raw, from)) }
        })?;
        let handle = Some(MappedRange { address, memory: self.clone() });
        Ok(ExternalMapping { handle, size })
    }
}

impl ExternalMapping {
    /// Returns the first address.
    #[inline]
    pub fn address(&self) -> CUdeviceptr {
        self.handle.as_ref().map_or(0, |its| its.address)
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.size
    }

    /// Binds the range to a stream. The buffer has as many elements as fit in the range, and their bits are those of the
    /// memory.
    ///
    /// Dropping the buffer waits for the work on the stream.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`]; [`Invalid::Cast`] if the address is not aligned for the elements. The mapping is then
    /// dropped.
    ///
    /// # Safety
    /// As long as the buffer exists, each access of the other API, of another mapping, and of other processes to the
    /// range is ordered before or after the work on the buffer that it conflicts with: by a semaphore, with a release and
    /// an acquire of the other API as the page of the [module](super#ordering) says.
    pub unsafe fn into_buffer<T>(mut self, stream: &Stream) -> Result<DeviceBuffer<T>> {
        let (address, size) = (self.address(), self.size);
        if let Some(handle) = &self.handle {
            same_context("the stream", stream.context(), handle.memory.context())?;
        }
        let (element, align) = (size_of::<T>(), align_of::<T>());
        let is_aligned = address % align as u64 == 0;
        refuse_if!(!is_aligned, Invalid::Cast { address, size, element, align });
        let len = size.checked_div(element).unwrap_or(0);
        let release = match self.handle.take() {
            Some(handle) => Release::Backed(Box::new(handle)),
            None => Release::Nothing,
        };
        Ok(DeviceBuffer::own(address, len, stream, release))
    }
}

/// Addresses of external memory, which the value keeps. If they are leaked, the driver keeps the memory for them
/// (measured, driver 580).
struct MappedRange {
    address: CUdeviceptr,
    memory: ExternalMemory,
}

destroy! {
    MappedRange as "mapped external memory", after Uses;
    // SAFETY: this value stands for the addresses, and the caller promises that this is the first call. The work on
    // the stream of the memory was waited for, if it is bound to one.
    |its| unsafe { answer!(cuMemFree_v2(its.address)) }
}

impl Backing for MappedRange {
    #[inline]
    fn release_after(self: Box<Self>, stream: &Stream) {
        release(*self, stream);
    }

    #[inline]
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[inline]
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl Drop for ExternalMapping {
    #[inline]
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            let context = handle.memory.context().clone();
            release(handle, &context);
        }
    }
}

debug_struct! {
    ExternalMapping |its| {
        address: format_args!("{:#x}", its.address()), size: its.size(),
        memory: its.handle.as_ref().map(|its| &its.memory),
    }
}
