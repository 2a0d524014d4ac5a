//! Memory managers, where memory ends and where calls are counted.

use crate::common::child;
use crate::{check, context, start};
use cuda_safe::manager::{
    AutoFreePointer, CacheFigures, CachingManager, CachingOptions, DriverManager, IpcHandle,
    MemoryPointer, Order, OrderedManager, set_memory_manager,
};
use cuda_safe::{CUresult, Context, DeviceBuffer, MappedBuffer, PinnedBuffer, Stream};
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

/// As [`managed`], with a caching pool of little slabs.
fn cached(options: CachingOptions, body: impl FnOnce(Context)) {
    child::in_child(&[], || {
        set_memory_manager(move |context| CachingManager::with(context, options))
            .expect("the version fits");
        start(Profile::h200());
        body(context());
        check();
    });
}

const SMALL: usize = 4 << 20;

fn small() -> CachingOptions {
    CachingOptions {
        slab_bytes: SMALL,
        ..Default::default()
    }
}

fn figures(context: &Context) -> CacheFigures {
    let pool = context.memory_manager_as::<CachingManager>();
    pool.expect("made").expect("it is").figures()
}

fn bytes(stream: &Stream, len: usize) -> DeviceBuffer<u8> {
    DeviceBuffer::uninit(stream, len).expect("memory")
}

/// Whether all is as a fill has left it.
fn is_filled(memory: &DeviceBuffer<u8>, with: u8) -> bool {
    let found = memory.to_vec().expect("a copy");
    found.iter().all(|byte| *byte == with)
}

/// The functions that were called meanwhile.
fn calls(f: impl FnOnce()) -> Vec<&'static str> {
    cuda_sim::clear_calls();
    f();
    cuda_sim::calls().iter().map(|call| call.function).collect()
}

#[test]
fn a_pool_uses_memory_of_a_stream_again_without_a_call() {
    cached(small(), |context| {
        let stream = context.stream().expect("a stream");
        let first = bytes(&stream, 1000);
        let address = first.as_raw();
        drop(first);
        let called = calls(|| {
            for _ in 0..100 {
                let again = bytes(&stream, 900);
                assert_eq!(again.as_raw(), address);
            }
        });
        assert_eq!(called, Vec::<&str>::new());
        // Of another thread, and of other sizes: of what is there already.
        let called = calls(|| {
            std::thread::scope(|scope| {
                scope.spawn(|| assert_eq!(bytes(&stream, 1000).as_raw(), address));
            });
            let many: Vec<_> = (1..100).map(|size| bytes(&stream, size * 300)).collect();
            drop(many);
        });
        assert_eq!(called, Vec::<&str>::new());
        assert_eq!(figures(&context).slabs, 1);
    });
}

#[test]
fn another_stream_gets_memory_when_what_used_it_is_done() {
    cached(small(), |context| {
        let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
        let mut first = bytes(&one, SMALL);
        let address = first.as_raw();
        first.fill(1).expect("a fill");
        drop(first);
        // The fill has not run: the software driver runs it late.
        let mut second = bytes(&two, SMALL);
        assert_ne!(second.as_raw(), address);
        second.fill(2).expect("a fill");
        one.synchronize().expect("a wait");
        let mut third = bytes(&two, SMALL);
        assert_eq!(third.as_raw(), address);
        third.fill(3).expect("a fill");
        assert!(is_filled(&second, 2) && is_filled(&third, 3));
        let figures = figures(&context);
        assert_eq!(
            (figures.slabs, figures.stream_waits, figures.host_waits),
            (2, 0, 0)
        );
        drop((second, third));
    });
}

#[test]
fn another_stream_waits_for_memory_if_there_is_no_more() {
    let options = CachingOptions {
        max_bytes: SMALL,
        ..small()
    };
    cached(options, |context| {
        let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
        let late = |memory: &mut DeviceBuffer<u8>, with| {
            for _ in 0..8 {
                memory.fill(with).expect("a fill");
            }
        };
        let mut first = bytes(&one, SMALL - 1000);
        late(&mut first, 1);
        drop(first);
        let mut second = bytes(&two, SMALL - 1000);
        second.fill(2).expect("a fill");
        assert_eq!(figures(&context).stream_waits, 1);
        two.synchronize().expect("a wait");
        one.synchronize().expect("a wait");
        assert!(is_filled(&second, 2));
        late(&mut second, 3);
        // Nobody may have it in no stream's order before all is done: the host waits.
        drop(second);
        let third = MemoryPointer::allocate(&context, SMALL - 1000).expect("memory");
        assert_eq!(figures(&context).host_waits, 1);
        // SAFETY: it is so long, and nobody else has it.
        let mut view = unsafe { DeviceBuffer::borrow_raw(third.as_raw(), third.size(), &one) };
        view.fill(4).expect("a fill");
        two.synchronize().expect("a wait");
        assert!(is_filled(&view, 4));
        let error = DeviceBuffer::<u8>::uninit(&one, SMALL).expect_err("there is no more");
        assert!(error.to_string().contains("limit"), "{error}");
        drop(third);
    });
}

