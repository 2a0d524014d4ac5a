//! A wrapper that counts allocations and keeps a timeline of memory use.

mod timeline;

pub use timeline::{Sample, Timeline};

use crate::caching::{CacheStats, CachingManager};
use crate::forward::forward;
use crate::lock::{Mutex, leaf};
use cuda_safe::Result;
use cuda_safe::manager::{Block, MemoryManager, Order};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A wrapper that counts the device memory allocations of another manager, by powers of two of the
/// size.
///
/// All threads share the counters, which adds a few nanoseconds to each call.
///
/// [`defer_cleanup`](MemoryManager::defer_cleanup) is that of the inner manager.
pub struct StatisticsManager<M> {
    inner: M,
    classes: [Class; CLASSES],
    failed: AtomicU64,
    used: AtomicU64,
    high: AtomicU64,
    start: Instant,
    timeline: Mutex<Timeline>,
}

/// The number of size classes of a [`StatisticsManager`]. A class is the position of the highest bit.
const CLASSES: usize = 64;

#[derive(Debug, Default)]
struct Class {
    allocated: AtomicU64,
    freed: AtomicU64,
    live_bytes: AtomicU64,
}

/// The counters of a [`StatisticsManager`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// The number of successful allocations.
    pub allocated: u64,
    /// The number of frees.
    pub freed: u64,
    /// The number of failed allocations.
    pub failed: u64,
    /// The allocated bytes, as requested.
    pub used: usize,
    /// The high-water mark of `used`.
    pub high: usize,
    /// For each size class in use: its upper bound in bytes (exclusive; the lower bound is half of it),
    /// the number of allocations, and the allocated bytes.
    pub classes: Vec<(u64, u64, u64)>,
}

impl<M> StatisticsManager<M> {
    /// Creates a wrapper of `inner`. The timeline starts now.
    pub fn new(inner: M) -> Self {
        Self {
            inner,
            classes: std::array::from_fn(|_| Class::default()),
            failed: AtomicU64::new(0),
            used: AtomicU64::new(0),
            high: AtomicU64::new(0),
            start: Instant::now(),
            timeline: Mutex::default(),
        }
    }

    /// Returns the inner manager.
    pub fn inner(&self) -> &M {
        &self.inner
    }

    /// Returns the counters up to now.
    pub fn statistics(&self) -> Statistics {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let sum = |of_class: fn(&Class) -> &AtomicU64| {
            self.classes.iter().map(|class| of(of_class(class))).sum()
        };
        let bytes = |count: &AtomicU64| usize::try_from(of(count)).unwrap_or(usize::MAX);
        let classes = self.classes.iter().zip(0..).map(|(class, bits)| {
            let below = 1u64.checked_shl(bits + 1).unwrap_or(u64::MAX);
            (below, of(&class.allocated), of(&class.live_bytes))
        });
        Statistics {
            allocated: sum(|class| &class.allocated),
            freed: sum(|class| &class.freed),
            failed: of(&self.failed),
            used: bytes(&self.used),
            high: bytes(&self.high),
            classes: classes.filter(|(_, allocated, _)| *allocated != 0).collect(),
        }
    }

    /// Adds a sample of the current state to the [timeline](Self::timeline), with the statistics of the
    /// wrapped pool if there is one.
    fn sample_with(&self, cache: CacheStats) {
        let bytes = |class: &Class| class.live_bytes.load(Ordering::Relaxed);
        let sample = Sample {
            time: self.start.elapsed(),
            classes: self.classes.iter().map(bytes).collect(),
            cached: cache.cached() as u64,
            fragmentation: cache.fragmentation(),
        };
        if let Some(mut timeline) = leaf(&self.timeline) {
            timeline.add(sample);
        }
    }

    /// Returns the samples up to now.
    pub fn timeline(&self) -> Timeline {
        leaf(&self.timeline).map_or_else(Timeline::default, |timeline| timeline.clone())
    }
}

impl<M: MemoryManager> StatisticsManager<M> {
    /// Adds a sample to the [timeline](Self::timeline): the memory in use by size and, if this
    /// [wraps](MemoryManager::wrapped) a [`CachingManager`], the memory that the pool has cached.
    pub fn sample(&self) {
        let first: &dyn MemoryManager = &self.inner;
        let mut managers = std::iter::successors(Some(first), |its| its.wrapped());
        let pool = managers.find_map(|its| its.downcast_ref::<CachingManager>());
        self.sample_with(pool.map(CachingManager::stats).unwrap_or_default());
    }
}

impl<M> StatisticsManager<M> {
    fn class(&self, size: usize) -> &Class {
        &self.classes[size.max(1).ilog2() as usize % CLASSES]
    }
}

// SAFETY: all memory is that of the inner manager.
unsafe impl<M: MemoryManager> MemoryManager for StatisticsManager<M> {
    forward!(version current base wrapped initialize reset host pin managed memory_info ipc_handle defer_cleanup trim);

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let block = self.inner.allocate(size, order).inspect_err(|_| {
            self.failed.fetch_add(1, Ordering::Relaxed);
        })?;
        let class = self.class(size);
        class.allocated.fetch_add(1, Ordering::Relaxed);
        class.live_bytes.fetch_add(size as u64, Ordering::Relaxed);
        let used = self.used.fetch_add(size as u64, Ordering::Relaxed) + size as u64;
        self.high.fetch_max(used, Ordering::Relaxed);
        Ok(block)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        let class = self.class(block.size);
        class.freed.fetch_add(1, Ordering::Relaxed);
        class.live_bytes.fetch_sub(block.size as u64, Ordering::Relaxed);
        self.used.fetch_sub(block.size as u64, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { self.inner.free(block, order) }
    }
}

impl<M: fmt::Debug> fmt::Debug for StatisticsManager<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatisticsManager")
            .field("inner", &self.inner)
            .field("statistics", &self.statistics())
            .finish_non_exhaustive()
    }
}
