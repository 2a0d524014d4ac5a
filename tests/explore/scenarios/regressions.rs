//! Bugs that reviews found, each with the scenario that shows it.

use super::managers::small_slabs;
use super::objects::green;
use super::{Flag, LEN, Scenario, Stage, context};
use cuda_memory::CachingManager;
use cuda_safe::capture::{CaptureMode, CaptureStatus};
use cuda_safe::green::SmProbe;
use cuda_safe::interop::{ExportedStream, StreamSync};
use cuda_safe::manager::{MemoryManager, Order};
use cuda_safe::memory::MemoryPool;
use cuda_safe::{Context, ContextFlags, Device, DeviceBuffer, Result};
use cuda_sim::explore;
use std::sync::{Arc, Mutex};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("hole/manager-uses-a-destroyed-stream", destroyed_stream),
        Scenario::new("hole/probe-in-a-capture", probe),
        Scenario::new("hole/graph-loses-a-recorded-event", recorded_event),
        Scenario::new("hole/graph-loses-a-waited-event", waited_event),
        Scenario::new("hole/graph-loses-a-green-context", joined_green_context),
        Scenario::new("hole/graph-loses-a-peer-context", peer_context).on_devices(2),
        Scenario::new("hole/release-blocks-a-wait", release_blocks_a_wait),
        Scenario::new("hole/release-blocks-a-capture", release_blocks_a_capture),
        Scenario::new("hole/release-blocks-a-rebind", release_blocks_a_rebind),
        Scenario::new("hole/release-blocks-other-streams", release_blocks_others),
        Scenario::new("hole/pool-waits-for-a-captured-event", pool_in_a_capture),
        Scenario::new("hole/uninitialized-memory", uninitialized_memory),
        Scenario::new("hole/refused-capture-of-a-joined-stream", refused_capture),
        Scenario::new("hole/wait-while-a-capture-begins", wait_while_a_capture_begins),
        Scenario::new("hole/import-waits-in-a-host-function", import_in_a_host_function),
        Scenario {
            may_report: true,
            ..Scenario::new("hole/host-function-after-a-failed-merge", failed_merge)
        },
    ]
}

/// A manager has memory of a stream that is destroyed. The manager does not belong to the stream's
/// context, so it is not told of the end of the stream.
fn destroyed_stream() {
    let context = context(0);
    let manager = CachingManager::with(&context, small_slabs()).expect("a manager");
    let stream = context.stream().expect("a stream");
    let allocated = manager.allocate(64, Order::of(&stream));
    drop(stream);
    if let Ok(block) = allocated {
        // SAFETY: no work has used the block, which belongs to this manager.
        unsafe { manager.free(block, Order::NONE) };
    }
    let other = context.stream().expect("a stream");
    if let Ok(block) = manager.allocate(64, Order::of(&other)) {
        // SAFETY: as above.
        unsafe { manager.free(block, Order::NONE) };
    }
    let _ = manager.trim(0);
}

/// A stream that is captured waits for an event of another capture, which invalidates both. It does not belong to the
/// other capture afterwards, so the function runs now if the first capture has ended, and is leaked.
fn failed_merge() {
    let context = context(0);
    let streams = [(); 2].map(|()| context.stream().expect("a stream"));
    let event = context.event().expect("an event");
    let [stream, other] = streams.clone();
    let is_open = Flag::default();
    let opens = is_open.clone();
    let captures = explore::spawn("the first capture", move || {
        let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("begins");
        opens.set();
        capture.end().ok()
    });
    let [stream, _] = streams.clone();
    let merges = explore::spawn("the second capture", move || {
        let capture = other.begin_capture(CaptureMode::ThreadLocal).expect("begins");
        event.record(&other).expect("a record");
        is_open.wait();
        let _ = stream.wait_event(&event);
        capture.end().ok()
    });
    captures.join();
    let _ = streams[0].capture_host_function(|| ());
    merges.join();
    for stream in &streams {
        stream.synchronize().expect("a wait");
    }
}

/// The graph of an empty capture contains no kernel of this crate, so it may be launched.
fn probe() {
    let stage = Stage::new();
    let probe = SmProbe::new(&stage.context).expect("a probe");
    let stream = stage.stream.clone();
    let probes = explore::spawn("the probe", move || {
        let _ = probe.start(&stream);
    });
    let stream = stage.stream.clone();
    let captures = explore::spawn("the capture", move || {
        let capture = stream.begin_capture(CaptureMode::ThreadLocal).ok()?;
        capture.end().ok()
    });
    probes.join();
    if let Some(graph) = captures.join() {
        let graph = graph.instantiate().expect("an executable graph");
        // SAFETY: the graph is empty.
        unsafe { graph.launch_unchecked(&stage.stream) }.expect("a launch");
        stage.stream.synchronize().expect("a wait");
    }
}

