//! What a context is set to: limits, cache preference, flags; and its events.

use super::{Context, ContextFlags};
use crate::call::{answer, call, without_current};
use crate::error::Result;
use crate::event::Event;
use crate::stream::same_context;
use cuda_sys::{CUfunc_cache, CUlimit};
use std::ops::RangeInclusive;

/// `CUlimit`: something that a context has so much of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// Stack of a thread, in bytes.
    StackSize,
    /// The buffer of the device's `printf`, in bytes. Set before the first launch that prints.
    PrintfFifoSize,
    /// The heap of the device's `malloc`, in bytes. Set before the first launch that allocates.
    MallocHeapSize,
    /// How deep launches by kernels may wait for each other (compute capability below 9.0).
    DeviceRuntimeSyncDepth,
    /// Launches by kernels that may be pending.
    DeviceRuntimePendingLaunches,
    /// The unit in which the L2 cache fetches, in bytes: a hint.
    MaxL2FetchGranularity,
    /// L2 cache set aside for data that persists, in bytes.
    PersistingL2CacheSize,
    /// Shared memory of a block, in bytes; asked for only. Since CUDA 12.5.
    SharedMemorySize,
    /// Whether the context works with a graphics client (CIG): 0 or 1; asked for only. Since
    /// CUDA 12.5.
    CigEnabled,
    /// Whether launches that the graphics client has no shared memory for fall back: 0 or 1. Since
    /// CUDA 12.5.
    CigSharedMemoryFallback,
    /// Memory of a block that launches may take, in bytes. Since CUDA 13.4.
    PerBlockMemorySize,
}

impl Limit {
    fn raw(self) -> CUlimit {
        match self {
            Self::StackSize => CUlimit::CU_LIMIT_STACK_SIZE,
            Self::PrintfFifoSize => CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE,
            Self::MallocHeapSize => CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE,
            Self::DeviceRuntimeSyncDepth => CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
            Self::DeviceRuntimePendingLaunches => {
                CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT
            }
            Self::MaxL2FetchGranularity => CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY,
            Self::PersistingL2CacheSize => CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE,
            Self::SharedMemorySize => CUlimit::CU_LIMIT_SHMEM_SIZE,
            Self::CigEnabled => CUlimit::CU_LIMIT_CIG_ENABLED,
            Self::CigSharedMemoryFallback => CUlimit::CU_LIMIT_CIG_SHMEM_FALLBACK_ENABLED,
            Self::PerBlockMemorySize => CUlimit::CU_LIMIT_PER_BLOCK_MEMORY_SIZE,
        }
    }
}

/// `CUfunc_cache`: how on-chip memory is divided between L1 cache and shared memory: a preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CachePreference {
    /// None.
    #[default]
    None,
    /// More shared memory.
    Shared,
    /// More L1 cache.
    L1,
    /// As much of both.
    Equal,
    /// What a newer driver answered, by its number.
    Other(u32),
}

impl CachePreference {
    pub(crate) fn raw(self) -> CUfunc_cache {
        match self {
            Self::None => CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE,
            Self::Shared => CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED,
            Self::L1 => CUfunc_cache::CU_FUNC_CACHE_PREFER_L1,
            Self::Equal => CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL,
            Self::Other(number) => CUfunc_cache(number),
        }
    }

    fn from_raw(raw: CUfunc_cache) -> Self {
        match raw {
            CUfunc_cache::CU_FUNC_CACHE_PREFER_NONE => Self::None,
            CUfunc_cache::CU_FUNC_CACHE_PREFER_SHARED => Self::Shared,
            CUfunc_cache::CU_FUNC_CACHE_PREFER_L1 => Self::L1,
            CUfunc_cache::CU_FUNC_CACHE_PREFER_EQUAL => Self::Equal,
            CUfunc_cache(number) => Self::Other(number),
        }
    }
}

