//! What a pool has, and what has happened in it.

/// What a [`CachingManager`](super::CachingManager) has, and what has happened.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct CacheFigures {
    /// Bytes that it has of the manager below.
    pub reserved: usize,
    /// The most that it had.
    pub reserved_high: usize,
    /// Bytes of blocks that are handed out, as rounded.
    pub in_use: usize,
    /// Bytes that wait within reach of threads.
    pub in_lanes: usize,
    /// Bytes that wait to be split, merged or given back.
    pub in_heap: usize,
    /// The largest block that could be handed out of those.
    pub largest_free: usize,
    /// Slabs of the manager below.
    pub slabs: usize,
    /// Allocations that a thread had the memory for.
    pub hits: u64,
    /// Allocations that it had not.
    pub misses: u64,
    /// How often a slab was added.
    pub grown: u64,
    /// How often a stream had to wait for another's event.
    pub stream_waits: u64,
    /// How often the host waited for all work.
    pub host_waits: u64,
}

impl CacheFigures {
    /// Bytes that are kept and in nobody's hands.
    pub fn kept(&self) -> usize {
        self.in_lanes + self.in_heap
    }

    /// How far what could be split is in pieces: 0 if it is one, near to 1 if it is many small ones.
    pub fn fragmentation(&self) -> f64 {
        if self.in_heap == 0 {
            return 0.0;
        }
        #[allow(clippy::cast_precision_loss, reason = "a share need not be exact")]
        let share = self.largest_free as f64 / self.in_heap as f64;
        1.0 - share
    }
}
