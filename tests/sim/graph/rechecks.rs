//! What is found out about a graph once is found out again after each change.

use crate::prelude::*;
use cuda_safe::graph::NodeId;

const ONE: LaunchConfig = LaunchConfig::linear(1, 32);

fn nothing(context: &Context) -> TypedKernel<()> {
    let module = Module::from_ptx(context, include_str!("../../kernels/vector.ptx"));
    let kernel = module.and_then(|module| module.kernel("nothing"));
    kernel.and_then(|kernel| kernel.typed()).expect("no parameters")
}

/// A graph that fills two buffers, one node after another, and that was instantiated.
struct Stage {
    stream: Stream,
    graph: Graph,
    data: GraphBuffer<u8>,
    other: GraphBuffer<u8>,
    nodes: [NodeId; 3],
    last: cuda_safe::graph::Node<kind::Fill>,
}

fn with_stage(body: impl FnOnce(&Context, &mut Stage)) {
    let (_end, context, stream) = in_child!(on_stream());
    let mut graph = Graph::new(&context).expect("a graph");
    let mut own = || {
        let buffer = DeviceBuffer::<u8>::zeroed(&stream, 8).expect("memory");
        graph.own(buffer).expect("the graph owns it")
    };
    let (mut data, mut other) = (own(), own());
    let first = graph.add_fill(&[], &mut data, 1).expect("a node").id();
    let second = graph.add_fill(&[first], &mut data, 2).expect("a node").id();
    let last = graph.add_fill(&[], &mut other, 3).expect("a node");
    let mut stage = Stage { stream, graph, data, other, nodes: [first, second, last.id()], last };
    assert!(stage.is_ordered());
    body(&context, &mut stage);
}

impl Stage {
    /// Returns whether the accesses are ordered. Asks twice, because the answer may be remembered.
    fn is_ordered(&self) -> bool {
        let answers = [(); 2].map(|()| match self.graph.instantiate() {
            Ok(_) => true,
            Err(Error::Invalid(why)) if matches!(*why, Invalid::UnorderedAccess { .. }) => false,
            Err(other) => panic!("{other:?}"),
        });
        assert_eq!(answers[0], answers[1]);
        answers[0]
    }
}

#[test]
fn a_new_node_is_checked() {
    with_stage(|_, stage| {
        let node = stage.graph.add_fill(&[], &mut stage.data, 4);
        assert!(!stage.is_ordered());
        stage.graph.remove(node.expect("a node")).expect("removed");
        assert!(stage.is_ordered());
    });
}

#[test]
fn changed_edges_are_checked() {
    with_stage(|_, stage| {
        let [first, second, _] = stage.nodes;
        stage.graph.remove_dependency(first, second).expect("an edge");
        assert!(!stage.is_ordered());
        stage.graph.add_dependency(second, first).expect("an edge");
        assert!(stage.is_ordered());
        stage.graph.remove_dependency(second, first).expect("an edge");
        assert!(!stage.is_ordered());
    });
}

#[test]
fn a_removed_node_is_checked() {
    with_stage(|_, stage| {
        let [_, second, _] = stage.nodes;
        stage.graph.add_fill(&[second], &mut stage.data, 4).expect("a node");
        assert!(stage.is_ordered());
        // The edges of the node are removed with it.
        stage.graph.remove(second).expect("removed");
        assert!(!stage.is_ordered());
    });
}

#[test]
fn changed_memory_of_a_node_is_checked() {
    with_stage(|_, stage| {
        let last = stage.last;
        stage.graph.set_fill(last, &mut stage.data, 4).expect("a change");
        assert!(!stage.is_ordered());
        stage.graph.set_fill(last, &mut stage.other, 4).expect("a change");
        assert!(stage.is_ordered());
    });
}

#[test]
fn the_nodes_of_a_changed_body_are_checked() {
    with_stage(|context, stage| {
        let graph = &mut stage.graph;
        let handle = graph.conditional_handle(context, Some(1)).expect("a handle");
        let node = graph.add_if(&[], handle, |body| body.add_empty(&[]).map(drop));
        let node = node.expect("a node");
        assert!(stage.is_ordered());
        let data = &mut stage.data;
        let changed = stage.graph.edit_body(node, 0, |body| {
            body.add_fill(&[], data, 5)?;
            Ok(())
        });
        changed.expect("a body");
        assert!(!stage.is_ordered());
    });
}

