//! Errors.

mod diagnostic;

pub use diagnostic::Diagnostic;

use crate::architecture::{Architecture, Target};
use crate::sys::{nvJitLinkResult, nvrtcResult};
use cuda_sys::{CudaVersion, LoadError};
use std::fmt;
use std::path::PathBuf;

/// A `Result` with [`Error`] as the default error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error type of this crate.
///
/// The type is `Send`, `Sync` and `'static`. The texts are available without a library.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// The library, NVRTC or nvJitLink, could not be opened. The value lists the places that were searched.
    Load {
        /// The name of the library.
        library: &'static str,
        /// The files that were tried, with the reason for each failure.
        error: LoadError,
    },
    /// The library does not have a function, because it is older.
    Missing(Box<MissingFunction>),
    /// NVRTC rejected the program or an option.
    Compile(Box<CompileError>),
    /// nvJitLink rejected an input or an option.
    Link(Box<LinkError>),
    /// A function of NVRTC failed for another reason.
    Nvrtc {
        /// The result code.
        code: nvrtcResult,
        /// The function that returned it.
        call: &'static str,
    },
    /// An argument is invalid.
    Invalid(Box<Invalid>),
    /// The driver rejected code that was compiled for another device or another driver. The value says what the
    /// code needs and what the device is.
    NotLoadable(Box<NotLoadable>),
    /// The driver returned an error.
    Driver(cuda_safe::Error),
    /// The folder of a [`Cache`](crate::Cache) cannot be used.
    Cache {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        reason: String,
    },
}

/// Code that cannot be loaded on a device.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotLoadable {
    /// The kind of code.
    pub target: Target,
    /// The architecture of the device.
    pub device: Architecture,
    /// The version of the driver.
    pub driver: CudaVersion,
    /// The reason why the cubin cannot be loaded: the error of the driver, or `None` if there is no cubin for this
    /// device.
    pub cubin: Option<cuda_safe::Error>,
    /// The reason why the PTX cannot be loaded: the error of the driver, or `None` if there is no PTX for this
    /// device.
    pub ptx: Option<cuda_safe::Error>,
}

/// A function that the library does not have.
#[derive(Clone, PartialEq, Eq)]
pub struct MissingFunction {
    /// The name of the function.
    pub function: &'static str,
    /// The CUDA version that introduced the function.
    pub since: Option<CudaVersion>,
    /// The name or path under which the library was opened.
    pub library: PathBuf,
    /// The version of the library, if it reports one.
    pub version: Option<CudaVersion>,
}

/// The failure of a compilation.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CompileError {
    /// The result code.
    pub code: nvrtcResult,
    /// The name of the program.
    pub program: String,
    /// The options that were passed to the compiler.
    pub options: Vec<String>,
    /// The first error of the log, if it names a line of the source.
    pub first: Option<Diagnostic>,
    /// The whole log of the compiler.
    pub log: String,
}

/// The failure of a link.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkError {
    /// The result code.
    pub code: nvJitLinkResult,
    /// The function that returned it.
    pub call: &'static str,
    /// The name of the input that was rejected, if it was one.
    pub input: Option<String>,
    /// The options that were passed to the linker.
    pub options: Vec<String>,
    /// The messages of the linker.
    pub log: String,
}

