//! Captures and their graphs on the software driver: captures into graphs of the program, and the
//! nodes that captures make. As measured with driver 580.

use crate::prelude::*;
use cuda_safe::sys::{
    CUgraphNodeType as Type, CUstreamCaptureMode as Mode, CUstreamCaptureStatus as Status,
};

const RELAXED: Mode = Mode::CU_STREAM_CAPTURE_MODE_RELAXED;

fn begin(stream: CUstream) {
    succeeds!(cuStreamBeginCapture_v2(stream, RELAXED));
}

fn end(stream: CUstream) -> CUgraph {
    let mut graph = null_mut();
    succeeds!(cuStreamEndCapture(stream, &raw mut graph));
    graph
}

fn begin_into(stream: CUstream, graph: CUgraph, after: &[CUgraphNode]) -> CUresult {
    let (nodes, count) = (after.as_ptr(), after.len());
    code!(cuStreamBeginCaptureToGraph(stream, graph, nodes, null(), count, RELAXED))
}

/// Launches a kernel that appends a value to the log.
fn append(bench: &Bench, stream: CUstream, value: u32) {
    let mut arguments: [*mut c_void; 2] =
        [(&raw const bench.log).cast_mut().cast(), (&raw const value).cast_mut().cast()];
    let (function, arguments) = (bench.append, arguments.as_mut_ptr());
    succeeds!(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, arguments, null_mut()));
}

fn kinds(graph: CUgraph) -> Vec<Type> {
    let (mut nodes, mut count) = ([null_mut(); 16], 16);
    succeeds!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    let kind = |node: &CUgraphNode| {
        let mut kind = Type::CU_GRAPH_NODE_TYPE_EMPTY;
        succeeds!(cuGraphNodeGetType(*node, &raw mut kind));
        kind
    };
    nodes[..count].iter().map(kind).collect()
}

/// The answers of `cuStreamGetCaptureInfo_v3`.
struct Info {
    status: Status,
    id: u64,
    graph: CUgraph,
    last: Vec<CUgraphNode>,
}

fn info(stream: CUstream) -> Info {
    let (mut status, mut id, mut graph) = (Status::CU_STREAM_CAPTURE_STATUS_NONE, 0, null_mut());
    let (mut nodes, mut edges, mut count) = (null(), null(), 0);
    succeeds!(cuStreamGetCaptureInfo_v3(
        stream,
        &raw mut status,
        &raw mut id,
        &raw mut graph,
        &raw mut nodes,
        &raw mut edges,
        &raw mut count
    ));
    let last = match count {
        0 => Vec::new(),
        // SAFETY: the driver returns an array of `count` nodes.
        _ => unsafe { core::slice::from_raw_parts(nodes, count) }.to_vec(),
    };
    Info { status, id, graph, last }
}

#[test]
fn a_capture_appends_to_a_graph_of_the_program() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let first = bench.append(graph, &[], 1);
    assert!(begin_into(bench.stream, graph, &[first]).is_success());
    append(bench, bench.stream, 2);
    // The graph can be extended, but not destroyed, while it is captured.
    let added = empty_node(graph, &[]);
    let state = CUresult::CUDA_ERROR_ILLEGAL_STATE;
    refused!(state, cuGraphDestroy(graph));
    refused!(state, cuGraphDestroyNode(added));
    let other: CUstream = out!(cuStreamCreate(1));
    assert_eq!(begin_into(other, graph, &[]), state);
    assert_eq!(end(bench.stream), graph);
    assert_eq!(bench.run(graph), [1, 2]);
    let foreign = crate::graph::calls::graph();
    assert_eq!(begin_into(other, foreign, &[first]), INVALID);
    assert_eq!(begin_into(other, null_mut(), &[]), INVALID);
    destroy(foreign);
    succeeds!(cuStreamDestroy_v2(other));
}

