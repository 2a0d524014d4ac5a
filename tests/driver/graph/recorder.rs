//! Graphs that are recorded in the order of calls. Each test runs in a child process, because a wait for
//! the context invalidates the captures of all threads.

use crate::common::{child, invalid};
use crate::graph::build::Log;
use crate::graph::{ONE, elements, scale};
use cuda_safe::capture::CaptureMode;
use cuda_safe::graph::GraphRecorder;
use cuda_safe::sys::{CUstream, cuMemcpyDtoDAsync_v2, cuMemsetD32Async};
use cuda_safe::{
    Context, ContextFlags, DeviceBuffer, Error, ExecutableGraph, Graph, Invalid, PinnedBuffer,
    Result, Stream,
};

const MODE: CaptureMode = CaptureMode::ThreadLocal;
/// Runs `body` with a recorder, in a child process.
#[track_caller]
fn with_recorder(body: impl FnOnce(&Context, &Stream, GraphRecorder)) {
    child::with_context_since(12, 3, |context| {
        let stream = context.stream().expect("a stream");
        let recorder = Graph::new(&context).expect("a graph").into_recorder(&stream);
        body(&context, &stream, recorder.expect("a recorder"));
    });
}

fn executable(recorder: GraphRecorder) -> ExecutableGraph {
    let graph = recorder.into_graph().expect("the graph");
    graph.instantiate().expect("an executable graph")
}

/// A library that enqueues work by raw handles.
mod library {
    use super::{CUstream, Error, cuMemcpyDtoDAsync_v2, cuMemsetD32Async};

    /// Sets elements to a value.
    ///
    /// # Safety
    /// The elements exist, and no other work uses them.
    pub(super) unsafe fn set(
        stream: CUstream,
        target: u64,
        value: u32,
        len: usize,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let code = unsafe { cuMemsetD32Async(target, value, len, stream) };
        cuda_safe::check(code, "cuMemsetD32Async")
    }

    /// Copies bytes.
    ///
    /// # Safety
    /// The bytes exist, and no other work uses them.
    pub(super) unsafe fn copy(
        stream: CUstream,
        target: u64,
        source: u64,
        bytes: usize,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        let code = unsafe { cuMemcpyDtoDAsync_v2(target, source, bytes, stream) };
        cuda_safe::check(code, "cuMemcpyDtoDAsync_v2")
    }
}

#[test]
fn recorded_work_runs_in_the_order_of_the_calls_at_each_launch() {
    with_recorder(|context, stream, mut recorder| {
        let scale = scale(context);
        let log = Log::default();
        let event = context.event().expect("an event");
        let host = PinnedBuffer::<i32>::zeroed(context, 4).expect("memory");
        let mut host = recorder.own_pinned(host).expect("the graph owns it");
        let mut data = recorder.uninit::<i32>(4).expect("memory");
        recorder.copy(&mut data, &host).expect("a node");
        // SAFETY: the kernel accesses the 4 elements.
        unsafe { recorder.launch(&scale, ONE, (&mut data, 2, 1, 4)) }.expect("a node");
        recorder.host_function(log.append("scaled")).expect("a node");
        recorder.record_event(&event).expect("a node");
        recorder.copy(&mut host, &data).expect("a node");
        recorder.fill(&mut data, 0).expect("a node");
        recorder.wait_event(&event).expect("a node");
        let mut child = Graph::new(context).expect("a graph");
        child.add_host_function(&[], log.append("child")).expect("a node");
        recorder.child(&mut child).expect("a node");
        let nodes = recorder.graph().expect("the graph").nodes().expect("nodes");
        for (before, node) in nodes.iter().zip(&nodes[1..]) {
            let graph = recorder.graph().expect("the graph");
            assert_eq!(graph.dependencies(*node).expect("a query"), [*before]);
        }
        let mut executable = executable(recorder);
        drop((scale, event, child, data));
        for value in [1, 10] {
            executable.host(&mut host).expect("the elements").copy_from_slice(&[value; 4]);
            executable.launch(stream).expect("a launch");
            let expected = [value * 2 + 1; 4];
            assert_eq!(executable.host(&mut host).expect("the elements"), expected);
        }
        assert_eq!(log.take(), ["scaled", "child", "scaled", "child"]);
    });
}

#[test]
fn recorded_nodes_can_be_updated() {
    with_recorder(|_, stream, mut recorder| {
        let mut data = recorder.zeroed::<i32>(4).expect("memory");
        let fill = recorder.fill(&mut data, 1).expect("a node");
        let graph = recorder.into_graph().expect("the graph");
        let mut executable = graph.instantiate().expect("an executable graph");
        let mut nodes = executable.nodes(&graph).expect("the nodes");
        nodes.set_fill(fill, &mut data, 2).expect("a change");
        executable.launch(stream).expect("a launch");
        assert_eq!(elements(&mut executable, &mut data, stream), [2; 4]);
    });
}

