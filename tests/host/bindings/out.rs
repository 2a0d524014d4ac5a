//! `cuda_sys::out`: results that a function writes through a pointer.

use crate::common::child::in_child;
use crate::fakes::{NOWHERE, VARIABLE};
use crate::software;
use cuda_sys::{CUDA_MEMCPY2D, CUdevice_attribute, CUevent, CUresult, CUuuid, Zeroable, out};
use std::ffi::c_void;
use std::ptr::null_mut;

/// Returns the bytes of the value that `out` passes to the function. The type must not have padding.
fn initial<T: Zeroable>() -> Vec<u8> {
    let mut bytes = Vec::new();
    let value = out(|place: *mut T| {
        for at in 0..size_of::<T>() {
            // SAFETY: the offset is below the size of the value.
            let byte = unsafe { place.cast::<u8>().add(at) };
            // SAFETY: the pointer is to a byte of the value, which has no padding and is initialized.
            bytes.push(unsafe { byte.read() });
        }
        CUresult::CUDA_SUCCESS
    });
    assert!(value.is_ok());
    bytes
}

#[test]
fn the_value_is_what_the_function_wrote() {
    let value = out(|place: *mut u32| {
        // SAFETY: `out` passes a valid pointer.
        unsafe { place.write(7) };
        CUresult::CUDA_SUCCESS
    });
    assert_eq!(value, Ok(7));
}

#[test]
fn an_error_code_is_the_error_whatever_was_written() {
    let value = out(|place: *mut u32| {
        // SAFETY: `out` passes a valid pointer.
        unsafe { place.write(7) };
        CUresult::CUDA_ERROR_INVALID_VALUE
    });
    assert_eq!(value, Err(CUresult::CUDA_ERROR_INVALID_VALUE));
}

#[test]
fn a_value_that_is_not_written_is_zero() {
    assert_eq!(initial::<[u64; 3]>(), [0; 24]);
    assert_eq!(initial::<*mut c_void>(), [0; 8]);
    assert_eq!(initial::<CUevent>(), [0; 8]);
    assert_eq!(initial::<CUdevice_attribute>(), [0; 4]);
    assert_eq!(initial::<f64>(), [0; 8]);
    assert_eq!(initial::<CUuuid>(), [0; 16]);
    let event: Result<CUevent, CUresult> = out(|_| CUresult::CUDA_SUCCESS);
    assert_eq!(event, Ok(null_mut()));
    let copy: Result<CUDA_MEMCPY2D, CUresult> = out(|_| CUresult::CUDA_SUCCESS);
    let copy = copy.expect("a success");
    assert!(copy.srcHost.is_null() && copy.dstDevice == 0 && copy.Height == 0);
}

#[test]
fn results_of_the_driver_are_returned() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        software::install();
        // SAFETY: `cuInit` takes no pointer.
        unsafe { cuda_sys::cuInit(0) }.ok().expect("the driver starts");
        // SAFETY: `out` passes a valid pointer.
        let count = out(|place| unsafe { cuda_sys::cuDeviceGetCount(place) });
        assert_eq!(count, Ok(3));
        // SAFETY: `out` passes a valid pointer.
        let device = out(|place| unsafe { cuda_sys::cuDeviceGet(place, 2) });
        assert_eq!(device, Ok(2));
    });
}

#[test]
fn without_a_driver_there_is_no_result() {
    in_child(&[(VARIABLE, NOWHERE)], || {
        // SAFETY: `out` passes a valid pointer.
        let count = out(|place| unsafe { cuda_sys::cuDeviceGetCount(place) });
        assert_eq!(count, Err(CUresult::CUDA_ERROR_NOT_INITIALIZED));
    });
}
