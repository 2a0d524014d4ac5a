use crate::common::{self, child};
use crate::kernels::Busy;
use crate::need;
use cuda_safe::{Error, Invalid, Stream, StreamOptions};

#[test]
fn a_stream_tells_whether_it_is_idle() {
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(common::context());
        let stream = context.stream().expect("a stream");
        assert!(stream.is_idle().expect("a query"));
        let work = Busy::new(&context, &stream);
        assert!(
            !stream.is_idle().expect("a query"),
            "work was just given to it"
        );
        stream.synchronize().expect("a wait");
        assert!(stream.is_idle().expect("a query"));
        drop(work);
    });
}

#[test]
fn streams_have_ids_and_priorities() {
    let context = need!(common::context());
    need!(common::since(12, 0));
    let high = StreamOptions {
        priority: -1,
        ..Default::default()
    };
    let (a, b) = (
        context.stream().expect("a stream"),
        context.stream_with(high).expect("a stream"),
    );
    assert_eq!(a.priority().expect("known"), 0);
    assert_eq!(b.priority().expect("known"), -1);
    assert_ne!(a.id().expect("known"), b.id().expect("known"));
    assert_ne!(a, b);
    assert_eq!(a, a.clone());
    let clamped = StreamOptions {
        priority: -1000,
        ..Default::default()
    };
    let clamped = context.stream_with(clamped).expect("a stream");
    assert!(clamped.priority().expect("known") > -1000);
}

#[test]
fn a_stream_waits_for_an_event_of_another() {
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(common::context());
        let (first, second) = (
            context.stream().expect("a stream"),
            context.stream().expect("a stream"),
        );
        let event = context.event().expect("an event");
        let work = Busy::new(&context, &first);
        event.record(&first).expect("a record");
        second.wait(&event).expect("a wait");
        assert!(
            !second.is_idle().expect("a query"),
            "it waits for the work on the first"
        );
        second.synchronize().expect("a wait");
        assert!(first.is_idle().expect("a query"));
        drop(work);
    });
}

#[test]
fn a_borrowed_stream_is_not_destroyed_and_a_foreign_one_keeps_its_owner() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    // SAFETY: `stream` outlives it.
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
fn the_default_streams_are_no_streams_of_ones_own() {
    let context = need!(common::context());
    for handle in 0..3 {
        let raw = std::ptr::without_provenance_mut(handle);
        // SAFETY: it is refused.
        match unsafe { Stream::borrow_raw(raw, &context) } {
            Err(Error::Invalid(invalid)) => {
                assert!(matches!(*invalid, Invalid::Handle { value, .. } if value == handle));
            }
            other => panic!("{other:?}"),
        }
    }
}
