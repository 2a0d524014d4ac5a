//! Edges, queries and clones of graphs on the software driver. The codes are those of driver 580.

use crate::prelude::*;
use CUgraphNodeType as Type;

const PLAIN: CUgraphEdgeData = edge(0, 0, 0);

const fn edge(from_port: u8, to_port: u8, kind: u8) -> CUgraphEdgeData {
    CUgraphEdgeData { from_port, to_port, type_: kind, reserved: [0; 5] }
}

fn nodes(graph: CUgraph) -> Vec<CUgraphNode> {
    let mut count = 0;
    succeeds!(cuGraphGetNodes(graph, null_mut(), &raw mut count));
    let mut nodes = vec![null_mut(); count + 1];
    count += 1;
    succeeds!(cuGraphGetNodes(graph, nodes.as_mut_ptr(), &raw mut count));
    assert!(nodes[count..].iter().all(|node| node.is_null()), "spare entries are null");
    nodes.truncate(count);
    nodes
}

fn connect(graph: CUgraph, from: CUgraphNode, to: CUgraphNode, data: &CUgraphEdgeData) -> CUresult {
    let (from, to, data) = (&raw const from, &raw const to, core::ptr::from_ref(data));
    code!(cuGraphAddDependencies_v2(graph, from, to, data, 1))
}

fn disconnect(graph: CUgraph, from: CUgraphNode, to: CUgraphNode) -> CUresult {
    let (from, to) = (&raw const from, &raw const to);
    code!(cuGraphRemoveDependencies_v2(graph, from, to, null(), 1))
}

#[test]
fn nodes_are_listed_in_the_order_in_which_they_were_added() {
    let _bench = in_child!(without_misuse());
    let graph = graph();
    let (a, b) = (empty_node(graph, &[]), empty_node(graph, &[]));
    let c = empty_node(graph, &[a]);
    assert_eq!(nodes(graph), [a, b, c]);
    succeeds!(cuGraphDestroyNode(b));
    let d = empty_node(graph, &[a, c]);
    assert_eq!(nodes(graph), [a, c, d]);
    let (mut roots, mut count) = ([null_mut(); 3], 3);
    succeeds!(cuGraphGetRootNodes(graph, roots.as_mut_ptr(), &raw mut count));
    assert_eq!((count, roots), (1, [a, null_mut(), null_mut()]));
    refused!(INVALID, cuGraphGetNodes(graph, null_mut(), null_mut()));
}

#[test]
fn edges_are_added_listed_and_removed() {
    let _bench = in_child!(without_misuse());
    let graph = graph();
    let (a, b, c) = (empty_node(graph, &[]), empty_node(graph, &[]), empty_node(graph, &[]));
    succeeds!(cuGraphAddDependencies_v2(graph, [a, b].as_ptr(), [b, c].as_ptr(), null(), 2));
    let (mut from, mut to, mut count) = ([null_mut(); 4], [null_mut(); 4], 0);
    let place = (from.as_mut_ptr(), to.as_mut_ptr());
    refused!(INVALID, cuGraphGetEdges_v2(graph, place.0, place.1, null_mut(), &raw mut count));
    count = 4;
    succeeds!(cuGraphGetEdges_v2(graph, place.0, place.1, null_mut(), &raw mut count));
    assert_eq!(
        (count, &from[..3], &to[..3]),
        (2, &[a, b, null_mut()][..], &[b, c, null_mut()][..])
    );
    let (mut near, mut count) = ([null_mut(); 2], 2);
    succeeds!(cuGraphNodeGetDependencies_v2(b, near.as_mut_ptr(), null_mut(), &raw mut count));
    assert_eq!((count, near[0]), (1, a));
    count = 2;
    succeeds!(cuGraphNodeGetDependentNodes_v2(b, near.as_mut_ptr(), null_mut(), &raw mut count));
    assert_eq!((count, near[0]), (1, c));
    // An edge that exists, to itself, or to nothing.
    for (from, to) in [(a, b), (a, a), (a, null_mut())] {
        assert_eq!(connect(graph, from, to, &PLAIN), INVALID);
    }
    assert!(disconnect(graph, a, b).is_success());
    assert_eq!(disconnect(graph, a, b), INVALID);
}

