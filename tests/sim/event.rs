//! The reuse of dropped events.

use crate::prelude::*;
use cuda_safe::event::{cached, destroy_cached, set_reuse};
use cuda_safe::launch::ProgrammaticEvent;

const CREATE: &str = "cuEventCreate";
const DESTROY: &str = "cuEventDestroy_v2";

fn events() -> usize {
    alive().events
}

/// Returns the calls that destroy events or release contexts.
fn releases(body: impl FnOnce()) -> Vec<&'static str> {
    let is_release = |function: &&str| function.contains("Destroy") || function.contains("Release");
    calls(body).into_iter().filter(is_release).collect()
}

/// Drops an event. Returns whether it was cached.
#[track_caller]
fn is_cached(event: Event) -> bool {
    let before = (cached(), events());
    drop(event);
    let is_cached = cached() == before.0 + 1;
    assert_eq!(events() == before.1, is_cached, "an event that is not cached is destroyed");
    is_cached
}

#[test]
fn a_dropped_event_is_reused_without_a_driver_call() {
    let (_end, context, stream) = in_child!(on_stream());
    let first = context.event().expect("an event");
    first.record(&stream).expect("a record");
    stream.wait_event(&first).expect("a wait");
    assert_eq!(calls(|| drop(first)), [""; 0]);
    assert_eq!((cached(), events()), (1, 1));
    let mut second = None;
    assert_eq!(calls(|| second = context.event().ok()), [""; 0]);
    assert_eq!((cached(), events()), (0, 1));
    drop(second);
    assert_eq!(count(DESTROY, destroy_cached), 1);
    assert_eq!((cached(), events()), (0, 0));
}

#[test]
fn an_event_is_reused_for_the_same_options() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    for (number, (timing, blocking_sync)) in kinds.into_iter().enumerate() {
        let options = EventOptions { timing, blocking_sync, ..Default::default() };
        let create = || drop(context.event_with(options).expect("an event"));
        assert_eq!(count(CREATE, create), 1, "{options:?}");
        assert_eq!(count(CREATE, create), 0, "{options:?}");
        assert_eq!(cached(), number + 1);
    }
}

#[test]
fn cached_events_are_not_reused_while_reuse_is_off() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let create = || drop(context.event().expect("an event"));
    create();
    set_reuse(false);
    assert_eq!((count(CREATE, create), cached(), events()), (1, 1, 1));
    set_reuse(true);
    assert_eq!((count(CREATE, create), cached(), events()), (0, 1, 1));
}

#[test]
fn a_thread_caches_16_events_with_the_same_options() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let create = || context.event().expect("an event");
    let many: Vec<Event> = (0..20).map(|_| create()).collect();
    drop(many);
    assert_eq!((cached(), events()), (16, 16));
    let mut many = Vec::new();
    let log = calls(|| many = (0..20).map(|_| create()).collect());
    assert_eq!(log.iter().filter(|function| **function == CREATE).count(), 4);
    assert_eq!((cached(), events()), (0, 20));
}

#[test]
fn cached_events_are_destroyed_with_the_last_clone_of_the_context_object() {
    in_child!();
    start(Profile::h200());
    let [first, other] = [context(), context()];
    drop((first.event().expect("an event"), other.event().expect("an event")));
    assert_eq!(cached(), 2);
    let clone = first.clone();
    drop(first);
    assert_eq!(cached(), 2);
    assert_eq!(releases(|| drop(clone)), [DESTROY, "cuDevicePrimaryCtxRelease_v2"]);
    assert_eq!((cached(), events()), (1, 1));
    drop(other);
    check();
}

#[test]
fn an_event_that_outlives_the_context_object_is_destroyed_when_it_is_dropped() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let event = context.event().expect("an event");
    drop(context);
    let derived = event.context().clone();
    assert!(event.is_complete().expect("the context is alive"));
    assert_eq!(calls(|| drop(event)), [DESTROY]);
    // No cache is open, so that these are neither cached nor reused.
    drop(derived.event().expect("the context is alive"));
    assert_eq!((cached(), events()), (0, 0));
    assert_eq!(releases(|| drop(derived)), ["cuDevicePrimaryCtxRelease_v2"]);
    check();
}

