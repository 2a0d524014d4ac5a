//! Functions that programs in other languages call, and `cuda-safe` does not.

use crate::prelude::*;
use crate::software::misuses::succeeds;
use cuda_safe::sys::{CUdevice_attribute as Attribute, CUfunction_attribute as FunctionAttribute};

const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;

/// Runs a test with the context current.
fn with_current(body: impl FnOnce(&Context)) {
    let (_end, context) = in_child!(on(Profile::h200()));
    let _current = context.make_current().expect("current");
    body(&context);
}

fn device_memory(size: usize) -> u64 {
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuMemAlloc_v2(&raw mut address, size) });
    address
}

fn free(address: u64) {
    // SAFETY: the address was allocated here, and is freed once.
    succeeds(unsafe { cuMemFree_v2(address) });
}

fn managed_memory(size: usize) -> u64 {
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuMemAllocManaged(&raw mut address, size, 1) });
    address
}

fn pinned_memory(size: usize) -> *mut c_void {
    let mut start = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuMemAllocHost_v2(&raw mut start, size) });
    start
}

fn address_of(start: *mut c_void) -> u64 {
    start.expose_provenance() as u64
}

/// Returns bytes of host memory.
fn bytes(address: u64, len: usize) -> Vec<u8> {
    let start = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: the tests pass live host memory of this length, which no work uses.
    unsafe { std::slice::from_raw_parts(start, len) }.to_vec()
}

#[test]
fn the_numa_nodes_and_the_board_of_a_device_have_attributes() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let device = context.device().as_raw();
    let answer = |attribute| {
        let mut value = 7;
        // SAFETY: the pointer refers to a local variable.
        succeeds(unsafe { cuDeviceGetAttribute(&raw mut value, attribute, device) });
        value
    };
    assert_eq!(answer(Attribute::CU_DEVICE_ATTRIBUTE_NUMA_ID), -1);
    assert_eq!(answer(Attribute::CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID), 0);
    assert_eq!(answer(Attribute::CU_DEVICE_ATTRIBUTE_GPU_PCI_SUBSYSTEM_ID), 0x18bf_10de);
}

#[test]
fn old_queries_of_devices_and_code_answer_what_the_new_ones_do() {
    with_current(|context| {
        let raw = context.device().as_raw();
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the pointers refer to local variables.
        succeeds(unsafe { cuDeviceComputeCapability(&raw mut major, &raw mut minor, raw) });
        assert_eq!((major, minor), (9, 0));
        let mut text = [1; 20];
        // SAFETY: the buffer has 20 bytes.
        succeeds(unsafe { cuDeviceGetPCIBusId(text.as_mut_ptr(), 20, raw) });
        let mut again = 7;
        // SAFETY: the text ends with a NUL, as checked by what it finds.
        succeeds(unsafe { cuDeviceGetByPCIBusId(&raw mut again, text.as_ptr()) });
        assert_eq!(again, raw);
        let stream = context.stream().expect("a stream");
        again = 7;
        // SAFETY: the stream is alive.
        succeeds(unsafe { cuStreamGetDevice(stream.as_raw(), &raw mut again) });
        assert_eq!(again, raw);

        let module = Module::from_ptx(context, VECTOR).expect("the test kernels");
        let kernel = module.kernel("add").expect("found").as_raw();
        let mut found = null_mut();
        // SAFETY: the function is alive.
        succeeds(unsafe { cuFuncGetModule(&raw mut found, kernel) });
        assert_eq!(found, module.as_raw());
        let (mut blocks, mut grid, mut block) = (0, 0, 0);
        // SAFETY: as above.
        succeeds(unsafe {
            cuOccupancyMaxActiveBlocksPerMultiprocessor(&raw mut blocks, kernel, 1024, 0)
        });
        assert_eq!(blocks, 2);
        // SAFETY: as above; the kernel needs no shared memory.
        succeeds(unsafe {
            let (grid, block) = (&raw mut grid, &raw mut block);
            cuOccupancyMaxPotentialBlockSize(grid, block, kernel, None, 0, 0)
        });
        assert_eq!((grid, block), (2 * 132, 1024));
    });
}

