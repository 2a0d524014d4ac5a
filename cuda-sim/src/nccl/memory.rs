//! NCCL's allocator and registrations.

#![allow(non_snake_case, reason = "the names are those of C")]

use super::communicators::{replace_current, usable};
use super::outcome::{CUDA_ERROR, INVALID_ARGUMENT, SUCCESS, call, refuse};
use super::{Functions, table};
use crate::account::misuse;
use crate::api::Out;
use crate::api::memory as driver_memory;
use crate::call::Class;
use crate::races::Access;
use crate::state;
use core::ffi::{c_int, c_void};

pub(super) const FUNCTIONS: Functions = table![
    ncclMemAlloc,
    ncclMemFree,
    ncclCommRegister,
    ncclCommDeregister,
    ncclCommWindowRegister,
    ncclCommWindowDeregister,
];

/// The unit of allocations (measured).
const UNIT: usize = 2 << 20;

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclMemAlloc(place: *mut *mut c_void, size: usize) -> c_int {
    call(Class::Usual, "ncclMemAlloc", |world| {
        if place.is_null() {
            return refuse(INVALID_ARGUMENT, "the place is null");
        }
        let current = world.current()?;
        let device = world.context(current)?.device;
        replace_current(world, device)?;
        let mut address = 0;
        let size = size.max(1).next_multiple_of(UNIT);
        // SAFETY: the place is a local variable, which is alive during the call.
        driver_memory::allocate(world, unsafe { Out::new(&raw mut address) }, size)?;
        world.objects.nccl.memory.insert(address, size);
        // SAFETY: the caller passes a place for an address.
        unsafe { place.write(core::ptr::without_provenance_mut(address as usize)) };
        Ok(SUCCESS)
    })
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclMemFree(address: *mut c_void) -> c_int {
    call(Class::Usual, "ncclMemFree", |world| {
        let address = address.addr() as u64;
        if !world.objects.nccl.memory.contains_key(&address) {
            return refuse(CUDA_ERROR, "not memory of ncclMemAlloc");
        }
        let communicators = world.objects.nccl.communicators.iter();
        let is_registered = communicators
            .flat_map(|(_, its)| its.registered.values())
            .any(|(start, ..)| *start == address);
        if is_registered {
            misuse("memory is freed while it is registered with a communicator");
        }
        // The real library unmaps the memory at once. Work that still uses it fails.
        world.objects.nccl.memory.remove(&address);
        world.begin_host_access();
        world.objects.memory.note_lifetime(address, Access::Free);
        world.end_host_access();
        world.objects.memory.free(address);
        Ok(SUCCESS)
    })
}

/// Returns how many registrations a communicator has, or `None` if there is no such communicator.
pub fn registrations(communicator: *mut c_void) -> Option<usize> {
    let count = state::with(|world| {
        let its = world.objects.nccl.communicators.get(communicator.addr())?;
        Some(its.registered.len())
    });
    count.flatten()
}

/// Registers memory, and writes the handle.
fn register(
    name: &'static str,
    communicator: *mut c_void,
    memory: (u64, usize),
    place: *mut *mut c_void,
    is_window: bool,
) -> c_int {
    call(Class::Usual, name, |world| {
        usable(world, communicator.addr())?;
        if place.is_null() || memory.0 == 0 || memory.1 == 0 {
            return refuse(INVALID_ARGUMENT, "no memory to register");
        }
        world.forbidden_in_capture()?;
        world.objects.nccl.registered += 1;
        let handle = world.objects.nccl.registered << 4;
        let its = usable(world, communicator.addr())?;
        its.registered.insert(handle, (memory.0, memory.1, is_window));
        // SAFETY: the caller passes a place for a handle.
        unsafe { place.write(core::ptr::without_provenance_mut(handle)) };
        Ok(SUCCESS)
    })
}

/// Ends a registration.
fn deregister(
    name: &'static str,
    communicator: *mut c_void,
    handle: *mut c_void,
    is_window: bool,
) -> c_int {
    call(Class::Usual, name, |world| {
        let its = usable(world, communicator.addr())?;
        match its.registered.remove(&handle.addr()) {
            Some((.., kind)) if kind == is_window => Ok(SUCCESS),
            Some(_) => {
                misuse(
                    "a registration is ended by the function for the other kind of registration",
                );
                refuse(INVALID_ARGUMENT, "another kind of registration")
            }
            None => {
                misuse("memory is deregistered that is not registered; a real NCCL crashes");
                refuse(INVALID_ARGUMENT, "not registered")
            }
        }
    })
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommRegister(
    communicator: *mut c_void,
    address: *mut c_void,
    size: usize,
    handle: *mut *mut c_void,
) -> c_int {
    let memory = (address.addr() as u64, size);
    register("ncclCommRegister", communicator, memory, handle, false)
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommDeregister(communicator: *mut c_void, handle: *mut c_void) -> c_int {
    deregister("ncclCommDeregister", communicator, handle, false)
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommWindowRegister(
    communicator: *mut c_void,
    address: *mut c_void,
    size: usize,
    window: *mut *mut c_void,
    _flags: c_int,
) -> c_int {
    let memory = (address.addr() as u64, size);
    register("ncclCommWindowRegister", communicator, memory, window, true)
}

#[cfg_attr(feature = "nccl-symbols", unsafe(no_mangle))]
unsafe extern "C" fn ncclCommWindowDeregister(
    communicator: *mut c_void,
    window: *mut c_void,
) -> c_int {
    deregister("ncclCommWindowDeregister", communicator, window, true)
}
