//! Host arrays and values. The functions that use NumPy are in `cuda_safe/_host.py`.

use super::strided::{self, Elements};
use super::{Array, PyDeviceArray, index, interface};
use crate::error::{Failure, Result};
use crate::lifetime::ending::calling;
use crate::lifetime::once::intern;
use crate::stream_handle::{At, HostAddress};
use cuda_safe::interop::{Dtype, Layout, ReadOptions};
use pyo3::call::PyCallArgs;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};

/// Calls a function of `cuda_safe._host`.
fn ask<'py, A>(
    py: Python<'py>,
    function: &Bound<'py, PyString>,
    arguments: A,
) -> Result<Bound<'py, PyAny>>
where
    A: PyCallArgs<'py>,
{
    calling(py, || {
        let module = py.import(intern!(py, "cuda_safe._host"))?;
        module.call_method1(function, arguments)
    })
}

/// Converts a dtype argument (NumPy's default if it is None), and returns the shape of elements
/// that are arrays.
pub(super) fn dtype(
    py: Python<'_>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> Result<(Dtype, Vec<usize>)> {
    let float = intern!(py, "float64");
    let dtype = dtype.unwrap_or(float.as_any());
    let described = ask(py, intern!(py, "describe"), (dtype,))?;
    let (typestr, descr, shape): (String, Bound<'_, PyAny>, Vec<usize>) = described.extract()?;
    let descr = match descr.is_none() {
        true => None,
        false => Some(interface::descr(&descr)?),
    };
    Ok((Dtype::read(&typestr, descr.as_deref())?, shape))
}

/// Converts a shape argument: a tuple, a list, or an integer.
pub(super) fn shape(shape: &Bound<'_, PyAny>) -> Result<Vec<usize>> {
    calling(shape.py(), || {
        if let Ok(extent) = shape.extract::<usize>() {
            return Ok(vec![extent]);
        }
        let refused = || Failure::invalid(format!("{shape} is not a shape of an array"));
        match shape.cast::<PyString>() {
            Ok(_) => Err(refused()),
            Err(_) => shape.extract().map_err(|_| refused()),
        }
    })
}

/// Reads integers from separate arguments or from one tuple. Returns None without arguments, or for
/// None.
pub(super) fn numbers(arguments: &Bound<'_, PyTuple>) -> Result<Option<Vec<isize>>> {
    if arguments.is_empty() {
        return Ok(None);
    }
    if arguments.len() == 1 {
        let only = arguments.get_item(0)?;
        if only.is_none() {
            return Ok(None);
        }
        if let Ok(numbers) = calling(only.py(), || only.extract()) {
            return Ok(Some(numbers));
        }
    }
    Ok(Some(calling(arguments.py(), || arguments.extract())?))
}

pub(super) fn descr<'py>(py: Python<'py>, dtype: &Dtype) -> Result<Option<Bound<'py, PyList>>> {
    match dtype {
        Dtype::Plain(_) => Ok(None),
        Dtype::Record(record) => Ok(Some(interface::write_descr(py, &record.to_descr())?)),
    }
}

pub(super) fn numpy_dtype<'py>(py: Python<'py>, dtype: &Dtype) -> Result<Bound<'py, PyAny>> {
    let arguments = (dtype.typestr(), descr(py, dtype)?);
    ask(py, intern!(py, "numpy_dtype"), arguments)
}

/// Converts a value to the bytes of an element.
pub(super) fn item_bytes<'py>(
    dtype: &Dtype,
    value: &Bound<'py, PyAny>,
) -> Result<Bound<'py, PyBytes>> {
    let py = value.py();
    let arguments = (value, dtype.typestr(), descr(py, dtype)?);
    let item = ask(py, intern!(py, "item_bytes"), arguments)?;
    Ok(item.cast_into().map_err(PyErr::from)?)
}

/// Values assigned to elements.
pub(super) enum Values<'py> {
    /// One value for all elements, as its bytes.
    One(Bound<'py, PyBytes>),
    Each(HostArray<'py>),
}

pub(super) fn values<'py>(array: &Array, value: &Bound<'py, PyAny>) -> Result<Values<'py>> {
    let py = value.py();
    let shape = PyTuple::new(py, array.layout.shape())?;
    let arguments = (value, array.dtype.typestr(), descr(py, &array.dtype)?, shape);
    let values = ask(py, intern!(py, "values"), arguments)?;
    match values.cast_into::<PyBytes>() {
        Ok(item) => Ok(Values::One(item)),
        Err(error) => Ok(Values::Each(HostArray::described(&error.into_inner())?)),
    }
}

/// A host array in C order.
pub(super) struct HostArray<'py> {
    pub(super) dtype: Dtype,
    pub(super) layout: Layout,
    address: usize,
    is_read_only: bool,
    #[allow(dead_code, reason = "held, not read")]
    keep: Keep<'py>,
}

/// The owners of the memory: the object; its interface dict, which may be created at each access
/// and contain the owner of the memory; and a `bytes` object in the dict, which other threads may
/// remove from it in the meantime.
#[allow(dead_code, reason = "held, not read")]
struct Keep<'py> {
    owner: Bound<'py, PyAny>,
    interface: Bound<'py, PyDict>,
    bytes: Option<Bound<'py, PyBytes>>,
}

impl<'py> HostArray<'py> {
    /// Creates a host array from an object that NumPy converts to an array, or from a buffer.
    pub(super) fn of(source: &Bound<'py, PyAny>) -> Result<Self> {
        let py = source.py();
        Self::described(&ask(py, intern!(py, "host_array"), (source,))?)
    }

