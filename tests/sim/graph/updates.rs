//! Updates of executable graphs on the software driver. The codes and results are those of driver 580.

use crate::graph::calls::kernel_params;
use crate::prelude::*;
use cuda_safe::sys::{CUgraphExecUpdateResult as Outcome, CUgraphNodeType as Type};

const FAILED: CUresult = CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;

/// Returns the code, the outcome and the node of an update.
fn update(executable: CUgraphExec, graph: CUgraph) -> (CUresult, Outcome, CUgraphNode) {
    let mut info = CUgraphExecUpdateResultInfo::zeroed();
    let code = crate::graph::calls::code!(cuGraphExecUpdate_v2(executable, graph, &raw mut info));
    (code, info.result, info.errorNode)
}

/// Sets the value that a kernel node of an executable graph appends to the log.
fn set_value(bench: &Bench, executable: CUgraphExec, node: CUgraphNode, value: u32) -> CUresult {
    let arguments = [(&raw const bench.log).cast(), (&raw const value).cast()];
    let params = kernel_params(bench.append, &arguments);
    let params = &raw const params;
    crate::graph::calls::code!(cuGraphExecKernelNodeSetParams_v2(executable, node, params))
}

fn launched(bench: &Bench, executable: CUgraphExec) -> Vec<u32> {
    bench.clear();
    bench.launch(executable);
    bench.logged()
}

#[test]
fn an_update_without_a_graph_is_refused_and_writes_no_result() {
    let _bench = in_child!(without_misuse());
    let executable = instantiate(graph());
    let result = Outcome::CU_GRAPH_EXEC_UPDATE_SUCCESS;
    assert_eq!(update(executable, null_mut()), (INVALID, result, null_mut()));
    destroy_executable(executable);
}

#[test]
fn new_parameters_affect_later_launches_only() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let node = bench.append(graph, &[], 0);
    let executable = instantiate(graph);
    for value in 1..=5 {
        assert!(set_value(bench, executable, node, value).is_success());
        bench.launch(executable);
    }
    assert_eq!(bench.logged(), [1, 2, 3, 4, 5]);
    // The graph itself did not change.
    assert_eq!(bench.run(graph), [0]);
}

#[test]
fn invalid_parameters_leave_an_executable_graph_unchanged() {
    let bench = &in_child!(without_misuse());
    let (graph, other) = (graph(), graph());
    let node = bench.append(graph, &[], 1);
    let executable = instantiate(graph);
    let later = bench.append(graph, &[], 2);
    let foreign = bench.append(other, &[], 3);
    let destroyed = bench.append(other, &[], 3);
    succeeds!(cuGraphDestroyNode(destroyed));
    let wrong = empty_node(graph, &[]);
    for node in [later, foreign, destroyed, wrong, null_mut()] {
        assert_eq!(set_value(bench, executable, node, 9), INVALID);
    }
    let value = 9u32;
    let arguments: [*const c_void; 2] = [(&raw const bench.log).cast(), (&raw const value).cast()];
    let good = kernel_params(bench.append, &arguments);
    let bad = [
        (INVALID, CUDA_KERNEL_NODE_PARAMS { gridDimX: 0, ..good }),
        (INVALID, CUDA_KERNEL_NODE_PARAMS { blockDimX: 2048, ..good }),
        (CUresult::CUDA_ERROR_INVALID_HANDLE, CUDA_KERNEL_NODE_PARAMS { func: null_mut(), ..good }),
    ];
    for (code, params) in &bad {
        refused!(*code, cuGraphExecKernelNodeSetParams_v2(executable, node, from_ref(params)));
    }
    assert_eq!(launched(bench, executable), [1]);
}

