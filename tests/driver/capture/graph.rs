//! Captures into existing graphs, host functions in captures, and the dependencies of captured work.
//! Each test runs in a child process, because a wait for the context invalidates the captures of all
//! threads.

use super::{MODE, refused_begin as refused, run, status, with_stream_since_12_3 as with_stream};
use crate::common::{self, invalid};
use crate::graph::build::Log;
use crate::graph::{elements, own};
use cuda_safe::capture::{CaptureMode, CaptureStatus};
use cuda_safe::graph::{EdgeKind, kind};
use cuda_safe::{Context, DeviceBuffer, Error, Graph, Invalid};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

fn graph(context: &Context) -> Graph {
    Graph::new(context).expect("a graph")
}

#[test]
fn captured_work_comes_between_the_nodes_before_and_after_it() {
    with_stream(|context, stream| {
        let log = Log::default();
        let mut graph = graph(context);
        let first = graph.add_host_function(&[], log.append("first")).expect("a node");
        let captured = stream.capture_into(graph, &[first.id()], MODE, |stream| {
            assert_eq!(status(stream), CaptureStatus::Active);
            stream.capture_host_function(log.append("second"))?;
            stream.capture_host_function(log.append("third"))
        });
        let (mut graph, last) = captured.expect("a graph");
        assert_eq!(status(stream), CaptureStatus::None);
        assert_eq!(last.len(), 1);
        graph.add_host_function(&last, log.append("last")).expect("a node");
        let nodes = graph.nodes().expect("the nodes");
        assert_eq!(nodes.len(), 4);
        assert_eq!(nodes[2], last[0]);
        assert_eq!(graph.dependencies(nodes[1]).expect("a query"), [first.id()]);
        run(&graph, stream);
        assert_eq!(log.take(), ["first", "second", "third", "last"]);
    });
}

#[test]
fn the_end_of_a_capture_has_all_branches_or_the_dependencies() {
    with_stream(|context, stream| {
        let other = context.stream().expect("a stream");
        let [forks, joins] = common::events(context);
        let mut graph = graph(context);
        let one = graph.add_empty(&[]).expect("a node").id();
        let two = graph.add_empty(&[]).expect("a node").id();
        let (graph, last) =
            stream.capture_into::<Error>(graph, &[one, two], MODE, |_| Ok(())).expect("a graph");
        assert_eq!(last, [one, two], "nothing was captured");
        let captured = stream.capture_into(graph, &[one], MODE, |stream| {
            forks.record(stream)?;
            other.wait_event(&forks)?;
            stream.capture_host_function(|| ())?;
            other.capture_host_function(|| ())?;
            joins.record(&other)?;
            stream.wait_event(&joins)
        });
        let (mut graph, last) = captured.expect("a graph");
        assert_eq!(last.len(), 2, "no captured node comes after both branches");
        for node in &last {
            assert_eq!(graph.dependencies(*node).expect("a query"), [one]);
        }
        // A join within the capture leaves one node.
        let captured =
            stream.capture_into(graph, &last, MODE, |stream| stream.capture_host_function(|| ()));
        let (mut graph, end) = captured.expect("a graph");
        assert_eq!(end.len(), 1);
        let mut before = graph.dependencies(end[0]).expect("a query");
        before.sort_unstable();
        assert_eq!(before, last);
    });
}

#[test]
fn a_graph_with_captured_work_is_launched_only_by_unsafe_code() {
    with_stream(|context, stream| {
        let mut buffer = DeviceBuffer::<i32>::zeroed(stream, 4).expect("memory");
        let mut graph = graph(context);
        let mut own = own(&mut graph, stream, &[0; 4]);
        let fill = graph.add_fill(&[], &mut own, 7).expect("a node");
        let captured = stream.capture_into(graph, &[fill.id()], MODE, |_| buffer.fill(8));
        let (graph, _) = captured.expect("a graph");
        let mut executable = graph.instantiate().expect("an executable graph");
        assert_eq!(invalid(executable.launch(stream)), Invalid::GraphBorrows);
        // SAFETY: the buffer is alive and is used on this stream only.
        unsafe { executable.launch_unchecked(stream) }.expect("a launch");
        assert_eq!(buffer.to_vec().expect("a copy"), [8; 4]);
        assert_eq!(elements(&mut executable, &mut own, stream), [7; 4]);
    });
}