    /// Creates a host array from `(__array_interface__, owner)`.
    fn described(described: &Bound<'py, PyAny>) -> Result<Self> {
        let (dict, owner): (Bound<'py, PyDict>, Bound<'py, PyAny>) = described.extract()?;
        Self::of_interface(&dict, owner)
    }

    fn of_interface(dict: &Bound<'py, PyDict>, owner: Bound<'py, PyAny>) -> Result<Self> {
        let py = dict.py();
        let bytes = dict.get_item(intern!(py, "data"))?;
        let bytes = bytes.and_then(|data| data.cast_into::<PyBytes>().ok());
        let its = match &bytes {
            None => dict.clone(),
            Some(bytes) => {
                let dict = dict.copy()?;
                dict.set_item(intern!(py, "data"), (bytes.as_bytes().as_ptr().addr(), true))?;
                dict
            }
        };
        let mut raw = interface::read(&its)?;
        // These keys have another meaning in the host interface.
        raw.stream = None;
        let array = raw.check(ReadOptions::default())?;
        if let Some(bytes) = &bytes {
            if array.layout().byte_range().end.unsigned_abs() > bytes.as_bytes().len() {
                return Err(Failure::invalid("the buffer has fewer bytes than its shape needs"));
            }
        }
        Ok(Self {
            dtype: array.dtype().clone(),
            layout: array.layout().clone(),
            address: usize::try_from(array.address()).unwrap_or(0),
            is_read_only: array.is_read_only(),
            keep: Keep { owner, interface: dict.clone(), bytes },
        })
    }

    /// Returns the address of the first element, which is valid as long as `self`.
    pub(super) fn start(&self) -> *const u8 {
        std::ptr::with_exposed_provenance(self.address)
    }

    fn memory(&self) -> HostAddress {
        HostAddress(std::ptr::with_exposed_provenance_mut(self.address))
    }
}

fn host_elements(memory: HostAddress, layout: &Layout) -> Elements<'_> {
    Elements { at: At::Host(memory), layout }
}

impl PyDeviceArray {
    /// Copies a host array, broadcast to the shape of this array, and waits.
    pub(super) fn copy_host(&self, py: Python<'_>, source: &HostArray<'_>) -> Result<()> {
        self.refuse_read_only()?;
        let to = &self.array;
        if to.dtype != source.dtype {
            return Err(Failure::invalid(format!(
                "elements of {} for elements of {}",
                source.dtype, to.dtype
            )));
        }
        let Some(layout) = index::broadcast(&source.layout, to.layout.shape()) else {
            return Err(Failure::invalid(format!(
                "the shape {:?} cannot be broadcast to {:?}",
                source.layout.shape(),
                to.layout.shape()
            )));
        };
        let from = host_elements(source.memory(), &layout);
        self.work(py, None, |lane| {
            // SAFETY: the array's memory is kept alive, and the view is within it. The source
            // contains all elements of its layout and is kept alive by the caller. One side is host
            // memory.
            unsafe { strided::copy(lane, to.elements(), from) }
        })
    }

    /// Waits for the work on the array and copies all elements to host memory.
    ///
    /// # Safety
    /// `to` must have memory for all elements of `layout`, whose shape must be the shape of this
    /// array.
    pub(super) unsafe fn copy_out(
        &self,
        py: Python<'_>,
        to: *mut u8,
        layout: &Layout,
    ) -> Result<()> {
        let (from, to) = (&self.array, host_elements(HostAddress(to), layout));
        self.work(py, None, |lane| {
            // SAFETY: see `copy_host`, and the caller's promise.
            unsafe { strided::copy(lane, to, from.elements()) }
        })
    }
}

/// Returns a NumPy array on the memory of an object with an `__array_interface__`.
pub(super) fn shared<'py>(object: &Bound<'py, PyAny>) -> Result<Bound<'py, PyAny>> {
    let py = object.py();
    ask(py, intern!(py, "shared"), (object,))
}

/// Copies the elements to a NumPy array.
pub(super) fn copy_to_host<'py>(
    py: Python<'py>,
    array: &PyDeviceArray,
    out: Option<Bound<'py, PyAny>>,
) -> Result<Bound<'py, PyAny>> {
    let its = &array.array;
    let new = || {
        let shape = PyTuple::new(py, its.layout.shape())?;
        let arguments = (shape, its.dtype.typestr(), descr(py, &its.dtype)?);
        ask(py, intern!(py, "empty"), arguments)
    };
    let target = match &out {
        Some(out) => out.clone(),
        None => new()?,
    };
    let dict = calling(py, || target.getattr(intern!(py, "__array_interface__")))?;
    let dict = dict.cast_into::<PyDict>().map_err(PyErr::from)?;
    let to = HostArray::of_interface(&dict, target.clone())?;
    if to.is_read_only {
        return Err(Failure::read_only());
    }
    if to.dtype != its.dtype || to.layout.shape() != its.layout.shape() {
        return Err(Failure::invalid(format!(
            "out has the shape {:?} and the type {}, but the array has the shape {:?} and the type {}",
            to.layout.shape(),
            to.dtype,
            its.layout.shape(),
            its.dtype
        )));
    }
    if !to.layout.is_c_contiguous() {
        // Copy through a contiguous array.
        let apart = copy_to_host(py, array, None)?;
        ask(py, intern!(py, "copy_into"), (&target, apart))?;
        return Ok(target);
    }
    // SAFETY: the interface of the target promises these elements; it is writable, and is kept
    // alive during the call.
    unsafe { array.copy_out(py, to.memory().0, &to.layout) }?;
    Ok(target)
}