#[test]
fn a_copy_keeps_its_direction_its_dimensions_and_its_kinds_of_memory() {
    let bench = &in_child!(without_misuse());
    let (graph, a, b) = (graph(), memory(64), memory(64));
    let pool: u64 = out!(cuMemAllocAsync(64, bench.stream));
    let other: u64 = out!(cuMemAllocAsync(64, bench.stream));
    let (source, null) = ([7u32; 16], null_mut());
    let host = Side::Host(source.as_ptr().cast());
    let set = |executable, node, copy: &CUDA_MEMCPY3D| {
        let copy = from_ref(copy);
        crate::graph::calls::code!(cuGraphExecMemcpyNodeSetParams(executable, node, copy, null))
    };
    let from_host = copy_node(graph, &[], &copy(host, Side::Device(a), 64));
    let on_device = copy_node(graph, &[from_host], &copy(Side::Device(a), Side::Device(b), 64));
    let executable = instantiate(graph);
    let plane = CUDA_MEMCPY3D {
        Height: 2,
        srcPitch: 8,
        dstPitch: 8,
        ..copy(Side::Device(a), Side::Device(b), 8)
    };
    for bad in [
        copy(Side::Device(a), host, 64),
        copy(Side::Device(pool), Side::Device(b), 64),
        copy(Side::Device(a), Side::Device(pool), 64),
        copy(Side::Device(a), Side::Device(b), 0),
        copy(Side::Device(a), Side::Device(b), 65),
        plane,
    ] {
        assert_eq!(set(executable, on_device, &bad), INVALID);
    }
    for good in
        [copy(Side::Device(b), Side::Device(a), 16), copy(Side::Device(a), Side::Device(b), 32)]
    {
        assert!(set(executable, on_device, &good).is_success());
    }
    assert!(set(executable, from_host, &copy(host, Side::Device(a), 32)).is_success());
    succeeds!(cuCtxSetCurrent(null_mut()));
    assert_eq!(set(executable, on_device, &copy(Side::Device(a), Side::Device(b), 32)), INVALID);
    succeeds!(cuCtxSetCurrent(bench.context));
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read(b), [7; 8]);
    destroy_executable(executable);
    destroy(graph);
    for address in [pool, other] {
        succeeds!(cuMemFreeAsync(address, bench.stream));
    }
}

#[test]
fn a_fill_stays_a_line() {
    let bench = &in_child!(without_misuse());
    let (graph, device, null) = (graph(), memory(64), null_mut());
    let pool: u64 = out!(cuMemAllocAsync(64, bench.stream));
    let node = fill_node(graph, &[], &fill(device, 1, 4));
    let executable = instantiate(graph);
    let good = [
        fill(device, 2, 4),
        fill(pool, 2, 4),
        fill(device, 2, 8),
        CUDA_MEMSET_NODE_PARAMS { elementSize: 1, ..fill(device, 3, 16) },
    ];
    for params in &good {
        succeeds!(cuGraphExecMemsetNodeSetParams(executable, node, from_ref(params), null));
    }
    let bad = [
        CUDA_MEMSET_NODE_PARAMS { height: 2, pitch: 16, ..fill(device, 1, 4) },
        fill(device, 1, 0),
        fill(device, 1, 17),
    ];
    for params in &bad {
        let params = from_ref(params);
        refused!(INVALID, cuGraphExecMemsetNodeSetParams(executable, node, params, null));
    }
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read(device), [0x0303_0303; 4]);
    destroy_executable(executable);
    destroy(graph);
    succeeds!(cuMemFreeAsync(pool, bench.stream));
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[test]
fn host_functions_and_events_can_be_replaced() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let (event, other) = (event(), event());
    let host = CUDA_HOST_NODE_PARAMS { fn_: Some(nothing), userData: null_mut() };
    let host_node: CUgraphNode = out!(cuGraphAddHostNode(graph, null(), 0, &raw const host));
    let record: CUgraphNode = out!(cuGraphAddEventRecordNode(graph, null(), 0, event));
    let executable = instantiate(graph);
    succeeds!(cuGraphExecHostNodeSetParams(executable, host_node, &raw const host));
    let none = CUDA_HOST_NODE_PARAMS { fn_: None, userData: null_mut() };
    refused!(INVALID, cuGraphExecHostNodeSetParams(executable, host_node, &raw const none));
    succeeds!(cuGraphExecEventRecordNodeSetEvent(executable, record, other));
    refused!(INVALID, cuGraphExecEventWaitNodeSetEvent(executable, record, other));
    destroy_event(event);
    // The event of the executable graph is the other one, so the launch is valid.
    bench.launch(executable);
}