#[test]
fn only_edges_between_kernels_have_data() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let (a, b) = (bench.append(graph, &[], 1), bench.append(graph, &[], 2));
    let other = empty_node(graph, &[]);
    let mut reserved = PLAIN;
    reserved.reserved[0] = 1;
    for bad in [edge(0, 0, 1), edge(3, 0, 1), edge(1, 1, 1), edge(1, 0, 2), reserved] {
        assert_eq!(connect(graph, a, b, &bad), INVALID);
    }
    for good in [edge(1, 0, 1), edge(2, 0, 1), edge(2, 0, 0)] {
        assert_eq!(connect(graph, a, other, &good), INVALID);
        assert!(connect(graph, a, b, &good).is_success());
        let (mut from, mut to, mut count) = ([null_mut(); 1], [null_mut(); 1], 1);
        let place = (from.as_mut_ptr(), to.as_mut_ptr());
        let lossy = CUresult::CUDA_ERROR_LOSSY_QUERY;
        refused!(lossy, cuGraphGetEdges_v2(graph, place.0, place.1, null_mut(), &raw mut count));
        refused!(lossy, cuGraphNodeGetDependencies_v2(b, place.0, null_mut(), &raw mut count));
        let mut data = PLAIN;
        succeeds!(cuGraphGetEdges_v2(graph, place.0, place.1, &raw mut data, &raw mut count));
        assert_eq!((data.from_port, data.type_), (good.from_port, good.type_));
        assert!(disconnect(graph, a, b).is_success());
    }
}

#[test]
fn an_instantiation_of_a_cycle_is_a_misuse() {
    let _bench = in_child!(misused("a cycle; a real driver may crash"));
    let graph = graph();
    let a = empty_node(graph, &[]);
    let b = empty_node(graph, &[a]);
    assert!(connect(graph, b, a, &PLAIN).is_success());
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed();
    let (mut executable, place) = (null_mut(), &raw mut params);
    refused!(INVALID, cuGraphInstantiateWithParams(&raw mut executable, graph, place));
    let structure = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE;
    assert_eq!(params.result_out, structure);
    assert!([a, b].contains(&params.hErrNode_out));
    let clone: CUgraph = out!(cuGraphClone(graph));
    destroy(clone);
}

#[test]
fn a_clone_has_nodes_of_its_own() {
    let bench = &in_child!(without_misuse());
    let original = graph();
    let first = bench.append(original, &[], 1);
    let second = bench.append(original, &[first], 2);
    let clone: CUgraph = out!(cuGraphClone(original));
    let found: CUgraphNode = out!(cuGraphNodeFindInClone(second, clone));
    assert_ne!(found, second);
    assert_eq!(nodes(clone)[1], found);
    bench.append(original, &[second], 3);
    assert_eq!(bench.run(clone), [1, 2]);
    assert_eq!(bench.run(original), [1, 2, 3]);
    let (mut none, foreign) = (null_mut(), empty_node(clone, &[]));
    refused!(INVALID, cuGraphNodeFindInClone(&raw mut none, foreign, clone));
    destroy(original);
    assert_eq!(bench.run(clone), [1, 2]);
    destroy(clone);
}

#[test]
fn a_destroyed_node_is_a_misuse_except_as_a_dependency() {
    let _bench = in_child!(misused("a node of a graph is used after it was destroyed"));
    let graph = graph();
    let node = empty_node(graph, &[]);
    succeeds!(cuGraphDestroyNode(node));
    let mut made = null_mut();
    refused!(INVALID, cuGraphAddEmptyNode(&raw mut made, graph, &raw const node, 1));
    assert_eq!(cuda_sim::misuses(), [""; 0]);
    let mut kind = Type::CU_GRAPH_NODE_TYPE_EMPTY;
    assert!(!code!(cuGraphNodeGetType(node, &raw mut kind)).is_success());
}

#[test]
fn a_number_that_is_no_node_is_a_misuse() {
    let _bench = in_child!(misused("a handle that is not a node"));
    let node = null_mut::<u8>().wrapping_add(0x1234).cast();
    assert!(!code!(cuGraphDestroyNode(node)).is_success());
}

#[test]
fn finding_a_destroyed_node_in_a_clone_is_a_misuse() {
    let _bench = in_child!(misused("a node of a graph is used after it was destroyed"));
    let graph = graph();
    let node = empty_node(graph, &[]);
    let clone: CUgraph = out!(cuGraphClone(graph));
    succeeds!(cuGraphDestroyNode(node));
    let mut found = null_mut();
    assert!(!code!(cuGraphNodeFindInClone(&raw mut found, node, clone)).is_success());
}

