//! The arguments of a kernel, which launches and graph nodes get in one of two forms: an array of pointers
//! (`kernelParams`), or one buffer (`extra`).

use crate::api::prelude::*;
use crate::exec::Call;
use cuda_sys::{CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE};

/// Copies the arguments of a kernel to a call. A buffer that is longer than the parameters is refused with
/// `too_long`. In one that is shorter, a real driver ignores what is missing (measured); here it is 0.
///
/// # Safety
/// `params` is null or has a pointer for each parameter, which is null or points to the bytes of the parameter.
/// `extra` is null or a list as `cuLaunchKernel` describes it.
pub(crate) unsafe fn copy_arguments(
    call: &mut Call,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
    too_long: CUresult,
) -> Answer {
    fail_if(!params.is_null() && !extra.is_null(), INVALID)?;
    let kernel = &call.kernel.info;
    // The parameters of a damaged cubin can have any places.
    let ends = kernel.params.iter().map(|(at, size)| at.saturating_add(*size));
    let Some(needed) = ends.max() else {
        return Ok(());
    };
    let mut copied = Vec::with_capacity(kernel.params.len());
    if !extra.is_null() {
        // SAFETY: the caller guarantees a list.
        let (start, length) = unsafe { packed(extra) }?;
        fail_if(length > needed, too_long)?;
        let mut buffer = Vec::new();
        buffer.try_reserve_exact(needed).map_err(|_| INVALID)?;
        buffer.resize(needed, 0);
        // SAFETY: the caller guarantees that the buffer has this length, which is at most that of the target.
        unsafe { core::ptr::copy_nonoverlapping(start, buffer.as_mut_ptr(), length) };
        let argument = |(at, size): &(usize, usize)| buffer[*at..at + size].to_vec();
        copied.extend(kernel.params.iter().map(argument));
        if length < needed {
            misuse(format!(
                "the buffer with the arguments of kernel \"{}\" has {length} bytes, and its parameters {needed}",
                kernel.name
            ));
        }
        call.packed = Some(length);
    } else if params.is_null() {
        return Err(INVALID);
    } else {
        for (index, (_, size)) in kernel.params.iter().enumerate() {
            // SAFETY: the caller guarantees a pointer for each parameter.
            let place = unsafe { params.add(index) };
            // SAFETY: the caller guarantees a pointer for each parameter.
            let argument = unsafe { place.read() };
            fail_if(argument.is_null(), INVALID)?;
            let mut bytes = vec![0; *size];
            // SAFETY: the caller guarantees that the argument has `size` bytes. The target has the same
            // length and does not overlap it.
            unsafe { core::ptr::copy_nonoverlapping(argument.cast(), bytes.as_mut_ptr(), *size) };
            copied.push(bytes);
        }
    }
    call.arguments = copied;
    Ok(())
}

/// Returns the buffer that a list of keys and values names, and its length. Fails without both (measured).
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
    match start.is_null() || length == 0 {
        true => Err(INVALID),
        false => Ok((start, length)),
    }
}
