//! Streams: the order of their work, host functions, and waits.

pub(crate) mod attributes;
pub(crate) mod default;
pub(crate) mod future;
pub(crate) mod memory_op;

use crate::common::{self, child};
use crate::module::kernels::Busy;
use cuda_safe::{Error, Invalid, Stream, StreamOptions};

#[test]
fn a_stream_reports_whether_its_work_is_complete() {
    child::with_stream(|context, stream| {
        assert!(stream.is_complete().expect("a query"));
        let work = Busy::new(&context, &stream);
        assert!(!stream.is_complete().expect("a query"), "work was just given to it");
        stream.synchronize().expect("a wait");
        assert!(stream.is_complete().expect("a query"));
        drop(work);
    });
}

#[test]
fn streams_have_ids_and_priorities() {
    let context = or_skip!(common::context_since(12, 0));
    let high = StreamOptions { priority: -1, ..Default::default() };
    let (a, b) =
        (context.stream().expect("a stream"), context.stream_with(high).expect("a stream"));
    assert_eq!(a.priority().expect("known"), 0);
    assert_eq!(b.priority().expect("known"), -1);
    assert_ne!(a.id().expect("known"), b.id().expect("known"));
    assert_ne!(a, b);
    assert_eq!(a, a.clone());
    let clamped = StreamOptions { priority: -1000, ..Default::default() };
    let clamped = context.stream_with(clamped).expect("a stream");
    assert!(clamped.priority().expect("known") > -1000);
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    child::with_context(|context| {
        let [first, second] = common::streams(&context);
        let event = context.event().expect("an event");
        let work = Busy::new(&context, &first);
        event.record(&first).expect("a record");
        second.wait_event(&event).expect("a wait");
        assert!(!second.is_complete().expect("a query"), "the second stream waits for the first");
        second.synchronize().expect("a wait");
        assert!(first.is_complete().expect("a query"));
        drop(work);
    });
}

#[test]
fn a_borrowed_stream_is_not_destroyed_and_a_foreign_one_keeps_its_owner_alive() {
    let (context, stream) = or_skip!(common::context_and_stream());
    // SAFETY: `stream` outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_raw(stream.as_raw(), &context) }.expect("a stream");
    assert_eq!(borrowed, stream);
    drop(borrowed);
    stream.synchronize().expect("alive");

    let raw = stream.as_raw();
    // SAFETY: the owner is the stream itself.
    let foreign = unsafe { Stream::from_foreign(raw, &context, stream) }.expect("a stream");
    foreign.synchronize().expect("alive");
}

#[test]
fn the_default_streams_are_refused_as_borrowed_streams() {
    let context = or_skip!(common::context());
    for handle in 0..3 {
        let raw = std::ptr::without_provenance_mut(handle);
        // SAFETY: the call is refused and accesses nothing.
        let invalid = common::invalid(unsafe { Stream::borrow_raw(raw, &context) });
        assert!(matches!(invalid, Invalid::Handle { value, .. } if value == handle));
    }
}

#[test]
fn host_functions_run_in_stream_order() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let (sender, order) = std::sync::mpsc::channel();
    for number in 0..5 {
        let sender = sender.clone();
        let tell = move || sender.send(number).expect("the test receives it");
        stream.launch_host_function(tell).expect("a launch");
    }
    stream.synchronize().expect("a wait");
    assert_eq!(order.try_iter().collect::<Vec<i32>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_panic_in_a_host_function_is_the_error_of_the_next_wait() {
    let (_, stream) = or_skip!(common::context_and_stream());
    let fails = || panic!("on purpose, in a host function");
    stream.launch_host_function(fails).expect("a launch");
    check_panicked(stream.synchronize(), "on purpose");
    stream.synchronize().expect("reported once");
}

/// Checks that a wait returned the panic of a host function, whose message contains `words`.
#[track_caller]
fn check_panicked(wait: cuda_safe::Result<()>, words: &str) {
    match wait {
        Err(Error::HostFunctionPanicked(message)) => assert!(message.contains(words), "{message}"),
        done => panic!("{done:?}"),
    }
}

#[test]
fn waits_in_a_host_function_are_refused_and_drops_are_deferred() {
    // A wait for the context invalidates the captures of other tests.
    if !crate::common::child::entered(&[]) {
        return;
    }
    let (context, [stream, other]) = or_skip!(common::context_and_streams());
    let buffer = cuda_safe::DeviceBuffer::<u8>::zeroed_sync(&other, 64).expect("memory");
    let event = context.event().expect("an event");
    let leaked = cuda_safe::leaked();
    let (sender, refused) = std::sync::mpsc::channel();
    let (own, whole) = (stream.clone(), context.clone());
    let function = move || {
        let waits = [own.synchronize(), event.synchronize(), whole.synchronize()];
        let all = waits.iter().all(|wait| matches!(wait, Err(Error::InHostFunction)));
        drop((buffer, other, event, own, whole));
        sender.send(all).expect("the test receives it");
    };
    stream.launch_host_function(function).expect("a launch");
    stream.synchronize().expect("a wait");
    assert!(refused.try_recv().expect("it ran"));
    context.synchronize().expect("the deferred objects are released");
    assert_eq!(cuda_safe::leaked(), leaked);
}
