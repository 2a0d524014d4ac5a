//! DLPack import and export through capsules.

use super::memory::{Memory, locate};
use super::peers::refuse_lazy;
use super::{Array, Kept, PyDeviceArray, exchange, to_host};
use crate::current;
use crate::error::{Failure, Result};
use crate::lifetime::ending::{detached, without_gil};
use crate::lifetime::hold::Owner;
use crate::lifetime::once::intern;
use crate::objects::PyStream;
use crate::primary::{default_stream, is_gone, primary, refuse_gone};
use crate::stream_handle::StreamHandle;
use crate::tensor::{Hold, release_tensors};
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

/// The names of a capsule before and after its tensor is consumed.
struct Names {
    fresh: &'static CStr,
    used: &'static CStr,
}

const LEGACY: Names = Names { fresh: c"dltensor", used: c"used_dltensor" };
const VERSIONED: Names = Names { fresh: c"dltensor_versioned", used: c"used_dltensor_versioned" };

pub(super) fn refused(field: &'static str, problem: impl Into<String>) -> Failure {
    let problem = problem.into();
    Invalid::Dlpack { field, problem }.into()
}

/// Returns the DLPack device type and device number. For host memory the number is 0.
pub(super) fn device(memory: &Memory) -> (i32, i32) {
    device_as(memory.kind(), memory)
}

/// Returns the same for memory of another kind on the same device.
fn device_as(kind: MemoryKind, memory: &Memory) -> (i32, i32) {
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
        MemoryKind::Host => DLDeviceType::kDLCPU,
        _ => DLDeviceType::kDLCUDA,
    };
    device.0
}

/// The owners of the memory of an exported tensor. The consumer's call of the deleter, on any
/// thread, drops this.
pub(super) struct Exported {
    memory: Option<Arc<Memory>>,
    owner: Option<Owner>,
    /// The stream of the consumer's work, if it is known and stays alive. It is in a box, because most
    /// tensors have none and all have the space for it.
    consumer: Option<Box<StreamHandle>>,
}

impl Exported {
    pub(super) fn new(kept: Kept) -> Self {
        Self { memory: Some(kept.memory), owner: kept.owner.map(Owner::new), consumer: None }
    }

    pub(super) fn memory(&self) -> Option<&Memory> {
        self.memory.as_deref()
    }

    /// Sets the stream of the consumer's work, which this value keeps alive.
    pub(super) fn set_consumer(&mut self, consumer: StreamHandle) {
        self.consumer = Some(Box::new(consumer));
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        let Some(memory) = self.memory.take() else {
            return;
        };
        // The consumer's work may still be running.
        let consumer = self.consumer.take();
        let consumer = consumer.filter(|_| !is_gone(memory.context()));
        let behind = consumer.and_then(|consumer| {
            let lane = memory.lane()?;
            (!lane.is_in_order_with(&consumer)).then(|| (consumer, lane.clone()))
        });
        let owner = &mut self.owner;
        match behind {
            Some((consumer, lane)) => without_gil(move || match lane.wait_stream(&consumer) {
                Ok(()) => drop(memory),
                // For example, one of the streams is capturing.
                Err(_) => {
                    let hold = Hold::Exported(Arc::new((memory, owner.take())));
                    release_tensors(Some((hold, *consumer)));
                }
            }),
            None => {
                // If other references exist, the last of them frees the memory.
                if let Some(last) = Arc::into_inner(memory) {
                    without_gil(move || drop(last));
                }
            }
        }
    }
}

/// Returns the stream of a consumer, or None if the consumer asks for no ordering.
fn consumers_lane(stream: ConsumerStream, context: &Context) -> Result<Option<StreamHandle>> {
    match stream {
        ConsumerStream::NoSync => Ok(None),
        stream => {
            let number = u64::try_from(stream.number());
            let number = number.map_err(|_| refused("stream", "not a stream handle"))?;
            Ok(Some(StreamHandle::of_number(number, context.clone())?))
        }
    }
}

/// The arguments of `__dlpack__`.
pub(super) struct Request {
    pub(super) stream: Option<i64>,
    pub(super) max_version: Option<(u32, u32)>,
    pub(super) device: Option<(i32, i32)>,
    /// Whether the tensor must be a copy, or must not be one.
    pub(super) copy: Option<bool>,
}

/// Exports an array as a capsule, to the requested device.
pub(super) fn answer<'py>(
    py: Python<'py>,
    array: &PyDeviceArray,
    request: &Request,
) -> Result<Bound<'py, PyAny>> {
    if request.device == Some(to_host::HOST) {
        return to_host::export(py, array, request);
    }
    let own = array.look(Memory::kind)?;
    // Nothing is copied for a request that is then refused.
    let kind = match request.device {
        Some((kind, _))
            if request.copy == Some(true) && kind == device_type(MemoryKind::Device) =>
        {
            MemoryKind::Device
        }
        _ => own,
    };
    let given = array.look(|memory| device_as(kind, memory))?;
    if let Some(device) = request.device.filter(|device| *device != given) {
        let problem = format!("{device:?} was requested, but the array is on {given:?}");
        return Err(refused("dl_device", problem));
    }
    if request.copy != Some(true) {
        if own != MemoryKind::Device && request.stream.is_none() {
            // The consumer may be the host.
            to_host::wait(py, array)?;
        }
        return export(py, &array.array, array.kept(py)?, request);
    }
    dtype_of(&array.array)?;
    let copied = array.copy_in(py, kind)?;
    if kind != MemoryKind::Device && request.stream.is_none() {
        to_host::wait(py, &copied)?;
    }
    export(py, &copied.array, copied.kept(py)?, request)
}

