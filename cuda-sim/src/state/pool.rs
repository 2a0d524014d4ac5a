//! The state of memory pools.

use super::handles::State;
use super::{Answer, World};
use crate::account::misuse;
use crate::memory::Pages;
use crate::state::INVALID;
use core::ffi::c_int;
use cuda_sys::{CUmemAccess_flags, CUmemAllocationType, CUmemLocationType, CUmemoryPool, CUresult};
use std::collections::BTreeMap;

/// Pools reserve memory in multiples of this size, in bytes.
pub(crate) const PORTION: u64 = 32 << 20;

#[derive(Debug)]
pub(crate) struct Pool {
    /// `None` for a pool of host memory.
    pub(crate) device: Option<usize>,
    pub(crate) location: (u32, i32),
    pub(crate) kind: u32,
    pub(crate) handles: u32,
    /// Whether a descriptor of the pool was exported. Without one, handles of its memory cannot be
    /// exported (measured on driver 580).
    pub(crate) exported: bool,
    /// The number of the other process's pool, for an imported pool.
    pub(crate) imported: Option<u64>,
    /// 0 means no limit.
    pub(crate) max_size: u64,
    pub(crate) usage: u16,
    /// Whether freed memory may be reused: after events, opportunistically if it is idle, by inserted
    /// waits.
    pub(crate) reuse: [bool; 3],
    pub(crate) threshold: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_peak: u64,
    pub(crate) used_high: u64,
    /// The access of devices, by location.
    pub(crate) access: BTreeMap<(u32, i32), u32>,
}

/// The pools of one location.
#[derive(Debug)]
pub(crate) struct LocationPools {
    /// The permanent handle of the default pool.
    pub(crate) default: usize,
    /// The pool that the location allocates from.
    pub(crate) current: usize,
}

impl LocationPools {
    pub(crate) fn new(pool: usize) -> Self {
        Self { default: pool, current: pool }
    }
}

impl Pool {
    /// Returns the default pool of a device.
    pub(crate) fn of_device(device: usize) -> Self {
        let location = (
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0,
            c_int::try_from(device).unwrap_or(0),
        );
        Self::new(Some(device), location, CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED.0)
    }

    /// Returns the advice for new memory of a managed pool, which prefers the location of the pool. Returns
    /// `None` for other pools.
    pub(crate) fn pages(&self) -> Option<Pages> {
        let nowhere = CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE.0;
        let preferred = Some(self.location).filter(|(kind, _)| *kind != nowhere);
        self.is_managed().then(|| Pages::preferring(preferred))
    }

    pub(crate) fn is_managed(&self) -> bool {
        self.kind == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED.0
    }

    /// Returns the kind and the location of the pool's memory.
    pub(crate) fn memory(&self) -> (u32, (u32, i32)) {
        (self.kind, self.location)
    }

    pub(crate) fn new(device: Option<usize>, location: (u32, i32), kind: u32) -> Self {
        let all = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE.0;
        Self {
            device,
            location,
            kind,
            handles: 0,
            imported: None,
            exported: false,
            max_size: 0,
            usage: 0,
            reuse: [true; 3],
            threshold: 0,
            reserved: 0,
            reserved_peak: 0,
            used_high: 0,
            access: BTreeMap::from([(location, all)]),
        }
    }
}

impl World {
    /// Returns the default pools, with the pools that replace them.
    pub(crate) fn location_pools(&mut self) -> impl Iterator<Item = &mut LocationPools> {
        self.objects.device_pools.iter_mut().chain(self.objects.other_pools.values_mut())
    }

    pub(crate) fn pool(&mut self, pool: CUmemoryPool) -> Answer<&mut Pool> {
        if self.objects.pools.state(pool.addr()) == State::Dead {
            misuse("a memory pool is used after it was destroyed");
        }
        self.objects.pools.get_mut(pool.addr()).ok_or(INVALID)
    }

    /// Returns a pool of this process. An imported pool is an error (the code is unverified).
    pub(crate) fn own_pool(&mut self, pool: CUmemoryPool) -> Answer<&mut Pool> {
        let its = self.pool(pool)?;
        match its.imported {
            None => Ok(its),
            Some(_) => Err(INVALID),
        }
    }

    /// Adds a pool that another process shares, of memory of a device.
    pub(crate) fn import_pool(&mut self, device: usize, number: u64) -> CUmemoryPool {
        let mut pool = Pool::of_device(device);
        pool.imported = Some(number);
        core::ptr::without_provenance_mut(self.objects.pools.insert(pool))
    }

    /// Returns the device of a pool's memory, if it has one. Fails if the pool's limit does not allow
    /// `size` more bytes.
    pub(crate) fn room_in_pool(&self, pool: usize, size: usize) -> Answer<Option<usize>> {
        let used = self.objects.memory.used_of_pool(pool);
        let pool = self.objects.pools.get(pool).ok_or(INVALID)?;
        if pool.max_size != 0 && used.saturating_add(size as u64) > pool.max_size {
            return Err(CUresult::CUDA_ERROR_OUT_OF_MEMORY);
        }
        Ok(pool.device)
    }

    /// Assigns an allocation to a pool.
    pub(crate) fn now_of_pool(&mut self, address: u64, pool: usize) {
        self.objects.memory.set_pool(address, pool);
        let used = self.objects.memory.used_of_pool(pool);
        if let Some(pool) = self.objects.pools.get_mut(pool) {
            pool.used_high = pool.used_high.max(used);
            pool.reserved = pool.reserved.max(used.next_multiple_of(PORTION));
            pool.reserved_peak = pool.reserved_peak.max(pool.reserved);
        }
    }
}