#[test]
fn events_that_other_code_may_use_are_not_reused() {
    let (_end, context, stream) = in_child!(on_stream());
    let new = || context.event().expect("an event");
    type Use<'a> = (&'static str, &'a dyn Fn(&Event));
    let ways: [Use<'_>; 8] = [
        ("clone", &|event| drop(event.clone())),
        ("as_raw", &|event| assert!(!event.as_raw().is_null())),
        ("context", &|event| context.record_event(event).expect("a record")),
        ("capture", &|event| {
            let captured = stream.capture(CaptureMode::default(), |stream| event.record(stream));
            captured.expect("a graph");
        }),
        ("external record", &|event| {
            let captured =
                stream.capture(CaptureMode::default(), |stream| event.record_external(stream));
            captured.expect("a graph");
        }),
        ("external wait", &|event| {
            let captured =
                stream.capture(CaptureMode::default(), |stream| stream.wait_external(event));
            captured.expect("a graph");
        }),
        ("node", &|event| {
            let mut graph = Graph::new(&context).expect("a graph");
            graph.add_event_record(&[], event).expect("a node");
        }),
        ("launch", &|event| {
            let kernel = Module::from_ptx(&context, VECTOR).expect("a module");
            let kernel = kernel.kernel("nothing").expect("a kernel");
            let kernel = kernel.typed::<()>().expect("no parameters");
            let attributes = LaunchAttributes {
                programmatic_event: Some(ProgrammaticEvent { event, at_block_start: false }),
                ..Default::default()
            };
            // SAFETY: the kernel does nothing.
            let launched =
                unsafe { kernel.launch_with(&stream, LaunchConfig::linear(1, 1), &attributes, ()) };
            launched.expect("a launch");
        }),
    ];
    for (name, uses) in ways {
        let event = new();
        uses(&event);
        stream.synchronize().expect("a wait");
        assert!(!is_cached(event), "{name}");
    }
    let options = EventOptions { interprocess: true, ..Default::default() };
    assert!(!is_cached(context.event_with(options).expect("an event")));
    assert!(is_cached(new()));
}

#[test]
fn a_reused_event_acts_as_one_that_was_never_recorded() {
    let (_end, context, stream) = in_child!(on_stream());
    let other = context.stream().expect("a stream");
    let options = EventOptions { timing: true, ..Default::default() };
    let new = || context.event_with(options).expect("an event");
    let old = new();
    stream.launch_host_function(|| {}).expect("work");
    old.record(&stream).expect("a record");
    assert!(!old.is_complete().expect("a query"), "the work has not run");
    drop(old);

    let event = new();
    assert_eq!(events(), 1, "the event is reused");
    assert!(event.is_complete().expect("a query"));
    assert!(event.clone().is_complete().expect("a query"), "nor was its clone");
    assert_eq!(calls(|| event.synchronize().expect("a wait")), [""; 0]);
    assert_eq!(calls(|| other.wait_event(&event).expect("a wait")), [""; 0]);
    assert_eq!(calls(|| context.wait_event(&event).expect("a wait")), [""; 0]);
    let wait = |stream: &Stream| stream.wait_event(&event);
    other.capture(CaptureMode::default(), wait).expect("a wait that has no effect");
    assert!(other.is_complete().expect("a query"), "it waits for nothing");
    let time = event.elapsed_since(&event).expect_err("no record");
    assert_eq!(time, Invalid::NoElapsedTime.into());

    event.record(&other).expect("a record");
    event.synchronize().expect("a wait");
    assert!(event.elapsed_since(&event).expect("a time").is_zero());
    stream.synchronize().expect("a wait");
}

#[test]
fn the_events_of_a_thread_that_ended_are_reused_by_the_next_thread() {
    let (_end, context) = in_child!(on(Profile::h200()));
    for _ in 0..50 {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| drop(context.event().expect("an event")));
            // Unlike the end of the scope, this waits for the end of the thread.
            thread.join().expect("no panic");
        });
    }
    assert_eq!((cached(), events()), (1, 1));
}

#[test]
fn an_event_that_another_thread_drops_returns_to_the_thread_that_created_it() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let event = context.event().expect("an event");
    std::thread::scope(|scope| {
        scope.spawn(move || drop(event));
    });
    assert_eq!(count(CREATE, || drop(context.event().expect("an event"))), 0);
}

#[test]
fn events_are_created_and_destroyed_if_their_reuse_is_turned_off() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let event = context.event().expect("an event");
    set_reuse(false);
    assert_eq!(calls(|| drop(event)), [DESTROY]);
    for _ in 0..2 {
        let log = calls(|| drop(context.event().expect("an event")));
        assert!(log.contains(&CREATE) && log.contains(&DESTROY), "{log:?}");
    }
    set_reuse(true);
    drop(context.event().expect("an event"));
    assert_eq!(cached(), 1);
}

#[test]
fn cached_events_are_destroyed_before_a_primary_context_is_reset() {
    in_child!();
    start(Profile::h200());
    let context = context();
    drop(context.event().expect("an event"));
    let device = context.device();
    let log = calls(|| {
        // SAFETY: no object of the context is used afterwards.
        unsafe { device.reset_primary() }.expect("a reset");
    });
    assert_eq!(log, [DESTROY, "cuDevicePrimaryCtxReset_v2"]);
    assert_eq!(cached(), 0);
    std::mem::forget(context);
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

#[test]
fn cached_events_of_a_foreign_context_are_destroyed_before_its_owner_is_dropped() {
    in_child!();
    start(Profile::h200());
    let owner = context();
    // SAFETY: the owner keeps the context alive.
    let borrowed = unsafe { Context::from_foreign(owner.as_raw(), owner) }.expect("a context");
    drop(borrowed.event().expect("an event"));
    assert_eq!(releases(|| drop(borrowed)), [DESTROY, "cuDevicePrimaryCtxRelease_v2"]);
    check();
}
