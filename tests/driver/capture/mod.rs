//! Captures and the graphs they produce. Each test runs in a child process, because a wait for the
//! context invalidates the captures of all threads.

pub(crate) mod body;
pub(crate) mod graph;
pub(crate) mod modes;

use crate::common::{self, child};
use crate::module::kernels::{Scale, pinned};
use cuda_safe::capture::{CaptureMode, CaptureStatus};
use cuda_safe::error::Rejected;
use cuda_safe::memory::{Extent, PitchedBuffer, Region};
use cuda_safe::{
    CUresult, Context, ContextFlags, DeviceBuffer, Error, ExecutableGraph, Graph, Invalid, Result,
    Stream,
};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `body` with a stream, in a child process.
#[track_caller]
pub(crate) fn with_stream(body: impl FnOnce(&Context, &Stream)) {
    child::with_stream(|context, stream| {
        body(&context, &stream);
    });
}

/// Like [`with_stream`], if the driver can capture into graphs and has conditional nodes.
#[track_caller]
fn with_stream_since_12_3(body: impl FnOnce(&Context, &Stream)) {
    child::with_context_since(12, 3, |context| {
        let stream = context.stream().expect("a stream");
        body(&context, &stream);
    });
}

const MODE: CaptureMode = CaptureMode::ThreadLocal;

/// Launches a graph that was captured, and waits.
fn run(graph: &Graph, stream: &Stream) {
    let executable = graph.instantiate().expect("an executable graph");
    // SAFETY: the memory that the graph uses is alive, and is used on this stream only.
    unsafe { executable.launch_unchecked(stream) }.expect("a launch");
    stream.synchronize().expect("a wait");
}

/// Checks a begin that this crate refused, and returns the graph.
#[track_caller]
fn refused_begin<T>(begun: Result<T, Rejected<Option<Graph>>>) -> (Invalid, Graph) {
    let (invalid, graph) = common::rejected(begun);
    (invalid, graph.expect("no capture was begun"))
}

fn status(stream: &Stream) -> CaptureStatus {
    stream.capture_status().expect("a query")
}

fn fail() -> Error {
    Invalid::NoGroups.into()
}

#[test]
fn captured_work_runs_at_each_launch() {
    with_stream(|context, stream| {
        let scale = Scale::new(context);
        let mut x = DeviceBuffer::from_slice(stream, &[1, 2, 3]).expect("memory");
        let mut y = DeviceBuffer::<i32>::zeroed(stream, 3).expect("memory");
        let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
            assert_eq!(status(stream), CaptureStatus::Active);
            scale.run(stream, &mut x, 2, 1)?;
            y.copy_from(&x)
        });
        let graph = graph.expect("a graph");
        assert_eq!(status(stream), CaptureStatus::None);
        assert_eq!(x.to_vec().expect("a copy"), [1, 2, 3], "nothing ran during the capture");
        let executable = graph.instantiate().expect("it can be launched");
        assert_eq!(executable.context(), context);
        drop(graph);
        for expected in [[3, 5, 7], [7, 11, 15]] {
            // SAFETY: the buffers and the kernel are alive and are used on this stream only.
            unsafe { executable.launch_unchecked(stream) }.expect("a launch");
            assert_eq!(y.to_vec().expect("a copy"), expected);
        }
        drop((executable, scale));
    });
}

