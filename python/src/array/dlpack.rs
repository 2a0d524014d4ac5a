//! DLPack, in both directions: what capsules hold, and how they go over.

use super::memory::{Hold, Memory, locate};
use super::peers::refuse_lazy;
use super::{Array, Kept, PyDeviceArray, exchange};
use crate::current;
use crate::device::{default_stream, primary};
use crate::ending::{calling, detached, let_go};
use crate::error::{Failure, Result};
use crate::hold::Owner;
use crate::lane::Lane;
use crate::once::intern;
use crate::stream::PyStream;
use core::ffi::CStr;
use cuda_safe::interop::dlpack::raw::{DLDeviceType, DLManagedTensor, DLManagedTensorVersioned};
use cuda_safe::interop::dlpack::{ConsumerStream, DataType, Export, ManagedTensor, MemoryKind};
use cuda_safe::interop::{Dtype, Kind, TypeString};
use cuda_safe::{Context, Invalid};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::types::{PyDict, PyTuple};
use pyo3::{ffi, prelude::*};
use std::ptr::NonNull;
use std::sync::Arc;

/// What a capsule is called while nobody has taken its tensor, and afterwards.
struct Names {
    fresh: &'static CStr,
    used: &'static CStr,
}

const LEGACY: Names = Names {
    fresh: c"dltensor",
    used: c"used_dltensor",
};
const VERSIONED: Names = Names {
    fresh: c"dltensor_versioned",
    used: c"used_dltensor_versioned",
};

pub(super) fn refused(field: &'static str, problem: impl Into<String>) -> Failure {
    let problem = problem.into();
    Invalid::Dlpack { field, problem }.into()
}

/// The kind of device and its number, as DLPack has them: memory of the host is of none.
pub(super) fn device(memory: &Memory) -> (i32, i32) {
    let kind = memory.kind();
    let number = match kind {
        MemoryKind::Pinned => 0,
        _ => memory.context().device().ordinal(),
    };
    (device_type(kind), i32::try_from(number).unwrap_or(0))
}

pub(super) fn device_type(kind: MemoryKind) -> i32 {
    let device = match kind {
        MemoryKind::Pinned => DLDeviceType::kDLCUDAHost,
        MemoryKind::Managed => DLDeviceType::kDLCUDAManaged,
        _ => DLDeviceType::kDLCUDA,
    };
    device.0
}

/// What keeps the memory of an exported tensor, until the consumer calls its deleter, on any thread.
struct Exported {
    memory: Option<Arc<Memory>>,
    _owner: Option<Owner>,
    /// The default stream that the consumer works on, if it does on that.
    consumer: Option<Lane>,
}

impl Drop for Exported {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        // The consumer need not have waited for its work. (Should this fail, so does all else.)
        let behind = self.consumer.take().zip(memory.lane().cloned());
        let behind = behind.filter(|(consumer, lane)| !lane.is_in_order_with(consumer));
        match behind {
            Some((consumer, lane)) => without_gil(move || {
                let _ = lane.follow(&consumer);
                drop(memory);
            }),
            None => {
                // If not, it is freed by whoever has it still.
                if let Some(last) = Arc::into_inner(memory) {
                    without_gil(move || drop(last));
                }
            }
        }
    }
}

/// Does what may wait without the GIL, which the caller may have.
fn without_gil(release: impl FnOnce() + Send) {
    let mut release = Some(release);
    Python::try_attach(|py| release.take().map(|release| let_go(py, release)));
    if let Some(release) = release {
        release();
    }
}

/// The stream that a consumer asks on, as a lane; none if there is to be no order.
fn consumers_lane(stream: ConsumerStream, context: &Context) -> Result<Option<Lane>> {
    match stream {
        ConsumerStream::NoSync => Ok(None),
        stream => {
            let number = u64::try_from(stream.number());
            let number = number.map_err(|_| refused("stream", "no handle"))?;
            Ok(Some(Lane::of_number(number, context.clone())?))
        }
    }
}

