//! Access of devices to a pool's memory.

use super::MemoryPool;
use crate::call::{Invalid, Result, answer, c_enum, out_without_current, without_current};
use crate::device::Device;
use crate::memory::MemoryLocation;
use cuda_sys::{CUmemAccess_flags, CUmemAccessDesc};

c_enum! {
    /// The access of a device to a pool's memory (`CUmemAccess_flags`).
    pub enum MemoryAccess = CUmemAccess_flags or Other {
        /// No access.
        None = CU_MEM_ACCESS_FLAGS_PROT_NONE,
        /// Read access.
        Read = CU_MEM_ACCESS_FLAGS_PROT_READ,
        /// Read and write access.
        ReadWrite = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    }
}

impl MemoryAccess {
    /// Returns this access of a location in the driver's format.
    #[inline]
    pub(crate) fn at(self, location: MemoryLocation) -> CUmemAccessDesc {
        CUmemAccessDesc { location: location.raw(), flags: self.raw() }
    }
}

impl MemoryPool {
    /// Returns how a device can access the pool's memory. Of a pool of managed memory, which all devices
    /// can use, this is only what was set.
    ///
    /// Calls `cuMemPoolGetAccess(&flags, pool, location)`.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolGetAccess`](fn@cuda_sys::cuMemPoolGetAccess).
    #[doc(alias = "cuMemPoolGetAccess")]
    #[inline]
    pub fn access(&self, device: &Device) -> Result<MemoryAccess> {
        let mut location = MemoryLocation::Device(*device).raw();
        let from = &raw mut location;
        // SAFETY: the pool is alive, and the pointers refer to variables, of which `out` passes one.
        let flags = out_without_current(self.context(), |place| unsafe {
            answer!(cuMemPoolGetAccess(place, self.as_raw(), from))
        })?;
        Ok(MemoryAccess::from_raw(flags))
    }

    /// Allows a device to read and write the pool's memory, including memory that is already
    /// allocated.
    ///
    /// Calls `cuMemPoolSetAccess(pool, map, 1)`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` or a similar code if the device cannot access the memory.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAccess`](fn@cuda_sys::cuMemPoolSetAccess).
    #[doc(alias = "cuMemPoolSetAccess")]
    #[inline]
    pub fn grant_access(&self, device: &Device) -> Result<()> {
        // SAFETY: this call does not revoke any access.
        unsafe { self.set_access(device, MemoryAccess::ReadWrite) }
    }

    /// Sets the access of a device to the pool's memory.
    ///
    /// Calls `cuMemPoolSetAccess(pool, map, 1)`.
    ///
    /// # Errors
    /// See [`grant_access`](Self::grant_access). Access cannot be revoked from the device on which
    /// the memory is located.
    ///
    /// # Safety
    /// If this call revokes access, no enqueued or future work on the device may use that access to
    /// memory of the pool. Such work would fail with an illegal address, after which the process
    /// cannot use the GPU any more.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAccess`](fn@cuda_sys::cuMemPoolSetAccess).
    #[doc(alias = "cuMemPoolSetAccess")]
    #[inline]
    pub unsafe fn set_access(&self, device: &Device, access: MemoryAccess) -> Result<()> {
        let map = access.at(MemoryLocation::Device(*device));
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointer is to a single local variable. The caller
            // guarantees that revoked access is not used.
            unsafe { answer!(cuMemPoolSetAccess(self.as_raw(), &raw const map, 1)) }
        })
    }

    /// Returns an error unless the device can read and write the pool's memory. All devices can use managed
    /// memory, but `cuMemPoolGetAccess` says that they have no access (measured on driver 580).
    #[inline]
    pub(super) fn check_access(&self, device: Device) -> Result<()> {
        let is_there = self.inner.location == Some(MemoryLocation::Device(device));
        if is_there || self.inner.is_managed {
            return Ok(());
        }
        match self.access(&device)? {
            MemoryAccess::ReadWrite | MemoryAccess::Other(_) => Ok(()),
            MemoryAccess::None | MemoryAccess::Read => {
                let its = self.inner.location.map(|its| its.to_string());
                Err(Invalid::NoAccessToPool {
                    pool: its.unwrap_or_else(|| "an unknown location".to_owned()),
                    device: device.ordinal(),
                }
                .into())
            }
        }
    }
}
