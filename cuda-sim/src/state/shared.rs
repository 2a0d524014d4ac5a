//! Memory, events and pools that are shared between processes.

use std::collections::{BTreeMap, BTreeSet};

/// The state of memory and events shared between processes.
#[derive(Debug, Default)]
pub(crate) struct SharedMemory {
    /// Sizes of the memory that another process shares, by its number.
    pub(crate) others: BTreeMap<u64, usize>,
    /// Open memory: by address, its number and context.
    pub(crate) open: BTreeMap<u64, (u64, usize)>,
    /// The numbers and contexts of open memory.
    pub(crate) numbers: BTreeSet<(u64, usize)>,
    pub(crate) last: u64,
    /// The numbers of the events that another process shares.
    pub(crate) events: BTreeSet<u64>,
}

/// The state of pools shared between processes.
#[derive(Debug, Default)]
pub(crate) struct SharedPools {
    /// Memory that another process shares: by its number, the pool's number and the size.
    pub(crate) others: BTreeMap<u64, (u64, usize)>,
    /// Imported memory: by address, the pool and the number of the memory.
    pub(crate) imported: BTreeMap<u64, (usize, u64)>,
    /// The same, by pool, and by the number of the memory.
    pub(crate) imported_of: BTreeSet<(usize, u64)>,
    pub(crate) imported_as: BTreeMap<u64, u64>,
    /// The devices of pools that another process shares, if specified. Otherwise it is the device that
    /// imports the pool.
    pub(crate) devices: BTreeMap<u64, usize>,
    pub(crate) last: u64,
}

impl SharedPools {
    pub(crate) fn is_imported(&self, address: u64) -> bool {
        self.imported.contains_key(&address)
    }

    /// Called when the memory is freed.
    pub(crate) fn forget(&mut self, address: u64) {
        if let Some((pool, number)) = self.imported.remove(&address) {
            self.imported_of.remove(&(pool, address));
            self.imported_as.remove(&number);
        }
    }

    pub(crate) fn import(&mut self, address: u64, pool: usize, number: u64) {
        self.imported.insert(address, (pool, number));
        self.imported_of.insert((pool, address));
        self.imported_as.insert(number, address);
    }

    /// Returns whether imported memory of a pool is alive.
    pub(crate) fn has_of(&self, pool: usize) -> bool {
        let mut its = self.imported_of.range((pool, 0)..=(pool, u64::MAX));
        its.next().is_some()
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}
