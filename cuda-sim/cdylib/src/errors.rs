//! Names and descriptions of error codes as C strings.

use core::ffi::{CStr, c_char};
use cuda_sys::CUresult;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::sync::LazyLock;

/// The name and description of each known code.
static CODES: LazyLock<BTreeMap<CUresult, (CString, CString)>> = LazyLock::new(|| {
    // 999 is the highest code. The driver returns it for errors that it cannot classify.
    let codes = (0..=CUresult::CUDA_ERROR_UNKNOWN.0).map(CUresult);
    codes
        .filter_map(|code| {
            let name = CString::new(code.name()?).ok()?;
            let text = CString::new(text_of(code)?).ok()?;
            Some((code, (name, text)))
        })
        .collect()
});

/// Returns the description of a code: the driver's, where it is known to differ from that of `cuda-sys`.
fn text_of(code: CUresult) -> Option<&'static str> {
    match code {
        CUresult::CUDA_SUCCESS => Some("no error"),
        _ => code.text(),
    }
}

/// `cuGetErrorName`.
pub(crate) unsafe extern "C" fn name(code: CUresult, place: *mut *const c_char) -> CUresult {
    let name = CODES.get(&code).map(|(name, _)| name.as_c_str());
    // SAFETY: the caller guarantees that `place` is null or a place for a pointer.
    unsafe { tell(name, place) }
}

/// `cuGetErrorString`.
pub(crate) unsafe extern "C" fn text(code: CUresult, place: *mut *const c_char) -> CUresult {
    let text = CODES.get(&code).map(|(_, text)| text.as_c_str());
    // SAFETY: the caller guarantees that `place` is null or a place for a pointer.
    unsafe { tell(text, place) }
}

/// Writes a string. For an unknown code it writes null and returns an error.
///
/// # Safety
/// `place` is null or a place for a pointer.
unsafe fn tell(text: Option<&'static CStr>, place: *mut *const c_char) -> CUresult {
    if place.is_null() {
        return CUresult::CUDA_ERROR_INVALID_VALUE;
    }
    let start = text.map_or(core::ptr::null(), CStr::as_ptr);
    // SAFETY: the pointer is not null, and therefore is a place for a pointer.
    unsafe { place.write(start) };
    match text {
        Some(_) => CUresult::CUDA_SUCCESS,
        None => CUresult::CUDA_ERROR_INVALID_VALUE,
    }
}
