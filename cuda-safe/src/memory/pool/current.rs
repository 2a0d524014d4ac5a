//! Default and current pools of devices and of other locations.

use super::MemoryPool;
use super::options::allocation_type;
use crate::call::{Result, call, out};
use crate::context::Context;
use crate::device::Device;
use crate::memory::MemoryLocation;
use cuda_sys::CUmemoryPool;

impl Device {
    /// Returns the handle of the device's current pool, which the device allocates from.
    ///
    /// Calls `cuDeviceGetMemPool(&pool, device)`. The current pool is the default pool or one that
    /// other code has set and may destroy at any time. The handle is therefore suited to
    /// comparisons. Pass it to [`MemoryPool::borrow_raw`] only if you know how long the pool stays
    /// alive.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` on devices without memory pools.
    ///
    /// Since CUDA 11.2. Raw: [`cuDeviceGetMemPool`](fn@cuda_sys::cuDeviceGetMemPool).
    #[doc(alias = "cuDeviceGetMemPool")]
    #[inline]
    pub fn memory_pool(&self) -> Result<CUmemoryPool> {
        // SAFETY: `out` passes a valid pointer.
        out(|place| unsafe { call!(cuDeviceGetMemPool(place, self.as_raw())) })
    }

    /// Sets the device's current pool, which the whole process allocates from until another pool is
    /// set.
    ///
    /// Calls `cuDeviceSetMemPool(device, pool)`. From then on, the pool is never destroyed.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a pool of another location.
    ///
    /// Since CUDA 11.2. Raw: [`cuDeviceSetMemPool`](fn@cuda_sys::cuDeviceSetMemPool).
    #[doc(alias = "cuDeviceSetMemPool")]
    #[inline]
    pub fn set_memory_pool(&self, pool: &MemoryPool) -> Result<()> {
        // SAFETY: the pool is alive, and is never destroyed after this call.
        unsafe { call!(cuDeviceSetMemPool(self.as_raw(), pool.as_raw())) }?;
        pool.never_destroy();
        Ok(())
    }
}

impl MemoryPool {
    /// Returns the driver's default pool for a location, of memory that stays there or of managed
    /// memory. It is never destroyed.
    ///
    /// Calls `cuMemGetDefaultMemPool(&pool, location, type)`.
    ///
    /// # Errors
    /// - `CUDA_ERROR_NOT_SUPPORTED` or `CUDA_ERROR_INVALID_VALUE` for a location without a default
    ///   pool.
    /// - [`Error::Missing`](crate::Error::Missing) on a driver before CUDA 13.0.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemGetDefaultMemPool`](fn@cuda_sys::cuMemGetDefaultMemPool).
    #[doc(alias = "cuMemGetDefaultMemPool")]
    #[inline]
    pub fn default_at(context: &Context, location: MemoryLocation, managed: bool) -> Result<Self> {
        let (mut at, kind) = (location.raw(), allocation_type(managed));
        let current = context.enter()?;
        // SAFETY: `out` passes a valid pointer, and the other one is to a local variable.
        let raw = out(|place| unsafe { call!(cuMemGetDefaultMemPool(place, &raw mut at, kind)) })?;
        drop(current);
        let mut pool = Self::drivers(raw, context, Some(location));
        pool.set_managed(managed);
        Ok(pool)
    }

    /// Makes this the current pool of a location, as [`Device::set_memory_pool`] does for a device.
    ///
    /// Calls `cuMemSetMemPool(location, type, pool)`. From then on, the pool is never destroyed.
    ///
    /// # Errors
    /// - `CUDA_ERROR_INVALID_VALUE` if the pool is not of this location and kind.
    /// - [`Error::Missing`](crate::Error::Missing) on a driver before CUDA 13.0.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemSetMemPool`](fn@cuda_sys::cuMemSetMemPool).
    #[doc(alias = "cuMemSetMemPool")]
    #[inline]
    pub fn set_current_at(&self, location: MemoryLocation, managed: bool) -> Result<()> {
        let (mut place, kind) = (location.raw(), allocation_type(managed));
        let _current = self.context().enter()?;
        // SAFETY: the pool is alive, and is never destroyed after this call. The pointer refers to a
        // local variable.
        unsafe { call!(cuMemSetMemPool(&raw mut place, kind, self.as_raw())) }?;
        self.never_destroy();
        Ok(())
    }

    /// Returns the handle of the current pool of a location.
    ///
    /// Calls `cuMemGetMemPool(&pool, location, type)`. Other code may destroy the pool at any time.
    /// See [`Device::memory_pool`].
    ///
    /// # Errors
    /// See [`default_at`](Self::default_at).
    ///
    /// Since CUDA 13.0. Raw: [`cuMemGetMemPool`](fn@cuda_sys::cuMemGetMemPool).
    #[doc(alias = "cuMemGetMemPool")]
    #[inline]
    pub fn current_at(
        context: &Context,
        location: MemoryLocation,
        managed: bool,
    ) -> Result<CUmemoryPool> {
        let (mut at, kind) = (location.raw(), allocation_type(managed));
        let _current = context.enter()?;
        // SAFETY: `out` passes a valid pointer, and the other one is to a local variable.
        out(|place| unsafe { call!(cuMemGetMemPool(place, &raw mut at, kind)) })
    }
}
