//! Graphs built by hand: nodes, edges, removal, clones, child graphs and queries.

use crate::common::{self, invalid};
use crate::graph::launched;
use cuda_safe::capture::CaptureMode;
use cuda_safe::graph::Node;
use cuda_safe::graph::{EdgeKind, InstantiateOptions, NodeType, kind, kind::Kind};
use cuda_safe::sys::CUgraphDebugDot_flags;
use cuda_safe::{Context, Error, Event, Graph, Invalid, Stream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

/// Returns a context with a stream and an empty graph.
pub(crate) fn stage() -> Option<(Context, Stream, Graph)> {
    let context = common::context_since(12, 3)?;
    let stream = context.stream().expect("a stream");
    let graph = Graph::new(&context).expect("a graph");
    Some((context, stream, graph))
}

/// A list to which host functions append, in the order in which they run.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    pub(crate) fn append(&self, word: &'static str) -> impl Fn() + Send + Sync + 'static {
        let list = Arc::clone(&self.0);
        move || list.lock().expect("no panic").push(word)
    }

    pub(crate) fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}

#[test]
fn nodes_run_in_the_order_of_their_edges_at_each_launch() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let log = Log::default();
    let last = graph.add_host_function(&[], log.append("last")).expect("a node");
    let first = graph.add_host_function(&[], log.append("first")).expect("a node");
    let join = graph.add_empty(&[first.id()]).expect("a node");
    graph.add_dependency(join, last).expect("an edge");
    let executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    for _ in 0..3 {
        executable.launch(&stream).expect("a launch");
        stream.synchronize().expect("a wait");
        assert_eq!(log.take(), ["first", "last"]);
    }
}

#[test]
fn the_objects_of_a_running_launch_live_until_it_is_complete() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let finished = Arc::new(AtomicU32::new(0));
    let its = Arc::clone(&finished);
    let sleep = || std::thread::sleep(std::time::Duration::from_millis(30));
    let first = graph.add_host_function(&[], sleep).expect("a node").id();
    graph
        .add_host_function(&[first], move || {
            its.fetch_add(1, Ordering::Relaxed);
        })
        .expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    executable.launch(&stream).expect("a launch");
    let (raw, objects) = executable.into_raw();
    drop(objects);
    let is_released = Arc::strong_count(&finished) == 1;
    assert!(!is_released || finished.load(Ordering::Relaxed) == 1);
    stream.synchronize().expect("a wait");
    assert_eq!(finished.load(Ordering::Relaxed), 1);
    // SAFETY: `into_raw` released ownership, and the launch is complete.
    let code = unsafe { cuda_safe::sys::cuGraphExecDestroy(raw) };
    assert!(code.is_success());
}

#[test]
fn a_panic_of_a_host_function_is_returned_once() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let panics = || panic!("out of cheese");
    graph.add_host_function(&[], panics).expect("a node");
    let executable = launched(&graph, &stream);
    stream.synchronize().expect("the launch continues");
    match executable.take_panic() {
        Err(Error::HostFunctionPanicked(words)) => assert_eq!(words, "out of cheese"),
        other => panic!("{other:?}"),
    }
    executable.take_panic().expect("nothing new");
}

#[test]
fn queries_list_nodes_and_edges() {
    let (_context, _stream, mut graph) = or_skip!(stage());
    let (a, b) = (graph.add_empty(&[]), graph.add_empty(&[]));
    let (a, b) = (a.expect("a node").id(), b.expect("a node").id());
    let c = graph.add_empty(&[a, b]).expect("a node").id();
    assert_eq!(graph.nodes().expect("a query"), [a, b, c]);
    // The driver returns the nodes of the other queries in any order.
    let mut roots = graph.roots().expect("a query");
    roots.sort_unstable();
    assert_eq!(roots, [a, b]);
    let mut before = graph.dependencies(c).expect("a query");
    before.sort_unstable();
    assert_eq!(before, [a, b]);
    assert_eq!(graph.dependents(a).expect("a query"), [c]);
    let edges = graph.edges().expect("a query");
    assert_eq!(edges.len(), 2);
    assert!(edges.iter().all(|edge| edge.to == c && edge.kind == EdgeKind::Full));
    assert_eq!(graph.node_type(c).expect("it exists"), kind::Empty::TYPE);

    graph.remove_dependency(a, c).expect("an edge");
    assert_eq!(graph.dependencies(c).expect("a query"), [b]);
    graph.remove(b).expect("a node");
    assert_eq!(graph.nodes().expect("a query"), [a, c]);
    assert_eq!(graph.edges().expect("a query"), []);
}

