use crate::capture::with_stream;
use crate::common;
use crate::memory::batches::busy;
use crate::module::kernels::{Scale, pinned};
use cuda_safe::capture::CaptureMode;
use cuda_safe::memory::CopyBatch;
use cuda_safe::{DeviceBuffer, Error, Invalid, PinnedBuffer, Stream};
use cuda_sys::CUresult;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn borrowed_pinned_memory_is_copied_when_the_scope_ends() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let scale = Scale::new(&context);
    let mut there = pinned(&context, &[1, 2, 3, 4]);
    let mut back = [pinned(&context, &[0; 4]), pinned(&context, &[0; 2])];
    let mut buffer = DeviceBuffer::<i32>::zeroed(&stream, 4).expect("memory");
    let given = stream.copy_scope(|scope| {
        assert_eq!(scope.stream(), &stream);
        scope.copy_from_pinned(&mut buffer, &mut there)?;
        scale.run(&stream, &mut buffer, 10, 1)?;
        let [all, part] = &mut back;
        scope.copy_to_pinned(&buffer, all)?;
        scope.copy_to_pinned(buffer.slice(1..3)?, part)
    });
    given.expect("copies");
    assert_eq!(*there, [1, 2, 3, 4]);
    assert_eq!(*back[0], [11, 21, 31, 41]);
    assert_eq!(*back[1], [21, 31]);
}

#[test]
fn a_scope_ends_with_its_wait_when_it_panics() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let buffer = DeviceBuffer::from_slice(&stream, &[7; 1 << 16]).expect("a copy");
    let mut back = pinned(&context, &[0; 1 << 16]);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        stream.copy_scope(|scope| {
            scope.copy_to_pinned(&buffer, &mut back)?;
            panic!("in the scope");
            #[allow(unreachable_code, reason = "it names the type of the error")]
            Ok::<_, Error>(())
        })
    }));
    let words = panicked.expect_err("the panic goes on");
    assert_eq!(words.downcast_ref(), Some(&"in the scope"));
    assert!(stream.is_complete().expect("a query"));
    assert_eq!(*back, [7; 1 << 16]);
}

#[test]
fn a_scope_refuses_other_lengths_and_memory_of_other_streams() {
    let (context, [stream, other]) = or_skip!(common::context_and_streams());
    let mut host = [pinned(&context, &[1, 2]), pinned(&context, &[3])];
    let mut buffer = DeviceBuffer::<i32>::zeroed(&other, 1).expect("memory");
    let (lengths, streams) = stream
        .copy_scope(|scope| {
            let [two, one] = &mut host;
            Ok::<_, Error>((
                scope.copy_from_pinned(&mut buffer, two),
                scope.copy_to_pinned(&buffer, one),
            ))
        })
        .expect("a wait for nothing");
    assert_eq!(common::invalid(lengths), Invalid::Lengths { source: 2, target: 1 });
    let invalid = common::invalid(streams);
    assert!(matches!(invalid, Invalid::OtherStream { .. }), "{invalid}");
    assert_eq!((&*host[0], &*host[1]), (&[1, 2][..], &[3][..]));
}

#[test]
fn a_scope_without_copies_is_a_wait() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut empty = PinnedBuffer::<u8>::zeroed(&context, 0).expect("no memory");
    let none = DeviceBuffer::<u8>::zeroed(&stream, 0).expect("no memory");
    stream.copy_scope(|scope| scope.copy_to_pinned(&none, &mut empty)).expect("no copy");
    assert_eq!(stream.copy_scope(|_| Ok::<_, Error>(5)), Ok(5));
}

/// A wait fails at once on a captured stream, and the device would read the slice after its borrow.
#[test]
fn a_stream_does_not_become_captured_in_a_scope() {
    with_stream(|context, stream| {
        let other = context.stream().expect("a stream");
        let event = context.event().expect("an event");
        let capture = other.begin_capture(CaptureMode::Relaxed);
        let _capture = capture.expect("a capture");
        event.record(&other).expect("a record");
        let copied = copied_from_slice(stream, || {
            let begun = stream.begin_capture(CaptureMode::Relaxed);
            refused_in_scope(begun.map(drop), "begin");
            refused_in_scope(stream.wait_event(&event), "wait for an event of a capture");
        });
        copied.expect("a wait");
        let capture = stream.begin_capture(CaptureMode::Relaxed);
        drop(capture.expect("a capture after the scope"));
    });
}

#[track_caller]
fn refused_in_scope(result: Result<(), Error>, operation: &str) {
    let invalid = common::invalid(result);
    let text = invalid.to_string();
    assert!(matches!(invalid, Invalid::CallsInProgress { .. }), "{text}");
    assert!(text.contains(operation) && text.contains("scope"), "{text}");
}

/// The capture makes the first wait fail at once, although it has nothing to do with the stream of the scope.
#[test]
fn a_scope_waits_for_its_copies_during_a_capture_of_another_stream() {
    with_stream(|context, stream| {
        for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
            let other = context.stream().expect("a stream");
            let begin = || other.begin_capture(mode).expect("a capture");
            let copied = copied_from_slice(stream, begin);
            let error = copied.expect_err("the capture forbids the wait");
            let code = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
            assert_eq!(error.code(), Some(code));
        }
    });
}

/// Copies a pinned slice to the device in a scope, in which `f` is called, and overwrites the slice after the
/// scope. Then drops the value of `f`. Returns the result of the scope. Panics if the device got the later
/// values.
fn copied_from_slice<C>(stream: &Stream, f: impl FnOnce() -> C) -> Result<(), Error> {
    const LEN: usize = 1 << 16;
    let mut host = pinned(stream.context(), &[1; LEN]);
    let mut buffer = DeviceBuffer::<i32>::uninit_sync(stream, LEN).expect("memory");
    let busy = busy(stream);
    let mut kept = None;
    let copied = stream.copy_scope(|scope| {
        let mut batch = CopyBatch::new(stream);
        batch.push_from_slice(&mut buffer, &host)?;
        scope.enqueue(batch)?;
        kept = Some(f());
        Ok(())
    });
    host.fill(99);
    drop((kept, busy));
    let values = buffer.to_vec().expect("a copy");
    assert!(values.iter().all(|value| *value == 1), "{}", values[0]);
    copied
}
