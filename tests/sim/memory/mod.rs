//! Memory: frees, impossible sizes, and ownership.

pub(crate) mod batches;
pub(crate) mod copy_batches;
pub(crate) mod decompression;
pub(crate) mod disjoint_addresses;
pub(crate) mod kinds_of_memory;
#[cfg(target_os = "linux")]
pub(crate) mod lazy;
pub(crate) mod managed_pools;
pub(crate) mod pinned_ranges;
pub(crate) mod pointers;
pub(crate) mod poison;
pub(crate) mod pool_access;
pub(crate) mod pool_frees;
pub(crate) mod regressions;
pub(crate) mod residency;

use crate::prelude::*;
use crate::software::misuses::{allocate, succeeds};
use CUstreamCaptureMode as Mode;
use cuda_safe::array::MipmappedArray;

#[test]
fn a_second_free_is_reported_before_the_first_has_run() {
    let (_context, stream) = &in_child!(expecting_misuse());
    let address = allocate(stream);
    // SAFETY: the first call is valid.
    succeeds(unsafe { cuMemFreeAsync(address, stream.as_raw()) });
    // SAFETY: the other calls are the planted bug, which the software driver detects.
    let refused = unsafe { cuMemFreeAsync(address, stream.as_raw()) };
    assert_eq!(refused, CUresult::CUDA_ERROR_INVALID_VALUE);
    found("cuMemFreeAsync of");
    // SAFETY: as above.
    let refused = unsafe { cuMemFree_v2(address) };
    assert_eq!(refused, CUresult::CUDA_ERROR_INVALID_VALUE);
    found("cuMemFree of");
    stream.synchronize().expect("the allocation and one free");
    assert_eq!(cuda_sim::alive().device_allocations, 0);
}

#[test]
fn a_use_enqueued_after_the_free_is_reported_and_not_fatal() {
    let (_context, stream) = &in_child!(expecting_misuse());
    let address = allocate(stream);
    // SAFETY: the memory is alive and is used in stream order.
    succeeds(unsafe { cuMemsetD8Async(address, 1, 64, stream.as_raw()) });
    // SAFETY: this test owns the memory.
    succeeds(unsafe { cuMemFreeAsync(address, stream.as_raw()) });
    // SAFETY: the call is the planted bug: the memory is freed.
    let refused = unsafe { cuMemsetD8Async(address, 1, 64, stream.as_raw()) };
    assert_eq!(refused, CUresult::CUDA_ERROR_INVALID_VALUE);
    found("after their free was enqueued");
    stream.synchronize().expect("the valid part");
}

#[test]
fn a_copy_to_an_unknown_address_is_refused_and_not_fatal() {
    let (context, stream) = &in_child!(expecting_misuse());
    let _current = context.make_current().expect("current");
    let from = [0u8; 8];
    // SAFETY: the call is the planted bug: no memory has this address.
    let refused = unsafe { cuMemcpyHtoD_v2(0x1000, from.as_ptr().cast(), 8) };
    assert_eq!(refused, CUresult::CUDA_ERROR_INVALID_VALUE);
    found("are not in one allocation");
    stream.synchronize().expect("nothing ran");
}

#[test]
fn an_allocation_beyond_the_memory_of_the_host_is_out_of_memory() {
    let (_end, _context, stream) = in_child!(on_stream());
    // Whether this succeeds depends on the host. Memory that is not written costs nothing.
    match DeviceBuffer::<u8>::uninit(&stream, 64 << 30) {
        Ok(buffer) => assert_eq!(buffer.len(), 64 << 30),
        Err(error) => {
            assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        }
    }
}

#[test]
fn a_fill_whose_size_overflows_is_refused() {
    let (_end, _context, stream) = in_child!(on_stream());
    let buffer = DeviceBuffer::<u32>::zeroed(&stream, 4).expect("memory");
    // SAFETY: the call is refused and accesses nothing.
    let code = unsafe { cuMemsetD32Async(buffer.as_raw(), 1, usize::MAX / 2, stream.as_raw()) };
    assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE);
}

