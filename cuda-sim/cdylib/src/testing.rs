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

/// # Safety
/// `fault` is null or a NUL-terminated string.
// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuSimInject(fault: *const c_char) -> c_int {
    driver();
    if fault.is_null() {
        return 1;
    }
    // SAFETY: the pointer is not null, and therefore a NUL-terminated string.
    let text = unsafe { CStr::from_ptr(fault) }.to_string_lossy();
    match text.parse::<Fault>() {
        Ok(fault) => {
            faults().push(fault.inject(Scope::Process));
            0
        }
        Err(why) => {
            eprintln!("cuda-sim: {why}");
            1
        }
    }
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

/// # Safety
/// `text` has room for `size` bytes.
// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuSimDescribeLiveObjects(text: *mut c_char, size: usize) -> usize {
    driver();
    // SAFETY: the caller has room for `size` bytes.
    unsafe { copy(&cuda_sim::alive().to_string(), text, size) }
}

// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
extern "C" fn cuSimMisuseCount() -> usize {
    driver();
    cuda_sim::misuses().len()
}

/// # Safety
/// `text` has room for `size` bytes.
// SAFETY (of the name): the driver has no function of this name.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuSimMisuseText(index: usize, text: *mut c_char, size: usize) -> usize {
    driver();
    let misuses = cuda_sim::misuses();
    let misuse = misuses.get(index).map_or("", String::as_str);
    // SAFETY: the caller has room for `size` bytes.
    unsafe { copy(misuse, text, size) }
}

/// Copies as much of a text as there is room for, and a zero byte. Returns the length of the text.
///
/// # Safety
/// `to` has room for `size` bytes.
unsafe fn copy(text: &str, to: *mut c_char, size: usize) -> usize {
    let Some(room) = size.checked_sub(1).filter(|_| !to.is_null()) else {
        return text.len();
    };
    let count = text.len().min(room);
    // SAFETY: the text has `count` bytes, and the caller has room for more.
    unsafe { core::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), count) };
    // SAFETY: `count` is less than `size`.
    let end = unsafe { to.add(count) };
    // SAFETY: the caller has room for this byte.
    unsafe { end.write(0) };
    text.len()
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