/// Begins and ends a capture, while `other` uses the stream with an event, which is then dropped.
fn capture_with_event(uses: fn(&cuda_safe::Event, &cuda_safe::Stream) -> Result<()>) {
    let stage = Stage::new();
    let event = stage.context.event().expect("an event");
    let stream = stage.stream.clone();
    let records = explore::spawn("the event", move || uses(&event, &stream).is_ok());
    let stream = stage.stream.clone();
    let captures = explore::spawn("the capture", move || {
        let capture = stream.begin_capture(CaptureMode::ThreadLocal).ok()?;
        capture.end().ok()
    });
    let (is_recorded, graph) = (records.join(), captures.join());
    if let Some(graph) = graph.filter(|_| is_recorded) {
        let events = cuda_sim::alive().events;
        assert_eq!(events, 1, "the graph does not own the event of its node");
        let _ = graph.instantiate();
    }
}

fn recorded_event() {
    capture_with_event(|event, stream| event.record_external(stream));
}

fn waited_event() {
    capture_with_event(|event, stream| stream.wait_external(event));
}

/// A stream of a green context joins a capture through a wait, and another thread enqueues work on
/// it.
fn joined_green_context() {
    let stage = Stage::new();
    let forks = stage.context.event().expect("an event");
    let joins = stage.context.event().expect("an event");
    let partition = green(&stage.context);
    let stream = partition.stream().expect("a stream");
    drop(partition);
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, LEN).expect("memory");
    stream.synchronize().expect("a wait");
    let (event, its) = (forks.clone(), stream.clone());
    let open = stage.open.clone();
    let waits = explore::spawn("the wait", move || {
        open.wait();
        let _ = its.wait_event(&event);
    });
    let (origin, open) = (stage.stream.clone(), stage.open.clone());
    let captures = explore::spawn("the capture", move || {
        let capture = origin.begin_capture(CaptureMode::ThreadLocal);
        let record = || -> Result<_> {
            let capture = capture?;
            forks.record(&origin)?;
            open.set();
            explore::yield_now();
            let is_part = stream.capture_status()? == CaptureStatus::Active;
            if is_part {
                buffer.fill(1)?;
                joins.record(&stream)?;
                origin.wait_event(&joins)?;
            }
            Ok((capture.end()?, is_part))
        };
        let recorded = record();
        open.set();
        recorded.ok()
    });
    waits.join();
    // The stream and the buffer were dropped with the threads.
    if let Some((graph, true)) = captures.join() {
        let alive = cuda_sim::alive().green_contexts;
        assert_eq!(alive, 1, "the graph does not own the green context of its node");
        drop(graph);
    }
}

/// A copy between two contexts is captured. Both contexts have to outlive the graph.
fn peer_context() {
    let stage = Stage::new();
    let device = Device::get(1).expect("a device");
    let peer = Context::new(&device, ContextFlags::empty()).expect("a context");
    let home = peer.stream().expect("a stream");
    let source = DeviceBuffer::from_slice(&home, &[8u32; LEN]).expect("memory");
    let source = source.share().expect("shared memory");
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stage.stream, LEN).expect("memory");
    let reader = source.on_peer(&stage.stream).expect("a reader");
    stage.stream.synchronize().expect("a wait");
    let graph = stage.stream.capture(CaptureMode::ThreadLocal, |_| buffer.copy_from_peer(&reader));
    drop((reader, source, home, peer));
    stage.stream.synchronize().expect("a wait");
    if let Ok(graph) = graph {
        let contexts = cuda_sim::alive().contexts;
        assert_eq!(contexts, 1, "the graph does not own the peer's context");
        let _ = graph.instantiate();
    }
}

/// One thread frees memory of a stream whose host function waits for another thread, which runs
/// `other` with a stream.
fn release_blocks(other: impl FnOnce(&Stage) -> Box<dyn FnOnce() + Send>) {
    let stage = Stage::new();
    let buffer = DeviceBuffer::<u32>::zeroed_sync(&stage.stream, LEN).expect("memory");
    let other = other(&stage);
    let done = stage.done.clone();
    let waits = stage.stream.launch_host_function(move || done.wait());
    waits.expect("a host function");
    let frees = explore::spawn("the release", move || drop(buffer));
    let done = stage.done.clone();
    let others = explore::spawn("the awaited thread", move || {
        other();
        done.set();
    });
    others.join();
    frees.join();
}

fn release_blocks_a_wait() {
    release_blocks(|stage| {
        let event = stage.context.event().expect("an event");
        let stream = stage.stream.clone();
        Box::new(move || stream.wait_event(&event).expect("an event that was never recorded"))
    });
}

fn release_blocks_a_capture() {
    release_blocks(|stage| {
        let stream = stage.stream.clone();
        Box::new(move || {
            let capture = stream.begin_capture(CaptureMode::ThreadLocal);
            let _ = capture.and_then(cuda_safe::capture::Capture::end);
        })
    });
}

fn release_blocks_a_rebind() {
    // The object is kept, because its release would wait for the host function.
    let kept = Arc::new(Mutex::new(None));
    let its = Arc::clone(&kept);
    release_blocks(move |stage| {
        let source = stage.context.stream().expect("a stream");
        let mut buffer = DeviceBuffer::<u32>::zeroed(&source, LEN).expect("memory");
        let target = stage.stream.clone();
        Box::new(move || {
            let rebound = buffer.rebind(&target).map(|()| buffer);
            *its.lock().expect("no panic") = Some(rebound);
        })
    });
    let rebound = kept.lock().expect("no panic").take();
    assert!(rebound.is_some_and(|rebound| rebound.is_ok()));
}

