//! The exchange table of `DeviceArray`, with which C code imports and exports arrays without a
//! Python call.
//!
//! The functions of a table do not synchronize. The consumer works on the stream that
//! `current_stream` returns, so an export orders the work on the array before this stream. This
//! costs nothing for an array on this stream, which is the usual case. For another array, the
//! stream waits for an event, and the release of the tensor orders the memory after the consumer's
//! work.

use super::super::dlpack::{
    self, Exported, array_of, dtype_of, lane_for, names_of, refused, work_lane,
};
use super::super::memory::Memory;
use super::super::{Array, PyDeviceArray};
use super::Table;
use crate::current;
use crate::error::{Failure, Result};
use crate::interpreter::Call;
use crate::lifetime::ending::{attached, detached};
use crate::primary::default_stream;
use crate::stream_handle::StreamHandle;
use core::ffi::{c_char, c_int, c_void};
use cuda_safe::interop::Dtype;
use cuda_safe::interop::dlpack::raw::{
    DLDeviceType, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY, DLPackVersion, DLTensor,
};
use cuda_safe::interop::dlpack::{DataType, Export, ManagedTensor, MemoryKind, TypeCode};
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyRuntimeError};
use pyo3::{ffi, prelude::*};
use std::ffi::{CStr, CString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

static TABLE: Table = Table {
    version: DLPackVersion { major: 1, minor: 3 },
    _previous: std::ptr::null(),
    allocate: Some(allocate),
    from_object: Some(from_object),
    to_object: Some(to_object),
    borrow: Some(borrow),
    current_stream: Some(current_stream),
};

/// Returns a capsule with the table.
pub(in crate::array) fn capsule(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    let table = (&raw const TABLE).cast_mut().cast();
    // SAFETY: the table and the name are static, and the capsule has no destructor. Consumers do
    // not write to the table.
    let capsule = unsafe { ffi::PyCapsule_New(table, super::NAME.as_ptr(), None) };
    // SAFETY: the pointer is a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, capsule) }
}

/// The tensor of an array, without an owner. It is created at the first export of an array. Later
/// exports copy it and share its shape and strides.
pub(in crate::array) struct Description(NonNull<DLManagedTensorVersioned>);

// SAFETY: this owns the tensor and never changes it.
unsafe impl Send for Description {}
// SAFETY: see `Send`.
unsafe impl Sync for Description {}

impl Description {
    fn new(array: &Array, memory: &Memory) -> Result<Self> {
        let (kind, number) = (memory.kind(), dlpack::device(memory).1.unsigned_abs());
        let (dtype, layout) = (dtype_of(array)?, array.layout.clone());
        let tensor = Export::new(dtype, layout, array.address, kind, number, ())?;
        let tensor = match array.read_only {
            true => tensor.read_only(),
            false => tensor,
        };
        Ok(Self(tensor.into_raw_versioned()))
    }

    fn get(&self) -> &DLManagedTensorVersioned {
        // SAFETY: the tensor is alive until this is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        if let Some(deleter) = self.get().deleter {
            // SAFETY: it is the tensor's deleter, and is called once.
            unsafe { deleter(self.0.as_ptr()) }
        }
    }
}

/// A tensor for a consumer. The C structure is the first field, so that both have the same address.
#[repr(C)]
struct Tensor {
    managed: DLManagedTensorVersioned,
    /// Has the shape and the strides to which the tensor points.
    _description: Arc<Description>,
    _exported: Exported,
}

// glibc takes longer to allocate and to free larger blocks.
const _: () = assert!(size_of::<Tensor>() <= 120);

/// The deleter of a [`Tensor`].
unsafe extern "C" fn delete(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: the consumer calls this once, with the pointer to the beginning of such a box.
    let tensor = unsafe { Box::from_raw(managed.cast::<Tensor>()) };
    // A panic must not unwind into C.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(tensor))) {
        std::mem::forget(panic);
    }
}

