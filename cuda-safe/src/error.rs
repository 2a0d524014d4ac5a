//! What can go wrong.

use crate::invalid::Invalid;
use cuda_sys::{CUresult, CudaVersion, LoadError, MissingFunction};
use std::fmt;
use std::sync::Arc;

/// The result of what may fail here.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why something did not happen.
///
/// The texts need no driver. Small, `Send`, `Sync` and `'static`: it goes through any error type.
///
/// Whatever calls the driver may fail with [`Load`](Self::Load), [`Missing`](Self::Missing),
/// [`Forked`](Self::Forked), with the fatal codes of earlier work, and in a host function with
/// `CUDA_ERROR_NOT_PERMITTED`, as the driver takes few calls there. Under "Errors" the functions of
/// this crate name what comes in addition.
///
/// ```no_run
/// use cuda_safe::{CUresult, Context, Device, DeviceBuffer, Error};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// match DeviceBuffer::<u8>::zeroed(&stream, 1 << 45) {
///     Ok(buffer) => println!("{} bytes", buffer.len()),
///     Err(error) if error.code() == Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
///         println!("less will do");
///     }
///     Err(Error::Missing(function)) => println!("a newer driver would do: {function}"),
///     Err(error) => return Err(error),
/// }
/// # Ok::<_, Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// A function of the driver answered an error code.
    Driver(DriverError),
    /// There is no driver to call: what was tried, and why it would not do.
    Load(LoadError),
    /// The driver does not have a function: which one, and since when there is one.
    Missing(MissingFunction),
    /// There is a driver, and no GPU that this process may use.
    NoDevice,
    /// An argument was refused before the driver saw it, or cannot be right.
    Invalid(Box<Invalid>),
    /// The driver's compiler refused a module: its code and its log.
    Compile(Box<CompileError>),
    /// The PTX is of a newer version than the driver's compiler knows.
    PtxTooNew {
        /// The version in the text's `.version` directive, where it has one.
        ptx: Option<(u32, u32)>,
        /// What the driver offers.
        driver: CudaVersion,
    },
    /// A host function that the stream ran panicked, with these words.
    HostFunctionPanicked(String),
    /// A wait inside of a host function, or of the report hook, which might never end.
    InHostFunction,
    /// This process is a fork of one that had started CUDA; the driver does not work here.
    Forked,
    /// A [memory manager](crate::manager::MemoryManager) failed with an error of its own. This crate returns
    /// the error to the caller unchanged.
    Manager(Arc<dyn std::error::Error + Send + Sync>),
}

/// The code that a function of the driver answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriverError {
    /// The code.
    pub code: CUresult,
    /// The function of the driver API, by the name of its symbol.
    pub call: &'static str,
}

/// A module that the driver's compiler did not take.
#[derive(Clone, Debug)]
pub struct CompileError {
    /// What the loading function answered.
    pub error: DriverError,
    /// What the compiler wrote; empty where it wrote nothing.
    pub log: String,
}

impl Error {
    /// The driver's code, if a function of the driver answered one.
    pub fn code(&self) -> Option<CUresult> {
        match self {
            Self::Driver(error) => Some(error.code),
            Self::Compile(error) => Some(error.error.code),
            Self::NoDevice => Some(CUresult::CUDA_ERROR_NO_DEVICE),
            _ => None,
        }
    }

    /// Whether the process cannot use the GPU any more.
    ///
    /// After such an error (an illegal address in a kernel, say) every further call in every
    /// context of this process fails, and no reset helps: only a new process does.
    pub fn is_fatal(&self) -> bool {
        self.code().is_some_and(is_fatal)
    }

