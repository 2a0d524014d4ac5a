//! Limits, cache preference and flags of a context, and events of a whole context.

use super::{Context, ContextFlags};
use crate::call::{Result, c_enum, call, out};
use cuda_sys::{
    CUflushGPUDirectRDMAWritesScope as Scope, CUflushGPUDirectRDMAWritesTarget as Target,
    CUfunc_cache, CUlimit,
};
use std::ops::RangeInclusive;

c_enum! {
    /// A resource limit of a context (`CUlimit`).
    #[non_exhaustive]
    pub enum Limit = CUlimit {
        /// Stack size of a GPU thread, in bytes.
        StackSize = CU_LIMIT_STACK_SIZE,
        /// Buffer size of the device `printf`, in bytes. Set it before the first launch that prints.
        PrintfFifoSize = CU_LIMIT_PRINTF_FIFO_SIZE,
        /// Heap size of the device `malloc`, in bytes. Set it before the first launch that allocates.
        MallocHeapSize = CU_LIMIT_MALLOC_HEAP_SIZE,
        /// Maximum nesting depth at which a kernel can wait for its own launches (compute capability below
        /// 9.0).
        DeviceRuntimeSyncDepth = CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
        /// Maximum number of pending launches by kernels.
        DeviceRuntimePendingLaunches = CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
        /// Fetch granularity of the L2 cache, in bytes. This is a hint.
        MaxL2FetchGranularity = CU_LIMIT_MAX_L2_FETCH_GRANULARITY,
        /// L2 cache that is set aside for persisting data, in bytes.
        PersistingL2CacheSize = CU_LIMIT_PERSISTING_L2_CACHE_SIZE,
        /// Shared memory of a block, in bytes. Read-only. Since CUDA 12.5.
        SharedMemorySize = CU_LIMIT_SHMEM_SIZE,
        /// Whether the context has a graphics client (CIG): 0 or 1. Read-only. Since CUDA 12.5.
        CigEnabled = CU_LIMIT_CIG_ENABLED,
        /// Whether a launch falls back if the graphics client does not have enough shared memory: 0 or 1.
        /// Since CUDA 12.5.
        CigSharedMemoryFallback = CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED,
        /// Maximum memory of a block in a launch, in bytes. Since CUDA 13.4.
        PerBlockMemorySize = CU_LIMIT_PER_BLOCK_MEMORY_SIZE,
    }
}

c_enum! {
    /// The preferred division of on-chip memory between L1 cache and shared memory (`CUfunc_cache`).
    #[derive(Default)]
    pub enum CachePreference = CUfunc_cache or Other {
        /// No preference.
        #[default]
        None = CU_FUNC_CACHE_PREFER_NONE,
        /// Prefer more shared memory.
        Shared = CU_FUNC_CACHE_PREFER_SHARED,
        /// Prefer more L1 cache.
        L1 = CU_FUNC_CACHE_PREFER_L1,
        /// Prefer equal sizes.
        Equal = CU_FUNC_CACHE_PREFER_EQUAL,
    }
}

c_enum! {
    /// The readers for which remote writes become visible (`CUflushGPUDirectRDMAWritesScope`).
    #[non_exhaustive]
    pub enum RdmaScope = Scope {
        /// The context that owns the memory.
        Owner = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER,
        /// All devices.
        AllDevices = CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES,
    }
}

impl Context {
    /// Blocks until the writes that other devices, such as network cards, made to the memory of this
    /// context are visible to the readers in `scope`. Calls `cuFlushGPUDirectRDMAWrites`.
    ///
    /// [`attribute::GPU_DIRECT_RDMA_WRITES_ORDERING`] tells for which readers this is needed, and
    /// [`attribute::GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS`] whether the device supports it.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` if the device or the system does not support it.
    ///
    /// Since CUDA 11.3. Raw:
    /// [`cuFlushGPUDirectRDMAWrites`](fn@cuda_sys::cuFlushGPUDirectRDMAWrites).
    ///
    /// [`attribute::GPU_DIRECT_RDMA_WRITES_ORDERING`]: crate::device::attribute::GPU_DIRECT_RDMA_WRITES_ORDERING
    /// [`attribute::GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS`]: crate::device::attribute::GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS
    #[doc(alias = "cuFlushGPUDirectRDMAWrites")]
    #[inline]
    pub fn flush_gpu_direct_rdma_writes(&self, scope: RdmaScope) -> Result<()> {
        let target = Target::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX;
        let _current = self.enter()?;
        // SAFETY: the function takes no pointer.
        unsafe { call!(cuFlushGPUDirectRDMAWrites(target, scope.raw())) }
    }

    /// Returns the value of a limit. Calls `cuCtxGetLimit`.
    ///
    /// # Errors
    /// `CUDA_ERROR_UNSUPPORTED_LIMIT`; `CUDA_ERROR_INVALID_VALUE` for a limit that the driver does not
    /// know.
    ///
    /// Since CUDA 3.1. Raw: [`cuCtxGetLimit`](fn@cuda_sys::cuCtxGetLimit).
    #[doc(alias = "cuCtxGetLimit")]
    #[inline]
    pub fn limit(&self, limit: Limit) -> Result<usize> {
        let _current = self.enter()?;
        // SAFETY: `out` passes a valid pointer.
        out(|place| unsafe { call!(cuCtxGetLimit(place, limit.raw())) })
    }

