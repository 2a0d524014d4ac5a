//! Launches and host functions.

use crate::exec::{Call, Work};
use crate::objects::Runnable;
use crate::world::{Answer, World};
use core::ffi::{c_uint, c_void};
use cuda_sys::{CUfunction, CUhostFn, CUresult, CUstream};

/// The same on every GPU.
const MAX_GRID_X: u32 = i32::MAX.unsigned_abs();
const MAX_GRID_YZ: u32 = 65_535;
/// What a block may have of dynamic shared memory unless the function's attribute says more, which
/// this driver does not let it.
const MAX_SHARED: u32 = 48 * 1024;

#[allow(clippy::too_many_arguments, reason = "NVIDIA's list")]
pub(super) fn kernel(
    world: &mut World,
    function: CUfunction,
    gx: c_uint,
    gy: c_uint,
    gz: c_uint,
    bx: c_uint,
    by: c_uint,
    bz: c_uint,
    shared: c_uint,
    stream: CUstream,
    params: *mut *mut c_void,
    extra: *mut *mut c_void,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    let (kernel, context) = world.runnable(function.addr())?;
    let its = world.streams.get(stream);
    let (home, green) = its.map_or((0, None), |its| (its.context, its.green));
    if context.is_some_and(|context| context != home) {
        return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
    }
    let (grid, block) = ([gx, gy, gz], [bx, by, bz]);
    let extents = block.iter().map(|extent| u64::from(*extent));
    let threads = extents.fold(1, u64::saturating_mul);
    let far = gx > MAX_GRID_X || gy > MAX_GRID_YZ || gz > MAX_GRID_YZ;
    let beyond = far || grid.contains(&0) || threads == 0 || threads > 1024 || bz > 64;
    let needs_params = !kernel.info.params.is_empty() && params.is_null();
    if beyond || needs_params || !extra.is_null() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    if shared > MAX_SHARED {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let green = green.and_then(|green| world.greens.get(green));
    let partition = green.map(|green| (green.id, green.wholes.clone()));
    let sms = match green {
        Some(green) => green.sms.iter().copied().collect(),
        None => (0..world.profile.gpu.sms).collect(),
    };
    // SAFETY: the caller gives a pointer for each parameter, to as many bytes as it has.
    let arguments = unsafe { copy_arguments(&kernel, params) };
    let call = Call {
        kernel,
        context: home,
        device: world.context(home)?.device,
        grid,
        block,
        shared,
        arguments,
        sms,
        partition,
    };
    world.give_or_capture(stream, Work::Kernel(Box::new(call)))
}

/// # Safety
/// There is a pointer for each parameter, to as many bytes as it has.
unsafe fn copy_arguments(kernel: &Runnable, params: *mut *mut c_void) -> Vec<Vec<u8>> {
    let mut arguments = Vec::new();
    for (index, (_, size)) in kernel.info.params.iter().enumerate() {
        // SAFETY: the caller's promise.
        let place = unsafe { params.add(index) };
        // SAFETY: the caller's promise.
        let argument = unsafe { place.read() };
        let mut bytes = vec![0; *size];
        // SAFETY: the caller's promise; the target is as long, and elsewhere.
        unsafe { core::ptr::copy_nonoverlapping(argument.cast(), bytes.as_mut_ptr(), *size) };
        arguments.push(bytes);
    }
    arguments
}

pub(super) fn host_function(
    world: &mut World,
    stream: CUstream,
    function: CUhostFn,
    data: *mut c_void,
) -> Answer {
    if function.is_none() {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let stream = world.stream(stream.addr())?;
    world.give_or_capture(stream, Work::HostFn { function, data })
}
