//! The arguments of a kernel, which launches and graph nodes get in one of two forms: an array of pointers
//! (`kernelParams`), or one buffer (`extra`).

use crate::code::KernelInfo;
use crate::state::Answer;
use core::ffi::c_void;
use cuda_sys::{CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CUresult};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Copies the arguments of a kernel.
///
/// Unverified (from documentation): the code for both forms at once, and for a buffer that is too short.
///
/// # Safety
/// `params` is null or has a pointer for each parameter, which is null or points to the bytes of the parameter.
/// `extra` is null or a list as `cuLaunchKernel` describes it.
pub(super) unsafe fn arguments(
    kernel: &KernelInfo,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer<Vec<Vec<u8>>> {
    if !params.is_null() && !extra.is_null() {
        return Err(INVALID);
    }
    let mut arguments = Vec::with_capacity(kernel.params.len());
    if kernel.params.is_empty() {
        return Ok(arguments);
    }
    let buffer = match extra.is_null() {
        true if params.is_null() => return Err(INVALID),
        true => None,
        // SAFETY: the caller guarantees a list.
        false => Some(unsafe { packed(extra) }?),
    };
    for (index, (offset, size)) in kernel.params.iter().enumerate() {
        let argument = match buffer {
            Some((start, length)) => {
                let is_inside = offset.checked_add(*size).is_some_and(|end| end <= length);
                is_inside
                    .then(|| start.wrapping_add(*offset))
                    .ok_or(INVALID)?
            }
            None => {
                // SAFETY: the caller guarantees a pointer for each parameter.
                let place = unsafe { params.add(index) };
                // SAFETY: the caller guarantees a pointer for each parameter.
                unsafe { place.read() }.cast::<u8>().cast_const()
            }
        };
        if argument.is_null() {
            return Err(INVALID);
        }
        let mut bytes = vec![0; *size];
        // SAFETY: the caller guarantees that the argument has `size` bytes. The target has the same
        // length and does not overlap it.
        unsafe { core::ptr::copy_nonoverlapping(argument, bytes.as_mut_ptr(), *size) };
        arguments.push(bytes);
    }
    Ok(arguments)
}

/// Returns the buffer that a list of keys and values names, and its length. A buffer without a length has no effect;
/// a length without a buffer is an error.
///
/// # Safety
/// `extra` is a list as `cuLaunchKernel` describes it.
unsafe fn packed(extra: *mut *mut c_void) -> Answer<(*const u8, usize)> {
    let (mut start, mut length) = (core::ptr::null(), 0);
    let mut place = extra;
    loop {
        // SAFETY: the caller guarantees a key here, and the last key is null.
        let key = unsafe { place.read() };
        if key.is_null() {
            break;
        }
        // SAFETY: the caller guarantees a value after each key but the last.
        let value_place = unsafe { place.add(1) };
        // SAFETY: the caller guarantees a value after each key but the last.
        let value = unsafe { value_place.read() };
        if key == CU_LAUNCH_PARAM_BUFFER_POINTER {
            start = value.cast::<u8>().cast_const();
        } else if key == CU_LAUNCH_PARAM_BUFFER_SIZE {
            // SAFETY: the value of this key is null or points to a size.
            length = *unsafe { value.cast::<usize>().as_ref() }.ok_or(INVALID)?;
        } else {
            return Err(INVALID);
        }
        // SAFETY: the list continues with a key.
        place = unsafe { place.add(2) };
    }
    match start.is_null() && length != 0 {
        true => Err(INVALID),
        false => Ok((start, length)),
    }
}
