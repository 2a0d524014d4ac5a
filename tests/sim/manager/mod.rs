//! Memory managers under memory limits, and the number of their driver calls.

pub(crate) mod caching;
pub(crate) mod expandable;
pub(crate) mod host;
pub(crate) mod inside;
pub(crate) mod locks;
pub(crate) mod orders;
pub(crate) mod parts;
pub(crate) mod pools;
pub(crate) mod pressure;
pub(crate) mod reset;
pub(crate) mod shared;
pub(crate) mod wrappers;
pub(crate) mod zones;

use crate::prelude::*;
use cuda_memory::CacheStats;

#[test]
fn an_allocation_without_memory_completes_deferred_frees_and_retries() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let _limit = limit_memory(1 << 20);
    let allocate = || MemoryPointer::allocate(&context, 600 << 10);
    drop(allocate().expect("memory"));
    drop(allocate().expect("the first is freed for this"));
    let manager = context.memory_manager().expect("made").expect("the chosen manager");
    let guard = manager.defer_cleanup();
    let error = allocate().expect_err("the second is deferred");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    drop(guard);
    let held = allocate().expect("the second is freed for this");
    let error = allocate().expect_err("no memory to free");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_OUT_OF_MEMORY));
    drop(held);
}

#[test]
fn memory_with_a_deferred_free_is_freed_after_its_last_use() {
    let (_end, context) = in_child!(with(DriverManager::new));
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 1 << 20).expect("memory");
    buffer.fill(1).expect("a fill");
    drop(buffer);
    drop(stream);
    let manager = context.memory_manager().expect("made").expect("the chosen manager");
    assert_eq!(cuda_sim::alive().device_allocations, 1);
    // The fill has not run yet, because the software driver runs it late.
    manager.reset();
    assert_eq!(cuda_sim::alive().device_allocations, 0);
}

#[test]
fn objects_dropped_in_a_capture_or_a_host_function_are_released_later() {
    let (_end, context) = in_child!(with(DriverManager::new));
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
    drop(capture.end().expect("the capture is valid"));
    context.synchronize().expect("a wait");
    let alive = cuda_sim::alive();
    assert_eq!((alive.device_allocations, alive.pinned_allocations), (0, 0));

    let buffer = DeviceBuffer::<u8>::zeroed(&stream, 100).expect("memory");
    let memory = MemoryPointer::allocate(&context, 100).expect("memory");
    let pinned = PinnedBuffer::<u8>::zeroed(&context, 100).expect("memory");
    stream.launch_host_function(move || drop((buffer, memory, pinned))).expect("enqueued");
    stream.synchronize().expect("a wait");
    // SAFETY: no work has used the memory, and the stream is transient.
    let transient = unsafe { Order::transient(stream.as_raw()) };
    let memory = MemoryPointer::allocate(&context, 100).expect("memory");
    // SAFETY: as above.
    unsafe { memory.free_in(transient) };
}

/// Starts the software driver like [`on`], with a caching pool in each context.
fn cached(options: CachingOptions) -> (AtEnd, Context) {
    with(move |context| CachingManager::with(context, options))
}

const SMALL: usize = 4 << 20;

fn small() -> CachingOptions {
    CachingOptions { slab_bytes: SMALL, ..Default::default() }
}

fn stats(context: &Context) -> CacheStats {
    let pool = context.memory_manager_as::<CachingManager>();
    pool.expect("made").expect("the chosen manager").stats()
}

fn bytes(stream: &Stream, len: usize) -> DeviceBuffer<u8> {
    DeviceBuffer::uninit(stream, len).expect("memory")
}

/// Returns whether the buffer still has the contents of a fill.
fn is_filled(memory: &DeviceBuffer<u8>, with: u8) -> bool {
    let found = memory.to_vec().expect("a copy");
    found == vec![with; found.len()]
}

#[test]
fn a_pool_reuses_memory_on_its_stream_without_a_driver_call() {
    let (_end, context) = in_child!(cached(small()));
    let stream = context.stream().expect("a stream");
    let first = bytes(&stream, 1000);
    let address = first.as_raw();
    drop(first);
    let called = calls(|| {
        for _ in 0..100 {
            assert_eq!(bytes(&stream, 900).as_raw(), address);
        }
    });
    assert_eq!(called, Vec::<&str>::new());
    // From another thread and with other sizes, all from cached memory.
    let called = calls(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(bytes(&stream, 1000).as_raw(), address));
        });
        let many: Vec<_> = (1..100).map(|size| bytes(&stream, size * 300)).collect();
        drop(many);
    });
    assert_eq!(called, Vec::<&str>::new());
    assert_eq!(stats(&context).slabs, 1);
}

