//! Calls of the libraries: result codes and missing functions as errors, and texts for C.

use crate::architecture::Architecture;
use crate::error::{Error, Invalid, MissingFunction, Result};
use crate::sys::{self, nvJitLinkResult, nvrtcResult};
use cuda_sys::{CudaVersion, SymbolError};
use std::ffi::{CStr, CString, c_char};
use std::path::Path;

/// Calls a function of NVRTC. The result is an [`Error`](crate::Error) if the function is missing or returns an
/// error code.
macro_rules! nvrtc {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::call::nvrtc_result(stringify!($name), $crate::sys::$name($($argument),*))
    };
}
pub(crate) use nvrtc;

#[inline]
pub(crate) fn nvrtc_result(
    call: &'static str,
    result: Result<nvrtcResult, SymbolError>,
) -> Result<()> {
    match result {
        Ok(nvrtcResult::NVRTC_SUCCESS) => Ok(()),
        Ok(code) => Err(Error::Nvrtc { code, call }),
        Err(error) => Err(absent("NVRTC", call, error)),
    }
}

/// Converts the error of a function that could not be called.
#[cold]
#[inline]
pub(crate) fn absent(library: &'static str, function: &'static str, error: SymbolError) -> Error {
    match error {
        SymbolError::Load(error) => Error::Load { library, error },
        SymbolError::Missing(missing) => Error::Missing(Box::new(MissingFunction {
            function,
            since: sys::since(function),
            library: missing.library,
            version: match library {
                "NVRTC" if function != "nvrtcVersion" => version().ok(),
                "nvJitLink" if function != "nvJitLinkVersion" => linker_version().ok(),
                _ => None,
            },
        })),
    }
}

/// Returns the version of NVRTC. Calls `nvrtcVersion`.
///
/// # Errors
/// NVRTC is not installed.
///
/// Raw: [`nvrtcVersion`](fn@crate::sys::nvrtcVersion).
#[doc(alias = "nvrtcVersion")]
#[inline]
pub fn version() -> Result<CudaVersion> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are valid for writes.
    unsafe { nvrtc!(nvrtcVersion(&raw mut major, &raw mut minor)) }?;
    let number = major.saturating_mul(1000).saturating_add(minor.saturating_mul(10));
    Ok(CudaVersion::from_number(number))
}

/// Returns the version of nvJitLink. Calls `nvJitLinkVersion`.
///
/// # Errors
/// nvJitLink is not installed, or is older than CUDA 12.3.
///
/// Raw: [`nvJitLinkVersion`](fn@crate::sys::nvJitLinkVersion).
#[doc(alias = "nvJitLinkVersion")]
#[inline]
pub fn linker_version() -> Result<CudaVersion> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: both pointers are valid for writes.
    match unsafe { sys::nvJitLinkVersion(&raw mut major, &raw mut minor) } {
        Ok(nvJitLinkResult::NVJITLINK_SUCCESS) => {
            let number = major.saturating_mul(1000).saturating_add(minor.saturating_mul(10));
            Ok(CudaVersion::from_number(i32::try_from(number).unwrap_or(i32::MAX)))
        }
        Ok(code) => Err(Error::Link(Box::new(crate::LinkError {
            code,
            call: "nvJitLinkVersion",
            input: None,
            options: Vec::new(),
            log: String::new(),
        }))),
        Err(error) => Err(absent("nvJitLink", "nvJitLinkVersion", error)),
    }
}

/// Returns the architectures that NVRTC compiles for, in ascending order. Calls `nvrtcGetSupportedArchs`.
///
/// # Errors
/// NVRTC is not installed.
///
/// Raw: [`nvrtcGetSupportedArchs`](fn@crate::sys::nvrtcGetSupportedArchs),
/// [`nvrtcGetNumSupportedArchs`](fn@crate::sys::nvrtcGetNumSupportedArchs).
#[doc(alias = "nvrtcGetSupportedArchs")]
#[doc(alias = "nvrtcGetNumSupportedArchs")]
#[inline]
pub fn supported_architectures() -> Result<Vec<Architecture>> {
    let mut count = 0;
    // SAFETY: the pointer is valid for a write.
    unsafe { nvrtc!(nvrtcGetNumSupportedArchs(&raw mut count)) }?;
    let mut numbers = vec![0; usize::try_from(count).unwrap_or(0)];
    // SAFETY: the buffer has space for `count` numbers, which is constant for a library.
    unsafe { nvrtc!(nvrtcGetSupportedArchs(numbers.as_mut_ptr())) }?;
    let numbers = numbers.into_iter().filter_map(|number| u32::try_from(number).ok());
    Ok(numbers.filter_map(Architecture::from_number).collect())
}

/// Converts a text to a C string. `what` names it in the error.
pub(crate) fn c_string(text: impl Into<Vec<u8>>, what: impl FnOnce() -> String) -> Result<CString> {
    CString::new(text).map_err(|error| {
        let position = error.nul_position();
        Invalid::Nul { what: what(), position }.into()
    })
}

/// Returns the bytes of a path that C functions expect.
#[inline]
pub(crate) fn path_bytes(path: &Path) -> Result<Vec<u8>> {
    #[cfg(unix)]
    return Ok(std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).to_owned());
    #[cfg(not(unix))]
    match path.to_str() {
        Some(text) => Ok(text.as_bytes().to_owned()),
        None => Err(Invalid::Path { path: path.to_owned() }.into()),
    }
}

/// Returns pointers to texts, for a C function.
#[inline]
pub(crate) fn pointers(texts: &[CString]) -> Vec<*const c_char> {
    texts.iter().map(|text| text.as_ptr()).collect()
}

/// Returns texts as they are displayed.
#[inline]
pub(crate) fn displayed(texts: &[CString]) -> Vec<String> {
    texts.iter().map(|text| text.to_string_lossy().into_owned()).collect()
}

/// Returns the text in a buffer that ends at the first NUL.
#[inline]
pub(crate) fn text(buffer: &[u8]) -> String {
    match CStr::from_bytes_until_nul(buffer) {
        Ok(text) => text.to_string_lossy().into_owned(),
        Err(_) => String::from_utf8_lossy(buffer).into_owned(),
    }
}