#[test]
fn a_capture_ends_with_an_error_and_with_a_panic_too() {
    with_stream(|_, stream| {
        let failed = stream.capture(CaptureMode::default(), |_| Err(fail()));
        assert!(matches!(failed, Err(Error::Invalid(_))), "{failed:?}");
        assert_eq!(status(stream), CaptureStatus::None);
        let panics = || stream.capture::<Error>(CaptureMode::default(), |_| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(status(stream), CaptureStatus::None);
        drop(stream.begin_capture(CaptureMode::Relaxed).expect("begins"));
        assert_eq!(status(stream), CaptureStatus::None);
        stream.synchronize().expect("as before");
    });
}

#[test]
fn an_empty_capture_gives_an_empty_graph() {
    with_stream(|_, stream| {
        let graph = stream.capture::<Error>(CaptureMode::Global, |_| Ok(()));
        let graph = graph.expect("a graph").instantiate().expect("an executable graph");
        // SAFETY: the graph is empty.
        unsafe { graph.launch_unchecked(stream) }.expect("a launch");
        stream.synchronize().expect("a wait");
    });
}

#[track_caller]
fn refused<T>(result: Result<T>) {
    assert_eq!(common::invalid(result), Invalid::StreamIsCaptured);
}

#[test]
fn allocations_host_memory_and_host_functions_are_refused_and_the_capture_continues() {
    with_stream(|context, stream| {
        let mut buffer = DeviceBuffer::<i32>::zeroed(stream, 4).expect("memory");
        let other = context.stream().expect("a stream");
        let shared = DeviceBuffer::<i32>::zeroed(&other, 4).expect("memory");
        let shared = shared.share().expect("an event");
        let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("begins");
        refused(DeviceBuffer::<i32>::uninit(stream, 4));
        refused(DeviceBuffer::<i32>::zeroed(stream, 4));
        refused(DeviceBuffer::from_slice(stream, &[1]));
        refused(DeviceBuffer::<i32>::zeroed_sync(stream, 4));
        refused(buffer.copy_from_slice(&[1; 4]));
        refused(buffer.copy_to_slice(&mut [0; 4]));
        refused(buffer.to_vec());
        refused(stream.launch_host_function(|| panic!("never")));
        refused(stream.completion());
        refused(stream.copy_scope(|_| Ok(())));
        let (extent, region) = (Extent::new_2d(2, 2), Region::new(Extent::new_2d(2, 2)));
        let mut host = [0; 4];
        refused(buffer.as_mut_slice().copy_3d_from_slice(extent, region, &host, region));
        refused(buffer.as_slice().copy_3d_to_slice(extent, region, &mut host, region));
        refused(PitchedBuffer::<i32>::zeroed(stream, 4, 4));
        refused(shared.on(stream));
        refused(buffer.rebind(&other));
        assert_eq!(buffer.stream(), stream);
        let rejected = buffer.try_share().expect_err("captured");
        refused::<()>(Err(rejected.error));
        buffer = rejected.value;
        buffer.fill(7).expect("recorded");
        assert_eq!(status(stream), CaptureStatus::Active);
        let graph = capture.end().expect("a valid capture");
        let graph = graph.instantiate().expect("an executable graph");
        // SAFETY: the buffer is alive and is used on this stream only.
        unsafe { graph.launch_unchecked(stream) }.expect("a launch");
        assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);

        let host = pinned(context, &[1, 2, 3, 4]);
        let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("begins");
        let rejected = buffer.as_mut_slice().try_copy_from_pinned(host);
        let Rejected { error, value } = rejected.expect_err("captured");
        refused::<()>(Err(error));
        let rejected = buffer.as_slice().try_copy_to_pinned(value).expect_err("captured");
        refused::<()>(Err(rejected.error));
        assert_eq!(rejected.value[..], [1, 2, 3, 4], "returned");
        capture.end().expect("a valid capture");
    });
}

#[test]
fn objects_dropped_in_a_capture_are_released_after_it() {
    with_stream(|_, stream| {
        let leaked = cuda_safe::leaked();
        let ordered = DeviceBuffer::<u8>::zeroed(stream, 64).expect("memory");
        let plain = DeviceBuffer::<u8>::zeroed_sync(stream, 64).expect("memory");
        let graph = stream.capture::<Error>(CaptureMode::Global, |_| {
            drop((ordered, plain));
            Ok(())
        });
        drop(graph.expect("a valid capture"));
        stream.synchronize().expect("a wait");
        assert_eq!(cuda_safe::leaked(), leaked);
    });
}

