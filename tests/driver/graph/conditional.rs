//! Conditional nodes. The kernels that set handles need no library: the driver has the function.

use crate::common::{self, invalid};
use crate::graph::build::stage;
use crate::graph::{elements, launched, own, scale};
use crate::green::{alone, partition, resource};
use crate::module::kernels::{CONDITIONAL, VECTOR, kernel};
use cuda_safe::graph::GraphBuffer;
use cuda_safe::graph::{ConditionalHandle, Node, kind};
use cuda_safe::{Context, Graph, Invalid, LaunchConfig, Result, Stream, TypedKernel};
use std::panic::{AssertUnwindSafe, catch_unwind};

type Choose = TypedKernel<(ConditionalHandle, u32)>;
type CountDown = TypedKernel<(ConditionalHandle, &'static mut [u32])>;

const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

/// A graph with a buffer of one element, and the kernels that set handles.
struct Stage {
    context: Context,
    stream: Stream,
    graph: Graph,
    data: GraphBuffer<u32>,
    choose: Choose,
}

impl Stage {
    fn new() -> Option<Self> {
        let (context, stream, mut graph) = stage()?;
        Some(Self {
            data: own(&mut graph, &stream, &[0]),
            choose: kernel(&context, CONDITIONAL, "choose"),
            context,
            stream,
            graph,
        })
    }

    fn handle(&mut self, default: Option<u32>) -> ConditionalHandle {
        let handle = self.graph.conditional_handle(&self.context, default);
        handle.expect("a handle")
    }

    /// Adds a kernel that sets a handle.
    fn set(&mut self, handle: ConditionalHandle, value: u32) -> Node<kind::Kernel> {
        let Self { context, graph, choose, .. } = self;
        // SAFETY: the kernel sets the handle that it gets.
        let node = unsafe { graph.add_kernel(&[], context, choose, ONE, (handle, value)) };
        node.expect("a node")
    }

    /// Launches the graph and returns the element.
    fn run(mut self) -> u32 {
        let mut executable = launched(&self.graph, &self.stream);
        elements(&mut executable, &mut self.data, &self.stream)[0]
    }
}

/// Adds a fill to a body.
fn fill(body: &mut Graph, data: &mut GraphBuffer<u32>, value: u32) -> Result<()> {
    body.add_fill(&[], data, value).map(drop)
}

#[test]
fn a_body_runs_if_a_kernel_sets_its_handle() {
    for (value, expected) in [(0, 0), (1, 7), (5, 7)] {
        let mut stage = or_skip!(Stage::new());
        let handle = stage.handle(None);
        let set = stage.set(handle, value);
        let (graph, data) = (&mut stage.graph, &mut stage.data);
        graph.add_if(&[set.id()], handle, |body| fill(body, data, 7)).expect("a node");
        assert_eq!(stage.run(), expected, "{value}");
    }
}

#[test]
fn one_of_two_bodies_runs_and_both_may_write_the_same_memory() {
    for (value, expected) in [(0, 2), (1, 1)] {
        let mut stage = or_skip!(Stage::new());
        or_skip!(common::since(12, 8));
        let handle = stage.handle(None);
        let set = stage.set(handle, value);
        let (graph, data) = (&mut stage.graph, std::cell::RefCell::new(&mut stage.data));
        let one = |body: &mut Graph, value| fill(body, *data.borrow_mut(), value);
        graph
            .add_if_else(&[set.id()], handle, |body| one(body, 1), |body| one(body, 2))
            .expect("a node");
        assert_eq!(stage.run(), expected, "{value}");
    }
}

#[test]
fn a_switch_runs_the_body_of_its_value_or_none() {
    for (value, expected) in [(0, 10), (2, 12), (3, 0)] {
        let mut stage = or_skip!(Stage::new());
        or_skip!(common::since(12, 8));
        let handle = stage.handle(None);
        let set = stage.set(handle, value);
        let (graph, data) = (&mut stage.graph, &mut stage.data);
        graph
            .add_switch(&[set.id()], handle, 3, |index, body| fill(body, data, 10 + index))
            .expect("a node");
        assert_eq!(stage.run(), expected, "{value}");
    }
}

/// The idea of NVIDIA's sample of conditional nodes: a loop whose kernel counts down and ends it, and then
/// a branch.
#[test]
fn a_loop_counts_down_and_a_branch_follows() {
    let mut stage = or_skip!(Stage::new());
    let (context, stream, graph) = (&stage.context, &stage.stream, &mut stage.graph);
    let count_down: CountDown = kernel(context, CONDITIONAL, "count_down");
    let scale = scale(context);
    let (mut left, mut product) = (own(graph, stream, &[5_u32]), own(graph, stream, &[1_i32]));

    let again = graph.conditional_handle(context, Some(1)).expect("a handle");
    let repeat = graph.add_while(&[], again, |body| {
        // SAFETY: the kernel doubles one element.
        unsafe { body.add_kernel(&[], context, &scale, ONE, (&mut product, 2, 0, 1)) }?;
        // SAFETY: the kernel decrements one element and sets the handle that it gets.
        unsafe { body.add_kernel(&[], context, &count_down, ONE, (again, &mut left)) }?;
        Ok(())
    });
    let branch = graph.conditional_handle(context, Some(1)).expect("a handle");
    graph
        .add_if(&[repeat.expect("a node").id()], branch, |body| {
            // SAFETY: the kernel adds 10 to one element.
            unsafe { body.add_kernel(&[], context, &scale, ONE, (&mut product, 1, 10, 1)) }?;
            Ok(())
        })
        .expect("a node");

    let mut executable = launched(graph, stream);
    assert_eq!(elements(&mut executable, &mut product, stream), [42]);
}

#[test]
fn without_a_default_the_value_persists_from_launch_to_launch() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(None);
    let (graph, data) = (&mut stage.graph, &mut stage.data);
    let branch = graph.add_if(&[], handle, |body| fill(body, data, 7)).expect("a node");
    let set = stage.set(handle, 1);
    stage.graph.add_dependency(branch, set).expect("an edge");
    let mut executable = stage.graph.instantiate().expect("an executable graph");
    // The value of the first launch is 0, or what an earlier handle of the process has left.
    executable.launch(&stage.stream).expect("a launch");
    executable.launch(&stage.stream).expect("a launch");
    assert_eq!(elements(&mut executable, &mut stage.data, &stage.stream), [7]);
}

