//! Functions of other libraries, found at run time as those of the driver are.

mod file;
mod rows;
mod search;

pub use file::{Attempt, AttemptFailure, LoadError};
pub(crate) use file::{DRIVER_VARIABLE, File, Search};
pub use search::LibrarySearch;

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, Ordering};
use once_cell::sync::OnceCell;
use std::fmt;
use std::path::{Path, PathBuf};

/// A shared library that is opened at its first use and never closed, for example NVRTC, NCCL or cuBLAS.
///
/// It is usually a `static`, with a table of functions by [`lazy_extern!`](crate::lazy_extern). A program
/// that uses it starts without the library.
///
/// ```
/// use cuda_sys::Library;
///
/// /// NVIDIA's run-time compiler.
/// // SAFETY: the initializers of NVRTC have no requirements.
/// static NVRTC: Library = unsafe {
///     Library::new(if cfg!(windows) {
///         &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"]
///     } else {
///         &["libnvrtc.so.13", "libnvrtc.so.12"]
///     })
/// };
///
/// match NVRTC.load() {
///     Ok(()) => println!("{:?}", NVRTC.path()),
///     Err(error) => println!("{error}"),
/// }
/// ```
///
/// The driver itself is not a `Library`: see [`load`](crate::load).
#[derive(Debug)]
pub struct Library {
    candidates: Candidates,
    source: OnceCell<Source>,
}

/// The source of a library's functions.
#[derive(Debug)]
enum Source {
    File(File),
    Installed(fn(&CStr) -> *const c_void),
}

/// The names or paths that a library may have.
#[derive(Clone, Copy, Debug)]
enum Candidates {
    Names(&'static [&'static str]),
    Search(fn() -> Vec<PathBuf>),
}

impl Library {
    /// Returns a library that is not open yet. The first of `names` that can be opened is used.
    ///
    /// A name without a folder is searched for by the dynamic linker, as `dlopen` or `LoadLibraryW` do.
    /// Names should contain the version of the ABI, because one without a version may refer to any version.
    ///
    /// # Safety
    /// Opening a library runs its initializers. This must be sound for any library with one of these names,
    /// at any time and on any thread.
    #[inline]
    pub const unsafe fn new(names: &'static [&'static str]) -> Self {
        Self { candidates: Candidates::Names(names), source: OnceCell::new() }
    }

    /// Returns a library that is not open yet, for a library that the dynamic linker alone may not find. The
    /// first file of those that `search` returns that can be opened is used.
    ///
    /// `search` runs when the library is needed and is not open. It returns names, for which the dynamic
    /// linker searches, and paths. It must not use the library itself. If nothing can be opened, the error
    /// lists everything that `search` returned.
    ///
    /// # Safety
    /// Opening a library runs its initializers. This must be sound for any library in one of these files, at
    /// any time and on any thread.
    #[inline]
    pub const unsafe fn with_search(search: fn() -> Vec<PathBuf>) -> Self {
        Self { candidates: Candidates::Search(search), source: OnceCell::new() }
    }

    /// Opens the library now rather than at the first use of a function.
    ///
    /// # Errors
    /// No name could be opened. The error lists the names, each with the message of the dynamic linker. A
    /// failure is not stored: the next use tries again.
    #[inline]
    pub fn load(&self) -> Result<(), LoadError> {
        self.source().map(|_| ())
    }

    /// Opens the library in the file `path` instead of the names. The path is resolved as by `dlopen`.
    ///
    /// # Errors
    /// The library is already open, or the file cannot be opened.
    ///
    /// # Safety
    /// Opening a library runs its initializers, which must be sound. The functions of the file must have
    /// the signatures that the program declares for this library.
    pub unsafe fn load_from(&self, path: impl AsRef<Path>) -> Result<(), InstallError> {
        set_once(&self.source, || {
            // SAFETY: the caller guarantees that the initializers may run.
            unsafe { File::open(path.as_ref(), Search::Linker) }
                .map(Source::File)
                .map_err(|attempt| LoadError::of_library(vec![attempt]))
        })
    }

    /// Uses the functions that `find` returns instead of a file: an implementation in this program, for tests.
    /// `find` returns null for a symbol that it does not have.
    ///
    /// # Errors
    /// The library is already open.
    ///
    /// # Safety
    /// A function that `find` returns for a name must have the signature that the program declares for this
    /// library, and must be valid until the process ends.
    #[inline]
    pub unsafe fn install(&self, find: fn(&CStr) -> *const c_void) -> Result<(), InstallError> {
        set_once(&self.source, || Ok(Source::Installed(find)))
    }

    /// Returns the name or path under which the library was opened. Returns `None` if it is not open, or if its
    /// functions were [installed](Self::install).
    #[inline]
    pub fn path(&self) -> Option<&Path> {
        match self.source.get()? {
            Source::File(file) => Some(file.path()),
            Source::Installed(_) => None,
        }
    }

    /// Returns the address of a symbol. Opens the library if it is not open yet.
    ///
    /// # Errors
    /// The library cannot be opened, or does not have the symbol.
    #[inline]
    pub fn symbol(&self, name: &CStr) -> Result<NonNull<c_void>, SymbolError> {
        let source = self.source().map_err(SymbolError::Load)?;
        let (found, library) = match source {
            Source::File(file) => (file.symbol(name), file.path()),
            Source::Installed(find) => {
                (NonNull::new(find(name).cast_mut()), Path::new("the installed library"))
            }
        };
        found.ok_or_else(|| {
            SymbolError::Missing(MissingSymbol {
                symbol: name.to_string_lossy().into_owned(),
                library: library.to_owned(),
            })
        })
    }

    #[inline]
    fn source(&self) -> Result<&Source, LoadError> {
        self.source.get_or_try_init(|| {
            // SAFETY: the caller of the constructor guarantees that the initializers may run.
            let open = |path: &Path| unsafe { File::open(path, Search::Linker) };
            match self.candidates {
                Candidates::Names(names) => first_opened(names, |name| open(Path::new(name))),
                Candidates::Search(search) => first_opened(&search(), |path| open(path)),
            }
            .map(Source::File)
            .map_err(LoadError::of_library)
        })
    }

    /// Fills the slot of a function of `lazy_extern!`. `name` ends with a NUL.
    #[doc(hidden)]
    #[cold]
    #[inline(never)]
    pub fn resolve(&self, slot: &Slot, name: &'static str) -> Result<*mut c_void, SymbolError> {
        let name = CStr::from_bytes_until_nul(name.as_bytes()).unwrap_or_default();
        let address = self.symbol(name)?;
        slot.fill(address);
        Ok(address.as_ptr())
    }
}