#[test]
fn another_stream_gets_memory_after_the_work_on_it() {
    let (_end, context) = in_child!(cached(small()));
    let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
    let mut first = bytes(&one, SMALL);
    let address = first.as_raw();
    first.fill(1).expect("a fill");
    drop(first);
    // The fill has not run, because the software driver runs it late.
    let mut second = bytes(&two, SMALL);
    assert_ne!(second.as_raw(), address);
    second.fill(2).expect("a fill");
    one.synchronize().expect("a wait");
    let mut third = bytes(&two, SMALL);
    assert_eq!(third.as_raw(), address);
    third.fill(3).expect("a fill");
    assert!(is_filled(&second, 2) && is_filled(&third, 3));
    let stats = stats(&context);
    assert_eq!((stats.slabs, stats.stream_waits, stats.host_waits), (2, 0, 0));
    drop((second, third));
}

#[test]
fn another_stream_waits_for_memory_if_none_is_left() {
    let options = CachingOptions { max_bytes: SMALL, ..small() };
    let (_end, context) = in_child!(cached(options));
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
    assert_eq!(stats(&context).stream_waits, 1);
    two.synchronize().expect("a wait");
    one.synchronize().expect("a wait");
    assert!(is_filled(&second, 2));
    late(&mut second, 3);
    // Memory without a stream order may be reused only after all work has completed, so the
    // host waits.
    drop(second);
    let third = MemoryPointer::allocate(&context, SMALL - 1000).expect("memory");
    assert_eq!(stats(&context).host_waits, 1);
    // SAFETY: the memory has this size, and nothing else uses it.
    let mut view =
        unsafe { DeviceBuffer::borrow_raw(third.as_raw(), third.size(), &one) }.expect("memory");
    view.fill(4).expect("a fill");
    two.synchronize().expect("a wait");
    assert!(is_filled(&view, 4));
    let error = DeviceBuffer::<u8>::uninit(&one, SMALL).expect_err("no memory is left");
    assert!(error.to_string().contains("limit"), "{error}");
    drop(third);
}

#[test]
fn the_host_waits_for_memory_without_an_order_before_the_pool_grows() {
    let mut options = small();
    // A share of about 140 GiB.
    options.unordered.share = 1e-4;
    let (_end, context) = in_child!(cached(options));
    let stream = context.stream().expect("a stream");
    let allocate = |_| MemoryPointer::allocate(&context, SMALL).expect("memory");
    let three: Vec<_> = (0..3).map(allocate).collect();
    drop(three);
    let more = bytes(&stream, SMALL);
    assert_eq!((stats(&context).slabs, stats(&context).host_waits), (4, 0));
    let one_more = allocate(0);
    drop((one_more, more));
    let _two = [bytes(&stream, SMALL), bytes(&stream, SMALL)];
    assert_eq!((stats(&context).slabs, stats(&context).host_waits), (5, 1));
}

#[test]
fn memory_without_an_order_does_not_block_the_memory_next_to_it() {
    let (_end, context) = in_child!(cached(small()));
    let stream = context.stream().expect("a stream");
    for _ in 0..50 {
        drop(MemoryPointer::allocate(&context, 1000).expect("memory"));
        drop(bytes(&stream, 2000));
    }
    let now = stats(&context);
    assert_eq!((now.slabs, now.host_waits), (1, 0));
    assert_eq!(now.cached(), SMALL);
    let pool = context.memory_manager().expect("made").expect("the chosen manager");
    assert_eq!(pool.trim(0).expect("a wait"), SMALL);
}

#[test]
fn a_destroyed_stream_leaves_its_memory_to_other_streams() {
    let (_end, context) = in_child!(cached(small()));
    let keep = context.stream().expect("a stream");
    for _ in 0..10 {
        let stream = context.stream().expect("a stream");
        let mut memory = bytes(&stream, SMALL / 2);
        memory.fill(1).expect("a fill");
        drop(memory);
        drop(stream);
        context.synchronize().expect("a wait");
    }
    assert_eq!(stats(&context).slabs, 1);
    // In a host function, and in a capture, where no event can be recorded.
    let stream = context.stream().expect("a stream");
    let (memory, its) = (bytes(&stream, 100), stream.clone());
    keep.launch_host_function(move || drop((memory, its))).expect("enqueued");
    drop(stream);
    keep.synchronize().expect("a wait");
    let stream = context.stream().expect("a stream");
    let memory = bytes(&stream, SMALL / 2);
    let capture = stream.begin_capture(Default::default()).expect("a capture");
    drop(memory);
    let error = DeviceBuffer::<u8>::uninit(&stream, 1).expect_err("captured");
    assert!(error.to_string().contains("graph"), "{error}");
    // Other streams still get memory, and the capture stays valid.
    drop(bytes(&keep, SMALL / 2));
    drop(capture.end().expect("the capture is valid"));
    drop(stream);
}

