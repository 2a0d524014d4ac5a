//! Calls of NCCL: result codes and missing functions as errors.

use crate::error::{Error, Invalid, MissingFunction, NcclError, Result};
use crate::sys::{self, ncclResult_t};
use crate::version::NcclVersion;
use cuda_sys::SymbolError;
use std::ffi::{CString, c_int};
use std::sync::atomic::{AtomicU8, Ordering};

/// Calls a function of NCCL. The result is an [`Error`](crate::Error) if the function is missing or returns an error
/// code. `ncclInProgress` is no error: [`Shared::call`](crate::shared::Shared::call) waits for the end.
macro_rules! nccl {
    ($name:ident($($argument:expr),* $(,)?)) => {
        $crate::call::result(stringify!($name), $crate::sys::$name($($argument),*))
    };
}
pub(crate) use nccl;

/// Whether the work of a call continues after it has returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Complete,
    Continues,
}

/// Converts the result of a function.
#[inline]
pub(crate) fn result(
    call: &'static str,
    result: Result<ncclResult_t, SymbolError>,
) -> Result<Progress> {
    match result {
        Ok(ncclResult_t::ncclSuccess) => Ok(Progress::Complete),
        Ok(ncclResult_t::ncclInProgress) => Ok(Progress::Continues),
        Ok(code) => Err(failed(call, code)),
        Err(error) => Err(absent(call, error)),
    }
}

/// Returns the error of a call with its message.
#[cold]
#[inline(never)]
pub(crate) fn failed(call: &'static str, code: ncclResult_t) -> Error {
    Error::Nccl(Box::new(NcclError { code, call, message: last_message() }))
}

/// Returns the last message of NCCL, or nothing if the library does not have one.
#[inline]
fn last_message() -> String {
    // The library writes its messages into an array of this length, whose last byte is NUL.
    const LENGTH: usize = 1024;
    // SAFETY: since NCCL 2.13, the communicator is not used.
    let Ok(text) = (unsafe { sys::ncclGetLastError(core::ptr::null_mut()) }) else {
        return String::new();
    };
    let mut message = Vec::new();
    while !text.is_null() && message.len() < LENGTH - 1 {
        // SAFETY: the bytes before this one are not NUL, so it is in the array.
        let at = unsafe { text.add(message.len()) };
        // SAFETY: the byte is in the array, which the library can write. Another thread of the library may write it
        // meanwhile, so the read is atomic: the result may mix two messages.
        let byte = unsafe { AtomicU8::from_ptr(at.cast_mut().cast()) };
        match byte.load(Ordering::Relaxed) {
            0 => break,
            byte => message.push(byte),
        }
    }
    String::from_utf8_lossy(&message).trim().to_owned()
}

/// Converts the error of a function that could not be called.
#[cold]
#[inline]
pub(crate) fn absent(function: &'static str, error: SymbolError) -> Error {
    match error {
        SymbolError::Load(error) => Error::Load(error),
        SymbolError::Missing(missing) => Error::Missing(Box::new(MissingFunction {
            function,
            since: sys::since(function),
            library: missing.library,
            version: library_version(function),
        })),
    }
}

/// Returns the version of the library, unless the function for it is the missing one.
#[inline]
fn library_version(missing: &str) -> Option<NcclVersion> {
    (missing != "ncclGetVersion").then(version).and_then(Result::ok)
}

/// Converts a number to a C `int`.
#[inline]
pub(crate) fn int(what: &'static str, value: u32) -> Result<c_int> {
    c_int::try_from(value).map_err(|_| Invalid::TooLarge { what, value: value.into() }.into())
}

/// Converts a name to a C string.
#[inline]
pub(crate) fn c_string(what: &'static str, text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Invalid::Nul { what }.into())
}

impl NcclVersion {
    /// The version of the header from which the bindings were generated.
    pub const BINDINGS: Self = Self::new(sys::NCCL_MAJOR, sys::NCCL_MINOR, sys::NCCL_PATCH);
}

/// Returns the version of the library. Calls `ncclGetVersion`.
///
/// # Errors
/// NCCL is not installed.
///
/// Raw: [`ncclGetVersion`](fn@crate::sys::ncclGetVersion).
#[doc(alias = "ncclGetVersion")]
#[inline]
pub fn version() -> Result<NcclVersion> {
    let mut number = 0;
    // SAFETY: the pointer is valid for a write.
    unsafe { nccl!(ncclGetVersion(&raw mut number)) }?;
    Ok(NcclVersion::from_number(number.unsigned_abs()))
}