/// Exports an array as a capsule, after making the consumer's stream wait for the array's stream.
fn export<'py>(
    py: Python<'py>,
    array: &Array,
    kept: Kept,
    request: &Request,
) -> Result<Bound<'py, PyAny>> {
    let memory = &kept.memory;
    memory.set_used();
    memory.grant_peer_access(py);
    let own = device(memory);
    let stream = ConsumerStream::from_number(request.stream.map(i128::from))?;
    let consumer = consumers_lane(stream, memory.context())?;
    if let (Some(consumer), Some(lane)) = (&consumer, memory.lane()) {
        if !consumer.is_in_order_with(lane) {
            detached(py, || consumer.wait_stream(lane))?;
        }
    }
    let dtype = dtype_of(array)?;
    let kind = memory.kind();
    let mut exported = Exported::new(kept);
    // Nothing keeps a stream alive that is given by its handle.
    if let Some(legacy @ StreamHandle::Legacy(_)) = consumer {
        exported.set_consumer(legacy);
    }
    let (layout, address) = (array.layout.clone(), array.address);
    let number = own.1.unsigned_abs();
    let mut tensor = Export::new(dtype, layout, address, kind, number, exported)?;
    if array.read_only {
        tensor = tensor.read_only();
    }
    if request.copy == Some(true) {
        tensor = tensor.copied();
    }
    capsule_of(py, tensor, request)
}

/// Returns the DLPack type of the elements.
pub(super) fn dtype_of(array: &Array) -> Result<DataType> {
    match array.exchange {
        Some(dtype) => Ok(dtype),
        None => Ok(DataType::from_numpy(&array.dtype)?),
    }
}

/// Returns a capsule of the version that the consumer supports.
pub(super) fn capsule_of<'py>(
    py: Python<'py>,
    tensor: Export,
    request: &Request,
) -> Result<Bound<'py, PyAny>> {
    if request.max_version.is_some_and(|(major, _)| major >= 1) {
        return capsule(py, tensor.into_raw_versioned());
    }
    let tensor = tensor.into_raw()?;
    capsule(py, tensor)
}

/// A tensor structure that a capsule contains.
trait Managed: Sized {
    const NAMES: Names;

    /// # Safety
    /// `tensor` must not have been consumed or deleted.
    unsafe fn take(tensor: *mut Self) -> Result<ManagedTensor, Invalid>;

    /// Calls the deleter.
    ///
    /// # Safety
    /// See `take`.
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
            // SAFETY: it is the tensor's deleter, and is called once.
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
            // SAFETY: it is the tensor's deleter, and is called once.
            unsafe { deleter(tensor) }
        }
    }
}

fn capsule<M: Managed>(py: Python<'_>, tensor: NonNull<M>) -> Result<Bound<'_, PyAny>> {
    let name = M::NAMES.fresh.as_ptr();
    // SAFETY: the name is static, and the destructor matches the capsule's contents.
    let capsule = unsafe { ffi::PyCapsule_New(tensor.as_ptr().cast(), name, Some(destroy::<M>)) };
    // SAFETY: the pointer is a new reference, or null with an exception set.
    let capsule = unsafe { Bound::from_owned_ptr_or_err(py, capsule) };
    if capsule.is_err() {
        // SAFETY: no other code has seen the tensor.
        unsafe { M::delete(tensor.as_ptr()) };
    }
    Ok(capsule?)
}

/// Destructor of a capsule; deletes its tensor unless it was consumed.
unsafe extern "C" fn destroy<M: Managed>(capsule: *mut ffi::PyObject) {
    let name = M::NAMES.fresh.as_ptr();
    // SAFETY: `capsule` is the capsule that is being destroyed.
    if unsafe { ffi::PyCapsule_IsValid(capsule, name) } == 0 {
        return;
    }
    // SAFETY: see above; the capsule has this name.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule, name) };
    // SAFETY: a consumer of the tensor renames the capsule, so the tensor was not consumed.
    unsafe { M::delete(tensor.cast()) };
}

/// Consumes the tensor of a capsule, if the capsule is of this kind.
fn take<M: Managed>(capsule: &Bound<'_, PyAny>) -> Result<Option<ManagedTensor>> {
    let names = M::NAMES;
    // SAFETY: `capsule` is an object, and the name is a C string.
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), names.fresh.as_ptr()) } == 0 {
        return Ok(None);
    }
    // SAFETY: the capsule has this name.
    let tensor = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), names.fresh.as_ptr()) };
    // SAFETY: see above; the new name is static.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), names.used.as_ptr()) } != 0 {
        return Err(PyErr::fetch(capsule.py()).into());
    }
    // SAFETY: a capsule with this name has a tensor of this type, and is now marked as consumed.
    Ok(Some(unsafe { M::take(tensor.cast()) }?))
}