/// Opens candidates in order until one succeeds. Returns the failed attempts if none does.
pub(crate) fn first_opened<C, T>(
    candidates: &[C],
    mut open: impl FnMut(&C) -> Result<T, Attempt>,
) -> Result<T, Vec<Attempt>> {
    let mut tried = Vec::new();
    for candidate in candidates {
        match open(candidate) {
            Ok(opened) => return Ok(opened),
            Err(attempt) => tried.push(attempt),
        }
    }
    Err(tried)
}

/// Sets an empty cell to what `open` returns.
///
/// # Errors
/// The cell is already set, or `open` fails.
pub(crate) fn set_once<T>(
    cell: &OnceCell<T>,
    open: impl FnOnce() -> Result<T, LoadError>,
) -> Result<(), InstallError> {
    let mut ours = false;
    cell.get_or_try_init(|| {
        ours = true;
        open().map_err(InstallError::Load)
    })?;
    match ours {
        true => Ok(()),
        false => Err(InstallError::InUse),
    }
}

/// The address of a function, or null until the function is first used. For [`lazy_extern!`] only.
///
/// [`lazy_extern!`]: crate::lazy_extern
#[doc(hidden)]
#[derive(Debug)]
pub struct Slot(AtomicPtr<c_void>);

impl Slot {
    /// Returns an empty slot.
    #[allow(clippy::new_without_default, reason = "only the macro creates slots")]
    #[inline]
    pub const fn new() -> Self {
        Self(AtomicPtr::new(core::ptr::null_mut()))
    }

    /// Returns the address, or null.
    #[inline]
    pub fn address(&self) -> *mut c_void {
        self.0.load(Ordering::Acquire)
    }

    /// Stores the address. Two threads may store the same address.
    #[inline]
    pub(crate) fn fill(&self, address: NonNull<c_void>) {
        self.0.store(address.as_ptr(), Ordering::Release);
    }

    /// Stores null.
    #[inline]
    pub(crate) fn clear(&self) {
        self.0.store(core::ptr::null_mut(), Ordering::Relaxed);
    }
}