#[test]
fn a_stream_that_waits_for_a_captured_event_joins_the_capture() {
    with_stream(|context, stream| {
        let other = context.stream().expect("a stream");
        let [forks, joins] = common::events(context);
        let mut a = DeviceBuffer::<u32>::zeroed(stream, 4).expect("memory");
        let mut b = DeviceBuffer::<u32>::zeroed(&other, 4).expect("memory");
        context.synchronize().expect("a wait");
        assert_eq!(stream.capture_id().expect("a query"), None);
        let graph = stream.capture(CaptureMode::default(), |stream| {
            forks.record(stream)?;
            other.wait_event(&forks)?;
            assert_eq!(status(&other), CaptureStatus::Active);
            let id = stream.capture_id()?;
            assert!(id.is_some());
            assert_eq!(other.capture_id()?, id);
            refused(DeviceBuffer::<u8>::uninit(&other, 4));
            a.fill(1)?;
            b.fill(2)?;
            joins.record(&other)?;
            stream.wait_event(&joins)
        });
        let graph = graph.expect("joined").instantiate().expect("an executable graph");
        assert_eq!(status(&other), CaptureStatus::None);
        // SAFETY: the buffers are alive and idle on their streams.
        unsafe { graph.launch_unchecked(stream) }.expect("a launch");
        stream.synchronize().expect("a wait");
        assert_eq!(a.to_vec().expect("a copy"), [1; 4]);
        assert_eq!(b.to_vec().expect("a copy"), [2; 4]);
    });
}

#[test]
fn releases_on_other_threads_do_not_affect_a_capture() {
    with_stream(|context, stream| {
        for mode in [CaptureMode::Global, CaptureMode::ThreadLocal] {
            let leaked = cuda_safe::leaked();
            let other = context.stream().expect("a stream");
            let pool =
                cuda_safe::memory::MemoryPool::new(context, Default::default()).expect("a pool");
            let graph = other.capture::<Error>(CaptureMode::Relaxed, |_| Ok(()));
            let things = (
                cuda_safe::PinnedBuffer::<u8>::zeroed(context, 64).expect("memory"),
                DeviceBuffer::<u8>::zeroed_sync(&other, 64).expect("memory"),
                DeviceBuffer::<u8>::zeroed(&other, 64).expect("memory"),
                DeviceBuffer::<u8>::zeroed_from_pool(&pool, &other, 64).expect("memory"),
                cuda_safe::PinnedBuffer::register(context, vec![1u8; 64]).expect("registered"),
                crate::module::kernels::vector(context),
                graph.expect("a graph").instantiate().expect("an executable graph"),
                context.event().expect("an event"),
                (pool, other),
            );
            let capture = stream.begin_capture(mode).expect("begins");
            std::thread::scope(|scope| {
                scope.spawn(|| drop(things)).join().expect("no panic");
            });
            assert_eq!(status(stream), CaptureStatus::Active);
            capture.end().expect("a valid capture");
            stream.synchronize().expect("a wait");
            assert_eq!(cuda_safe::leaked(), leaked);
        }
    });
}

#[test]
fn a_forgotten_capture_continues_without_harm() {
    with_stream(|_, stream| {
        let leaked = cuda_safe::leaked();
        let buffer = DeviceBuffer::<u8>::zeroed(stream, 64).expect("memory");
        std::mem::forget(stream.begin_capture(CaptureMode::Relaxed).expect("begins"));
        refused(DeviceBuffer::<u8>::zeroed(stream, 64));
        drop(buffer);
        assert_eq!(status(stream), CaptureStatus::Active);
        assert_eq!(cuda_safe::leaked(), leaked, "the release of the buffer is deferred");
    });
}

#[cfg(unix)]
#[test]
fn a_forked_child_does_not_release_a_capture_or_its_graph() {
    with_stream(|_, stream| {
        let graph = stream.capture::<Error>(CaptureMode::default(), |_| Ok(()));
        let graph = graph.expect("a graph").instantiate().expect("an executable graph");
        let capture = stream.begin_capture(CaptureMode::default()).expect("begins");
        let mut all = Some((graph, capture));
        let clean = common::fork::in_fork(|| {
            let Some((graph, capture)) = all.take() else {
                return false;
            };
            // SAFETY: in a forked child the launch calls no driver function.
            let launched = unsafe { graph.launch_unchecked(stream) };
            drop(graph);
            matches!(launched, Err(Error::Forked))
                && matches!(capture.end(), Err(Error::Forked))
                && matches!(stream.begin_capture(CaptureMode::default()), Err(Error::Forked))
                && matches!(CaptureMode::Relaxed.with(|| ()), Err(Error::Forked))
        });
        assert!(clean, "the forked child exited cleanly");
        let (_graph, capture) = all.expect("the child has a copy");
        capture.end().expect("the parent continues");
    });
}

