//! Errors.

use crate::sys::ncclResult_t;
use crate::version::NcclVersion;
use cuda_sys::LoadError;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// A `Result` with [`Error`] as the default error type.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The error type of this crate.
///
/// The type is `Send`, `Sync` and `'static`. The texts are available without a library.
#[derive(Clone)]
#[non_exhaustive]
pub enum Error {
    /// NCCL could not be opened. The value lists the places that were searched.
    Load(LoadError),
    /// NCCL does not have a function, because it is older.
    Missing(Box<MissingFunction>),
    /// A function of NCCL failed, or a communicator has failed since.
    Nccl(Box<NcclError>),
    /// The communicator was aborted.
    Aborted,
    /// The other ranks did not join within the [timeout](crate::Config::timeout).
    Timeout(Duration),
    /// An argument is invalid.
    Invalid(Box<Invalid>),
    /// The driver returned an error.
    Driver(cuda_safe::Error),
    /// The exchange of a [`UniqueId`](crate::UniqueId) failed.
    Exchange {
        /// The file or the address.
        place: String,
        /// The reason.
        reason: String,
    },
}

/// A function that the library does not have.
#[derive(Clone, PartialEq, Eq)]
pub struct MissingFunction {
    /// The name of the function.
    pub function: &'static str,
    /// The version of NCCL that introduced the function.
    pub since: Option<NcclVersion>,
    /// The name or path under which the library was opened.
    pub library: PathBuf,
    /// The version of the library, if it reports one.
    pub version: Option<NcclVersion>,
}

/// The failure of a function of NCCL. The message is that of `ncclGetLastError`.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[doc(alias = "ncclGetLastError")]
pub struct NcclError {
    /// The result code.
    pub code: ncclResult_t,
    /// The function that returned it. `ncclCommGetAsyncError` returns errors of work that was enqueued before.
    pub call: &'static str,
    /// The last message of NCCL, which may be of another call. It can be empty.
    pub message: String,
}

