//! Changes of executable graphs.

use crate::common::invalid;
use crate::graph::build::{Log, stage};
use crate::graph::{ONE, add_scale, elements, launched, own, scale};
use cuda_safe::graph::UpdateProblem;
use cuda_safe::graph::{Node, kind};
use cuda_safe::{Context, Error, ExecutableGraph, Graph, Invalid, PinnedBuffer, Stream};
use std::sync::{Arc, Weak};

#[test]
fn a_changed_kernel_runs_in_later_launches() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let mut data = own(&mut graph, &stream, &[1, 1, 1]);
    let node = add_scale(&mut graph, &[], &scale, &mut data, 2);
    let mut executable = launched(&graph, &stream);
    for factor in [3, 5] {
        let mut nodes = executable.nodes(&graph).expect("its graph");
        // SAFETY: as above.
        unsafe { nodes.set_kernel(node, &context, &scale, ONE, (&mut data, factor, 0, 3)) }
            .expect("a change");
        executable.launch(&stream).expect("a launch");
    }
    assert_eq!(elements(&mut executable, &mut data, &stream), [30; 3]);
}

#[test]
fn a_disabled_node_does_nothing() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let mut data = own(&mut graph, &stream, &[0; 3]);
    let node = graph.add_fill(&[], &mut data, 7).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    assert!(nodes.is_enabled(node).expect("a query"));
    nodes.set_enabled(node, false).expect("a change");
    assert!(!nodes.is_enabled(node).expect("a query"));
    nodes.set_fill(node, &mut data, 8).expect("a change");
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [0; 3]);
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_enabled(node, true).expect("a change");
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [8; 3]);
}

#[test]
fn copies_functions_and_events_are_changed() {
    let (context, stream, mut graph) = or_skip!(stage());
    let log = Log::default();
    let [first, second, mut target] = [1, 2, 0].map(|value| own(&mut graph, &stream, &[value; 4]));
    let events = [context.event(), context.event()].map(|its| its.expect("an event"));
    let copy = graph.add_copy(&[], &mut target, &first).expect("a node");
    let host = graph.add_host_function(&[], log.append("first")).expect("a node");
    let record = graph.add_event_record(&[host.id()], &events[0]).expect("a node");
    let wait = graph.add_event_wait(&[], &events[0]).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_copy(copy, &mut target, &second).expect("a change");
    nodes.set_host_function(host, log.append("second")).expect("a change");
    nodes.set_event_record(record, &events[1]).expect("a change");
    nodes.set_event_wait(wait, &events[1]).expect("a change");
    executable.launch(&stream).expect("a launch");
    events[1].synchronize().expect("the launch records it");
    assert_eq!(log.take(), ["second"]);
    assert_eq!(elements(&mut executable, &mut target, &stream), [2; 4]);
}

#[test]
fn a_change_that_makes_accesses_unordered_is_refused() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let [mut one, mut other] = [(); 2].map(|()| own(&mut graph, &stream, &[0; 4]));
    graph.add_fill(&[], &mut one, 1).expect("a node");
    let node = graph.add_fill(&[], &mut other, 2).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    let refused = nodes.set_fill(node, &mut one, 3);
    assert!(matches!(invalid(refused), Invalid::UnorderedAccess { .. }));
    nodes.set_fill(node, &mut other, 4).expect("a change");
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut one, &stream), [1; 4]);
}

#[test]
fn nodes_that_the_executable_graph_does_not_have_are_refused() {
    let (context, _stream, mut graph) = or_skip!(stage());
    let removed = graph.add_host_function(&[], || ()).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    graph.remove(removed).expect("a node");
    let added = graph.add_host_function(&[], || ()).expect("a node");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    for node in [removed, added] {
        let refused = nodes.set_host_function(node, || ());
        assert!(matches!(invalid(refused), Invalid::NoSuchNode { .. }));
    }
    let other = Graph::new(&context).expect("a graph");
    assert!(matches!(invalid(executable.nodes(&other)), Invalid::OtherGraph { .. }));
}

#[test]
fn a_child_graph_is_changed_as_a_whole() {
    let (context, stream, mut graph) = or_skip!(stage());
    let log = Log::default();
    let child = |word| {
        let mut child = Graph::new(&context).expect("a graph");
        child.add_host_function(&[], log.append(word)).expect("a node");
        child
    };
    let node = graph.add_child(&[], &mut child("first")).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_child(node, &child("second")).expect("a change");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    assert_eq!(log.take(), ["second"]);
}

