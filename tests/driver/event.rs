use crate::common::{self, child};
use crate::module::kernels::Busy;
use cuda_safe::device::attribute;
use cuda_safe::event::{EventIpcHandle, cached, destroy_cached};
use cuda_safe::{CUresult, DeviceBuffer, EventOptions, Invalid};
use std::time::{Duration, Instant};

#[test]
fn an_event_is_complete_when_the_work_before_it_has_completed() {
    child::with_stream(|context, stream| {
        let event = context.event().expect("an event");
        assert!(event.is_complete().expect("an event that was never recorded is complete"));
        let work = Busy::new(&context, &stream);
        event.record(&stream).expect("a record");
        assert!(!event.is_complete().expect("a query"), "there is pending work before it");
        event.synchronize().expect("a wait");
        assert!(event.is_complete().expect("a query"));
        drop(work);
    });
}

#[test]
fn events_with_timing_measure_the_work_between_them() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let timing = EventOptions { timing: true, blocking_sync: true, ..Default::default() };
    let (start, end) = (
        context.event_with(timing).expect("an event"),
        context.event_with(timing).expect("an event"),
    );
    let begin = Instant::now();
    start.record(&stream).expect("a record");
    let work = Busy::new(&context, &stream);
    end.record(&stream).expect("a record");
    end.synchronize().expect("a wait");
    let most = match common::is_software() {
        true => Duration::from_millis(100),
        false => begin.elapsed(),
    };
    let elapsed = end.elapsed_since(&start).expect("both are done");
    // 200 million cycles are 66 ms at 3 GHz. The software driver has no clock; every operation
    // takes a millisecond there.
    let least = if common::is_software() { 1 } else { 50 };
    assert!(elapsed >= Duration::from_millis(least), "{elapsed:?}");
    assert!(elapsed <= most, "{elapsed:?} within {most:?}");
    drop(work);
}

/// The second stream reads what the first one writes. The event between them is dropped, and its handle
/// is recorded again on an idle stream.
#[test]
fn a_record_of_a_reused_event_does_not_end_the_wait_for_an_earlier_record() {
    child::with_stream(|context, first| {
        let [second, idle] = [(); 2].map(|()| context.stream().expect("a stream"));
        for round in 1..=4 {
            let mut buffer = DeviceBuffer::<u32>::zeroed(&first, 1024).expect("memory");
            first.synchronize().expect("a wait");
            let work = Busy::new(&context, &first);
            buffer.fill(round).expect("a fill");
            let event = context.event().expect("an event");
            event.record(&first).expect("a record");
            second.wait_event(&event).expect("a wait");
            drop(event);
            let event = context.event().expect("an event");
            assert_eq!(cached(), 0, "the event is reused");
            assert!(event.is_complete().expect("a query"), "it was not recorded");
            event.record(&idle).expect("a record");
            event.synchronize().expect("a wait");
            assert!(!second.is_complete().expect("a query"), "it waits for the first record");
            let other = context.event().expect("an event");
            other.record(&second).expect("a record");
            other.synchronize().expect("a wait");
            assert!(first.is_complete().expect("a query"), "the wait was for the work before it");
            assert_eq!(buffer.to_vec().expect("a copy"), vec![round; 1024]);
            drop((work, event, other));
            destroy_cached();
        }
    });
}

/// Exports an event to another process, which waits for it and records it. The other process is the
/// same test binary, which gets the handle in its environment.
#[test]
fn an_event_is_shared_with_another_process() {
    const HANDLE: &str = "EVENT_IPC_HANDLE";
    // The software driver has no events of other processes.
    let device = or_skip!(common::real_gpu());
    if !device.attribute(attribute::IPC_EVENT_SUPPORTED).unwrap_or(false) {
        return common::skip("this device has no events for other processes");
    }
    child::with_stream(|context, stream| {
        if let Ok(handle) = std::env::var(HANDLE) {
            let mut bytes = [0; 64];
            for (byte, text) in bytes.iter_mut().zip(handle.split(' ')) {
                *byte = text.parse().expect("a byte");
            }
            let handle = EventIpcHandle::from_bytes(bytes);
            // SAFETY: the parent got the handle from its driver, and keeps the event alive until
            // this process exits.
            let event = unsafe { context.open_event(&handle) }.expect("the parent's event");
            stream.wait_event(&event).expect("a wait");
            stream.synchronize().expect("a wait");
            event.synchronize().expect("a wait");
            event.record(&stream).expect("a record");
            event.synchronize().expect("a wait");
            return;
        }
        let options = EventOptions { interprocess: true, ..Default::default() };
        let event = context.event_with(options).expect("an event");
        let handle = match event.ipc_handle() {
            Err(error) if error.code() == Some(CUresult::CUDA_ERROR_NOT_SUPPORTED) => {
                return common::skip("this driver has no events for other processes");
            }
            handle => handle.expect("a handle"),
        };
        let work = Busy::new(&context, &stream);
        event.record(&stream).expect("a record");
        let bytes: Vec<String> = handle.as_bytes().iter().map(u8::to_string).collect();
        child::again(&[(HANDLE, &bytes.join(" "))]);
        assert!(event.is_complete().expect("a query"));
        drop(work);
    });
}

#[test]
fn an_interprocess_event_has_no_timing() {
    let context = or_skip!(common::context());
    let options = EventOptions { interprocess: true, timing: true, ..Default::default() };
    assert_eq!(common::invalid(context.event_with(options)), Invalid::InterprocessTiming);
}

mod provoked {
    //! Calls that the driver refuses are reported as errors.

    use super::*;

    #[test]
    fn elapsed_time_is_refused_for_events_without_timing() {
        let (context, stream) = or_skip!(common::context_and_stream());
        let [start, end] = common::events(&context);
        start.record(&stream).expect("a record");
        end.record(&stream).expect("a record");
        stream.synchronize().expect("a wait");
        let error = end.elapsed_since(&start).expect_err("no timing");
        assert_eq!(error, Invalid::NoElapsedTime.into());
    }

    #[test]
    fn an_event_is_recorded_on_streams_of_its_context_only() {
        let (primary, other) = or_skip!(common::two_contexts());
        let (event, stream) =
            (primary.event().expect("an event"), other.stream().expect("a stream"));
        let invalid = common::invalid(event.record(&stream));
        assert!(matches!(invalid, Invalid::OtherContext { .. }), "{invalid}");
        // Events may be waited for across contexts.
        stream.wait_event(&event).expect("a wait");
    }
}