#[test]
fn nodes_of_three_types_can_be_disabled() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let first = bench.append(graph, &[], 1);
    let second = bench.append(graph, &[first], 2);
    let empty = empty_node(graph, &[]);
    let executable = instantiate(graph);
    succeeds!(cuGraphNodeSetEnabled(executable, first, 0));
    assert_eq!(launched(bench, executable), [2]);
    // New parameters do not enable a node.
    assert!(set_value(bench, executable, first, 3).is_success());
    let mut is_enabled = 9;
    succeeds!(cuGraphNodeGetEnabled(executable, first, &raw mut is_enabled));
    assert_eq!(is_enabled, 0);
    assert_eq!(update(executable, graph).0, CUresult::CUDA_SUCCESS);
    assert_eq!(launched(bench, executable), [2]);
    succeeds!(cuGraphNodeSetEnabled(executable, first, 1));
    assert_eq!(launched(bench, executable), [1, 2]);
    refused!(INVALID, cuGraphNodeSetEnabled(executable, empty, 0));
    refused!(INVALID, cuGraphNodeGetEnabled(executable, empty, &raw mut is_enabled));
    let _ = second;
}

#[test]
fn an_update_pairs_nodes_whatever_the_order_in_which_they_were_added() {
    let bench = &in_child!(without_misuse());
    let (graph, other) = (graph(), graph());
    let (first, last) = (bench.append(graph, &[], 1), empty_node(graph, &[]));
    let middle = bench.append(graph, &[first], 2);
    let (from, to) = (&raw const middle, &raw const last);
    succeeds!(cuGraphAddDependencies_v2(graph, from, to, null(), 1));
    let executable = instantiate(graph);
    let (middle, first) = (bench.append(other, &[], 12), bench.append(other, &[], 11));
    let (from, to) = (&raw const first, &raw const middle);
    succeeds!(cuGraphAddDependencies_v2(other, from, to, null(), 1));
    empty_node(other, &[middle]);
    let (code, outcome, node) = update(executable, other);
    assert_eq!((code, outcome), (CUresult::CUDA_SUCCESS, Outcome::CU_GRAPH_EXEC_UPDATE_SUCCESS));
    assert!(node.is_null());
    assert_eq!(launched(bench, executable), [11, 12]);
    // The result is optional, and nodes of the other graph do not name those of this one.
    succeeds!(cuGraphExecUpdate_v2(executable, graph, null_mut()));
    assert_eq!(set_value(bench, executable, first, 5), INVALID);
    assert_eq!(launched(bench, executable), [1, 2]);
}

#[test]
fn an_update_to_another_topology_fails_and_changes_nothing() {
    let bench = &in_child!(without_misuse());
    let original = graph();
    let first = bench.append(original, &[], 1);
    bench.append(original, &[first], 2);
    let executable = instantiate(original);
    let topology = Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    let types = Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
    let (more, fewer, unordered, other, none) = (graph(), graph(), graph(), graph(), graph());
    let mut last = bench.append(more, &[], 11);
    for value in [12, 13] {
        last = bench.append(more, &[last], value);
    }
    bench.append(fewer, &[], 11);
    bench.append(unordered, &[], 11);
    bench.append(unordered, &[], 12);
    let first = bench.append(other, &[], 11);
    let wrong = empty_node(other, &[first]);
    for (graph, outcome, has_node) in [
        (more, topology, false),
        (fewer, topology, false),
        (unordered, topology, true),
        (other, types, true),
        (none, topology, false),
    ] {
        let (code, its, node) = update(executable, graph);
        assert_eq!((code, its, !node.is_null()), (FAILED, outcome, has_node));
    }
    assert_eq!(update(executable, other).2, wrong);
    assert_eq!(launched(bench, executable), [1, 2]);
    destroy_executable(executable);
    for graph in [original, more, fewer, unordered, other, none] {
        destroy(graph);
    }
}