impl PyDeviceArray {
    fn description(&self, py: Python<'_>, memory: &Memory) -> Result<&Arc<Description>> {
        match self.description.get() {
            Some(description) => Ok(description),
            None => {
                let description = Description::new(&self.array, memory)?;
                Ok(self.description.keep(py, Arc::new(description)))
            }
        }
    }
}

/// Returns the device on whose current stream a consumer uses the memory.
fn ordinal_of(py: Python<'_>, kind: MemoryKind, number: u32) -> Result<u32> {
    match kind {
        MemoryKind::Device | MemoryKind::Managed => Ok(number),
        // Host memory has no device number.
        _ => current::device(py),
    }
}

/// Returns the stream of the memory, if it is not the stream on which consumers use the memory.
fn lane_to_order(memory: &Memory) -> Option<&StreamHandle> {
    // Without a stream, all work on the memory is complete.
    let lane = memory.lane()?;
    (memory.kind() == MemoryKind::Pinned || !current::is_lane(lane)).then_some(lane)
}

/// Returns the stream on which consumers use the memory, if it is not in order with the stream of
/// the memory, `lane`.
#[cold]
fn other_stream(
    py: Python<'_>,
    memory: &Memory,
    lane: &StreamHandle,
) -> Result<Option<StreamHandle>> {
    let device = memory.context().device().ordinal();
    let work = work_lane(py, ordinal_of(py, memory.kind(), device)?)?;
    Ok((!lane.is_in_order_with(&work)).then_some(work))
}

/// Exports an array.
fn export(py: Python<'_>, array: &PyDeviceArray) -> Result<NonNull<DLManagedTensorVersioned>> {
    let mut exported = Exported::new(array.kept(py)?);
    let Some(memory) = exported.memory() else {
        return Err(Failure::closed("array"));
    };
    memory.set_used();
    memory.grant_peer_access(py);
    let description = Arc::clone(array.description(py, memory)?);
    if let Some(lane) = lane_to_order(memory) {
        if let Some(work) = other_stream(py, memory, lane)? {
            detached(py, || work.wait_stream(lane))?;
            // The per-thread default stream is a different stream on the thread of the deleter.
            if !matches!(work, StreamHandle::PerThread(_)) {
                exported.set_consumer(work);
            }
        }
    }
    let its = description.get();
    // Written in place. A copy of a tensor that was just written to the stack stalls the processor.
    let tensor = Box::leak(Box::new_uninit()).write(Tensor {
        managed: DLManagedTensorVersioned {
            version: its.version,
            manager_ctx: std::ptr::null_mut(),
            deleter: Some(delete),
            flags: its.flags,
            dl_tensor: its.dl_tensor,
        },
        _description: description,
        _exported: exported,
    });
    Ok(NonNull::from(tensor).cast())
}

/// Runs the code of a function that returns -1 and sets an exception on failure.
///
/// # Safety
/// The calling thread must be attached to the interpreter (it holds the GIL), as DLPack requires of the
/// callers of all functions of the table that set exceptions.
unsafe fn answer(run: impl FnOnce(Python<'_>) -> Result<()>) -> c_int {
    // Attaching again would take longer than the rest of an export.
    // SAFETY: the caller's promise.
    let py = unsafe { Python::assume_attached() };
    match caught(|| run(py)) {
        Ok(()) => 0,
        Err(failure) => {
            PyErr::from(failure).restore(py);
            -1
        }
    }
}

/// Converts a panic, which must not unwind into C, to an exception.
fn caught<R>(run: impl FnOnce() -> Result<R>) -> Result<R> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        std::mem::forget(panic);
        Err(PyRuntimeError::new_err("cuda_safe panicked: this is a bug").into())
    })
}

/// Calls `run` with the array that `object` is.
///
/// # Safety
/// `object` must be a Python object, which the caller keeps alive, and the thread must be attached.
unsafe fn with_array(
    object: *mut c_void,
    run: impl FnOnce(Python<'_>, &PyDeviceArray) -> Result<()>,
) -> c_int {
    let run = |py: Python<'_>| {
        // SAFETY: the caller's promise.
        let object = unsafe { Borrowed::from_ptr(py, object.cast::<ffi::PyObject>()) };
        let array = object.cast::<PyDeviceArray>().map_err(PyErr::from)?;
        run(py, array.get())
    };
    // SAFETY: the caller's promise.
    unsafe { answer(run) }
}