#[test]
fn a_fill_of_rows_that_overlap_is_refused() {
    let bench = &in_child!(without_misuse());
    let device = memory(64);
    refused!(INVALID, cuMemsetD2D32Async(device, 12, 7, 4, 2, bench.stream));
    // One row has no pitch.
    succeeds!(cuMemsetD2D32Async(device, 12, 7, 4, 1, bench.stream));
    succeeds!(cuMemsetD2D32Async(device, 16, 7, 4, 2, bench.stream));
    assert_eq!(read::<8>(device), [7; 8]);
}

#[test]
fn each_device_has_its_own_memory() {
    let (_end, first) = in_child!(on(Profile::h200().with_devices(2)));
    let second = Context::primary(&Device::get(1).expect("there are two")).expect("a context");
    let limit = cuda_sim::fault::limit_memory(1000);
    let (a, b) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    let ordered = DeviceBuffer::<u8>::uninit(&a, 600).expect("below the limit");
    let plain = DeviceBuffer::<u8>::zeroed_sync(&b, 700).expect("on the other device");
    let free = |context: &Context| context.memory_info().expect("known").free;
    assert_eq!((free(&first), free(&second)), (400, 300));
    DeviceBuffer::<u8>::uninit(&b, 600).expect_err("above the limit");
    assert_eq!(cuda_sim::alive().device_bytes, 1300);
    drop((ordered, plain, limit));
}

#[test]
fn an_allocation_refused_by_an_invalidated_capture_is_not_kept() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    // SAFETY: the stream is alive.
    succeeds(unsafe {
        cuStreamBeginCapture_v2(stream.as_raw(), Mode::CU_STREAM_CAPTURE_MODE_GLOBAL)
    });
    let _current = context.make_current().expect("current");
    let mut address = 0;
    // SAFETY: the pointer refers to a local variable.
    let refused = unsafe { cuMemAlloc_v2(&raw mut address, 64) };
    assert_eq!(refused, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    let mut mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) });
    // SAFETY: the pointer refers to a local variable, and the stream is alive.
    let refused = unsafe { cuMemAllocAsync(&raw mut address, 64, stream.as_raw()) };
    assert_eq!(refused, CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_eq!(cuda_sim::alive().device_allocations, 0);
}

#[test]
fn one_output_pointer_may_be_passed_twice() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let _current = context.make_current().expect("current");
    let mut bytes = 0usize;
    let place = &raw mut bytes;
    // SAFETY: both pointers refer to one local variable, which is written twice.
    succeeds(unsafe { cuMemGetInfo_v2(place, place) });
    assert_ne!(bytes, 0);
}

#[test]
fn pinned_memory_is_freed_with_its_context() {
    let (context, _stream) = &in_child!(expecting_misuse());
    let own = Context::new(&context.device(), ContextFlags::empty()).expect("a context").into_raw();
    let mut host = std::ptr::null_mut();
    // SAFETY: the context is alive.
    succeeds(unsafe { cuCtxPushCurrent_v2(own) });
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuMemHostAlloc(&raw mut host, 64, CU_MEMHOSTALLOC_PORTABLE) });
    let mut popped = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxPopCurrent_v2(&raw mut popped) });
    assert_eq!(cuda_sim::alive().pinned_allocations, 1);
    // SAFETY: nothing uses the context any more.
    succeeds(unsafe { cuCtxDestroy_v2(own) });
    assert_eq!(cuda_sim::alive().pinned_allocations, 0);
    // SAFETY: the call is the planted bug: the memory was freed.
    let refused = unsafe { cuMemFreeHost(host) };
    assert_eq!(refused, CUresult::CUDA_ERROR_INVALID_VALUE);
    found("cuMemFreeHost of");
}

#[test]
fn an_array_for_which_memory_does_not_suffice_tells_its_size() {
    let (_end, _context, stream) = in_child!(on_stream());
    let shape = ArrayShape::TwoD { width: 8, height: 4 };
    let _arrays = fail("cuArray3DCreate_v2", 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    let _levels = fail("cuMipmappedArrayCreate", 1, CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    let array = Array::<u32>::new(&stream, shape).map(drop);
    let levels = MipmappedArray::<[f32; 2]>::new(&stream, shape, 2).map(drop);
    for (failed, bytes) in [(array, 128), (levels, 8 * (32 + 8))] {
        match failed {
            Err(Error::OutOfMemory(error)) => assert_eq!(error.bytes, bytes),
            other => panic!("{other:?}"),
        }
    }
}