#[test]
fn a_graph_that_is_used_after_its_destruction_is_a_misuse() {
    let _bench = in_child!(misused("a graph is used after it was destroyed"));
    let graph = graph();
    destroy(graph);
    let mut node = null_mut();
    refused!(INVALID, cuGraphAddEmptyNode(&raw mut node, graph, null(), 0));
}

#[test]
fn handles_of_other_kinds_are_refused() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let executable = instantiate(graph);
    refused!(INVALID, cuGraphDestroy(executable.cast()));
    refused!(INVALID, cuGraphDestroy(null_mut()));
    refused!(INVALID, cuGraphExecDestroy(graph.cast()));
    refused!(INVALID, cuGraphLaunch(graph.cast(), bench.stream));
    let (mut made, mut clone) = (null_mut(), null_mut());
    refused!(INVALID, cuGraphInstantiateWithFlags(&raw mut made, executable.cast(), 0));
    refused!(INVALID, cuGraphClone(&raw mut clone, executable.cast()));
    refused!(INVALID, cuGraphCreate(&raw mut clone, 1));
}

#[test]
fn instantiation_accepts_the_documented_flags() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    for (flags, shown) in [(0u64, 0), (1, 1), (4, 4), (8, 0)] {
        let executable: CUgraphExec = out!(cuGraphInstantiateWithFlags(graph, flags));
        let mut its = 99;
        succeeds!(cuGraphExecGetFlags(executable, &raw mut its));
        assert_eq!(its, shown);
        succeeds!(cuGraphExecDestroy(executable));
    }
    let mut executable = null_mut();
    for flags in [2, 5, 16] {
        refused!(INVALID, cuGraphInstantiateWithFlags(&raw mut executable, graph, flags));
    }
    // The upload needs a stream, and then no context.
    let mut params = CUDA_GRAPH_INSTANTIATE_PARAMS::zeroed();
    (params.flags, params.hUploadStream) = (2, bench.stream);
    succeeds!(cuCtxSetCurrent(null_mut()));
    succeeds!(cuGraphInstantiateWithParams(&raw mut executable, graph, &raw mut params));
    let success = CUgraphInstantiateResult::CUDA_GRAPH_INSTANTIATE_SUCCESS;
    assert_eq!(params.result_out, success);
    succeeds!(cuCtxSetCurrent(bench.context));
    succeeds!(cuGraphUpload(executable, bench.stream));
    bench.launch(executable);
    succeeds!(cuGraphExecDestroy(executable));
}

#[test]
fn an_executable_graph_does_not_change_with_its_graph() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    bench.append(graph, &[], 1);
    let executable = instantiate(graph);
    bench.append(graph, &[], 2);
    destroy(graph);
    bench.launch(executable);
    assert_eq!(bench.logged(), [1]);
}

/// Without that order, the second launch could begin before the first one ends.
#[test]
fn launches_of_one_executable_graph_follow_each_other_on_all_streams() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let first = bench.append(graph, &[], 1);
    bench.append(graph, &[first], 2);
    let executable = instantiate(graph);
    let other: CUstream = out!(cuStreamCreate(1));
    for stream in [bench.stream, other, bench.stream, other] {
        succeeds!(cuGraphLaunch(executable, stream));
    }
    succeeds!(cuStreamSynchronize(other));
    assert_eq!(bench.logged(), [1, 2, 1, 2, 1, 2, 1, 2]);
    succeeds!(cuStreamDestroy_v2(other));
}

#[test]
fn an_upload_to_a_capturing_stream_invalidates_the_capture() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let executable = instantiate(graph);
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
    let unsupported = CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    refused!(unsupported, cuGraphUpload(executable, bench.stream));
    let mut captured = null_mut();
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    refused!(invalidated, cuStreamEndCapture(bench.stream, &raw mut captured));
}

