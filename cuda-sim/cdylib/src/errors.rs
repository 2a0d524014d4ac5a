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

/// The descriptions of drivers 550, 555 and 580, one code a line. Programs search them for words such as "out of
/// memory".
const TEXTS: &str = include_str!("error_texts.txt");

/// Returns the description of a code: the driver's, or that of `cuda-sys` for a newer code.
fn text_of(code: CUresult) -> Option<&'static str> {
    let lines = TEXTS.lines().filter_map(|line| line.split_once(' '));
    let mut texts = lines.filter(|(number, _)| number.parse() == Ok(code.0));
    texts.next().map(|(_, text)| text).or_else(|| code.text())
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
