use crate::common::{self, child};
use crate::kernels::Busy;
use crate::need;
use cuda_safe::EventOptions;
use std::time::Duration;

#[test]
fn an_event_is_reached_when_the_work_before_it_is_done() {
    need!(common::gpu());
    child::in_child(&[], || {
        let context = need!(common::context());
        let stream = context.stream().expect("a stream");
        let event = context.event().expect("an event");
        assert!(event.is_done().expect("never recorded is done"));
        let work = Busy::new(&context, &stream);
        event.record(&stream).expect("a record");
        assert!(
            !event.is_done().expect("a query"),
            "there is work before it"
        );
        event.synchronize().expect("a wait");
        assert!(event.is_done().expect("a query"));
        drop(work);
    });
}

#[test]
fn events_with_timing_measure_the_work_between_them() {
    let context = need!(common::context());
    let stream = context.stream().expect("a stream");
    let timing = EventOptions {
        timing: true,
        blocking_sync: true,
        ..Default::default()
    };
    let (start, end) = (
        context.event_with(timing).expect("an event"),
        context.event_with(timing).expect("an event"),
    );
    start.record(&stream).expect("a record");
    let work = Busy::new(&context, &stream);
    end.record(&stream).expect("a record");
    end.synchronize().expect("a wait");
    let elapsed = end.elapsed_since(&start).expect("both are done");
    // 200 million cycles are 66 ms at 3 GHz.
    // The software driver has no time; there every operation takes a millisecond.
    let least = if common::is_software() { 1 } else { 50 };
    assert!(elapsed >= Duration::from_millis(least), "{elapsed:?}");
    drop(work);
}

mod provoked {
    //! What the driver refuses it reports as an error.

    use crate::common;
    use crate::need;
    use cuda_safe::{CUresult, Context, ContextFlags, Error, Invalid};

    #[test]
    fn events_without_timing_measure_nothing() {
        let context = need!(common::context());
        let stream = context.stream().expect("a stream");
        let (start, end) = (
            context.event().expect("an event"),
            context.event().expect("an event"),
        );
        start.record(&stream).expect("a record");
        end.record(&stream).expect("a record");
        stream.synchronize().expect("a wait");
        let error = end.elapsed_since(&start).expect_err("no timing");
        assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_HANDLE));
        assert!(
            error.to_string().starts_with("cuEventElapsedTime"),
            "{error}"
        );
    }

    #[test]
    fn an_event_is_recorded_on_streams_of_its_context_only() {
        let device = need!(common::gpu());
        let primary = Context::primary(&device).expect("a primary context");
        let other = Context::create(&device, ContextFlags::empty()).expect("a context");
        let (event, stream) = (
            primary.event().expect("an event"),
            other.stream().expect("a stream"),
        );
        match event.record(&stream) {
            Err(Error::Invalid(invalid)) => {
                assert!(
                    matches!(*invalid, Invalid::OtherContext { .. }),
                    "{invalid}"
                );
            }
            done => panic!("{done:?}"),
        }
        // Waiting across contexts is what events are for.
        stream.wait(&event).expect("a wait");
    }
}
