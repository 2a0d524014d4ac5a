//! Allocation and free nodes on the software driver. The codes are those of driver 580.

use crate::prelude::*;
use CUgraphMem_attribute as Attribute;

fn params(bytes: usize) -> CUDA_MEM_ALLOC_NODE_PARAMS {
    let mut params = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
    params.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location.type_ = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
    params.bytesize = bytes;
    params
}

fn allocate(graph: CUgraph, after: &[CUgraphNode], bytes: usize) -> (CUgraphNode, u64) {
    let (mut params, mut node) = (params(bytes), null_mut());
    let (after, count) = (after.as_ptr(), after.len());
    succeeds!(cuGraphAddMemAllocNode(&raw mut node, graph, after, count, &raw mut params));
    (node, params.dptr)
}

fn free(graph: CUgraph, after: CUgraphNode, address: u64) -> CUgraphNode {
    out!(cuGraphAddMemFreeNode(graph, &raw const after, 1, address))
}

/// Returns the bytes that the graphs of the device use, and those that they reserve.
fn usage() -> [u64; 2] {
    [
        Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT,
        Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
    ]
    .map(|attribute| {
        let mut value = 0u64;
        succeeds!(cuDeviceGetGraphMemAttribute(0, attribute, (&raw mut value).cast()));
        value
    })
}

fn launch(bench: &Bench, executable: CUgraphExec) -> CUresult {
    code!(cuGraphLaunch(executable, bench.stream))
}

#[test]
fn memory_of_a_graph_lives_between_its_allocation_and_its_free() {
    let bench = &in_child!(without_misuse());
    let (graph, target) = (graph(), memory(16));
    let (node, address) = allocate(graph, &[], 16);
    let filled = fill_node(graph, &[node], &fill(address, 7, 4));
    let copy = crate::graph::calls::copy(
        crate::graph::calls::Side::Device(address),
        crate::graph::calls::Side::Device(target),
        16,
    );
    let copied = crate::graph::calls::copy_node(graph, &[filled], &copy);
    let freed = free(graph, copied, address);
    let mut shown = 0;
    succeeds!(cuGraphMemFreeNodeGetParams(freed, &raw mut shown));
    assert_eq!(shown, address);
    let mut shown = CUDA_MEM_ALLOC_NODE_PARAMS::zeroed();
    succeeds!(cuGraphMemAllocNodeGetParams(node, &raw mut shown));
    assert_eq!((shown.dptr, shown.bytesize), (address, 16));
    let executable = instantiate(graph);
    for _ in 0..3 {
        bench.launch(executable);
    }
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read(target), [7; 4]);
}

#[test]
fn memory_that_a_graph_keeps_must_be_freed_before_the_next_launch() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let (node, address) = allocate(graph, &[], 16);
    fill_node(graph, &[node], &fill(address, 7, 4));
    let executable = instantiate(graph);
    bench.launch(executable);
    assert_eq!(launch(bench, executable), INVALID);
    succeeds!(cuMemFreeAsync(address, bench.stream));
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read(address), [7; 4]);
    succeeds!(cuMemFree_v2(address));
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    // The memory outlives the graph and the executable graph.
    destroy_executable(executable);
    destroy(graph);
    assert_eq!(read(address), [7; 4]);
    succeeds!(cuMemFreeAsync(address, bench.stream));
}

#[test]
fn memory_of_one_graph_can_be_freed_by_another() {
    let bench = &in_child!(without_misuse());
    let (graph, other) = (graph(), graph());
    let (_, address) = allocate(graph, &[], 16);
    let first = empty_node(other, &[]);
    free(other, first, address);
    let (executable, frees) = (instantiate(graph), instantiate(other));
    assert_eq!(launch(bench, frees), INVALID, "nothing is allocated");
    bench.launch(executable);
    bench.launch(frees);
    assert_eq!(launch(bench, frees), INVALID, "it was freed");
    bench.launch(executable);
    bench.launch(frees);
    succeeds!(cuStreamSynchronize(bench.stream));
}

