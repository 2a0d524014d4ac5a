//! The works of `plain.c` in this folder through `cuda-sys`, line by line.

use super::{DOOMED, NODES, SIZES};
use crate::raw::{KIB4, Objects, call, pointer};
use crate::work::{Work, Works};
use cuda_sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUDA_KERNEL_NODE_PARAMS, CUdeviceptr, CUfunction, CUgraph,
    CUgraphExec, CUgraphExecUpdateResultInfo, CUgraphNode,
};
use std::ffi::c_void;
use std::ptr::null_mut;

fn parameters(three: CUfunction, arguments: &mut [*mut c_void]) -> CUDA_KERNEL_NODE_PARAMS {
    CUDA_KERNEL_NODE_PARAMS {
        func: three,
        gridDimX: 1,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: 32,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: arguments.as_mut_ptr(),
        extra: null_mut(),
        kern: null_mut(),
        ctx: null_mut(),
    }
}

/// Adds a node after the previous one, or a root.
#[inline(always)]
pub(crate) fn add(
    three: CUfunction,
    graph: CUgraph,
    previous: CUgraphNode,
    memory: [CUdeviceptr; 2],
) -> CUgraphNode {
    let (a, b, c) = (memory[0], memory[1], 8u32);
    let mut arguments = [pointer(&a), pointer(&b), pointer(&c)];
    let parameters = parameters(three, &mut arguments);
    let mut node = null_mut();
    call!(cuGraphAddKernelNode_v2(
        &raw mut node,
        graph,
        &raw const previous,
        usize::from(!previous.is_null()),
        &raw const parameters
    ));
    node
}

pub(crate) fn empty() -> CUgraph {
    let mut graph = null_mut();
    call!(cuGraphCreate(&raw mut graph, 0));
    graph
}

fn chain_with(o: &Objects, count: usize, memory: [CUdeviceptr; 2]) -> (CUgraph, Vec<CUgraphNode>) {
    let (graph, mut previous) = (empty(), null_mut());
    let nodes = (0..count).map(|_| {
        previous = add(o.three, graph, previous, memory);
        previous
    });
    let nodes = nodes.collect();
    (graph, nodes)
}

fn chain(o: &Objects, count: usize) -> (CUgraph, Vec<CUgraphNode>) {
    chain_with(o, count, [o.buffers[0], o.buffers[1]])
}

/// Returns a graph with memory of its own.
fn own_chain(o: &Objects, count: usize) -> (CUgraph, [CUdeviceptr; 2]) {
    let mut memory = [0; 2];
    for place in &mut memory {
        call!(cuMemAllocAsync(place, KIB4, o.streams[0]));
    }
    (chain_with(o, count, memory).0, memory)
}

#[inline(always)]
pub(crate) fn instantiate(graph: CUgraph) -> CUgraphExec {
    let (mut made, mut parameters) = (null_mut(), CUDA_GRAPH_INSTANTIATE_PARAMS::default());
    call!(cuGraphInstantiateWithParams(&raw mut made, graph, &raw mut parameters));
    made
}

fn instantiate_launched(o: &Objects, graph: CUgraph) -> CUgraphExec {
    let made = instantiate(graph);
    call!(cuGraphLaunch(made, o.streams[0]));
    made
}

pub(crate) fn works(o: Objects) -> Works {
    let stream = o.streams[0];
    let (from, nodes) = chain(&o, NODES);
    let updates = [own_chain(&o, NODES).0, own_chain(&o, NODES).0];
    let changed = instantiate_launched(&o, from);
    let doomed =
        move || -> Vec<_> { (0..DOOMED).map(|_| instantiate_launched(&o, from)).collect() };
    let doomed_graphs = move || -> Vec<_> { (0..DOOMED).map(|_| own_chain(&o, NODES)).collect() };
    let mut works: Works = vec![
        (
            "graph: add a kernel node",
            Work::with_rest(
                (empty(), null_mut()),
                move |(graph, last), n| {
                    for _ in 0..n {
                        *last = add(o.three, *graph, *last, [o.buffers[0], o.buffers[1]]);
                    }
                },
                |(graph, last)| {
                    call!(cuGraphDestroy(*graph));
                    (*graph, *last) = (empty(), null_mut());
                },
            ),
        ),
        (
            "graph: change a kernel node",
            Work::batch(move |n| {
                for i in 0..n {
                    let (a, b, c) = (o.buffers[0], o.buffers[1], i as u32);
                    let mut arguments = [pointer(&a), pointer(&b), pointer(&c)];
                    let parameters = parameters(o.three, &mut arguments);
                    let (node, parameters) = (nodes[i % NODES], &raw const parameters);
                    call!(cuGraphExecKernelNodeSetParams_v2(changed, node, parameters));
                }
            }),
        ),
        (
            "graph: update 100 nodes",
            Work::batch(move |n| {
                for i in 0..n {
                    let mut update = CUgraphExecUpdateResultInfo::default();
                    call!(cuGraphExecUpdate_v2(changed, updates[i % 2], &raw mut update));
                }
            }),
        ),
        (
            "graph: destroy an executable graph of 100 nodes",
            Work::with_rest(
                doomed(),
                |doomed, n| {
                    for executable in doomed.drain(..n) {
                        call!(cuGraphExecDestroy(executable));
                    }
                },
                move |rest| {
                    rest.resize_with(DOOMED, || instantiate_launched(&o, from));
                    call!(cuCtxSynchronize());
                },
            ),
        ),
        (
            "graph: destroy a graph of 100 nodes",
            Work::with_rest(
                doomed_graphs(),
                move |doomed, n| {
                    for (graph, [from, to]) in doomed.drain(..n) {
                        call!(cuGraphDestroy(graph));
                        call!(cuMemFreeAsync(from, stream));
                        call!(cuMemFreeAsync(to, stream));
                    }
                },
                move |rest| rest.resize_with(DOOMED, || own_chain(&o, NODES)),
            ),
        ),
    ];
    for size in &SIZES {
        let (nodes, batch) = (size.nodes, size.batch);
        let sources = move || -> Vec<_> { (0..batch).map(|_| chain(&o, nodes).0).collect() };
        let launched = instantiate_launched(&o, chain(&o, nodes).0);
        works.push((
            size.instantiate,
            Work::with_rest(
                (sources(), Vec::with_capacity(batch)),
                |(sources, made), n| {
                    made.extend(sources[..n].iter().map(|graph| instantiate(*graph)));
                },
                move |(its, made)| {
                    for executable in made.drain(..) {
                        call!(cuGraphExecDestroy(executable));
                    }
                    for graph in std::mem::replace(its, sources()) {
                        call!(cuGraphDestroy(graph));
                    }
                },
            ),
        ));
        works.push((size.launch, Work::each(move || call!(cuGraphLaunch(launched, stream)))));
    }
    works
}