/// An argument that this crate rejects.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the text of each variant shows the fields")]
pub enum Invalid {
    /// The stream of a communicator must belong to the primary context.
    NotPrimary { context: String },
    /// A buffer is bound to another stream than that of the communicator.
    OtherStream { what: &'static str, its: String, communicator: String },
    /// A buffer has another length than the operation needs.
    Length { what: &'static str, len: usize, expected: usize },
    /// The length of a buffer is not a multiple of the number of ranks.
    NotDivisible { what: &'static str, len: usize, ranks: u32 },
    /// There is no such rank.
    Rank { what: &'static str, rank: u32, ranks: u32 },
    /// A list of streams or ranks that must not be empty.
    Empty { what: &'static str },
    /// The root must pass this buffer.
    NoBuffer { what: &'static str },
    /// A name contains a NUL.
    Nul { what: &'static str },
    /// The stream is captured. [`capture_group`](crate::capture_group) enqueues operations in a capture.
    Captured,
    /// The bytes of an id have another length.
    IdBytes { len: usize },
    /// An environment variable is not set, or is not a number.
    Variable { name: &'static str, value: Option<String> },
    /// A number is larger than a C `int`.
    TooLarge { what: &'static str, value: u64 },
    /// Registered memory does not belong to the device of the communicator.
    OtherDevice { memory: u32, communicator: u32 },
    /// The library is older than NCCL 2.23, in which ranks of a process write to the buffers of each other with the
    /// number of elements of the sender.
    OldLibrary { version: NcclVersion, oldest: NcclVersion },
}

impl Error {
    /// Returns whether the GPU or the communicator cannot be used afterwards: other ranks have failed, the
    /// communicator was aborted, or an error of the driver is [fatal](cuda_safe::Error::is_fatal).
    #[inline]
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Nccl(error) => !matches!(
                error.code,
                ncclResult_t::ncclInvalidArgument | ncclResult_t::ncclInvalidUsage
            ),
            Self::Aborted => true,
            Self::Driver(error) => error.is_fatal(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(error) => write!(
                f,
                "NCCL was not found: install it, for example the package nvidia-nccl-cu13 from PyPI, or set \
                 CUDA_NCCL_LIBRARY to the library; {error}"
            ),
            Self::Missing(error) => error.fmt(f),
            Self::Nccl(error) => error.fmt(f),
            Self::Aborted => f.write_str("the communicator was aborted"),
            Self::Timeout(after) => write!(
                f,
                "not all ranks have joined the communicator within {after:?}; check that every rank uses the same id \
                 and number of ranks"
            ),
            Self::Invalid(error) => error.fmt(f),
            Self::Driver(error) => error.fmt(f),
            Self::Exchange { place, reason } => {
                write!(f, "the unique id cannot be exchanged through {place}: {reason}")
            }
        }
    }
}

cuda_sys::debug_text! { struct MissingFunction { function, since, library, version } }

impl fmt::Display for MissingFunction {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.function)?;
        if let Some(since) = self.since {
            write!(f, " needs NCCL {since}")?;
        }
        write!(f, "; {}", self.library.display())?;
        match self.version {
            Some(version) => write!(f, " is NCCL {version}"),
            None => f.write_str(" does not have it"),
        }
    }
}

cuda_sys::debug_text! { struct NcclError { code, call, message } }

impl fmt::Display for NcclError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.code {
            ncclResult_t::ncclUnhandledCudaError => "a call of CUDA failed",
            ncclResult_t::ncclSystemError => "a call of the system failed",
            ncclResult_t::ncclInternalError => "an internal error",
            ncclResult_t::ncclInvalidArgument => "an invalid argument",
            ncclResult_t::ncclInvalidUsage => "an invalid use of the library",
            ncclResult_t::ncclRemoteError => "another rank or the network failed",
            ncclResult_t::ncclTimeout => "a timeout",
            _ => "an unknown error",
        };
        write!(f, "{}: {:?} ({}): {text}", self.call, self.code, self.code.0)?;
        match self.message.as_str() {
            "" => Ok(()),
            message => write!(f, "; NCCL says: {message}"),
        }
    }
}

impl fmt::Display for Invalid {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPrimary { context } => write!(
                f,
                "a communicator needs a stream of the primary context of its device, or of a green context on it; \
                 this stream belongs to {context}"
            ),
            Self::OtherStream { what, its, communicator } => write!(
                f,
                "{what} is bound to {its}, but the communicator works on {communicator}; bind the buffer to that \
                 stream with `rebind`"
            ),
            Self::Length { what, len, expected } => {
                write!(f, "{what} has {len} elements, but this operation needs {expected}")
            }
            Self::NotDivisible { what, len, ranks } => write!(
                f,
                "{what} has {len} elements, which cannot be divided into equal parts for {ranks} ranks"
            ),
            Self::Rank { what, rank, ranks } => {
                write!(f, "{what} is {rank}, but the communicator has {ranks} ranks, from 0 on")
            }
            Self::Empty { what } => write!(f, "{what} is empty"),
            Self::NoBuffer { what } => write!(f, "the root must pass {what}"),
            Self::Nul { what } => write!(f, "{what} contains a NUL"),
            Self::Captured => f.write_str(
                "the stream of the communicator is captured; `capture_group` enqueues operations in a capture",
            ),
            Self::IdBytes { len } => write!(f, "a unique id has 128 bytes, not {len}"),
            Self::Variable { name, value: None } => write!(
                f,
                "the environment variable {name} is not set; torchrun and compatible launchers set it"
            ),
            Self::Variable { name, value: Some(value) } => {
                write!(f, "the environment variable {name} is {value:?}, which is not a valid number")
            }
            Self::TooLarge { what, value } => {
                write!(f, "{what} is {value}, but NCCL accepts at most {}", i32::MAX)
            }
            Self::OtherDevice { memory, communicator } => write!(
                f,
                "memory of device {memory} cannot be registered with a communicator of device {communicator}"
            ),
            Self::OldLibrary { version, oldest } => write!(
                f,
                "NCCL {version} checks no sizes when ranks of a process write to the buffers of each other; install \
                 NCCL {oldest} or later, or set CUDA_NCCL_LIBRARY to it"
            ),
        }
    }
}

cuda_sys::debug_text! { enum Error {
    Load(_), Missing(_), Nccl(_), Aborted, Timeout(_), Invalid(_), Driver(_), Exchange { place, reason },
} }

impl std::error::Error for Error {
    #[inline]
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Load(error) => Some(error),
            Self::Driver(error) => Some(error),
            _ => None,
        }
    }
}

cuda_sys::debug_text! { enum Invalid {
    NotPrimary { context }, OtherStream { what, its, communicator }, Length { what, len, expected },
    NotDivisible { what, len, ranks }, Rank { what, rank, ranks }, Empty { what }, NoBuffer { what }, Nul { what }, Captured,
    IdBytes { len }, Variable { name, value }, TooLarge { what, value }, OtherDevice { memory, communicator },
    OldLibrary { version, oldest },
} }

impl std::error::Error for Invalid {}

impl From<Invalid> for Error {
    #[inline]
    fn from(error: Invalid) -> Self {
        Self::Invalid(Box::new(error))
    }
}

impl From<cuda_safe::Error> for Error {
    #[inline]
    fn from(error: cuda_safe::Error) -> Self {
        Self::Driver(error)
    }
}