/// Imports an object that supports DLPack.
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
    let capsule = ask(object, kind, &lane, copy)?;
    if kind == device_type(MemoryKind::Pinned) {
        // Without a stream argument, the producer has ordered its work before the legacy default
        // stream.
        let legacy = StreamHandle::Legacy(primary(py, ordinal)?);
        detached(py, || lane.wait_stream(&legacy))?;
    }
    let tensor = match take::<DLManagedTensorVersioned>(&capsule)? {
        Some(tensor) => tensor,
        None => take::<DLManagedTensor>(&capsule)?.ok_or_else(|| {
            PyValueError::new_err("__dlpack__ did not return a capsule with an unconsumed tensor")
        })?,
    };
    array_of(py, tensor, lane)
}

/// Returns the stream for the work on a tensor: the given one, that of the thread's `with` block,
/// or that of the device.
pub(super) fn lane_for(
    py: Python<'_>,
    stream: Option<&PyStream>,
    ordinal: u32,
) -> Result<StreamHandle> {
    let lane = match stream {
        Some(stream) => stream.lane()?,
        None => work_lane(py, ordinal)?,
    };
    match lane {
        StreamHandle::PerThread(_) => Err(Failure::invalid(
            "an array cannot use the per-thread default stream, which is a different stream on each \
             thread",
        )),
        lane => Ok(lane),
    }
}

/// Returns the stream for new work of this thread on a device: that of the thread's `with` block, or
/// that of the device.
pub(super) fn work_lane(py: Python<'_>, ordinal: u32) -> Result<StreamHandle> {
    match current::lane_of_blocks() {
        Some(lane) if lane.context().device().ordinal() == ordinal => {
            refuse_gone(lane.context(), "stream").map(|()| lane)
        }
        _ => Ok(StreamHandle::Stream(default_stream(py, ordinal)?)),
    }
}

/// Returns the NumPy type for a DLPack type. If NumPy has no such type, this is the type of bytes,
/// and the DLPack type is returned too.
pub(super) fn names_of(dtype: DataType, size: usize) -> Result<(TypeString, Option<DataType>)> {
    match dtype.numpy() {
        Some(name) => Ok((name, None)),
        None => Ok((TypeString::native(Kind::Void, size)?, Some(dtype))),
    }
}

/// Creates an array from a tensor whose producer has ordered its work before the given stream.
pub(super) fn array_of(
    py: Python<'_>,
    tensor: ManagedTensor,
    lane: StreamHandle,
) -> Result<PyDeviceArray> {
    let (dtype, exchange) = names_of(tensor.dtype(), tensor.layout().item_size())?;
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
    let memory = Memory::new(Hold::Tensor(tensor), Some(lane), context, kind);
    Ok(PyDeviceArray::new(array, memory.into(), None))
}

/// Returns the device type and number that an object reports for its tensor.
fn device_of(object: &Bound<'_, PyAny>) -> Result<(i32, u32)> {
    let py = object.py();
    let answer = match object.getattr_opt(intern!(py, "__dlpack_device__"))? {
        Some(method) => method.call0()?,
        None => {
            return Err(PyTypeError::new_err(format!(
                "an object of type {} has no __dlpack__ and __dlpack_device__: DeviceArray.from_host \
                 copies host data to a device",
                object.get_type().name()?
            ))
            .into());
        }
    };
    // The device type may be a Python enum.
    let (kind, number): (i32, i32) = answer.extract().map_err(|error| {
        let problem = format!("__dlpack_device__ did not return a pair of integers: {error}");
        refused("device", problem)
    })?;
    let kinds = [MemoryKind::Device, MemoryKind::Pinned, MemoryKind::Managed];
    if !kinds.map(device_type).contains(&kind) {
        let problem = match (kind, 0) == to_host::HOST {
            true => "1, the host (kDLCPU): use DeviceArray.from_host, which copies".to_owned(),
            false => format!("{kind}: the supported device types are 2, 3 and 13"),
        };
        return Err(refused("device", problem));
    }
    if kind != device_type(MemoryKind::Device) {
        // Host memory has no device number; use the thread's current device.
        return Ok((kind, current::device(py)?));
    }
    let number = u32::try_from(number).map_err(|_| refused("device", format!("{number}")))?;
    Ok((kind, number))
}

/// Calls `__dlpack__` with the arguments of version 1, or else those of earlier versions.
fn ask<'py>(
    object: &Bound<'py, PyAny>,
    kind: i32,
    lane: &StreamHandle,
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
        // A producer from before version 1 knows neither argument.
        Err(error) if copy != Some(true) && error.is_instance_of::<PyTypeError>(py) => {
            method.call((), Some(&before))
        }
        answer => answer,
    }
}

/// Reads `max_version`, a tuple of two integers.
pub(super) fn version(version: Option<&Bound<'_, PyTuple>>) -> Result<Option<(u32, u32)>> {
    Ok(version.map(|version| version.extract()).transpose()?)
}
