//! Vector clocks of threads and blocks.

use std::cmp::Ordering;
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
        u64::from(self.block) << 11 | u64::from(self.thread + 1)
    }
}

/// What is ordered before a point of a thread: for a block, the time before which all of its accesses are, and for a
/// thread, the time of its last access that is.
///
/// The entries are in the order of their keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Clock(Vec<(u64, u32)>);

impl Clock {
    fn of(&self, key: u64) -> u32 {
        if self.0.is_empty() {
            return 0;
        }
        let place = self.0.binary_search_by_key(&key, |its| its.0);
        place.map_or(0, |place| self.0[place].1)
    }

    /// Returns whether the accesses of a thread at a time are ordered before.
    pub(super) fn knows(&self, who: Who, time: u32) -> bool {
        !self.0.is_empty()
            && (time < self.of(u64::from(who.block) << 11) || time <= self.of(who.key()))
    }

    fn set(&mut self, key: u64, time: u32) {
        match self.0.binary_search_by_key(&key, |its| its.0) {
            Ok(place) => self.0[place].1 = self.0[place].1.max(time),
            Err(place) => self.0.insert(place, (key, time)),
        }
    }

    pub(super) fn set_thread(&mut self, who: Who, time: u32) {
        self.set(who.key(), time);
    }

    /// Orders all accesses of a block before a time. The entries of its threads are then not needed.
    pub(super) fn set_block(&mut self, block: u32, time: u32) {
        let first = u64::from(block) << 11;
        self.0.retain(|(key, _)| !(first + 1..first + (1 << 11)).contains(key));
        self.set(first, time);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces entries of the threads of a block by one of the block, as far as each of its threads has one.
    pub(super) fn compress(&mut self, block: u32, threads: u32) {
        let first = u64::from(block) << 11;
        let start = self.0.partition_point(|(key, _)| *key <= first);
        let end = self.0.partition_point(|(key, _)| *key < first + (1 << 11));
        let own = &self.0[start..end];
        if own.len() < threads as usize {
            return;
        }
        let least = own.iter().map(|(_, time)| *time).min().unwrap_or(0);
        self.0.retain(|(key, time)| !(first + 1..first + (1 << 11)).contains(key) || *time > least);
        self.set(first, least + 1);
    }

    /// Adds everything that another clock orders before.
    pub(super) fn join(&mut self, other: &Self) {
        if self.covers(other) {
            return;
        }
        let own = std::mem::take(&mut self.0);
        self.0.reserve(own.len().max(other.0.len()));
        let (mut own, mut its) = (own.as_slice(), other.0.as_slice());
        while let ([first, own_rest @ ..], [second, its_rest @ ..]) = (own, its) {
            let next = match first.0.cmp(&second.0) {
                Ordering::Less => *first,
                Ordering::Greater => *second,
                Ordering::Equal => (first.0, first.1.max(second.1)),
            };
            self.0.push(next);
            own = if first.0 == next.0 { own_rest } else { own };
            its = if second.0 == next.0 { its_rest } else { its };
        }
        self.0.extend_from_slice(own);
        self.0.extend_from_slice(its);
    }

    fn covers(&self, other: &Self) -> bool {
        let mut rest = self.0.iter();
        other.0.iter().all(|(key, time)| {
            let own = rest.find(|its| its.0 >= *key);
            own.is_some_and(|its| its.0 == *key && its.1 >= *time)
        })
    }
}

/// Joins a clock into one that may be shared.
pub(super) fn join(own: &mut Rc<Clock>, other: &Rc<Clock>) {
    if Rc::ptr_eq(own, other) || own.covers(other) {
        return;
    }
    if other.covers(own) {
        own.clone_from(other);
    } else {
        Rc::make_mut(own).join(other);
    }
}