#[test]
fn a_synchronous_fill_of_host_memory_is_complete_when_it_returns() {
    with_current(|_| {
        let pinned = pinned_memory(64);
        let managed = managed_memory(64);
        for at in [address_of(pinned), managed] {
            // SAFETY: the memory has 64 bytes.
            succeeds(unsafe { cuMemsetD8_v2(at, 1, 64) });
            assert_eq!(bytes(at, 64), [1; 64]);
            // SAFETY: as above.
            succeeds(unsafe { cuMemsetD16_v2(at, 0x0202, 32) });
            assert_eq!(bytes(at, 64), [2; 64]);
            // SAFETY: as above.
            succeeds(unsafe { cuMemsetD32_v2(at, 0x0303_0303, 16) });
            assert_eq!(bytes(at, 64), [3; 64]);
            // SAFETY: two rows of 4 bytes, 16 bytes apart.
            succeeds(unsafe { cuMemsetD2D16_v2(at, 16, 0x0404, 2, 2) });
            assert_eq!(bytes(at, 20), [4, 4, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3, 4, 4, 4, 4]);
        }
        // The fill of device memory is only enqueued.
        let device = device_memory(64);
        // SAFETY: the memory has 64 bytes.
        succeeds(unsafe { cuMemsetD8_v2(device, 1, 64) });
        // SAFETY: the handle is that of the default stream.
        let state = unsafe { cuStreamQuery(null_mut()) };
        assert_eq!(state, CUresult::CUDA_ERROR_NOT_READY);
        free(device);
        free(managed);
        // SAFETY: the memory was allocated here, and is freed once.
        succeeds(unsafe { cuMemFreeHost(pinned) });
    });
}

#[test]
fn copies_find_out_which_memory_each_address_is_in() {
    with_current(|context| {
        let stream = context.stream().expect("a stream");
        let pinned = pinned_memory(64);
        let mut pageable = [0_u8; 64];
        let all = [
            address_of(pinned),
            address_of(pageable.as_mut_ptr().cast()),
            managed_memory(64),
            device_memory(64),
        ];
        let mut value = 0;
        for to in all {
            for from in all.into_iter().filter(|from| *from != to) {
                for is_async in [false, true] {
                    value += 1;
                    let mut source = [value; 64];
                    let mut copy = [0_u8; 64];
                    let first = address_of(source.as_mut_ptr().cast());
                    let last = address_of(copy.as_mut_ptr().cast());
                    // SAFETY: both sides have 64 bytes.
                    succeeds(unsafe { cuMemcpy(from, first, 64) });
                    if is_async {
                        // SAFETY: both sides have 64 bytes.
                        succeeds(unsafe { cuMemcpyAsync(to, from, 64, stream.as_raw()) });
                        stream.synchronize().expect("a wait");
                    } else {
                        // SAFETY: as above.
                        succeeds(unsafe { cuMemcpy(to, from, 64) });
                    }
                    // SAFETY: as above.
                    succeeds(unsafe { cuMemcpy(last, to, 64) });
                    assert_eq!(copy, [value; 64], "{from:#x} to {to:#x}");
                }
            }
        }
        let [_, _, managed, device] = all;
        let other = device_memory(64);
        // SAFETY: both sides have 64 bytes.
        succeeds(unsafe { cuMemcpyDtoD_v2(other, device, 64) });
        let mut copy = [0_u8; 64];
        // SAFETY: both sides have 64 bytes.
        succeeds(unsafe { cuMemcpyDtoH_v2(copy.as_mut_ptr().cast(), other, 64) });
        assert_eq!(copy, [value; 64]);
        // Null is no host memory.
        // SAFETY: the driver checks for null.
        assert_eq!(unsafe { cuMemcpy(0, all[0], 64) }, INVALID);
        for address in [managed, device, other] {
            free(address);
        }
        // SAFETY: the memory was allocated here, and is freed once.
        succeeds(unsafe { cuMemFreeHost(pinned) });
    });
}

#[test]
fn a_copy_of_freed_device_memory_is_not_taken_for_a_copy_of_host_memory() {
    in_child!();
    start(Profile::h200());
    let _current = crate::context().make_current().expect("current");
    let device = device_memory(64);
    free(device);
    let mut host = [0_u8; 64];
    let host = address_of(host.as_mut_ptr().cast());
    // SAFETY: the planted bug, which the software driver detects.
    assert_eq!(unsafe { cuMemcpy(host, device, 64) }, INVALID);
    crate::software::misuses::found("is not allocated, or was freed");
}

