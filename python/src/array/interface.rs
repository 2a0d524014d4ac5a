//! Reading and writing of `__cuda_array_interface__`.

use super::memory::{Memory, locate};
use super::peers::{cupy_stream, refuse_lazy};
use super::{Array, PyDeviceArray};
use crate::config;
use crate::current;
use crate::error::{Failure, Result};
use crate::lifetime::ending::detached;
use crate::lifetime::hold::Owner;
use crate::lifetime::once::intern;
use crate::objects::{check_context, foreign, lane_of_handle};
use crate::primary::primary;
use crate::stream_handle::{Handle, StreamHandle};
use crate::tensor::Hold;
use cuda_safe::interop::dlpack::MemoryKind;
use cuda_safe::interop::{DescrEntry, DescrType, Dtype, ExportedStream, RawInterface, ReadOptions};
use cuda_safe::{Context, Error, Invalid};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use std::sync::Arc;

/// Returns the error for an invalid value of a key.
fn refused(key: &'static str, problem: impl Into<String>) -> Failure {
    let problem = problem.into();
    Invalid::ArrayInterface { key, problem }.into()
}

/// Returns the type name of a value for an error message.
fn kind(value: &Bound<'_, PyAny>) -> String {
    let name = value.get_type().name();
    name.map_or_else(|_| "something".to_owned(), |name| name.to_string())
}

fn number(key: &'static str, value: &Bound<'_, PyAny>) -> Result<i128> {
    if let Ok(number) = value.extract::<i64>() {
        return Ok(number.into());
    }
    let number = value.extract::<i128>();
    number.map_err(|_| refused(key, format!("{} where a number is expected", kind(value))))
}

/// Reads a tuple of integers; a list is also accepted.
fn numbers(key: &'static str, value: &Bound<'_, PyAny>) -> Result<Vec<i128>> {
    if let Ok(tuple) = value.cast::<PyTuple>() {
        return tuple.iter_borrowed().map(|item| number(key, &item)).collect();
    }
    if let Ok(list) = value.cast::<PyList>() {
        return list.iter().map(|item| number(key, &item)).collect();
    }
    Err(refused(key, format!("{} where a tuple is expected", kind(value))))
}

fn text(key: &'static str, value: &Bound<'_, PyAny>) -> Result<String> {
    let text = value.cast::<PyString>();
    let text =
        text.map_err(|_| refused(key, format!("{} where a str is expected", kind(value))))?;
    let text = text.to_str();
    let text = text.map_err(|_| refused(key, "a str that is not valid Unicode"))?;
    Ok(text.to_owned())
}

/// Reads `(address, read_only)`.
fn data(value: &Bound<'_, PyAny>) -> Result<(i128, bool)> {
    let expected = || refused("data", "a tuple (address, read_only) is expected");
    let (address, read_only) = match value.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => (pair.get_item(0)?, pair.get_item(1)?),
        _ => match value.cast::<PyList>() {
            Ok(pair) if pair.len() == 2 => (pair.get_item(0)?, pair.get_item(1)?),
            _ => return Err(expected()),
        },
    };
    let read_only = read_only.is_truthy().map_err(|error| {
        let what = kind(&read_only);
        refused("data", format!("read_only is a {what}: {error}"))
    })?;
    Ok((number("data", &address)?, read_only))
}

/// The maximum depth of nested records: one more than `cuda-safe` accepts, so that it refuses them.
const DEPTH: usize = 33;

/// Reads `[(name, type), (name, type, shape), ...]`.
pub(super) fn descr(value: &Bound<'_, PyAny>) -> Result<Vec<DescrEntry>> {
    entries(value, DEPTH)
}