#[test]
fn each_launch_performs_external_records_and_waits() {
    with_stream(|context, stream| {
        let other = context.stream().expect("a stream");
        let [before, after] = common::events(context);
        let mut buffer = DeviceBuffer::<u32>::zeroed(stream, 4).expect("memory");
        let mut copy = DeviceBuffer::<u32>::zeroed(&other, 4).expect("memory");
        other.synchronize().expect("a wait");
        let graph = stream.capture(CaptureMode::default(), |stream| {
            stream.wait_external(&before)?;
            buffer.fill(7)?;
            after.record_external(stream)
        });
        let graph = graph.expect("a graph").instantiate().expect("an executable graph");
        assert!(after.is_complete().expect("a query"), "nothing was recorded");
        // SAFETY: the buffer and the events are alive, and the buffer is used on this stream only.
        unsafe { graph.launch_unchecked(stream) }.expect("a launch");
        other.wait_event(&after).expect("a wait");
        copy.fill(8).expect("a fill");
        other.synchronize().expect("a wait");
        assert!(after.is_complete().expect("a query"));
        assert_eq!(buffer.to_vec().expect("a copy"), [7; 4]);
    });
}

#[test]
fn the_capture_mode_of_a_thread_is_restored() {
    with_stream(|_, _| {
        let inner = || CaptureMode::ThreadLocal.with(|| 7);
        assert_eq!(CaptureMode::Relaxed.with(inner).expect("set").expect("set"), 7);
        let panics = || CaptureMode::Relaxed.with(|| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(raw_mode(), 0, "the mode of a new thread");
    });
}

/// Returns the raw capture mode of this thread.
fn raw_mode() -> u32 {
    use cuda_safe::sys::{CUstreamCaptureMode, cuThreadExchangeStreamCaptureMode};
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    // SAFETY: the pointer refers to a local variable.
    let code = unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    assert!(code.is_success(), "{code}");
    mode.0
}

#[test]
fn in_relaxed_mode_allocations_elsewhere_do_not_affect_the_capture() {
    with_stream(|context, stream| {
        let other = context.stream().expect("a stream");
        let mut buffer = None;
        let graph = stream.capture::<Error>(CaptureMode::ThreadLocal, |_| {
            CaptureMode::Relaxed.with(|| {
                buffer = Some(DeviceBuffer::<u8>::zeroed_sync(&other, 64)?);
                Ok(())
            })?
        });
        graph.expect("a valid capture");
        assert_eq!(buffer.expect("made").to_vec().expect("a copy"), [0; 64]);
    });
}

#[test]
fn graphs_survive_into_raw_and_from_raw() {
    with_stream(|context, stream| {
        let graph = stream.capture::<Error>(CaptureMode::default(), |_| Ok(()));
        let (raw, its) = graph.expect("a graph").into_raw();
        assert_eq!(its.context(), context);
        // SAFETY: ownership was just released.
        let graph = unsafe { Graph::from_raw(raw, context) }.expect("a graph");
        assert_eq!(graph.as_raw(), raw);
        let (raw, _) = graph.instantiate().expect("an executable graph").into_raw();
        // SAFETY: ownership was just released.
        let executable =
            unsafe { ExecutableGraph::from_raw(raw, context) }.expect("an executable graph");
        // SAFETY: the graph is empty.
        unsafe { executable.launch_unchecked(stream) }.expect("a launch");
        stream.synchronize().expect("a wait");
    });
}

mod provoked {
    //! Calls that the driver refuses are reported as errors.

    use super::*;

    #[track_caller]
    fn is<T: std::fmt::Debug>(result: Result<T, Error>, code: CUresult) {
        let error = result.expect_err("this should be an error");
        assert_eq!(error.code(), Some(code), "{error}");
    }

    #[test]
    fn waiting_for_a_captured_stream_invalidates_the_capture() {
        with_stream(|_, stream| {
            let capture = stream.begin_capture(CaptureMode::default()).expect("begins");
            is(stream.synchronize(), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
            assert_eq!(status(stream), CaptureStatus::Invalidated);
            is(capture.end(), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
            assert_eq!(status(stream), CaptureStatus::None);
            stream.synchronize().expect("as before");
        });
    }

    #[test]
    fn queries_of_the_id_and_of_the_kind_of_a_capturing_stream_invalidate_its_capture() {
        child::with_context_since(12, 0, |context| {
            let stream = &context.stream().expect("a stream");
            let query = |of_id: bool| match of_id {
                true => stream.id().map(drop),
                false => stream.is_blocking().map(drop),
            };
            for of_id in [true, false] {
                let capture = stream.begin_capture(CaptureMode::default()).expect("begins");
                assert_eq!(stream.priority().expect("known in a capture"), 0);
                is(query(of_id), CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
                is(stream.priority(), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                is(capture.end(), CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
                query(of_id).expect("as before");
            }
        });
    }

    #[test]
    fn launching_a_graph_into_a_capture_is_refused() {
        with_stream(|_, stream| {
            let mut buffer = cuda_safe::DeviceBuffer::<u8>::zeroed(stream, 4).expect("memory");
            let graph = stream.capture(CaptureMode::default(), |_| buffer.fill(1));
            let graph = graph.expect("a graph").instantiate().expect("an executable graph");
            let outer = stream.capture::<Error>(CaptureMode::default(), |stream| {
                // SAFETY: the buffer is alive and belongs to this stream.
                refused(unsafe { graph.launch_unchecked(stream) });
                assert_eq!(status(stream), CaptureStatus::Active);
                Ok(())
            });
            drop(outer.expect("a valid capture"));
            // SAFETY: as above.
            unsafe { graph.launch_unchecked(stream) }.expect("a launch");
            assert_eq!(buffer.to_vec().expect("a copy"), [1; 4]);
        });
    }

    #[test]
    fn a_capture_with_an_unjoined_stream_gives_no_graph() {
        with_stream(|context, stream| {
            let other = context.stream().expect("a stream");
            let event = context.event().expect("an event");
            let mut buffer = cuda_safe::DeviceBuffer::<u8>::zeroed(&other, 4).expect("memory");
            let graph = stream.capture(CaptureMode::default(), |stream| {
                event.record(stream)?;
                other.wait_event(&event)?;
                buffer.fill(1)
            });
            is(graph, CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
            assert_eq!(status(stream), CaptureStatus::None);
            assert_eq!(status(&other), CaptureStatus::None);
            assert_eq!(buffer.to_vec().expect("a copy"), [0; 4]);
        });
    }

    #[test]
    fn a_captured_stream_cannot_wait_for_an_event_outside_of_the_capture() {
        with_stream(|context, stream| {
            let other = context.stream().expect("a stream");
            let event = context.event().expect("an event");
            event.record(&other).expect("a record");
            let graph = stream.capture(CaptureMode::default(), |stream| stream.wait_event(&event));
            is(graph, CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
            assert_eq!(status(stream), CaptureStatus::None);
        });
    }

    #[test]
    fn a_captured_event_cannot_be_waited_for() {
        with_stream(|context, stream| {
            let event = context.event().expect("an event");
            let capture = stream.begin_capture(CaptureMode::default()).expect("begins");
            event.record(stream).expect("a record");
            is(event.is_complete(), CUresult::CUDA_ERROR_CAPTURED_EVENT);
            drop(capture);
            event.record(stream).expect("a record");
            event.synchronize().expect("an event as before");
        });
    }

    #[test]
    fn external_records_and_waits_are_refused_outside_of_captures() {
        with_stream(|context, stream| {
            let event = context.event().expect("an event");
            is(event.record_external(stream), CUresult::CUDA_ERROR_ILLEGAL_STATE);
            is(stream.wait_external(&event), CUresult::CUDA_ERROR_ILLEGAL_STATE);
        });
    }

    #[test]
    fn a_stream_has_only_one_capture_at_a_time() {
        with_stream(|_, stream| {
            let capture = stream.begin_capture(CaptureMode::default()).expect("begins");
            let why = common::invalid(stream.begin_capture(CaptureMode::default()));
            assert!(matches!(why, Invalid::OtherCapture { .. }), "{why}");
            capture.end().expect("a valid capture");
        });
    }

    #[test]
    fn a_graph_launches_only_on_streams_of_its_context() {
        with_stream(|context, stream| {
            let graph = stream.capture::<Error>(CaptureMode::default(), |_| Ok(()));
            let graph = graph.expect("a graph").instantiate().expect("an executable graph");
            let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
            let elsewhere = other.stream().expect("a stream");
            // SAFETY: the call is refused and accesses nothing.
            let why = common::invalid(unsafe { graph.launch_unchecked(&elsewhere) });
            assert!(matches!(why, Invalid::OtherContext { .. }));
        });
    }
}