/// Exports an array (`managed_tensor_from_py_object_no_sync`).
unsafe extern "C" fn from_object(
    object: *mut c_void,
    out: *mut *mut DLManagedTensorVersioned,
) -> c_int {
    let export = |py: Python<'_>, array: &PyDeviceArray| {
        let tensor = export(py, array)?;
        // SAFETY: the caller passes a pointer to a variable.
        unsafe { out.write(tensor.as_ptr()) };
        Ok(())
    };
    // SAFETY: the caller passes an object, and is attached.
    unsafe { with_array(object, export) }
}

/// Describes an array without keeping it alive (`dltensor_from_py_object_no_sync`).
///
/// Nothing tells when the consumer's work on the array ends. Therefore this is an error if the
/// consumer works on another stream than the array, and for a read-only array, because a `DLTensor`
/// has no flags.
unsafe extern "C" fn borrow(object: *mut c_void, out: *mut DLTensor) -> c_int {
    let borrow = |py: Python<'_>, array: &PyDeviceArray| {
        // The consumer keeps the array alive. A `close` by another thread has no effect on the
        // memory from now on.
        array.set_exported();
        let exported = Exported::new(array.kept(py)?);
        let Some(memory) = exported.memory() else {
            return Err(Failure::closed("array"));
        };
        memory.set_used();
        memory.grant_peer_access(py);
        let tensor = array.description(py, memory)?.get();
        if tensor.flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0 {
            let problem = "a DLTensor cannot express that an array is read-only";
            return Err(refused("flags", problem));
        }
        if let Some(lane) = lane_to_order(memory) {
            if other_stream(py, memory, lane)?.is_some() {
                let problem =
                    "the current stream is not that of the array: use `with array.stream:`";
                return Err(refused("stream", problem));
            }
        }
        // SAFETY: the caller passes a pointer to a variable.
        unsafe { out.write(tensor.dl_tensor) };
        Ok(())
    };
    // SAFETY: the caller passes an object, and is attached.
    unsafe { with_array(object, borrow) }
}

/// Creates an array from a tensor, which it takes in any case
/// (`managed_tensor_to_py_object_no_sync`). The array is on the current stream.
unsafe extern "C" fn to_object(
    tensor: *mut DLManagedTensorVersioned,
    out: *mut *mut c_void,
) -> c_int {
    let import = |py: Python<'_>| {
        // SAFETY: the caller gives up the tensor, and its deleter may be called at any time.
        let tensor = unsafe { ManagedTensor::from_raw_versioned(tensor) }?;
        let ordinal = ordinal_of(py, tensor.memory(), tensor.device())?;
        let lane = lane_for(py, None, ordinal)?;
        let array = Bound::new(py, array_of(py, tensor, lane)?)?;
        // SAFETY: the caller passes a pointer to a variable.
        unsafe { out.write(array.into_ptr().cast()) };
        Ok(())
    };
    // SAFETY: the caller is attached.
    unsafe { answer(import) }
}

/// Returns the stream for new arrays of this thread on a device (`current_work_stream`).
unsafe extern "C" fn current_stream(
    kind: DLDeviceType,
    number: i32,
    out: *mut *mut c_void,
) -> c_int {
    let find = |py: Python<'_>| {
        let kind = match kind {
            DLDeviceType::kDLCPU => MemoryKind::Host,
            DLDeviceType::kDLCUDA => MemoryKind::Device,
            DLDeviceType::kDLCUDAHost => MemoryKind::Pinned,
            DLDeviceType::kDLCUDAManaged => MemoryKind::Managed,
            DLDeviceType(kind) => return Err(refused("device", format!("the type {kind}"))),
        };
        let stream = match kind {
            MemoryKind::Host => std::ptr::null_mut(),
            _ => {
                let number = u32::try_from(number);
                let number = number.map_err(|_| refused("device", "a negative number"))?;
                work_lane(py, ordinal_of(py, kind, number)?)?.raw().cast()
            }
        };
        // SAFETY: the caller passes a pointer to a variable.
        unsafe { out.write(stream) };
        Ok(())
    };
    // SAFETY: the caller is attached.
    unsafe { answer(find) }
}

