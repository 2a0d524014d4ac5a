//! The address of an array in a context, and the check that memory exists for all of it.

use super::array::ArrayInterface;
use super::layout::ByteRange;
use super::refused;
use crate::call::{Error, Result};
use crate::context::Context;
use crate::device::Device;
use crate::memory::{MemoryAccess, MemoryPool, MemoryType, PointerInfo};
use crate::release::relaxed;
use cuda_sys::{CUdeviceptr, CUmemoryPool, CUresult};
use std::ops::Range;

/// The driver's error codes for an address that it did not allocate.
const UNKNOWN_ADDRESS: [CUresult; 2] =
    [CUresult::CUDA_ERROR_NOT_FOUND, CUresult::CUDA_ERROR_INVALID_VALUE];

impl ArrayInterface {
    /// Returns the address at which `context` accesses the first element, or 0 if the array is empty.
    /// Checks that the address is aligned to `align` and, if the driver knows the allocation, that
    /// memory exists for the whole array.
    #[inline]
    pub(super) fn checked_address(&self, context: &Context, align: usize) -> Result<u64> {
        let layout = self.layout();
        if layout.is_empty() {
            return Ok(0);
        }
        let info = context.pointer_info(self.address())?;
        let address = info.as_ref().and_then(|info| info.device_address).unwrap_or(self.address());
        if address % align as u64 != 0 {
            let problem = format!("{address:#x} is not aligned for {}", self.dtype());
            return Err(refused("data", problem).into());
        }
        let Some(allocation) = allocation_at(context, address)? else {
            // The driver does not know this memory, so the range cannot be checked. (Driver 580 also
            // does not know reserved addresses without a mapping.)
            return Ok(address);
        };
        let ByteRange { start, end } = layout.byte_range();
        let start = address.checked_add_signed(start as i64);
        let end = address.checked_add_signed(end as i64);
        if let (Some(start), Some(end)) = (start, end) {
            let array = start..end;
            if is_within(&array, &allocation) {
                return Ok(address);
            }
            if info.is_some_and(|info| is_mapped_in_parts(&array, &allocation, &info)) {
                return match first_unmapped(&array, allocation, |at| allocation_at(context, at))? {
                    None => Ok(address),
                    Some(at) => Err(unmapped(at)),
                };
            }
        }
        let problem = format!(
            "the array of {} bytes around {address:#x} exceeds the allocation {:#x}..{:#x}",
            layout.byte_range().end - layout.byte_range().start,
            allocation.start,
            allocation.end
        );
        Err(refused("data", problem).into())
    }
}

#[inline]
fn unmapped(address: u64) -> Error {
    let problem = format!("{address:#x} is reserved, but no memory is mapped there");
    refused("data", problem).into()
}

/// Returns the allocation or mapping that contains an address.
#[inline]
fn allocation_at(context: &Context, address: u64) -> Result<Option<Range<u64>>> {
    match context.address_range(address) {
        Err(error) if error.code().is_some_and(|code| UNKNOWN_ADDRESS.contains(&code)) => Ok(None),
        range => range.map(Some),
    }
}

#[inline]
fn is_within(array: &Range<u64>, memory: &Range<u64>) -> bool {
    memory.start <= array.start && array.end <= memory.end
}

/// Returns whether the array lies in one address reservation with several mappings, as in PyTorch's
/// expandable segments. `mapping` is the mapping at the first element. For memory that is not in a
/// reservation, `info.range` equals `mapping`. Pool memory is excluded, because the neighboring
/// allocations in the pool do not belong to the array.
#[inline]
fn is_mapped_in_parts(array: &Range<u64>, mapping: &Range<u64>, info: &PointerInfo) -> bool {
    info.pool.is_null()
        && !info.managed
        && info.range != *mapping
        && is_within(mapping, &info.range)
        && is_within(array, &info.range)
}

/// Returns an address of the array that has no mapping, or `None` if the whole array is mapped.
/// `mapped` is the mapping that contains the first element, which need not be at the array's lowest
/// address. `at` returns the mapping at an address.
fn first_unmapped(
    array: &Range<u64>,
    mut mapped: Range<u64>,
    mut at: impl FnMut(u64) -> Result<Option<Range<u64>>>,
) -> Result<Option<u64>> {
    while mapped.end < array.end {
        match at(mapped.end)? {
            // The guard ensures that the loop ends, even if the driver returns a wrong range.
            Some(next) if next.contains(&mapped.end) => mapped.end = next.end,
            _ => return Ok(Some(mapped.end)),
        }
    }
    while array.start < mapped.start {
        let last = mapped.start - 1;
        match at(last)? {
            Some(next) if next.contains(&last) => mapped.start = next.start,
            _ => return Ok(Some(last)),
        }
    }
    Ok(None)
}

const GRANT_FUNCTION: &str = "cuMemPoolSetAccess";

