//! Memory shared between processes. There is only one process here; [`shared_by_another`] simulates
//! memory that another process shares.
//!
//! Unverified (from documentation): a process cannot open a handle of its own memory, and a handle can
//! be open only once in a context.

use super::Out;
use crate::account::misuse;
use crate::memory::Kind;
use crate::state::{self, Answer, World};
use core::ffi::{c_char, c_uint};
use cuda_sys::{CUdeviceptr, CUipcMem_flags, CUipcMemHandle, CUresult};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
/// The first word of a handle, for memory of this process and of another one.
pub(super) const OWN: u64 = 0x6f77_6e00_6375_6461;
pub(super) const OTHERS: u64 = 0x6f74_6865_7273_0001;

pub(super) fn handle(kind: u64, number: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&kind.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn read(handle: &CUipcMemHandle) -> (u64, u64) {
    read_bytes(&handle.reserved.map(|byte| byte.to_ne_bytes()[0]))
}

pub(super) fn read_bytes(bytes: &[u8; 64]) -> (u64, u64) {
    let number = |start: usize| {
        let mut number = [0; 8];
        number.copy_from_slice(&bytes[start..start + 8]);
        u64::from_le_bytes(number)
    };
    (number(0), number(8))
}

/// Returns a handle of `size` bytes, as if another process had sent it.
pub fn shared_by_another(size: usize) -> [u8; 64] {
    let number = state::with(|world| {
        world.shared.last += 1;
        let number = world.shared.last;
        world.shared.others.insert(number, size);
        number
    });
    handle(OTHERS, number.unwrap_or(0))
}

pub(super) fn get(
    world: &mut World,
    place: &mut Out<CUipcMemHandle>,
    address: CUdeviceptr,
) -> Answer {
    place.required()?;
    world.current()?;
    let (start, allocation) = world.memory.containing(address).ok_or(INVALID)?;
    if allocation.kind != Kind::Plain || world.shared.open.contains_key(&start) {
        return Err(INVALID);
    }
    let number = allocation.id;
    place.set(CUipcMemHandle {
        reserved: handle(OWN, number).map(|byte| c_char::from_ne_bytes([byte])),
    });
    Ok(())
}

pub(super) fn open(
    world: &mut World,
    address: &mut Out<CUdeviceptr>,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Answer {
    address.required()?;
    let owner = world.owner_of(world.current()?)?;
    if flags != CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0 {
        return Err(INVALID);
    }
    let (kind, number) = read(&handle);
    if kind == OWN {
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    }
    let size = world.shared.others.get(&number).copied();
    let size = size.filter(|_| kind == OTHERS).ok_or(INVALID)?;
    if world.shared.numbers.contains(&(number, owner)) {
        return Err(CUresult::CUDA_ERROR_ALREADY_MAPPED);
    }
    let device = world.context(owner)?.device;
    // The memory does not count against this process's limit.
    let start = world
        .memory
        .allocate(size, Kind::Plain, owner, device, u64::MAX)?;
    world.shared.open.insert(start, (number, owner));
    world.shared.numbers.insert((number, owner));
    address.set(start);
    Ok(())
}

pub(super) fn close(world: &mut World, address: CUdeviceptr) -> Answer {
    if !world.shared.open.contains_key(&address) {
        misuse("cuIpcCloseMemHandle of an address that is not open");
        return Err(INVALID);
    }
    world.run_all()?;
    if let Some(its) = world.shared.open.remove(&address) {
        world.shared.numbers.remove(&its);
    }
    world.memory.free(address);
    Ok(())
}
