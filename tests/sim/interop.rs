//! Imported arrays: the synchronization calls of an import, and arrays of another device.

use crate::capture::errors::reports;
use crate::prelude::*;
use cuda_safe::interop::{ArrayInterface, ExportedStream};

/// Returns the synchronization functions that `body` calls.
fn order(body: impl FnOnce()) -> Vec<&'static str> {
    cuda_sim::clear_calls();
    body();
    let calls = cuda_sim::calls();
    let orders = |name: &str| name.contains("Synchronize") || name.contains("Event");
    let names = calls.iter().map(|call| call.function);
    names.filter(|name| orders(name)).collect()
}

/// Imports an array and returns it.
fn hand_over(array: &ArrayInterface, stream: &Stream, sync: StreamSync) {
    // SAFETY: the test's buffer owns the stream and outlives the array, and no other work uses it
    // meanwhile.
    let imported = unsafe { array.import::<u32>(stream, sync, ()) };
    drop(imported.expect("an import"));
}

#[test]
fn an_array_used_on_its_producers_stream_needs_no_wait() {
    let (_end, context, home) = in_child!(on_stream());
    let buffer = DeviceBuffer::<u32>::zeroed(&home, 64).expect("memory");
    let array = buffer.array_interface().expect("an interface");
    let stream = context.stream().expect("a stream");
    let log = |sync| order(|| hand_over(&array, &stream, sync));
    assert_eq!(log(StreamSync::ProducerStream), [""; 0]);
    assert_eq!(log(StreamSync::Ignore), [""; 0]);
    assert_eq!(log(StreamSync::Synchronize), ["cuStreamSynchronize", "cuStreamSynchronize"]);
    let ordered = log(StreamSync::WaitEvent);
    assert!(ordered.contains(&"cuStreamWaitEvent"), "{ordered:?}");
    assert!(!ordered.contains(&"cuStreamSynchronize"), "{ordered:?}");
    for sync in [StreamSync::Synchronize, StreamSync::WaitEvent] {
        let on_its_own = order(|| hand_over(&array, &home, sync));
        assert_eq!(on_its_own, [""; 0], "the import is on the producer's stream");
    }
}

#[test]
fn an_array_is_refused_if_the_driver_cannot_say_where_its_memory_ends() {
    let (_end, _context, stream) = in_child!(on_stream());
    let buffer = DeviceBuffer::<u32>::zeroed(&stream, 64).expect("memory");
    let array = buffer.array_interface().expect("an interface");
    // SAFETY: the buffer outlives the array.
    let import = || unsafe { array.import::<u32>(&stream, StreamSync::Ignore, ()) }.map(drop);
    let answer = |code| {
        let _fails = fail("cuMemGetAddressRange_v2", 1, code);
        import().map_err(|error| error.code())
    };
    // The driver does not know the memory.
    assert_eq!(answer(CUresult::CUDA_ERROR_NOT_FOUND), Ok(()));
    let unknown = CUresult::CUDA_ERROR_UNKNOWN;
    assert_eq!(answer(unknown), Err(Some(unknown)));
}

#[test]
fn the_exported_numbers_1_and_2_are_the_default_streams_of_the_driver() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let buffer = DeviceBuffer::<u32>::zeroed_sync(&context.stream().expect("a stream"), 64);
    let buffer = buffer.expect("memory");
    let array = buffer.array_interface().expect("an interface");
    let stream = context.stream().expect("a stream");
    for (number, raw) in [(1, CU_STREAM_LEGACY), (2, CU_STREAM_PER_THREAD)] {
        let exported = ExportedStream::from_number(number).expect("a default stream");
        let array = array.clone().with_stream(Some(exported));
        for (sync, function) in [
            (StreamSync::WaitEvent, "cuEventRecord"),
            (StreamSync::Synchronize, "cuStreamSynchronize"),
        ] {
            cuda_sim::clear_calls();
            cuda_sim::record_arguments(true);
            hand_over(&array, &stream, sync);
            cuda_sim::record_arguments(false);
            let calls = cuda_sim::calls();
            // The call at the import. The drop makes further ones.
            let call = calls.iter().find(|call| call.function == function);
            let given = call.expect("the import waits").values::<CUstream>("stream");
            assert_eq!(given, Some(&[raw][..]), "{number}, {sync:?}");
        }
    }
}

