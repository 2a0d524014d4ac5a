//! The functions as data: names, since when, whether this driver has them.

use crate::bindings::{self, SYMBOLS};
use crate::{CudaVersion, LoadError, loader};
use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use std::fmt;

/// One function of the driver API.
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
    /// Every function of the bindings, in the order of their names.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        (0..SYMBOLS.len()).map(Self)
    }

    /// The function with the exact name of its symbol (`cuMemAlloc_v2`).
    pub fn find(symbol: &str) -> Option<Self> {
        SYMBOLS
            .binary_search_by(|(name, _)| name[..name.len() - 1].cmp(symbol))
            .ok()
            .map(Self)
    }

    pub(crate) fn at(index: usize) -> Self {
        Self(index)
    }

    pub(crate) fn index(self) -> usize {
        self.0
    }

    /// The name of the symbol.
    pub fn symbol(self) -> &'static str {
        let (name, _) = SYMBOLS[self.0];
        &name[..name.len() - 1]
    }

    /// The name of the symbol, as C has it.
    pub fn symbol_c(self) -> &'static CStr {
        // The table ends each name with the one NUL that it has.
        CStr::from_bytes_until_nul(SYMBOLS[self.0].0.as_bytes()).unwrap_or_default()
    }

    /// The name without ABI and stream mode, as in NVIDIA's documentation and
    /// `cuGetProcAddress`: `cuMemcpyHtoD` of `cuMemcpyHtoD_v2_ptds`.
    pub fn base(self) -> &'static str {
        let name = self.symbol();
        let name = self
            .stream_suffix()
            .map_or(name, |suffix| &name[..name.len() - suffix.len()]);
        match name.rsplit_once("_v") {
            Some((base, abi)) if abi.bytes().all(|byte| byte.is_ascii_digit()) => base,
            _ => name,
        }
    }

    fn stream_suffix(self) -> Option<&'static str> {
        ["_ptsz", "_ptds"]
            .into_iter()
            .find(|suffix| self.symbol().ends_with(suffix))
    }

    /// Whether stream 0 is the calling thread's own default stream in this variant.
    pub fn is_per_thread(self) -> bool {
        self.stream_suffix().is_some()
    }

    /// The first CUDA version whose driver has the function.
    pub fn since(self) -> CudaVersion {
        CudaVersion::from_number(SYMBOLS[self.0].1)
    }

    /// Where the function is. Loads the driver if that has not been done.
    ///
    /// # Errors
    /// There is no driver, or it is too old, or too new, to have the function.
    pub fn address(self) -> Result<NonNull<c_void>, Unavailable> {
        loader::find(self)
    }

    /// A function of this one's type that answers `CUDA_ERROR_NOT_SUPPORTED`: for an
    /// [installed](crate::install) source that does not have them all.
    pub fn not_supported(self) -> *const c_void {
        bindings::not_supported(self.0)
    }

    /// Whether the driver of this process has the function.
    pub fn is_available(self) -> bool {
        self.address().is_ok()
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// Why a function cannot be called.
#[derive(Clone, Debug)]
pub enum Unavailable {
    /// There is no driver.
    Load(LoadError),
    /// There is one, and it has no such function.
    Missing(MissingFunction),
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => error.fmt(f),
            Self::Missing(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Unavailable {}

/// The driver does not have a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingFunction {
    /// Which one.
    pub function: Function,
    /// The version of the driver, where it tells.
    pub driver: Option<CudaVersion>,
}

impl MissingFunction {
    /// Whether a newer driver would have it.
    pub fn needs_newer_driver(&self) -> bool {
        self.driver
            .is_some_and(|driver| self.function.since() > driver)
    }
}

impl fmt::Display for MissingFunction {
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

impl std::error::Error for MissingFunction {}