#[test]
fn a_graph_is_printed_with_its_child_graphs() {
    let bench = &in_child!(without_misuse());
    let (parent, child, device) = (graph(), graph(), memory(128));
    let first = bench.append(parent, &[], 1);
    copy_node(child, &[], &copy(Side::Device(device), Side::Device(device + 64), 64));
    let _: CUgraphNode = out!(cuGraphAddChildGraphNode(parent, &raw const first, 1, child));
    let path = crate::common::scratch().join("a graph.dot");
    let name = CString::new(path.to_str().expect("text")).expect("no NUL");
    succeeds!(cuGraphDebugDotPrint(parent, name.as_ptr(), 0));
    let text = std::fs::read_to_string(&path).expect("a file");
    for part in ["digraph dot", "label=\"graph_1\"", "0\\nappend\\n", "MEMCPY\\n(DtoD,64)"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    assert!(text.contains("\"graph_1_node_0\" -> \"graph_1_node_1\";"), "{text}");
    let handle = format!("{:#x}", first.addr());
    assert!(!text.contains(&handle), "{text}");
    let verbose = CUgraphDebugDot_flags::CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;
    succeeds!(cuGraphDebugDotPrint(parent, name.as_ptr(), verbose.0));
    let text = std::fs::read_to_string(&path).expect("a file");
    assert!(text.contains(&handle), "{text}");
    refused!(INVALID, cuGraphDebugDotPrint(parent, null(), 0));
    let system = CUresult::CUDA_ERROR_OPERATING_SYSTEM;
    refused!(system, cuGraphDebugDotPrint(parent, c"/no folder/graph.dot".as_ptr(), 0));
}

/// Ids and the generic query of parameters came with CUDA 13.1 and 13.2.
#[test]
fn newer_drivers_have_ids_of_graphs_and_nodes() {
    let profile = "h200@13.4".parse().expect("a profile");
    let bench = &in_child!(crate::graph::calls::without_misuse_on(profile));
    let graph = graph();
    let (_, second) = (empty_node(graph, &[]), bench.append(graph, &[], 1));
    let mut local = 0;
    succeeds!(cuGraphNodeGetLocalId(second, &raw mut local));
    assert_eq!(local, 1);
    let (mut first_id, mut second_id) = (0, 0);
    succeeds!(cuGraphNodeGetToolsId(nodes(graph)[0], &raw mut first_id));
    succeeds!(cuGraphNodeGetToolsId(second, &raw mut second_id));
    assert_ne!(first_id, second_id);
    let mut containing = null_mut();
    succeeds!(cuGraphNodeGetContainingGraph(second, &raw mut containing));
    assert_eq!(containing, graph);
    let executable = instantiate(graph);
    let (mut id, mut other) = (0, 0);
    succeeds!(cuGraphGetId(graph, &raw mut id));
    succeeds!(cuGraphExecGetId(executable, &raw mut other));
    assert!(id != 0 && other != id);
    let mut params = CUgraphNodeParams::zeroed();
    succeeds!(cuGraphNodeGetParams(second, &raw mut params));
    assert_eq!(params.type_, Type::CU_GRAPH_NODE_TYPE_KERNEL);
    // SAFETY: the type selects this field.
    assert_eq!(unsafe { params.__bindgen_anon_1.kernel }.func, bench.append);
}

#[test]
fn a_driver_does_not_have_the_functions_of_later_versions() {
    let profile = "h200@11.8".parse().expect("a profile");
    let _bench = in_child!(crate::graph::calls::without_misuse_on(profile));
    let graph = graph();
    let node = empty_node(graph, &[]);
    let mut id = 0;
    assert!(!code!(cuGraphNodeGetLocalId(node, &raw mut id)).is_success());
    let mut handle = 0;
    let create = code!(cuGraphConditionalHandleCreate(&raw mut handle, graph, null_mut(), 0, 0));
    assert!(!create.is_success());
    // The older function exists.
    let other = empty_node(graph, &[]);
    let (from, to) = (&raw const node, &raw const other);
    succeeds!(sys::abi::cuGraphAddDependencies(graph, from, to, 1));
    let mut count = 0;
    succeeds!(sys::abi::cuGraphNodeGetDependencies(other, null_mut(), &raw mut count));
    assert_eq!(count, 1);
}

#[test]
fn a_driver_without_edge_data_adds_full_edges() {
    let (_end, context) = in_child!(on("h200@11.8".parse().expect("a profile")));
    let mut graph = Graph::new(&context).expect("a graph");
    let [from, to] = [(); 2].map(|()| graph.add_empty(&[]).expect("a node"));
    let add = || graph.add_dependency(from, to).expect("an edge");
    assert_eq!(count("cuGraphAddDependencies", add), 1);
}
