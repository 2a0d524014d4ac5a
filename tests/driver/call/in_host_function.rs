//! The answers of the driver to calls inside a host function, as on an H200 (driver 580).

use crate::common::{self, child};
use crate::module::kernels::VECTOR;
use cuda_safe::sys::{self, CUcontext, CUevent, CUfunction, CUmodule, CUresult, CUstream};
use cuda_safe::{DeviceBuffer, Module, PinnedBuffer};
use std::ffi::c_void;
use std::ptr::null_mut;

/// The objects for the calls, and the answers.
struct Job {
    context: CUcontext,
    stream: CUstream,
    other: CUstream,
    event: CUevent,
    gone: (CUstream, CUevent),
    module: CUmodule,
    function: CUfunction,
    memory: u64,
    host: *mut c_void,
    answers: Vec<(&'static str, CUresult, CUresult)>,
}

/// Makes the calls as a host function of the stream.
unsafe extern "C" fn make(job: *mut c_void) {
    const YES: CUresult = CUresult::CUDA_SUCCESS;
    const NO: CUresult = CUresult::CUDA_ERROR_NOT_PERMITTED;
    // SAFETY: the launcher passed a job and does not access it before this function has returned.
    let job = unsafe { &mut *job.cast::<Job>() };
    let (mut context, mut number, mut address, mut event) = (null_mut(), 0, 0, null_mut());
    let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let mut status = sys::CUstreamCaptureStatus::default();
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE;
    macro_rules! ask {
        ($name:literal, $expected:expr, $call:expr) => {
            // SAFETY: the handles are alive and each is destroyed once; the pointers refer to local
            // variables or to memory of 64 bytes.
            job.answers.push(($name, unsafe { $call }, $expected))
        };
    }
    ask!("cuCtxGetCurrent", NO, sys::cuCtxGetCurrent(&raw mut context));
    ask!("cuCtxPushCurrent", NO, sys::cuCtxPushCurrent_v2(job.context));
    ask!("cuCtxPopCurrent", NO, sys::cuCtxPopCurrent_v2(&raw mut context));
    ask!("cuCtxSetCurrent", NO, sys::cuCtxSetCurrent(job.context));
    let busy = CUresult::CUDA_ERROR_NOT_READY;
    ask!("cuStreamQuery of its own", busy, sys::cuStreamQuery(job.stream));
    ask!("cuStreamSynchronize of another", YES, sys::cuStreamSynchronize(job.other));
    ask!("cuStreamIsCapturing", YES, sys::cuStreamIsCapturing(job.stream, &raw mut status));
    ask!("cuDeviceGet", NO, sys::cuDeviceGet(&raw mut number, 0));
    ask!("cuDeviceGetAttribute", NO, sys::cuDeviceGetAttribute(&raw mut number, attribute, 0));
    ask!(
        "cuThreadExchangeStreamCaptureMode",
        YES,
        sys::cuThreadExchangeStreamCaptureMode(&raw mut mode)
    );
    ask!("cuMemAlloc", NO, sys::cuMemAlloc_v2(&raw mut address, 64));
    ask!("cuMemFree", NO, sys::cuMemFree_v2(job.memory));
    ask!("cuMemFreeAsync", NO, sys::cuMemFreeAsync(job.memory, job.stream));
    ask!("cuMemFreeHost", NO, sys::cuMemFreeHost(job.host));
    ask!("cuEventCreate", NO, sys::cuEventCreate(&raw mut event, 0));
    ask!("cuEventRecord", YES, sys::cuEventRecord(job.event, job.other));
    ask!("cuEventQuery", YES, sys::cuEventQuery(job.gone.1));
    ask!("cuEventDestroy", YES, sys::cuEventDestroy_v2(job.gone.1));
    ask!("cuStreamDestroy", YES, sys::cuStreamDestroy_v2(job.gone.0));
    ask!("cuModuleUnload", NO, sys::cuModuleUnload(job.module));
    ask!("cuMemcpyHtoDAsync", NO, sys::cuMemcpyHtoDAsync_v2(job.memory, job.host, 64, job.other));
    ask!(
        "cuLaunchKernel",
        NO,
        sys::cuLaunchKernel(job.function, 1, 1, 1, 1, 1, 1, 0, job.other, null_mut(), null_mut())
    );
    ask!("cuDevicePrimaryCtxRetain", NO, sys::cuDevicePrimaryCtxRetain(&raw mut context, 0));
}

mod provoked {
    use super::*;

    #[test]
    fn most_driver_calls_are_refused_in_a_host_function() {
        child::with_context(|context| {
            let [stream, other] = common::streams(&context);
            let event = context.event().expect("an event");
            // The host function destroys these.
            let mut gone = (null_mut(), null_mut());
            let create = |_: &cuda_safe::context::CurrentContext| {
                // SAFETY: the pointers refer to local variables.
                let stream = unsafe { sys::cuStreamCreate(&raw mut gone.0, 1) };
                // SAFETY: as above.
                (stream, unsafe { sys::cuEventCreate(&raw mut gone.1, 0) })
            };
            let yes = CUresult::CUDA_SUCCESS;
            assert_eq!(context.with_current(create).expect("current"), (yes, yes));
            // SAFETY: both objects are alive.
            assert_eq!(unsafe { sys::cuEventRecord(gone.1, gone.0) }, yes);
            let memory = DeviceBuffer::<u8>::zeroed_sync(&stream, 64).expect("memory");
            let pinned = PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
            let module = Module::from_ptx(&context, VECTOR).expect("a module");
            let kernel = module.kernel("nothing").expect("a kernel");
            context.synchronize().expect("a wait");
            let mut job = Job {
                context: context.as_raw(),
                stream: stream.as_raw(),
                other: other.as_raw(),
                event: event.as_raw(),
                gone,
                module: module.as_raw(),
                function: kernel.as_raw(),
                memory: memory.as_raw(),
                host: pinned.as_ptr().cast_mut().cast(),
                answers: Vec::new(),
            };
            let place = (&raw mut job).cast();
            // SAFETY: the job stays alive until the wait below has returned.
            let code = unsafe { sys::cuLaunchHostFunc(stream.as_raw(), Some(make), place) };
            assert_eq!(code, CUresult::CUDA_SUCCESS);
            stream.synchronize().expect("a wait");
            let wrong: Vec<_> = job.answers.iter().filter(|its| its.1 != its.2).collect();
            assert!(wrong.is_empty(), "{wrong:#?}");
            assert_eq!(job.answers.len(), 23);
        });
    }
}