/// Gives every device that can reach the memory at `address` read and write access to it. Calls
/// `cuMemPoolSetAccess` for the pool from which the memory was allocated.
///
/// A device cannot access stream-ordered memory of another device until the pool grants it. The
/// consumer of an exported array expects this access and cannot grant it itself, because neither
/// the CUDA Array Interface nor DLPack names the pool. Without the access, the consumer's first use
/// of the array on another device fails.
///
/// The access is granted to the whole pool, and to each device once. Nothing changes on a machine
/// with one device, for memory without a pool, and for devices without peer access to the device of
/// `context`.
///
/// The export functions of this crate do this: [`DeviceBuffer::array_interface`],
/// [`DeviceBuffer::into_dlpack`] and [`ArrayView::array_interface`]. They ignore it if the driver
/// refuses the access, because the array remains usable on its own device. Code that describes
/// memory by its address, for [`ArrayInterface::new`] or [`Export::new`], must call this function
/// itself.
///
/// # Errors
/// An error of the driver.
///
/// # Safety
/// The memory at `address` must not be freed during the call.
///
/// Since CUDA 11.2. Raw: [`cuMemPoolSetAccess`](fn@cuda_sys::cuMemPoolSetAccess).
///
/// [`DeviceBuffer::array_interface`]: crate::DeviceBuffer::array_interface
/// [`DeviceBuffer::into_dlpack`]: crate::DeviceBuffer::into_dlpack
/// [`ArrayView::array_interface`]: super::ArrayView::array_interface
/// [`ArrayInterface::new`]: super::ArrayInterface::new
/// [`Export::new`]: super::dlpack::Export::new
#[doc(alias = "cuMemPoolSetAccess")]
#[inline]
pub unsafe fn grant_peer_access(context: &Context, address: CUdeviceptr) -> Result<()> {
    let count = Device::count()?;
    if count <= 1 || address == 0 {
        return Ok(());
    }
    let _current = context.enter()?;
    let Some(info) = context.pointer_info(address)? else { return Ok(()) };
    if info.pool.is_null() || info.memory_type != MemoryType::Device {
        return Ok(());
    }
    // A change of the access invalidates captures of other threads in the global mode (measured
    // with driver 580), unless this thread is in the relaxed mode.
    relaxed(|| grant(context, count, info.pool))
}

/// Grants access to a pool to each device that can have it.
#[inline]
fn grant(context: &Context, count: u32, pool: CUmemoryPool) -> Result<()> {
    // SAFETY: memory that is allocated from the pool keeps it alive, and the caller of
    // `grant_peer_access` promised that the memory is not freed during the call. No memory is
    // allocated from this object.
    let pool = unsafe { MemoryPool::borrow_raw(pool, context) }?;
    for ordinal in 0..count {
        let peer = Device::get(ordinal)?;
        if peer != context.device()
            && pool.access(&peer)? != MemoryAccess::ReadWrite
            && peer.can_access_peer(&context.device())?
        {
            pool.grant_access(&peer)?;
        }
    }
    Ok(())
}

/// Calls [`grant_peer_access`] for an export, which succeeds without the access.
///
/// # Safety
/// See [`grant_peer_access`].
#[inline]
pub(super) unsafe fn grant_for_export(context: &Context, address: CUdeviceptr) -> Result<()> {
    // SAFETY: the caller's promise.
    match unsafe { grant_peer_access(context, address) } {
        Err(Error::Driver(error)) if error.call == GRANT_FUNCTION => Ok(()),
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the result of [`first_unmapped`] and the number of mapping queries.
    fn unmapped_in(array: Range<u64>, first: u64, mappings: &[Range<u64>]) -> (Option<u64>, usize) {
        let mut queries = 0;
        let at = |address| {
            let mapping = mappings.iter().find(|range| range.contains(&address));
            Ok(mapping.cloned())
        };
        let start = at(first).ok().flatten().expect("a first mapping");
        let found = first_unmapped(&array, start, |address| {
            queries += 1;
            at(address)
        });
        (found.expect("no error"), queries)
    }

    #[test]
    fn adjacent_mappings_have_no_hole() {
        let mappings = [100..200, 200..300, 300..450];
        assert_eq!(unmapped_in(110..190, 110, &mappings), (None, 0));
        assert_eq!(unmapped_in(110..450, 110, &mappings), (None, 2));
        // The first element is in the last mapping, then in the middle one.
        assert_eq!(unmapped_in(100..450, 449, &mappings), (None, 2));
        assert_eq!(unmapped_in(150..301, 250, &mappings), (None, 2));
    }

    #[test]
    fn a_hole_between_mappings_is_found() {
        let mappings = [100..200, 220..300];
        assert_eq!(unmapped_in(110..210, 110, &mappings).0, Some(200));
        assert_eq!(unmapped_in(110..300, 110, &mappings).0, Some(200));
        assert_eq!(unmapped_in(190..290, 280, &mappings).0, Some(219));
        // The hole is after the last mapping, then before the first.
        assert_eq!(unmapped_in(230..301, 230, &mappings).0, Some(300));
        assert_eq!(unmapped_in(99..200, 150, &mappings).0, Some(99));
    }

    #[test]
    fn a_driver_that_repeats_its_answer_is_not_queried_forever() {
        let repeated = |_| Ok(Some(100..200));
        assert_eq!(first_unmapped(&(100..300), 100..200, repeated).ok(), Some(Some(200)));
        assert_eq!(first_unmapped(&(0..200), 100..200, repeated).ok(), Some(Some(99)));
    }
}
