//! A small driver in Rust for [`cuda_sys::install`]: CUDA 12.2 with three devices.

use core::ffi::{CStr, c_int, c_uint, c_void};
use cuda_sys::CUresult;
use std::sync::atomic::{AtomicU32, Ordering};

/// The code that `cuInit` returns.
pub(crate) static INIT_ANSWERS: AtomicU32 = AtomicU32::new(0);
/// The number of calls of `cuInit`.
pub(crate) static INIT_CALLS: AtomicU32 = AtomicU32::new(0);

pub(crate) const VERSION: i32 = 12020;
pub(crate) const DEVICES: i32 = 3;

/// Returns the address of a function of this driver, or null.
///
/// Never inlined, because the tests compare addresses, and copies of this function could contain
/// copies of the driver functions.
#[inline(never)]
pub(crate) fn find(name: &CStr) -> *const c_void {
    // The cast to the crate's type of that name checks the signature.
    match name.to_bytes() {
        b"cuInit" => init as cuda_sys::cuInit as *const c_void,
        b"cuDriverGetVersion" => version as cuda_sys::cuDriverGetVersion as *const c_void,
        b"cuDeviceGetCount" => count as cuda_sys::cuDeviceGetCount as *const c_void,
        b"cuDeviceGet" => device as cuda_sys::cuDeviceGet as *const c_void,
        b"cuCtxSynchronize" => done as cuda_sys::cuCtxSynchronize as *const c_void,
        b"cuProfilerStart" => not_ready as cuda_sys::cuProfilerStart as *const c_void,
        _ => core::ptr::null(),
    }
}

unsafe extern "C" fn init(_flags: c_uint) -> CUresult {
    INIT_CALLS.fetch_add(1, Ordering::SeqCst);
    CUresult(INIT_ANSWERS.load(Ordering::SeqCst))
}

unsafe extern "C" fn version(version: *mut c_int) -> CUresult {
    // SAFETY: the contract of `cuDriverGetVersion` makes the caller's pointer valid.
    unsafe { version.write(VERSION) };
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn count(count: *mut c_int) -> CUresult {
    // SAFETY: the contract of `cuDeviceGetCount` makes the caller's pointer valid.
    unsafe { count.write(DEVICES) };
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn device(device: *mut c_int, ordinal: c_int) -> CUresult {
    // SAFETY: the contract of `cuDeviceGet` makes the caller's pointer valid.
    unsafe { device.write(ordinal) };
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn done() -> CUresult {
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn not_ready() -> CUresult {
    CUresult::CUDA_ERROR_NOT_READY
}

/// Installs this driver.
pub(crate) fn install() {
    // SAFETY: each address is a function of the type that belongs to its name, and lives as long as
    // the program.
    unsafe { cuda_sys::install(find) }.expect("this child process has no driver yet");
}
