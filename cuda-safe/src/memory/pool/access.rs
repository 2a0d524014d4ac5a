//! Which devices reach a pool's memory.

use super::MemoryPool;
use crate::call::{answer, without_current};
use crate::device::Device;
use crate::error::Result;
use crate::invalid::Invalid;
use crate::memory::MemoryLocation;
use cuda_sys::{CUmemAccess_flags, CUmemAccessDesc};

/// What work of a device may do with memory of a pool: `CUmemAccess_flags`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryAccess {
    /// Nothing.
    None,
    /// Read it.
    Read,
    /// Read and write it.
    ReadWrite,
    /// What a newer driver knows, by its number.
    Other(u32),
}

impl MemoryAccess {
    fn raw(self) -> CUmemAccess_flags {
        match self {
            Self::None => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE,
            Self::Read => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ,
            Self::ReadWrite => CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            Self::Other(number) => CUmemAccess_flags(number),
        }
    }

    pub(in crate::memory) fn from_raw(raw: CUmemAccess_flags) -> Self {
        match raw {
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_NONE => Self::None,
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READ => Self::Read,
            CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE => Self::ReadWrite,
            CUmemAccess_flags(number) => Self::Other(number),
        }
    }
}

impl MemoryPool {
    /// `cuMemPoolGetAccess(&flags, pool, location)`: what work of a device may do with the pool's
    /// memory.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolGetAccess`](fn@cuda_sys::cuMemPoolGetAccess).
    #[doc(alias = "cuMemPoolGetAccess")]
    pub fn access(&self, device: &Device) -> Result<MemoryAccess> {
        let mut flags = CUmemAccess_flags::default();
        let mut location = MemoryLocation::Device(*device).raw();
        let (place, from) = (&raw mut flags, &raw mut location);
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointers are to locals.
            unsafe { answer!(cuMemPoolGetAccess(place, self.as_raw(), from)) }
        })?;
        Ok(MemoryAccess::from_raw(flags))
    }

    /// `cuMemPoolSetAccess(pool, map, 1)`: lets work of another device read and write the pool's
    /// memory, that which is allocated already included.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` or the like for a device that cannot reach it.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAccess`](fn@cuda_sys::cuMemPoolSetAccess).
    #[doc(alias = "cuMemPoolSetAccess")]
    pub fn grant_access(&self, device: &Device) -> Result<()> {
        // SAFETY: this takes nothing away.
        unsafe { self.set_access(device, MemoryAccess::ReadWrite) }
    }

    /// `cuMemPoolSetAccess(pool, map, 1)`: says what work of a device may do with the pool's
    /// memory.
    ///
    /// # Errors
    /// As for [`grant_access`](Self::grant_access); nothing can be taken away from the device that
    /// the memory is on.
    ///
    /// # Safety
    /// If this takes something away, no work of the device that was given or will be does that with
    /// memory of the pool: it would be an illegal address, the end of the process's use of the GPU.
    ///
    /// Since CUDA 11.2. Raw: [`cuMemPoolSetAccess`](fn@cuda_sys::cuMemPoolSetAccess).
    #[doc(alias = "cuMemPoolSetAccess")]
    pub unsafe fn set_access(&self, device: &Device, access: MemoryAccess) -> Result<()> {
        let map = CUmemAccessDesc {
            location: MemoryLocation::Device(*device).raw(),
            flags: access.raw(),
        };
        without_current(self.context(), || {
            // SAFETY: the pool is alive, and the pointer is to one local; the rest is the caller's
            // promise.
            unsafe { answer!(cuMemPoolSetAccess(self.as_raw(), &raw const map, 1)) }
        })
    }

    /// An error, unless work of the device may use the pool's memory.
    pub(super) fn check_access(&self, device: Device) -> Result<()> {
        if self.inner.location == Some(MemoryLocation::Device(device)) {
            return Ok(());
        }
        match self.access(&device)? {
            MemoryAccess::ReadWrite | MemoryAccess::Other(_) => Ok(()),
            MemoryAccess::None | MemoryAccess::Read => {
                let its = self.inner.location.map(|its| its.to_string());
                Err(Invalid::NoAccessToPool {
                    pool: its.unwrap_or_else(|| "a place that is not known".to_owned()),
                    device: device.ordinal(),
                }
                .into())
            }
        }
    }
}