#[test]
fn a_capture_into_a_graph_that_fails_destroys_the_graph() {
    let bench = &in_child!(without_misuse());
    let graph = moved(graph());
    assert!(begin_into(bench.stream, graph, &[]).is_success());
    let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    let mut made = null_mut();
    refused!(unsupported, cuGraphInstantiateWithFlags(&raw mut made, graph, 0));
    assert_eq!(info(bench.stream).status, Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    let mut captured = null_mut();
    refused!(invalidated, cuStreamEndCapture(bench.stream, &raw mut captured));
    assert_eq!(cuda_sim::alive().graphs, 0);
    // So does the destruction of the capturing stream.
    let (graph, stream) = (moved(crate::graph::calls::graph()), out!(cuStreamCreate(1)));
    assert!(begin_into(stream, graph, &[]).is_success());
    succeeds!(cuStreamDestroy_v2(stream));
    assert_eq!(cuda_sim::alive().graphs, 0);
}

#[test]
fn a_capture_tells_its_graph_and_the_nodes_before_the_next_one() {
    let bench = &in_child!(without_misuse());
    let before = info(bench.stream);
    assert!(before.graph.is_null() && before.id == 0);
    begin(bench.stream);
    assert!(info(bench.stream).last.is_empty());
    append(bench, bench.stream, 1);
    let its = info(bench.stream);
    assert_eq!(its.status, Status::CU_STREAM_CAPTURE_STATUS_ACTIVE);
    assert_eq!(its.last.len(), 1);
    let graph = end(bench.stream);
    assert_eq!(graph, its.graph);
    destroy(graph);
}

#[test]
fn the_nodes_before_the_next_one_can_be_added_to_and_replaced() {
    let bench = &in_child!(without_misuse());
    begin(bench.stream);
    append(bench, bench.stream, 1);
    let its = info(bench.stream);
    let (graph, child) = (its.graph, crate::graph::calls::graph());
    bench.append(child, &[], 2);
    let (after, count) = (its.last.as_ptr(), its.last.len());
    let mut node: CUgraphNode = out!(cuGraphAddChildGraphNode(graph, after, count, child));
    let update = |node: *mut CUgraphNode, flags| {
        code!(cuStreamUpdateCaptureDependencies_v2(bench.stream, node, null(), 1, flags))
    };
    let (add, set) = (0, 1);
    assert!(update(&raw mut node, set).is_success());
    assert_eq!(info(bench.stream).last, [node]);
    let mut other = empty_node(graph, &[]);
    assert!(update(&raw mut other, add).is_success());
    assert_eq!(info(bench.stream).last.len(), 2);
    assert_eq!(update(&raw mut node, 2), INVALID);
    let mut foreign = empty_node(child, &[]);
    assert_eq!(update(&raw mut foreign, set), INVALID);
    append(bench, bench.stream, 3);
    assert_eq!(end(bench.stream), graph);
    assert_eq!(bench.run(graph), [1, 2, 3]);
    destroy(child);
    destroy(graph);
    assert_eq!(update(&raw mut node, set), CUresult::CUDA_ERROR_ILLEGAL_STATE);
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

#[test]
fn captured_work_becomes_nodes_of_its_type() {
    let bench = &in_child!(without_misuse());
    let (device, stream) = (memory(64), bench.stream);
    let event: CUevent = event();
    begin(stream);
    append(bench, stream, 1);
    succeeds!(cuMemsetD8Async(device, 0, 16, stream));
    succeeds!(cuMemsetD2D32Async(device, 16, 5, 2, 2, stream));
    succeeds!(cuMemcpyDtoDAsync_v2(device, device + 32, 16, stream));
    succeeds!(cuMemcpyDtoDAsync_v2(device, device + 32, 0, stream));
    succeeds!(cuLaunchHostFunc(stream, Some(nothing), null_mut()));
    succeeds!(cuEventRecord(event, stream));
    succeeds!(cuEventRecordWithFlags(event, stream, 1));
    succeeds!(cuStreamWaitEvent(stream, event, 1));
    succeeds!(cuStreamWriteValue32_v2(stream, device, 4, 0));
    let graph = end(stream);
    let expected = [
        Type::CU_GRAPH_NODE_TYPE_KERNEL,
        Type::CU_GRAPH_NODE_TYPE_MEMSET,
        Type::CU_GRAPH_NODE_TYPE_MEMSET,
        Type::CU_GRAPH_NODE_TYPE_MEMCPY,
        Type::CU_GRAPH_NODE_TYPE_HOST,
        Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD,
        Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT,
        Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
    ];
    assert_eq!(kinds(graph), expected);
    bench.run(graph);
    assert_eq!(read::<1>(device), [4]);
    destroy(graph);
}

#[test]
fn captured_allocations_become_memory_nodes() {
    let bench = &in_child!(without_misuse());
    let (stream, target) = (bench.stream, memory(16));
    let outside: u64 = out!(cuMemAllocAsync(16, stream));
    begin(stream);
    let mut none = 7;
    succeeds!(cuMemAllocAsync(&raw mut none, 0, stream));
    assert_eq!(none, 0, "no memory and no node");
    let address: u64 = out!(cuMemAllocAsync(16, stream));
    succeeds!(cuMemsetD8Async(address, 3, 16, stream));
    succeeds!(cuMemcpyDtoDAsync_v2(target, address, 16, stream));
    succeeds!(cuMemFreeAsync(address, stream));
    // Other memory is refused, and the capture continues.
    refused!(INVALID, cuMemFreeAsync(outside, stream));
    refused!(INVALID, cuMemFreeAsync(address, stream));
    let graph = end(stream);
    let expected = [
        Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC,
        Type::CU_GRAPH_NODE_TYPE_MEMSET,
        Type::CU_GRAPH_NODE_TYPE_MEMCPY,
        Type::CU_GRAPH_NODE_TYPE_MEM_FREE,
    ];
    assert_eq!(kinds(graph), expected);
    bench.run(graph);
    assert_eq!(read::<4>(target), [0x0303_0303; 4]);
    destroy(graph);
    succeeds!(cuMemFreeAsync(outside, stream));
}

/// `cuMemcpyAsync` finds out itself that the addresses are those of device memory.
#[test]
fn copies_of_any_kind_are_captured_from_and_to_the_memory_of_a_captured_allocation() {
    let bench = &in_child!(without_misuse());
    let (stream, device) = (bench.stream, memory(16));
    succeeds!(cuMemsetD8_v2(device, 1, 8));
    begin(stream);
    let address: u64 = out!(cuMemAllocAsync(8, stream));
    succeeds!(cuMemcpyAsync(address, device, 8, stream));
    succeeds!(cuMemcpyAsync(device + 8, address, 7, stream));
    succeeds!(cuMemcpyAsync(device + 15, address + 7, 1, stream));
    succeeds!(cuMemFreeAsync(address, stream));
    let graph = end(stream);
    bench.run(graph);
    assert_eq!(read::<4>(device), [0x0101_0101; 4]);
    destroy(graph);
}

#[test]
fn a_stream_that_joined_a_capture_can_be_destroyed_after_another_stream_waits_for_it() {
    let bench = &in_child!(without_misuse());
    let event: CUevent = event();
    let fork = || {
        let other: CUstream = out!(cuStreamCreate(1));
        succeeds!(cuEventRecord(event, bench.stream));
        succeeds!(cuStreamWaitEvent(other, event, 0));
        append(bench, other, 1);
        other
    };
    begin(bench.stream);
    let other = fork();
    succeeds!(cuEventRecord(event, other));
    succeeds!(cuStreamWaitEvent(bench.stream, event, 0));
    succeeds!(cuStreamDestroy_v2(other));
    append(bench, bench.stream, 2);
    let graph = end(bench.stream);
    assert_eq!(kinds(graph), [Type::CU_GRAPH_NODE_TYPE_KERNEL; 2]);
    destroy(graph);

    begin(bench.stream);
    succeeds!(cuStreamDestroy_v2(fork()));
    let mut graph = null_mut();
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    refused!(invalidated, cuStreamEndCapture(bench.stream, &raw mut graph));
}

#[test]
fn a_capture_that_ends_on_another_thread_is_over() {
    let bench = &in_child!(without_misuse());
    let stream = bench.stream.expose_provenance();
    succeeds!(cuStreamBeginCapture_v2(bench.stream, Mode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    let elsewhere = move || {
        let (stream, mut graph) = (core::ptr::with_exposed_provenance_mut(stream), null_mut());
        code!(cuStreamEndCapture(stream, &raw mut graph))
    };
    let code = std::thread::spawn(elsewhere).join().expect("no panic");
    assert_eq!(code, CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    let mut graph = null_mut();
    let state = CUresult::CUDA_ERROR_ILLEGAL_STATE;
    refused!(state, cuStreamEndCapture(bench.stream, &raw mut graph));
}

#[test]
fn ending_a_capture_on_a_stream_that_joined_invalidates_it() {
    let bench = &in_child!(without_misuse());
    let (other, event): (CUstream, CUevent) = (out!(cuStreamCreate(1)), event());
    begin(bench.stream);
    succeeds!(cuEventRecord(event, bench.stream));
    succeeds!(cuStreamWaitEvent(other, event, 0));
    let mut graph = null_mut();
    let unmatched = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    refused!(unmatched, cuStreamEndCapture(other, &raw mut graph));
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    refused!(invalidated, cuStreamEndCapture(bench.stream, &raw mut graph));
    let mut status = Status::CU_STREAM_CAPTURE_STATUS_ACTIVE;
    succeeds!(cuStreamIsCapturing(other, &raw mut status));
    assert_eq!(status, Status::CU_STREAM_CAPTURE_STATUS_NONE);
    succeeds!(cuStreamDestroy_v2(other));
}

#[test]
fn a_captured_copy_has_parameters() {
    let bench = &in_child!(without_misuse());
    let device = memory(32);
    begin(bench.stream);
    succeeds!(cuMemcpyDtoDAsync_v2(device + 16, device, 8, bench.stream));
    let its = info(bench.stream).last[0];
    let graph = end(bench.stream);
    let mut shown = copy(Side::Device(0), Side::Device(0), 0);
    succeeds!(cuGraphMemcpyNodeGetParams(its, &raw mut shown));
    assert_eq!((shown.srcDevice, shown.dstDevice, shown.WidthInBytes), (device, device + 16, 8));
    let executable = instantiate(graph);
    copy_node(graph, &[its], &shown);
    destroy_executable(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    destroy(graph);
}

#[test]
fn an_event_of_a_capture_cannot_be_used_until_it_is_recorded_again() {
    let bench = &in_child!(without_misuse());
    let event: CUevent = event();
    begin(bench.stream);
    succeeds!(cuEventRecord(event, bench.stream));
    destroy(end(bench.stream));
    refused!(INVALID, cuEventQuery(event));
    refused!(INVALID, cuEventSynchronize(event));
    refused!(INVALID, cuStreamWaitEvent(bench.stream, event, 0));
    succeeds!(cuEventRecord(event, bench.stream));
    succeeds!(cuEventSynchronize(event));
}

#[test]
fn work_on_the_legacy_stream_invalidates_the_capture_of_a_blocking_stream() {
    let bench = &in_child!(without_misuse());
    let blocking: CUstream = out!(cuStreamCreate(0));
    begin(blocking);
    let implicit = CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    refused!(implicit, cuMemsetD8Async(bench.log, 0, 4, null_mut()));
    let mut graph = null_mut();
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    refused!(invalidated, cuStreamEndCapture(blocking, &raw mut graph));
    succeeds!(cuStreamDestroy_v2(blocking));
}