#[test]
fn variants_for_the_per_thread_default_stream_do_not_use_the_legacy_one() {
    with_current(|_| {
        let device = device_memory(64);
        let states = || {
            [CU_STREAM_LEGACY, CU_STREAM_PER_THREAD].map(|stream| {
                // SAFETY: both are handles of default streams.
                unsafe { cuStreamQuery(stream) }
            })
        };
        let (ready, busy) = (CUresult::CUDA_SUCCESS, CUresult::CUDA_ERROR_NOT_READY);
        // SAFETY: the memory has 64 bytes.
        succeeds(unsafe { ptds::cuMemsetD8Async_ptsz(device, 1, 64, null_mut()) });
        assert_eq!(states(), [ready, busy]);
        assert_eq!(states(), [ready, ready]);
        // SAFETY: as above.
        succeeds(unsafe { ptds::cuMemsetD8_v2_ptds(device, 2, 64) });
        assert_eq!(states(), [ready, busy]);
        // SAFETY: as above. An explicit legacy stream is the legacy stream.
        succeeds(unsafe { ptds::cuMemsetD8Async_ptsz(device, 3, 64, CU_STREAM_LEGACY) });
        assert_eq!(states()[0], busy);
        // The synchronous copy does not wait for the legacy stream's work on other streams, and the flag does not
        // outlast the call.
        // SAFETY: as above.
        succeeds(unsafe { cuMemsetD8Async(device, 4, 64, null_mut()) });
        assert_eq!(states()[0], busy);
        let mut host = [0_u8; 64];
        // SAFETY: both sides have 64 bytes.
        succeeds(unsafe { ptds::cuMemcpyDtoH_v2_ptds(host.as_mut_ptr().cast(), device, 64) });
        assert_eq!(host, [4; 64]);
        // SAFETY: both sides have 64 bytes.
        succeeds(unsafe { ptds::cuMemcpyHtoD_v2_ptds(device, host.as_ptr().cast(), 64) });
        free(device);
    });
}

#[test]
fn a_function_that_is_not_simulated_is_listed_once() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    assert_eq!(cuda_sim::not_simulated(), [""; 0]);
    cuda_sim::clear_calls();
    for _ in 0..2 {
        // SAFETY: the function is not simulated and has no effect.
        let code = unsafe { cuTexRefDestroy(null_mut()) };
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    assert_eq!(cuda_sim::not_simulated(), ["cuTexRefDestroy"]);
    assert_eq!(crate::software::call_log::called("cuTexRefDestroy"), 2);
}

#[test]
fn the_name_of_a_null_kernel_is_an_invalid_value() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    let mut name = null();
    // SAFETY: the pointer refers to a local variable, and the driver checks for null.
    let of_function = unsafe { cuFuncGetName(&raw mut name, null_mut()) };
    // SAFETY: as above.
    let of_kernel = unsafe { cuKernelGetName(&raw mut name, null_mut()) };
    assert_eq!([of_function, of_kernel], [INVALID; 2]);
}

