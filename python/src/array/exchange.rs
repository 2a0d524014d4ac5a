//! The C table of DLPack 1.2 and later, by which tensors of PyTorch come without a call of Python.

use super::dlpack::{array_of, lane_for, refused};
use super::peers::refuse_negated;
use super::{PyDeviceArray, dlpack};
use crate::device::primary;
use crate::ending::{calling, detached};
use crate::error::Result;
use crate::lane::Lane;
use crate::once::intern;
use crate::stream::PyStream;
use core::ffi::{c_int, c_void};
use cuda_safe::interop::dlpack::raw::{DLDeviceType, DLManagedTensorVersioned, DLPackVersion};
use cuda_safe::interop::dlpack::{ManagedTensor, TypeCode};
use pyo3::{ffi, prelude::*};

/// `DLPackExchangeAPI`: what a type of tensors has in its `__dlpack_c_exchange_api__`. The table stays for
/// as long as the process.
#[repr(C)]
struct Table {
    version: DLPackVersion,
    _previous: *const c_void,
    _allocate: *const c_void,
    /// A new tensor on an object's memory, with nothing put in order; or -1 and an exception.
    from_object:
        Option<unsafe extern "C" fn(*mut c_void, *mut *mut DLManagedTensorVersioned) -> c_int>,
    _to_object: *const c_void,
    _borrow: *const c_void,
    /// The stream that the library gives work to now on a device; or -1 and an exception.
    current_stream: Option<unsafe extern "C" fn(DLDeviceType, i32, *mut *mut c_void) -> c_int>,
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Table, from_object) == 24);
    assert!(offset_of!(Table, current_stream) == 48);
    assert!(size_of::<Table>() == 56);
};

/// The table of an object's type, if it has one that is known here.
fn table(object: &Bound<'_, PyAny>) -> Result<Option<&'static Table>> {
    let name = intern!(object.py(), "__dlpack_c_exchange_api__");
    let Some(capsule) = object.get_type().getattr_opt(name)? else {
        return Ok(None);
    };
    let kind = c"dlpack_exchange_api".as_ptr();
    // SAFETY: it is an object; the name is text.
    if unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), kind) } == 0 {
        return Ok(None);
    }
    // SAFETY: it is a capsule of that name.
    let table = unsafe { ffi::PyCapsule_GetPointer(capsule.as_ptr(), kind) };
    // SAFETY: a capsule of that name has a table that stays; its version is at this place in all of them.
    let version = unsafe { *table.cast::<DLPackVersion>() };
    if version.major != 1 {
        return Ok(None);
    }
    // SAFETY: it is a table of that version.
    Ok(Some(unsafe { &*table.cast::<Table>() }))
}

/// The exception that a function of the table has left, if it failed.
fn fetched(py: Python<'_>, answer: c_int) -> PyResult<()> {
    match answer {
        0 => Ok(()),
        _ => Err(PyErr::fetch(py)),
    }
}

/// The array of an object whose type has a table; none if it has to be asked in another way.
pub(super) fn import(
    object: &Bound<'_, PyAny>,
    stream: Option<&PyStream>,
) -> Result<Option<PyDeviceArray>> {
    let py = object.py();
    let Some(table) = table(object)? else {
        return Ok(None);
    };
    let (Some(from_object), Some(current_stream)) = (table.from_object, table.current_stream)
    else {
        return Ok(None);
    };
    // The table does not look at this, and `__dlpack__` refuses it in PyTorch's words.
    let requires_grad = object.getattr_opt(intern!(py, "requires_grad"))?;
    if let Some(requires_grad) = requires_grad {
        if requires_grad.is_truthy()? {
            return Ok(None);
        }
    }
    refuse_negated(object, |problem| refused("data", problem))?;
    let mut tensor = std::ptr::null_mut();
    calling(py, || {
        // SAFETY: the object is of the type that the table is of, and the pointer is to a local.
        let answer = unsafe { from_object(object.as_ptr().cast(), &raw mut tensor) };
        fetched(py, answer)
    })?;
    // SAFETY: it is a new one, and ours.
    let tensor = unsafe { ManagedTensor::from_raw_versioned(tensor) }?;
    // Perhaps it is conjugated in PyTorch's mind only, which is asked elsewhere.
    if tensor.dtype().code == TypeCode::COMPLEX {
        return Ok(None);
    }
    let ordinal = tensor.device();
    let lane = lane_for(py, stream, ordinal)?;
    let mut current = std::ptr::null_mut();
    let device = i32::try_from(ordinal).map_err(|_| refused("device", format!("{ordinal}")))?;
    calling(py, || {
        let kind = DLDeviceType(dlpack::device_type(tensor.memory()));
        // SAFETY: two numbers, and a pointer to a local.
        let answer = unsafe { current_stream(kind, device, &raw mut current) };
        fetched(py, answer)
    })?;
    // To those who have it by 0 that is the legacy default stream.
    let number = (current.expose_provenance() as u64).max(1);
    let producer = Lane::of_number(number, primary(py, ordinal)?)?;
    if !lane.is_in_order_with(&producer) {
        detached(py, || lane.follow(&producer))?;
    }
    Ok(Some(array_of(py, tensor, lane)?))
}
