//! The source of the functions: the driver's library, or an installed replacement.
//!
//! # Safety
//! The unsafe code in this module opens libraries, looks up symbols, and calls two functions
//! (`cuDriverGetVersion` and `cuGetProcAddress_v2`) directly, without the table of slots.

mod driver;
mod function;
mod table;

pub(crate) use driver::{GetProcAddress, GetVersion};
pub use function::{Function, MissingFunction, Unavailable};
pub(crate) use table::SLOTS;

use crate::bindings::CUresult;
use crate::library::{InstallError, LoadError, set_once};
use crate::version::CudaVersion;
use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, Ordering};
use driver::Driver;
use once_cell::sync::OnceCell;
use std::path::Path;

/// A source of functions. It returns the address of a symbol, or null.
type Installed = Box<dyn Fn(&CStr) -> *const c_void + Send + Sync>;

enum Source {
    Driver(Driver),
    Installed(Installed),
}

/// The source of this process. A failure to load is not stored, so the next call tries again.
static SOURCE: OnceCell<Source> = OnceCell::new();

/// The symbols that the source does not have. The source is asked only once for each.
static ABSENT: [AtomicBool; SLOTS.len()] = [const { AtomicBool::new(false) }; SLOTS.len()];

/// Whether [`close`] was called, after which no function is called.
static CLOSED: AtomicBool = AtomicBool::new(false);

#[inline]
fn source() -> Result<&'static Source, LoadError> {
    SOURCE.get_or_try_init(|| Driver::open_default().map(Source::Driver))
}

/// Returns the address of a function whose slot is empty, or null and the reason as a code. This is the
/// slow path of every raw call. It returns a pair rather than a `Result`, because a pair is returned in
/// registers.
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

/// Looks up a function and caches the result.
#[inline]
pub(crate) fn find(function: Function) -> Result<NonNull<c_void>, Unavailable> {
    let slot = &SLOTS[function.index()];
    if let Some(address) = NonNull::new(slot.address()) {
        return Ok(address);
    }
    let source = source().map_err(Unavailable::Load)?;
    let absent = &ABSENT[function.index()];
    if !absent.load(Ordering::Relaxed) {
        let address = match source {
            Source::Driver(driver) => driver.find(function),
            Source::Installed(find) => NonNull::new(find(function.symbol_c()).cast_mut()),
        };
        if let Some(address) = address {
            // Two threads may store the same address here.
            if !CLOSED.load(Ordering::Relaxed) {
                slot.fill(address);
            }
            return Ok(address);
        }
        absent.store(true, Ordering::Relaxed);
    }
    Err(Unavailable::Missing(MissingFunction { function, driver: version_of(source) }))
}

/// Returns the version of a source, or `None` if an installed source does not report one.
#[inline]
fn version_of(source: &Source) -> Option<CudaVersion> {
    if let Source::Driver(driver) = source {
        return Some(driver.version());
    }
    let name = Function::find("cuDriverGetVersion")?;
    if ABSENT[name.index()].load(Ordering::Relaxed) {
        return None;
    }
    let (address, _) = resolve(name.index());
    // SAFETY: a source's function of this name has this type.
    unsafe { driver::query_version(NonNull::new(address)?) }.ok()
}

/// Opens the driver now rather than at the first call.
///
/// # Errors
/// None of the files that were tried is a driver. The error lists them, each with the reason. A failure
/// is not stored: the next call tries again.
#[inline]
pub fn load() -> Result<(), LoadError> {
    source().map(|_| ())
}

/// Opens the driver in the file `path`. The path is resolved as by `dlopen`: a name without a folder is
/// searched for. On Windows, a path that is not absolute is searched for in the system folder.
///
/// # Errors
/// A driver has already been loaded or installed, or the file is not a driver.
///
/// # Safety
/// Opening a library runs its code, and this crate then trusts that code. The file must be a CUDA
/// driver, or another library whose functions have the ABI of the driver's functions.
pub unsafe fn load_from(path: impl AsRef<Path>) -> Result<(), InstallError> {
    set_once(&SOURCE, || {
        // SAFETY: the caller guarantees that the file is such a library.
        unsafe { Driver::open(path.as_ref()) }
            .map(Source::Driver)
            .map_err(|attempt| LoadError::of_driver(vec![attempt]))
    })
}

/// Replaces the driver by `find`. When a symbol is first used, `find` is called with its exact name and
/// returns its address, or null if it does not have the symbol.
///
/// Software drivers, tracing tools and tests use this function. No lock is held while `find` runs, and
/// two threads may call it for the same symbol at the same time. [`extension`] calls it with names that are
/// not those of this crate.
///
/// # Errors
/// A driver has already been loaded or installed. A process has one driver.
///
/// # Safety
/// For each name, `find` must return null or a function with that symbol's ABI (the type of the same
/// name in this crate) that is valid until the process ends and follows the same rules as the driver's
/// function.
pub unsafe fn install(
    find: impl Fn(&CStr) -> *const c_void + Send + Sync + 'static,
) -> Result<(), InstallError> {
    SOURCE.set(Source::Installed(Box::new(find))).map_err(|_| InstallError::InUse)
}

/// Returns the address of a function that NVIDIA's headers do not declare, such as an extension of a software driver, or
/// `None` if the driver or the installed source does not have it. The result is not cached.
///
/// An address says nothing about the type of the function. A caller asks only for a name that no other library uses for
/// a function of another type.
#[inline]
pub fn extension(name: &CStr) -> Option<NonNull<c_void>> {
    if CLOSED.load(Ordering::Relaxed) || name.to_str().ok().and_then(Function::find).is_some() {
        return None;
    }
    match source().ok()? {
        Source::Driver(driver) => driver.symbol(name),
        Source::Installed(find) => NonNull::new(find(name).cast_mut()),
    }
}

/// Permanently disables the driver: from now on every function returns `CUDA_ERROR_NOT_INITIALIZED`.
///
/// This is for a forked child of a process that has initialized CUDA. There, some driver functions
/// crash, and others return success without having done anything. This function only stores values, so
/// it may be called in a handler of `pthread_atfork`. Calls that other threads are making continue; a
/// forked child has no other threads.
#[inline]
pub fn close() {
    CLOSED.store(true, Ordering::Relaxed);
    for slot in &SLOTS {
        slot.clear();
    }
}

/// Returns the CUDA version that the driver of this process supports. `cuInit` is not required. Loads
/// the driver if it is not loaded yet.
///
/// # Errors
/// There is no driver. An installed source that does not report a version counts as the version of these
/// bindings.
#[inline]
pub fn driver_version() -> Result<CudaVersion, LoadError> {
    Ok(version_of(source()?).unwrap_or(CudaVersion::BINDINGS))
}

/// Returns the name under which the driver was opened. Returns `None` before that, or if a source was
/// installed.
#[inline]
pub fn library_path() -> Option<&'static Path> {
    match SOURCE.get()? {
        Source::Driver(driver) => Some(driver.path()),
        Source::Installed(_) => None,
    }
}
