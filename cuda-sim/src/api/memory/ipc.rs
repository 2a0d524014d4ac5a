//! Memory and events shared between processes. There is only one process here; [`shared_by_another`] and
//! [`event_shared_by_another`] simulate what another process shares.
//!
//! Unverified (from documentation): a process cannot open a handle of its own memory or of its own event, a
//! handle of memory can be open only once in a context, and only an interprocess event has a handle.

use crate::api::prelude::*;
use crate::memory::Kind;
use crate::state;
use crate::state::objects::Event;
use cuda_sys::{CUipcEventHandle, CUipcMem_flags, CUipcMemHandle};

/// The first word of a handle, for memory of this process and of another one.
pub(crate) const OWN: u64 = 0x6f77_6e00_6375_6461;
pub(crate) const OTHERS: u64 = 0x6f74_6865_7273_0001;
/// The first word of a handle of an event of a process, whose id is in the third word.
const OWN_EVENT: u64 = 0x6f77_6e00_6576_6e74;
/// The first word of a handle of an event that is simulated to be another process's.
const OTHERS_EVENT: u64 = 0x6f74_6865_7273_0002;

pub(crate) fn handle(kind: u64, number: u64) -> [u8; 64] {
    let mut bytes = [0; 64];
    bytes[..8].copy_from_slice(&kind.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes
}

fn read(handle: &CUipcMemHandle) -> (u64, u64) {
    read_bytes(&handle.reserved.map(|byte| byte.to_ne_bytes()[0]))
}

pub(crate) fn read_bytes(bytes: &[u8; 64]) -> (u64, u64) {
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
        world.objects.shared.last += 1;
        let number = world.objects.shared.last;
        world.objects.shared.others.insert(number, size);
        number
    });
    handle(OTHERS, number.unwrap_or(0))
}

pub(crate) fn get(world: &mut World, address: CUdeviceptr) -> Answer<CUipcMemHandle> {
    world.current()?;
    let (start, allocation) = world.objects.memory.containing(address).ok_or(INVALID)?;
    if allocation.kind != Kind::Plain || world.objects.shared.open.contains_key(&start) {
        return Err(INVALID);
    }
    let number = allocation.id;
    Ok(CUipcMemHandle { reserved: handle(OWN, number).map(|byte| c_char::from_ne_bytes([byte])) })
}

pub(crate) fn open(
    world: &mut World,
    handle: CUipcMemHandle,
    flags: c_uint,
) -> Answer<CUdeviceptr> {
    let owner = world.owner_of(world.current()?)?;
    fail_if(flags != CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS.0, INVALID)?;
    let (kind, number) = read(&handle);
    fail_if(kind == OWN, CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    let size = world.objects.shared.others.get(&number).copied();
    let size = size.filter(|_| kind == OTHERS).ok_or(INVALID)?;
    if world.objects.shared.numbers.contains(&(number, owner)) {
        return Err(CUresult::CUDA_ERROR_ALREADY_MAPPED);
    }
    let device = world.context(owner)?.device;
    // The memory does not count against this process's limit.
    let start = world.objects.memory.allocate(size, Kind::Plain, owner, device, u64::MAX)?;
    world.objects.shared.open.insert(start, (number, owner));
    world.objects.shared.numbers.insert((number, owner));
    Ok(start)
}

pub(crate) fn close(world: &mut World, address: CUdeviceptr) -> Answer {
    if !world.objects.shared.open.contains_key(&address) {
        misuse("cuIpcCloseMemHandle of an address that is not open");
        return Err(INVALID);
    }
    world.run_all()?;
    if let Some(its) = world.objects.shared.open.remove(&address) {
        world.objects.shared.numbers.remove(&its);
    }
    world.objects.memory.free(address);
    Ok(())
}

/// Returns the handle of an event, as if another process had sent it. That process never records the event.
pub fn event_shared_by_another() -> [u8; 64] {
    let number = state::with(|world| {
        world.objects.shared.last += 1;
        let number = world.objects.shared.last;
        world.objects.shared.events.insert(number);
        number
    });
    handle(OTHERS_EVENT, number.unwrap_or(0))
}

/// Returns the third word of a handle of an event of this process.
fn process() -> [u8; 8] {
    u64::from(std::process::id()).to_le_bytes()
}

pub(crate) fn get_event(world: &mut World, event: CUevent) -> Answer<CUipcEventHandle> {
    fail_if(event.is_null(), INVALID)?;
    fail_if(!world.event(event.addr())?.interprocess, CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let mut bytes = handle(OWN_EVENT, event.addr() as u64);
    bytes[16..24].copy_from_slice(&process());
    Ok(CUipcEventHandle { reserved: bytes.map(|byte| c_char::from_ne_bytes([byte])) })
}

pub(crate) fn open_event(world: &mut World, handle: CUipcEventHandle) -> Answer<CUevent> {
    let context = world.owner_of(world.current()?)?;
    let bytes = handle.reserved.map(|byte| byte.to_ne_bytes()[0]);
    let (kind, number) = read_bytes(&bytes);
    match kind {
        OWN_EVENT if bytes[16..24] == process() => {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        // Of another process that runs on the software driver, which cannot tell whether the event's work
        // is complete.
        OWN_EVENT => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
        OTHERS_EVENT if world.objects.shared.events.contains(&number) => {}
        _ => return Err(CUresult::CUDA_ERROR_MAP_FAILED),
    }
    let opened = world.add_event(Event {
        context,
        timing: false,
        interprocess: false,
        captured: None,
        recorded: None,
        time: None,
    });
    Ok(pointer(opened))
}
