//! Metadata of the functions: names, versions and availability.

use super::table::SYMBOLS;
use crate::library::LoadError;
use crate::version::CudaVersion;
use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use std::fmt;

/// A function of the driver API, identified by its symbol. Get one with [`find`](Self::find) or
/// [`all`](Self::all).
///
/// ```
/// use cuda_sys::{CudaVersion, Function};
///
/// let create = Function::find("cuGreenCtxCreate").expect("a symbol of the headers");
/// assert_eq!(create.since(), CudaVersion::new(12, 4));
/// if let Err(why) = create.address() {
///     println!("no green contexts here: {why}");
/// }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Function(usize);

impl Function {
    /// Returns every function of the bindings, in the order of the symbols' names.
    #[inline]
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..SYMBOLS.len()).map(Self)
    }

    /// Returns the function with this exact symbol, for example `cuMemAlloc_v2`.
    #[inline]
    pub fn find(symbol: &str) -> Option<Self> {
        SYMBOLS.binary_search_by(|(name, _)| name[..name.len() - 1].cmp(symbol)).ok().map(Self)
    }

    #[inline]
    pub(crate) fn at(index: usize) -> Self {
        Self(index)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0
    }

    /// Returns the name of the symbol.
    #[inline]
    pub fn symbol(self) -> &'static str {
        let (name, _) = SYMBOLS[self.0];
        &name[..name.len() - 1]
    }

    /// Returns the name of the symbol as a C string.
    #[inline]
    pub fn symbol_c(self) -> &'static CStr {
        // Each name in the table ends with a NUL and contains no other.
        CStr::from_bytes_until_nul(SYMBOLS[self.0].0.as_bytes()).unwrap_or_default()
    }

    /// Returns the name without the suffixes for ABI and stream mode, as used in NVIDIA's documentation
    /// and by `cuGetProcAddress`. For `cuMemcpyHtoD_v2_ptds` it is `cuMemcpyHtoD`.
    #[inline]
    pub fn base(self) -> &'static str {
        let name = self.symbol();
        let name = self.stream_suffix().map_or(name, |suffix| &name[..name.len() - suffix.len()]);
        match name.rsplit_once("_v") {
            Some((base, abi)) if abi.bytes().all(|byte| byte.is_ascii_digit()) => base,
            _ => name,
        }
    }

    #[inline]
    fn stream_suffix(self) -> Option<&'static str> {
        ["_ptsz", "_ptds"].into_iter().find(|suffix| self.symbol().ends_with(suffix))
    }

    /// Returns whether this is a variant for which stream 0 is the per-thread default stream.
    #[inline]
    pub fn is_per_thread(self) -> bool {
        self.stream_suffix().is_some()
    }

    /// Returns the first CUDA version whose driver has the function.
    #[inline]
    pub fn since(self) -> CudaVersion {
        CudaVersion::from_number(SYMBOLS[self.0].1)
    }

    /// Returns the address of the function. Loads the driver if it is not loaded yet.
    ///
    /// # Errors
    /// There is no driver, or the driver is too old or too new to have the function.
    #[inline]
    pub fn address(self) -> Result<NonNull<c_void>, Unavailable> {
        super::find(self)
    }

    /// Returns whether the driver of this process has the function. Loads the driver if it is not loaded
    /// yet.
    #[inline]
    pub fn is_available(self) -> bool {
        self.address().is_ok()
    }
}

impl fmt::Debug for Function {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// The reason why a function cannot be called.
#[derive(Clone)]
pub enum Unavailable {
    /// There is no driver.
    Load(LoadError),
    /// The driver does not have the function.
    Missing(MissingFunction),
}

impl fmt::Display for Unavailable {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Missing(error) => error.fmt(f),
        }
    }
}

crate::debug_text! { enum Unavailable { Load(_), Missing(_) } }

impl std::error::Error for Unavailable {}

/// The error that the driver does not have a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MissingFunction {
    /// The missing function.
    pub function: Function,
    /// The version of the driver, if known.
    pub driver: Option<CudaVersion>,
}

impl MissingFunction {
    /// Returns whether the function was introduced after this driver's version.
    #[inline]
    pub fn needs_newer_driver(&self) -> bool {
        self.driver.is_some_and(|driver| self.function.since() > driver)
    }
}

impl fmt::Display for MissingFunction {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.function.symbol();
        let since = self.function.since();
        match self.driver {
            Some(driver) if since > driver => {
                write!(f, "{name} needs CUDA {since}; this driver offers {driver}")
            }
            Some(driver) => write!(f, "this driver (CUDA {driver}) has no {name}"),
            None => write!(f, "the installed source of functions has no {name}"),
        }
    }
}

crate::debug_text! { struct MissingFunction { function, driver } }

impl std::error::Error for MissingFunction {}