#[test]
fn memory_of_nobodys_order_is_waited_for_rather_than_that_the_pool_grows() {
    let mut options = small();
    // Of about 140 GiB.
    options.unordered.share = 1e-4;
    cached(options, |context| {
        let stream = context.stream().expect("a stream");
        let allocate = |_| MemoryPointer::allocate(&context, SMALL).expect("memory");
        let three: Vec<_> = (0..3).map(allocate).collect();
        drop(three);
        let more = bytes(&stream, SMALL);
        assert_eq!(
            (figures(&context).slabs, figures(&context).host_waits),
            (4, 0)
        );
        let one_more = allocate(0);
        drop((one_more, more));
        let _two = [bytes(&stream, SMALL), bytes(&stream, SMALL)];
        assert_eq!(
            (figures(&context).slabs, figures(&context).host_waits),
            (5, 1)
        );
    });
}

#[test]
fn memory_of_nobodys_order_leaves_what_lies_beside_it_to_be_used() {
    cached(small(), |context| {
        let stream = context.stream().expect("a stream");
        for _ in 0..50 {
            let memory = MemoryPointer::allocate(&context, 1000).expect("memory");
            drop(memory);
            drop(bytes(&stream, 2000));
        }
        let now = figures(&context);
        assert_eq!((now.slabs, now.host_waits), (1, 0));
        assert_eq!(now.kept(), SMALL);
        let pool = context.memory_manager().expect("made").expect("it is");
        assert_eq!(pool.trim(0).expect("a wait"), SMALL);
    });
}

#[test]
fn a_stream_that_ends_leaves_its_memory_to_others() {
    cached(small(), |context| {
        let keep = context.stream().expect("a stream");
        for _ in 0..10 {
            let stream = context.stream().expect("a stream");
            let mut memory = bytes(&stream, SMALL / 2);
            memory.fill(1).expect("a fill");
            drop(memory);
            drop(stream);
            context.synchronize().expect("a wait");
        }
        assert_eq!(figures(&context).slabs, 1);
        // In a host function, and in a capture, where it can have no event.
        let stream = context.stream().expect("a stream");
        let (memory, its) = (bytes(&stream, 100), stream.clone());
        keep.launch_host_function(move || drop((memory, its)))
            .expect("given");
        drop(stream);
        keep.synchronize().expect("a wait");
        let stream = context.stream().expect("a stream");
        let memory = bytes(&stream, SMALL / 2);
        let capture = stream.begin_capture(Default::default()).expect("a capture");
        drop(memory);
        let error = DeviceBuffer::<u8>::uninit(&stream, 1).expect_err("captured");
        assert!(error.to_string().contains("graph"), "{error}");
        // Others get memory all the same, and break nothing.
        drop(bytes(&keep, SMALL / 2));
        drop(capture.finish().expect("nothing broke it"));
        drop(stream);
    });
}

#[test]
fn nothing_is_allocated_but_by_the_manager() {
    cached(small(), |context| {
        let stream = context.stream().expect("a stream");
        // What there is of it comes now.
        drop(bytes(&stream, SMALL / 2));
        let called = calls(|| {
            for len in [1, 1000, SMALL / 4] {
                drop(bytes(&stream, len));
                drop(DeviceBuffer::<u8>::plain_zeroed(&stream, len).expect("memory"));
                drop(DeviceBuffer::from_slice(&stream, &vec![1u8; len]).expect("memory"));
            }
            drop(cuda_safe::PitchedBuffer::<f32>::zeroed(&stream, 10, 10).expect("memory"));
            drop(bytes(&stream, 10).share().expect("shared"));
        });
        let allocates = |name: &&str| {
            [
                "cuMemAlloc",
                "cuMemFree",
                "cuMemHostAlloc",
                "cuMemHostRegister",
            ]
            .iter()
            .any(|its| name.starts_with(its))
        };
        let its: Vec<&str> = called.into_iter().filter(allocates).collect();
        assert_eq!(its, Vec::<&str>::new());
    });
}