impl Context {
    /// `cuCtxGetLimit(&value, limit)`: how much there is of something.
    ///
    /// # Errors
    /// `CUDA_ERROR_UNSUPPORTED_LIMIT`, `CUDA_ERROR_INVALID_VALUE` for one that the driver does not
    /// know.
    ///
    /// Since CUDA 3.1. Raw: [`cuCtxGetLimit`](fn@cuda_sys::cuCtxGetLimit).
    #[doc(alias = "cuCtxGetLimit")]
    pub fn limit(&self, limit: Limit) -> Result<usize> {
        let mut value = 0;
        let _current = self.enter()?;
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuCtxGetLimit(&raw mut value, limit.raw())) }?;
        Ok(value)
    }

    /// `cuCtxSetLimit(limit, value)`: asks for so much of something; the driver may round it, which
    /// [`limit`](Self::limit) then tells. For a green context's partition it is the primary
    /// context's.
    ///
    /// # Errors
    /// As for [`limit`](Self::limit); `CUDA_ERROR_OUT_OF_MEMORY`; `CUDA_ERROR_INVALID_VALUE` where
    /// it is too late, or too much.
    ///
    /// Since CUDA 3.1. Raw: [`cuCtxSetLimit`](fn@cuda_sys::cuCtxSetLimit).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, Limit};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// // Kernels print more than usual.
    /// context.set_limit(Limit::PrintfFifoSize, 16 << 20)?;
    /// assert!(context.limit(Limit::PrintfFifoSize)? >= 16 << 20);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuCtxSetLimit")]
    pub fn set_limit(&self, limit: Limit, value: usize) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: two numbers; the current context is this one.
        unsafe { call!(cuCtxSetLimit(limit.raw(), value)) }
    }

    /// `cuCtxGetCacheConfig(&config)`: the context's preference, which a kernel's own overrides.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2. Raw: [`cuCtxGetCacheConfig`](fn@cuda_sys::cuCtxGetCacheConfig).
    #[doc(alias = "cuCtxGetCacheConfig")]
    pub fn cache_preference(&self) -> Result<CachePreference> {
        let mut raw = CUfunc_cache::default();
        let _current = self.enter()?;
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuCtxGetCacheConfig(&raw mut raw)) }?;
        Ok(CachePreference::from_raw(raw))
    }

    /// `cuCtxSetCacheConfig(config)`: changes the preference. A launch after it may have to wait
    /// for those before, so this is not for every launch.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for an [other](CachePreference::Other) one that the driver does not know.
    ///
    /// Since CUDA 3.2. Raw: [`cuCtxSetCacheConfig`](fn@cuda_sys::cuCtxSetCacheConfig).
    #[doc(alias = "cuCtxSetCacheConfig")]
    pub fn set_cache_preference(&self, preference: CachePreference) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: a number; the current context is this one.
        unsafe { call!(cuCtxSetCacheConfig(preference.raw())) }
    }

    /// `cuCtxGetFlags(&flags)`: the flags that the context has.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 7.0. Raw: [`cuCtxGetFlags`](fn@cuda_sys::cuCtxGetFlags).
    #[doc(alias = "cuCtxGetFlags")]
    pub fn flags(&self) -> Result<ContextFlags> {
        let mut flags = 0;
        let _current = self.enter()?;
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuCtxGetFlags(&raw mut flags)) }?;
        Ok(ContextFlags::from_bits_retain(flags))
    }

    /// `cuCtxSetFlags(flags)`: changes the flags of a context that is there already, a primary one
    /// among them, for all who use it.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for flags that exclude each other; the driver is older.
    ///
    /// Since CUDA 12.1. Raw: [`cuCtxSetFlags`](fn@cuda_sys::cuCtxSetFlags).
    #[doc(alias = "cuCtxSetFlags")]
    pub fn set_flags(&self, flags: ContextFlags) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: a number; the current context is this one.
        unsafe { call!(cuCtxSetFlags(flags.bits())) }
    }

    /// `cuCtxGetApiVersion(context, &version)`: the version of the context API that it was made
    /// by, as the driver counts (3020 for those of today).
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2. Raw: [`cuCtxGetApiVersion`](fn@cuda_sys::cuCtxGetApiVersion).
    #[doc(alias = "cuCtxGetApiVersion")]
    pub fn api_version(&self) -> Result<u32> {
        let mut version = 0;
        // SAFETY: the context is alive, and the pointer is to a local.
        unsafe { call!(cuCtxGetApiVersion(self.as_raw(), &raw mut version)) }?;
        Ok(version)
    }

    /// `cuCtxGetStreamPriorityRange(&least, &greatest)`: the priorities that streams have, from the
    /// one that goes first (the lowest number) to the one that goes last.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 5.5. Raw: [`cuCtxGetStreamPriorityRange`](fn@cuda_sys::cuCtxGetStreamPriorityRange).
    #[doc(alias = "cuCtxGetStreamPriorityRange")]
    pub fn stream_priorities(&self) -> Result<RangeInclusive<i32>> {
        let (mut least, mut greatest) = (0, 0);
        let _current = self.enter()?;
        // SAFETY: the pointers are to locals.
        unsafe {
            call!(cuCtxGetStreamPriorityRange(
                &raw mut least,
                &raw mut greatest
            ))
        }?;
        Ok(greatest..=least)
    }

    /// `cuCtxResetPersistingL2Cache()`: what persists in the L2 cache is ordinary again, at once.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 11.0. Raw: [`cuCtxResetPersistingL2Cache`](fn@cuda_sys::cuCtxResetPersistingL2Cache).
    #[doc(alias = "cuCtxResetPersistingL2Cache")]
    pub fn reset_persisting_l2(&self) -> Result<()> {
        let _current = self.enter()?;
        // SAFETY: no arguments; the current context is this one.
        unsafe { call!(cuCtxResetPersistingL2Cache()) }
    }

    /// `cuCtxRecordEvent(context, event)`: marks what all streams of the context, and of its green
    /// contexts, have been given up to now.
    ///
    /// # Errors
    /// The event is of another context; `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if one of the
    /// streams is captured, which breaks that capture; the driver is older.
    ///
    /// Since CUDA 12.5. Raw: [`cuCtxRecordEvent`](fn@cuda_sys::cuCtxRecordEvent).
    #[doc(alias = "cuCtxRecordEvent")]
    pub fn record(&self, event: &Event) -> Result<()> {
        same_context("the event", event.context(), self)?;
        without_current(self, || {
            // SAFETY: the context and the event are alive.
            unsafe { answer!(cuCtxRecordEvent(self.as_raw(), event.raw())) }
        })
    }

    /// `cuCtxWaitEvent(context, event)`: all work given to the context, and its green contexts,
    /// from now on starts after the work that the event recorded. The thread does not wait.
    ///
    /// The event may be of another context or device.
    ///
    /// # Errors
    /// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` if one of the streams is captured, and
    /// `CUDA_ERROR_CAPTURED_EVENT` if the event is, which breaks that capture; the driver is older. No
    /// stream joins a capture by this.
    ///
    /// Since CUDA 12.5. Raw: [`cuCtxWaitEvent`](fn@cuda_sys::cuCtxWaitEvent).
    #[doc(alias = "cuCtxWaitEvent")]
    pub fn wait(&self, event: &Event) -> Result<()> {
        without_current(self, || {
            // SAFETY: the context and the event are alive.
            unsafe { answer!(cuCtxWaitEvent(self.as_raw(), event.raw())) }
        })
    }
}
