//! Ranges of pinned memory: which calls their copies make, when the memory is freed, and what happens
//! if calls fail.

use crate::prelude::*;
use cuda_safe::manager::clear_memory_manager;
use cuda_safe::memory::PinnedRange;

/// The calls of a copy of a range that has an event.
const COPY: [&str; 2] = ["cuMemcpyDtoHAsync_v2", "cuEventRecord"];

const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;

/// Returns a divided buffer of two ranges with two elements each.
fn two_ranges(context: &Context) -> [PinnedRange<i32>; 2] {
    let ranges = PinnedBuffer::zeroed(context, 4).expect("memory").into_chunks(2).expect("ranges");
    ranges.try_into().expect("two ranges")
}

fn device(stream: &Stream) -> DeviceBuffer<i32> {
    DeviceBuffer::from_slice(stream, &[7, 8]).expect("memory")
}

#[test]
fn a_wait_for_a_range_is_a_wait_for_its_event() {
    let (_end, context, stream) = in_child!(on_stream());
    cuda_safe::event::set_reuse(false);
    let buffer = device(&stream);
    let [range, _other] = two_ranges(&context);
    let mut copy = None;
    let log = calls(|| copy = buffer.copy_to_pinned(range).ok());
    assert_eq!(log.last_chunk(), Some(&COPY), "{log:?}");
    assert!(log.contains(&"cuEventCreate"));
    let copy = copy.expect("a copy");
    let log = calls(|| {
        copy.is_complete().expect("a query");
    });
    assert_eq!(log, ["cuEventQuery"]);
    let mut range = None;
    let log = calls(|| range = copy.synchronize().ok());
    assert_eq!(log, ["cuEventSynchronize"]);
    let range = range.expect("the range");
    assert_eq!(*range, [7, 8]);
    // The next copy uses the same event.
    let mut copy = None;
    let log = calls(|| copy = buffer.copy_to_pinned(range).ok());
    assert_eq!(log, COPY);
    assert_eq!(calls(|| drop(copy)), ["cuEventSynchronize", "cuEventDestroy_v2"]);
}

#[test]
fn the_last_range_frees_the_memory() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [first, last] = two_ranges(&context);
    assert_eq!(calls(|| drop(first)), [""; 0]);
    let log = calls(|| {
        std::thread::spawn(|| drop(last)).join().expect("no panic");
    });
    assert!(log.contains(&"cuMemFreeHost"), "{log:?}");
}

#[test]
fn a_copy_whose_end_cannot_be_marked_is_waited_for_and_returns_its_range() {
    let (_end, context, stream) = in_child!(on_stream());
    let buffer = device(&stream);
    for (function, expected) in
        [("cuEventCreate", [0, 0]), ("cuMemcpyDtoHAsync_v2", [0, 0]), ("cuEventRecord", [7, 8])]
    {
        let [range, other] = two_ranges(&context);
        let fault = Fault::of_function(function).with(UNKNOWN).inject(Scope::Thread);
        let rejected = buffer.as_slice().try_copy_to_pinned(range).expect_err("the fault");
        drop(fault);
        assert_eq!(rejected.error.code(), Some(UNKNOWN));
        assert!(rejected.error.to_string().starts_with(function));
        assert_eq!(*rejected.value, expected, "{function}");
        PinnedRange::join([rejected.value, other]).expect("nothing was lost");
    }
    assert_eq!(cuda_safe::leaked(), 0);
}

#[test]
fn a_failed_wait_leaks_the_memory_of_all_ranges() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    let buffer = device(&stream);
    let [range, mut other] = two_ranges(&context);
    let copy = buffer.copy_to_pinned(range).expect("a copy");
    let fault = Fault::of_function("cuEventSynchronize").with(UNKNOWN).inject(Scope::Thread);
    copy.synchronize().expect_err("the fault");
    drop(fault);
    assert_eq!(cuda_safe::leaked(), 1);
    // The other range can be used, but the memory is never freed.
    other = buffer.copy_to_pinned(other).expect("a copy").synchronize().expect("a wait");
    assert_eq!(*other, [7, 8]);
    let log = calls(|| drop(other));
    assert!(!log.contains(&"cuMemFreeHost"), "{log:?}");
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn a_range_keeps_no_other_context_alive_after_its_copies() {
    let (_end, context) = in_child!(on(Profile::h200().with_devices(2)));
    cuda_safe::event::set_reuse(false);
    let [mut range, _other] = two_ranges(&context);
    let peer = Context::primary(&Device::get(1).expect("a device")).expect("a context");
    for _ in 0..2 {
        let buffer = device(&peer.stream().expect("a stream"));
        range = buffer.copy_to_pinned(range).expect("a copy").synchronize().expect("a wait");
        assert_eq!(*range, [7, 8]);
    }
    assert_eq!(cuda_sim::alive().events, 0);
    let buffer = device(&context.stream().expect("a stream"));
    range = buffer.copy_to_pinned(range).expect("a copy").synchronize().expect("a wait");
    assert_eq!(cuda_sim::alive().events, 1);
    drop(peer);
    let state = Device::get(1).expect("a device").primary_state();
    assert!(!state.expect("known").active);
    drop(range);
}

