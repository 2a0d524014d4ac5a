//! `cuGetProcAddress`: the lookup of a function by base name, version and stream mode.
//!
//! The rules are those of driver 580 for every name, mode and version. Only for a version above the
//! driver's, drivers before 13.0 ignore the excess, as drivers 525 to 555 do.

use crate::driver::driver;
use core::ffi::{CStr, c_char, c_int, c_void};
use cuda_sys::{
    CUdriverProcAddress_flags as Flags, CUdriverProcAddressQueryResult as Status, CUresult,
    CudaVersion, Function, cuuint64_t,
};

/// Since this version, a version above the driver's is an error.
const STRICT: CudaVersion = CudaVersion::new(13, 0);

/// `cuGetProcAddress_v2`. If the function does not exist, the call succeeds and the address is null.
pub(crate) unsafe extern "C" fn by_name_v2(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
    status: *mut Status,
) -> CUresult {
    // SAFETY: the caller gives the guarantees that `find` requires.
    let found = match unsafe { find(symbol, address, version, flags) } {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let (function, found) = match found {
        Ok(function) => (function, Status::CU_GET_PROC_ADDRESS_SUCCESS),
        Err(status) => (core::ptr::null_mut(), status),
    };
    // SAFETY: the pointer is not null, and the caller passes a place for an address.
    unsafe { address.write(function) };
    if !status.is_null() {
        // SAFETY: the caller passes a place for a status.
        unsafe { status.write(found) };
    }
    CUresult::CUDA_SUCCESS
}

/// `cuGetProcAddress`, its first ABI. If the function does not exist, the call fails and the address is
/// not written.
pub(crate) unsafe extern "C" fn by_name(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
) -> CUresult {
    // SAFETY: the caller gives the guarantees that `find` requires.
    match unsafe { find(symbol, address, version, flags) } {
        Err(refusal) => refusal,
        Ok(Err(_)) => CUresult::CUDA_ERROR_NOT_FOUND,
        Ok(Ok(function)) => {
            // SAFETY: the pointer is not null, and the caller passes a place for an address.
            unsafe { address.write(function) };
            CUresult::CUDA_SUCCESS
        }
    }
}

/// Returns the address of a function, or the reason why it does not exist; or an error code if the
/// arguments are invalid.
///
/// # Safety
/// `symbol` is null or a NUL-terminated string.
unsafe fn find(
    symbol: *const c_char,
    address: *mut *mut c_void,
    version: c_int,
    flags: cuuint64_t,
) -> Result<Result<*mut c_void, Status>, CUresult> {
    let known = Flags::CU_GET_PROC_ADDRESS_LEGACY_STREAM.0
        | Flags::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.0;
    let version = CudaVersion::from_number(version);
    let too_new = version > driver().version && driver().version >= STRICT;
    if symbol.is_null() || address.is_null() || flags & !u64::from(known) != 0 || too_new {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the pointer is not null, and therefore a NUL-terminated string.
    let symbol = unsafe { CStr::from_ptr(symbol) };
    let per_thread = u64::from(Flags::CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.0) & flags != 0;
    let index = symbol
        .to_str()
        .map_err(|_| Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND)
        .and_then(|base| newest(base, version, per_thread));
    Ok(index.map(|index| match driver().exported(index) {
        Some(function) => function as *mut c_void,
        None => core::ptr::null_mut(),
    }))
}

/// Returns the index of the newest ABI of `base` that a program compiled for `version` knows.
fn newest(base: &str, version: CudaVersion, per_thread: bool) -> Result<usize, Status> {
    let mut status = Status::CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    let mut best: Option<(usize, Function)> = None;
    for (index, function) in Function::all().enumerate() {
        let is_it = function.symbol().starts_with(base) && function.base() == base;
        if !is_it || function.since() > driver().version {
            continue;
        }
        if function.since() > version {
            status = Status::CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            continue;
        }
        // If per-thread variants are requested, they come before all others.
        let rank = |function: Function| (function.is_per_thread(), function.since());
        let is_wanted = per_thread || !function.is_per_thread();
        if is_wanted && best.is_none_or(|(_, best)| rank(best) < rank(function)) {
            best = Some((index, function));
        }
    }
    best.map(|(index, _)| index).ok_or(status)
}
