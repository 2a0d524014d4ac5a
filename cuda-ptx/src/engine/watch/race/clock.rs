//! Vector clocks of threads and blocks.

use crate::clock::Clock as VectorClock;
use std::ops::Range;
use std::rc::Rc;

/// The number of a block in its grid, and that of a thread in its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Who {
    pub(super) block: u32,
    pub(super) thread: u32,
}

impl Who {
    /// Returns the key of the thread in a clock. The key of its block is before those of its threads.
    fn key(self) -> u64 {
        of_block(self.block) + 1 + u64::from(self.thread)
    }
}

/// What is ordered before a point of a thread: for a block, the time before which all of its accesses are, and for a
/// thread, the time of its last access that is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(VectorClock);

/// Returns the key of a block.
fn of_block(block: u32) -> u64 {
    u64::from(block) << 11
}

/// Returns the keys of the threads of a block.
fn of_threads(block: u32) -> Range<u64> {
    of_block(block) + 1..of_block(block + 1)
}

impl Clock {
    /// Returns whether the accesses of a thread at a time are ordered before.
    pub(super) fn knows(&self, who: Who, time: u32) -> bool {
        let time = u64::from(time);
        !self.0.is_empty()
            && (time < self.0.of(of_block(who.block)) || time <= self.0.of(who.key()))
    }

    fn raise(&mut self, key: u64, time: u32) {
        self.0.set(key, self.0.of(key).max(time.into()));
    }

    pub(super) fn set_thread(&mut self, who: Who, time: u32) {
        self.raise(who.key(), time);
    }

    /// Orders all accesses of a block before a time. The entries of its threads are then not needed.
    pub(super) fn set_block(&mut self, block: u32, time: u32) {
        let threads = of_threads(block);
        self.0.retain(|key, _| !threads.contains(&key));
        self.raise(of_block(block), time);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces entries of the threads of a block by one of the block, as far as each of its threads has one.
    pub(super) fn compress(&mut self, block: u32, count: u32) {
        let threads = of_threads(block);
        let own = || self.0.lanes().filter(|(key, _)| threads.contains(key));
        let Some(least) = own().map(|(_, time)| time).min() else { return };
        if own().count() < count as usize {
            return;
        }
        self.0.retain(|key, time| !threads.contains(&key) || time > least);
        self.raise(of_block(block), least as u32 + 1);
    }

    /// Adds everything that another clock orders before.
    pub(super) fn join(&mut self, other: &Self) {
        self.0.join(&other.0);
    }
}

/// Joins a clock into one that may be shared.
pub(super) fn join(own: &mut Rc<Clock>, other: &Rc<Clock>) {
    if Rc::ptr_eq(own, other) || own.0.covers(&other.0) {
        return;
    }
    if other.0.covers(&own.0) {
        own.clone_from(other);
    } else {
        Rc::make_mut(own).join(other);
    }
}
