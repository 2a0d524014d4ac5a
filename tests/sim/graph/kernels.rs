//! Kernel nodes on the software driver: arguments, attributes, and the launches that are refused. The codes are those of driver 580.

use crate::graph::calls::{IMAGE, kernel_node, kernel_params};
use crate::prelude::*;

#[test]
fn kernels_of_a_graph_run_in_the_order_of_its_edges() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let first = bench.append(graph, &[], 1);
    let second = bench.append(graph, &[first], 2);
    bench.append(graph, &[first, second], 3);
    assert_eq!(bench.run(graph), [1, 2, 3]);
}

#[test]
fn a_kernel_node_copies_its_arguments_when_it_is_added() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let mut value = 5u32;
    let arguments = [(&raw const bench.log).cast(), (&raw const value).cast()];
    kernel_node(graph, &[], bench.append, &arguments);
    value += 1;
    assert_eq!(bench.run(graph), [5]);
    destroy(graph);
    assert_eq!(value, 6);
}

#[test]
fn a_kernel_node_takes_its_arguments_as_one_buffer() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let mut buffer = [0u8; 12];
    buffer[..8].copy_from_slice(&bench.log.to_ne_bytes());
    buffer[8..].copy_from_slice(&9u32.to_ne_bytes());
    let mut size = buffer.len();
    let mut extra = [
        CU_LAUNCH_PARAM_BUFFER_POINTER,
        buffer.as_mut_ptr().cast(),
        CU_LAUNCH_PARAM_BUFFER_SIZE,
        (&raw mut size).cast(),
        CU_LAUNCH_PARAM_END,
    ];
    let mut params = kernel_params(bench.append, &[]);
    (params.kernelParams, params.extra) = (null_mut(), extra.as_mut_ptr());
    let node: CUgraphNode = out!(cuGraphAddKernelNode_v2(graph, null(), 0, &raw const params));
    assert_eq!(bench.run(graph), [9]);
    let mut shown = CUDA_KERNEL_NODE_PARAMS::zeroed();
    succeeds!(cuGraphKernelNodeGetParams_v2(node, &raw mut shown));
    assert!(shown.kernelParams.is_null() && !shown.extra.is_null());
    // The answer of the driver is valid as an input.
    succeeds!(cuGraphKernelNodeSetParams_v2(node, &raw const shown));
    assert_eq!(bench.run(graph), [9]);
}

#[test]
fn kernel_nodes_with_invalid_launches_are_refused() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let value = 1u32;
    let arguments: [*const c_void; 2] = [(&raw const bench.log).cast(), (&raw const value).cast()];
    let good = kernel_params(bench.append, &arguments);
    let missing: [*const c_void; 2] = [arguments[0], null()];
    let bad = [
        CUDA_KERNEL_NODE_PARAMS { kernelParams: null_mut(), ..good },
        kernel_params(bench.append, &missing),
        CUDA_KERNEL_NODE_PARAMS { gridDimX: 0, ..good },
        CUDA_KERNEL_NODE_PARAMS { blockDimX: 2048, ..good },
        CUDA_KERNEL_NODE_PARAMS { sharedMemBytes: 1 << 20, ..good },
    ];
    let mut node = null_mut();
    for params in &bad {
        let params = from_ref(params);
        refused!(INVALID, cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, params));
    }
    let none = kernel_params(null_mut(), &arguments);
    let handle = CUresult::CUDA_ERROR_INVALID_HANDLE;
    let params = &raw const none;
    refused!(handle, cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, params));
    assert!(bench.run(graph).is_empty());
}

/// The answers are those of driver 580.
#[test]
fn a_kernel_node_needs_blocks_and_threads() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let node = bench.append(graph, &[], 1);
    let executable = instantiate(graph);
    let value = 2u32;
    let arguments = [(&raw const bench.log).cast(), (&raw const value).cast()];
    let good = kernel_params(bench.append, &arguments);
    let empty = [
        CUDA_KERNEL_NODE_PARAMS { gridDimX: 0, ..good },
        CUDA_KERNEL_NODE_PARAMS { gridDimY: 0, ..good },
        CUDA_KERNEL_NODE_PARAMS { gridDimZ: 0, ..good },
        CUDA_KERNEL_NODE_PARAMS { blockDimX: 0, ..good },
        CUDA_KERNEL_NODE_PARAMS { blockDimZ: 0, ..good },
    ];
    for params in &empty {
        let params = from_ref(params);
        let mut other = null_mut();
        refused!(INVALID, cuGraphAddKernelNode_v2(&raw mut other, graph, null(), 0, params));
        refused!(INVALID, cuGraphKernelNodeSetParams_v2(node, params));
        refused!(INVALID, cuGraphExecKernelNodeSetParams_v2(executable, node, params));
    }
    assert_eq!(bench.run(graph), [1]);
    bench.clear();
    bench.launch(executable);
    assert_eq!(bench.logged(), [1]);
    destroy_executable(executable);
}

