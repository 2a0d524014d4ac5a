//! Graphs: launches, changes and drops on several threads.

use super::pairs::expect_contents;
use super::{LEN, Scenario, VECTOR, context};
use cuda_safe::capture::CaptureMode;
use cuda_safe::graph::GraphBuffer;
use cuda_safe::{Context, DeviceBuffer, ExecutableGraph, Graph, LaunchConfig, Module, Stream};
use cuda_sim::explore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) fn all() -> Vec<Scenario> {
    vec![
        Scenario::new("graph/launches-on-own-streams", || launches(false)),
        Scenario::new("graph/launches-on-one-stream", || launches(true)),
        Scenario::new("graph/launch-while-a-stream-is-forgotten", forgotten_stream),
        Scenario::new("graph/first-launches-after-earlier-work", earlier_work),
        Scenario::new("graph/drop-while-streams-are-busy", drop_while_busy),
        Scenario::new("graph/drop-of-what-it-uses", drop_of_objects),
        Scenario::new("graph/instantiate-while-shared-memory-is-dropped", shared),
        Scenario::new("graph/launch-while-a-capture-begins", capture),
        Scenario::new("graph/drop-while-a-capture-begins", drop_in_a_capture),
        Scenario::new("graph/access-between-launches", access),
        Scenario::new("graph/replaced-objects", replaced),
        Scenario::new("graph/capture-into-a-body", capture_into_body),
    ]
}

fn streams(context: &Context, count: usize) -> Vec<Stream> {
    (0..count).map(|_| context.stream().expect("a stream")).collect()
}

/// Returns an executable graph of a kernel that adds 1 to each element of a buffer.
fn increment(home: &Stream) -> (ExecutableGraph, GraphBuffer<u32>) {
    let context = home.context();
    let module = Module::from_ptx(context, VECTOR).expect("a module");
    let kernel = module.kernel("scale").expect("a kernel");
    let kernel = kernel.typed::<(&mut [u32], i32, i32, u32)>();
    let mut graph = Graph::new(context).expect("a graph");
    let buffer = DeviceBuffer::<u32>::zeroed(home, LEN).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    let config = LaunchConfig::linear(1, 32);
    let arguments = (&mut data, 1, 1, LEN as u32);
    // SAFETY: the kernel writes as many elements as the last argument says.
    let added =
        unsafe { graph.add_kernel(&[], context, &kernel.expect("its types"), config, arguments) };
    added.expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    (executable, data)
}

/// A host function that counts its runs and owns an object.
#[derive(Clone, Default)]
struct Counter {
    runs: Arc<AtomicU32>,
    object: Arc<()>,
}

impl Counter {
    fn function(&self) -> impl Fn() + Send + Sync + use<> {
        let (runs, object) = (Arc::clone(&self.runs), Arc::clone(&self.object));
        move || {
            runs.fetch_add(1, Ordering::SeqCst);
            assert!(Arc::strong_count(&object) > 1, "the function was dropped");
        }
    }

    fn executable(&self, context: &Context) -> ExecutableGraph {
        let mut graph = Graph::new(context).expect("a graph");
        let added = graph.add_host_function(&[], self.function());
        added.expect("a node");
        graph.instantiate().expect("an executable graph")
    }

    /// Checks that the function is not dropped before it has run as often as it was launched.
    fn check(&self, launches: u32) {
        let is_dropped = Arc::strong_count(&self.object) == 1;
        let runs = self.runs.load(Ordering::SeqCst);
        assert!(
            !is_dropped || runs == launches,
            "the function was dropped after {runs} of {launches} runs"
        );
    }
}

fn expect_increments(
    mut executable: ExecutableGraph,
    mut data: GraphBuffer<u32>,
    stream: &Stream,
    count: u32,
) {
    let access = executable.access(&mut data, stream).expect("access");
    expect_contents("launches", access.as_slice().to_vec(), count);
}

