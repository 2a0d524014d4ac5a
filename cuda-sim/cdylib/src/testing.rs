//! Functions for tests of C programs, which `include/cuda_sim.h` declares and documents.

use crate::driver::driver;
use core::ffi::{CStr, c_char, c_int, c_ulonglong};
use cuda_sim::fault::{Fault, Injected, Scope};
use cuda_sim::{poison_from_c, unpoison_from_c};
use cuda_sys::{CUdeviceptr, CUresult, CUstream};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The active faults.
static FAULTS: Mutex<Vec<Injected>> = Mutex::new(Vec::new());

fn faults() -> MutexGuard<'static, Vec<Injected>> {
    FAULTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// # Safety
/// `function` is null or a NUL-terminated string.
// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuSimInjectFault(
    function: *const c_char,
    nth: c_ulonglong,
    code: c_int,
) -> c_int {
    driver();
    let code = u32::try_from(code).map(CUresult);
    let (false, Ok(code)) = (function.is_null(), code) else {
        return 1;
    };
    // SAFETY: the pointer is not null, and therefore a NUL-terminated string.
    let name = unsafe { CStr::from_ptr(function) };
    let fault = name.to_str().ok().and_then(Fault::try_of_function);
    let (Some(fault), false) = (fault, nth == 0 || code.is_success()) else {
        return 1;
    };
    let fault = fault.nth(nth).with(code);
    faults().push(fault.inject(Scope::Process));
    0
}

// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
extern "C" fn cuSimClearFaults() -> c_ulonglong {
    faults().drain(..).map(|fault| fault.hits()).sum()
}

// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
extern "C" fn cuSimLiveObjects() -> usize {
    driver();
    cuda_sim::alive().objects()
}

// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
extern "C" fn cuSimPrintLiveObjects() {
    driver();
    eprintln!("cuda-sim: alive: {}", cuda_sim::alive());
}

// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
extern "C" fn cuSimMisuseCount() -> usize {
    driver();
    cuda_sim::misuses().len()
}

// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
extern "C" fn cuSimPoison(address: CUdeviceptr, size: usize, stream: CUstream) -> c_int {
    driver();
    poison_from_c(address, size, stream)
}

// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
extern "C" fn cuSimUnpoison(address: CUdeviceptr, size: usize, stream: CUstream) -> c_int {
    driver();
    unpoison_from_c(address, size, stream)
}