#[test]
fn conditional_nodes_are_nested_with_handles_of_the_graph_and_of_a_body() {
    let mut stage = or_skip!(Stage::new());
    let (outer, inner) = (stage.handle(Some(1)), stage.handle(Some(1)));
    let (context, graph, data) = (&stage.context, &mut stage.graph, &mut stage.data);
    graph
        .add_if(&[], outer, |body| {
            body.add_if(&[], inner, |body| {
                let innermost = body.conditional_handle(context, Some(1))?;
                body.add_if(&[], innermost, |body| fill(body, data, 7))?;
                Ok(())
            })?;
            Ok(())
        })
        .expect("nodes");
    assert_eq!(stage.run(), 7);
}

#[test]
fn nodes_in_bodies_are_changed_in_the_executable_graph() {
    let mut stage = or_skip!(Stage::new());
    let (outer, inner) = (stage.handle(Some(1)), stage.handle(Some(1)));
    let (graph, data) = (&mut stage.graph, &mut stage.data);
    let mut node = None;
    graph
        .add_if(&[], outer, |body| {
            body.add_if(&[], inner, |body| {
                node = Some(body.add_fill(&[], &mut *data, 7)?);
                Ok(())
            })?;
            Ok(())
        })
        .expect("nodes");
    let node = node.expect("the body was built");
    let mut executable = graph.instantiate().expect("an executable graph");
    executable.launch(&stage.stream).expect("a launch");
    let mut nodes = executable.nodes(graph).expect("its graph");
    nodes.set_fill(node, &mut *data, 8).expect("a change");
    executable.launch(&stage.stream).expect("a launch");
    assert_eq!(elements(&mut executable, data, &stage.stream), [8]);
}

#[test]
fn a_change_in_a_body_that_makes_accesses_unordered_is_refused() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(Some(1));
    let (graph, data) = (&mut stage.graph, &mut stage.data);
    let mut other = own(graph, &stage.stream, &[0_u32]);
    graph.add_fill(&[], &mut *data, 1).expect("a node");
    let mut node = None;
    graph
        .add_if(&[], handle, |body| {
            node = Some(body.add_fill(&[], &mut other, 7)?);
            Ok(())
        })
        .expect("a node");
    let mut executable = graph.instantiate().expect("an executable graph");
    let mut nodes = executable.nodes(graph).expect("its graph");
    let refused = nodes.set_fill(node.expect("a node"), data, 8);
    assert!(matches!(invalid(refused), Invalid::UnorderedAccess { .. }));
}