#[test]
fn joined_streams_cost_a_record_and_a_wait_each() {
    let (_end, context) = in_child!(on(Profile::h200()));
    cuda_safe::event::set_reuse(false);
    let [home, a, b] = [(); 3].map(|()| context.stream().expect("a stream"));
    let log = order(|| {
        let joined = ExportedStream::joined(&home, [&a, &home, &b]);
        assert_eq!(joined.expect("joined"), ExportedStream::of(&home));
    });
    let each = ["cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy_v2"];
    assert_eq!(log, [each, each].concat());
}

#[test]
fn streams_of_other_devices_are_joined_and_recognized() {
    let (_end, first) = in_child!(on(Profile::h200().with_devices(2)));
    let second = Context::primary(&Device::get(1).expect("there are two")).expect("a context");
    let (home, side) = (first.stream().expect("a stream"), second.stream().expect("a stream"));
    ExportedStream::joined(&home, [&side]).expect("joined");
    for stream in [&home, &side] {
        // SAFETY: the stream is alive.
        let device = unsafe { Stream::device_of_raw(stream.as_raw()) };
        assert_eq!(device.expect("an answer"), stream.context().device());
    }
    let buffer = DeviceBuffer::<u32>::zeroed(&home, 64).expect("memory");
    let array = buffer.array_interface().expect("an interface");
    let array = array.with_stream(Some(ExportedStream::of(&side)));
    // SAFETY: the call is refused and accesses nothing.
    let refused = unsafe { array.import::<u32>(&home, StreamSync::ProducerStream, ()) };
    let error = refused.map(drop);
    assert!(
        matches!(&error, Err(Error::Invalid(invalid)) if matches!(**invalid, Invalid::OtherContext { .. })),
        "{error:?}"
    );
    home.synchronize().expect("a wait");
}

#[test]
fn default_stream_handles_have_no_device() {
    let (_end, _context) = in_child!(on(Profile::h200()));
    for number in 0..3 {
        let raw = std::ptr::without_provenance_mut(number);
        // SAFETY: the call is refused and accesses nothing.
        let refused = unsafe { Stream::device_of_raw(raw) };
        assert!(
            matches!(&refused, Err(Error::Invalid(invalid)) if matches!(**invalid, Invalid::Handle { .. })),
            "{refused:?}"
        );
    }
}

#[test]
fn an_imported_array_that_is_dropped_in_a_capture_is_returned_after_it() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let [home, stream] = [(); 2].map(|()| context.stream().expect("a stream"));
    let buffer = DeviceBuffer::<u32>::zeroed(&home, 64).expect("memory");
    let array = buffer.array_interface().expect("an interface");
    for captured in [&home, &stream] {
        // SAFETY: the buffer owns the stream and outlives the array, and no other work uses it
        // meanwhile.
        let imported = unsafe { array.import::<u32>(&stream, StreamSync::WaitEvent, ()) };
        let imported = imported.expect("an import");
        let capture = captured.begin_capture(CaptureMode::Relaxed);
        let capture = capture.expect("a capture");
        assert_eq!(order(|| drop(imported)), [""; 0]);
        drop(capture.end().expect("a graph"));
        let log = order(|| drop(context.event().expect("an event")));
        let returned = ["cuEventRecord", "cuStreamWaitEvent"];
        assert!(log.starts_with(&returned), "{log:?}");
    }
}

#[test]
fn the_owner_of_an_array_is_leaked_if_the_wait_for_its_work_fails() {
    let (_end, context) = in_child!(leaking());
    let reports = reports();
    let [home, stream] = [(); 2].map(|()| context.stream().expect("a stream"));
    let buffer = DeviceBuffer::<u32>::zeroed(&home, 64).expect("memory");
    let array = buffer.array_interface().expect("an interface");
    let owner = Arc::new(());
    // SAFETY: the buffer outlives the array, and no other work uses it meanwhile.
    let imported =
        unsafe { array.import::<u32>(&stream, StreamSync::Synchronize, Arc::clone(&owner)) };
    let _failed = fail("cuStreamSynchronize", 1, CUresult::CUDA_ERROR_UNKNOWN);
    drop(imported.expect("an import"));
    assert_eq!(Arc::strong_count(&owner), 2, "work may still use the array");
    let reports = reports.lock().expect("no panic").clone();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(reports[0].starts_with("an imported array that work may still use"), "{reports:?}");
}