#[test]
fn handles_of_removed_nodes_are_errors_even_after_their_slot_is_used_again() {
    let (_context, _stream, mut graph) = or_skip!(stage());
    let removed = graph.add_empty(&[]).expect("a node");
    graph.remove(removed).expect("a node");
    let again = graph.add_empty(&[]).expect("a node");
    assert_ne!(removed, again);
    for refused in [
        graph.remove(removed),
        graph.add_empty(&[removed.id()]).map(drop),
        graph.add_dependency(again, removed),
        graph.node_type(removed).map(drop),
        graph.dependencies(removed).map(drop),
    ] {
        assert!(matches!(invalid(refused), Invalid::NoSuchNode { .. }));
    }
    assert_eq!(graph.nodes().expect("a query"), [again.id()]);
}

#[test]
fn nodes_keep_their_objects_while_others_change_and_are_removed() {
    const NODES: usize = if cfg!(miri) { 10 } else { 50 };
    const STEPS: usize = if cfg!(miri) { 40 } else { 400 };
    let (context, _stream, mut graph) = or_skip!(stage());
    let events: Vec<Event> = (0..NODES).map(|_| context.event().expect("an event")).collect();
    let mut nodes: Vec<Option<(Node<kind::EventRecord>, usize)>> = vec![None; NODES];
    for step in 0..STEPS {
        let (place, chosen) = (step * 7 % NODES, step * 3 % NODES);
        let event = &events[chosen];
        nodes[place] = match nodes[place] {
            None => Some((graph.add_event_record(&[], event).expect("a node"), chosen)),
            Some((node, _)) if step % 4 == 0 => {
                graph.remove(node).expect("a node");
                None
            }
            Some((node, _)) => {
                graph.set_event_record(node, event).expect("a change");
                Some((node, chosen))
            }
        };
        for (node, index) in nodes.iter().flatten() {
            let found = graph.node_event(*node).expect("it exists").map(Event::as_raw);
            assert_eq!(found, Some(events[*index].as_raw()), "after step {step}");
        }
    }
}

#[test]
fn handles_of_another_graph_are_errors() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let mut other = Graph::new(&context).expect("a graph");
    let theirs = other.add_empty(&[]).expect("a node");
    let ours = graph.add_empty(&[]).expect("a node");
    for refused in [
        graph.add_empty(&[theirs.id()]).map(drop),
        graph.add_dependency(ours, theirs),
        graph.remove(theirs),
    ] {
        assert!(matches!(invalid(refused), Invalid::OtherGraphNode { .. }));
    }
}

#[test]
fn a_node_of_another_kind_is_an_error() {
    let (_context, _stream, mut graph) = or_skip!(stage());
    let node = graph.add_empty(&[]).expect("a node");
    assert_eq!(graph.typed::<kind::Empty>(node.id()).expect("its kind"), node);
    let why = invalid(graph.typed::<kind::Kernel>(node.id()));
    assert!(matches!(why, Invalid::NodeKind { .. }), "{why}");
}

#[test]
fn an_unchanged_clone_has_nodes_of_its_own() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let log = Log::default();
    let node = graph.add_host_function(&[], log.append("run")).expect("a node");
    let mut clone = graph.try_clone().expect("a clone");
    let its = clone.node_in_clone(node).expect("it was cloned");
    assert_ne!(its, node);
    assert_eq!(clone.nodes().expect("a query"), [its.id()]);
    let later = graph.add_empty(&[]).expect("a node");
    assert!(matches!(invalid(clone.node_in_clone(later)), Invalid::NoSuchNode { .. }));
    drop(graph);
    let executable = clone.instantiate().expect("an executable graph");
    drop(clone);
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    assert_eq!(log.take(), ["run"]);
}

#[test]
fn a_child_graph_is_a_copy() {
    let (context, stream, mut graph) = or_skip!(stage());
    let log = Log::default();
    let mut child = Graph::new(&context).expect("a graph");
    child.add_host_function(&[], log.append("child")).expect("a node");
    let before = graph.add_host_function(&[], log.append("before")).expect("a node");
    let node = graph.add_child(&[before.id()], &mut child).expect("a node");
    graph.add_host_function(&[node.id()], log.append("after")).expect("a node");
    child.add_host_function(&[], log.append("later")).expect("a node");
    drop(child);
    let _executable = launched(&graph, &stream);
    stream.synchronize().expect("a wait");
    assert_eq!(log.take(), ["before", "child", "after"]);
}

#[test]
fn a_child_graph_can_be_moved() {
    let (context, stream, mut graph) = or_skip!(stage());
    or_skip!(common::since(12, 9));
    let log = Log::default();
    let mut child = Graph::new(&context).expect("a graph");
    child.add_host_function(&[], log.append("child")).expect("a node");
    let node = graph.add_child_moved(&[], child).expect("a node");
    assert_eq!(graph.nodes().expect("a query"), [node.id()]);
    let executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    assert_eq!(log.take(), ["child"]);
}

