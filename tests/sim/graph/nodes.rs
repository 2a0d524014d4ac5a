//! Host, child graph, event and other nodes on the software driver: what they do, and which
//! parameters are refused. The codes are those of driver 580.

use crate::graph::calls::kernel_params;
use crate::prelude::*;
use CUgraphNodeType as Type;
use core::mem::MaybeUninit;

unsafe extern "C" fn add_one(data: *mut c_void) {
    // SAFETY: the tests pass a number that outlives the launches.
    let number = unsafe { data.cast::<u32>().as_mut() };
    *number.expect("a number") += 1;
}

#[test]
fn host_nodes_run_their_function() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let mut runs = 0u32;
    let data = (&raw mut runs).cast();
    let params = CUDA_HOST_NODE_PARAMS { fn_: Some(add_one), userData: data };
    let node: CUgraphNode = out!(cuGraphAddHostNode(graph, null(), 0, &raw const params));
    let mut shown = CUDA_HOST_NODE_PARAMS::zeroed();
    succeeds!(cuGraphHostNodeGetParams(node, &raw mut shown));
    assert_eq!(shown.userData, data);
    bench.run(graph);
    bench.run(graph);
    // SAFETY: the pointer is to a local variable, and no launch is running.
    assert_eq!(unsafe { data.cast::<u32>().read() }, 2);
    let none = CUDA_HOST_NODE_PARAMS { fn_: None, userData: data };
    refused!(INVALID, cuGraphHostNodeSetParams(node, &raw const none));
}

#[test]
fn a_child_graph_is_a_clone() {
    let bench = &in_child!(without_misuse());
    let (parent, child) = (graph(), graph());
    let first = bench.append(parent, &[], 1);
    bench.append(child, &[], 2);
    let node: CUgraphNode = out!(cuGraphAddChildGraphNode(parent, &raw const first, 1, child));
    bench.append(parent, &[node], 4);
    bench.append(child, &[], 9);
    destroy(child);
    let mut embedded = null_mut();
    succeeds!(cuGraphChildGraphNodeGetGraph(node, &raw mut embedded));
    refused!(INVALID, cuGraphDestroy(embedded));
    assert_eq!(bench.run(parent), [1, 2, 4]);
    // The embedded graph can be extended.
    bench.append(embedded, &[], 3);
    let logged = bench.run(parent);
    assert!(logged == [1, 2, 3, 4] || logged == [1, 3, 2, 4], "{logged:?}");
}

fn child_params(child: CUgraph, ownership: i32) -> CUgraphNodeParams {
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = Type::CU_GRAPH_NODE_TYPE_GRAPH;
    params.__bindgen_anon_1.graph.graph = child;
    params.__bindgen_anon_1.graph.ownership.0 = ownership;
    params
}

#[test]
fn a_moved_child_graph_belongs_to_its_node() {
    let bench = &in_child!(without_misuse());
    let (parent, child, other) = (graph(), moved(graph()), graph());
    bench.append(child, &[], 1);
    let mut params = child_params(child, 1);
    let place = &raw mut params;
    let node: CUgraphNode = out!(cuGraphAddNode_v2(parent, null(), null(), 0, place));
    let mut embedded = null_mut();
    succeeds!(cuGraphChildGraphNodeGetGraph(node, &raw mut embedded));
    assert_eq!(embedded, child, "the handle stays");
    let (mut again, mut executable) = (null_mut(), null_mut());
    refused!(UNSUPPORTED, cuGraphAddNode_v2(&raw mut again, other, null(), null(), 0, place));
    refused!(UNSUPPORTED, cuGraphInstantiateWithFlags(&raw mut executable, child, 0));
    refused!(INVALID, cuGraphDestroy(child));
    bench.append(child, &[], 2);
    assert_eq!(bench.run(parent).len(), 2);
}

#[test]
fn a_graph_that_is_added_as_its_own_child_is_a_misuse() {
    let _bench = in_child!(misused("its own child"));
    let (graph, mut node) = (graph(), null_mut());
    refused!(INVALID, cuGraphAddChildGraphNode(&raw mut node, graph, null(), 0, graph));
}

#[test]
fn a_graph_that_is_moved_into_itself_is_a_misuse() {
    let _bench = in_child!(misused("moved into itself"));
    let (graph, mut node) = (graph(), null_mut());
    let mut params = child_params(graph, 1);
    let params = &raw mut params;
    assert!(
        !code!(cuGraphAddNode_v2(&raw mut node, graph, null(), null(), 0, params)).is_success()
    );
}

