//! The driver as a library file.

use crate::{CUdriverProcAddressQueryResult, CUresult, CudaVersion, Function};
use core::ffi::{CStr, c_void};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::fmt;
use std::path::{Path, PathBuf};

/// Names another file than the system's driver.
const VARIABLE: &str = "CUDA_SYS_LIBRARY";

/// An open driver. It stays open: threads may be in it, and its handlers run at exit.
pub(super) struct Library {
    handle: ManuallyDrop<libloading::Library>,
    path: PathBuf,
    version: CudaVersion,
}

impl Library {
    /// Opens what the environment names, or the system's driver.
    pub(super) fn open_default() -> Result<Self, LoadError> {
        let named = std::env::var_os(VARIABLE).filter(|path| !path.is_empty());
        let candidates: Vec<PathBuf> = match named {
            Some(path) => vec![path.into()],
            // The name without a version is the development link, which a toolkit's stub may own.
            None if cfg!(windows) => vec!["nvcuda.dll".into()],
            None => vec!["libcuda.so.1".into(), "libcuda.so".into()],
        };
        let mut tried = Vec::new();
        for path in candidates {
            // SAFETY: this is the driver that the system's or the user's configuration names.
            match unsafe { Self::open(&path) } {
                Ok(library) => return Ok(library),
                Err(attempt) => tried.push(attempt),
            }
        }
        Err(LoadError::new(tried))
    }

    /// Opens one file and asks it for its version.
    ///
    /// # Safety
    /// The file is a CUDA driver, a toolkit's stub of one, or no library at all.
    pub(super) unsafe fn open(path: &Path) -> Result<Self, Attempt> {
        let failed = |failure| Attempt {
            path: path.to_owned(),
            failure,
        };
        // SAFETY: the caller's promise.
        let handle = unsafe { open_file(path) }
            .map_err(|error| failed(AttemptFailure::NotOpened(error.to_string())))?;
        let handle = ManuallyDrop::new(handle);

        let Some(address) = symbol(&handle, c"cuDriverGetVersion") else {
            return Err(failed(AttemptFailure::NoDriver));
        };
        let mut number = 0;
        // SAFETY: a driver's symbol of this name has this type.
        let get_version = unsafe {
            core::mem::transmute::<*mut c_void, crate::cuDriverGetVersion>(address.as_ptr())
        };
        // SAFETY: the pointer is to an i32 that lives through the call.
        let result = unsafe { get_version(&raw mut number) };
        match result {
            CUresult::CUDA_SUCCESS => Ok(Self {
                handle,
                path: path.to_owned(),
                version: CudaVersion::from_number(number),
            }),
            CUresult::CUDA_ERROR_STUB_LIBRARY => Err(failed(AttemptFailure::Stub)),
            code => Err(failed(AttemptFailure::NoVersion(code))),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn version(&self) -> CudaVersion {
        self.version
    }

    /// The function by its exact name, which fixes its ABI.
    pub(super) fn find(&self, function: Function) -> Option<NonNull<c_void>> {
        symbol(&self.handle, function.symbol_c()).or_else(|| self.find_by_version(function))
    }

    /// The fallback for a library that does not export the name: the driver's own look-up.
    ///
    /// A version above the driver's is never asked for: older drivers answer that with an older
    /// ABI, newer ones with nothing.
    fn find_by_version(&self, function: Function) -> Option<NonNull<c_void>> {
        const LEGACY_STREAM: u64 = 1;
        const PER_THREAD_STREAM: u64 = 2;
        if function.since() > self.version {
            return None;
        }
        let address = symbol(&self.handle, c"cuGetProcAddress_v2")?;
        let mut base = function.base().as_bytes().to_vec();
        base.push(0);
        let mut found = core::ptr::null_mut();
        let mut status = CUdriverProcAddressQueryResult::default();
        let flags = if function.is_per_thread() {
            PER_THREAD_STREAM
        } else {
            LEGACY_STREAM
        };
        // SAFETY: a driver's symbol of this name has this type.
        let get = unsafe {
            core::mem::transmute::<*mut c_void, crate::cuGetProcAddress_v2>(address.as_ptr())
        };
        // SAFETY: the name ends with a NUL, and both pointers are to locals of the right type.
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

#[cfg(unix)]
unsafe fn open_file(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: the caller's promise.
    unsafe { libloading::Library::new(path) }
}

#[cfg(windows)]
unsafe fn open_file(path: &Path) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::windows::{LOAD_LIBRARY_SEARCH_SYSTEM32, Library};
    // A bare name means the system's folder, never the program's or the current one.
    let flags = if path.is_absolute() {
        0
    } else {
        LOAD_LIBRARY_SEARCH_SYSTEM32
    };
    // SAFETY: the caller's promise.
    unsafe { Library::load_with_flags(path, flags) }.map(Into::into)
}

fn symbol(handle: &libloading::Library, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: only the address is taken; whoever calls it says why its type is right.
    let symbol = unsafe { handle.get::<*mut c_void>(name.to_bytes_with_nul()) };
    NonNull::new(*symbol.ok()?)
}

/// There is no driver: what was tried, and why it would not do.
#[derive(Clone, Debug)]
pub struct LoadError {
    tried: Box<[Attempt]>,
}

/// One file that was tried.
#[derive(Clone, Debug)]
pub struct Attempt {
    /// The name or path given to the dynamic linker.
    pub path: PathBuf,
    /// What was wrong with it.
    pub failure: AttemptFailure,
}

/// Why a file is not the driver.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AttemptFailure {
    /// The dynamic linker could not open it; its words.
    NotOpened(String),
    /// A library without `cuDriverGetVersion`.
    NoDriver,
    /// The CUDA toolkit's stub, made for linking: it has the names and no driver behind them.
    Stub,
    /// It did not tell its version.
    NoVersion(CUresult),
}

impl LoadError {
    pub(super) fn new(tried: Vec<Attempt>) -> Self {
        Self {
            tried: tried.into(),
        }
    }

    /// The files that were tried, in order.
    pub fn tried(&self) -> &[Attempt] {
        &self.tried
    }

    /// Whether a toolkit's stub library was found instead of a driver.
    pub fn is_stub(&self) -> bool {
        let stub = |attempt: &Attempt| matches!(attempt.failure, AttemptFailure::Stub);
        self.tried.iter().any(stub)
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no CUDA driver:")?;
        for (number, attempt) in self.tried.iter().enumerate() {
            let separator = if number == 0 { "" } else { ";" };
            let path = attempt.path.display();
            match &attempt.failure {
                // The linker's words usually begin with the path.
                AttemptFailure::NotOpened(words)
                    if attempt
                        .path
                        .to_str()
                        .is_some_and(|path| words.starts_with(path)) =>
                {
                    write!(f, "{separator} {words}")?;
                }
                AttemptFailure::NotOpened(words) => write!(f, "{separator} {path}: {words}")?,
                AttemptFailure::NoDriver => {
                    write!(f, "{separator} {path} (a library without driver functions)")?;
                }
                AttemptFailure::Stub => write!(
                    f,
                    "{separator} {path} (the CUDA toolkit's stub for linking, not a driver)"
                )?,
                AttemptFailure::NoVersion(code) => {
                    write!(f, "{separator} {path} (does not tell its version: {code})")?;
                }
            }
        }
        write!(
            f,
            "; install NVIDIA's driver, or name its library in {VARIABLE}"
        )
    }
}

impl std::error::Error for LoadError {}