#[test]
fn the_parameters_of_a_kernel_node_can_be_read_and_replaced() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let node = bench.append(graph, &[], 1);
    let mut params = CUDA_KERNEL_NODE_PARAMS::zeroed();
    succeeds!(cuGraphKernelNodeGetParams_v2(node, &raw mut params));
    assert_eq!((params.func, params.gridDimX, params.blockDimX), (bench.append, 1, 1));
    // SAFETY: the driver returns a pointer for each of the two arguments.
    let second = unsafe { params.kernelParams.add(1) };
    // SAFETY: as above.
    let second = unsafe { second.read() };
    // SAFETY: the second argument is a number of 32 bits.
    assert_eq!(unsafe { second.cast::<u32>().read() }, 1);
    let value = 7u32;
    let arguments = [(&raw const bench.log).cast(), (&raw const value).cast()];
    let params = kernel_params(bench.append, &arguments);
    succeeds!(cuGraphKernelNodeSetParams_v2(node, &raw const params));
    assert_eq!(bench.run(graph), [7]);
}

#[test]
fn attributes_of_kernel_nodes_are_set_read_and_copied() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let (from, to) = (bench.append(graph, &[], 1), bench.append(graph, &[], 2));
    let priority = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PRIORITY;
    let mut value = CUlaunchAttributeValue::zeroed();
    value.priority = -3;
    succeeds!(cuGraphKernelNodeSetAttribute(from, priority, &raw const value));
    succeeds!(cuGraphKernelNodeCopyAttributes(to, from));
    let mut copied = CUlaunchAttributeValue::zeroed();
    succeeds!(cuGraphKernelNodeGetAttribute(to, priority, &raw mut copied));
    // SAFETY: this is the field of the attribute.
    assert_eq!(unsafe { copied.priority }, -3);
    let empty = empty_node(graph, &[]);
    refused!(INVALID, cuGraphKernelNodeSetAttribute(empty, priority, &raw const value));
}

#[test]
fn a_kernel_node_with_a_function_without_a_current_context_is_a_misuse() {
    let bench = &in_child!(misused("no context is current"));
    let (graph, value) = (graph(), 1u32);
    succeeds!(cuCtxSetCurrent(null_mut()));
    let arguments = [(&raw const bench.log).cast(), (&raw const value).cast()];
    let params = kernel_params(bench.append, &arguments);
    let (mut node, place) = (null_mut(), &raw const params);
    let add = code!(cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, place));
    assert_eq!(add, CUresult::CUDA_ERROR_INVALID_CONTEXT);
}

#[test]
fn a_kernel_of_a_library_is_named_by_its_own_field() {
    let bench = &in_child!(without_misuse());
    let (image, no) = (IMAGE.as_ptr().cast(), null_mut());
    let none = (null_mut(), null_mut());
    let library: CUlibrary = out!(cuLibraryLoadData(image, no, none.0, 0, null_mut(), none.1, 0));
    let kernel: CUkernel = out!(cuLibraryGetKernel(library, c"append".as_ptr()));
    let (graph, value) = (graph(), 4u32);
    let arguments = [(&raw const bench.log).cast(), (&raw const value).cast()];
    // Launches accept a kernel in place of a function, but nodes do not.
    let mut params = kernel_params(kernel.cast(), &arguments);
    let (mut node, place) = (null_mut(), &raw mut params);
    let handle = CUresult::CUDA_ERROR_INVALID_HANDLE;
    refused!(handle, cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, place));
    params.func = out!(cuKernelGetFunction(kernel));
    succeeds!(cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, &raw const params));
    (params.func, params.kern, params.ctx) = (null_mut(), kernel, bench.context);
    succeeds!(cuCtxSetCurrent(null_mut()));
    succeeds!(cuGraphAddKernelNode_v2(&raw mut node, graph, null(), 0, &raw const params));
    succeeds!(cuCtxSetCurrent(bench.context));
    assert_eq!(bench.run(graph), [4, 4]);
    succeeds!(cuLibraryUnload(library));
}

/// Returns a graph that launches another one from its kernel.
fn launching(bench: &Bench, launched: CUgraphExec) -> CUgraph {
    let launch = out!(cuModuleGetFunction(bench.module, c"launch".as_ptr()));
    let (graph, launched) = (graph(), launched.expose_provenance() as u64);
    kernel_node(graph, &[], launch, &[(&raw const launched).cast()]);
    graph
}

#[test]
fn a_kernel_of_a_graph_launches_an_uploaded_graph() {
    let bench = &in_child!(without_misuse());
    let device_launch = 4;
    let inner = graph();
    bench.append(inner, &[], 1);
    let launched: CUgraphExec = out!(cuGraphInstantiateWithFlags(inner, device_launch));
    succeeds!(cuGraphUpload(launched, bench.stream));
    let outer = launching(bench, launched);
    let executable = instantiate(outer);
    bench.launch(executable);
    bench.launch(executable);
    // Waiting for the stream waits for the launched graphs.
    assert_eq!(bench.logged(), [1, 1]);
    succeeds!(cuGraphExecDestroy(launched));
    destroy(outer);
}

#[test]
fn a_kernel_that_launches_a_graph_that_was_not_uploaded_is_a_misuse() {
    let bench = &in_child!(misused("is not an uploaded graph"));
    let inner = graph();
    let launched: CUgraphExec = out!(cuGraphInstantiateWithFlags(inner, 4));
    bench.launch(instantiate(launching(bench, launched)));
    assert!(!code!(cuStreamSynchronize(bench.stream)).is_success());
}