#[test]
fn branches_that_use_the_same_memory_are_refused_unless_they_are_joined() {
    with_recorder(|_, stream, mut recorder| {
        let mut data = recorder.zeroed::<i32>(4).expect("memory");
        let mut other = recorder.zeroed::<i32>(4).expect("memory");
        recorder.fill(&mut data, 1).expect("a node");
        let fork = recorder.dependencies().to_vec();
        recorder.copy(&mut other, &data).expect("a node");
        let branch = recorder.dependencies().to_vec();
        recorder.set_dependencies(&fork).expect("a fork");
        let conflict = recorder.fill(&mut data, 2).expect("a node");
        let graph = recorder.graph().expect("the graph");
        let why = invalid(graph.instantiate());
        assert!(matches!(why, Invalid::UnorderedAccess { .. }), "{why}");

        graph.remove(conflict).expect("removed");
        recorder.set_dependencies(&fork).expect("a fork");
        recorder.add_dependencies(&branch).expect("a join");
        recorder.add_dependencies(&branch).expect("no change");
        recorder.fill(&mut data, 2).expect("a node");
        let mut executable = executable(recorder);
        executable.launch(stream).expect("a launch");
        assert_eq!(elements(&mut executable, &mut data, stream), [2; 4]);
        assert_eq!(elements(&mut executable, &mut other, stream), [1; 4]);
    });
}

#[test]
fn dependencies_on_nodes_of_other_graphs_are_refused() {
    with_recorder(|context, _, mut recorder| {
        let mut other = Graph::new(context).expect("a graph");
        let foreign = other.add_empty(&[]).expect("a node").id();
        let node = recorder.add(|graph, before| graph.add_empty(before)).expect("a node");
        for refused in
            [recorder.set_dependencies(&[foreign]), recorder.add_dependencies(&[foreign])]
        {
            let why = invalid(refused);
            assert!(matches!(why, Invalid::OtherGraphNode { .. }), "{why}");
        }
        assert_eq!(recorder.dependencies(), [node.id()], "as before");
    });
}

#[test]
fn a_recorder_continues_after_all_nodes_of_a_graph() {
    with_recorder(|context, stream, _| {
        let mut graph = Graph::new(context).expect("a graph");
        let first = graph.add_empty(&[]).expect("a node").id();
        let one = graph.add_empty(&[first]).expect("a node").id();
        let two = graph.add_empty(&[]).expect("a node").id();
        let recorder = graph.into_recorder(stream).expect("a recorder");
        assert_eq!(recorder.dependencies(), [one, two]);
        assert_eq!(recorder.stream(), stream);

        let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
        let foreign = other.stream().expect("a stream");
        let graph = recorder.into_graph().expect("the graph");
        let rejected = graph.try_into_recorder(&foreign).expect_err("refused");
        let why = invalid::<()>(Err(rejected.error));
        assert!(matches!(why, Invalid::OtherContext { .. }), "{why}");
        assert_eq!(rejected.value.instantiate().map(drop), Ok(()));
    });
}

#[test]
fn the_work_of_a_library_is_captured_once_and_launched_by_safe_code() {
    with_recorder(|context, stream, mut recorder| {
        let mut data = recorder.zeroed::<i32>(4).expect("memory");
        let mut other = recorder.zeroed::<i32>(4).expect("memory");
        recorder.fill(&mut data, 1).expect("a node");
        let (to, from) = (other.as_raw(), data.as_raw());
        let record = |stream: &Stream| {
            let raw = stream.as_raw();
            context.with_current(|_| {
                // SAFETY: both buffers have 16 bytes, and only this graph uses them.
                unsafe { library::copy(raw, to, from, 16) }?;
                // SAFETY: as above.
                unsafe { library::set(raw, from, 2, 2) }
            })?
        };
        // SAFETY: the graph owns the bytes of both buffers, and the recorder orders their uses.
        let captured = unsafe { recorder.capture(MODE, record) };
        captured.expect("captured");
        recorder.fill(other.slice_mut(3..).expect("a part"), 9).expect("a node");
        let mut executable = executable(recorder);
        for _ in 0..2 {
            executable.launch(stream).expect("a safe launch");
        }
        assert_eq!(elements(&mut executable, &mut data, stream), [2, 2, 1, 1]);
        assert_eq!(elements(&mut executable, &mut other, stream), [1, 1, 1, 9]);
    });
}

