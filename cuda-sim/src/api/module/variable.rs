//! Variables of modules and libraries.

use crate::api::prelude::*;
use core::ffi::CStr;

impl World {
    /// Returns the address of a variable in a context, and its size.
    fn variable(
        &mut self,
        module: usize,
        context: usize,
        name: *const c_char,
        managed: bool,
    ) -> Answer<(u64, usize)> {
        fail_if(name.is_null(), INVALID)?;
        self.place_variables(module, context)?;
        // SAFETY: the caller passes a NUL-terminated string.
        let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
        let placed = self.module(module)?.placed.get(&context);
        let found = placed.and_then(|placed| placed.find(&name, managed));
        found.ok_or(CUresult::CUDA_ERROR_NOT_FOUND)
    }
}

pub(crate) fn of_module(
    world: &mut World,
    address: Out<CUdeviceptr>,
    bytes: Out<usize>,
    module: CUmodule,
    name: *const c_char,
) -> Answer {
    let context = world.module(module.addr())?.context;
    let context = context.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    let (place, size) = world.variable(module.addr(), context, name, false)?;
    address.set(place);
    bytes.put(size)
}

/// Returns a variable of a library in the current context.
pub(crate) fn of_library(
    world: &mut World,
    address: Out<CUdeviceptr>,
    bytes: Out<usize>,
    library: CUlibrary,
    name: *const c_char,
) -> Answer {
    of_library_in_current(world, address, bytes, library, name, false)
}

/// Unverified: a real driver has one variable for all contexts. This is not simulated.
pub(crate) fn managed(
    world: &mut World,
    address: Out<CUdeviceptr>,
    bytes: Out<usize>,
    library: CUlibrary,
    name: *const c_char,
) -> Answer {
    of_library_in_current(world, address, bytes, library, name, true)
}

fn of_library_in_current(
    world: &mut World,
    address: Out<CUdeviceptr>,
    bytes: Out<usize>,
    library: CUlibrary,
    name: *const c_char,
    managed: bool,
) -> Answer {
    let current = world.current()?;
    let owner = world.owner_of(current)?;
    let (place, size) = world.variable(library.addr(), owner, name, managed)?;
    address.set(place);
    bytes.put(size)
}
