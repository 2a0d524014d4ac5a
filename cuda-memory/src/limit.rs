//! Wrappers with a limit, or with a fallback to other memory.

use crate::forward::forward;
use crate::lock::{Mutex, leaf};
use cuda_safe::context::MemoryInfo;
use cuda_safe::manager::{
    Block, HostBlock, IpcHandle, MemoryManager, Order, in_forked_child, is_out_of_memory,
    report_leak,
};
use cuda_safe::memory::PinnedFlags;
use cuda_safe::{Error, Invalid, Result};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// A wrapper that limits the device memory which is allocated from another manager at the same time.
/// The limit is in requested bytes.
///
/// An allocation beyond the limit fails with [`Invalid::MemoryLimit`], which counts as [out of
/// memory](is_out_of_memory) for outer wrappers. Host memory and managed memory are not counted.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is that of the inner manager.
#[derive(Debug)]
pub struct LimitManager<M> {
    inner: M,
    limit: u64,
    used: AtomicU64,
}

impl<M> LimitManager<M> {
    /// Creates a wrapper of `inner` with a limit in bytes.
    pub fn new(inner: M, limit: usize) -> Self {
        Self { inner, limit: limit as u64, used: AtomicU64::new(0) }
    }

    /// Returns the inner manager.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Returns the limit in bytes.
    pub fn limit(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(usize::MAX)
    }

    /// Returns the number of allocated bytes.
    pub fn used(&self) -> usize {
        usize::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }
}

/// Bytes that count as used until this is dropped.
struct Used<'a> {
    used: &'a AtomicU64,
    bytes: u64,
}

impl Drop for Used<'_> {
    #[inline]
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

// SAFETY: all memory is that of the inner manager.
unsafe impl<M: MemoryManager> MemoryManager for LimitManager<M> {
    forward!(version current base wrapped initialize reset host pin managed ipc_handle defer_cleanup trim);

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let asked = size as u64;
        let take = |used: u64| used.checked_add(asked).filter(|used| *used <= self.limit);
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        if let Err(used) = taken {
            return Err(Invalid::MemoryLimit { limit: self.limit, used, asked }.into());
        }
        let used = Used { used: &self.used, bytes: asked };
        let block = self.inner.allocate(size, order)?;
        std::mem::forget(used);
        Ok(block)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // The bytes count as used until the memory is freed, also if the free panics.
        let _used = Used { used: &self.used, bytes: block.size as u64 };
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(block, order) };
    }

    /// Returns the memory of the inner manager, restricted to the limit.
    fn memory_info(&self) -> Result<MemoryInfo> {
        let info = self.inner.memory_info()?;
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        Ok(MemoryInfo {
            free: info.free.min(limit.saturating_sub(self.used())),
            total: info.total.min(limit),
        })
    }
}

/// The memory that a [`FallbackManager`] allocates when the inner manager has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    /// Managed memory, which the driver migrates to the processor that accesses it.
    Managed,
    /// Pinned and mapped host memory, which the device accesses over the bus.
    Host,
}

/// A wrapper that allocates other device-accessible memory when the device memory of another manager is
/// exhausted.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is that of the inner manager.
#[derive(Debug)]
pub struct FallbackManager<M> {
    inner: M,
    to: Fallback,
    /// The live allocations of fallback memory, as blocks of the inner manager. A block of this manager
    /// either has the address of one of these or is a device block of the inner manager.
    others: Mutex<Vec<Other>>,
    count: AtomicU64,
}

#[derive(Debug)]
enum Other {
    Managed(Block),
    Host(HostBlock),
}

impl Other {
    #[inline]
    fn address(&self) -> u64 {
        match self {
            Self::Managed(block) => block.address,
            Self::Host(block) => block.address,
        }
    }

    #[inline]
    fn size(&self) -> usize {
        match self {
            Self::Managed(block) => block.size,
            Self::Host(block) => block.size,
        }
    }

    /// Returns whether `address` lies in this memory.
    #[inline]
    fn has(&self, address: u64) -> bool {
        let offset = address.checked_sub(self.address());
        offset.is_some_and(|offset| offset < self.size() as u64)
    }
}

impl<M> FallbackManager<M> {
    /// Creates a wrapper of `inner` that falls back to memory of the kind `to`.
    pub fn new(inner: M, to: Fallback) -> Self {
        Self { inner, to, others: Mutex::default(), count: AtomicU64::new(0) }
    }

    /// Returns the inner manager.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Returns the number of allocations that have fallen back.
    pub fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Removes the fallback memory at `address`, if there is one. (Device memory of the inner manager
    /// that is alive at the same time has a different address.)
    fn take(&self, address: u64) -> Option<Other> {
        if self.count() == 0 {
            return None;
        }
        let mut others = leaf(&self.others)?;
        let place = others.iter().position(|other| other.address() == address)?;
        Some(others.swap_remove(place))
    }
}

// SAFETY: all memory is that of the inner manager. This includes managed and mapped memory; both are
// accessible to its context, and aligned to pages.
unsafe impl<M: MemoryManager> MemoryManager for FallbackManager<M> {
    forward!(version current base wrapped initialize reset host pin managed memory_info defer_cleanup trim);

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        match self.inner.allocate(size, order) {
            Err(error) if is_out_of_memory(&error) => {}
            done => return done,
        }
        let other = match self.to {
            Fallback::Managed => Other::Managed(self.inner.allocate_managed(size, true)?),
            Fallback::Host => {
                let flags = PinnedFlags::MAPPED | PinnedFlags::PORTABLE;
                Other::Host(self.inner.allocate_host(size, flags)?)
            }
        };
        let address = other.address();
        self.count.fetch_add(1, Ordering::Relaxed);
        self.others.lock().unwrap_or_else(PoisonError::into_inner).push(other);
        Ok(Block { address, size, token: 0 })
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // The list of fallback memory may be locked forever by a thread that does not exist in the
        // child.
        if in_forked_child() {
            return report_leak("device memory", Error::Forked);
        }
        match self.take(block.address) {
            // SAFETY: the caller's promise; for the kind of memory see `allocate`.
            None => unsafe { self.inner.free(block, order) },
            // SAFETY: the caller's promise; for the kind of memory see `allocate`.
            Some(Other::Managed(block)) => unsafe { self.inner.free_managed(block, order) },
            // SAFETY: the caller's promise; for the kind of memory see `allocate`.
            Some(Other::Host(block)) => unsafe { self.inner.free_host(block, order) },
        }
    }

    fn ipc_handle(&self, block: &Block) -> Result<IpcHandle> {
        let others = leaf(&self.others).ok_or(Error::Forked)?;
        if others.iter().any(|other| other.has(block.address)) {
            let memory = "managed or host";
            return Err(Invalid::NotShareable { memory }.into());
        }
        drop(others);
        self.inner.ipc_handle(block)
    }
}