#[test]
fn a_refused_capture_returns_the_graph() {
    with_stream(|context, stream| {
        let mut foreign = graph(context);
        let node = foreign.add_empty(&[]).expect("a node").id();
        let (why, graph) = refused(stream.try_begin_capture_into(graph(context), &[node], MODE));
        assert!(matches!(why, Invalid::OtherGraphNode { .. }), "{why}");

        let mut graph = graph;
        let node = graph.add_empty(&[]).expect("a node").id();
        graph.remove(node).expect("the graph is as before");
        let (why, graph) = refused(stream.try_begin_capture_into(graph, &[node], MODE));
        assert!(matches!(why, Invalid::NoSuchNode { .. }), "{why}");

        let capture = stream.begin_capture(MODE).expect("begins");
        let (why, graph) = refused(stream.try_begin_capture_into(graph, &[], MODE));
        assert!(matches!(why, Invalid::OtherCapture { .. }), "{why}");
        drop(capture);

        // SAFETY: the graph outlives the borrowed one.
        let borrowed = unsafe { Graph::borrow_raw(graph.as_raw(), context) }.expect("a graph");
        let (why, _) = refused(stream.try_begin_capture_into(borrowed, &[], MODE));
        assert_eq!(why, Invalid::ForeignGraph);
        let kept = stream.capture_into::<Error>(graph, &[], MODE, |_| Ok(()));
        kept.expect("the graph is as before");
    });
}

/// The driver destroys the graph.
#[test]
fn a_failed_capture_releases_what_the_graph_owned() {
    with_stream(|context, stream| {
        let other = context.stream().expect("a stream");
        let forks = context.event().expect("an event");
        let object = Arc::new(());
        let owning = || {
            let mut graph = graph(context);
            let own = Arc::clone(&object);
            graph.add_host_function(&[], move || drop(Arc::clone(&own))).expect("a node");
            graph
        };
        let unjoined = stream.capture_into(owning(), &[], MODE, |stream| {
            forks.record(stream)?;
            other.wait_event(&forks)?;
            other.capture_host_function(|| ())
        });
        let code = unjoined.expect_err("the other stream is not joined").code();
        assert_eq!(code, Some(cuda_safe::CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED));
        assert_eq!(Arc::strong_count(&object), 1);

        let invalidated = stream.capture_into(owning(), &[], MODE, |stream| {
            // A query of a captured stream invalidates the capture.
            stream.is_complete().map(drop).expect_err("captured");
            Ok::<_, Error>(())
        });
        invalidated.expect_err("the capture was invalidated");
        assert_eq!(Arc::strong_count(&object), 1);

        let failed = stream.capture_into(owning(), &[], MODE, |_| Err(Error::Forked));
        assert_eq!(failed.expect_err("the error of the function"), Error::Forked);
        let panics = || stream.capture_into::<Error>(owning(), &[], MODE, |_| panic!("on purpose"));
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(Arc::strong_count(&object), 1);
        assert_eq!(status(stream), CaptureStatus::None);
        assert_eq!(status(&other), CaptureStatus::None);
        stream.synchronize().expect("the stream is as before");
    });
}

#[test]
fn a_captured_host_function_runs_at_each_launch_and_belongs_to_the_graph() {
    with_stream(|context, stream| {
        let object = Arc::new(());
        let log = Log::default();
        let graph = stream.capture(MODE, |stream| {
            let (own, log) = (Arc::clone(&object), log.append("called"));
            stream.capture_host_function(move || {
                drop(Arc::clone(&own));
                log();
            })
        });
        let executable = graph.expect("a graph").instantiate();
        let executable = executable.expect("an executable graph");
        assert_eq!(Arc::strong_count(&object), 2);
        for _ in 0..2 {
            // SAFETY: the graph uses no memory.
            unsafe { executable.launch_unchecked(stream) }.expect("a launch");
        }
        stream.synchronize().expect("a wait");
        assert_eq!(log.take(), ["called", "called"]);
        drop(executable);
        drop(context.event().expect("deferred releases are attempted"));
        assert_eq!(Arc::strong_count(&object), 1);
    });
}

#[test]
fn the_panic_of_a_captured_host_function_is_returned() {
    with_stream(|_, stream| {
        let graph =
            stream.capture(MODE, |stream| stream.capture_host_function(|| panic!("on purpose")));
        let executable = graph.expect("a graph").instantiate();
        let executable = executable.expect("an executable graph");
        // SAFETY: the graph uses no memory.
        unsafe { executable.launch_unchecked(stream) }.expect("a launch");
        stream.synchronize().expect("a wait");
        let panicked = executable.take_panic().expect_err("the function panicked");
        assert!(matches!(panicked, Error::HostFunctionPanicked(_)), "{panicked}");
        executable.take_panic().expect("it is returned once");
    });
}