/// Declares functions of a [`Library`], each of which is found in the library at its first call.
///
/// The declarations are those of an `extern` block. Each becomes a function with the same name and
/// parameters that returns a `Result` with a [`SymbolError`]: if there is no such library, or it does not
/// have the function, a call returns that error and does nothing else. Later calls are an atomic load, a
/// branch and an indirect call.
///
/// ```
/// use cuda_sys::{Library, SymbolError, lazy_extern};
///
/// /// The C mathematics library.
/// // SAFETY: it has no initializers with requirements.
/// static LIBM: Library = unsafe { Library::new(&["libm.so.6"]) };
///
/// lazy_extern! {
///     // SAFETY: `math.h` has these declarations.
///     unsafe extern "C" in LIBM {
///         /// Returns the cosine of an angle in radians.
///         pub fn cos(x: f64) -> f64;
///         fn scalbn(x: f64, exponent: i32) -> f64;
///     }
/// }
///
/// // SAFETY: `cos` and `scalbn` accept every value.
/// match unsafe { cos(0.0) } {
///     Ok(one) => assert_eq!(unsafe { scalbn(one, 3) }?, 8.0),
///     Err(error @ SymbolError::Load(_)) => println!("another system: {error}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<_, SymbolError>(())
/// ```
///
/// After `in` is the path of a `static` of type [`Library`]. The parameters must have names. Functions with
/// variable arguments are not supported; [`Library::symbol`] returns the address of any symbol. It also
/// tells whether a function is available without calling it.
///
/// # Safety
/// The word `unsafe` is a promise, as in an `unsafe extern` block: each function that the library has under
/// one of these names has the declared signature and ABI.
#[macro_export]
macro_rules! lazy_extern {
    // The function in a slot, as a pointer of type `$type`. `$resolve` returns the address if the slot is empty,
    // or leaves the enclosing function. The functions of the driver are called in this way too. This arm has no
    // `unsafe` block, so a program cannot use it without one.
    (@function $slot:expr, $resolve:expr, $type:ty) => {{
        let mut address = $slot.address();
        if address.is_null() {
            address = $resolve;
        }
        ::core::mem::transmute::<*mut ::core::ffi::c_void, $type>(address)
    }};

    (@output) => { () };
    (@output $output:ty) => { $output };

    (unsafe extern $abi:literal in $library:path {
        $(
            $(#[$meta:meta])*
            $vis:vis fn $name:ident($($param:ident: $ty:ty),* $(,)?) $(-> $output:ty)?;
        )*
    }) => {$(
        $(#[$meta])*
        ///
        /// # Safety
        /// The caller must follow the rules of the C function.
        ///
        /// # Errors
        /// The library cannot be opened, or does not have this function.
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "the names are those of C")]
        #[inline]
        $vis unsafe fn $name(
            $($param: $ty),*
        ) -> ::core::result::Result<$crate::lazy_extern!(@output $($output)?), $crate::SymbolError> {
            static __SLOT: $crate::Slot = $crate::Slot::new();
            // SAFETY: the address is that of the symbol with the name of this function, in a library that is
            // never closed, whose functions are valid until the process ends. The declaration of the function
            // is a promise that the symbol has this type.
            let function = unsafe {
                $crate::lazy_extern!(
                    @function
                    __SLOT,
                    match $crate::Library::resolve(
                        &$library,
                        &__SLOT,
                        ::core::concat!(::core::stringify!($name), "\0"),
                    ) {
                        ::core::result::Result::Ok(address) => address,
                        ::core::result::Result::Err(error) => {
                            return ::core::result::Result::Err(error);
                        }
                    },
                    unsafe extern $abi fn($($ty),*) $(-> $output)?
                )
            };
            // SAFETY: the caller follows the rules of the function.
            ::core::result::Result::Ok(unsafe { function($($param),*) })
        }
    )*};
}

/// The reason why [`install`](crate::install), [`load_from`](crate::load_from) or
/// [`Library::load_from`] had no effect.
#[derive(Clone)]
#[non_exhaustive]
pub enum InstallError {
    /// The process already has a driver, or the library is already open.
    InUse,
    /// The file is not a driver, or cannot be opened.
    Load(LoadError),
}

impl fmt::Display for InstallError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str(
                "the driver or library is already in use; call install or load_from before its first use",
            ),
            Self::Load(error) => error.fmt(f),
        }
    }
}

crate::debug_text! { enum InstallError { InUse, Load(_) } }

impl std::error::Error for InstallError {}

/// The reason why a symbol of a [`Library`] cannot be used.
#[derive(Clone)]
pub enum SymbolError {
    /// The library cannot be opened.
    Load(LoadError),
    /// The library does not have the symbol.
    Missing(MissingSymbol),
}

impl fmt::Display for SymbolError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Missing(error) => error.fmt(f),
        }
    }
}

crate::debug_text! { enum SymbolError { Load(_), Missing(_) } }

impl std::error::Error for SymbolError {}

/// The error that a [`Library`] does not have a symbol.
#[derive(Clone, PartialEq, Eq)]
pub struct MissingSymbol {
    /// The name of the symbol.
    pub symbol: String,
    /// The name or path under which the library was opened.
    pub library: PathBuf,
}

impl fmt::Display for MissingSymbol {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has no {}", self.library.display(), self.symbol)
    }
}

crate::debug_text! { struct MissingSymbol { symbol, library } }

impl std::error::Error for MissingSymbol {}
