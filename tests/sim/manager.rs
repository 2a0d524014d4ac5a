//! Memory managers, where memory ends and where calls are counted.

use crate::common::child;
use crate::{check, context, start};
use cuda_safe::manager::{DriverManager, MemoryPointer, Order, set_memory_manager};
use cuda_safe::{CUresult, Context, DeviceBuffer, MappedBuffer, PinnedBuffer};
use cuda_sim::Profile;
use cuda_sim::fault::limit_memory;

/// As [`on`](crate::on), with the driver's own manager.
fn managed(body: impl FnOnce(Context)) {
    child::in_child(&[], || {
        set_memory_manager(DriverManager::new).expect("the version fits");
        start(Profile::h200());
        body(context());
        check();
    });
}

#[test]
fn too_little_memory_flushes_what_was_put_off_and_tries_again() {
    managed(|context| {
        let _limit = limit_memory(1 << 20);
        let allocate = || MemoryPointer::allocate(&context, 600 << 10);
        drop(allocate().expect("memory"));
        drop(allocate().expect("the first is freed for it"));
        let manager = context.memory_manager().expect("made").expect("it is");
        let guard = manager.defer_cleanup();
        let error = allocate().expect_err("the second is held back");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        drop(guard);
        let held = allocate().expect("the second is freed for it");
        let error = allocate().expect_err("there is nothing to free");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
        drop(held);
    });
}

#[test]
fn memory_that_was_put_off_is_freed_behind_what_used_it() {
    managed(|context| {
        let stream = context.stream().expect("a stream");
        let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 1 << 20).expect("memory");
        buffer.fill(1).expect("a fill");
        drop(buffer);
        drop(stream);
        let manager = context.memory_manager().expect("made").expect("it is");
        assert_eq!(cuda_sim::alive().device_allocations, 1);
        // The fill has not run yet: the software driver runs it late.
        manager.reset();
        assert_eq!(cuda_sim::alive().device_allocations, 0);
    });
}

#[test]
fn what_is_dropped_in_a_capture_or_a_host_function_goes_later() {
    managed(|context| {
        let stream = context.stream().expect("a stream");
        let buffer = DeviceBuffer::<u8>::zeroed(&stream, 100).expect("memory");
        let memory = MemoryPointer::allocate_on(&stream, 100).expect("memory");
        let mapped = PinnedBuffer::<u8>::zeroed(&context, 100).expect("memory");
        let mapped = MappedBuffer::new(mapped, &stream).expect("mapped");
        let vector = PinnedBuffer::register(&context, vec![0u8; 100]).expect("pinned");
        let vector = MappedBuffer::new(vector, &stream).expect("mapped");
        let capture = stream.begin_capture(Default::default()).expect("a capture");
        drop((buffer, memory, mapped, vector));
        assert_eq!(cuda_sim::alive().device_allocations, 2);
        let error = DeviceBuffer::<u8>::uninit(&stream, 1).expect_err("in a capture");
        assert!(error.to_string().contains("graph"), "{error}");
        drop(capture.finish().expect("nothing broke it"));
        context.synchronize().expect("a wait");
        let alive = cuda_sim::alive();
        assert_eq!((alive.device_allocations, alive.pinned_allocations), (0, 0));

        let buffer = DeviceBuffer::<u8>::zeroed(&stream, 100).expect("memory");
        let memory = MemoryPointer::allocate(&context, 100).expect("memory");
        let pinned = PinnedBuffer::<u8>::zeroed(&context, 100).expect("memory");
        stream
            .launch_host_function(move || drop((buffer, memory, pinned)))
            .expect("given");
        stream.synchronize().expect("a wait");
        // SAFETY: nobody has used it, and that stream is passing.
        let passing = unsafe { Order::passing(stream.as_raw()) };
        let memory = MemoryPointer::allocate(&context, 100).expect("memory");
        // SAFETY: as above.
        unsafe { memory.free_in(passing) };
    });
}
