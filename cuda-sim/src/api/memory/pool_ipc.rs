//! Memory pools shared between processes. There is only one process here; [`pool_shared_by_another`] and
//! [`pool_memory_shared_by_another`] simulate what another process shares. See [the module for
//! synchronous memory](crate::api::memory::ipc).
//!
//! The descriptor of a pool is an unnamed file whose contents identify the pool. Unverified: the error
//! if an imported pool is passed where a pool of this process is required, and that memory imported twice
//! exists only once (reported for real drivers). Memory of a pool that this process has imported from itself
//! cannot be imported.

use crate::api::memory::ipc::{OTHERS, OWN, handle, read_bytes};
use crate::api::prelude::*;
use crate::memory::Kind;
use crate::state;
use cuda_sys::{CUmemAllocationHandleType, CUmemPoolPtrExportData, CUmemoryPool};

const DESCRIPTOR: u32 = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR.0;

/// Returns the descriptor of a pool, as if another process had sent it. Returns `None` if the file
/// cannot be created.
#[cfg(unix)]
pub fn pool_shared_by_another() -> Option<std::os::fd::OwnedFd> {
    let number = state::with(|world| world.objects.pool_shared.next())?;
    descriptor::make(OTHERS, number)
}

/// Returns the descriptor of a pool with memory of `device` (its number), as if another process had sent
/// it. Other devices have no access to that memory. Returns `None` if the file cannot be created.
#[cfg(unix)]
pub fn pool_of_device_shared_by_another(device: usize) -> Option<std::os::fd::OwnedFd> {
    let number = state::with(|world| {
        let number = world.objects.pool_shared.next();
        world.objects.pool_shared.devices.insert(number, device);
        number
    })?;
    descriptor::make(OTHERS, number)
}

/// Returns the export data of `size` bytes from a pool of [`pool_shared_by_another`], as if another
/// process had sent it.
#[cfg(unix)]
pub fn pool_memory_shared_by_another(pool: &impl std::os::fd::AsFd, size: usize) -> [u8; 64] {
    use std::os::fd::AsRawFd;
    let pool = descriptor::read(pool.as_fd().as_raw_fd()).map_or(0, |(_, number)| number);
    let number = state::with(|world| {
        let number = world.objects.pool_shared.next();
        world.objects.pool_shared.others.insert(number, (pool, size));
        number
    });
    handle(OTHERS, number.unwrap_or(0))
}

pub(crate) fn export_pool(
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
    // SAFETY: the handle type says that the caller passes a place for a descriptor.
    unsafe { place.cast::<c_int>().write(made) };
    world.pool(pool)?.exported = true;
    Ok(())
}

pub(crate) fn import_pool(
    world: &mut World,
    descriptor: *mut c_void,
    kind: CUmemAllocationHandleType,
    flags: c_ulonglong,
) -> Answer<CUmemoryPool> {
    // No context is needed (measured). The memory of a pool whose device is not known is on the current device.
    let current = world.current().and_then(|current| world.context(current));
    let device = current.map_or(0, |its| its.device);
    // 0 is a valid descriptor: the standard input (measured on driver 580).
    fail_if(flags != 0 || kind.0 != DESCRIPTOR || descriptor.is_null(), INVALID)?;
    let descriptor = c_int::try_from(descriptor.addr()).map_err(|_| INVALID)?;
    match descriptor::read(descriptor) {
        Some((OTHERS, number)) => {
            let device = world.objects.pool_shared.devices.get(&number).unwrap_or(&device);
            Ok(world.import_pool(*device, number))
        }
        // Measured: a process can import its own pool.
        Some((OWN, number)) => {
            let own = usize::try_from(number).ok();
            let own = own.and_then(|own| world.objects.pools.get(own)).ok_or(INVALID)?;
            let device = own.device.unwrap_or(device);
            Ok(world.import_pool(device, number))
        }
        Some(_) => Err(INVALID),
        None => Err(CUresult::CUDA_ERROR_UNKNOWN),
    }
}

pub(crate) fn export_memory(
    world: &mut World,
    address: CUdeviceptr,
) -> Answer<CUmemPoolPtrExportData> {
    let allocation = world.objects.memory.starts_at(address).ok_or(INVALID)?;
    let is_alive = matches!(allocation.kind, Kind::Ordered { freed: false, .. });
    let (id, pool) = (allocation.id, allocation.pool);
    let pool = pool.and_then(|pool| world.objects.pools.get(pool));
    let is_shared = pool.is_some_and(|pool| pool.exported);
    fail_if(!is_alive || !is_shared || world.objects.pool_shared.is_imported(address), INVALID)?;
    Ok(CUmemPoolPtrExportData { reserved: handle(OWN, id) })
}

pub(crate) fn import_memory(
    world: &mut World,
    pool: CUmemoryPool,
    data: *mut CUmemPoolPtrExportData,
) -> Answer<CUdeviceptr> {
    // SAFETY: the caller passes null or a pointer to the data.
    let data = unsafe { data.as_ref() }.ok_or(INVALID)?;
    let its = world.pool(pool)?;
    let (of, device) = its.imported.zip(its.device).ok_or(INVALID)?;
    let (kind, number) = read_bytes(&data.reserved);
    let other = world.objects.pool_shared.others.get(&number).copied();
    let (its_pool, size) = other.filter(|_| kind == OTHERS).ok_or(INVALID)?;
    fail_if(its_pool != of, INVALID)?;
    if let Some(there) = world.objects.pool_shared.imported_as.get(&number) {
        misuse("memory of a pool is imported twice: the first free would free both");
        return Ok(*there);
    }
    let current = world.current()?;
    let owner = world.owner_of(current)?;
    let kind = Kind::Ordered { ready: true, freed: false };
    // The memory does not count against this process's limit.
    let start = world.objects.memory.allocate(size, kind, owner, device, u64::MAX)?;
    world.objects.memory.set_pool(start, pool.addr());
    world.objects.pool_shared.import(start, pool.addr(), number);
    Ok(start)
}

#[cfg(unix)]
mod descriptor {
    use core::ffi::c_int;
    use std::fs::{File, OpenOptions};
    use std::io::Write;
    use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// Creates an unnamed file that contains `kind` and `number`.
    pub(crate) fn make(kind: u64, number: u64) -> Option<OwnedFd> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("cuda-sim-pool-{}-{next}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create_new(true).open(&path).ok()?;
        let _ = std::fs::remove_file(&path);
        file.write_all(&kind.to_le_bytes()).ok()?;
        file.write_all(&number.to_le_bytes()).ok()?;
        Some(file.into())
    }

    pub(crate) fn number(kind: u64, number: u64) -> Option<c_int> {
        make(kind, number).map(IntoRawFd::into_raw_fd)
    }

    /// Returns the contents of such a file, or `None` if it is a different file.
    pub(crate) fn read(descriptor: c_int) -> Option<(u64, u64)> {
        if descriptor < 0 {
            return None;
        }
        // SAFETY: the descriptor is not -1. The caller has it open, or it is not a descriptor.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        let file = File::from(borrowed.try_clone_to_owned().ok()?);
        let mut bytes = [0; 16];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let (kind, number) = bytes.split_at(8);
        let number_of = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        Some((number_of(kind)?, number_of(number)?))
    }
}

/// Systems without such descriptors.
#[cfg(not(unix))]
mod descriptor {
    use core::ffi::c_int;

    pub(crate) fn number(_: u64, _: u64) -> Option<c_int> {
        None
    }

    pub(crate) fn read(_: c_int) -> Option<(u64, u64)> {
        None
    }
}