#[test]
fn an_update_to_other_kinds_of_memory_or_attributes_fails() {
    let bench = &in_child!(without_misuse());
    let (original, other, cooperative) = (graph(), graph(), graph());
    let (a, b) = (memory(64), memory(64));
    let pool: u64 = out!(cuMemAllocAsync(64, bench.stream));
    copy_node(original, &[], &copy(Side::Device(a), Side::Device(b), 64));
    copy_node(other, &[], &copy(Side::Device(pool), Side::Device(b), 64));
    let executable = instantiate(original);
    let changed = Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    assert_eq!(update(executable, other).1, changed);
    destroy_executable(executable);
    let kernels = graph();
    bench.append(kernels, &[], 1);
    let node = bench.append(cooperative, &[], 1);
    let mut value = CUlaunchAttributeValue::zeroed();
    value.cooperative = 1;
    let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    succeeds!(cuGraphKernelNodeSetAttribute(node, id, &raw const value));
    let executable = instantiate(kernels);
    let attributes = Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED;
    assert_eq!(update(executable, cooperative).1, attributes);
    // A priority may change.
    value = CUlaunchAttributeValue::zeroed();
    let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    let prior = graph();
    let node = bench.append(prior, &[], 1);
    succeeds!(cuGraphKernelNodeSetAttribute(node, id, &raw const value));
    assert_eq!(update(executable, prior).0, CUresult::CUDA_SUCCESS);
    destroy_executable(executable);
    for graph in [original, other, cooperative, kernels, prior] {
        destroy(graph);
    }
    succeeds!(cuMemFreeAsync(pool, bench.stream));
}

#[test]
fn child_graphs_are_updated_with_their_parents_or_alone() {
    let bench = &in_child!(without_misuse());
    let (parent, child, other) = (graph(), graph(), graph());
    bench.append(child, &[], 1);
    let node: CUgraphNode = out!(cuGraphAddChildGraphNode(parent, null(), 0, child));
    let executable = instantiate(parent);
    bench.append(other, &[], 2);
    succeeds!(cuGraphExecChildGraphNodeSetParams(executable, node, other));
    assert_eq!(launched(bench, executable), [2]);
    // A node of the embedded graph names that of the executable graph.
    let mut embedded: CUgraph = null_mut();
    succeeds!(cuGraphChildGraphNodeGetGraph(node, &raw mut embedded));
    let (mut inner, mut count) = (null_mut(), 1);
    succeeds!(cuGraphGetNodes(embedded, &raw mut inner, &raw mut count));
    assert!(set_value(bench, executable, inner, 3).is_success());
    assert_eq!(launched(bench, executable), [3]);
    assert_eq!(update(executable, parent).0, CUresult::CUDA_SUCCESS);
    assert_eq!(launched(bench, executable), [1]);
    bench.append(other, &[], 9);
    refused!(INVALID, cuGraphExecChildGraphNodeSetParams(executable, node, other));
    bench.append(embedded, &[], 9);
    let topology = Outcome::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    assert_eq!(update(executable, parent).1, topology);
    destroy_executable(executable);
    for graph in [parent, child, other] {
        destroy(graph);
    }
}

#[test]
fn the_generic_function_changes_nodes_of_an_executable_graph() {
    let bench = &in_child!(without_misuse());
    let (graph, device) = (graph(), memory(16));
    let node = fill_node(graph, &[], &fill(device, 1, 4));
    let executable = instantiate(graph);
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = Type::CU_GRAPH_NODE_TYPE_MEMSET;
    params.__bindgen_anon_1.memset.dst = device;
    params.__bindgen_anon_1.memset.value = 6;
    params.__bindgen_anon_1.memset.elementSize = 4;
    params.__bindgen_anon_1.memset.width = 4;
    params.__bindgen_anon_1.memset.height = 1;
    succeeds!(cuGraphExecNodeSetParams(executable, node, &raw mut params));
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read(device), [6; 4]);
    params.type_ = Type::CU_GRAPH_NODE_TYPE_EMPTY;
    refused!(INVALID, cuGraphExecNodeSetParams(executable, node, &raw mut params));
}