#[test]
fn a_trim_gives_back_what_is_whole() {
    cached(small(), |context| {
        let stream = context.stream().expect("a stream");
        let mut held: Vec<_> = (0..4).map(|_| bytes(&stream, SMALL)).collect();
        let small = bytes(&stream, 100);
        assert_eq!(figures(&context).slabs, 5);
        held.truncate(1);
        let manager = context.memory_manager().expect("made").expect("it is");
        let guard = manager.defer_cleanup();
        assert_eq!(manager.trim(0).expect("held back"), 0);
        drop(guard);
        let before = figures(&context);
        let kept = before.kept();
        assert_eq!(manager.trim(kept).expect("enough"), 0);
        assert_eq!(manager.trim(kept - 1).expect("one"), SMALL);
        assert_eq!(manager.trim(0).expect("the others"), 2 * SMALL);
        let after = figures(&context);
        assert_eq!((after.slabs, after.reserved), (2, 2 * SMALL));
        assert!(after.fragmentation() < 0.01, "{after:?}");
        assert_eq!(cuda_sim::alive().device_allocations, 2);
        drop((held, small));
    });
}

#[test]
fn memory_of_another_process_is_opened_once_and_closed_once() {
    cached(small(), |context| {
        let memory =
            AutoFreePointer::from(MemoryPointer::allocate(&context, 5000).expect("memory"));
        let part = memory.part(1024, 100).expect("within");
        let exported = part.export().expect("plain memory below");
        drop((memory, part));
        assert_eq!(figures(&context).in_use, 5120, "the handle keeps it");
        let handle = *exported.handle();
        assert_eq!(
            (handle.size(), handle.device().expect("asked")),
            (100, Some(context.device()))
        );
        let other = MemoryPointer::allocate(&context, 5000).expect("memory");
        let other = AutoFreePointer::from(other).export().expect("as above");
        assert_eq!(other.handle().as_bytes(), handle.as_bytes(), "of one slab");
        assert_ne!(other.handle().offset(), handle.offset());

        // SAFETY: nothing comes of it.
        let error = unsafe { context.open_memory(&handle) }.expect_err("its own");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_CONTEXT));
        let mut bytes = handle.to_bytes();
        bytes[..64].copy_from_slice(&cuda_sim::shared_by_another(8192));
        let theirs = IpcHandle::from_bytes(&bytes);
        // SAFETY: the software driver plays the other process.
        let open = || unsafe { context.open_memory(&theirs) }.expect("another process's");
        let called = calls(|| {
            let (one, two) = (open(), open());
            assert_eq!(one.as_raw(), two.as_raw());
            drop(one.clone());
            drop(one);
            drop(two);
        });
        let of = |name: &str| called.iter().filter(|its| **its == name).count();
        assert_eq!(
            (of("cuIpcOpenMemHandle_v2"), of("cuIpcCloseMemHandle")),
            (1, 1)
        );
        drop(open());
        bytes[90] ^= 1;
        // SAFETY: nothing comes of it.
        let error = unsafe { context.open_memory(&IpcHandle::from_bytes(&bytes)) };
        let error = error.expect_err("another device").to_string();
        assert!(error.contains("GPU-"), "{error}");
    });
}

#[test]
fn what_cannot_be_shared_is_refused() {
    child::in_child(&[], || {
        set_memory_manager(OrderedManager::new).expect("the version fits");
        start(Profile::h200());
        let context = context();
        let stream = context.stream().expect("a stream");
        let ordered = MemoryPointer::allocate_on(&stream, 100).expect("memory");
        let managed = MemoryPointer::allocate_managed(&context, 100, true).expect("memory");
        for memory in [ordered, managed] {
            let error = AutoFreePointer::from(memory)
                .export()
                .expect_err("not plain");
            assert!(error.to_string().contains("plain"), "{error}");
        }
        let plain = MemoryPointer::allocate(&context, 100).expect("memory");
        AutoFreePointer::from(plain).export().expect("plain");
        drop((stream, context));
        check();
    });
}