#[test]
fn nodes_in_bodies_are_not_changed_after_an_update_from_other_edges() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(Some(1));
    let (graph, data) = (&mut stage.graph, &mut stage.data);
    let mut nodes = None;
    let node = graph
        .add_if(&[], handle, |body| {
            let first = body.add_fill(&[], &mut *data, 1)?;
            nodes = Some((first, body.add_fill(&[first.id()], &mut *data, 2)?));
            Ok(())
        })
        .expect("nodes");
    let (first, second) = nodes.expect("the body was built");
    let mut executable = graph.instantiate().expect("an executable graph");
    graph
        .edit_body(node, 0, |body| {
            body.remove_dependency(first, second)?;
            body.add_dependency(second, first)
        })
        .expect("no cycle");
    executable.update(graph).expect("the same shape");
    executable.launch(&stage.stream).expect("a launch");
    assert_eq!(elements(&mut executable, data, &stage.stream), [1]);
    let mut nodes = executable.nodes(graph).expect("its graph");
    let refused = nodes.set_fill(first, &mut *data, 3);
    assert!(matches!(invalid(refused), Invalid::UpdatedFromOtherGraph));
}

#[test]
fn a_body_conflicts_with_nodes_outside_that_no_edge_orders() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(Some(1));
    let (graph, data) = (&mut stage.graph, &mut stage.data);
    let first = graph.add_fill(&[], &mut *data, 1).expect("a node");
    let branch = graph.add_if(&[], handle, |body| fill(body, data, 7)).expect("a node");
    assert!(matches!(invalid(graph.instantiate()), Invalid::UnorderedAccess { .. }));
    graph.add_dependency(first, branch).expect("an edge");
    assert_eq!(stage.run(), 7);
}

#[test]
fn nodes_that_a_body_cannot_contain_are_refused_when_they_are_added() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(Some(1));
    let (context, graph, data) = (&stage.context, &mut stage.graph, &mut stage.data);
    let event = context.event().expect("an event");
    let mut child = Graph::new(context).expect("a graph");
    child.add_host_function(&[], || ()).expect("a node");
    graph
        .add_if(&[], handle, |body| {
            let refused = [
                body.add_host_function(&[], || ()).map(drop),
                body.add_event_record(&[], &event).map(drop),
                body.add_event_wait(&[], &event).map(drop),
                body.add_child(&[], &mut child).map(drop),
            ];
            for refused in refused {
                assert!(matches!(invalid(refused), Invalid::NotInBody { .. }));
            }
            let mut child = Graph::new(context)?;
            child.add_empty(&[])?;
            body.add_child(&[], &mut child)?;
            fill(body, data, 7)
        })
        .expect("a node");
    assert_eq!(stage.run(), 7, "nothing refused was added");
}

#[test]
fn captured_nodes_are_checked_before_they_enter_a_body() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(Some(1));
    let event = stage.context.event().expect("an event");
    let captured = stage.stream.capture(Default::default(), |stream| event.record_external(stream));
    let mut captured = captured.expect("a graph");
    stage
        .graph
        .add_if(&[], handle, |body| {
            let refused = body.add_child(&[], &mut captured);
            assert!(matches!(invalid(refused), Invalid::NotInBody { .. }));
            Ok(())
        })
        .expect("a node");
}

#[test]
fn handles_belong_to_one_node_of_their_graph() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(Some(1));
    let mut other = Graph::new(&stage.context).expect("a graph");
    let foreign = other.conditional_handle(&stage.context, None).expect("a handle");
    assert!(matches!(
        invalid(stage.graph.instantiate()),
        Invalid::ConditionalHandleWithoutNode { count: 1 }
    ));
    let nothing = |_: &mut Graph| Ok(());
    assert!(matches!(
        invalid(stage.graph.add_if(&[], foreign, nothing)),
        Invalid::ConditionalHandleOfOtherGraph { .. }
    ));
    let arguments = (foreign, 1);
    let (graph, context) = (&mut stage.graph, &stage.context);
    // SAFETY: the node is refused.
    let refused = unsafe { graph.add_kernel(&[], context, &stage.choose, ONE, arguments) };
    assert!(matches!(invalid(refused), Invalid::ConditionalHandleOfOtherGraph { .. }));
    graph.add_while(&[], handle, nothing).expect("a node");
    assert!(matches!(
        invalid(graph.add_if(&[], handle, nothing)),
        Invalid::ConditionalHandleUsed { .. }
    ));
}

