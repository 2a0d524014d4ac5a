//! Where the functions come from: the driver's library, or whatever was installed in its place.
//!
//! # Safety
//! The unsafe code here opens libraries, asks them for symbols, and calls two functions
//! (`cuDriverGetVersion`, `cuGetProcAddress_v2`) by hand, before or beside the table of slots.

mod library;

pub use library::{Attempt, AttemptFailure, LoadError};

use crate::bindings::{slot, slots};
use crate::{CUresult, CudaVersion, Function, MissingFunction, Unavailable, cuDriverGetVersion};
use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use library::Library;
use once_cell::sync::OnceCell;
use std::fmt;
use std::path::Path;

/// A source of functions: from a symbol's name to its address, or null.
type Installed = Box<dyn Fn(&CStr) -> *const c_void + Send + Sync>;

enum Source {
    Library(Library),
    Installed(Installed),
}

/// The one source of this process. A failure to load is not kept: the next call tries again.
static SOURCE: OnceCell<Source> = OnceCell::new();

/// The symbols that the source does not have: it is asked once.
static ABSENT: [AtomicBool; crate::bindings::SYMBOLS.len()] =
    [const { AtomicBool::new(false) }; crate::bindings::SYMBOLS.len()];

/// Whether nothing is called any more.
static CLOSED: AtomicBool = AtomicBool::new(false);

fn source() -> Result<&'static Source, LoadError> {
    SOURCE.get_or_try_init(|| Library::open_default().map(Source::Library))
}

/// The address of a function whose slot is still empty, or null and the code that says why: the
/// cold half of every raw call. (A pair and no `Result`: it comes back in registers.)
#[cold]
#[inline(never)]
pub(crate) fn resolve(index: usize) -> (*mut c_void, CUresult) {
    if CLOSED.load(Ordering::Relaxed) {
        return (core::ptr::null_mut(), CUresult::CUDA_ERROR_NOT_INITIALIZED);
    }
    let code = match find(Function::at(index)) {
        Ok(address) => return (address.as_ptr(), CUresult::CUDA_SUCCESS),
        Err(Unavailable::Load(error)) if error.is_stub() => CUresult::CUDA_ERROR_STUB_LIBRARY,
        Err(Unavailable::Load(_)) => CUresult::CUDA_ERROR_NOT_INITIALIZED,
        Err(Unavailable::Missing(missing)) if missing.needs_newer_driver() => {
            CUresult::CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
        }
        Err(Unavailable::Missing(_)) => CUresult::CUDA_ERROR_NOT_FOUND,
    };
    (core::ptr::null_mut(), code)
}

/// Finds a function, and remembers where it is or that it is not there.
pub(crate) fn find(function: Function) -> Result<NonNull<c_void>, Unavailable> {
    let slot = slot(function.index());
    if let Some(address) = NonNull::new(slot.load(Ordering::Acquire)) {
        return Ok(address);
    }
    let source = source().map_err(Unavailable::Load)?;
    let absent = &ABSENT[function.index()];
    if !absent.load(Ordering::Relaxed) {
        let address = match source {
            Source::Library(library) => library.find(function),
            Source::Installed(find) => NonNull::new(find(function.symbol_c()).cast_mut()),
        };
        if let Some(address) = address {
            // Two threads may come here with the same answer.
            if !CLOSED.load(Ordering::Relaxed) {
                slot.store(address.as_ptr(), Ordering::Release);
            }
            return Ok(address);
        }
        absent.store(true, Ordering::Relaxed);
    }
    Err(Unavailable::Missing(MissingFunction {
        function,
        driver: version_of(source),
    }))
}

/// The version that a source answers; none if an installed one does not tell.
fn version_of(source: &Source) -> Option<CudaVersion> {
    if let Source::Library(library) = source {
        return Some(library.version());
    }
    let name = Function::find("cuDriverGetVersion")?;
    if ABSENT[name.index()].load(Ordering::Relaxed) {
        return None;
    }
    let mut number = 0;
    // SAFETY: the pointer is to an i32 that lives through the call.
    let result = unsafe { cuDriverGetVersion(&raw mut number) };
    result
        .is_success()
        .then_some(CudaVersion::from_number(number))
}

/// Opens the driver now instead of at the first call.
///
/// # Errors
/// No file that was tried is a driver: the error lists them, each with the reason. Nothing is lost by
/// it: the next call tries again.
pub fn load() -> Result<(), LoadError> {
    source().map(|_| ())
}

/// Opens the driver in the file `path`, which the dynamic linker takes as `dlopen` does: a name
/// without a folder is looked for. (On Windows: a path that is not absolute, in the system folder.)
///
/// # Errors
/// Something has been loaded or installed already, or the file is no driver.
///
/// # Safety
/// Opening a library runs its code, and all of this crate then trusts it: the file has to be a
/// CUDA driver, or another library whose functions have the ABI of the driver's.
pub unsafe fn load_from(path: impl AsRef<Path>) -> Result<(), InstallError> {
    let mut ours = false;
    SOURCE
        .get_or_try_init(|| {
            ours = true;
            // SAFETY: the caller's promise.
            unsafe { Library::open(path.as_ref()) }
                .map(Source::Library)
                .map_err(|attempt| InstallError::Load(LoadError::new(vec![attempt])))
        })
        .and(if ours {
            Ok(())
        } else {
            Err(InstallError::InUse)
        })
}

/// Puts `find` in the place of the driver: it is asked for each symbol by its exact name when the
/// symbol is first used, and answers its address, or null if it has none.
///
/// Software drivers, tracing and tests come in this way. No lock is held while `find` runs; two
/// threads may ask for the same symbol at once.
///
/// # Errors
/// Something has been loaded or installed already: a process has one driver.
///
/// # Safety
/// What `find` answers for a name is null or a function of that symbol's ABI (the type of the
/// same name in this crate), valid until the process ends, that keeps the rules the driver keeps.
pub unsafe fn install(
    find: impl Fn(&CStr) -> *const c_void + Send + Sync + 'static,
) -> Result<(), InstallError> {
    SOURCE
        .set(Source::Installed(Box::new(find)))
        .map_err(|_| InstallError::InUse)
}

/// Calls no function any more: from now on each answers `CUDA_ERROR_NOT_INITIALIZED`, for ever.
///
/// For a forked child of a process that has started CUDA, where the driver crashes in some functions and
/// answers success in others without having done anything. It stores and nothing else, and so may be
/// called in a handler of `pthread_atfork`. (What another thread is calling meanwhile goes on; in a
/// forked child there is none.)
pub fn close() {
    CLOSED.store(true, Ordering::Relaxed);
    for slot in slots() {
        slot.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// The version of the driver API that this process's driver offers. `cuInit` is not needed.
///
/// # Errors
/// There is no driver. An installed source that does not tell its version counts as the version
/// of these bindings.
pub fn driver_version() -> Result<CudaVersion, LoadError> {
    Ok(version_of(source()?).unwrap_or(CudaVersion::BINDINGS))
}

/// The name under which the driver was opened; none before that, or if a source was installed.
pub fn library_path() -> Option<&'static Path> {
    match SOURCE.get()? {
        Source::Library(library) => Some(library.path()),
        Source::Installed(_) => None,
    }
}

/// Why [`install`] or [`load_from`] did not take effect.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InstallError {
    /// Functions come from somewhere already.
    InUse,
    /// The file is no driver.
    Load(LoadError),
}

impl fmt::Display for InstallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str(
                "the process has a driver already: install or load_from come before its first use",
            ),
            Self::Load(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InstallError {}