fn entries(value: &Bound<'_, PyAny>, depth: usize) -> Result<Vec<DescrEntry>> {
    let expected = || refused("descr", "a list of (name, type) or (name, type, shape) is expected");
    let Some(depth) = depth.checked_sub(1) else {
        return Err(refused("descr", "records are nested too deeply"));
    };
    let list = value.cast::<PyList>().map_err(|_| expected())?;
    let mut entries = Vec::new();
    for entry in list.iter() {
        let entry = entry.cast_into::<PyTuple>().map_err(|_| expected())?;
        if !(2..=3).contains(&entry.len()) {
            return Err(expected());
        }
        let (name, ty) = (entry.get_item(0)?, entry.get_item(1)?);
        let (title, name) = match name.cast::<PyTuple>() {
            Ok(pair) if pair.len() == 2 => {
                let (title, name) = (pair.get_item(0)?, pair.get_item(1)?);
                (Some(text("descr", &title)?), text("descr", &name)?)
            }
            _ => (None, text("descr", &name)?),
        };
        entries.push(DescrEntry {
            name,
            title,
            ty: match ty.is_instance_of::<PyString>() {
                true => DescrType::Text(text("descr", &ty)?),
                false => DescrType::Nested(self::entries(&ty, depth)?),
            },
            shape: match entry.len() {
                2 => Vec::new(),
                _ => extents(&entry.get_item(2)?)?,
            },
        });
    }
    Ok(entries)
}

/// Reads the shape of a field: a tuple, or an integer.
fn extents(shape: &Bound<'_, PyAny>) -> Result<Vec<usize>> {
    let extents = match shape.extract::<i64>() {
        Ok(extent) => vec![extent.into()],
        Err(_) => numbers("descr", shape)?,
    };
    let extents: Option<Vec<usize>> =
        extents.into_iter().map(|extent| usize::try_from(extent).ok()).collect();
    extents.ok_or_else(|| refused("descr", "a field has a negative or too large extent"))
}

/// Converts the entries to Python objects.
pub(super) fn write_descr<'py>(
    py: Python<'py>,
    entries: &[DescrEntry],
) -> Result<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for entry in entries {
        let name = match &entry.title {
            None => PyString::new(py, &entry.name).into_any(),
            Some(title) => (title, &entry.name).into_pyobject(py)?.into_any(),
        };
        let ty = match &entry.ty {
            DescrType::Text(text) => PyString::new(py, text).into_any(),
            DescrType::Nested(entries) => write_descr(py, entries)?.into_any(),
        };
        match entry.shape.is_empty() {
            true => list.append((name, ty))?,
            false => list.append((name, ty, PyTuple::new(py, &entry.shape)?))?,
        }
    }
    Ok(list)
}

/// Reads the keys of an array interface, of a device or the host, without checking them.
pub(super) fn read(interface: &Bound<'_, PyAny>) -> Result<RawInterface> {
    let py = interface.py();
    let dict = interface.cast::<PyDict>().map_err(|_| {
        let name = kind(interface);
        Failure::invalid(format!("an array interface must be a dict, not a {name}"))
    })?;
    // None means the same as a missing key.
    let get = |key| Ok::<_, PyErr>(dict.get_item(key)?.filter(|value| !value.is_none()));
    let version = get(intern!(py, "version"))?;
    let version = version.map(|value| number("version", &value)).transpose()?;
    let shape = get(intern!(py, "shape"))?;
    let typestr = get(intern!(py, "typestr"))?;
    let its_descr = get(intern!(py, "descr"))?;
    let its_data = get(intern!(py, "data"))?;
    let strides = get(intern!(py, "strides"))?;
    let mask = get(intern!(py, "mask"))?;
    // Before version 3 the key had no meaning.
    let stream = match version {
        Some(3..) => get(intern!(py, "stream"))?,
        _ => None,
    };
    let typestr = typestr.map(|value| text("typestr", &value)).transpose()?;
    // For other types, `descr` contains no more information, and an unused value may be of any
    // type.
    let is_void = typestr.as_deref().is_some_and(|text| text.contains('V'));
    Ok(RawInterface {
        version,
        shape: shape.map(|value| numbers("shape", &value)).transpose()?,
        typestr,
        descr: its_descr.filter(|_| is_void).map(|value| descr(&value)).transpose()?,
        data: its_data.map(|value| data(&value)).transpose()?,
        strides: strides.map(|value| numbers("strides", &value)).transpose()?,
        // A mask is refused, or has no meaning, so its value is not read.
        mask: mask.map(|_| Box::default()),
        stream: stream.map(|value| number("stream", &value)).transpose()?,
    })
}

/// Returns the address of the first element, or 0 for an empty array.
pub(super) fn address(interface: &Bound<'_, PyAny>) -> Result<u64> {
    let options = ReadOptions { ignore_stream: true, ..ReadOptions::default() };
    let array = read(interface)?.check(options)?;
    Ok(if array.layout().is_empty() { 0 } else { array.address() })
}

