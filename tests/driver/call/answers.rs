//! Answers of raw calls that a driver does not document, measured on an H200 (driver 580).

use crate::call::raw::succeeds;
use crate::common::{self, child};
use crate::module::kernels::launch_fault;
use core::ffi::c_void;
use cuda_safe::capture::CaptureMode;
use cuda_safe::device::attribute::VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
use cuda_safe::sys::{
    self, CUresult, cuEventCreate, cuEventDestroy_v2, cuEventElapsedTime_v2, cuEventRecord,
    cuEventSynchronize, cuFuncGetModule, cuFuncGetName, cuGraphExecDestroy,
    cuGraphInstantiateWithFlags, cuKernelGetName, cuLaunchHostFunc, cuMemAlloc_v2, cuMemAllocAsync,
    cuMemAllocHost_v2, cuMemAllocManaged, cuMemFreeAsync, cuMemHostAlloc, cuMemsetD8Async,
    cuModuleGetFunction, cuStreamCreate, cuStreamDestroy_v2,
};
use cuda_safe::{Context, ContextFlags, DeviceBuffer, EventOptions};
use std::ptr::{null, null_mut, without_provenance_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const INVALID_HANDLE: CUresult = CUresult::CUDA_ERROR_INVALID_HANDLE;

#[test]
fn allocations_of_no_bytes_write_the_address_0() {
    child::with_context_since(13, 0, |context| {
        let _current = context.make_current().expect("current");
        let stream = context.stream().expect("a stream");
        let mut address = 7;
        // SAFETY: the pointer refers to a local variable.
        succeeds(unsafe { cuMemAllocAsync(&raw mut address, 0, stream.as_raw()) });
        assert_eq!(address, 0);
        // SAFETY: there is no memory at 0, and the driver accepts it.
        succeeds(unsafe { cuMemFreeAsync(0, stream.as_raw()) });
        let mut addresses = [7; 2];
        let [plain, managed] = addresses.each_mut();
        // SAFETY: the pointers refer to local variables.
        assert_eq!(unsafe { cuMemAlloc_v2(plain, 0) }, INVALID);
        // SAFETY: as above.
        assert_eq!(unsafe { cuMemAllocManaged(managed, 0, 1) }, INVALID);
        assert_eq!(addresses, [0; 2]);
        let mut pinned = [without_provenance_mut(7); 2];
        let [first, second] = pinned.each_mut();
        // SAFETY: as above.
        succeeds(unsafe { cuMemAllocHost_v2(first, 0) });
        // SAFETY: as above.
        succeeds(unsafe { cuMemHostAlloc(second, 0, 0) });
        assert_eq!(pinned, [null_mut(); 2]);
    });
}

#[test]
fn a_captured_fill_that_exceeds_its_memory_is_refused_when_the_graph_is_instantiated() {
    let context = or_skip!(common::context_since(13, 0));
    let _current = context.make_current().expect("current");
    let stream = context.stream().expect("a stream");
    let buffer = DeviceBuffer::<u8>::zeroed_sync(&stream, 64).expect("memory");
    for (count, expected) in [(1, CUresult::CUDA_SUCCESS), (2, INVALID), (1 << 20, INVALID)] {
        let captured: cuda_safe::Result<_> = stream.capture(CaptureMode::default(), |_| {
            // SAFETY: the graph is not launched, and the buffer is alive.
            succeeds(unsafe { cuMemsetD8Async(buffer.as_raw() + 63, 1, count, stream.as_raw()) });
            Ok(())
        });
        let graph = captured.expect("a capture");
        let mut executable = null_mut();
        let place = &raw mut executable;
        // SAFETY: the graph is alive, and the pointer refers to a local variable.
        let code = unsafe { cuGraphInstantiateWithFlags(place, graph.as_raw(), 0) };
        assert_eq!(code, expected, "{count} bytes");
        if code.is_success() {
            // SAFETY: nothing uses the executable graph.
            succeeds(unsafe { cuGraphExecDestroy(executable) });
        }
    }
}

#[test]
fn a_null_function_kernel_or_module_is_refused() {
    let context = or_skip!(common::context_since(13, 0));
    let _current = context.make_current().expect("current");
    let mut name = null();
    // SAFETY: the pointer refers to a local variable, and the driver checks the function.
    let code = unsafe { cuFuncGetName(&raw mut name, null_mut()) };
    assert_eq!(code, INVALID);
    // SAFETY: as above.
    let code = unsafe { cuKernelGetName(&raw mut name, null_mut()) };
    assert_eq!(code, INVALID);
    let mut module = null_mut();
    // SAFETY: as above.
    let code = unsafe { cuFuncGetModule(&raw mut module, null_mut()) };
    assert_eq!(code, INVALID);
    let mut function = null_mut();
    // SAFETY: as above. The driver checks the module before the name.
    let code = unsafe { cuModuleGetFunction(&raw mut function, null_mut(), null()) };
    assert_eq!(code, INVALID_HANDLE);
}

#[test]
fn the_time_between_events_of_two_contexts_is_an_invalid_handle() {
    child::with_context_since(13, 0, |context| {
        let other = Context::new(&context.device(), ContextFlags::default()).expect("a context");
        let timed = EventOptions { timing: true, ..EventOptions::default() };
        let events = [&context, &other].map(|context| {
            let stream = context.stream().expect("a stream");
            let event = context.event_with(timed).expect("an event");
            event.record(&stream).expect("recorded");
            stream.synchronize().expect("a wait");
            event
        });
        let _current = context.make_current().expect("current");
        let mut time = 7.0;
        let [first, second] = events.each_ref().map(cuda_safe::Event::as_raw);
        // SAFETY: the pointer refers to a local variable, and the events are alive.
        let code = unsafe { cuEventElapsedTime_v2(&raw mut time, first, second) };
        assert_eq!((code, time), (INVALID_HANDLE, 7.0));
    });
}

#[test]
fn the_legacy_stream_waits_for_the_work_of_a_destroyed_stream() {
    child::with_context(|context| {
        let _current = context.make_current().expect("current");
        let ran = Arc::new(AtomicBool::new(false));
        let mut stream = null_mut();
        // SAFETY: the pointer refers to a local variable. The stream is a blocking stream.
        succeeds(unsafe { cuStreamCreate(&raw mut stream, 0) });
        let data = Arc::into_raw(Arc::clone(&ran)).cast_mut().cast();
        // SAFETY: the function takes the reference.
        succeeds(unsafe { cuLaunchHostFunc(stream, Some(set_later), data) });
        // SAFETY: the stream is not used afterwards.
        succeeds(unsafe { cuStreamDestroy_v2(stream) });
        let mut event = null_mut();
        // SAFETY: the pointer refers to a local variable.
        succeeds(unsafe { cuEventCreate(&raw mut event, 0) });
        // SAFETY: the event is alive, and null is the legacy default stream.
        succeeds(unsafe { cuEventRecord(event, null_mut()) });
        // SAFETY: the event is alive.
        succeeds(unsafe { cuEventSynchronize(event) });
        assert!(ran.load(Ordering::SeqCst));
        // SAFETY: the event is not used afterwards.
        succeeds(unsafe { cuEventDestroy_v2(event) });
    });
}

/// Sets a flag after 50 ms.
unsafe extern "C" fn set_later(flag: *mut c_void) {
    // SAFETY: the launch passes a reference of its own.
    let flag = unsafe { Arc::<AtomicBool>::from_raw(flag.cast()) };
    std::thread::sleep(Duration::from_millis(50));
    flag.store(true, Ordering::SeqCst);
}

mod provoked {
    use super::*;

    macro_rules! answer {
        ($function:ident($($argument:expr),*)) => {
            // SAFETY: all pointers refer to local variables, and the stream and the context are alive.
            unsafe { sys::$function($($argument),*) }
        };
    }

    #[test]
    fn text_that_is_no_ptx_is_an_invalid_image_and_wrong_ptx_is_invalid_ptx() {
        let context = or_skip!(common::context_since(13, 0));
        let _current = context.make_current().expect("current");
        for (text, expected) in [
            (c"no PTX", CUresult::CUDA_ERROR_INVALID_IMAGE),
            (
                c".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry k(",
                CUresult::CUDA_ERROR_INVALID_PTX,
            ),
        ] {
            let (mut module, image) = (null_mut(), text.as_ptr().cast());
            let (none, values) = (null_mut(), null_mut());
            let codes = [
                answer!(cuModuleLoadData(&raw mut module, image)),
                answer!(cuModuleLoadDataEx(&raw mut module, image, 0, none, values)),
            ];
            assert_eq!(codes, [expected; 2], "{text:?}");
            assert!(module.is_null());
        }
    }

    #[test]
    fn a_library_reads_its_code_when_it_is_first_used() {
        let context = or_skip!(common::context_since(13, 0));
        let _current = context.make_current().expect("current");
        let ptx = c".version 6.0\n.target sm_52\n.address_size 64\n.visible .entry k(";
        for (image, expected) in [
            (c"no PTX".to_bytes_with_nul(), CUresult::CUDA_ERROR_INVALID_IMAGE),
            (ptx.to_bytes_with_nul(), CUresult::CUDA_ERROR_INVALID_PTX),
            (b"\x7fELF\0\0\0\0", CUresult::CUDA_ERROR_INVALID_IMAGE),
        ] {
            // The driver reads more of an image than its first bytes.
            let mut image = image.to_vec();
            image.resize(256, 0);
            let (mut library, mut count) = (null_mut(), 7);
            let (mut kernel, mut address, mut size) = (null_mut(), 0, 0);
            let (to, start) = (&raw mut library, image.as_ptr().cast());
            let (none, of_none, no, of_no) = (null_mut(), null_mut(), null_mut(), null_mut());
            succeeds(answer!(cuLibraryLoadData(to, start, none, of_none, 0, no, of_no, 0)));
            let counted = answer!(cuLibraryGetKernelCount(&raw mut count, library));
            assert_eq!((counted, count), (CUresult::CUDA_SUCCESS, 0));
            let global = c"g".as_ptr();
            let uses = [
                answer!(cuLibraryGetKernel(&raw mut kernel, library, c"k".as_ptr())),
                answer!(cuLibraryGetGlobal(&raw mut address, &raw mut size, library, global)),
                answer!(cuLibraryGetKernel(&raw mut kernel, library, c"k".as_ptr())),
            ];
            assert_eq!(uses, [expected; 3], "{image:?}");
            succeeds(answer!(cuLibraryUnload(library)));
        }
    }

    #[test]
    fn after_a_fatal_error_calls_about_devices_and_contexts_succeed() {
        child::with_context_since(13, 0, |context| {
            let _current = context.make_current().expect("current");
            let stream = context.stream().expect("a stream");
            let _kernel = launch_fault(&stream).expect("a launch does not wait");
            stream.synchronize().expect_err("an illegal address");
            let device = context.device().as_raw();
            let (mut number, mut flags, mut pointer) = (0, 0, null_mut());
            let (mut size, mut address, mut graph) = (0, 0, null_mut());
            let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE;
            let answers = [
                ("count", answer!(cuDeviceGetCount(&raw mut number))),
                ("get", answer!(cuDeviceGet(&raw mut number, 0))),
                ("size", answer!(cuDeviceTotalMem_v2(&raw mut size, device))),
                ("attribute", answer!(cuDeviceGetAttribute(&raw mut number, attribute, device))),
                ("peer", answer!(cuDeviceCanAccessPeer(&raw mut number, device, device))),
                ("retain", answer!(cuDevicePrimaryCtxRetain(&raw mut pointer, device))),
                ("release", answer!(cuDevicePrimaryCtxRelease_v2(device))),
                ("device", answer!(cuCtxGetDevice(&raw mut number))),
                ("flags", answer!(cuCtxGetFlags(&raw mut flags))),
                ("graph", answer!(cuGraphCreate(&raw mut graph, 0))),
            ];
            for (name, code) in answers {
                assert!(code.is_success(), "{name}: {code}");
            }
            if context.device().attribute(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED).expect("known") {
                let code = answer!(cuMemAddressReserve(&raw mut address, 2 << 20, 0, 0, 0));
                assert!(code.is_success(), "reserve: {code}");
            }
            let fatal = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
            let answers = [
                ("limit", answer!(cuCtxGetLimit(&raw mut size, sys::CUlimit(0)))),
                ("memory", answer!(cuMemAlloc_v2(&raw mut address, 16))),
                ("query", answer!(cuStreamQuery(stream.as_raw()))),
                ("flags", answer!(cuStreamGetFlags(stream.as_raw(), &raw mut flags))),
            ];
            for (name, code) in answers {
                assert_eq!(code, fatal, "{name}");
            }
        });
    }

    /// Makes the device fail. The objects that this takes are leaked, because the test releases their context.
    fn fail() {
        let (context, stream) = common::context_and_stream().expect("a context");
        let scale = launch_fault(&stream).expect("a launch does not wait");
        stream.synchronize().expect_err("an illegal address");
        std::mem::forget((context, stream, scale));
    }

    fn is_active(device: i32) -> bool {
        let (mut flags, mut active) = (0, 7);
        succeeds(answer!(cuDevicePrimaryCtxGetState(device, &raw mut flags, &raw mut active)));
        active != 0
    }

    #[test]
    fn the_last_release_of_a_primary_context_succeeds_after_a_fatal_error() {
        child::in_child(&[], || {
            let device = or_skip!(common::context()).device().as_raw();
            or_skip!(common::since(13, 0));
            fail();
            // The crate may have retained the context several times.
            let mut releases = 0;
            while is_active(device) {
                let code = answer!(cuDevicePrimaryCtxRelease_v2(device));
                assert!(code.is_success(), "release {releases}: {code}");
                releases += 1;
            }
            assert_ne!(releases, 0);
            let code = answer!(cuDevicePrimaryCtxRelease_v2(device));
            assert_eq!(code, CUresult::CUDA_ERROR_INVALID_CONTEXT);
            let (mut context, mut count) = (null_mut(), 0);
            let code = answer!(cuDevicePrimaryCtxRetain(&raw mut context, device));
            assert_eq!(code, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            succeeds(answer!(cuDeviceGetCount(&raw mut count)));
        });
    }

    #[test]
    fn a_reset_after_a_fatal_error_ends_the_primary_context_and_keeps_its_use_count() {
        child::in_child(&[], || {
            let device = or_skip!(common::context()).device().as_raw();
            or_skip!(common::since(13, 0));
            fail();
            succeeds(answer!(cuDevicePrimaryCtxReset_v2(device)));
            assert!(!is_active(device));
            let mut context = null_mut();
            let code = answer!(cuDevicePrimaryCtxRetain(&raw mut context, device));
            assert_eq!(code, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            succeeds(answer!(cuDevicePrimaryCtxRelease_v2(device)));
        });
    }
}
