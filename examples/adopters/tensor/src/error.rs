//! The error type of the backend. It adds the errors of shapes to those of the driver and the compiler.

use std::fmt;

/// The result of the functions of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of the backend.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// An operation does not accept tensors of these shapes.
    Shapes {
        /// The name of the operation.
        operation: &'static str,
        /// The shapes of its operands, or the old and the new shape.
        shapes: [Vec<usize>; 2],
    },
    /// A shape has another number of elements than the given values.
    Length {
        /// The shape.
        shape: Vec<usize>,
        /// The number of values.
        values: usize,
    },
    /// A tensor would have more than `i32::MAX` elements, which the kernels cannot index.
    TooManyElements(Vec<usize>),
    /// An error of the driver.
    Driver(cuda_safe::Error),
    /// An error of the compiler of the kernels.
    Compiler(cuda_nvrtc::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shapes { operation, shapes: [first, second] } => {
                write!(f, "{operation} does not accept the shapes {first:?} and {second:?}")
            }
            Self::Length { shape, values } => {
                write!(f, "the shape {shape:?} does not have {values} elements")
            }
            Self::TooManyElements(shape) => {
                write!(f, "the shape {shape:?} has more than {} elements", i32::MAX)
            }
            Self::Driver(error) => error.fmt(f),
            Self::Compiler(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<cuda_safe::Error> for Error {
    fn from(error: cuda_safe::Error) -> Self {
        Self::Driver(error)
    }
}

impl From<cuda_nvrtc::Error> for Error {
    fn from(error: cuda_nvrtc::Error) -> Self {
        match error {
            cuda_nvrtc::Error::Driver(error) => Self::Driver(error),
            other => Self::Compiler(other),
        }
    }
}
