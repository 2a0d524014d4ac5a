//! Memory pools that processes share. As with [plain memory](super::ipc), there is one process here, which
//! plays what another one shares ([`pool_shared_by_another`], [`pool_memory_shared_by_another`]).
//!
//! The descriptor of a pool is a file without a name, in which it says which pool it is. What a driver
//! answers to an imported pool where one of its own is wanted, that it refuses a pool of this process, and
//! that memory which is imported twice is there once (reported of drivers), is unverified.

use super::Out;
use super::ipc::{OTHERS, OWN, handle, read_bytes};
use crate::account::mistake;
use crate::memory::Kind;
use crate::world::{self, Answer, World};
use core::ffi::{c_int, c_ulonglong, c_void};
use cuda_sys::{
    CUdeviceptr, CUmemAllocationHandleType, CUmemPoolPtrExportData, CUmemoryPool, CUresult,
};
use std::collections::{BTreeMap, BTreeSet};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const DESCRIPTOR: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;

/// What is known of pools that processes share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// What another process shares: the pool's number, and the size of each memory, by its number.
    others: BTreeMap<u64, (u64, usize)>,
    /// What is imported: where, and of which pool which memory.
    imported: BTreeMap<u64, (usize, u64)>,
    /// The same by the pool, and by the number of the memory.
    imported_of: BTreeSet<(usize, u64)>,
    imported_as: BTreeMap<u64, u64>,
    /// The devices of pools that another process shares, where they were said: else whichever imports it.
    devices: BTreeMap<u64, usize>,
    last: u64,
}

impl Shared {
    pub(crate) fn is_imported(&self, address: u64) -> bool {
        self.imported.contains_key(&address)
    }

    /// It is freed.
    pub(crate) fn forget(&mut self, address: u64) {
        if let Some((pool, number)) = self.imported.remove(&address) {
            self.imported_of.remove(&(pool, address));
            self.imported_as.remove(&number);
        }
    }

    fn import(&mut self, address: u64, pool: usize, number: u64) {
        self.imported.insert(address, (pool, number));
        self.imported_of.insert((pool, address));
        self.imported_as.insert(number, address);
    }

    /// Whether memory of a pool is imported still.
    pub(super) fn has_of(&self, pool: usize) -> bool {
        let mut its = self.imported_of.range((pool, 0)..=(pool, u64::MAX));
        its.next().is_some()
    }

    fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The descriptor of a pool that another process shares, as if it had come from there; none if there can be no
/// such file.
#[cfg(unix)]
pub fn pool_shared_by_another() -> Option<std::os::fd::OwnedFd> {
    let number = world::with(|world| world.pool_shared.next())?;
    descriptor::make(OTHERS, number)
}

/// The same of a pool with memory of that device, by its number: another one has no access to it.
#[cfg(unix)]
pub fn pool_of_device_shared_by_another(device: usize) -> Option<std::os::fd::OwnedFd> {
    let number = world::with(|world| {
        let number = world.pool_shared.next();
        world.pool_shared.devices.insert(number, device);
        number
    })?;
    descriptor::make(OTHERS, number)
}

/// The data of so many bytes that another process shares, of a pool of [`pool_shared_by_another`].
#[cfg(unix)]
pub fn pool_memory_shared_by_another(pool: &impl std::os::fd::AsFd, size: usize) -> [u8; 64] {
    use std::os::fd::AsRawFd;
    let pool = descriptor::read(pool.as_fd().as_raw_fd()).map_or(0, |(_, number)| number);
    let number = world::with(|world| {
        let number = world.pool_shared.next();
        world.pool_shared.others.insert(number, (pool, size));
        number
    });
    handle(OTHERS, number.unwrap_or(0))
}

pub(super) fn export_pool(
    world: &mut World,
    place: *mut c_void,
    pool: CUmemoryPool,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer {
    let its = world.pool(pool)?;
    if place.is_null() || flags != 0 || kind.0 != DESCRIPTOR || its.handles & DESCRIPTOR == 0 {
        return Err(INVALID);
    }
    let number = pool.addr() as u64;
    let made = descriptor::number(OWN, number).ok_or(CUresult::CUDA_ERROR_OPERATING_SYSTEM)?;
    // SAFETY: the caller has a descriptor's place there, as the kind says.
    unsafe { place.cast::<c_int>().write(made) };
    world.pool(pool)?.exported = true;
    Ok(())
}

pub(super) fn import_pool(
    world: &mut World,
    pool: &mut Out<CUmemoryPool>,
    descriptor: *mut c_void,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer {
    pool.required()?;
    let current = world.current()?;
    let device = world.context(current)?.device;
    // The standard input has the number 0 (seen on 580).
    if flags != 0 || kind.0 != DESCRIPTOR || descriptor.is_null() {
        return Err(INVALID);
    }
    let descriptor = c_int::try_from(descriptor.addr()).map_err(|_| INVALID)?;
    match descriptor::read(descriptor) {
        Some((OTHERS, number)) => {
            let device = world.pool_shared.devices.get(&number).unwrap_or(&device);
            pool.set(world.import_pool(*device, number));
        }
        _ => return Err(INVALID),
    }
    Ok(())
}

pub(super) fn export_memory(
    world: &mut World,
    data: &mut Out<CUmemPoolPtrExportData>,
    address: CUdeviceptr,
) -> Answer {
    data.required()?;
    let allocation = world.memory.starts_at(address).ok_or(INVALID)?;
    let is_alive = matches!(allocation.kind, Kind::Ordered { freed: false, .. });
    let (id, pool) = (allocation.id, allocation.pool);
    let pool = pool.and_then(|pool| world.pools.get(pool));
    let is_shared = pool.is_some_and(|pool| pool.exported);
    if !is_alive || !is_shared || world.pool_shared.is_imported(address) {
        return Err(INVALID);
    }
    data.set(CUmemPoolPtrExportData {
        reserved: handle(OWN, id),
    });
    Ok(())
}

pub(super) fn import_memory(
    world: &mut World,
    address: &mut Out<CUdeviceptr>,
    pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> Answer {
    address.required()?;
    // SAFETY: null, or the caller has the data there.
    let data = unsafe { data.as_ref() }.ok_or(INVALID)?;
    let its = world.pool(pool)?;
    let (of, device) = (its.imported.ok_or(INVALID)?, its.device.unwrap_or(0));
    let (kind, number) = read_bytes(&data.reserved);
    let other = world.pool_shared.others.get(&number).copied();
    let (its_pool, size) = other.filter(|_| kind == OTHERS).ok_or(INVALID)?;
    if its_pool != of {
        return Err(INVALID);
    }
    if let Some(there) = world.pool_shared.imported_as.get(&number) {
        mistake("memory of a pool is imported twice: the first free would take it from both");
        address.set(*there);
        return Ok(());
    }
    let current = world.current()?;
    let owner = world.owner_of(current)?;
    let kind = Kind::Ordered {
        ready: true,
        freed: false,
    };
    // It takes nothing of this process's limit.
    let start = world.memory.allocate(size, kind, owner, device, u64::MAX)?;
    world.memory.set_pool(start, pool.addr());
    world.pool_shared.import(start, pool.addr(), number);
    address.set(start);
    Ok(())
}

#[cfg(unix)]
mod descriptor {
    use core::ffi::c_int;
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// A file without a name, with which it is.
    pub(super) fn make(kind: u64, number: u64) -> Option<OwnedFd> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cuda-sim-pool-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        let mut file = options
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .ok()?;
        let _ = std::fs::remove_file(&path);
        file.write_all(&kind.to_le_bytes()).ok()?;
        file.write_all(&number.to_le_bytes()).ok()?;
        Some(file.into())
    }

    pub(super) fn number(kind: u64, number: u64) -> Option<c_int> {
        make(kind, number).map(IntoRawFd::into_raw_fd)
    }

    /// Which it is; none if it is no such file.
    pub(super) fn read(descriptor: c_int) -> Option<(u64, u64)> {
        if descriptor < 0 {
            return None;
        }
        // SAFETY: it is not the one that stands for none; the caller has it open, or it is none.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let file = File::from(borrowed.try_clone_to_owned().ok()?);
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let (kind, number) = bytes.split_at(8);
        let number_of = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        Some((number_of(kind)?, number_of(number)?))
    }
}

/// Where there are no such descriptors.
#[cfg(not(unix))]
mod descriptor {
    use core::ffi::c_int;

    pub(super) fn number(_: u64, _: u64) -> Option<c_int> {
        None
    }

    pub(super) fn read(_: c_int) -> Option<(u64, u64)> {
        None
    }
}