#[test]
fn only_the_manager_allocates() {
    let (_end, context) = in_child!(cached(small()));
    let stream = context.stream().expect("a stream");
    // Triggers all pending calls.
    drop(bytes(&stream, SMALL / 2));
    let called = calls(|| {
        for len in [1, 1000, SMALL / 4] {
            drop(bytes(&stream, len));
            drop(DeviceBuffer::<u8>::zeroed_sync(&stream, len).expect("memory"));
            drop(DeviceBuffer::from_slice(&stream, &vec![1u8; len]).expect("memory"));
        }
        drop(PitchedBuffer::<f32>::zeroed(&stream, 10, 10).expect("memory"));
        drop(bytes(&stream, 10).share().expect("shared"));
    });
    let allocates = |name: &&str| {
        ["cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuMemHostRegister"]
            .iter()
            .any(|its| name.starts_with(its))
    };
    let its: Vec<&str> = called.into_iter().filter(allocates).collect();
    assert_eq!(its, Vec::<&str>::new());
}

#[test]
fn a_trim_releases_whole_slabs() {
    let (_end, context) = in_child!(cached(small()));
    let stream = context.stream().expect("a stream");
    let mut held: Vec<_> = (0..4).map(|_| bytes(&stream, SMALL)).collect();
    let small = bytes(&stream, 100);
    assert_eq!(stats(&context).slabs, 5);
    held.truncate(1);
    let manager = context.memory_manager().expect("made").expect("the chosen manager");
    let guard = manager.defer_cleanup();
    assert_eq!(manager.trim(0).expect("nothing to trim"), 0);
    drop(guard);
    let kept = stats(&context).cached();
    assert_eq!(manager.trim(kept).expect("enough"), 0);
    assert_eq!(manager.trim(kept - 1).expect("one"), SMALL);
    assert_eq!(manager.trim(0).expect("the others"), 2 * SMALL);
    let after = stats(&context);
    assert_eq!((after.slabs, after.reserved), (2, 2 * SMALL));
    assert!(after.fragmentation() < 0.01, "{after:?}");
    assert_eq!(cuda_sim::alive().device_allocations, 2);
    drop((held, small));
}

#[test]
fn memory_of_another_process_is_opened_once_and_closed_once() {
    let (_end, context) = in_child!(cached(small()));
    let memory = AutoFreePointer::from(MemoryPointer::allocate(&context, 5000).expect("memory"));
    let part = memory.part(1024, 100).expect("within");
    let exported = part.export().expect("synchronous upstream memory");
    drop((memory, part));
    assert_eq!(stats(&context).in_use, 5120, "the handle keeps it alive");
    let handle = *exported.handle();
    assert_eq!((handle.size(), handle.device().expect("asked")), (100, Some(context.device())));
    let other = MemoryPointer::allocate(&context, 5000).expect("memory");
    let other = AutoFreePointer::from(other).export().expect("as above");
    assert_eq!(other.handle().as_bytes(), handle.as_bytes(), "of one slab");
    assert_ne!(other.handle().offset(), handle.offset());

    // SAFETY: the call fails and opens nothing.
    let error = unsafe { context.open_memory(&handle) }.expect_err("its own");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    let mut bytes = handle.to_bytes();
    bytes[..64].copy_from_slice(&cuda_sim::shared_by_another(8192));
    let theirs = IpcHandle::from_bytes(&bytes);
    // SAFETY: the software driver acts as the other process.
    let open = || unsafe { context.open_memory(&theirs) }.expect("another process's");
    let called = calls(|| {
        let (one, two) = (open(), open());
        assert_eq!(one.as_raw(), two.as_raw());
        drop(one.clone());
        drop(one);
        drop(two);
    });
    let of = |name: &str| called.iter().filter(|its| **its == name).count();
    assert_eq!((of("cuIpcOpenMemHandle_v2"), of("cuIpcCloseMemHandle")), (1, 1));
    drop(open());
    bytes[90] ^= 1;
    // SAFETY: the call fails and opens nothing.
    let error = unsafe { context.open_memory(&IpcHandle::from_bytes(&bytes)) };
    let error = error.expect_err("another device").to_string();
    assert!(error.contains("GPU-"), "{error}");
}

#[test]
fn memory_that_cannot_be_shared_is_refused() {
    in_child!();
    set_memory_manager(OrderedManager::new).expect("a matching version");
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    let ordered = MemoryPointer::allocate_on(&stream, 100).expect("memory");
    let managed = MemoryPointer::allocate_managed(&context, 100, true).expect("memory");
    for memory in [ordered, managed] {
        let error = AutoFreePointer::from(memory).export().expect_err("not synchronous memory");
        assert!(error.to_string().contains("cuMemAlloc"), "{error}");
    }
    let synchronous = MemoryPointer::allocate(&context, 100).expect("memory");
    AutoFreePointer::from(synchronous).export().expect("synchronous memory");
    drop((stream, context));
    check();
}
