//! Conditional nodes on the software driver. The codes are those of driver 580.

use crate::graph::calls::kernel_node;
use crate::prelude::*;
use cuda_safe::sys::{CUgraphInstantiateResult as Outcome, CUgraphNodeType as Type};

const IF: u32 = 0;
const WHILE: u32 = 1;
const SWITCH: u32 = 2;

/// Creates a handle, with a value for the start of each launch or without one.
fn handle(bench: &Bench, graph: CUgraph, default: Option<u32>) -> u64 {
    let flags = u32::from(default.is_some());
    out!(cuGraphConditionalHandleCreate(graph, bench.context, default.unwrap_or(0), flags))
}

fn conditional(context: CUcontext, handle: u64, kind: u32, size: u32) -> CUgraphNodeParams {
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = Type::CU_GRAPH_NODE_TYPE_CONDITIONAL;
    let mut its = CUDA_CONDITIONAL_NODE_PARAMS::zeroed();
    (its.handle, its.type_) = (handle, CUgraphConditionalNodeType(kind));
    (its.size, its.ctx) = (size, context);
    params.__bindgen_anon_1.conditional = its;
    params
}

/// Adds a conditional node and returns it with its bodies.
fn node(
    bench: &Bench,
    graph: CUgraph,
    after: &[CUgraphNode],
    (handle, kind, size): (u64, u32, u32),
) -> (CUgraphNode, Vec<CUgraph>) {
    let (mut params, mut node) = (conditional(bench.context, handle, kind, size), null_mut());
    let (nodes, count, place) = (after.as_ptr(), after.len(), &raw mut params);
    succeeds!(cuGraphAddNode_v2(&raw mut node, graph, nodes, null(), count, place));
    // SAFETY: the type selects this field.
    let bodies = unsafe { params.__bindgen_anon_1.conditional }.phGraph_out;
    // SAFETY: the driver returns an array of `size` graphs.
    let bodies = unsafe { core::slice::from_raw_parts(bodies, size as usize) };
    (node, bodies.to_vec())
}

/// Adds a kernel that sets a handle.
fn choose(bench: &Bench, graph: CUgraph, handle: u64, value: u32) -> CUgraphNode {
    let arguments = [(&raw const handle).cast(), (&raw const value).cast()];
    kernel_node(graph, &[], bench.choose, &arguments)
}

#[test]
fn a_branch_runs_if_the_value_is_not_zero() {
    let bench = &in_child!(without_misuse());
    for (value, expected) in [(0, [2, 3]), (1, [1, 3]), (7, [1, 3])] {
        let graph = graph();
        let handle = handle(bench, graph, None);
        let set = choose(bench, graph, handle, value);
        let (branch, bodies) = node(bench, graph, &[set], (handle, IF, 2));
        bench.append(bodies[0], &[], 1);
        bench.append(bodies[1], &[], 2);
        bench.append(graph, &[branch], 3);
        assert_eq!(bench.run(graph), expected);
        destroy(graph);
    }
}

#[test]
fn a_loop_runs_until_its_value_is_zero() {
    let bench = &in_child!(without_misuse());
    let (graph, counter) = (graph(), memory(4));
    let handle = handle(bench, graph, Some(1));
    let (repeat, bodies) = node(bench, graph, &[], (handle, WHILE, 1));
    let first = bench.append(bodies[0], &[], 1);
    let arguments = [(&raw const handle).cast(), (&raw const counter).cast()];
    kernel_node(bodies[0], &[first], bench.count_down, &arguments);
    bench.append(graph, &[repeat], 2);
    let executable = instantiate(graph);
    for rounds in [3u32, 1] {
        succeeds!(cuMemcpyHtoD_v2(counter, (&raw const rounds).cast(), 4));
        bench.clear();
        bench.launch(executable);
        let mut expected = vec![1; rounds as usize];
        expected.push(2);
        assert_eq!(bench.logged(), expected);
    }
}

#[test]
fn a_switch_runs_the_body_of_its_value_or_none() {
    let bench = &in_child!(without_misuse());
    for (value, expected) in [(0, vec![10]), (2, vec![12]), (3, vec![])] {
        let graph = graph();
        let handle = handle(bench, graph, None);
        let set = choose(bench, graph, handle, value);
        let (_, bodies) = node(bench, graph, &[set], (handle, SWITCH, 3));
        for (value, body) in (10..).zip(&bodies) {
            bench.append(*body, &[], value);
        }
        assert_eq!(bench.run(graph), expected);
        destroy(graph);
    }
}

