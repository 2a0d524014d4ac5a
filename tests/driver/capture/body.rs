//! Captures into the bodies of conditional nodes. Each test runs in a child process, because a wait for the
//! context invalidates the captures of all threads.

use super::{MODE, refused_begin as refused, run, status, with_stream_since_12_3 as with_stream};
use crate::common::invalid;
use crate::graph::launched;
use cuda_safe::capture::CaptureStatus;
use cuda_safe::graph::{Node, NodeId, kind};
use cuda_safe::{CUresult, Context, DeviceBuffer, Error, Graph, Invalid, Stream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Returns a graph with a conditional node, whose body runs if `value` is not zero.
fn conditional(context: &Context, value: u32) -> (Graph, Node<kind::Conditional>) {
    let mut graph = Graph::new(context).expect("a graph");
    let handle = graph.conditional_handle(context, Some(value));
    let node = graph.add_if(&[], handle.expect("a handle"), |_| Ok(()));
    (graph, node.expect("a node"))
}

fn buffer(stream: &Stream) -> DeviceBuffer<u32> {
    let buffer = DeviceBuffer::zeroed(stream, 4).expect("memory");
    stream.synchronize().expect("a wait");
    buffer
}

#[test]
fn captured_work_runs_if_its_body_does() {
    for (value, expected) in [(0, 0), (1, 8)] {
        with_stream(|context, stream| {
            let mut data = buffer(stream);
            let (graph, node) = conditional(context, value);
            let captured = stream.capture_into_body(graph, node, 0, &[], MODE, |stream| {
                assert_eq!(stream.capture_status()?, CaptureStatus::Active);
                data.fill(7)
            });
            let (mut graph, first) = captured.expect("a graph");
            assert_eq!(graph.nodes().expect("the nodes"), [node.id()]);
            let captured = stream.capture_into_body(graph, node, 0, &first, MODE, |_| data.fill(8));
            let (mut graph, last) = captured.expect("a graph");
            let joined = graph.edit_body(node, 0, |body| {
                assert_eq!(body.nodes()?.len(), 2);
                assert_eq!(body.dependencies(last[0])?, first);
                body.add_empty(&last)
            });
            joined.expect("the nodes belong to the body");
            let executable = graph.instantiate().expect("an executable graph");
            assert_eq!(invalid(executable.launch(stream)), Invalid::GraphBorrows);
            drop(executable);
            run(&graph, stream);
            assert_eq!(data.to_vec().expect("a copy"), [expected; 4]);
        });
    }
}

#[test]
fn a_body_within_a_body_gets_captured_work() {
    with_stream(|context, stream| {
        let mut data = buffer(stream);
        let (mut graph, outer) = conditional(context, 1);
        let handle = graph.conditional_handle(context, Some(1));
        let handle = handle.expect("a handle");
        let inner = graph.edit_body(outer, 0, |body| body.add_if(&[], handle, |_| Ok(())));
        let inner = inner.expect("a node");
        let captured = stream.capture_into_body(graph, inner, 0, &[], MODE, |_| data.fill(7));
        let (mut graph, last) = captured.expect("a graph");
        let nodes = graph.edit_body(inner, 0, Graph::nodes);
        assert_eq!(nodes.expect("the nodes"), last);
        let nodes = graph.edit_body(outer, 0, Graph::nodes);
        assert_eq!(nodes.expect("the nodes"), [inner.id()]);
        run(&graph, stream);
        assert_eq!(data.to_vec().expect("a copy"), [7; 4]);
    });
}

#[test]
fn a_refused_capture_into_a_body_returns_the_graph() {
    with_stream(|context, stream| {
        let begin = |graph, node, index, before: &[NodeId]| {
            stream.try_begin_capture_into_body(graph, node, index, before, MODE)
        };
        let (mut other, of_other) = conditional(context, 1);
        let (graph, node) = conditional(context, 1);
        let (why, graph) = refused(begin(graph, of_other, 0, &[]));
        assert!(matches!(why, Invalid::OtherGraphNode { .. }), "{why}");
        let (why, graph) = refused(begin(graph, node, 1, &[]));
        assert!(matches!(why, Invalid::NoSuchBody { count: 1, .. }), "{why}");
        // The nodes around a body are no dependencies within it.
        let (why, mut graph) = refused(begin(graph, node, 0, &[node.id()]));
        assert!(matches!(why, Invalid::OtherGraphNode { .. }), "{why}");
        let first = graph.edit_body(node, 0, |body| body.add_empty(&[]));
        let first = first.expect("a node").id();
        let (why, graph) = refused(begin(graph, node, 0, &[first, first]));
        assert!(matches!(why, Invalid::RepeatedDependency { .. }), "{why}");
        let capture = stream.begin_capture(MODE).expect("begins");
        let (why, graph) = refused(begin(graph, node, 0, &[first]));
        assert!(matches!(why, Invalid::OtherCapture { .. }), "{why}");
        drop(capture);
        // SAFETY: the graph outlives the borrowed one.
        let borrowed = unsafe { Graph::borrow_raw(other.as_raw(), context) }.expect("a graph");
        let (why, _) = refused(begin(borrowed, of_other, 0, &[]));
        assert_eq!(why, Invalid::ForeignGraph);
        other.add_empty(&[]).expect("the graph is as before");

        let kept = stream.capture_into_body::<Error>(graph, node, 0, &[first], MODE, |_| Ok(()));
        let (graph, last) = kept.expect("the graph is as before");
        assert_eq!(last, [first]);
        let executable = graph.instantiate().expect("an executable graph");
        // SAFETY: the graph uses no memory.
        unsafe { executable.launch_unchecked(stream) }.expect("a launch");
        stream.synchronize().expect("a wait");
    });
}

/// The driver destroys the body, so the graph cannot be used.
#[test]
fn a_failed_capture_into_a_body_releases_what_the_graph_owned() {
    with_stream(|context, stream| {
        let object = Arc::new(());
        let owning = || {
            let (mut graph, node) = conditional(context, 1);
            let own = Arc::clone(&object);
            let function = move || drop(Arc::clone(&own));
            graph.add_host_function(&[], function).expect("a node");
            (graph, node)
        };
        let (graph, node) = owning();
        let invalidated = stream.capture_into_body(graph, node, 0, &[], MODE, |stream| {
            // A query of a captured stream invalidates the capture.
            stream.is_complete().map(drop).expect_err("captured");
            Ok::<_, Error>(())
        });
        let code = invalidated.expect_err("the capture was invalidated").code();
        assert_eq!(code, Some(CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED));
        assert_eq!(Arc::strong_count(&object), 1);

        let (graph, node) = owning();
        let failed = stream.capture_into_body(graph, node, 0, &[], MODE, |_| Err(Error::Forked));
        assert_eq!(failed.expect_err("the error of the function"), Error::Forked);
        assert_eq!(Arc::strong_count(&object), 1);

        let (graph, node) = owning();
        let panics = || {
            let panics = |_: &Stream| panic!("on purpose");
            stream.capture_into_body::<Error>(graph, node, 0, &[], MODE, panics)
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(Arc::strong_count(&object), 1);
        assert_eq!(status(stream), CaptureStatus::None);
        stream.synchronize().expect("the stream is as before");
    });
}

/// The driver refuses some kinds of nodes in bodies when it instantiates the graph.
#[test]
fn a_captured_host_function_belongs_to_the_body_and_is_refused_there() {
    with_stream(|context, stream| {
        let object = Arc::new(());
        let own = Arc::clone(&object);
        let (graph, node) = conditional(context, 1);
        let captured = stream.capture_into_body(graph, node, 0, &[], MODE, |stream| {
            stream.capture_host_function(move || drop(Arc::clone(&own)))
        });
        let (mut graph, last) = captured.expect("a graph");
        assert_eq!(Arc::strong_count(&object), 2);
        let why = invalid(graph.instantiate());
        assert!(matches!(why, Invalid::Instantiation { .. }), "{why}");
        graph.edit_body(node, 0, |body| body.remove(last[0])).expect("the node is in the body");
        run(&graph, stream);
        drop(graph);
        assert_eq!(Arc::strong_count(&object), 1);
    });
}

#[test]
fn a_promise_about_captured_work_lasts_when_its_body_changes() {
    with_stream(|context, stream| {
        let mut data = buffer(stream);
        let (graph, node) = conditional(context, 1);
        let captured = stream.capture_into_body(graph, node, 0, &[], MODE, |_| data.fill(7));
        let (mut graph, last) = captured.expect("a graph");
        // SAFETY: the memory is alive until the launch is complete, and is used on this stream only.
        unsafe { graph.assume_owned() };
        let added = graph.edit_body(node, 0, |body| body.add_empty(&last));
        added.expect("a node");
        let executable = launched(&graph, stream);
        assert_eq!(data.to_vec().expect("a copy"), [7; 4]);
        drop(executable);

        let mut child = stream.capture(MODE, |_| data.fill(8)).expect("a graph");
        graph.edit_body(node, 0, |body| body.add_child(&last, &mut child)).expect("a node");
        let executable = graph.instantiate().expect("an executable graph");
        assert_eq!(invalid(executable.launch(stream)), Invalid::GraphBorrows);
    });
}