#[test]
fn a_child_graph_that_cannot_be_moved_is_returned() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let removed = graph.add_empty(&[]).expect("a node");
    graph.remove(removed).expect("a node");
    let mut child = Graph::new(&context).expect("a graph");
    let its = child.add_empty(&[]).expect("a node");
    let rejected = graph.try_add_child_moved(&[removed.id()], child);
    let mut child = rejected.expect_err("a removed node").value;
    assert_eq!(child.nodes().expect("a query"), [its.id()]);
}

#[test]
fn event_nodes_order_a_launch_with_other_streams() {
    let (context, stream, mut graph) = or_skip!(stage());
    let other = context.stream().expect("a stream");
    let [ready, done] = common::events(&context);
    let log = Log::default();
    let wait = graph.add_event_wait(&[], &ready).expect("a node");
    let node = graph.add_host_function(&[wait.id()], log.append("graph"));
    let record = graph.add_event_record(&[node.expect("a node").id()], &done).expect("a node");
    let event = graph.node_event(record).expect("it exists");
    assert_eq!(event.map(|its| its.as_raw()), Some(done.as_raw()));
    let executable = graph.instantiate().expect("an executable graph");
    drop(graph);
    other.launch_host_function(log.append("before")).expect("a function");
    ready.record(&other).expect("a record");
    executable.launch(&stream).expect("a launch");
    other.wait_event(&done).expect("a wait");
    other.launch_host_function(log.append("after")).expect("a function");
    other.synchronize().expect("a wait");
    assert_eq!(log.take(), ["before", "graph", "after"]);
}

#[test]
fn captured_graphs_list_their_nodes_and_are_not_launched_by_safe_code() {
    common::child::in_child(&[], || {
        let (context, stream, _) = or_skip!(stage());
        let [first, second] = common::events(&context);
        let graph = stream.capture(CaptureMode::default(), |stream| {
            first.record_external(stream)?;
            stream.wait_external(&second)
        });
        let mut graph = graph.expect("a graph");
        let nodes = graph.nodes().expect("a query");
        assert_eq!(nodes.len(), 2);
        assert_eq!(graph.node_type(nodes[0]).expect("a node"), kind::EventRecord::TYPE);
        assert_eq!(graph.node_type(nodes[1]).expect("a node"), kind::EventWait::TYPE);
        assert_eq!(graph.edges().expect("a query").len(), 1);
        let after = graph.add_empty(&[nodes[1]]).expect("a node");
        assert_eq!(graph.dependencies(after).expect("a query"), [nodes[1]]);

        let executable = graph.instantiate().expect("an executable graph");
        assert_eq!(invalid(executable.launch(&stream)), Invalid::GraphBorrows);
        // SAFETY: the graph uses only events, which it retains.
        unsafe { graph.assume_owned() };
        let _executable = launched(&graph, &stream);
        stream.synchronize().expect("a wait");
    });
}

#[test]
fn a_drawing_names_the_nodes() {
    let (_context, _stream, mut graph) = or_skip!(stage());
    let first = graph.add_empty(&[]).expect("a node");
    graph.add_host_function(&[first.id()], || ()).expect("a node");
    let folder = common::scratch();
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join(format!("graph-{}.dot", std::process::id()));
    let verbose = CUgraphDebugDot_flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;
    graph.write_dot(&path, verbose).expect("a file");
    let text = std::fs::read_to_string(&path).expect("a file");
    std::fs::remove_file(&path).expect("a file");
    assert!(text.starts_with("digraph"), "{text}");
    assert!(text.contains("->"), "{text}");
}

#[test]
fn flags_of_an_executable_graph_can_be_read_back() {
    let (_context, stream, graph) = or_skip!(stage());
    let options = InstantiateOptions {
        auto_free_on_launch: true,
        upload: Some(&stream),
        ..Default::default()
    };
    let executable = graph.instantiate_with(&options).expect("an executable graph");
    assert_eq!(executable.flags().expect("a query") & 1, 1);
    executable.upload(&stream).expect("an upload");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    let both =
        InstantiateOptions { auto_free_on_launch: true, device_launch: true, ..Default::default() };
    assert_eq!(invalid(graph.instantiate_with(&both)), Invalid::InstantiateOptions);
}