#[test]
fn copies_of_ranges_and_clones_are_refused_during_a_capture() {
    let (_end, context, stream) = in_child!(on_stream());
    let buffer = device(&stream);
    let [range, _other] = two_ranges(&context);
    let capture = stream.begin_capture(Default::default()).expect("begins");
    let is_refused = |error: &Error| match error {
        Error::Invalid(invalid) => **invalid == Invalid::StreamIsCaptured,
        _ => false,
    };
    let rejected = buffer.as_slice().try_copy_to_pinned(range).expect_err("captured");
    assert!(is_refused(&rejected.error));
    assert_eq!(*rejected.value, [0, 0]);
    assert!(is_refused(&buffer.try_clone().expect_err("captured")));
    let uninit = DeviceBuffer::<u8>::uninit_sync(&stream, 8);
    assert!(is_refused(&uninit.expect_err("captured")));
    drop(capture.end().expect("ends"));
    assert_eq!(buffer.try_clone().expect("a copy").to_vec().expect("a copy"), [7, 8]);
}

#[test]
fn a_clone_is_allocated_as_the_buffer_was() {
    let (_end, context, stream) = in_child!(on_stream());
    let pool = MemoryPool::new(&context, Default::default()).expect("a pool");
    let allocations = |buffer: &DeviceBuffer<u8>| -> Vec<_> {
        let log = calls(|| drop(buffer.try_clone().expect("a copy")));
        log.into_iter().filter(|name| name.starts_with("cuMemAlloc")).collect()
    };
    let ordered = DeviceBuffer::zeroed(&stream, 8).expect("memory");
    assert_eq!(allocations(&ordered), ["cuMemAllocAsync"]);
    let sync = DeviceBuffer::uninit_sync(&stream, 8).expect("memory");
    assert_eq!(allocations(&sync), ["cuMemAlloc_v2"]);
    let of_pool = DeviceBuffer::uninit_from_pool(&pool, &stream, 8).expect("memory");
    assert_eq!(allocations(&of_pool), ["cuMemAllocFromPoolAsync"]);
    // SAFETY: the first buffer owns the memory, which has 8 bytes, and is not used meanwhile.
    let borrowed =
        unsafe { DeviceBuffer::<u8>::borrow_raw(ordered.as_raw(), 8, &stream) }.expect("memory");
    assert_eq!(allocations(&borrowed), ["cuMemAllocAsync"]);
}

#[test]
fn ranges_and_uninitialized_memory_are_of_the_manager() {
    in_child!();
    start(Profile::h200());
    set_memory_manager(CachingManager::new).expect("a matching version");
    let context = context();
    let host = PinnedBuffer::<i32>::uninit(&context, 4).expect("memory");
    let ranges = host.write_with(|n| n as i32).into_chunks(2).expect("ranges");
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::uninit_sync(&stream, 4).expect("memory");
    let mut copies = Vec::new();
    for (mut part, range) in buffer.chunks_exact_mut(2).expect("parts").zip(ranges) {
        copies.push(part.copy_from_pinned(range).expect("a copy"));
    }
    let copy = buffer.try_clone().expect("a copy");
    assert_eq!(copy.to_vec().expect("a copy"), [0, 1, 2, 3]);
    drop((copies, buffer, copy, stream, context));
    clear_memory_manager();
    check();
}

#[test]
fn a_copy_to_a_whole_buffer_is_done_when_its_stream_is_idle() {
    let (_end, context, stream) = in_child!(on_stream());
    let buffer = DeviceBuffer::<i32>::zeroed(&stream, 64).expect("memory");
    let host = PinnedBuffer::zeroed(&context, 64).expect("memory");
    let copy = buffer.copy_to_pinned(host).expect("a copy");
    let running = fail("cuStreamQuery", 1, CUresult::CUDA_ERROR_NOT_READY);
    assert!(!copy.is_complete().expect("a query"));
    drop(running);
    stream.synchronize().expect("a wait");
    assert!(copy.is_complete().expect("a query"));
    drop(copy.synchronize().expect("a wait"));
}