#[test]
fn event_nodes_record_and_wait() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let (event, other): (CUevent, CUevent) = (event(), event());
    let wait: CUgraphNode = out!(cuGraphAddEventWaitNode(graph, null(), 0, other));
    let node: CUgraphNode = out!(cuGraphAddEventRecordNode(graph, &raw const wait, 1, event));
    let mut shown = null_mut();
    succeeds!(cuGraphEventRecordNodeGetEvent(node, &raw mut shown));
    assert_eq!(shown, event);
    succeeds!(cuGraphEventWaitNodeGetEvent(wait, &raw mut shown));
    assert_eq!(shown, other);
    refused!(INVALID, cuGraphEventRecordNodeGetEvent(wait, &raw mut shown));
    refused!(INVALID, cuGraphEventRecordNodeSetEvent(wait, event));
    let executable = instantiate(graph);
    succeeds!(cuEventQuery(event));
    bench.launch(executable);
    refused!(CUresult::CUDA_ERROR_NOT_READY, cuEventQuery(event));
    succeeds!(cuStreamSynchronize(bench.stream));
    succeeds!(cuEventQuery(event));
}

#[test]
fn a_memory_operation_node_runs_its_operations_in_order() {
    let bench = &in_child!(without_misuse());
    let (graph, device) = (graph(), memory(8));
    let operation = |value: u32| {
        let mut its = CUstreamBatchMemOpParams::zeroed();
        its.writeValue.operation = CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32;
        its.writeValue.address = device;
        its.writeValue.__bindgen_anon_1.value = value;
        its
    };
    let mut operations = [operation(3), operation(4)];
    let params = CUDA_BATCH_MEM_OP_NODE_PARAMS {
        ctx: bench.context,
        count: 2,
        paramArray: operations.as_mut_ptr(),
        flags: 0,
    };
    let node: CUgraphNode = out!(cuGraphAddBatchMemOpNode(graph, null(), 0, &raw const params));
    bench.run(graph);
    assert_eq!(read(device), [4]);
    let mut shown = CUDA_BATCH_MEM_OP_NODE_PARAMS::zeroed();
    succeeds!(cuGraphBatchMemOpNodeGetParams(node, &raw mut shown));
    assert_eq!((shown.count, shown.ctx), (2, bench.context));
    // SAFETY: the driver returns this number of operations.
    let first = unsafe { shown.paramArray.read() };
    // SAFETY: the operation is a write.
    assert_eq!(unsafe { first.writeValue }.address, device);
}

/// Miri reports an access to the bytes that this test does not initialize.
#[test]
fn padding_of_memory_operations_may_be_uninitialized() {
    let bench = &in_child!(without_misuse());
    let (graph, device) = (graph(), memory(8));
    let mut operation = MaybeUninit::<CUstreamBatchMemOpParams>::uninit();
    let array = operation.as_mut_ptr();
    // SAFETY: the place is in `operation`.
    let write = unsafe { &raw mut (*array).writeValue };
    let kind = CUstreamBatchMemOpType::CU_STREAM_MEM_OP_WRITE_VALUE_32;
    // SAFETY: the place is in `operation`.
    unsafe { (*write).operation = kind };
    // SAFETY: the place is in `operation`.
    unsafe { (*write).address = device };
    // SAFETY: the place is in `operation`.
    let value = unsafe { &raw mut (*write).__bindgen_anon_1 };
    // The first half of the value, which is all of a value of 32 bits.
    let value = value.cast::<u32>();
    // SAFETY: the place is in `operation`.
    unsafe { value.write(5) };
    // SAFETY: the place is in `operation`.
    unsafe { (*write).flags = 0 };
    let params =
        CUDA_BATCH_MEM_OP_NODE_PARAMS { ctx: bench.context, count: 1, paramArray: array, flags: 0 };
    let _: CUgraphNode = out!(cuGraphAddBatchMemOpNode(graph, null(), 0, &raw const params));
    bench.run(graph);
    assert_eq!(read(device), [5]);
    // SAFETY: the place is in `operation`.
    unsafe { value.write(6) };
    succeeds!(cuStreamBatchMemOp_v2(bench.stream, 1, array, 0));
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read(device), [6]);
}

#[test]
fn nodes_of_semaphores_accept_empty_lists() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let mut params = CUDA_EXT_SEM_SIGNAL_NODE_PARAMS::zeroed();
    let place = &raw const params;
    let _: CUgraphNode = out!(cuGraphAddExternalSemaphoresSignalNode(graph, null(), 0, place));
    assert!(bench.run(graph).is_empty());
    // A number without a list.
    params.numExtSems = 1;
    let (mut node, place) = (null_mut(), &raw const params);
    refused!(
        INVALID,
        cuGraphAddExternalSemaphoresSignalNode(&raw mut node, graph, null(), 0, place)
    );
}