/// What `__dlpack__` was asked for.
pub(super) struct Request {
    pub(super) stream: Option<i64>,
    pub(super) max_version: Option<(u32, u32)>,
    pub(super) device: Option<(i32, i32)>,
}

/// The tensor of an array in a capsule, after the consumer's stream was put behind the array's.
pub(super) fn export<'py>(
    py: Python<'py>,
    array: &Array,
    kept: Kept,
    is_copy: bool,
    request: &Request,
) -> Result<Bound<'py, PyAny>> {
    let Kept { memory, owner } = kept;
    memory.set_used();
    memory.grant_peer_access(py);
    let own = device(&memory);
    if let Some(device) = request.device.filter(|device| *device != own) {
        let problem = format!("{device:?} is asked for, and the array is on {own:?}");
        return Err(refused("dl_device", problem));
    }
    let stream = ConsumerStream::from_number(request.stream.map(i128::from))?;
    let consumer = consumers_lane(stream, memory.context())?;
    if let (Some(consumer), Some(lane)) = (&consumer, memory.lane()) {
        if !consumer.is_in_order_with(lane) {
            detached(py, || consumer.follow(lane))?;
        }
    }
    let dtype = match array.exchange {
        Some(dtype) => dtype,
        None => DataType::of_numpy(&array.dtype)?,
    };
    let exported = Exported {
        consumer: consumer.filter(|consumer| matches!(consumer, Lane::Legacy(_))),
        _owner: owner.map(Owner::new),
        memory: Some(Arc::clone(&memory)),
    };
    let (layout, address) = (array.layout.clone(), array.address);
    let number = own.1.unsigned_abs();
    let tensor = Export::new(dtype, layout, address, memory.kind(), number, exported);
    let mut tensor = tensor.map_err(|rejected| rejected.error)?;
    if array.read_only {
        tensor = tensor.read_only();
    }
    if is_copy {
        tensor = tensor.copied();
    }
    if request.max_version.is_some_and(|(major, _)| major >= 1) {
        return capsule(py, tensor.into_raw_versioned());
    }
    let tensor = tensor.into_raw().map_err(|rejected| rejected.error)?;
    capsule(py, tensor)
}

/// A tensor as a capsule holds it.
trait Managed: Sized {
    const NAMES: Names;

    /// # Safety
    /// It is one that nobody has taken or deleted.
    unsafe fn take(tensor: *mut Self) -> Result<ManagedTensor, Invalid>;

    /// Calls the deleter.
    ///
    /// # Safety
    /// As for `take`.
    unsafe fn delete(tensor: *mut Self);
}

impl Managed for DLManagedTensor {
    const NAMES: Names = LEGACY;

    unsafe fn take(tensor: *mut Self) -> Result<ManagedTensor, Invalid> {
        // SAFETY: the caller's promise.
        unsafe { ManagedTensor::from_raw(tensor) }
    }

    unsafe fn delete(tensor: *mut Self) {
        // SAFETY: the caller's promise.
        let deleter = unsafe { (*tensor).deleter };
        if let Some(deleter) = deleter {
            // SAFETY: it is the tensor's own, called once.
            unsafe { deleter(tensor) }
        }
    }
}

impl Managed for DLManagedTensorVersioned {
    const NAMES: Names = VERSIONED;

    unsafe fn take(tensor: *mut Self) -> Result<ManagedTensor, Invalid> {
        // SAFETY: the caller's promise.
        unsafe { ManagedTensor::from_raw_versioned(tensor) }
    }

    unsafe fn delete(tensor: *mut Self) {
        // SAFETY: the caller's promise.
        let deleter = unsafe { (*tensor).deleter };
        if let Some(deleter) = deleter {
            // SAFETY: it is the tensor's own, called once.
            unsafe { deleter(tensor) }
        }
    }
}