#[test]
fn a_host_function_of_a_graph_needs_a_capture() {
    with_stream(|_, stream| {
        let why = invalid(stream.capture_host_function(|| panic!("never")));
        assert!(matches!(why, Invalid::NotCaptured { .. }), "{why}");
        stream.synchronize().expect("nothing was enqueued");
    });
}

#[test]
fn dependencies_of_captured_work_are_read_and_changed() {
    with_stream(|_, stream| {
        let log = Log::default();
        let mut capture = stream.begin_capture(MODE).expect("begins");
        // SAFETY: no other thread uses the stream.
        assert_eq!(unsafe { capture.dependencies() }.expect("a query"), []);
        stream.capture_host_function(log.append("first")).expect("captured");
        // SAFETY: as above.
        let first = unsafe { capture.dependencies() }.expect("a query");
        assert_eq!(first.len(), 1);
        assert_eq!(first[0].1, EdgeKind::Full);
        capture.set_dependencies(&[]).expect("a change");
        stream.capture_host_function(|| ()).expect("captured");
        capture.add_dependencies(&first).expect("a change");
        // SAFETY: as above.
        let both = unsafe { capture.dependencies() }.expect("a query");
        assert_eq!(both.len(), 2);
        stream.capture_host_function(log.append("last")).expect("captured");
        let (mut graph, last) = capture.end_with_nodes().expect("a graph");
        let nodes = graph.nodes().expect("the nodes");
        assert_eq!(nodes[0], first[0].0, "the handle is valid after the capture");
        assert_eq!(graph.roots().expect("a query").len(), 2);
        assert_eq!(last, [nodes[2]]);
        assert_eq!(graph.dependencies(nodes[2]).expect("a query").len(), 2);
        run(&graph, stream);
        assert_eq!(log.take(), ["first", "last"]);
    });
}

#[test]
fn a_node_of_another_capture_is_no_dependency() {
    with_stream(|context, stream| {
        let mut earlier = stream.begin_capture(MODE).expect("begins");
        stream.capture_host_function(|| ()).expect("captured");
        // SAFETY: no other thread uses the stream.
        let of_earlier = unsafe { earlier.dependencies() }.expect("a query");
        let _graph = earlier.end().expect("a graph");

        let other = context.stream().expect("a stream");
        let mut capture = stream.begin_capture(MODE).expect("begins");
        let mut open = other.begin_capture(MODE).expect("begins");
        other.capture_host_function(|| ()).expect("captured");
        // SAFETY: no other thread uses the stream.
        let of_open = unsafe { open.dependencies() }.expect("a query");
        for foreign in [of_earlier, of_open] {
            for refused in [capture.set_dependencies(&foreign), capture.add_dependencies(&foreign)]
            {
                let why = invalid(refused);
                assert!(matches!(why, Invalid::OtherGraphNode { .. }), "{why}");
            }
        }
        drop(open.end().expect("a graph"));
        drop(capture.end().expect("the capture is valid"));
    });
}

#[test]
fn a_graph_is_captured_as_a_child_graph() {
    with_stream(|context, stream| {
        let log = Log::default();
        let mut child = graph(context);
        child.add_host_function(&[], log.append("child")).expect("a node");
        let mut capture = stream.begin_capture(MODE).expect("begins");
        stream.capture_host_function(log.append("before")).expect("captured");
        // SAFETY: no other thread uses the stream.
        let node = unsafe { capture.add_child(&mut child) }.expect("a node");
        drop(child);
        stream.capture_host_function(log.append("after")).expect("captured");
        let graph = capture.end().expect("a graph");
        assert_eq!(graph.typed::<kind::Child>(node.id()), Ok(node));
        run(&graph, stream);
        assert_eq!(log.take(), ["before", "child", "after"]);
    });
}

#[test]
fn dropping_a_capture_discards_the_graph_that_it_captures_into() {
    with_stream(|context, stream| {
        let object = Arc::new(());
        let own = Arc::clone(&object);
        let mut graph = graph(context);
        graph.add_host_function(&[], move || drop(Arc::clone(&own))).expect("a node");
        let mut capture =
            stream.begin_capture_into(graph, &[], CaptureMode::Relaxed).expect("begins");
        stream.capture_host_function(|| ()).expect("captured");
        // SAFETY: no other thread uses the stream.
        let dependencies = unsafe { capture.dependencies() }.expect("a query");
        assert_eq!(dependencies.len(), 1);
        drop(capture);
        assert_eq!(Arc::strong_count(&object), 1);
        assert_eq!(status(stream), CaptureStatus::None);
    });
}