#[test]
fn a_node_of_any_type_is_added_and_changed_through_the_generic_functions() {
    let bench = &in_child!(without_misuse());
    let (graph, device) = (graph(), memory(16));
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = Type::CU_GRAPH_NODE_TYPE_MEMSET;
    let plain = fill(device, 3, 4);
    params.__bindgen_anon_1.memset.dst = plain.dst;
    params.__bindgen_anon_1.memset.value = plain.value;
    params.__bindgen_anon_1.memset.elementSize = 4;
    params.__bindgen_anon_1.memset.width = 4;
    params.__bindgen_anon_1.memset.height = 1;
    let place = &raw mut params;
    let node: CUgraphNode = out!(cuGraphAddNode_v2(graph, null(), null(), 0, place));
    let mut kind = Type::CU_GRAPH_NODE_TYPE_EMPTY;
    succeeds!(cuGraphNodeGetType(node, &raw mut kind));
    assert_eq!(kind, Type::CU_GRAPH_NODE_TYPE_MEMSET);
    bench.run(graph);
    assert_eq!(read(device), [3; 4]);
    params.__bindgen_anon_1.memset.value = 5;
    succeeds!(cuGraphNodeSetParams(node, &raw mut params));
    bench.run(graph);
    assert_eq!(read(device), [5; 4]);
    // Another type, a reserved field, and unknown types are refused.
    let mut bad = null_mut();
    for (kind, reserved) in [(5, 0), (2, 1), (14, 0), (15, 0), (99, 0)] {
        let mut other = params;
        other.type_ = Type(kind);
        other.reserved0[0] = reserved;
        let place = &raw mut other;
        refused!(INVALID, cuGraphNodeSetParams(node, place));
        if kind != 5 {
            refused!(INVALID, cuGraphAddNode_v2(&raw mut bad, graph, null(), null(), 0, place));
        }
    }
}

#[test]
fn dependencies_must_be_different_nodes_of_the_graph() {
    let _bench = in_child!(without_misuse());
    let (graph, other) = (graph(), graph());
    let (first, foreign) = (empty_node(graph, &[]), empty_node(other, &[]));
    let mut node = null_mut();
    for after in [[foreign, first], [first, first], [first, null_mut()]] {
        refused!(INVALID, cuGraphAddEmptyNode(&raw mut node, graph, after.as_ptr(), 2));
    }
    refused!(INVALID, cuGraphAddEmptyNode(&raw mut node, graph, null(), 1));
    refused!(INVALID, cuGraphAddEmptyNode(null_mut(), graph, null(), 0));
    refused!(INVALID, cuGraphAddEmptyNode(&raw mut node, null_mut(), null(), 0));
    destroy(other);
    refused!(INVALID, cuGraphAddEmptyNode(&raw mut node, graph, &raw const foreign, 1));
}

#[test]
fn nodes_without_kernels_need_no_current_context() {
    let bench = &in_child!(without_misuse());
    let (device, value) = (memory(16), 1u32);
    succeeds!(cuCtxSetCurrent(null_mut()));
    let graph = graph();
    let source = [0u32; 4];
    fill_node(graph, &[], &fill(device, 1, 4));
    copy_node(graph, &[], &copy(Side::Host(source.as_ptr().cast()), Side::Device(device), 16));
    empty_node(graph, &[]);
    let mut executable = null_mut();
    let needed = CUresult::CUDA_ERROR_INVALID_CONTEXT;
    refused!(needed, cuGraphInstantiateWithFlags(&raw mut executable, graph, 0));
    // A kernel of a library needs a context that is named or current.
    let arguments = [(&raw const bench.log).cast(), (&raw const value).cast()];
    let mut params = kernel_params(null_mut(), &arguments);
    params.kern = bench.append.cast();
    let (mut node, place) = (null_mut(), &raw const params);
    refused!(needed, cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, place));
    succeeds!(cuCtxSetCurrent(bench.context));
}

/// Launches beside a host function: both orders of the two are possible, but the nodes of the graph
/// follow the work before them on the stream.
#[test]
fn a_graph_follows_the_work_before_it_on_its_stream() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let mut runs = 0u32;
    let data: *mut c_void = (&raw mut runs).cast();
    let params = CUDA_HOST_NODE_PARAMS { fn_: Some(add_one), userData: data };
    let _: CUgraphNode = out!(cuGraphAddHostNode(graph, null(), 0, &raw const params));
    let executable = instantiate(graph);
    for _ in 0..3 {
        succeeds!(cuLaunchHostFunc(bench.stream, Some(add_one), data));
        succeeds!(cuGraphLaunch(executable, bench.stream));
    }
    succeeds!(cuStreamSynchronize(bench.stream));
    // SAFETY: the pointer is to a local variable, and no launch is running.
    assert_eq!(unsafe { data.cast::<u32>().read() }, 6);
}
