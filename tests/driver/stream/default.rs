use crate::common::{self, child};
use crate::module::kernels::Busy;
use cuda_safe::{Context, DeviceBuffer, Invalid, Stream, StreamOptions};
use std::cell::OnceCell;

#[test]
fn the_default_streams_wait_record_and_run_host_functions() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let [theirs, ours] = common::events(&context);
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 4).expect("memory");
    let used = context.with_current(|current| {
        for default in [current.legacy_stream(), current.per_thread_stream()] {
            assert_eq!(default.context(), &context);
            let (sender, ran) = std::sync::mpsc::channel();
            buffer.fill(7).expect("a fill");
            ours.record(&stream).expect("a record");
            default.wait_event(&ours).expect("a wait");
            let tell = move || sender.send(()).expect("the test receives it");
            default.launch_host_function(tell).expect("a launch");
            default.record_event(&theirs).expect("a record");
            stream.wait_event(&theirs).expect("a wait");
            stream.synchronize().expect("a wait");
            ran.try_recv().expect("it ran before");
            default.synchronize().expect("a wait");
        }
        assert_eq!(current.legacy_stream().as_raw().addr(), 1);
        assert_eq!(current.per_thread_stream().as_raw().addr(), 2);
    });
    used.expect("current");
}

#[test]
fn the_legacy_stream_waits_for_blocking_streams() {
    child::with_context(|context| {
        let blocking = StreamOptions { blocking: true, ..Default::default() };
        let blocking = context.stream_with(blocking).expect("a stream");
        let event = context.event().expect("an event");
        let current = context.make_current().expect("current");
        let legacy = current.legacy_stream();
        assert!(legacy.is_complete().expect("a query"));
        let work = Busy::new(&context, &blocking);
        legacy.record_event(&event).expect("a record");
        assert!(!event.is_complete().expect("a query"), "there is work before");
        legacy.synchronize().expect("a wait");
        assert!(blocking.is_complete().expect("a query"));
        drop(work);
        current.end().expect("innermost");
    });
}

/// Returns the stream of this thread: a replacement for the per-thread default stream.
fn thread_stream(context: &Context) -> Stream {
    thread_local! {
        static STREAM: OnceCell<Stream> = const { OnceCell::new() };
    }
    let create = || {
        let options = StreamOptions { blocking: true, ..Default::default() };
        context.stream_with(options).expect("a stream")
    };
    STREAM.with(|stream| stream.get_or_init(create).clone())
}

#[test]
fn buffers_of_a_threads_stream_outlive_the_thread_and_are_ordered_with_the_legacy_stream() {
    child::with_context(|context| {
        let worker = context.clone();
        let worker = std::thread::spawn(move || {
            let stream = thread_stream(&worker);
            assert_eq!(thread_stream(&worker), stream);
            let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 3).expect("memory");
            let work = Busy::new(&worker, &stream);
            buffer.fill(7).expect("a fill");
            (buffer, work)
        });
        let (buffer, work) = worker.join().expect("no panic");
        assert_ne!(thread_stream(&context), *buffer.stream());
        let event = context.event().expect("an event");
        let waited = context.with_current(|current| {
            let legacy = current.legacy_stream();
            legacy.record_event(&event).expect("a record");
            assert!(!event.is_complete().expect("a query"), "there is work before");
            legacy.synchronize().expect("a wait");
        });
        waited.expect("current");
        assert!(buffer.stream().is_complete().expect("a query"));
        assert_eq!(buffer.to_vec().expect("a copy"), [7; 3]);
        drop((buffer, work));
        assert_eq!(cuda_safe::leaked(), 0);
    });
}

#[test]
fn a_default_stream_belongs_to_its_guard_despite_nested_guards() {
    let (outer, inner) = or_skip!(common::two_contexts());
    let (event, other) = (outer.event().expect("an event"), inner.event().expect("an event"));
    let guard = outer.make_current().expect("current");
    let stream = guard.legacy_stream();
    {
        let guard = inner.make_current().expect("current");
        // The driver would refuse the event on a stream of the current context.
        stream.record_event(&event).expect("of the outer context");
        stream.wait_event(&other).expect("any context may wait for an event");
        stream.synchronize().expect("a wait");
        guard.legacy_stream().record_event(&other).expect("of the inner");
        guard.end().expect("the innermost guard, and an unchanged stack");
    }
    let invalid = common::invalid(stream.record_event(&other));
    assert!(matches!(invalid, Invalid::OtherContext { .. }), "{invalid}");
    guard.end().expect("innermost");
}

#[test]
fn a_panic_in_a_host_function_of_a_default_stream_is_returned_by_the_guards_next_wait() {
    let context = or_skip!(common::context());
    let current = context.make_current().expect("current");
    let fails = || panic!("on purpose, in a host function");
    current.per_thread_stream().launch_host_function(fails).expect("a launch");
    super::check_panicked(current.per_thread_stream().synchronize(), "on purpose");
    current.per_thread_stream().synchronize().expect("reported once");
    current.end().expect("innermost");
}

#[test]
fn waits_for_default_streams_are_refused_in_host_functions() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let (sender, refused) = std::sync::mpsc::channel();
    let its = context.clone();
    let function = move || {
        let waited = its.with_current(|current| current.legacy_stream().synchronize());
        // Either the driver refuses to report the current context, or the wait is refused.
        let is_refused = !matches!(waited, Ok(Ok(())));
        sender.send(is_refused).expect("the test receives it");
    };
    stream.launch_host_function(function).expect("a launch");
    stream.synchronize().expect("a wait");
    assert!(refused.try_recv().expect("it ran"));
}