#[test]
fn a_whole_graph_is_updated_from_one_with_the_same_shape() {
    let (context, stream, mut graph) = or_skip!(stage());
    let scale = scale(&context);
    let build = |graph: &mut Graph, value: i32, factor: i32| {
        let mut data = own(graph, &stream, &[0; 3]);
        let fill = graph.add_fill(&[], &mut data, value).expect("a node");
        add_scale(graph, &[fill.id()], &scale, &mut data, factor);
        (data, fill)
    };
    let (_first, fill) = build(&mut graph, 1, 1);
    let mut executable = launched(&graph, &stream);
    let mut second = Graph::new(&context).expect("a graph");
    let (mut data, _) = build(&mut second, 5, 3);
    executable.update(&second).expect("the same shape");
    assert!(matches!(invalid(second.instantiate()), Invalid::SecondExecutable { .. }));
    drop(second);
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [15; 3]);
    let mut nodes = executable.nodes(&graph).expect("its graph");
    assert!(nodes.is_enabled(fill).expect("the nodes are those of the first graph"));
    let mut theirs = own(&mut Graph::new(&context).expect("a graph"), &stream, &[0; 3]);
    let refused = nodes.set_fill(fill, &mut theirs, 1);
    assert!(matches!(invalid(refused), Invalid::BufferOfOtherGraph { .. }));
}

/// Returns a function that calls this one, and what tells whether it exists.
fn observed(function: impl Fn() + Send + 'static) -> (impl Fn() + Send + 'static, Weak<()>) {
    let token = Arc::new(());
    let exists = Arc::downgrade(&token);
    let observed = move || {
        let _token = &token;
        function();
    };
    (observed, exists)
}

#[test]
fn an_update_after_a_change_of_edges_keeps_what_each_node_uses() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let log = Log::default();
    let (first, exists) = observed(log.append("first"));
    let a = graph.add_host_function(&[], first).expect("a node");
    let b = graph.add_host_function(&[a.id()], log.append("second")).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    graph.remove_dependency(a, b).expect("an edge");
    graph.add_dependency(b, a).expect("no cycle");
    executable.update(&graph).expect("the same shape");
    // The node of `a` has the function of `b` now, and loses it.
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_host_function(a, log.append("third")).expect("a change");
    graph.set_host_function(a, || {}).expect("a change");
    executable.release_replaced();
    assert!(exists.upgrade().is_some(), "the node of b uses it");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    assert_eq!(log.take(), ["third", "first"]);
}

#[test]
fn an_update_after_a_node_was_replaced_keeps_what_each_node_uses() {
    let (_context, stream, mut graph) = or_skip!(stage());
    let log = Log::default();
    let a = graph.add_host_function(&[], log.append("first")).expect("a node");
    let (second, exists) = observed(log.append("second"));
    let b = graph.add_host_function(&[], second).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    graph.remove(a).expect("a node");
    graph.add_host_function(&[], log.append("third")).expect("a node");
    executable.update(&graph).expect("the same shape");
    // The node of `b` has the third function now, and loses it.
    let mut nodes = executable.nodes(&graph).expect("its graph");
    nodes.set_host_function(b, log.append("fourth")).expect("a change");
    graph.set_host_function(b, || {}).expect("a change");
    executable.release_replaced();
    assert!(exists.upgrade().is_some(), "the node of a uses it");
    executable.launch(&stream).expect("a launch");
    stream.synchronize().expect("a wait");
    let mut words = log.take();
    words.sort_unstable();
    assert_eq!(words, ["fourth", "second"]);
}