/// Three threads launch one executable graph.
fn launches(on_one_stream: bool) {
    let context = context(0);
    let streams = streams(&context, 3);
    let (executable, data) = increment(&streams[0]);
    let executable = Arc::new(executable);
    let launch = |index: usize| {
        let executable = Arc::clone(&executable);
        let stream = streams[if on_one_stream { 0 } else { index }].clone();
        explore::spawn("the launches", move || {
            for _ in 0..3 {
                executable.launch(&stream).expect("a launch");
            }
        })
    };
    let threads: Vec<_> = (0..3).map(launch).collect();
    for thread in threads {
        thread.join();
    }
    let executable = Arc::into_inner(executable).expect("the threads have ended");
    expect_increments(executable, data, &streams[1], 9);
}

/// One thread launches on a stream that another thread takes for idle.
fn forgotten_stream() {
    /// The number of streams at which idle ones are forgotten.
    const LIMIT: usize = 3;
    let context = context(0);
    let streams = streams(&context, LIMIT + 1);
    let counter = Counter::default();
    let executable = Arc::new(counter.executable(&context));
    for stream in &streams[..LIMIT] {
        executable.launch(stream).expect("a launch");
    }
    context.synchronize().expect("a wait");
    // Waits after each launch but the last `running` ones.
    let launch = |name, streams: Vec<Stream>, running: usize| {
        let executable = Arc::clone(&executable);
        explore::spawn(name, move || {
            for (index, stream) in streams.iter().enumerate() {
                executable.launch(stream).expect("a launch");
                if index + running < streams.len() {
                    stream.synchronize().expect("a wait");
                }
            }
        })
    };
    let noted = streams[0].clone();
    let others = streams[1..LIMIT].to_vec();
    let launches = LIMIT + 3 + others.len();
    let threads = [
        launch("launches on a noted stream", vec![noted.clone(), noted], 1),
        launch("a launch on a new stream", vec![streams[LIMIT].clone()], 0),
        launch("launches on other noted streams", others, 0),
    ];
    for thread in threads {
        thread.join();
    }
    drop(executable);
    counter.check(launches as u32);
    context.synchronize().expect("a wait");
}

/// Two threads launch for the first time, after work on the memory of the graph.
fn earlier_work() {
    let context = context(0);
    let streams = streams(&context, 3);
    let (mut executable, mut data) = increment(&streams[0]);
    let mut access = executable.access(&mut data, &streams[0]).expect("access");
    access.as_mut_slice().fill(0).expect("a fill");
    access.as_mut_slice().fill(7).expect("a fill");
    drop(access);
    let executable = Arc::new(executable);
    let launch = |stream: &Stream| {
        let (executable, stream) = (Arc::clone(&executable), stream.clone());
        explore::spawn("the launches", move || {
            for _ in 0..2 {
                executable.launch(&stream).expect("a launch");
            }
        })
    };
    let threads = [launch(&streams[1]), launch(&streams[2])];
    for thread in threads {
        thread.join();
    }
    let executable = Arc::into_inner(executable).expect("the threads have ended");
    expect_increments(executable, data, &streams[1], 11);
}

/// Whichever thread is last drops the executable graph while its launches run.
fn drop_while_busy() {
    let context = context(0);
    let counter = Counter::default();
    let executable = Arc::new(counter.executable(&context));
    let launch = |_| {
        let (executable, stream) = (Arc::clone(&executable), context.stream());
        let stream = stream.expect("a stream");
        explore::spawn("the launches", move || {
            executable.launch(&stream).expect("a launch");
            executable.launch(&stream).expect("a launch");
            drop(executable);
            // Other work on the stream, which is then dropped.
            drop(DeviceBuffer::<u32>::zeroed(&stream, LEN));
        })
    };
    let threads: Vec<_> = (0..2).map(launch).collect();
    drop(executable);
    let other = context.clone();
    let waits = explore::spawn("a wait", move || {
        let _ = other.stream().map(|stream| stream.synchronize());
    });
    for thread in threads {
        thread.join();
    }
    waits.join();
    counter.check(4);
    context.synchronize().expect("a wait");
}

