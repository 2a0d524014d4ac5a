//! The calls that the benchmark makes.

use core::ffi::c_void;
use core::ptr::{null_mut, without_provenance_mut};
use cuda_sys::{
    CUDA_ARRAY_DESCRIPTOR, CUarray, CUarray_format, CUcontext, CUctxCreateParams, CUdeviceptr,
    CUevent, CUfunction, CUmodule, CUresult, CUstream,
};

/// Makes a call that must succeed.
macro_rules! call {
    ($function:ident($($argument:expr),* $(,)?)) => {{
        // SAFETY: the benchmark passes handles that are alive, and pointers to local variables that have the
        // size that the function states. Memory has the size of each access.
        let code = unsafe { cuda_sys::$function($($argument),*) };
        $crate::calls::well(code)
    }};
}
pub(crate) use call;

#[track_caller]
pub(crate) fn well(code: CUresult) {
    assert!(code.is_success(), "{code}");
}

/// The PTX of a module with a kernel `nothing` without parameters.
pub(crate) const PTX: &core::ffi::CStr = c".version 7.0
.target sm_70
.address_size 64
.visible .entry nothing() { ret; }
";

pub(crate) fn stream() -> CUstream {
    let mut stream = null_mut();
    call!(cuStreamCreate(&raw mut stream, 1));
    stream
}

pub(crate) fn blocking_stream() -> CUstream {
    let mut stream = null_mut();
    call!(cuStreamCreate(&raw mut stream, 0));
    stream
}

pub(crate) fn destroy_stream(stream: CUstream) {
    call!(cuStreamDestroy_v2(stream));
}

pub(crate) fn synchronize(stream: CUstream) {
    call!(cuStreamSynchronize(stream));
}

pub(crate) fn event() -> CUevent {
    let mut event = null_mut();
    call!(cuEventCreate(&raw mut event, 0));
    event
}

pub(crate) fn destroy_event(event: CUevent) {
    call!(cuEventDestroy_v2(event));
}

pub(crate) fn memory(size: usize) -> CUdeviceptr {
    let mut address = 0;
    call!(cuMemAlloc_v2(&raw mut address, size));
    address
}

pub(crate) fn free(address: CUdeviceptr) {
    call!(cuMemFree_v2(address));
}

pub(crate) fn ordered(size: usize, stream: CUstream) -> CUdeviceptr {
    let mut address = 0;
    call!(cuMemAllocAsync(&raw mut address, size, stream));
    address
}

pub(crate) fn free_ordered(address: CUdeviceptr, stream: CUstream) {
    call!(cuMemFreeAsync(address, stream));
}

pub(crate) fn pinned(size: usize) -> *mut c_void {
    let mut start = null_mut();
    call!(cuMemHostAlloc(&raw mut start, size, 0));
    start
}

pub(crate) fn free_pinned(start: *mut c_void) {
    call!(cuMemFreeHost(start));
}

pub(crate) fn fill(address: CUdeviceptr, stream: CUstream) {
    call!(cuMemsetD8Async(address, 1, 64, stream));
}

pub(crate) fn array(width: usize, height: usize) -> CUarray {
    let mut array = null_mut();
    let descriptor = CUDA_ARRAY_DESCRIPTOR {
        Width: width,
        Height: height,
        Format: CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels: 1,
    };
    call!(cuArrayCreate_v2(&raw mut array, &raw const descriptor));
    array
}

pub(crate) fn context() -> CUcontext {
    let mut params = CUctxCreateParams {
        execAffinityParams: null_mut(),
        numExecAffinityParams: 0,
        cigParams: null_mut(),
    };
    let (mut context, mut old) = (null_mut(), null_mut());
    call!(cuCtxCreate_v4(&raw mut context, &raw mut params, 0, 0));
    call!(cuCtxPopCurrent_v2(&raw mut old));
    context
}

pub(crate) fn module(ptx: &core::ffi::CStr) -> CUmodule {
    let mut module = null_mut();
    call!(cuModuleLoadData(&raw mut module, ptx.as_ptr().cast()));
    module
}

pub(crate) fn function(module: CUmodule, name: &core::ffi::CStr) -> CUfunction {
    let mut function = null_mut();
    call!(cuModuleGetFunction(&raw mut function, module, name.as_ptr()));
    function
}

pub(crate) fn launch(function: CUfunction, stream: CUstream) {
    let nothing = null_mut();
    call!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, nothing, null_mut()));
}

/// Installs the software driver and makes a primary context current.
pub(crate) fn start() -> CUcontext {
    cuda_sim::install(cuda_sim::Profile::h200()).expect("nothing was called before");
    cuda_sim::kernel::register("nothing", |_| Ok(()));
    let mut context = null_mut();
    call!(cuInit(0));
    call!(cuDevicePrimaryCtxRetain(&raw mut context, 0));
    call!(cuCtxSetCurrent(context));
    context
}

pub(crate) fn number(address: *mut c_void) -> usize {
    address.expose_provenance()
}

pub(crate) fn handle<T>(value: usize) -> *mut T {
    without_provenance_mut(value)
}