/// Adds host functions that append words, without edges.
fn functions<const N: usize>(
    graph: &mut Graph,
    log: &Log,
    words: [&'static str; N],
) -> [Node<kind::HostFunction>; N] {
    words.map(|word| graph.add_host_function(&[], log.append(word)).expect("a node"))
}

/// Adds edges, in this order.
fn connect(graph: &mut Graph, edges: &[(Node<kind::HostFunction>, Node<kind::HostFunction>)]) {
    for (from, to) in edges {
        graph.add_dependency(*from, *to).expect("an edge");
    }
}

/// Asserts that each node of the executable graph still has the work of its handle: exchanges the function of each
/// node, one after the other.
fn assert_paired<const N: usize>(
    executable: &mut ExecutableGraph,
    graph: &Graph,
    (log, stream): (&Log, &Stream),
    nodes: [Node<kind::HostFunction>; N],
    mut words: [&'static str; N],
) {
    let sorted = |mut words: Vec<&'static str>| {
        words.sort_unstable();
        words
    };
    for (index, node) in nodes.into_iter().enumerate() {
        let mut nodes = executable.nodes(graph).expect("its graph");
        nodes.set_host_function(node, log.append("new")).expect("a change");
        words[index] = "new";
        executable.launch(stream).expect("a launch");
        stream.synchronize().expect("a wait");
        assert_eq!(sorted(log.take()), sorted(words.to_vec()), "node {index}");
    }
}

#[test]
fn an_update_from_the_own_graph_pairs_each_node_with_itself() {
    let (context, stream, _) = or_skip!(stage());
    let log = Log::default();
    let words = ["a", "b", "c", "d"];
    type Build = fn(&mut Graph, [Node<kind::HostFunction>; 4]);
    let builds: [Build; 4] = [
        // Each node was the end of an edge for a while.
        |graph, [a, b, c, d]| {
            connect(graph, &[(a, b), (c, d), (a, d)]);
            for (from, to) in [(a, b), (a, d), (c, d)] {
                graph.remove_dependency(from, to).expect("an edge");
            }
        },
        |graph, [a, b, c, d]| connect(graph, &[(c, d), (b, d), (a, c), (a, b)]),
        |graph, [a, b, c, d]| connect(graph, &[(d, b), (d, a), (d, c)]),
        // A node in the place of another one.
        |graph, [a, b, c, d]| {
            let first = graph.add_empty(&[]).expect("a node");
            connect(graph, &[(c, a), (d, b)]);
            graph.add_dependency(first, d).expect("an edge");
            graph.remove(first).expect("a node");
            graph.add_empty(&[b.id()]).expect("a node");
            graph.add_empty(&[a.id()]).expect("a node");
        },
    ];
    for build in builds {
        let mut graph = Graph::new(&context).expect("a graph");
        let nodes = functions(&mut graph, &log, words);
        build(&mut graph, nodes);
        let mut executable = graph.instantiate().expect("an executable graph");
        executable.update(&graph).expect("the same nodes");
        assert_paired(&mut executable, &graph, (&log, &stream), nodes, words);
    }
}

#[test]
fn an_update_from_another_order_is_undone_by_one_from_the_own_graph() {
    let (context, stream, mut graph) = or_skip!(stage());
    let log = Log::default();
    let words = ["a", "b", "c", "d"];
    let nodes = functions(&mut graph, &log, words);
    let [a, b, c, d] = nodes;
    connect(&mut graph, &[(a, b), (c, d)]);
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut other = Graph::new(&context).expect("a graph");
    let [d, c, b, a] = functions(&mut other, &log, ["D", "C", "B", "A"]);
    connect(&mut other, &[(c, d), (a, b)]);
    executable.update(&other).expect("the same shape");
    executable.update(&graph).expect("the same nodes");
    assert_paired(&mut executable, &graph, (&log, &stream), nodes, words);
}

#[test]
fn an_update_from_the_own_graph_restores_changes_of_memory_if_its_nodes_are_as_before() {
    let (context, stream, mut graph) = or_skip!(stage());
    let mut data = own(&mut graph, &stream, &[0; 3]);
    let mut other = own(&mut graph, &stream, &[0; 3]);
    let fill = graph.add_fill(&[], &mut data, 1).expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut second = Graph::new(&context).expect("a graph");
    let mut theirs = own(&mut second, &stream, &[0; 3]);
    second.add_fill(&[], &mut theirs, 2).expect("a node");
    let mut change = |executable: &mut ExecutableGraph, graph: &Graph| {
        executable.nodes(graph).expect("its graph").set_fill(fill, &mut other, 3)
    };
    executable.update(&second).expect("the same shape");
    assert_eq!(invalid(change(&mut executable, &graph)), Invalid::UpdatedFromOtherGraph);
    executable.update(&graph).expect("the same nodes");
    change(&mut executable, &graph).expect("a change");
    let empty = graph.add_empty(&[]).expect("a node");
    graph.remove(empty).expect("a node");
    executable.update(&graph).expect("the same shape");
    assert_eq!(invalid(change(&mut executable, &graph)), Invalid::UpdatedFromOtherGraph);
    executable.launch(&stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut data, &stream), [1; 3]);
}