/// A test of `RustaCUDA` shows the code for two contexts of a device.
#[test]
fn no_time_passes_between_events_of_two_contexts() {
    let (_end, first) = in_child!(on(Profile::h200().with_devices(2)));
    let device = Device::get(1).expect("there are two");
    let others = [
        Context::new(&first.device(), ContextFlags::empty()).expect("a context"),
        Context::primary(&device).expect("a context"),
    ];
    let recorded = |context: &Context| {
        let options = EventOptions { timing: true, ..Default::default() };
        let event = context.event_with(options).expect("an event");
        let stream = context.stream().expect("a stream");
        event.record(&stream).expect("a record");
        stream.synchronize().expect("a wait");
        event
    };
    let mut time = 7.0;
    let (start, end) = (recorded(&first), recorded(&first));
    // SAFETY: the pointer refers to a local variable, and the events are alive.
    succeeds(unsafe { cuEventElapsedTime_v2(&raw mut time, start.as_raw(), end.as_raw()) });
    assert!((0.0..7.0).contains(&time));
    for other in others.each_ref().map(recorded) {
        for (start, end) in [(&start, &other), (&other, &start)] {
            // SAFETY: as above.
            let code =
                unsafe { cuEventElapsedTime_v2(&raw mut time, start.as_raw(), end.as_raw()) };
            assert_eq!(code, CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
    }
}

#[test]
fn code_is_loaded_from_files() {
    with_current(|context| {
        let folder = std::env::temp_dir();
        let path = folder.join(format!("cuda-sim-{}.ptx", std::process::id()));
        std::fs::write(&path, VECTOR).expect("a temporary file");
        let file = CString::new(path.to_str().expect("text")).expect("no NUL");
        let mut module = null_mut();
        // SAFETY: the pointers refer to a local variable and a string.
        succeeds(unsafe { cuModuleLoad(&raw mut module, file.as_ptr()) });
        // SAFETY: the module is alive.
        succeeds(unsafe { cuModuleUnload(module) });

        let (mut library, none) = (null_mut(), null_mut());
        // SAFETY: as above; there are no options.
        succeeds(unsafe {
            let (keys, values) = (null_mut(), null_mut());
            cuLibraryLoadFromFile(&raw mut library, file.as_ptr(), keys, none, 0, values, none, 0)
        });
        std::fs::remove_file(&path).expect("removed");
        let mut kernel = null_mut();
        // SAFETY: the library is alive, and the name is a string.
        succeeds(unsafe { cuLibraryGetKernel(&raw mut kernel, library, c"add".as_ptr()) });
        let mut its = null_mut();
        // SAFETY: the kernel is alive.
        succeeds(unsafe { cuKernelGetLibrary(&raw mut its, kernel) });
        assert_eq!(its, library);
        let most = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        let mut value = 0;
        let device = context.device().as_raw();
        // SAFETY: the kernel is alive.
        succeeds(unsafe { cuKernelGetAttribute(&raw mut value, most, kernel, device) });
        assert_eq!(value, 1024);
        // SAFETY: as above.
        let code = unsafe { cuKernelGetAttribute(&raw mut value, most, kernel, 9) };
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_DEVICE);
        // SAFETY: the kernel is alive.
        assert_eq!(unsafe { cuKernelGetAttribute(null_mut(), most, kernel, device) }, INVALID);
        // SAFETY: the library is alive, and nothing uses it.
        succeeds(unsafe { cuLibraryUnload(library) });

        // SAFETY: as above.
        let code = unsafe { cuModuleLoad(&raw mut module, file.as_ptr()) };
        assert_eq!(code, CUresult::CUDA_ERROR_FILE_NOT_FOUND);
    });
}

#[test]
fn one_attribute_of_managed_memory_is_what_the_list_has() {
    with_current(|_| {
        let managed = managed_memory(4096);
        let mut value = 7_i32;
        let which = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
        let place: *mut c_void = (&raw mut value).cast();
        // SAFETY: the place has 4 bytes.
        succeeds(unsafe { cuMemRangeGetAttribute(place, 4, which, managed, 4096) });
        assert_eq!(value, 0);
        let which = CUmem_range_attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY;
        for (place, size) in [(place, 0), (place, 3), (null_mut(), 4)] {
            // SAFETY: the place has 4 bytes, or the call is refused.
            let code = unsafe { cuMemRangeGetAttribute(place, size, which, managed, 4096) };
            assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE, "{size} bytes");
        }
        free(managed);
    });
}

#[test]
fn a_large_allocation_takes_memory_when_it_is_written() {
    with_current(|_| {
        // More than most machines that run tests have.
        const SIZE: usize = 120 << 30;
        let device = device_memory(SIZE);
        let last = device + (SIZE as u64) - 64;
        let mut host = [7_u8; 64];
        // SAFETY: both sides have 64 bytes.
        succeeds(unsafe { cuMemcpyHtoD_v2(last, host.as_ptr().cast(), 64) });
        host = [0; 64];
        // SAFETY: as above.
        succeeds(unsafe { cuMemcpyDtoH_v2(host.as_mut_ptr().cast(), last, 64) });
        assert_eq!(host, [7; 64]);
        free(device);
    });
}

