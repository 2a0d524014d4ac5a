//! The pools that devices and places have, and those that are put there.

use super::MemoryPool;
use super::options::allocation_type;
use crate::call::call;
use crate::context::Context;
use crate::device::Device;
use crate::error::Result;
use crate::memory::MemoryLocation;
use cuda_sys::CUmemoryPool;

impl Device {
    /// `cuDeviceGetMemPool(&pool, device)`: the handle of the pool that the device allocates from:
    /// its own, or one that other code put in its place and may destroy at any time. So it is for
    /// comparing, or for [`MemoryPool::borrow_raw`] if one knows better.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` on devices without pools.
    ///
    /// Since CUDA 11.2. Raw: [`cuDeviceGetMemPool`](fn@cuda_sys::cuDeviceGetMemPool).
    #[doc(alias = "cuDeviceGetMemPool")]
    pub fn memory_pool(&self) -> Result<CUmemoryPool> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuDeviceGetMemPool(&raw mut raw, self.as_raw())) }?;
        Ok(raw)
    }

    /// `cuDeviceSetMemPool(device, pool)`: the device allocates from this pool from now on, for
    /// everybody in the process, until another is put there. The pool is not destroyed any more.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a pool of another place.
    ///
    /// Since CUDA 11.2. Raw: [`cuDeviceSetMemPool`](fn@cuda_sys::cuDeviceSetMemPool).
    #[doc(alias = "cuDeviceSetMemPool")]
    pub fn set_memory_pool(&self, pool: &MemoryPool) -> Result<()> {
        // SAFETY: the pool is alive, and stays from here on.
        unsafe { call!(cuDeviceSetMemPool(self.as_raw(), pool.as_raw())) }?;
        pool.stay();
        Ok(())
    }
}

impl MemoryPool {
    /// `cuMemGetDefaultMemPool(&pool, location, type)`: the pool that the driver has by itself for
    /// a place, of memory that stays there or of managed memory. It is never destroyed.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED`, `CUDA_ERROR_INVALID_VALUE` for a place without one.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemGetDefaultMemPool`](fn@cuda_sys::cuMemGetDefaultMemPool).
    #[doc(alias = "cuMemGetDefaultMemPool")]
    pub fn default_at(context: &Context, location: MemoryLocation, managed: bool) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        let (mut place, kind) = (location.raw(), allocation_type(managed));
        {
            let _current = context.enter()?;
            // SAFETY: the pointers are to locals.
            unsafe { call!(cuMemGetDefaultMemPool(&raw mut raw, &raw mut place, kind)) }?;
        }
        Ok(Self::drivers(raw, context, Some(location)))
    }

    /// `cuMemSetMemPool(location, type, pool)`: makes this the pool that is allocated from for a
    /// place, as [`Device::set_memory_pool`] does for a device.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if it is not of that place and kind; the driver is older.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemSetMemPool`](fn@cuda_sys::cuMemSetMemPool).
    #[doc(alias = "cuMemSetMemPool")]
    pub fn set_current_at(&self, location: MemoryLocation, managed: bool) -> Result<()> {
        let (mut place, kind) = (location.raw(), allocation_type(managed));
        let _current = self.context().enter()?;
        // SAFETY: the pool is alive, and stays from here on; the pointer is to a local.
        unsafe { call!(cuMemSetMemPool(&raw mut place, kind, self.as_raw())) }?;
        self.stay();
        Ok(())
    }

    /// `cuMemGetMemPool(&pool, location, type)`: the handle of the pool that is allocated from for
    /// a place. It is whose it is: see [`Device::memory_pool`].
    ///
    /// # Errors
    /// As for [`default_at`](Self::default_at).
    ///
    /// Since CUDA 13.0. Raw: [`cuMemGetMemPool`](fn@cuda_sys::cuMemGetMemPool).
    #[doc(alias = "cuMemGetMemPool")]
    pub fn current_at(
        context: &Context,
        location: MemoryLocation,
        managed: bool,
    ) -> Result<CUmemoryPool> {
        let mut raw = std::ptr::null_mut();
        let (mut place, kind) = (location.raw(), allocation_type(managed));
        let _current = context.enter()?;
        // SAFETY: the pointers are to locals.
        unsafe { call!(cuMemGetMemPool(&raw mut raw, &raw mut place, kind)) }?;
        Ok(raw)
    }
}