#[test]
fn a_graph_with_conditional_nodes_exists_once() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(Some(0));
    let (context, graph) = (&stage.context, &mut stage.graph);
    let node = graph.add_if(&[], handle, |body| {
        for refused in [
            invalid(body.try_clone()),
            invalid(body.instantiate()),
            invalid(Graph::new(context)?.add_child(&[], body)),
        ] {
            assert!(matches!(refused, Invalid::GraphHasConditionals { .. }));
        }
        Ok(())
    });
    let node = node.expect("a node");
    assert!(matches!(invalid(graph.remove(node)), Invalid::RemovedConditional { .. }));
    let mut executable = graph.instantiate().expect("an executable graph");
    assert!(matches!(invalid(graph.instantiate()), Invalid::SecondExecutable { .. }));
    executable.update(graph).expect("its own graph");
    let other = Graph::new(context).expect("a graph");
    let mut parent = Graph::new(context).expect("a graph");
    for refused in [
        invalid(executable.update(&other)),
        invalid(graph.try_clone()),
        invalid(parent.add_child(&[], graph)),
    ] {
        assert!(matches!(refused, Invalid::GraphHasConditionals { .. }));
    }
    drop(executable);
    graph.instantiate().expect("the other one is destroyed");
    if common::offers(12, 9) {
        let refused = invalid(parent.add_child_moved(&[], stage.graph));
        assert!(matches!(refused, Invalid::GraphHasConditionals { .. }));
    }
}

#[test]
fn a_body_that_fails_stays_as_far_as_it_was_built() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(Some(1));
    let (graph, data) = (&mut stage.graph, &mut stage.data);
    let failed = graph.add_if(&[], handle, |body| {
        fill(body, data, 7)?;
        body.add_host_function(&[], || ())?;
        Ok(())
    });
    assert!(matches!(invalid(failed), Invalid::NotInBody { .. }));
    let node = graph.nodes().expect("a query")[0];
    let node = graph.typed::<kind::Conditional>(node).expect("the node");
    let count = graph.edit_body(node, 0, |body| Ok(body.nodes()?.len()));
    assert_eq!(count.expect("a body"), 1);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _ = graph.edit_body(node, 0, |body| -> Result<()> {
            body.add_empty(&[])?;
            panic!("a panic of the test");
        });
    }));
    assert!(panicked.is_err());
    let count = graph.edit_body(node, 0, |body| Ok(body.nodes()?.len()));
    assert_eq!(count.expect("a body"), 2);
    let missing = invalid(graph.edit_body(node, 1, |_| Ok(())));
    assert!(matches!(missing, Invalid::NoSuchBody { count: 1, .. }));
    assert_eq!(stage.run(), 7);
}

#[test]
fn a_body_that_is_moved_out_takes_its_graph_out_of_use() {
    let mut stage = or_skip!(Stage::new());
    let handle = stage.handle(Some(1));
    let context = stage.context.clone();
    let (graph, data) = (&mut stage.graph, &mut stage.data);
    let mut moved = None;
    let replaced = graph.add_if(&[], handle, |body| {
        fill(body, data, 7)?;
        moved = Some(std::mem::replace(body, Graph::new(&context)?));
        Ok(())
    });
    assert!(matches!(invalid(replaced), Invalid::BodyReplaced));
    let mut moved = moved.expect("the body");
    // The driver still has the body, because its graph was leaked.
    assert_eq!(moved.nodes().expect("a query").len(), 1);
    assert!(moved.instantiate().is_err());
    assert!(graph.add_empty(&[]).is_err());
    assert!(graph.instantiate().is_err());
    assert!(graph.nodes().is_err());
}

#[test]
fn a_body_runs_in_a_green_context() {
    let _alone = alone();
    let mut stage = or_skip!(Stage::new());
    or_skip!(common::since(12, 4));
    let green = partition(or_skip!(resource()));
    let handle = stage.graph.conditional_handle(&green, Some(1));
    let handle = handle.expect("a handle");
    let scale: TypedKernel<(&mut [u32], i32, i32, u32)> = kernel(&stage.context, VECTOR, "scale");
    let (context, graph, data) = (&stage.context, &mut stage.graph, &mut stage.data);
    graph
        .add_if(&[], handle, |body| {
            let arguments = (&mut *data, 1, 7, 1);
            // SAFETY: the node is refused.
            let refused = unsafe { body.add_kernel(&[], context, &scale, ONE, arguments) };
            assert!(matches!(invalid(refused), Invalid::NotInBody { .. }));
            // SAFETY: the kernel adds 7 to one element.
            unsafe { body.add_kernel(&[], &green, &scale, ONE, (&mut *data, 1, 7, 1)) }?;
            Ok(())
        })
        .expect("a node");
    assert_eq!(stage.run(), 7);
}