#[test]
fn a_launch_can_free_the_memory_of_the_launch_before() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    let (node, address) = allocate(graph, &[], 16);
    fill_node(graph, &[node], &fill(address, 7, 4));
    let executable: CUgraphExec = out!(cuGraphInstantiateWithFlags(graph, 1));
    bench.launch(executable);
    bench.launch(executable);
    succeeds!(cuMemFreeAsync(address, bench.stream));
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(read(address), [7; 4]);
    succeeds!(cuGraphExecDestroy(executable));
    destroy(graph);
    succeeds!(cuMemFreeAsync(address, bench.stream));
}

#[test]
fn a_graph_with_memory_has_one_executable_graph_and_no_clone() {
    let _bench = in_child!(without_misuse());
    let (graph, parent) = (graph(), graph());
    let (node, _) = allocate(graph, &[], 16);
    let last = empty_node(graph, &[node]);
    let executable = instantiate(graph);
    let mut other = null_mut();
    refused!(UNSUPPORTED, cuGraphInstantiateWithFlags(&raw mut other, graph, 0));
    let mut clone = null_mut();
    refused!(UNSUPPORTED, cuGraphClone(&raw mut clone, graph));
    let mut child = null_mut();
    refused!(UNSUPPORTED, cuGraphAddChildGraphNode(&raw mut child, parent, null(), 0, graph));
    refused!(UNSUPPORTED, cuGraphDestroyNode(last));
    let (from, to) = (&raw const node, &raw const last);
    refused!(UNSUPPORTED, cuGraphRemoveDependencies_v2(graph, from, to, null(), 1));
    refused!(INVALID, cuGraphNodeSetEnabled(executable, node, 0));
    destroy_executable(executable);
    let again = instantiate(graph);
    destroy_executable(again);
    // A launch from the device.
    refused!(INVALID, cuGraphInstantiateWithFlags(&raw mut other, graph, 4));
}

#[test]
fn memory_nodes_with_invalid_parameters_are_refused() {
    let bench = &in_child!(without_misuse());
    let (graph, plain) = (graph(), memory(16));
    let mut node = null_mut();
    let mut unknown = params(16);
    unknown.poolProps.allocType = CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_INVALID;
    let mut shared = params(16);
    shared.poolProps.handleTypes =
        CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    let memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    for (code, mut bad) in
        [(INVALID, params(0)), (INVALID, unknown), (memory, params(1 << 50)), (UNSUPPORTED, shared)]
    {
        let place = &raw mut bad;
        refused!(code, cuGraphAddMemAllocNode(&raw mut node, graph, null(), 0, place));
    }
    let pool: u64 = out!(cuMemAllocAsync(16, bench.stream));
    let (first, address) = allocate(graph, &[], 16);
    for bad in [plain, pool, address + 4, 0x1234] {
        refused!(INVALID, cuGraphAddMemFreeNode(&raw mut node, graph, null(), 0, bad));
    }
    free(graph, first, address);
    refused!(INVALID, cuGraphAddMemFreeNode(&raw mut node, graph, null(), 0, address));
    destroy(graph);
    free_memory(plain);
    succeeds!(cuMemFreeAsync(pool, bench.stream));
}