    /// Whether it says that the driver did not take what it was given. Each call may also answer with
    /// the error of earlier work, and then nobody knows: as for a code that is not known.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Driver(error) => matches!(
                error.code,
                CUresult::CUDA_ERROR_INVALID_VALUE
                    | CUresult::CUDA_ERROR_OUT_OF_MEMORY
                    | CUresult::CUDA_ERROR_NOT_INITIALIZED
                    | CUresult::CUDA_ERROR_DEINITIALIZED
                    | CUresult::CUDA_ERROR_INVALID_CONTEXT
                    | CUresult::CUDA_ERROR_INVALID_HANDLE
                    | CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED
                    | CUresult::CUDA_ERROR_NOT_PERMITTED
                    | CUresult::CUDA_ERROR_NOT_SUPPORTED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT
                    | CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
            ),
            // There was nothing to call.
            _ => true,
        }
    }
}

/// Codes that stay: measured for an illegal address, by their documentation for the others.
pub(crate) fn is_fatal(code: CUresult) -> bool {
    matches!(
        code,
        CUresult::CUDA_ERROR_ECC_UNCORRECTABLE
            | CUresult::CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUresult::CUDA_ERROR_ILLEGAL_ADDRESS
            | CUresult::CUDA_ERROR_LAUNCH_TIMEOUT
            | CUresult::CUDA_ERROR_ASSERT
            | CUresult::CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUresult::CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUresult::CUDA_ERROR_MISALIGNED_ADDRESS
            | CUresult::CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUresult::CUDA_ERROR_INVALID_PC
            | CUresult::CUDA_ERROR_LAUNCH_FAILED
            | CUresult::CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUresult::CUDA_ERROR_CONTAINED
            | CUresult::CUDA_ERROR_MPS_CLIENT_TERMINATED
            | CUresult::CUDA_ERROR_EXTERNAL_DEVICE
    )
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver(error) => error.fmt(f),
            Self::Load(error) => error.fmt(f),
            Self::Missing(error) => error.fmt(f),
            Self::NoDevice => f.write_str(
                "the NVIDIA driver is here and reports no GPU: none is installed, or \
                 CUDA_VISIBLE_DEVICES hides it",
            ),
            Self::Invalid(what) => what.fmt(f),
            Self::Compile(error) => {
                error.error.fmt(f)?;
                if !error.log.is_empty() {
                    write!(f, "\n{}", error.log)?;
                }
                Ok(())
            }
            Self::PtxTooNew { ptx, driver } => {
                match ptx {
                    Some((major, minor)) => write!(f, "PTX {major}.{minor}")?,
                    None => f.write_str("the PTX")?,
                }
                write!(
                    f,
                    " is newer than the compiler in this driver (CUDA {driver})"
                )
            }
            Self::HostFunctionPanicked(message) => {
                write!(f, "a host function in the stream panicked: {message}")
            }
            Self::InHostFunction => f.write_str(
                "no wait inside of a host function: the stream goes on only when it returns",
            ),
            Self::Forked => f.write_str(
                "this process was forked from one that had started CUDA: the driver works only \
                 in a process that starts it itself",
            ),
            Self::Manager(error) => write!(f, "the memory manager failed: {error}"),
        }
    }
}

impl fmt::Display for DriverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.call, self.code)?;
        if is_fatal(self.code) {
            f.write_str(" (perhaps of earlier work on the device)")?;
        }
        Ok(())
    }
}

impl std::error::Error for DriverError {}

/// No source: the text says everything already.
impl std::error::Error for Error {}

impl From<DriverError> for Error {
    fn from(error: DriverError) -> Self {
        Self::Driver(error)
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(Box::new(invalid))
    }
}

/// A value that an operation did not take, with the reason: nothing is lost by a failure.
///
/// `?` turns it into the [`Error`] and drops the value.
#[derive(Debug)]
pub struct Rejected<T> {
    /// Why.
    pub error: Error,
    /// What was given.
    pub value: T,
}

impl<T> Rejected<T> {
    pub(crate) fn new(error: impl Into<Error>, value: T) -> Self {
        Self {
            error: error.into(),
            value,
        }
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T: fmt::Debug> std::error::Error for Rejected<T> {}

impl<T> From<Rejected<T>> for Error {
    fn from(rejected: Rejected<T>) -> Self {
        rejected.error
    }
}
