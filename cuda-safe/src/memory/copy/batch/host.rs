//! Copies of a batch from and to host memory.

use super::{CopyBatch, Direction, HostSides};
use crate::call::Result;
use crate::memory::{DeviceSlice, DeviceSliceMut, PinnedBuffer, same_length};
use crate::stream::same_stream;
use bytemuck::{AnyBitPattern, NoUninit};
use core::ffi::c_void;
use cuda_sys::CUdeviceptr;

/// The size up to which the slices of a batch are read during the call that copies them. A real driver
/// (580) reads a pageable source of 256 KiB after such a call has returned, although it is told not to.
/// Whether it reads several smaller ones during the call was not measured, so this limits their sum.
const READ_DURING_CALL: usize = 64 << 10;

impl HostSides<'_> {
    /// Returns whether the device uses none of this memory after the call has returned. Up to which size a
    /// driver reads the rows of regions during the call was not measured.
    #[inline]
    pub(super) fn is_read_during_call(&self) -> bool {
        self.pinned.is_empty() && !self.has_slice_regions && self.slice_bytes <= READ_DURING_CALL
    }
}

impl<'a> CopyBatch<'a> {
    /// Adds a copy of a slice to `target`.
    ///
    /// The slice can be pageable or pinned memory. If all slices of the batch have at most 64 KiB together,
    /// they are read before [`enqueue`](Self::enqueue) returns. Otherwise `enqueue` waits for the copies.
    ///
    /// There is no copy *to* a slice, because a driver (580) writes to pageable memory after the call has
    /// returned. Copy to a [`PinnedBuffer`] instead, or use
    /// [`DeviceSlice::copy_to_slice`](crate::DeviceSlice::copy_to_slice).
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `target` is bound to another stream
    ///   than the batch.
    pub fn push_from_slice<T: NoUninit>(
        &mut self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        source: &'a [T],
    ) -> Result<()> {
        let target = target.into();
        same_length(source.len(), target.len())?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        let bytes = target.size_bytes();
        self.host.slice_bytes = self.host.slice_bytes.saturating_add(bytes);
        let access = if bytes > READ_DURING_CALL {
            self.attributes.of_device_source()
        } else {
            self.attributes.of_small_slice()
        };
        let (to, from) = (target.as_raw(), address(source.as_ptr()));
        self.add(to, from, bytes, Direction::FromHost, access);
        Ok(())
    }

    /// Adds a copy of all elements of pinned memory to `target`. The memory stays borrowed until the copy
    /// has completed.
    ///
    /// # Errors
    /// See [`push_from_slice`](Self::push_from_slice).
    pub fn push_from_pinned<T: NoUninit + Send + Sync>(
        &mut self,
        target: impl Into<DeviceSliceMut<'a, T>>,
        source: &'a mut PinnedBuffer<T>,
    ) -> Result<()> {
        let target = target.into();
        same_length(source.count(), target.len())?;
        same_stream("the target of the copy", target.stream(), self.stream)?;
        let access = self.attributes.of_pinned_source();
        let (to, from) = (target.as_raw(), address(source.start()));
        self.add(to, from, target.size_bytes(), Direction::FromHost, access);
        self.host.pinned.push(source);
        Ok(())
    }

    /// Adds a copy of all elements of `source` to pinned memory. The memory stays borrowed until the copy
    /// has completed.
    ///
    /// # Errors
    /// - [`Invalid::Lengths`](crate::Invalid::Lengths) if the lengths differ.
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if `source` is bound to another stream
    ///   than the batch.
    pub fn push_to_pinned<T: AnyBitPattern + Send + Sync>(
        &mut self,
        source: impl Into<DeviceSlice<'a, T>>,
        target: &'a mut PinnedBuffer<T>,
    ) -> Result<()> {
        let source = source.into();
        same_length(source.len(), target.count())?;
        same_stream("the source of the copy", source.stream(), self.stream)?;
        let access = self.attributes.of_device_source();
        let (to, from) = (address(target.start()), source.as_raw());
        self.add(to, from, source.size_bytes(), Direction::ToHost, access);
        self.host.pinned.push(target);
        Ok(())
    }
}

/// Returns host memory as an address of the driver, which is the same with unified addressing.
pub(super) fn address<T>(start: *const T) -> CUdeviceptr {
    start.expose_provenance() as u64
}

/// Returns the pointer that [`address`] made an address of.
#[inline]
pub(super) fn pointer(address: CUdeviceptr) -> *mut c_void {
    #[allow(clippy::cast_possible_truncation, reason = "64-bit targets only")]
    std::ptr::with_exposed_provenance_mut(address as usize)
}
