//! The access of devices to mapped memory.

use crate::call::{Result, call};
use crate::memory::MemoryLocation;
use crate::memory::pool::MemoryAccess;
use cuda_sys::{CUdeviceptr, CUmemAccessDesc};

/// The access of several locations to mapped memory. A location without an entry has no access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AccessList(Vec<(MemoryLocation, MemoryAccess)>);

impl AccessList {
    #[inline]
    pub(super) fn set(&mut self, location: MemoryLocation, access: MemoryAccess) {
        match self.0.iter_mut().find(|(its, _)| *its == location) {
            Some((_, its)) => *its = access,
            None => self.0.push((location, access)),
        }
    }

    #[inline]
    pub(super) fn get(&self, location: MemoryLocation) -> MemoryAccess {
        let found = self.0.iter().find(|(its, _)| *its == location);
        found.map_or(MemoryAccess::None, |(_, access)| *access)
    }

    /// Applies the whole list to a range that consists of whole mappings.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// # Safety
    /// No work uses the range, unless all entries permit at least what they permitted before.
    #[inline]
    pub(super) unsafe fn apply(&self, address: CUdeviceptr, size: usize) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let descriptions = self.0.iter().map(|(location, access)| access.at(*location));
        let descriptions: Vec<_> = descriptions.collect();
        // SAFETY: the caller keeps the promise for all entries.
        unsafe { set_access(address, size, &descriptions) }
    }
}

/// Sets the access of locations to a range that consists of whole mappings.
///
/// # Errors
/// Errors from the driver.
///
/// # Safety
/// No work uses the range, unless each access is at least what it was before.
#[inline]
pub(super) unsafe fn set_access(
    address: CUdeviceptr,
    size: usize,
    access: &[CUmemAccessDesc],
) -> Result<()> {
    let (first, count) = (access.as_ptr(), access.len());
    // SAFETY: the array has `count` elements. The caller promises that no work loses its access.
    unsafe { call!(cuMemSetAccess(address, size, first, count)) }
}