fn capsule<M: Managed>(py: Python<'_>, tensor: NonNull<M>) -> Result<Bound<'_, PyAny>> {
    let name = M::NAMES.fresh.as_ptr();
    // SAFETY: the name is there for ever; the destructor is for a capsule of this kind.
    let capsule = unsafe { ffi::PyCapsule_New(tensor.as_ptr().cast(), name, Some(destroy::<M>)) };
    // SAFETY: it is a new reference, or null with an exception set.
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
    if capsule.is_err() {
        // SAFETY: nobody has seen the tensor.
        unsafe { M::delete(tensor.as_ptr()) };
    }
    Ok(capsule?)
}

/// Of a capsule whose tensor nobody has taken.
unsafe extern "C" fn destroy<M: Managed>(capsule: *mut ffi::PyObject) {
    let name = M::NAMES.fresh.as_ptr();
    // SAFETY: it is the capsule that is being destroyed.
    if unsafe { ffi::PyCapsule_IsValid(capsule, name) } == 0 {
        return;
    }
    // SAFETY: as above; it has that name.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, name) };
    // SAFETY: whoever takes the tensor renames the capsule, so nobody has.
    unsafe { M::delete(tensor.cast()) };
}

/// Takes the tensor out of a capsule, if it is of this kind.
fn take<M: Managed>(capsule: &Bound<'_, PyAny>) -> Result<Option<ManagedTensor>> {
    let names = M::NAMES;
    // SAFETY: it is an object; the name is text.
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), names.fresh.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: it is a capsule of that name.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), names.fresh.as_ptr()) };
    // SAFETY: as above; the new name is there for ever.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), names.used.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()).into());
    }
    // SAFETY: a capsule of that name has a tensor of that kind, and from now on says that it is taken.
    Ok(Some(unsafe { M::take(tensor.cast()) }?))
}

/// The array of an object that has DLPack.
pub(super) fn import(
    object: &Bound<'_, PyAny>,
    stream: Option<&PyStream>,
    copy: Option<bool>,
) -> Result<PyDeviceArray> {
    let py = object.py();
    if copy != Some(true) {
        if let Some(array) = exchange::import(object, stream)? {
            return Ok(array);
        }
    }
    refuse_lazy(object, |problem| refused("data", problem))?;
    let (kind, ordinal) = device_of(object)?;
    let lane = lane_for(py, stream, ordinal)?;
    let capsule = calling(py, || ask(object, kind, &lane, copy))?;
    if kind == device_type(MemoryKind::Pinned) {
        // Asked without a stream, it has put its work before what comes on this one.
        let legacy = Lane::Legacy(primary(py, ordinal)?);
        detached(py, || lane.follow(&legacy))?;
    }
    let tensor = match take::<DLManagedTensorVersioned>(&capsule)? {
        Some(tensor) => tensor,
        None => take::<DLManagedTensor>(&capsule)?.ok_or_else(|| {
            PyValueError::new_err("__dlpack__ gave no capsule of a tensor that nobody has taken")
        })?,
    };
    array_of(py, tensor, lane)
}

/// The stream for the work on a tensor: that which was given, that of the thread, or that of the device.
pub(super) fn lane_for(py: Python<'_>, stream: Option<&PyStream>, ordinal: u32) -> Result<Lane> {
    let lane = match stream {
        Some(stream) => stream.lane()?,
        None => match current::lane_of_blocks() {
            Some(lane) if lane.context().device().ordinal() == ordinal => lane,
            _ => Lane::Stream(default_stream(py, ordinal)?),
        },
    };
    match lane {
        Lane::PerThread(_) => Err(Failure::invalid(
            "arrays are not on the default stream of a thread, which is another one to others",
        )),
        lane => Ok(lane),
    }
}