#[test]
fn memory_that_only_captured_work_uses_lives_as_long_as_the_graph() {
    with_recorder(|context, stream, mut recorder| {
        let data = recorder.zeroed::<i32>(4).expect("memory");
        let address = data.as_raw();
        let record = |stream: &Stream| {
            // SAFETY: the buffer has four elements, and only this graph uses it.
            context.with_current(|_| unsafe { library::set(stream.as_raw(), address, 7, 4) })?
        };
        // SAFETY: the graph owns the elements.
        let captured = unsafe { recorder.capture(MODE, record) };
        captured.expect("captured");
        let executable = executable(recorder);
        let data = data.into_buffer().expect_err("the executable graph uses it");
        executable.launch(stream).expect("a safe launch");
        stream.synchronize().expect("a wait");
        drop(executable);
        stream.synchronize().expect("a wait");
        let data = data.into_buffer().expect("no graph uses it");
        assert_eq!(data.to_vec().expect("a copy"), [7; 4]);
    });
}

#[test]
fn a_graph_that_borrows_memory_still_does_after_a_capture_by_a_recorder() {
    with_recorder(|_, stream, _| {
        let mut buffer = DeviceBuffer::<i32>::zeroed(stream, 4).expect("memory");
        let graph = stream.capture(MODE, |_| buffer.fill(1)).expect("a graph");
        let mut recorder = graph.into_recorder(stream).expect("a recorder");
        // SAFETY: nothing is captured.
        unsafe { recorder.capture::<Error>(MODE, |_| Ok(())) }.expect("captured");
        let executable = executable(recorder);
        assert_eq!(invalid(executable.launch(stream)), Invalid::GraphBorrows);
    });
}

#[test]
fn a_failed_capture_ends_the_recorder_and_the_memory_can_be_used_again() {
    with_recorder(|context, stream, mut recorder| {
        let mut data = recorder.zeroed::<i32>(4).expect("memory");
        recorder.fill(&mut data, 1).expect("a node");
        // SAFETY: nothing is captured.
        assert_eq!(unsafe { recorder.capture(MODE, |_| Err(Error::Forked)) }, Err(Error::Forked));
        let lost = |result: Result<()>| assert_eq!(invalid(result), Invalid::RecorderWithoutGraph);
        lost(recorder.fill(&mut data, 2).map(drop));
        lost(recorder.zeroed::<i32>(1).map(drop));
        lost(recorder.host_function(|| ()).map(drop));
        lost(recorder.set_dependencies(&[]));
        lost(recorder.graph().map(drop));
        // SAFETY: nothing is captured.
        lost(unsafe { recorder.capture(MODE, |_| Ok(())) });
        let buffer = DeviceBuffer::<i32>::zeroed(stream, 4).expect("memory");
        let rejected = recorder.try_own(buffer).expect_err("there is no graph");
        assert_eq!(rejected.value.to_vec().expect("a copy"), [0; 4]);
        lost(recorder.into_graph().map(drop));
        drop(context.event().expect("deferred releases are attempted"));
        let data = data.into_buffer().expect("no graph uses it");
        assert_eq!(data.to_vec().expect("a copy"), [0; 4]);
    });
}

#[test]
fn a_capture_that_does_not_begin_leaves_the_recorder_as_before() {
    with_recorder(|_, stream, mut recorder| {
        let mut data = recorder.zeroed::<i32>(4).expect("memory");
        recorder.fill(&mut data, 1).expect("a node");
        let before = recorder.dependencies().to_vec();
        let open = stream.begin_capture(MODE).expect("begins");
        // SAFETY: nothing is captured.
        let why = invalid(unsafe { recorder.capture(MODE, |_| Ok::<_, Error>(())) });
        assert!(matches!(why, Invalid::OtherCapture { .. }), "{why}");
        drop(open);
        assert_eq!(recorder.dependencies(), before);
        let mut executable = executable(recorder);
        executable.launch(stream).expect("a launch");
        assert_eq!(elements(&mut executable, &mut data, stream), [1; 4]);
    });
}

#[test]
fn refusals_in_a_capture_name_the_recorder() {
    with_recorder(|_, stream, mut recorder| {
        let mut data = recorder.zeroed::<i32>(4).expect("memory");
        let mut outside = DeviceBuffer::<i32>::zeroed(stream, 4).expect("memory");
        // SAFETY: the captured work uses no memory.
        let captured = unsafe {
            recorder.capture(MODE, |stream| {
                for refused in [
                    DeviceBuffer::<i32>::uninit(stream, 4).map(drop),
                    outside.copy_from_slice(&[1; 4]),
                    stream.launch_host_function(|| panic!("never")),
                ] {
                    let text = refused.expect_err("captured").to_string();
                    assert!(text.contains("GraphRecorder"), "{text}");
                }
                stream.capture_host_function(|| ())
            })
        };
        captured.expect("the capture continues");
        recorder.fill(&mut data, 3).expect("a node");
        let mut executable = executable(recorder);
        executable.launch(stream).expect("a launch");
        assert_eq!(elements(&mut executable, &mut data, stream), [3; 4]);
    });
}