/// An argument that this crate rejects.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the text of each variant shows the fields")]
pub enum Invalid {
    /// A text for the library contains a NUL.
    Nul { what: String, position: usize },
    /// A program has two headers with the same name, which the library rejects.
    TwoHeaders { name: String },
    /// A path is not Unicode, on Windows.
    Path { path: PathBuf },
    /// The name was not registered with the program.
    UnknownName { name: String, registered: Vec<String> },
    /// The library does not compile for this architecture.
    UnsupportedArchitecture {
        architecture: Architecture,
        supported: Vec<Architecture>,
        version: CudaVersion,
    },
    /// Compiled code without what the operation needs.
    NoCode { operation: &'static str, needed: &'static str, target: String },
    /// A cubin for an architecture that cannot be linked to code for the linker's architecture.
    LinkedArchitecture { input: String, architecture: Architecture, linker: Architecture },
    /// A program has more headers, or a call more options, than the library can count.
    TooMany { what: &'static str, count: usize },
}

impl Error {
    /// Returns whether the library is not installed, or cannot be used with this device or this driver. A
    /// program that has PTX as a fallback then loads the PTX. Mistakes in the source or in the options are
    /// never hidden by such a fallback.
    ///
    /// | error | reason |
    /// |---|---|
    /// | [`Error::Load`] | NVRTC or nvJitLink is not installed |
    /// | [`Error::Missing`] | the library is too old |
    /// | [`Invalid::UnsupportedArchitecture`] | NVRTC does not compile for the device |
    /// | [`Error::NotLoadable`] | the driver is older than the compiler, and rejects code for this device |
    /// | [`Error::Compile`] with `NVRTC_ERROR_BUILTIN_OPERATION_FAILURE` | NVRTC does not find its library of built-in functions, `libnvrtc-builtins` |
    ///
    /// Code that was compiled for another device ([`Error::NotLoadable`] without an error of the driver) is
    /// not a reason.
    ///
    /// ```no_run
    /// use cuda_nvrtc::Program;
    /// use cuda_safe::{Context, Module};
    ///
    /// # const SOURCE: &str = "extern \"C\" __global__ void empty() {}";
    /// # const PTX: &str = "";
    /// fn load(context: &Context) -> cuda_nvrtc::Result<Module> {
    ///     let compile = || Program::new(SOURCE).compile_for(&context.device())?.load(context);
    ///     match compile() {
    ///         Err(error) if error.is_unavailable() => Ok(Module::from_ptx(context, PTX)?),
    ///         compiled => compiled,
    ///     }
    /// }
    /// # load(&Context::primary(&cuda_safe::Device::get(0)?)?)?;
    /// # Ok::<_, cuda_nvrtc::Error>(())
    /// ```
    #[inline]
    pub fn is_unavailable(&self) -> bool {
        match self {
            Self::Load { .. } | Self::Missing(_) => true,
            Self::NotLoadable(error) => error.cubin.is_some() || error.ptx.is_some(),
            Self::Invalid(invalid) => matches!(**invalid, Invalid::UnsupportedArchitecture { .. }),
            Self::Compile(error) => {
                error.code == nvrtcResult::NVRTC_ERROR_BUILTIN_OPERATION_FAILURE
            }
            Self::Link(_) | Self::Nvrtc { .. } | Self::Driver(_) | Self::Cache { .. } => false,
        }
    }
}

impl fmt::Display for Error {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load { library, error } => write!(
                f,
                "{library} was not found: install NVIDIA's toolkit or its package from PyPI or conda, or set \
                 CUDA_{}_LIBRARY to the library; {error}",
                library.to_uppercase()
            ),
            Self::Missing(error) => error.fmt(f),
            Self::Compile(error) => error.fmt(f),
            Self::Link(error) => error.fmt(f),
            Self::Nvrtc { code, call } => write!(f, "{call}: {code:?}"),
            Self::Invalid(error) => error.fmt(f),
            Self::NotLoadable(error) => error.fmt(f),
            Self::Driver(error) => error.fmt(f),
            Self::Cache { folder, reason } => {
                write!(f, "the folder {} cannot be used as a cache: {reason}", folder.display())
            }
        }
    }
}

cuda_sys::debug_text! { struct NotLoadable { target, device, driver, cubin, ptx } }

impl fmt::Display for NotLoadable {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { target, device, driver, cubin, ptx } = self;
        write!(
            f,
            "code for {target} cannot be loaded on this device of the architecture {device} with a driver for \
             CUDA {driver}; "
        )?;
        match cubin {
            Some(error) => write!(f, "its cubin: {error}; ")?,
            None => f.write_str("it has no cubin for this device; ")?,
        }
        match ptx {
            Some(error) => write!(f, "its PTX: {error}; ")?,
            None => f.write_str("it has no PTX for this device; ")?,
        }
        f.write_str("compile for Target::of_device, with an NVRTC whose major version is at most the driver's")
    }
}

