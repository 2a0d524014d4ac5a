//! A small driver in Rust, for [`cuda_sys::install`]: CUDA 12.2 with three devices.

use core::ffi::{CStr, c_int, c_uint, c_void};
use cuda_sys::CUresult;
use std::sync::atomic::{AtomicU32, Ordering};

/// What `cuInit` answers.
pub(crate) static INIT_ANSWERS: AtomicU32 = AtomicU32::new(0);
/// How often `cuInit` was called.
pub(crate) static INIT_CALLS: AtomicU32 = AtomicU32::new(0);

pub(crate) const VERSION: i32 = 12020;
pub(crate) const DEVICES: i32 = 3;

/// The address of a function that this driver has, or null.
///
/// Never inlined: the tests compare addresses, and copies of this may hold copies of the functions.
#[inline(never)]
pub(crate) fn find(name: &CStr) -> *const c_void {
    // Each cast to the crate's type of that name holds the signature.
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
    // SAFETY: the caller's pointer, by the rules of cuDriverGetVersion.
    unsafe { version.write(VERSION) };
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn count(count: *mut c_int) -> CUresult {
    // SAFETY: the caller's pointer, by the rules of cuDeviceGetCount.
    unsafe { count.write(DEVICES) };
    CUresult::CUDA_SUCCESS
}

unsafe extern "C" fn device(device: *mut c_int, ordinal: c_int) -> CUresult {
    // SAFETY: the caller's pointer, by the rules of cuDeviceGet.
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
    // SAFETY: each address is a function of the type of its name, and lives as long as the program.
    unsafe { cuda_sys::install(find) }.expect("a process of its own has no driver yet");
}
