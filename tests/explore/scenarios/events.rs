//! The reuse of dropped events.

use super::{LEN, Scenario, Stage, context};
use cuda_safe::DeviceBuffer;
use cuda_safe::event::destroy_cached;
use cuda_sim::explore;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("event/reused-while-a-stream-waits", reused_while_waited),
        Scenario::new("event/dropped-while-the-context-ends", dropped_while_closed),
        Scenario::new("event/reused-by-two-threads", reused_by_two_threads),
        Scenario::new("event/destroyed-while-reused", destroyed_while_reused),
    ]
}

/// A stream waits for a dropped event. Another thread reuses the event and records it again.
fn reused_while_waited() {
    let stage = Stage::new();
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stage.stream, LEN).expect("memory");
    buffer.fill(1).expect("a fill");
    let event = stage.context.event().expect("an event");
    event.record(&stage.stream).expect("a record");
    stage.other.wait_event(&event).expect("a wait");
    let third = stage.context.stream().expect("a stream");
    let records = explore::spawn("the record", move || {
        drop(event);
        let event = third.context().event().expect("an event");
        assert!(event.is_complete().expect("a query"), "it was not recorded");
        event.record(&third).expect("a record");
        event.synchronize().expect("a wait");
    });
    let reads = stage.context.event().expect("an event");
    reads.record(&stage.other).expect("a record");
    reads.synchronize().expect("a wait");
    assert!(stage.stream.is_complete().expect("a query"), "the wait was for another record");
    records.join();
    assert_eq!(buffer.to_vec().expect("a copy"), [1; LEN]);
}

/// A thread drops events of a context object, while another one drops the object.
fn dropped_while_closed() {
    let context = context(0);
    let (cached, dropped) =
        (context.event().expect("an event"), context.event().expect("an event"));
    drop(cached);
    let drops = explore::spawn("the event", move || {
        let derived = dropped.context().clone();
        drop(dropped);
        drop(derived.event().expect("an event"));
    });
    drop(context);
    drops.join();
    assert_eq!(cuda_sim::alive().events, 0, "a closed cache has an event");
}

/// Two threads create and drop events, one of them those of the other.
fn reused_by_two_threads() {
    let stage = Stage::new();
    let event = stage.context.event().expect("an event");
    let context = stage.context.clone();
    let other = explore::spawn("the other thread", move || {
        drop(event);
        let event = context.event().expect("an event");
        context.event().expect("an event");
        event
    });
    let (first, second) =
        (stage.context.event().expect("an event"), stage.context.event().expect("an event"));
    let third = other.join();
    let handles = [first.as_raw(), second.as_raw(), third.as_raw()];
    assert!(handles[0] != handles[1] && handles[1] != handles[2] && handles[0] != handles[2]);
}

/// Cached events are destroyed while a thread takes one.
fn destroyed_while_reused() {
    let context = context(0);
    drop((context.event().expect("an event"), context.event().expect("an event")));
    let destroys = explore::spawn("the end", destroy_cached);
    let event = context.event().expect("an event");
    let stream = context.stream().expect("a stream");
    event.record(&stream).expect("the event is alive");
    event.synchronize().expect("a wait");
    destroys.join();
}