#[test]
fn an_update_checks_the_changed_graph() {
    with_stage(|_, stage| {
        let mut executable = stage.graph.instantiate().expect("an executable graph");
        executable.update(&stage.graph).expect("no change");
        stage.graph.set_fill(stage.last, &mut stage.data, 4).expect("a change");
        for _ in 0..2 {
            let refused = executable.update(&stage.graph).expect_err("no order");
            let Error::Invalid(why) = refused else { panic!("{refused:?}") };
            assert!(matches!(*why, Invalid::UnorderedAccess { .. }));
        }
    });
}

#[test]
fn a_change_to_other_memory_is_checked_after_one_to_a_part_of_the_memory() {
    with_stage(|_, stage| {
        let last = stage.last;
        let mut executable = stage.graph.instantiate().expect("an executable graph");
        let mut nodes = executable.nodes(&stage.graph).expect("its graph");
        let part = stage.other.slice_mut(2..4).expect("a part");
        nodes.set_fill(last, part, 4).expect("a part of its memory");
        nodes.set_fill(last, &mut stage.other, 4).expect("all of its memory");
        let refused = nodes.set_fill(last, stage.data.slice_mut(0..1).expect("a part"), 4);
        let Err(Error::Invalid(why)) = refused else { panic!("{refused:?}") };
        assert!(matches!(*why, Invalid::UnorderedAccess { .. }));
    });
}

#[test]
fn a_launch_comes_after_the_writes_of_memory_that_entered_the_graph_later() {
    with_stage(|context, stage| {
        let waits = |stage: &Stage| {
            let executable = stage.graph.instantiate().expect("an executable graph");
            cuda_sim::clear_calls();
            executable.launch(&stage.stream).expect("a launch");
            let calls = cuda_sim::calls();
            calls.iter().filter(|call| call.function == "cuStreamWaitEvent").count()
        };
        let before = waits(stage);
        // The launches of one executable graph are the work before those of the next one.
        let before = (before, waits(stage)).1;
        let shared = DeviceBuffer::from_slice(&stage.stream, &[7u8; 8]).expect("memory");
        let shared = shared.share().expect("an event");
        let [_, second, _] = stage.nodes;
        stage.graph.add_copy(&[second], &mut stage.data, &shared).expect("a node");
        assert_eq!(waits(stage), before + 1);
        stage.stream.synchronize().expect("a wait");
        // Retries deferred releases.
        drop(context.event().expect("an event"));
    });
}

#[test]
fn an_object_that_a_change_brings_between_updates_is_released_after_a_later_update() {
    let (_end, context, stream) = in_child!(on_stream());
    let kernel = nothing(&context);
    let graph = || {
        let mut graph = Graph::new(&context).expect("a graph");
        // SAFETY: the kernel accesses nothing.
        let node = unsafe { graph.add_kernel(&[], &context, &kernel, ONE, ()) };
        (graph, node.expect("a node"))
    };
    let ((own, node), (one, _), (two, _)) = (graph(), graph(), graph());
    let mut executable = own.instantiate().expect("an executable graph");
    executable.launch(&stream).expect("a launch");
    for graph in [&one, &two] {
        executable.update(graph).expect("the same nodes");
    }
    let other = nothing(&context);
    let mut nodes = executable.nodes(&own).expect("its graph");
    // SAFETY: the kernel accesses nothing.
    unsafe { nodes.set_kernel(node, &context, &other, ONE, ()) }.expect("a change");
    drop(other);
    executable.launch(&stream).expect("the module is loaded");
    assert_eq!(cuda_sim::alive().modules, 2);
    for graph in [&one, &two].repeat(4) {
        executable.update(graph).expect("the same nodes");
    }
    stream.synchronize().expect("a wait");
    // Retries deferred releases.
    drop(context.event().expect("an event"));
    assert_eq!(cuda_sim::alive().modules, 1);
}