/// One thread launches while another drops its own handles of all objects that the graph uses.
fn drop_of_objects() {
    let context = context(0);
    let streams = streams(&context, 2);
    let (mut executable, data) = increment(&streams[0]);
    let event = context.event().expect("an event");
    let mut graph = Graph::new(&context).expect("a graph");
    graph.add_event_record(&[], &event).expect("a node");
    let of_event = graph.instantiate().expect("an executable graph");
    let (one, other) = (streams[0].clone(), streams[1].clone());
    let launches = explore::spawn("the launches", move || {
        executable.launch(&one).expect("a launch");
        of_event.launch(&other).expect("a launch");
        executable.launch(&other).expect("a launch");
        // The node of the other graph is not one that this graph could be updated to.
        let _ = executable.update(&graph);
        drop(graph);
        executable.launch(&one).expect("a launch");
        drop((executable, of_event));
    });
    let drops = explore::spawn("the drops", move || {
        drop(event);
        drop(data);
        drop(streams);
    });
    launches.join();
    drops.join();
    context.synchronize().expect("a wait");
}

/// One thread instantiates and launches a graph that reads shared memory, which another thread wants back
/// for writing.
fn shared() {
    let context = context(0);
    let streams = streams(&context, 2);
    let buffer = DeviceBuffer::from_slice(&streams[0], &[5u32; LEN]).expect("memory");
    let shared = buffer.share().expect("shared memory");
    let mut graph = Graph::new(&context).expect("a graph");
    let target = DeviceBuffer::<u32>::zeroed(&streams[1], LEN).expect("memory");
    let mut data = graph.own(target).expect("the graph owns it");
    graph.add_copy(&[], &mut data, &shared).expect("a node");
    let stream = streams[1].clone();
    let launches = explore::spawn("the launch", move || {
        let mut executable = graph.instantiate().expect("an executable graph");
        drop(graph);
        executable.launch(&stream).expect("a launch");
        let access = executable.access(&mut data, &stream).expect("access");
        expect_contents("a copy of shared memory", access.as_slice().to_vec(), 5);
        drop(access);
        drop(executable);
        data.into_buffer().is_ok()
    });
    let writes = explore::spawn("the write", move || {
        let mut shared = Some(shared);
        for _ in 0..4 {
            match shared.take().map(cuda_safe::SharedBuffer::into_buffer) {
                Some(Ok(mut buffer)) => buffer.fill(9).expect("a fill"),
                Some(Err(still_shared)) => shared = Some(still_shared),
                None => {}
            }
            explore::yield_now();
        }
    });
    assert!(launches.join(), "a launch that is complete keeps its memory");
    writes.join();
}

/// A launch is refused on a stream that captures, and never captured.
fn capture() {
    let context = context(0);
    let streams = streams(&context, 2);
    let (executable, data) = increment(&streams[0]);
    let executable = Arc::new(executable);
    let (launched, stream) = (Arc::clone(&executable), streams[1].clone());
    let launches = explore::spawn("the launches", move || {
        let made = (0..4).filter(|_| launched.launch(&stream).is_ok());
        made.count() as u32
    });
    let stream = streams[1].clone();
    let captures = explore::spawn("the capture", move || {
        let capture = stream.begin_capture(CaptureMode::ThreadLocal).ok()?;
        Some(capture.end().expect("a valid capture"))
    });
    let count = launches.join();
    if let Some(mut graph) = captures.join() {
        assert_eq!(graph.nodes().expect("a query"), [], "a launch was captured");
    }
    let executable = Arc::into_inner(executable).expect("the thread has ended");
    expect_increments(executable, data, &streams[1], count);
}

/// A drop during a capture of the stream is deferred, and does not disturb the capture.
fn drop_in_a_capture() {
    let context = context(0);
    let stream = context.stream().expect("a stream");
    let counter = Counter::default();
    let executable = counter.executable(&context);
    executable.launch(&stream).expect("a launch");
    let captured = stream.clone();
    let captures = explore::spawn("the capture", move || {
        if let Ok(capture) = captured.begin_capture(CaptureMode::Global) {
            explore::yield_now();
            capture.end().expect("a valid capture");
        }
    });
    let checked = counter.clone();
    let drops = explore::spawn("the drop", move || {
        drop(executable);
        checked.check(1);
    });
    captures.join();
    drops.join();
    counter.check(1);
    stream.synchronize().expect("a wait");
}

