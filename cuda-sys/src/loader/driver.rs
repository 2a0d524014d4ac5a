//! The driver as a library file.

use super::Function;
use crate::bindings::{CUdriverProcAddressQueryResult, CUresult, cuuint64_t};
use crate::library::{
    Attempt, AttemptFailure, DRIVER_VARIABLE, File, LoadError, Search, first_opened,
};
use crate::version::CudaVersion;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::NonNull;
use std::path::{Path, PathBuf};

/// The type of `cuDriverGetVersion`. [`functions`](crate::functions) checks that it is the type that the
/// headers declare.
pub(crate) type GetVersion = unsafe extern "C" fn(*mut c_int) -> CUresult;

/// The type of `cuGetProcAddress_v2`, which is checked in the same place.
pub(crate) type GetProcAddress = unsafe extern "C" fn(
    *const c_char,
    *mut *mut c_void,
    c_int,
    cuuint64_t,
    *mut CUdriverProcAddressQueryResult,
) -> CUresult;

/// An open driver.
pub(super) struct Driver {
    file: File,
    version: CudaVersion,
}

impl Driver {
    /// Opens the file that the environment variable names, or the system's driver.
    #[inline]
    pub(super) fn open_default() -> Result<Self, LoadError> {
        let named = std::env::var_os(DRIVER_VARIABLE).filter(|path| !path.is_empty());
        let candidates: Vec<PathBuf> = match named {
            Some(path) => vec![path.into()],
            // The name without a version is a development link, which may refer to a toolkit's stub.
            None if cfg!(windows) => vec!["nvcuda.dll".into()],
            None => vec!["libcuda.so.1".into(), "libcuda.so".into()],
        };
        // SAFETY: the configuration of the system or the user names this file as the driver.
        let open = |path: &PathBuf| unsafe { Self::open(path) };
        first_opened(&candidates, open).map_err(LoadError::of_driver)
    }

    /// Opens a file and queries its version.
    ///
    /// # Safety
    /// The file is a CUDA driver, a toolkit's stub of one, or not a library.
    #[inline]
    pub(super) unsafe fn open(path: &Path) -> Result<Self, Attempt> {
        let failed = |failure| Attempt { path: path.to_owned(), failure };
        // SAFETY: the caller guarantees that the file is one of these.
        let file = unsafe { File::open(path, Search::System) }?;

        let Some(address) = file.symbol(c"cuDriverGetVersion") else {
            return Err(failed(AttemptFailure::NoDriver));
        };
        // SAFETY: a driver's symbol of this name has this type.
        match unsafe { query_version(address) } {
            Ok(version) => Ok(Self { file, version }),
            Err(CUresult::CUDA_ERROR_STUB_LIBRARY) => Err(failed(AttemptFailure::Stub)),
            Err(code) => Err(failed(AttemptFailure::NoVersion(code))),
        }
    }

    #[inline]
    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    #[inline]
    pub(super) fn version(&self) -> CudaVersion {
        self.version
    }

    /// Returns the address of an exported symbol.
    #[inline]
    pub(super) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        self.file.symbol(name)
    }

    /// Returns the function with this exact name, which determines its ABI.
    #[inline]
    pub(super) fn find(&self, function: Function) -> Option<NonNull<c_void>> {
        (self.file.symbol(function.symbol_c())).or_else(|| self.find_by_version(function))
    }

    /// Looks up a function with `cuGetProcAddress_v2`, for a library that does not export the name.
    ///
    /// A version above the driver's is never requested: older drivers return an older ABI in that case,
    /// newer ones return nothing.
    #[inline]
    fn find_by_version(&self, function: Function) -> Option<NonNull<c_void>> {
        const LEGACY_STREAM: u64 = 1;
        const PER_THREAD_STREAM: u64 = 2;
        if function.since() > self.version {
            return None;
        }
        let address = self.file.symbol(c"cuGetProcAddress_v2")?;
        let mut base = function.base().as_bytes().to_vec();
        base.push(0);
        let mut found = core::ptr::null_mut();
        let mut status = CUdriverProcAddressQueryResult::default();
        let flags = if function.is_per_thread() { PER_THREAD_STREAM } else { LEGACY_STREAM };
        // SAFETY: a driver's symbol of this name has this type.
        let get = unsafe { core::mem::transmute::<*mut c_void, GetProcAddress>(address.as_ptr()) };
        // SAFETY: the name is NUL-terminated, and both pointers refer to local variables of the right
        // type.
        let result = unsafe {
            get(
                base.as_ptr().cast(),
                &raw mut found,
                function.since().number(),
                flags,
                &raw mut status,
            )
        };
        let exact = result.is_success()
            && status == CUdriverProcAddressQueryResult::CU_GET_PROC_ADDRESS_SUCCESS;
        NonNull::new(found).filter(|_| exact)
    }
}

/// Calls `cuDriverGetVersion`.
///
/// # Safety
/// The address is that of a function with the type [`GetVersion`].
#[inline]
pub(super) unsafe fn query_version(address: NonNull<c_void>) -> Result<CudaVersion, CUresult> {
    // SAFETY: the caller guarantees the type.
    let get_version = unsafe { core::mem::transmute::<*mut c_void, GetVersion>(address.as_ptr()) };
    let mut number = 0;
    // SAFETY: the pointer is to an `i32` that outlives the call.
    unsafe { get_version(&raw mut number) }.ok()?;
    Ok(CudaVersion::from_number(number))
}
