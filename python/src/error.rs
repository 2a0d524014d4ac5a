//! Failures, and their conversion to Python exceptions.

use crate::interpreter::attached;
use cuda_safe::{CUresult, Error, Invalid};
use pyo3::exceptions::PySystemExit;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::fmt;
use std::mem::ManuallyDrop;

/// The result type of this crate.
pub(crate) type Result<T, E = Failure> = std::result::Result<T, E>;

/// The reason for a failure.
pub(crate) enum Failure {
    /// An error of `cuda-safe`.
    Cuda(Error),
    /// A Python exception.
    Python(Exception),
    /// An error of this package: the class of the exception, and the message.
    Own(Class, String),
    /// An error of `cuda-safe`, with a message of this package.
    Explained(Error, String),
    /// The interpreter is being finalized by another thread.
    Ended,
}

/// A Python exception. It can be shown and dropped on any thread, with or without the GIL. After the
/// interpreter has been finalized, it is leaked.
pub(crate) struct Exception(ManuallyDrop<PyErr>);

impl Exception {
    /// Returns a new reference to the exception.
    pub(crate) fn get(&self, py: Python<'_>) -> PyErr {
        self.0.clone_ref(py)
    }
}

impl From<PyErr> for Exception {
    fn from(error: PyErr) -> Self {
        Self(ManuallyDrop::new(error))
    }
}

impl From<Failure> for Exception {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Python(exception) => exception,
            failure => PyErr::from(failure).into(),
        }
    }
}

impl Drop for Exception {
    fn drop(&mut self) {
        // SAFETY: the exception is dropped only here.
        attached(|_| unsafe { ManuallyDrop::drop(&mut self.0) });
    }
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&attached(|_| self.0.to_string()).unwrap_or_else(|| "an exception".to_owned()))
    }
}

impl fmt::Debug for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Exception {}

/// The classes of the exceptions for errors of this package.
#[derive(Clone, Copy)]
pub(crate) enum Class {
    Closed,
    Compile,
    CompilerNotFound,
    /// An error that has no class of its own.
    Cuda,
    InvalidArgument,
    ReadOnly,
}

impl Class {
    /// Returns the name of the exception class in `cuda_safe._errors`.
    fn name(self) -> &'static str {
        match self {
            Self::Closed => "ClosedError",
            Self::Compile => "CompileError",
            Self::CompilerNotFound => "CompilerNotFoundError",
            Self::Cuda => "CudaError",
            Self::InvalidArgument => "InvalidArgumentError",
            Self::ReadOnly => "ReadOnlyError",
        }
    }
}

impl Failure {
    /// Returns the failure for an invalid argument.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::Own(Class::InvalidArgument, message.into())
    }

    /// Returns the message, even if the thread cannot attach to the interpreter.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Cuda(error) => error.to_string(),
            Self::Python(error) => error.to_string(),
            Self::Own(_, message) | Self::Explained(_, message) => message.clone(),
            Self::Ended => "the interpreter is being finalized".to_owned(),
        }
    }

    /// Returns the failure for the use of a closed object.
    #[cold]
    pub(crate) fn closed(what: &str) -> Self {
        Self::Own(Class::Closed, format!("the {what} was closed"))
    }

    /// Returns the failure for a write to a read-only array.
    #[cold]
    pub(crate) fn read_only() -> Self {
        Self::Own(Class::ReadOnly, "the array is read-only".to_owned())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Cuda(error)
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::Cuda(invalid.into())
    }
}

impl From<cuda_nvrtc::Error> for Failure {
    fn from(error: cuda_nvrtc::Error) -> Self {
        use cuda_nvrtc::Error as E;
        let class = match &error {
            E::Driver(error) => return Self::Cuda(error.clone()),
            E::Compile(_) => Class::Compile,
            E::Load { .. } => Class::CompilerNotFound,
            E::Invalid(_) => Class::InvalidArgument,
            _ => Class::Cuda,
        };
        Self::Own(class, error.to_string())
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error.into())
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        if let Failure::Cuda(Error::Manager(error)) = &failure {
            // A memory manager that is written in Python raised this exception. It is passed on
            // unchanged.
            if let Some(error) = error.downcast_ref::<Exception>() {
                return attached(|py| error.get(py)).unwrap_or_else(ended);
            }
        }
        let (class, message, code) = match failure {
            Failure::Python(error) => {
                return attached(|py| error.get(py)).unwrap_or_else(ended);
            }
            Failure::Ended => return ended(),
            Failure::Own(class, message) => (class.name(), message, None),
            Failure::Explained(error, message) => (class(&error), message, error.code()),
            Failure::Cuda(error) => (class(&error), error.to_string(), error.code()),
        };
        let made = attached(|py| exception(py, class, message, code));
        made.map_or_else(ended, |made| made.unwrap_or_else(|why| why))
    }
}

/// Returns the exception that ends a thread.
fn ended() -> PyErr {
    PySystemExit::new_err(())
}

/// Returns the name of the exception class in `cuda_safe._errors`.
fn class(error: &Error) -> &'static str {
    if error.is_fatal() {
        return "FatalError";
    }
    match error {
        Error::Driver(_) | Error::OutOfMemory(_) | Error::Launch(_) => match error.code() {
            Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => "OutOfMemoryError",
            Some(CUresult::CUDA_ERROR_NO_DEVICE) => "NoDeviceError",
            Some(CUresult::CUDA_ERROR_INVALID_VALUE) => "InvalidValueError",
            _ => "DriverError",
        },
        Error::Load(_) => "DriverNotFoundError",
        Error::Missing(_) => "MissingFunctionError",
        Error::NoDevice => "NoDeviceError",
        Error::Forked => "ForkedError",
        Error::Invalid(invalid) => match **invalid {
            // An error with this key occurs only for an interface that has a mask.
            Invalid::ArrayInterface { key: "mask", .. } => "MaskedArrayError",
            Invalid::ArrayInterface { .. } => "ArrayInterfaceError",
            Invalid::Dlpack { .. } => "ExchangeError",
            Invalid::MemoryLimit { .. } => "OutOfMemoryError",
            _ => "InvalidArgumentError",
        },
        Error::Compile(_) => "DriverError",
        _ => "CudaError",
    }
}

fn exception(
    py: Python<'_>,
    class: &str,
    message: String,
    code: Option<CUresult>,
) -> PyResult<PyErr> {
    let class = py.import("cuda_safe._errors")?.getattr(class)?;
    let class = class.cast_into::<PyType>()?;
    let name = code.and_then(CUresult::name);
    let arguments = (message, code.map(|code| code.0), name);
    debug_assert!(class.is_subclass_of::<pyo3::exceptions::PyException>()?);
    Ok(PyErr::from_type(class, arguments))
}

/// Checks the result code of a driver function that this crate calls directly.
#[inline]
pub(crate) fn check(call: &'static str, code: CUresult) -> Result<()> {
    cuda_safe::check(code, call).map_err(Failure::Cuda)
}