/// Streams that are independent of the stream with the host function.
fn release_blocks_others() {
    release_blocks(|stage| {
        let event = stage.context.event().expect("an event");
        let streams = [(); 70].map(|()| stage.context.stream().expect("a stream"));
        Box::new(move || {
            for stream in &streams {
                stream.wait_event(&event).expect("an event that was never recorded");
            }
        })
    });
}

/// The last memory of a pool is freed while the stream becomes captured.
fn pool_in_a_capture() {
    let stage = Stage::new();
    let pool = MemoryPool::new(&stage.context, Default::default()).expect("a pool");
    let buffer = DeviceBuffer::<u32>::uninit_from_pool(&pool, &stage.stream, LEN);
    let buffer = buffer.expect("memory");
    drop(pool);
    let frees = explore::spawn("the release", move || drop(buffer));
    let stream = stage.stream.clone();
    let captures = explore::spawn("the capture", move || {
        let capture = stream.begin_capture(CaptureMode::ThreadLocal);
        let _ = capture.and_then(cuda_safe::capture::Capture::end);
    });
    frees.join();
    captures.join();
}

/// A copy that was captured into a graph instead has not run.
fn uninitialized_memory() {
    let stage = Stage::new();
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    let allocates = explore::spawn("the copy", move || {
        let buffer = DeviceBuffer::from_slice(&stream, &[5u32; LEN]).ok()?;
        done.wait();
        buffer.to_vec().ok()
    });
    let (stream, done) = (stage.stream.clone(), stage.done.clone());
    let captures = explore::spawn("the capture", move || {
        let capture = stream.begin_capture(CaptureMode::ThreadLocal);
        let _ = capture.and_then(cuda_safe::capture::Capture::end);
        done.set();
    });
    captures.join();
    if let Some(read) = allocates.join() {
        assert_eq!(read, [5; LEN], "wrong contents after from_slice");
    }
}

/// A stream joins a capture while another capture of it begins, which the driver refuses. The
/// stream stays captured, so its memory must not be freed in stream order.
fn refused_capture() {
    let stage = Stage::new();
    let buffer = DeviceBuffer::<u32>::zeroed(&stage.stream, LEN).expect("memory");
    stage.stream.synchronize().expect("a wait");
    let event = stage.context.event().expect("an event");
    let (its, stream, open) = (event.clone(), stage.stream.clone(), stage.open.clone());
    let joins = explore::spawn("the wait", move || {
        open.wait();
        let _ = stream.wait_event(&its);
    });
    let (stage, open) = (stage.clone(), stage.open.clone());
    let captures = explore::spawn("the capture", move || {
        let first = stage.other.begin_capture(CaptureMode::ThreadLocal);
        let recorded = event.record(&stage.other);
        open.set();
        let second = stage.stream.begin_capture(CaptureMode::ThreadLocal);
        drop(buffer);
        drop((second, first));
        recorded.expect("a record");
    });
    joins.join();
    captures.join();
}

/// A stream waits for its own event while a capture of it begins. Memory dropped during the capture
/// must not be freed in it.
fn wait_while_a_capture_begins() {
    let stage = Stage::new();
    let buffer = DeviceBuffer::<u32>::zeroed(&stage.stream, LEN).expect("memory");
    stage.stream.synchronize().expect("a wait");
    let event = stage.context.event().expect("an event");
    let stream = stage.stream.clone();
    let waits = explore::spawn("the wait", move || {
        let _ = event.record(&stream);
        let _ = stream.wait_event(&event);
    });
    let stream = stage.stream.clone();
    let captures = explore::spawn("the capture", move || {
        let capture = stream.begin_capture(CaptureMode::ThreadLocal);
        drop(buffer);
        drop(capture);
    });
    waits.join();
    captures.join();
}

/// An import in a host function of the producer's stream cannot wait for that stream.
fn import_in_a_host_function() {
    let context = context(0);
    let (home, stream) = (context.stream().expect("a stream"), context.stream().expect("a stream"));
    let buffer = DeviceBuffer::from_slice(&home, &[5u32; LEN]).expect("memory");
    let array = buffer.array_interface().expect("an interface");
    let array = array.with_stream(Some(ExportedStream::of(&home)));
    let refused = Flag::default();
    let its = refused.clone();
    let imports = move || {
        // SAFETY: the buffer and its stream outlive this, and no work uses it meanwhile.
        let imported = unsafe { array.import::<u32>(&stream, StreamSync::Synchronize, ()) };
        if imported.is_err() {
            its.set();
        }
    };
    home.launch_host_function(imports).expect("a host function");
    home.synchronize().expect("a wait");
    assert!(refused.is_set(), "an import without a wait");
    let waits =
        |call: &cuda_sim::Call| call.function == "cuStreamSynchronize" && !call.result.is_success();
    let waited = cuda_sim::calls().iter().any(waits);
    assert!(!waited, "the import waits for its own host function");
    drop(buffer);
}