/// Returns the context of the stream that an interface names. For memory of one device, this is the
/// context of the memory. Host memory, and an empty array, can be used on the device of any stream.
fn context_of(py: Python<'_>, handle: Handle, memory: Option<Context>) -> Result<Context> {
    let checked = match memory {
        Some(context) => check_context(handle, &context).map(|_| context),
        None => lane_of_handle(py, handle, None, None).map(|lane| lane.context().clone()),
    };
    checked.map_err(|failure| match failure {
        Failure::Cuda(Error::Invalid(invalid)) => refused("stream", invalid.to_string()),
        failure => failure,
    })
}

/// Imports the array that an interface describes.
pub(super) fn import(
    interface: &Bound<'_, PyAny>,
    owner: Option<Py<PyAny>>,
    sync: bool,
) -> Result<PyDeviceArray> {
    let py = interface.py();
    if let Some(owner) = &owner {
        refuse_lazy(owner.bind(py), |problem| refused("data", problem))?;
    }
    let options =
        ReadOptions { ignore_stream: !(sync && config::sync()), ..ReadOptions::default() };
    let checked = read(interface)?.check(options)?;
    let (layout, dtype) = (checked.layout().clone(), checked.dtype().clone());
    let is_nowhere = layout.is_empty() || layout.item_size() == 0;
    let (ordinal, address, kind) = match is_nowhere {
        true => (current::device(py)?, 0, MemoryKind::Device),
        false => {
            let refused = |problem| refused("data", problem);
            let known = locate(py, checked.address(), layout.byte_range(), refused)?;
            (known.ordinal, known.address, known.kind)
        }
    };
    let mut context = primary(py, ordinal)?;
    let lane = match checked.stream() {
        None => None,
        Some(ExportedStream::Legacy) => Some(StreamHandle::Legacy(context.clone())),
        Some(ExportedStream::Handle(number)) => {
            let handle = Handle::new(number)?;
            let is_of_device = !is_nowhere && kind == MemoryKind::Device;
            context = context_of(py, handle, is_of_device.then_some(context))?;
            let kept = owner.as_ref().map(|owner| cupy_stream(owner.bind(py), number));
            Some(match kept.transpose()?.flatten() {
                Some(stream) => {
                    StreamHandle::Stream(foreign(handle, &context, Arc::new(Owner::new(stream)))?)
                }
                None => StreamHandle::Handle(handle, context.clone()),
            })
        }
        // A per-thread stream would be a different stream on other threads, so the import waits for
        // its work. Each later call returns when its work is complete, so the array needs no
        // stream.
        Some(ExportedStream::PerThread) => {
            let lane = StreamHandle::PerThread(context.clone());
            detached(py, move || lane.settle())?;
            None
        }
    };
    let memory = Memory::new(Hold::Foreign, lane, context, kind);
    let array = Array { dtype, exchange: None, layout, address, read_only: checked.is_read_only() };
    Ok(PyDeviceArray::new(array, memory.into(), owner))
}

/// Returns the interface of an array, in version 3.
pub(super) fn write<'py>(
    py: Python<'py>,
    array: &Array,
    stream: Option<u64>,
) -> Result<Bound<'py, PyDict>> {
    let layout = &array.layout;
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "shape"), PyTuple::new(py, layout.shape())?)?;
    dict.set_item(intern!(py, "typestr"), array.dtype.typestr())?;
    if let Dtype::Record(record) = &array.dtype {
        dict.set_item(intern!(py, "descr"), write_descr(py, &record.to_descr())?)?;
    }
    let address = if layout.is_empty() { 0 } else { array.address };
    dict.set_item(intern!(py, "data"), (address, array.read_only))?;
    // For some consumers, redundant strides have another meaning.
    let strides = match layout.is_c_contiguous() {
        true => None,
        false => Some(PyTuple::new(py, layout.strides())?),
    };
    dict.set_item(intern!(py, "strides"), strides)?;
    dict.set_item(intern!(py, "version"), 3)?;
    dict.set_item(intern!(py, "stream"), stream)?;
    Ok(dict)
}