mod provoked {
    //! Updates that the driver refuses.

    use super::*;

    /// A graph of three host functions, or of one that is an event record instead, in a chain.
    fn chain(
        context: &Context,
        words: &[&'static str; 3],
        log: &Log,
        other: Option<usize>,
    ) -> Graph {
        let mut graph = Graph::new(context).expect("a graph");
        let event = context.event().expect("an event");
        let mut before = Vec::new();
        for (index, word) in words.iter().enumerate() {
            let node = match other == Some(index) {
                true => graph.add_event_record(&before, &event).expect("a node").id(),
                false => graph.add_host_function(&before, log.append(word)).expect("a node").id(),
            };
            before = vec![node];
        }
        graph
    }

    #[test]
    fn a_refused_change_of_several_nodes_changes_none() {
        let (context, stream, mut parent) = or_skip!(stage());
        let log = Log::default();
        let (old, new) = (["a", "b", "c"], ["A", "B", "C"]);
        let graph = chain(&context, &old, &log, None);
        let mut whole = graph.instantiate().expect("an executable graph");
        let node = parent.add_child(&[], &mut chain(&context, &old, &log, None)).expect("a node");
        let mut around = parent.instantiate().expect("an executable graph");
        for place in 0..3 {
            let other = chain(&context, &new, &log, Some(place));
            let error = whole.try_update(&other).expect_err("a node has another type");
            assert_eq!(error.problem, Some(UpdateProblem::NodeType));
            let mut nodes = around.nodes(&parent).expect("its graph");
            nodes.set_child(node, &other).expect_err("a node has another type");
            drop(other);
            for executable in [&whole, &around] {
                executable.launch(&stream).expect("a launch");
                stream.synchronize().expect("a wait");
                assert_eq!(log.take(), old, "{place}");
            }
        }
    }

    #[test]
    fn an_update_whose_copy_cannot_be_changed_changes_no_other_node() {
        let (context, stream, mut graph) = or_skip!(stage());
        let log = Log::default();
        let pinned = PinnedBuffer::<i32>::zeroed(&context, 3).expect("pinned");
        let pinned = graph.own_pinned(pinned);
        let mut data = own(&mut graph, &stream, &[0; 3]);
        let first = graph.add_host_function(&[], log.append("a")).expect("a node");
        let copy = graph.add_copy(&[first.id()], &mut data, &pinned).expect("a node");
        graph.add_host_function(&[copy.id()], log.append("b")).expect("a node");
        let mut executable = graph.instantiate().expect("an executable graph");
        let mut other = Graph::new(&context).expect("a graph");
        let (mut to, from) = (own(&mut other, &stream, &[0; 3]), own(&mut other, &stream, &[1; 3]));
        let first = other.add_host_function(&[], log.append("A")).expect("a node");
        let copy = other.add_copy(&[first.id()], &mut to, &from).expect("a node");
        other.add_host_function(&[copy.id()], log.append("B")).expect("a node");
        executable.update(&other).expect_err("the memory is of another kind");
        drop((other, to, from));
        executable.launch(&stream).expect("a launch");
        stream.synchronize().expect("a wait");
        assert_eq!(log.take(), ["a", "b"]);
    }

    #[test]
    fn an_update_from_another_shape_is_explained_and_changes_nothing() {
        let (context, stream, mut graph) = or_skip!(stage());
        let log = Log::default();
        graph.add_host_function(&[], log.append("run")).expect("a node");
        let mut executable = graph.instantiate().expect("an executable graph");
        let mut other = Graph::new(&context).expect("a graph");
        let its = other.add_empty(&[]).expect("a node");
        let error = executable.try_update(&other).expect_err("another type");
        assert_eq!(error.problem, Some(UpdateProblem::NodeType));
        assert_eq!(error.node, Some(its.id()));
        other.add_empty(&[]).expect("a node");
        let error = executable.try_update(&other).expect_err("another node");
        assert_eq!(error.problem, Some(UpdateProblem::Topology), "{error}");
        assert!(matches!(Error::from(error), Error::Driver(_)));
        executable.launch(&stream).expect("a launch");
        stream.synchronize().expect("a wait");
        assert_eq!(log.take(), ["run"]);
    }
}