/// The array of a tensor, whose producer has put its work before that of the lane.
pub(super) fn array_of(py: Python<'_>, tensor: ManagedTensor, lane: Lane) -> Result<PyDeviceArray> {
    let (dtype, exchange) = match tensor.dtype().numpy() {
        Some(dtype) => (dtype, None),
        // NumPy has none: its bytes, and what they are to DLPack.
        None => {
            let bytes = tensor.layout().item_size();
            (TypeString::native(Kind::Void, bytes)?, Some(tensor.dtype()))
        }
    };
    let layout = tensor.layout().clone();
    let mut address = tensor.address();
    let mut ordinal = tensor.device();
    let mut kind = tensor.memory();
    if !layout.is_empty() && layout.item_size() != 0 {
        let refused = |problem| refused("data", problem);
        let known = locate(py, address, layout.byte_range(), refused)?;
        (address, ordinal) = (known.address, known.ordinal);
        if kind == MemoryKind::Device {
            kind = known.kind;
        }
    }
    let its = lane.context().device().ordinal();
    if kind == MemoryKind::Device && ordinal != its {
        let problem = format!("memory of device {ordinal} for a stream of device {its}");
        return Err(refused("device", problem));
    }
    let context = lane.context().clone();
    let array = Array {
        dtype: Dtype::Plain(dtype),
        exchange,
        address: if layout.is_empty() { 0 } else { address },
        layout,
        read_only: tensor.is_read_only(),
    };
    let memory = Memory::foreign(Hold::Tensor(tensor), Some(lane), context, kind);
    Ok(PyDeviceArray::new(array, memory.into(), None))
}

/// Where an object says that its tensor is: the kind, and the number of the device.
fn device_of(object: &Bound<'_, PyAny>) -> Result<(i32, u32)> {
    let py = object.py();
    let answer = calling(py, || {
        match object.getattr_opt(intern!(py, "__dlpack_device__"))? {
            Some(method) => method.call0(),
            None => Err(PyTypeError::new_err(format!(
                "a {} has no __dlpack__ and __dlpack_device__",
                object.get_type().name()?
            ))),
        }
    })?;
    // The kind may be an enum of Python's.
    let (kind, number): (i32, i32) = answer.extract().map_err(|error| {
        let problem = format!("__dlpack_device__ gave no pair of numbers: {error}");
        refused("device", problem)
    })?;
    let kinds = [MemoryKind::Device, MemoryKind::Pinned, MemoryKind::Managed];
    if !kinds.map(device_type).contains(&kind) {
        let what = if kind == 1 {
            "the host (kDLCPU)"
        } else {
            "another kind of device"
        };
        let problem = format!("{kind}, {what}: what CUDA reaches is 2, 3 and 13");
        return Err(refused("device", problem));
    }
    if kind != device_type(MemoryKind::Device) {
        // Of the host there is no number: that of the thread's device.
        return Ok((kind, current::device(py)?));
    }
    let number = u32::try_from(number).map_err(|_| refused("device", format!("{number}")))?;
    Ok((kind, number))
}

/// Calls `__dlpack__`, of version 1 or before.
fn ask<'py>(
    object: &Bound<'py, PyAny>,
    kind: i32,
    lane: &Lane,
    copy: Option<bool>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let method = object.getattr(intern!(py, "__dlpack__"))?;
    let arguments = PyDict::new(py);
    if kind != device_type(MemoryKind::Pinned) {
        arguments.set_item(intern!(py, "stream"), lane.number())?;
    }
    let before = arguments.copy()?;
    arguments.set_item(intern!(py, "max_version"), (1, 2))?;
    if copy.is_some() {
        arguments.set_item(intern!(py, "copy"), copy)?;
    }
    match method.call((), Some(&arguments)) {
        // One from before version 1 knows neither.
        Err(error) if copy != Some(true) && error.is_instance_of::<PyTypeError>(py) => {
            method.call((), Some(&before))
        }
        answer => answer,
    }
}

/// `max_version`, which is a tuple of two.
pub(super) fn version(version: Option<&Bound<'_, PyTuple>>) -> Result<Option<(u32, u32)>> {
    Ok(version.map(|version| version.extract()).transpose()?)
}