#[test]
fn both_contexts_of_a_stream_need_a_place() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let stream = context.stream().expect("a stream");
    let (stream, mut its, mut green) = (stream.as_raw(), null_mut(), null_mut());
    // SAFETY: the stream is alive, and the pointers are null or refer to local variables.
    let both = |its, green| unsafe { cuStreamGetCtx_v2(stream, its, green) };
    assert_eq!(both(null_mut(), &raw mut green), INVALID);
    assert_eq!(both(&raw mut its, null_mut()), INVALID);
    succeeds(both(&raw mut its, &raw mut green));
    assert_eq!((its, green), (context.as_raw(), null_mut()));
}

#[test]
fn a_stream_uses_the_pool_memory_of_another_device_only_with_access() {
    let (_end, first) = in_child!(on(Profile::h200().with_devices(2)));
    let second = Context::primary(&Device::get(1).expect("there are two")).expect("a context");
    let (stream, other) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    let location = |id| {
        let mut location = CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            ..CUmemLocation::default()
        };
        location.__bindgen_anon_1.id = id;
        location
    };
    let props = CUmemPoolProps {
        allocType: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        location: location(1),
        ..CUmemPoolProps::default()
    };
    let mut pool = null_mut();
    // SAFETY: the pointers refer to local variables.
    succeeds(unsafe { cuMemPoolCreate(&raw mut pool, &raw const props) });
    let mut there = 0;
    // SAFETY: the pool and the stream are alive.
    succeeds(unsafe { cuMemAllocFromPoolAsync(&raw mut there, 64, pool, other.as_raw()) });
    other.synchronize().expect("a wait");
    let host = [7_u8; 64];
    let source = address_of(host.as_ptr().cast_mut().cast());
    // SAFETY: both sides have 64 bytes.
    let copy = |stream| unsafe { cuMemcpyAsync(there, source, 64, stream) };
    // SAFETY: the memory has 64 bytes.
    let fill = |stream| unsafe { cuMemsetD8Async(there, 1, 64, stream) };
    let set = |flags| {
        let access = CUmemAccessDesc { location: location(0), flags: CUmemAccess_flags(flags) };
        // SAFETY: the pointer refers to one description.
        succeeds(unsafe { cuMemPoolSetAccess(pool, &raw const access, 1) });
    };
    assert_eq!([copy(stream.as_raw()), fill(stream.as_raw())], [INVALID; 2]);
    succeeds(copy(other.as_raw()));
    other.synchronize().expect("a wait");
    set(3);
    succeeds(copy(stream.as_raw()));
    succeeds(fill(stream.as_raw()));
    set(0);
    assert_eq!([copy(stream.as_raw()), fill(stream.as_raw())], [INVALID; 2]);
    stream.synchronize().expect("a wait");
    // SAFETY: the memory and the stream are alive.
    succeeds(unsafe { cuMemFreeAsync(there, other.as_raw()) });
    // SAFETY: the stream is alive.
    succeeds(unsafe { cuStreamSynchronize(other.as_raw()) });
    // SAFETY: the pool is alive, and its memory was freed.
    succeeds(unsafe { cuMemPoolDestroy(pool) });
}

#[cfg(unix)]
#[test]
fn a_pool_is_imported_without_a_current_context() {
    use std::os::fd::AsRawFd;
    let (_end, _context) = in_child!(on(Profile::h200()));
    let mut current = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxGetCurrent(&raw mut current) });
    assert!(current.is_null());
    // SAFETY: null is no context.
    succeeds(unsafe { cuCtxSetCurrent(null_mut()) });
    let descriptor = cuda_sim::pool_shared_by_another().expect("a file");
    let number = usize::try_from(descriptor.as_raw_fd()).expect("a descriptor");
    let handle = std::ptr::without_provenance_mut(number);
    let kind = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let mut pool = null_mut();
    // SAFETY: the handle is a descriptor.
    succeeds(unsafe { cuMemPoolImportFromShareableHandle(&raw mut pool, handle, kind, 0) });
    // SAFETY: the pool is alive.
    succeeds(unsafe { cuMemPoolDestroy(pool) });
}