#[test]
fn a_value_without_a_default_persists_from_launch_to_launch() {
    let bench = &in_child!(without_misuse());
    for (default, expected) in [(None, vec![1]), (Some(0), vec![])] {
        let graph = graph();
        let handle = handle(bench, graph, default);
        let (branch, bodies) = node(bench, graph, &[], (handle, IF, 1));
        bench.append(bodies[0], &[], 1);
        let value = 1u32;
        let arguments = [(&raw const handle).cast(), (&raw const value).cast()];
        kernel_node(graph, &[branch], bench.choose, &arguments);
        let executable = instantiate(graph);
        bench.clear();
        bench.launch(executable);
        assert!(bench.logged().is_empty(), "the value is 0 at first");
        bench.launch(executable);
        assert_eq!(bench.logged(), expected);
        destroy_executable(executable);
        destroy(graph);
    }
}

#[test]
fn conditional_nodes_can_be_nested() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let outer = handle(bench, graph, Some(1));
    let (_, bodies) = node(bench, graph, &[], (outer, IF, 1));
    // A handle of the body belongs to the same graph.
    let inner = handle(bench, bodies[0], Some(1));
    let (_, inner_bodies) = node(bench, bodies[0], &[], (inner, IF, 1));
    bench.append(inner_bodies[0], &[], 1);
    assert_eq!(bench.run(graph), [1]);
}

#[test]
fn invalid_conditional_nodes_are_refused() {
    let bench = &in_child!(without_misuse());
    let (graph, other) = (graph(), graph());
    let (own, used, foreign) =
        (handle(bench, graph, None), handle(bench, graph, None), handle(bench, other, None));
    node(bench, graph, &[], (used, IF, 1));
    let mut made = null_mut();
    for (handle, kind, size) in [
        (own, IF, 0),
        (own, IF, 3),
        (own, WHILE, 2),
        (own, 3, 1),
        (foreign, IF, 1),
        (used, IF, 1),
        (99, IF, 1),
    ] {
        let mut params = conditional(bench.context, handle, kind, size);
        let place = &raw mut params;
        refused!(INVALID, cuGraphAddNode_v2(&raw mut made, graph, null(), null(), 0, place));
    }
    let mut handle = 0;
    let context = bench.context;
    refused!(INVALID, cuGraphConditionalHandleCreate(&raw mut handle, graph, context, 0, 2));
    let none = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    refused!(none, cuGraphConditionalHandleCreate(&raw mut handle, graph, null_mut(), 0, 0));
}

/// Instantiates a graph, which must fail, and returns the outcome and the node.
fn outcome(graph: CUgraph) -> (Outcome, CUgraphNode) {
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed();
    let (mut made, place) = (null_mut(), &raw mut params);
    refused!(INVALID, cuGraphInstantiateWithParams(&raw mut made, graph, place));
    (params.result_out, params.hErrNode_out)
}

#[test]
fn a_handle_without_a_node_is_found_when_the_graph_is_instantiated() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let handle = handle(bench, graph, None);
    let unused = Outcome::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED;
    assert_eq!(outcome(graph).0, unused);
    let (node, _) = node(bench, graph, &[], (handle, IF, 1));
    destroy_executable(instantiate(graph));
    succeeds!(cuGraphDestroyNode(node));
    assert_eq!(outcome(graph).0, unused);
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

/// Adds a node to a body.
type Add<'a> = &'a dyn Fn(CUgraph) -> CUgraphNode;