type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// Allocates an array with the type, the shape and the device of a prototype, in C order
/// (`managed_tensor_allocator`). The caller need not hold the GIL, so a failure is reported to a
/// function, except during finalization on other threads.
unsafe extern "C" fn allocate(
    prototype: *mut DLTensor,
    out: *mut *mut DLManagedTensorVersioned,
    context: *mut c_void,
    set_error: Option<SetError>,
) -> c_int {
    // SAFETY: the caller passes a tensor.
    let prototype = unsafe { *prototype };
    let allocated = attached(|py| {
        // SAFETY: the shape of the prototype has one entry per dimension.
        let allocated = caught(|| unsafe { allocated(py, &prototype) });
        allocated.map_err(|failure| {
            let error = PyErr::from(failure);
            (kind_of(py, &error), error.to_string())
        })
    });
    let (kind, message) = match allocated {
        Some(Ok(tensor)) => {
            // SAFETY: the caller passes a pointer to a variable.
            unsafe { out.write(tensor.as_ptr()) };
            return 0;
        }
        Some(Err(error)) => error,
        None => return -1,
    };
    let message = CString::new(message).unwrap_or_default();
    // The function may call Python.
    let call = Call::begin();
    if let (Some(set_error), Some(_)) = (set_error, &call) {
        // SAFETY: it is called with its context and two C strings.
        unsafe { set_error(context, kind.as_ptr(), message.as_ptr()) };
    }
    -1
}

/// Returns the name of Python's own exception class for an error.
fn kind_of(py: Python<'_>, error: &PyErr) -> &'static CStr {
    if error.is_instance_of::<PyMemoryError>(py) {
        c"MemoryError"
    } else if error.is_instance_of::<PyBufferError>(py) {
        c"BufferError"
    } else {
        c"RuntimeError"
    }
}

/// # Safety
/// The shape must have one entry per dimension.
unsafe fn allocated(
    py: Python<'_>,
    prototype: &DLTensor,
) -> Result<NonNull<DLManagedTensorVersioned>> {
    if prototype.device.device_type != DLDeviceType::kDLCUDA {
        let kind = prototype.device.device_type.0;
        let problem = format!("arrays of the device type {kind} cannot be allocated: use 2");
        return Err(refused("device", problem));
    }
    let ordinal = u32::try_from(prototype.device.device_id);
    let ordinal = ordinal.map_err(|_| refused("device", "a negative number"))?;
    let dimensions = usize::try_from(prototype.ndim);
    let dimensions = dimensions.map_err(|_| refused("ndim", "a negative number"))?;
    let shape = match dimensions {
        0 => &[],
        // SAFETY: the caller's promise.
        _ => unsafe { std::slice::from_raw_parts(prototype.shape, dimensions) },
    };
    let extents: Option<Vec<usize>> = shape.iter().map(|its| usize::try_from(*its).ok()).collect();
    let extents =
        extents.ok_or_else(|| refused("shape", format!("{shape:?} is not a shape of an array")))?;
    let dtype = DataType {
        code: TypeCode(prototype.dtype.code),
        bits: prototype.dtype.bits,
        lanes: prototype.dtype.lanes,
    };
    let size = dtype.item_size().filter(|size| *size != 0);
    let size = size.ok_or_else(|| {
        refused("dtype", format!("elements of {dtype} are not a whole number of bytes"))
    })?;
    let (names, exchange) = names_of(dtype, size)?;
    let stream = match work_lane(py, ordinal)? {
        StreamHandle::Stream(stream) => stream,
        // Nothing can be allocated on a default stream of the driver.
        _ => default_stream(py, ordinal)?,
    };
    let mut array = PyDeviceArray::allocate(py, stream, Dtype::Plain(names), &extents)?;
    array.array.exchange = exchange;
    export(py, &array)
}