    /// Requests a value for a limit. Calls `cuCtxSetLimit`.
    ///
    /// The driver may round the value; [`limit`](Self::limit) returns the actual value. A green context
    /// has the limits of the primary context.
    ///
    /// # Errors
    /// `CUDA_ERROR_UNSUPPORTED_LIMIT`; `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` if the
    /// limit is unknown to the driver, the value is too large, or the limit can no longer be changed.
    ///
    /// Since CUDA 3.1. Raw: [`cuCtxSetLimit`](fn@cuda_sys::cuCtxSetLimit).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device};
    /// use cuda_safe::context::Limit;
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// // The kernels of this program print a lot.
    /// context.set_limit(Limit::PrintfFifoSize, 16 << 20)?;
    /// assert!(context.limit(Limit::PrintfFifoSize)? >= 16 << 20);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuCtxSetLimit")]
    #[inline]
    pub fn set_limit(&self, limit: Limit, value: usize) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: both arguments are integers, and the current context is this one.
        unsafe { call!(cuCtxSetLimit(limit.raw(), value)) }
    }

    /// Returns the cache preference of the context. The preference of a kernel overrides it. Calls
    /// `cuCtxGetCacheConfig`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2. Raw: [`cuCtxGetCacheConfig`](fn@cuda_sys::cuCtxGetCacheConfig).
    #[doc(alias = "cuCtxGetCacheConfig")]
    #[inline]
    pub fn cache_preference(&self) -> Result<CachePreference> {
        let _current = self.enter()?;
        // SAFETY: `out` passes a valid pointer.
        let raw = out(|place| unsafe { call!(cuCtxGetCacheConfig(place)) })?;
        Ok(CachePreference::from_raw(raw))
    }

    /// Sets the cache preference. Calls `cuCtxSetCacheConfig`.
    ///
    /// The next launch may have to wait for earlier launches, so do not change the preference for every
    /// launch.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for a value of [`CachePreference::Other`] that the driver does not
    /// know.
    ///
    /// Since CUDA 3.2. Raw: [`cuCtxSetCacheConfig`](fn@cuda_sys::cuCtxSetCacheConfig).
    #[doc(alias = "cuCtxSetCacheConfig")]
    #[inline]
    pub fn set_cache_preference(&self, preference: CachePreference) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the argument is an integer, and the current context is this one.
        unsafe { call!(cuCtxSetCacheConfig(preference.raw())) }
    }

    /// Returns the flags of the context. Calls `cuCtxGetFlags`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 7.0. Raw: [`cuCtxGetFlags`](fn@cuda_sys::cuCtxGetFlags).
    #[doc(alias = "cuCtxGetFlags")]
    #[inline]
    pub fn flags(&self) -> Result<ContextFlags> {
        let _current = self.enter()?;
        // SAFETY: `out` passes a valid pointer.
        let flags = out(|place| unsafe { call!(cuCtxGetFlags(place)) })?;
        Ok(ContextFlags::from_bits_retain(flags))
    }

    /// Sets the flags of an existing context for all code that uses it. Calls `cuCtxSetFlags`.
    ///
    /// This also works for a primary context.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for flags that exclude each other;
    /// [`Error::Missing`](crate::Error::Missing).
    ///
    /// Since CUDA 12.1. Raw: [`cuCtxSetFlags`](fn@cuda_sys::cuCtxSetFlags).
    #[doc(alias = "cuCtxSetFlags")]
    #[inline]
    pub fn set_flags(&self, flags: ContextFlags) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: the argument is an integer, and the current context is this one.
        unsafe { call!(cuCtxSetFlags(flags.bits())) }
    }

    /// Returns the version of the context API that created the context, for example 3020 for current
    /// drivers. Calls `cuCtxGetApiVersion`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2. Raw: [`cuCtxGetApiVersion`](fn@cuda_sys::cuCtxGetApiVersion).
    #[doc(alias = "cuCtxGetApiVersion")]
    #[inline]
    pub fn api_version(&self) -> Result<u32> {
        // SAFETY: the context is alive, and `out` passes a valid pointer.
        out(|place| unsafe { call!(cuCtxGetApiVersion(self.as_raw(), place)) })
    }

    /// Returns the range of stream priorities, from the highest priority (the lowest number) to the
    /// lowest. Calls `cuCtxGetStreamPriorityRange`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 5.5. Raw: [`cuCtxGetStreamPriorityRange`](fn@cuda_sys::cuCtxGetStreamPriorityRange).
    #[doc(alias = "cuCtxGetStreamPriorityRange")]
    #[inline]
    pub fn stream_priorities(&self) -> Result<RangeInclusive<i32>> {
        let (mut least, mut greatest) = (0, 0);
        let _current = self.enter()?;
        // SAFETY: the pointers refer to locals.
        unsafe { call!(cuCtxGetStreamPriorityRange(&raw mut least, &raw mut greatest)) }?;
        Ok(greatest..=least)
    }

    /// Resets all persisting lines of the L2 cache to normal immediately. Calls
    /// `cuCtxResetPersistingL2Cache`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 11.0. Raw: [`cuCtxResetPersistingL2Cache`](fn@cuda_sys::cuCtxResetPersistingL2Cache).
    #[doc(alias = "cuCtxResetPersistingL2Cache")]
    #[inline]
    pub fn reset_persisting_l2(&self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: no arguments; the current context is this one.
        unsafe { call!(cuCtxResetPersistingL2Cache()) }
    }
}