#[test]
fn bodies_accept_every_node_and_instantiation_refuses_some() {
    let bench = &in_child!(without_misuse());
    let device = memory(16);
    let unsupported = Outcome::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED;
    let several = Outcome::CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED;
    let source = [0u32; 4];
    let add: [(Option<Outcome>, Add<'_>); 6] = [
        (Some(unsupported), &|body| {
            let host = CUDA_HOST_NODE_PARAMS { fn_: Some(nothing), userData: null_mut() };
            out!(cuGraphAddHostNode(body, null(), 0, &raw const host))
        }),
        (Some(several), &|body| {
            let from = Side::Host(source.as_ptr().cast());
            copy_node(body, &[], &copy(from, Side::Device(device), 16))
        }),
        (None, &|body| fill_node(body, &[], &fill(device, 1, 4))),
        (None, &|body| empty_node(body, &[])),
        (None, &|body| {
            copy_node(body, &[], &copy(Side::Device(device), Side::Device(device + 8), 8))
        }),
        (None, &|body| {
            let child = graph();
            bench.append(child, &[], 1);
            let node = out!(cuGraphAddChildGraphNode(body, null(), 0, child));
            destroy(child);
            node
        }),
    ];
    for (refused, add) in add {
        let graph = graph();
        let handle = handle(bench, graph, Some(1));
        let (_, bodies) = node(bench, graph, &[], (handle, IF, 1));
        let added = add(bodies[0]);
        match refused {
            Some(refused) => assert_eq!(outcome(graph), (refused, added)),
            None => {
                bench.run(graph);
            }
        }
        destroy(graph);
    }
}

#[test]
fn a_graph_with_a_conditional_node_exists_once() {
    let bench = &in_child!(without_misuse());
    let (graph, parent) = (graph(), graph());
    let handle = handle(bench, graph, Some(0));
    let (node, bodies) = node(bench, graph, &[], (handle, IF, 1));
    let executable = instantiate(graph);
    let mut made = null_mut();
    refused!(UNSUPPORTED, cuGraphInstantiateWithFlags(&raw mut made, graph, 0));
    let mut clone = null_mut();
    refused!(UNSUPPORTED, cuGraphClone(&raw mut clone, graph));
    let mut child = null_mut();
    refused!(UNSUPPORTED, cuGraphAddChildGraphNode(&raw mut child, parent, null(), 0, graph));
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = Type::CU_GRAPH_NODE_TYPE_GRAPH;
    params.__bindgen_anon_1.graph.graph = graph;
    params.__bindgen_anon_1.graph.ownership.0 = 1;
    let place = &raw mut params;
    refused!(UNSUPPORTED, cuGraphAddNode_v2(&raw mut child, parent, null(), null(), 0, place));
    refused!(INVALID, cuGraphDestroy(bodies[0]));
    refused!(INVALID, cuGraphNodeSetEnabled(executable, node, 0));
    succeeds!(cuGraphExecUpdate_v2(executable, graph, null_mut()));
}

#[test]
fn a_stream_captures_into_a_body() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let handle = handle(bench, graph, Some(1));
    let (_, bodies) = node(bench, graph, &[], (handle, IF, 1));
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let (stream, body) = (bench.stream, bodies[0]);
    succeeds!(cuStreamBeginCaptureToGraph(stream, body, null(), null(), 0, mode));
    let value = 4u32;
    let mut arguments: [*mut c_void; 2] =
        [(&raw const bench.log).cast_mut().cast(), (&raw const value).cast_mut().cast()];
    let (function, place) = (bench.append, arguments.as_mut_ptr());
    succeeds!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, place, null_mut()));
    let mut captured = null_mut();
    succeeds!(cuStreamEndCapture(stream, &raw mut captured));
    assert_eq!(captured, body);
    assert_eq!(bench.run(graph), [4]);
}

#[test]
fn a_handle_that_another_graph_sets_is_an_illegal_address() {
    let bench = &in_child!(misused("is set outside of a launch of its graph"));
    let (graph, other) = (graph(), graph());
    let handle = handle(bench, graph, None);
    node(bench, graph, &[], (handle, IF, 1));
    let executable = instantiate(graph);
    bench.launch(executable);
    choose(bench, other, handle, 1);
    let wrong = instantiate(other);
    bench.launch(wrong);
    assert_eq!(code!(cuStreamSynchronize(bench.stream)), CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
}

#[test]
fn destroying_an_executable_graph_with_conditional_nodes_waits_for_all_work() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let handle = handle(bench, graph, None);
    node(bench, graph, &[], (handle, IF, 1));
    let executable = instantiate(graph);
    let work = crate::graph::calls::graph();
    bench.append(work, &[], 5);
    let running = instantiate(work);
    bench.launch(running);
    destroy_executable(executable);
    refused!(CUresult::CUDA_SUCCESS, cuStreamQuery(bench.stream));
    destroy(work);
}
