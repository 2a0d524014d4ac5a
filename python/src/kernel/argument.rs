//! The parameters of kernels, and Python objects as their arguments.

use crate::array::UsedArray;
use crate::error::{Failure, Result};
use crate::lifetime::ending::calling;
use crate::lifetime::once::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyInt};
use std::fmt;

/// The type of a parameter, as PTX declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// A floating-point number of 4 or 8 bytes.
    Float(usize),
    /// An integer or a pointer of this many bytes.
    Integer(usize),
    /// A struct, or another type, of this many bytes.
    Bytes(usize),
}

/// An argument of a launch.
pub(crate) enum Argument {
    Bytes(Vec<u8>),
    Array(UsedArray),
}

/// Returns the parameters of a kernel from the PTX in which it is defined.
pub(crate) fn parameters(ptx: &str, symbol: &str) -> Option<Vec<Parameter>> {
    let mut entries = ptx.split(".entry").skip(1);
    let rest = entries.find_map(|entry| {
        let (name, rest) = entry.split_once('(')?;
        (name.trim() == symbol).then_some(rest)
    })?;
    let (list, _) = rest.split_once(')')?;
    if list.trim().is_empty() {
        return Some(Vec::new());
    }
    list.split(',').map(parameter).collect()
}

/// Returns the type in a declaration: `.param .f32 a` or `.param .align 8 .b8 a[16]`.
fn parameter(declaration: &str) -> Option<Parameter> {
    let mut words = declaration.split_whitespace();
    let (class, bits) = words.find_map(|word| {
        let ty = word.strip_prefix('.')?;
        let (class, bits) = ty.split_at_checked(1)?;
        Some((class, bits.parse::<usize>().ok()?))
    })?;
    let bytes = bits / 8;
    let count = declaration.split_once('[').map(|(_, rest)| rest.split_once(']'));
    Some(match (class, count) {
        (_, Some(count)) => Parameter::Bytes(bytes * count?.0.trim().parse::<usize>().ok()?),
        ("f", None) if bytes >= 4 => Parameter::Float(bytes),
        ("u" | "s" | "b", None) if bytes <= 8 => Parameter::Integer(bytes),
        (_, None) => Parameter::Bytes(bytes),
    })
}

impl Parameter {
    /// Converts a Python object to an argument for this parameter.
    pub(crate) fn argument(
        &self,
        value: &Bound<'_, PyAny>,
        kernel: &str,
        index: usize,
    ) -> Result<Argument> {
        let py = value.py();
        let refused = |what: &str| {
            Failure::invalid(format!(
                "argument {index} of the kernel {kernel} (zero-based, of the type {self}): {what}"
            ))
        };
        // NumPy's float64 is a float of Python; the other scalars of NumPy are not.
        let is_number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
        if !is_number && !value.is_none() && !value.is_instance_of::<PyBytes>() {
            if let Some(array) = UsedArray::of(value)? {
                return match self {
                    Self::Integer(8) => Ok(Argument::Array(array)),
                    _ => Err(refused("an array is passed as a pointer")),
                };
            }
        }
        if calling(py, || is_host_array(value))? {
            return Err(refused("an array in host memory: copy it with DeviceArray.from_host"));
        }
        let bytes = match self {
            Self::Integer(8) if value.is_none() => vec![0; 8],
            Self::Integer(size) => {
                let number = calling(py, || item(value))?;
                let number = number.extract::<i128>().map_err(|_| {
                    let ty = number.get_type().name();
                    refused(&format!(
                        "a {} is not an integer",
                        ty.map_or_else(|_| "value".to_owned(), |name| name.to_string())
                    ))
                })?;
                let bits = 8 * *size as u32;
                if number < -(1_i128 << (bits - 1)) || number >= 1_i128 << bits {
                    return Err(refused(&format!("{number} does not fit")));
                }
                number.to_le_bytes()[..*size].to_vec()
            }
            Self::Float(size) => {
                let number = calling(py, || item(value))?;
                let number: f64 =
                    number.extract().map_err(|_| refused("the value is not a number"))?;
                match size {
                    4 => (number as f32).to_le_bytes().to_vec(),
                    _ => number.to_le_bytes().to_vec(),
                }
            }
            Self::Bytes(size) => {
                let bytes = calling(py, || raw_bytes(value))?;
                let Some(bytes) = bytes else {
                    return Err(refused("pass bytes or a NumPy scalar"));
                };
                if bytes.len() != *size {
                    return Err(refused(&format!("{} bytes were given", bytes.len())));
                }
                bytes
            }
        };
        Ok(Argument::Bytes(bytes))
    }
}

/// Returns whether the value is an array of NumPy. Its scalars have the shape `()`.
fn is_host_array(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = value.py();
    if value.getattr_opt(intern!(py, "dtype"))?.is_none() {
        return Ok(false);
    }
    let shape = value.getattr_opt(intern!(py, "shape"))?;
    shape.map_or(Ok(false), |shape| Ok(shape.len()? > 0))
}

/// Returns the Python number of a NumPy scalar, or the value itself.
fn item<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = value.py();
    match value.getattr_opt(intern!(py, "dtype"))? {
        Some(_) => value.call_method0(intern!(py, "item")),
        None => Ok(value.clone()),
    }
}

/// Returns the bytes of a `bytes` object or a NumPy scalar.
fn raw_bytes(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    let py = value.py();
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes().to_vec()));
    }
    match value.getattr_opt(intern!(py, "tobytes"))? {
        Some(tobytes) => Ok(Some(tobytes.call0()?.extract()?)),
        None => Ok(None),
    }
}

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Float(bytes) => write!(f, "f{}", bytes * 8),
            Self::Integer(bytes) => write!(f, "u{}", bytes * 8),
            Self::Bytes(bytes) => write!(f, "b8[{bytes}]"),
        }
    }
}
