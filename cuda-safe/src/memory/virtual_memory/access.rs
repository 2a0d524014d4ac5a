//! The access of devices to mapped memory.

use crate::base::call::call;
use crate::base::error::Result;
use crate::memory::MemoryLocation;
use crate::memory::pool::MemoryAccess;
use cuda_sys::{CUdeviceptr, CUmemAccessDesc};

/// The access of several locations to mapped memory. A location without an entry has no access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AccessList(Vec<(MemoryLocation, MemoryAccess)>);

impl AccessList {
    pub(super) fn set(&mut self, location: MemoryLocation, access: MemoryAccess) {
        match self.0.iter_mut().find(|(its, _)| *its == location) {
            Some((_, its)) => *its = access,
            None => self.0.push((location, access)),
        }
    }

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
    pub(super) unsafe fn apply(&self, address: CUdeviceptr, size: usize) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let descriptions: Vec<_> = self.0.iter().map(|its| description(*its)).collect();
        let (first, count) = (descriptions.as_ptr(), descriptions.len());
        // SAFETY: the array has `count` elements. The caller promises that no work loses its access.
        unsafe { call!(cuMemSetAccess(address, size, first, count)) }
    }
}

/// Sets the access of one location to a range that consists of whole mappings.
///
/// # Errors
/// Errors from the driver.
///
/// # Safety
/// No work uses the range, unless the access increases.
pub(super) unsafe fn set_access(
    address: CUdeviceptr,
    size: usize,
    location: MemoryLocation,
    access: MemoryAccess,
) -> Result<()> {
    let description = description((location, access));
    // SAFETY: the pointer refers to a local variable. The caller promises that no work loses its access.
    unsafe { call!(cuMemSetAccess(address, size, &raw const description, 1)) }
}

fn description((location, access): (MemoryLocation, MemoryAccess)) -> CUmemAccessDesc {
    CUmemAccessDesc {
        location: location.raw(),
        flags: access.raw(),
    }
}