cuda_sys::debug_text! { struct MissingFunction { function, since, library, version } }

impl fmt::Display for MissingFunction {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function)?;
        if let Some(since) = self.since {
            write!(f, " needs CUDA {since}")?;
        }
        write!(f, "; {}", self.library.display())?;
        match self.version {
            Some(version) => write!(f, " is of CUDA {version}"),
            None => f.write_str(" does not have it"),
        }
    }
}

cuda_sys::debug_text! { struct CompileError { code, program, options, first, log } }

impl fmt::Display for CompileError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot compile {:?}: {:?}", self.program, self.code)?;
        if !self.options.is_empty() {
            write!(f, " with {}", self.options.join(" "))?;
        }
        if let Some(Diagnostic { file, line, message, source }) = &self.first {
            write!(f, "; the first error is in line {line} of {file}: {message}")?;
            if let Some(source) = source {
                write!(f, ", in `{source}`")?;
            }
        }
        log(f, &self.log)
    }
}

cuda_sys::debug_text! { struct LinkError { code, call, input, options, log } }

impl fmt::Display for LinkError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {:?}", self.call, self.code)?;
        if let Some(input) = &self.input {
            write!(f, " for the input {input:?}")?;
        }
        write!(f, " with {}", self.options.join(" "))?;
        log(f, &self.log)
    }
}

#[inline]
fn log(f: &mut fmt::Formatter<'_>, log: &str) -> fmt::Result {
    match log.trim_end() {
        "" => Ok(()),
        log => write!(f, "\n{log}"),
    }
}

cuda_sys::debug_text! { enum Invalid {
    Nul { what, position }, TwoHeaders { name }, Path { path }, UnknownName { name, registered },
    UnsupportedArchitecture { architecture, supported, version }, NoCode { operation, needed, target },
    LinkedArchitecture { input, architecture, linker }, TooMany { what, count },
} }

impl fmt::Display for Invalid {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nul { what, position } => {
                write!(f, "{what} contains a NUL at byte {position}, zero-based")
            }
            Self::TwoHeaders { name } => {
                write!(f, "the program has two headers with the name {name:?}")
            }
            Self::Path { path } => {
                write!(f, "the path {} is not Unicode", path.display())
            }
            Self::UnknownName { name, registered } => {
                write!(
                    f,
                    "{name:?} was not registered with Program::with_name_expression before the compilation; "
                )?;
                match registered.is_empty() {
                    true => f.write_str("no name was"),
                    false => write!(f, "these were: {}", registered.join(", ")),
                }
            }
            Self::UnsupportedArchitecture { architecture, supported, version } => {
                let supported: Vec<String> = supported.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "NVRTC of CUDA {version} does not compile for the architecture {architecture}; it \
                     supports {}",
                    supported.join(", ")
                )
            }
            Self::NoCode { operation, needed, target } => {
                write!(f, "{operation} needs {needed}; this code is {target}")
            }
            Self::LinkedArchitecture { input, architecture, linker } => write!(
                f,
                "the input {input:?} is a cubin for sm_{architecture}, which cannot be linked to code for \
                 sm_{linker}"
            ),
            Self::TooMany { what, count } => write!(f, "{count} {what} are too many"),
        }
    }
}

cuda_sys::debug_text! { enum Error {
    Load { library, error }, Missing(_), Compile(_), Link(_), Nvrtc { code, call }, Invalid(_), NotLoadable(_), Driver(_),
    Cache { folder, reason },
} }

impl std::error::Error for Error {}

impl From<cuda_safe::Error> for Error {
    #[inline]
    fn from(error: cuda_safe::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<Invalid> for Error {
    #[inline]
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(Box::new(invalid))
    }
}
