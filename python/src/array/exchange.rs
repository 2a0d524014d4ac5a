//! The C exchange table of DLPack 1.3. With the table of PyTorch's tensors, tensors are imported
//! without a Python call. `provide.rs` has the table of `DeviceArray`.

mod provide;

pub(super) use provide::{Description, capsule};

use super::dlpack::{array_of, lane_for, refused};
use super::peers::refuse_negated;
use super::{PyDeviceArray, dlpack};
use crate::error::Result;
use crate::lifetime::ending::detached;
use crate::lifetime::once::intern;
use crate::objects::PyStream;
use crate::primary::primary;
use crate::stream_handle::StreamHandle;
use core::ffi::{CStr, c_char, c_int, c_void};
use cuda_safe::interop::dlpack::raw::{
    DLDeviceType, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};
use cuda_safe::interop::dlpack::{ManagedTensor, TypeCode};
use pyo3::{ffi, prelude::*};

/// The C struct `DLPackExchangeAPI`, from the attribute `__dlpack_c_exchange_api__` of a tensor
/// type. The table is never freed.
#[repr(C)]
struct Table {
    version: DLPackVersion,
    _previous: *const c_void,
    allocate: Option<
        unsafe extern "C" fn(
            *mut DLTensor,
            *mut *mut DLManagedTensorVersioned,
            *mut c_void,
            Option<unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char)>,
        ) -> c_int,
    >,
    /// Creates a tensor on an object's memory, without any ordering; returns -1 and sets an
    /// exception on failure.
    from_object:
        Option<unsafe extern "C" fn(*mut c_void, *mut *mut DLManagedTensorVersioned) -> c_int>,
    /// Creates an object from a tensor, without any ordering; returns -1 and sets an exception on
    /// failure.
    to_object:
        Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned, *mut *mut c_void) -> c_int>,
    /// Describes an object's memory; returns -1 and sets an exception on failure.
    borrow: Option<unsafe extern "C" fn(*mut c_void, *mut DLTensor) -> c_int>,
    /// Returns the library's current stream on a device; returns -1 and sets an exception on
    /// failure.
    current_stream: Option<unsafe extern "C" fn(DLDeviceType, i32, *mut *mut c_void) -> c_int>,
}

// SAFETY: the table is never changed.
unsafe impl Sync for Table {}

const NAME: &CStr = c"dlpack_exchange_api";

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Table, from_object) == 24);
    assert!(offset_of!(Table, current_stream) == 48);
    assert!(size_of::<Table>() == 56);
};

/// Returns the table of an object's type, if it has one with a supported version.
fn table(object: &Bound<'_, PyAny>) -> Result<Option<&'static Table>> {
    let name = intern!(object.py(), "__dlpack_c_exchange_api__");
    let Some(capsule) = object.get_type().getattr_opt(name)? else {
        return Ok(None);
    };
    let kind = NAME.as_ptr();
    // SAFETY: `capsule` is an object, and the name is a C string.
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), kind) } == 0 {
        return Ok(None);
    }
    // SAFETY: the capsule has this name.
    let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), kind) };
    // SAFETY: a capsule with this name has a table that is never freed; every version has its
    // version number at this place.
    let version = unsafe { *table.cast::<DLPackVersion>() };
    if version.major != 1 {
        return Ok(None);
    }
    // SAFETY: the table has this version.
    Ok(Some(unsafe { &*table.cast::<Table>() }))
}

/// Returns the exception of a failed function of the table.
fn fetched(py: Python<'_>, answer: c_int) -> PyResult<()> {
    match answer {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}

/// Imports an object whose type has a table. Returns None if another protocol must be used.
pub(super) fn import(
    object: &Bound<'_, PyAny>,
    stream: Option<&PyStream>,
) -> Result<Option<PyDeviceArray>> {
    let py = object.py();
    // For arrays of this package, `__dlpack__` orders the stream of the import directly.
    if object.is_instance_of::<PyDeviceArray>() {
        return Ok(None);
    }
    let Some(table) = table(object)? else {
        return Ok(None);
    };
    let (Some(from_object), Some(current_stream)) = (table.from_object, table.current_stream)
    else {
        return Ok(None);
    };
    // The table ignores this attribute, but `__dlpack__` refuses it with PyTorch's message.
    let requires_grad = object.getattr_opt(intern!(py, "requires_grad"))?;
    if let Some(requires_grad) = requires_grad {
        if requires_grad.is_truthy()? {
            return Ok(None);
        }
    }
    refuse_negated(object, |problem| refused("data", problem))?;
    let mut tensor = std::ptr::null_mut();
    // SAFETY: the table is that of the object's type, and the pointer refers to a local variable.
    let answer = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) };
    fetched(py, answer)?;
    // SAFETY: the tensor is new and owned by this function.
    let tensor = unsafe { ManagedTensor::from_raw_versioned(tensor) }?;
    // A complex tensor may have PyTorch's conjugate bit set, which `dlpack::import` checks.
    if tensor.dtype().code == TypeCode::COMPLEX {
        return Ok(None);
    }
    let ordinal = tensor.device();
    let lane = lane_for(py, stream, ordinal)?;
    let mut current = std::ptr::null_mut();
    let device = i32::try_from(ordinal).map_err(|_| refused("device", format!("{ordinal}")))?;
    let kind = DLDeviceType(dlpack::device_type(tensor.memory()));
    // SAFETY: the arguments are two integers and a pointer to a local variable.
    let answer = unsafe { current_stream(kind, device, &raw mut current) };
    fetched(py, answer)?;
    // Libraries that represent the default stream as 0 mean the legacy one.
    let number = (current.expose_provenance() as u64).max(1);
    let producer = StreamHandle::of_number(number, primary(py, ordinal)?)?;
    if !lane.is_in_order_with(&producer) {
        detached(py, || lane.wait_stream(&producer))?;
    }
    Ok(Some(array_of(py, tensor, lane)?))
}
