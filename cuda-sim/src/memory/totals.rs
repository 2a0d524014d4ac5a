//! Running totals of device memory, so that no call has to scan the allocations.

use super::Allocation;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug, Default)]
pub(super) struct Totals {
    /// Allocated bytes of each device and of each memory pool.
    devices: BTreeMap<usize, u64>,
    pools: BTreeMap<usize, u64>,
    /// Allocated bytes, module variables included.
    all: u64,
    /// Bytes of module variables.
    variables: u64,
    /// Number of allocations of managed memory, whose bytes are those of no device.
    managed: usize,
    /// Each context with the addresses of the allocations that were made in it.
    contexts: BTreeSet<(usize, u64)>,
}

impl Totals {
    pub(super) fn add(&mut self, address: u64, allocation: &Allocation) {
        let bytes = allocation.bytes.len() as u64;
        if let Some(pool) = allocation.pool {
            *self.pools.entry(pool).or_default() += bytes;
        }
        if allocation.managed.is_some() {
            self.managed += 1;
        } else if allocation.external.is_none() {
            *self.devices.entry(allocation.device).or_default() += bytes;
            self.all += bytes;
        }
        self.contexts.insert((allocation.context, address));
    }

    pub(super) fn remove(&mut self, address: u64, allocation: &Allocation) {
        let bytes = allocation.bytes.len() as u64;
        if let Some(pool) = allocation.pool {
            subtract(&mut self.pools, pool, bytes);
        }
        if allocation.managed.is_some() {
            self.managed -= 1;
        } else if allocation.external.is_none() {
            subtract(&mut self.devices, allocation.device, bytes);
            self.all -= bytes;
        }
        self.contexts.remove(&(allocation.context, address));
    }

    /// Physical memory of a device, which is allocated without an address.
    pub(super) fn add_physical(&mut self, device: usize, bytes: u64) {
        *self.devices.entry(device).or_default() += bytes;
        self.all += bytes;
    }

    pub(super) fn remove_physical(&mut self, device: usize, bytes: u64) {
        subtract(&mut self.devices, device, bytes);
        self.all -= bytes;
    }

    pub(super) fn add_variable(&mut self, bytes: usize) {
        self.variables += bytes as u64;
    }

    pub(super) fn remove_variable(&mut self, bytes: usize) {
        self.variables -= bytes as u64;
    }

    pub(super) fn of_device(&self, device: usize) -> u64 {
        self.devices.get(&device).copied().unwrap_or(0)
    }

    pub(super) fn of_pool(&self, pool: usize) -> u64 {
        self.pools.get(&pool).copied().unwrap_or(0)
    }

    /// Returns the number of allocations of managed memory.
    pub(super) fn managed(&self) -> usize {
        self.managed
    }

    /// Returns the bytes of all allocations except managed memory and module variables.
    pub(super) fn without_variables(&self) -> u64 {
        self.all - self.variables
    }

    /// Returns the addresses of the allocations that were made in a context.
    pub(super) fn of_context(&self, context: usize) -> impl Iterator<Item = u64> {
        let its = self.contexts.range((context, 0)..=(context, u64::MAX));
        its.map(|(_, address)| *address)
    }
}

/// Subtracts from one total and removes it at zero, because pools are created and destroyed.
fn subtract(totals: &mut BTreeMap<usize, u64>, key: usize, bytes: u64) {
    if let Some(total) = totals.get_mut(&key) {
        *total -= bytes;
        if *total == 0 {
            totals.remove(&key);
        }
    }
}