#[test]
fn a_launch_on_a_captured_stream_is_refused_and_the_capture_continues() {
    common::child::in_child(&[], || {
        let (context, stream, _) = or_skip!(stage());
        let executable = Graph::new(&context).and_then(|graph| graph.instantiate());
        let executable = executable.expect("an executable graph");
        executable.launch(&stream).expect("a launch");
        let graph = stream.capture::<Error>(CaptureMode::default(), |stream| {
            assert_eq!(invalid(executable.launch(stream)), Invalid::StreamIsCaptured);
            Ok(())
        });
        graph.expect("a valid capture");
    });
}

#[test]
fn threads_launch_one_executable_graph() {
    let (context, _stream, mut graph) = or_skip!(stage());
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let count = || {
        RUNS.fetch_add(1, Ordering::Relaxed);
    };
    graph.add_host_function(&[], count).expect("a node");
    let executable = graph.instantiate().expect("an executable graph");
    let launches = if cfg!(miri) { 3 } else { 25 };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let stream = context.stream().expect("a stream");
                for _ in 0..launches {
                    executable.launch(&stream).expect("a launch");
                }
                stream.synchronize().expect("a wait");
            });
        }
    });
    assert_eq!(RUNS.load(Ordering::Relaxed), 4 * launches);
}

mod provoked {
    //! Calls that the driver refuses.

    use super::*;

    #[test]
    fn a_repeated_dependency_and_wrong_edges_are_named() {
        let (_context, _stream, mut graph) = or_skip!(stage());
        let (a, b) = (graph.add_empty(&[]), graph.add_empty(&[]));
        let (a, b) = (a.expect("a node").id(), b.expect("a node").id());
        let why = invalid(graph.add_empty(&[a, a]));
        assert!(matches!(why, Invalid::RepeatedDependency { .. }), "{why}");
        let many = (0..20).map(|_| graph.add_empty(&[]).expect("a node").id());
        let mut many: Vec<_> = many.collect();
        graph.add_empty(&many).expect("each node is there once");
        many.push(many[3]);
        let why = invalid(graph.add_empty(&many));
        assert!(matches!(why, Invalid::RepeatedDependency { .. }), "{why}");
        graph.add_dependency(a, b).expect("an edge");
        let edges = graph.edges().expect("a query").len();
        for refused in [
            graph.add_dependency(a, b),
            graph.add_dependency(a, a),
            graph.remove_dependency(b, a),
            graph.add_dependency_with(b, a, EdgeKind::Programmatic),
        ] {
            assert!(matches!(invalid(refused), Invalid::Edge { .. }));
        }
        assert_eq!(graph.edges().expect("a query").len(), edges);
    }

    #[test]
    fn an_edge_that_closes_a_cycle_is_refused() {
        let (_context, stream, mut graph) = or_skip!(stage());
        let nodes: Vec<_> = (0..4).map(|_| graph.add_empty(&[]).expect("a node").id()).collect();
        let [a, b, c, d] = nodes[..] else { unreachable!() };
        let edges = [(d, c), (c, b), (b, a)];
        for (from, to) in edges {
            graph.add_dependency(from, to).expect("an edge");
            let refused = graph.add_dependency(to, d);
            assert!(matches!(invalid(refused), Invalid::Edge { .. }));
        }
        graph.instantiate().expect("no cycle");
        graph.remove_dependency(c, b).expect("an edge");
        graph.add_dependency(a, d).expect("the path is gone");
        let refused = graph.add_dependency(c, b);
        assert!(matches!(invalid(refused), Invalid::Edge { .. }));
        graph.remove(a).expect("removed");
        graph.add_dependency(c, b).expect("the path is gone");

        // The slots of removed nodes are used again.
        for node in [b, c] {
            graph.remove(node).expect("removed");
        }
        let before = graph.add_empty(&[]).expect("a node").id();
        let after = graph.add_empty(&[d, before]).expect("a node").id();
        for (from, to) in [(after, d), (after, before)] {
            let refused = graph.add_dependency(from, to);
            assert!(matches!(invalid(refused), Invalid::Edge { .. }));
        }

        let mut captured = stream
            .capture(Default::default(), |stream| {
                stream.capture_host_function(|| {})?;
                stream.capture_host_function(|| {})
            })
            .expect("a graph");
        let edge = captured.edges().expect("a query")[0];
        let refused = captured.add_dependency(edge.to, edge.from);
        assert!(matches!(invalid(refused), Invalid::Edge { .. }));
    }

    #[test]
    fn only_kernels_copies_and_fills_are_disabled() {
        let (_context, _stream, mut graph) = or_skip!(stage());
        let node = graph.add_empty(&[]).expect("a node");
        let mut executable = graph.instantiate().expect("an executable graph");
        let mut nodes = executable.nodes(&graph).expect("its graph");
        nodes.set_enabled(node, false).expect_err("an empty node");
        let _: NodeType = graph.node_type(node).expect("it exists");
    }
}
