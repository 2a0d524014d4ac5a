//! Statistics of a caching pool.

/// Statistics of a [`CachingManager`](super::CachingManager): its memory and its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CacheStats {
    /// The bytes that the pool has reserved from its upstream manager.
    pub reserved: usize,
    /// The high-water mark of `reserved`.
    pub reserved_peak: usize,
    /// The bytes of allocated blocks, with rounded sizes.
    pub in_use: usize,
    /// The cached bytes in per-thread caches.
    pub in_thread_caches: usize,
    /// The cached bytes in the shared heap, which can be split, merged or returned to the upstream
    /// manager.
    pub in_heap: usize,
    /// The size in bytes of the largest block in the heap that could be allocated.
    pub largest_free: usize,
    /// The number of slabs from the upstream manager.
    pub slabs: usize,
    /// The number of allocations that the calling thread's own cache served.
    pub hits: u64,
    /// The number of all other allocations, including those that failed and those that another thread's
    /// cache served.
    pub misses: u64,
    /// The number of times that a slab was added.
    pub slabs_added: u64,
    /// The number of times that a stream was made to wait for the event of another stream.
    pub stream_waits: u64,
    /// The number of times that the host waited for all work.
    pub host_waits: u64,
}

impl CacheStats {
    /// Returns the number of cached bytes, in per-thread caches and in the heap.
    #[inline]
    pub fn cached(&self) -> usize {
        self.in_thread_caches + self.in_heap
    }

    /// Returns the fragmentation of the heap: 0 if its free memory is one block, close to 1 if it is
    /// many small blocks.
    #[inline]
    pub fn fragmentation(&self) -> f64 {
        if self.in_heap == 0 {
            return 0.0;
        }
        #[allow(clippy::cast_precision_loss, reason = "a share need not be exact")]
        let share = self.largest_free as f64 / self.in_heap as f64;
        1.0 - share
    }
}