/// Accesses from outside, with other work and a capture on the same streams.
fn access() {
    let context = context(0);
    let streams = streams(&context, 3);
    let (mut executable, mut data) = increment(&streams[0]);
    let own = streams.clone();
    let accesses = explore::spawn("the accesses", move || {
        let mut expected = 0;
        for index in 0..3 {
            if executable.launch(&own[index]).is_ok() {
                expected += 1;
            }
            // Refused while another thread captures one of the streams.
            let Ok(mut access) = executable.access(&mut data, &own[(index + 1) % 3]) else {
                continue;
            };
            if access.as_mut_slice().fill(10).is_ok() {
                expected = 10;
            }
        }
        (executable, data, expected)
    });
    let (one, other) = (streams[1].clone(), streams[2].clone());
    let works = explore::spawn("other work", move || {
        drop(DeviceBuffer::<u32>::zeroed(&one, LEN));
        if let Ok(capture) = other.begin_capture(CaptureMode::ThreadLocal) {
            capture.end().expect("a valid capture");
        }
        let _ = one.synchronize();
    });
    let (executable, data, expected) = accesses.join();
    works.join();
    expect_increments(executable, data, &streams[0], expected);
}

/// Objects are replaced and released in batches while launches run and another thread makes calls that
/// attempt deferred releases.
fn replaced() {
    /// More than the number of objects that are released together.
    const CHANGES: usize = 66;
    let context = context(0);
    let streams = streams(&context, 2);
    let counter = Counter::default();
    let mut graph = Graph::new(&context).expect("a graph");
    let node = graph.add_host_function(&[], counter.function());
    let node = node.expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let (own, function) = (streams.clone(), counter.clone());
    let changes = explore::spawn("the changes", move || {
        for index in 0..CHANGES {
            if index % 16 == 0 {
                let _ = executable.launch(&own[index / 16 % 2]);
            }
            let mut nodes = executable.nodes(&graph).expect("its graph");
            let set = nodes.set_host_function(node, function.function());
            set.expect("a change");
        }
    });
    let (stream, other) = (streams[1].clone(), context.clone());
    let releases = explore::spawn("the releases", move || {
        for _ in 0..3 {
            drop(other.event());
        }
        if let Ok(capture) = stream.begin_capture(CaptureMode::ThreadLocal) {
            drop(other.event());
            capture.end().expect("a valid capture");
        }
    });
    changes.join();
    releases.join();
    context.synchronize().expect("a wait");
}

/// A capture into the body of a conditional node, while an earlier executable graph of the same graph is
/// launched on the captured stream and dropped.
fn capture_into_body() {
    let context = context(0);
    let streams = streams(&context, 2);
    let mut graph = Graph::new(&context).expect("a graph");
    let buffer = DeviceBuffer::<u32>::zeroed(&streams[0], LEN).expect("memory");
    let mut data = graph.own(buffer).expect("the graph owns it");
    let handle = graph.conditional_handle(&context, Some(1));
    let node = graph
        .add_if(&[], handle.expect("a handle"), |body| body.add_fill(&[], &mut data, 7).map(drop));
    let node = node.expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    let launched = streams.clone();
    let launches = explore::spawn("the launches", move || {
        for stream in &launched {
            let _ = executable.launch(stream);
        }
        drop(executable);
    });
    let stream = streams[1].clone();
    let captures = explore::spawn("the capture", move || {
        let mode = CaptureMode::ThreadLocal;
        match stream.try_begin_capture_into_body(graph, node, 0, &[], mode) {
            Ok(capture) => {
                let (graph, last) = capture.end_with_nodes().expect("a valid capture");
                assert_eq!(last, [], "a launch was captured");
                graph
            }
            Err(rejected) => rejected.value.expect("no capture was begun"),
        }
    });
    launches.join();
    let graph = captures.join();
    context.synchronize().expect("a wait");
    cuda_safe::attempt_deferred_releases();
    let mut executable = graph.instantiate().expect("the other one was destroyed");
    // SAFETY: nothing was captured, and the graph owns its memory.
    unsafe { executable.launch_unchecked(&streams[0]) }.expect("a launch");
    let access = executable.access(&mut data, &streams[0]).expect("access");
    expect_contents("the launch", access.as_slice().to_vec(), 7);
}
