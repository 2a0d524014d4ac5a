//! Attributes of streams, and the contexts that streams belong to.

use crate::common::{self, child, invalid};
use cuda_safe::device::attribute;
use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
use cuda_safe::stream::{
    AccessProperty, AccessWindow, MemorySyncDomain, MemorySyncDomainMap, SynchronizationPolicy,
};
use cuda_safe::{Context, ContextFlags, DeviceBuffer, Invalid, Stream, StreamOptions};

#[test]
fn a_stream_says_whether_it_is_blocking() {
    let context = or_skip!(common::context());
    let blocking = StreamOptions { blocking: true, ..Default::default() };
    let blocking = context.stream_with(blocking).expect("a stream");
    assert!(blocking.is_blocking().expect("known"));
    let other = context.stream().expect("a stream");
    assert!(!other.is_blocking().expect("known"));
}

#[test]
fn the_synchronization_policy_is_set_and_copied() {
    let (_, [a, b]) = or_skip!(common::context_and_streams());
    assert_eq!(a.synchronization_policy().expect("known"), None);
    a.set_synchronization_policy(SynchronizationPolicy::BlockingSync).expect("set");
    b.copy_attributes_from(&a).expect("copied");
    for stream in [&a, &b] {
        let policy = stream.synchronization_policy().expect("known");
        assert_eq!(policy, Some(SynchronizationPolicy::BlockingSync));
        stream.synchronize().expect("a wait");
    }
}

#[test]
fn an_access_window_is_set_and_cleared() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let largest = context.device().attribute(attribute::MAX_ACCESS_POLICY_WINDOW_SIZE);
    if largest.is_ok_and(|largest| largest < 4096) {
        return common::skip("this device has no access windows");
    }
    assert_eq!(stream.access_window().expect("known"), None);
    let memory = DeviceBuffer::<u8>::zeroed(&stream, 4096).expect("memory");
    let window = AccessWindow {
        hit_ratio: 0.5,
        hit: AccessProperty::Persisting,
        miss: AccessProperty::Streaming,
        ..Default::default()
    };
    stream.set_access_window(&memory, window).expect("set");
    let (range, its) = stream.access_window().expect("known").expect("it is set");
    assert_eq!((range.start, its), (memory.as_raw(), window));
    assert_eq!(range.end - range.start, 4096);
    // The memory may be freed first, because the window is only a hint.
    drop(memory);
    let mut other = DeviceBuffer::<u8>::zeroed(&stream, 4096).expect("memory");
    other.fill(1).expect("a fill");
    stream.synchronize().expect("a wait");
    stream.clear_access_window().expect("cleared");
    assert_eq!(stream.access_window().expect("known"), None);

    for (hit_ratio, miss) in [
        (f32::NAN, AccessProperty::Normal),
        (-0.1, AccessProperty::Normal),
        (1.0, AccessProperty::Persisting),
    ] {
        let wrong = AccessWindow { hit_ratio, miss, ..Default::default() };
        let why = invalid(stream.set_access_window(&other, wrong));
        assert!(matches!(why, Invalid::AccessWindow { .. }), "{why}");
    }
}

#[test]
fn the_memory_synchronization_domain_is_set() {
    let (_, stream) = or_skip!(common::context_and_stream());
    or_skip!(common::since(12, 0));
    assert_eq!(stream.memory_sync_domain().expect("known"), MemorySyncDomain::Default);
    stream.set_memory_sync_domain(MemorySyncDomain::Remote).expect("set");
    assert_eq!(stream.memory_sync_domain().expect("known"), MemorySyncDomain::Remote);
    let both = MemorySyncDomainMap { default: 0, remote: 0 };
    stream.set_memory_sync_domain_map(both).expect("set");
    assert_eq!(stream.memory_sync_domain_map().expect("known"), both);
}

#[test]
fn a_streams_priority_changes() {
    let context = or_skip!(common::context_since(11, 8));
    let range = context.stream_priorities().expect("known");
    let stream = context.stream().expect("a stream");
    stream.set_priority(*range.start()).expect("set");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 16).expect("memory");
    buffer.fill(3).expect("a fill");
    assert_eq!(buffer.to_vec().expect("a copy"), [3; 16]);
}

#[test]
fn attributes_are_copied_within_one_context_only() {
    let (primary, other) = or_skip!(common::two_contexts());
    let (a, b) = (primary.stream().expect("a stream"), other.stream().expect("a stream"));
    let memory = DeviceBuffer::<u8>::zeroed(&b, 64).expect("memory");
    let why = invalid(a.copy_attributes_from(&b));
    assert!(matches!(why, Invalid::OtherContext { .. }), "{why}");
    let why = invalid(a.set_access_window(&memory, AccessWindow::default()));
    assert!(matches!(why, Invalid::OtherContext { .. }), "{why}");
}

#[test]
fn a_borrowed_stream_is_checked_for_its_context() {
    let (primary, other) = or_skip!(common::two_contexts());
    let stream = primary.stream().expect("a stream");
    // SAFETY: `stream` outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_checked(stream.as_raw(), &primary) };
    assert_eq!(borrowed.expect("its context"), stream);
    // SAFETY: as above.
    let why = invalid(unsafe { Stream::borrow_checked(stream.as_raw(), &other) });
    assert!(matches!(why, Invalid::OtherContext { .. }), "{why}");
    // SAFETY: the call is refused and accesses nothing.
    let why = invalid(unsafe { Stream::borrow_checked(std::ptr::null_mut(), &primary) });
    assert!(matches!(why, Invalid::Handle { .. }), "{why}");
}

#[test]
fn a_borrowed_stream_of_a_green_context_belongs_to_the_primary_context() {
    or_skip!(common::gpu());
    or_skip!(common::since(12, 4));
    // In a child process, because only one split of a device can exist at a time.
    child::with_gpu(|device| {
        let primary = Context::primary(&device).expect("a primary context");
        let other = Context::new(&device, ContextFlags::empty()).expect("a context");
        let one = SplitByCount { max_groups: Some(1), ..Default::default() };
        let split = SmResource::of_device(&device).map(|all| all.split_by_count(one));
        let Ok(Ok(split)) = split else {
            return common::skip("this device has no green contexts");
        };
        let green = GreenContext::new(split.groups).expect("a green context");
        let stream = green.stream().expect("a stream");
        // SAFETY: `stream` outlives the borrowed stream.
        let borrowed = unsafe { Stream::borrow_checked(stream.as_raw(), &primary) };
        let borrowed = borrowed.expect("of the primary context");
        borrowed.synchronize().expect("a wait");
        // SAFETY: as above.
        let why = invalid(unsafe { Stream::borrow_checked(stream.as_raw(), &other) });
        assert!(matches!(why, Invalid::OtherContext { .. }), "{why}");
    });
}