#[test]
fn too_much_memory_is_found_by_the_launch() {
    let bench = &in_child!(without_misuse());
    let graph = graph();
    allocate(graph, &[], 16);
    allocate(graph, &[], 200 << 30);
    let executable = instantiate(graph);
    assert_eq!(launch(bench, executable), CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(cuda_sim::alive().device_allocations, 1, "only the log");
}

#[test]
fn the_memory_of_graphs_is_counted_until_it_is_trimmed() {
    let bench = &in_child!(without_misuse());
    let (graph, other) = (graph(), graph());
    let size = 64u64 << 20;
    for graph in [graph, other] {
        let (node, address) = allocate(graph, &[], 64 << 20);
        free(graph, node, address);
    }
    assert_eq!(usage(), [0, 0]);
    let (first, second) = (instantiate(graph), instantiate(other));
    for executable in [first, second] {
        bench.launch(executable);
        succeeds!(cuStreamSynchronize(bench.stream));
        assert_eq!(usage(), [size, size], "shared by graphs that follow each other");
    }
    destroy_executable(first);
    destroy_executable(second);
    assert_eq!(usage(), [0, size]);
    succeeds!(cuDeviceGraphMemTrim(0));
    assert_eq!(usage(), [0, 0]);
    let high = Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH;
    let mut value = 1u64;
    let place: *mut c_void = (&raw mut value).cast();
    refused!(INVALID, cuDeviceSetGraphMemAttribute(0, high, place));
    succeeds!(cuDeviceGetGraphMemAttribute(0, high, place));
    // SAFETY: the place is a local number of 64 bits.
    assert_eq!(unsafe { place.cast::<u64>().read() }, size);
    // SAFETY: as above.
    unsafe { place.cast::<u64>().write(0) };
    succeeds!(cuDeviceSetGraphMemAttribute(0, high, place));
    succeeds!(cuDeviceGetGraphMemAttribute(0, high, place));
    // SAFETY: as above.
    assert_eq!(unsafe { place.cast::<u64>().read() }, 0);
}

#[test]
fn an_update_gives_an_executable_graph_the_memory_of_the_other_graph() {
    let bench = &in_child!(without_misuse());
    let (graph, other) = (graph(), graph());
    let (node, address) = allocate(graph, &[], 16);
    free(graph, node, address);
    let (node, larger) = allocate(other, &[], 32);
    let executable = instantiate(graph);
    succeeds!(cuGraphExecUpdate_v2(executable, graph, null_mut()));
    free(other, node, larger);
    succeeds!(cuGraphExecUpdate_v2(executable, other, null_mut()));
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
}

#[test]
fn memory_of_a_graph_has_no_attributes_before_a_launch() {
    let _bench = in_child!(without_misuse());
    let graph = graph();
    let (_, address) = allocate(graph, &[], 16);
    let mut value = 0u64;
    let kind = CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    let place = (&raw mut value).cast();
    refused!(INVALID, cuPointerGetAttribute(place, kind, address));
}

#[test]
fn a_kernel_that_uses_memory_after_the_free_node_is_a_misuse() {
    let bench = &in_child!(misused("are not allocated"));
    let graph = graph();
    let (node, address) = allocate(graph, &[], 256);
    let freed = free(graph, node, address);
    let value = 1u32;
    let arguments = [(&raw const address).cast(), (&raw const value).cast()];
    crate::graph::calls::kernel_node(graph, &[freed], bench.append, &arguments);
    let executable = instantiate(graph);
    bench.launch(executable);
    refused!(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(bench.stream));
    // Graphs can still be destroyed.
    destroy_executable(executable);
    destroy(graph);
}

#[test]
fn a_second_allocation_that_is_not_ordered_after_the_free_is_a_misuse() {
    let bench = &in_child!(misused("is allocated again before its free has run"));
    let graph = graph();
    let (_, address) = allocate(graph, &[], 16);
    let executable = instantiate(graph);
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    let other: CUstream = out!(cuStreamCreate(1));
    // The free waits for a host function, and the launch on the other stream does not.
    unsafe extern "C" fn nothing(_: *mut c_void) {}
    for _ in 0..64 {
        succeeds!(cuLaunchHostFunc(bench.stream, Some(nothing), null_mut()));
    }
    succeeds!(cuMemFreeAsync(address, bench.stream));
    succeeds!(cuGraphLaunch(executable, other));
    assert!(!code!(cuStreamSynchronize(other)).is_success());
}
