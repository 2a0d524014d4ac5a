//! Library files that are open, and the error if none of them can be opened.

use crate::bindings::CUresult;
use core::ffi::{CStr, c_void};
use core::mem::ManuallyDrop;
use core::ptr::NonNull;
use std::fmt;
use std::path::{Path, PathBuf};

/// The environment variable that names a file to use instead of the system's driver.
pub(crate) const DRIVER_VARIABLE: &str = "CUDA_SYS_LIBRARY";

/// An open library. It is never closed, because threads may be running in it, and its handlers run at
/// exit.
#[derive(Debug)]
pub(crate) struct File {
    handle: ManuallyDrop<libloading::Library>,
    path: PathBuf,
}

/// The folders in which a file is searched for, if its path is only a name. This makes a difference on
/// Windows only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Search {
    /// Those of the system's dynamic linker.
    Linker,
    /// Only the system folder, never the program's folder or the current one.
    System,
}

impl File {
    /// Opens a file.
    ///
    /// # Safety
    /// It must be sound to run the initializers of the library and of the libraries that it needs.
    #[inline]
    pub(crate) unsafe fn open(path: &Path, search: Search) -> Result<Self, Attempt> {
        let not_opened = |why: String| Attempt {
            path: path.to_owned(),
            failure: AttemptFailure::NotOpened(why),
        };
        // Miri would end the program.
        if cfg!(miri) {
            return Err(not_opened("Miri opens no libraries".to_owned()));
        }
        // SAFETY: the caller guarantees that the file may be opened.
        match unsafe { open(path, search) } {
            Ok(handle) => Ok(Self { handle: ManuallyDrop::new(handle), path: path.to_owned() }),
            Err(error) => Err(not_opened(error.to_string())),
        }
    }

    /// Returns the path that was passed to [`open`](Self::open).
    #[inline]
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the address of a symbol. Returns `None` if the library does not have it.
    #[inline]
    pub(crate) fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        // SAFETY: only the address is taken. Code that calls it argues why its type is right.
        let symbol = unsafe { self.handle.get::<*mut c_void>(name.to_bytes_with_nul()) };
        NonNull::new(*symbol.ok()?)
    }
}

#[cfg(unix)]
#[inline]
unsafe fn open(path: &Path, _: Search) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: the caller guarantees that the file may be opened.
    unsafe { libloading::Library::new(path) }
}

#[cfg(windows)]
#[inline]
unsafe fn open(path: &Path, search: Search) -> Result<libloading::Library, libloading::Error> {
    use libloading::os::windows::{
        LOAD_LIBRARY_SEARCH_SYSTEM32, LOAD_WITH_ALTERED_SEARCH_PATH, Library,
    };
    let flags = match search {
        // The libraries that this one needs are searched for in its folder too.
        Search::Linker if path.is_absolute() => LOAD_WITH_ALTERED_SEARCH_PATH,
        Search::System if !path.is_absolute() => LOAD_LIBRARY_SEARCH_SYSTEM32,
        Search::Linker | Search::System => 0,
    };
    // SAFETY: the caller guarantees that the file may be opened.
    unsafe { Library::load_with_flags(path, flags) }.map(Into::into)
}

/// The error that the driver or a [`Library`](crate::Library) was not found. It lists the files that were
/// tried, with the reason for each.
#[derive(Clone, PartialEq, Eq)]
pub struct LoadError {
    tried: Box<[Attempt]>,
    is_driver: bool,
}

/// A file that was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The name or path that was passed to the dynamic linker.
    pub path: PathBuf,
    /// The reason why the file was rejected.
    pub failure: AttemptFailure,
}

/// The reason why a file was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AttemptFailure {
    /// The dynamic linker could not open it. Contains the linker's message.
    NotOpened(String),
    /// The library does not have `cuDriverGetVersion`.
    NoDriver,
    /// The library is the CUDA toolkit's stub, which is only for linking: it has the symbols but no
    /// driver.
    Stub,
    /// `cuDriverGetVersion` failed with this code.
    NoVersion(CUresult),
}

impl LoadError {
    #[inline]
    pub(crate) fn of_driver(tried: Vec<Attempt>) -> Self {
        Self { tried: tried.into(), is_driver: true }
    }

    #[inline]
    pub(super) fn of_library(tried: Vec<Attempt>) -> Self {
        Self { tried: tried.into(), is_driver: false }
    }

    /// Returns the files that were tried, in order.
    #[inline]
    pub fn tried(&self) -> &[Attempt] {
        &self.tried
    }

    /// Returns whether a toolkit's stub library was found instead of a driver.
    #[inline]
    pub fn is_stub(&self) -> bool {
        let stub = |attempt: &Attempt| matches!(attempt.failure, AttemptFailure::Stub);
        self.tried.iter().any(stub)
    }
}

impl fmt::Display for LoadError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A library may be in many places. Each has a line of its own.
        let (title, separators) = match self.is_driver {
            true => ("no CUDA driver:", [" ", "; "]),
            false => ("cannot open the library:", ["\n  "; 2]),
        };
        f.write_str(title)?;
        for (number, attempt) in self.tried.iter().enumerate() {
            let separator = separators[number.min(1)];
            let path = attempt.path.display();
            match &attempt.failure {
                // The linker's message usually begins with the path.
                AttemptFailure::NotOpened(words)
                    if attempt.path.to_str().is_some_and(|path| words.starts_with(path)) =>
                {
                    write!(f, "{separator}{words}")?;
                }
                AttemptFailure::NotOpened(words) => write!(f, "{separator}{path}: {words}")?,
                AttemptFailure::NoDriver => {
                    write!(f, "{separator}{path} (a library without driver functions)")?;
                }
                AttemptFailure::Stub => write!(
                    f,
                    "{separator}{path} (the CUDA toolkit's stub for linking, not a driver)"
                )?,
                AttemptFailure::NoVersion(code) => {
                    write!(f, "{separator}{path} (cannot report its version: {code})")?;
                }
            }
        }
        if !self.is_driver {
            return Ok(());
        }
        write!(f, "; install NVIDIA's driver, or set {DRIVER_VARIABLE} to its library")
    }
}

crate::debug_text! { struct LoadError { tried, is_driver } }

impl std::error::Error for LoadError {}
