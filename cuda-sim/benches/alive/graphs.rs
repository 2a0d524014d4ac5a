//! Graphs and captures.

use crate::calls::{
    PTX, call, destroy_event, event, fill, free, function, memory, module, stream, synchronize,
};
use crate::measure::{Measure, pick};
use core::ffi::c_void;
use core::ptr::{null, null_mut};
use cuda_sys::{
    CUDA_KERNEL_NODE_PARAMS, CUfunction, CUgraph, CUgraphExec, CUgraphExecUpdateResultInfo,
    CUgraphNode, CUstreamCaptureMode, CUuserObject, Zeroable,
};
use std::cell::Cell;

pub(crate) fn measure(measure: &Measure) {
    let loaded = module(PTX);
    let nothing = function(loaded, c"nothing");
    nodes(measure, nothing);
    wholes(measure, nothing);
    captures(measure);
    objects(measure);
    call!(cuModuleUnload(loaded));
}

fn graph() -> CUgraph {
    let mut graph = null_mut();
    call!(cuGraphCreate(&raw mut graph, 0));
    graph
}

fn destroy(graph: CUgraph) {
    call!(cuGraphDestroy(graph));
}

fn instantiate(graph: CUgraph) -> CUgraphExec {
    let mut made = null_mut();
    call!(cuGraphInstantiateWithFlags(&raw mut made, graph, 0));
    made
}

fn destroy_executable(graph: CUgraphExec) {
    call!(cuGraphExecDestroy(graph));
}

/// Adds a kernel after a node, or as a root.
fn add(graph: CUgraph, function: CUfunction, after: Option<CUgraphNode>) -> CUgraphNode {
    let mut params = CUDA_KERNEL_NODE_PARAMS::zeroed();
    params.func = function;
    for extent in [
        &mut params.gridDimX,
        &mut params.gridDimY,
        &mut params.gridDimZ,
        &mut params.blockDimX,
        &mut params.blockDimY,
        &mut params.blockDimZ,
    ] {
        *extent = 1;
    }
    let mut node = null_mut();
    let before = after.as_ref().map_or(null(), |its| &raw const *its);
    let count = usize::from(after.is_some());
    call!(cuGraphAddKernelNode_v2(&raw mut node, graph, before, count, &raw const params));
    node
}

/// Returns a graph whose kernels depend on each other in turn, or not at all.
fn made(count: usize, function: CUfunction, is_chain: bool) -> CUgraph {
    let graph = graph();
    let mut last = None;
    for _ in 0..count {
        let node = add(graph, function, last);
        last = is_chain.then_some(node);
    }
    graph
}

/// Single nodes of a graph.
fn nodes(measure: &Measure, nothing: CUfunction) {
    for (name, is_chain) in [("nodes of a chain", true), ("nodes without edges", false)] {
        let own = Cell::new(graph());
        let last = Cell::new(None);
        measure.kind(
            name,
            100_000,
            |_| {
                let node = add(own.get(), nothing, last.get());
                last.set(is_chain.then_some(node));
                node
            },
            &mut [
                ("add, destroy", &mut |_, _| {
                    let node = add(own.get(), nothing, last.get());
                    call!(cuGraphDestroyNode(node));
                }),
                ("get the parameters", &mut |all, at| {
                    let mut params = CUDA_KERNEL_NODE_PARAMS::zeroed();
                    let node = pick(all, at);
                    call!(cuGraphKernelNodeGetParams_v2(node, &raw mut params));
                }),
                ("count the nodes", &mut |_, _| {
                    let mut count = 0;
                    call!(cuGraphGetNodes(own.get(), null_mut(), &raw mut count));
                }),
            ],
            |all| {
                for node in all {
                    call!(cuGraphDestroyNode(node));
                }
                destroy(own.replace(graph()));
                last.set(None);
            },
        );
        destroy(own.get());
    }
}

/// Calls that concern all nodes of a graph: the time is that of all of them, divided by their number.
fn wholes(measure: &Measure, nothing: CUfunction) {
    let own = stream();
    for (name, is_chain) in
        [("graph that is a chain, per node", true), ("graph without edges, per node", false)]
    {
        // The calls are measured as the creation of objects, whose time is divided by their number.
        for call_name in ["instantiate", "launch, synchronize", "clone", "update", "destroy"] {
            let prepared: Cell<Option<(usize, CUgraph, CUgraphExec)>> = Cell::new(None);
            measure.whole(
                &format!("{name}: {call_name}"),
                100_000,
                |count| {
                    let graph = made(count, nothing, is_chain);
                    prepared.set(Some((count, graph, instantiate(graph))));
                },
                || {
                    let (_, graph, executable) = prepared.get().expect("it was prepared");
                    match call_name {
                        "instantiate" => destroy_executable(instantiate(graph)),
                        "launch, synchronize" => {
                            call!(cuGraphLaunch(executable, own));
                            synchronize(own);
                        }
                        "clone" => {
                            let mut clone = null_mut();
                            call!(cuGraphClone(&raw mut clone, graph));
                            destroy(clone);
                        }
                        "update" => {
                            let mut info = CUgraphExecUpdateResultInfo::zeroed();
                            call!(cuGraphExecUpdate_v2(executable, graph, &raw mut info));
                        }
                        _ => {
                            let (count, graph, executable) =
                                prepared.take().expect("it was prepared");
                            destroy_executable(executable);
                            destroy(graph);
                            let graph = made(count, nothing, is_chain);
                            prepared.set(Some((count, graph, instantiate(graph))));
                        }
                    }
                },
                || {
                    if let Some((_, graph, executable)) = prepared.take() {
                        destroy_executable(executable);
                        destroy(graph);
                    }
                },
            );
        }
    }
    call!(cuStreamDestroy_v2(own));
}

fn captures(measure: &Measure) {
    let (own, joined) = (stream(), event());
    let target = memory(64);
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    let is_begun = Cell::new(false);
    let capture = || {
        if !is_begun.replace(true) {
            call!(cuStreamBeginCapture_v2(own, mode));
        }
        fill(target, own);
    };
    measure.kind(
        "captured nodes",
        100_000,
        |_| capture(),
        &mut [
            ("capture", &mut |_, _| capture()),
            ("record", &mut |_, _| {
                call!(cuEventRecord(joined, own));
            }),
            ("create an event, destroy", &mut |_, _| destroy_event(event())),
        ],
        |_| {
            let mut graph = null_mut();
            call!(cuStreamEndCapture(own, &raw mut graph));
            destroy(graph);
            is_begun.set(false);
        },
    );
    let others: Vec<_> = (0..10_000).map(|_| stream()).collect();
    let fork = event();
    measure.kind(
        "streams that join a capture",
        10_000,
        |at| {
            if !is_begun.replace(true) {
                call!(cuStreamBeginCapture_v2(own, mode));
                fill(target, own);
                call!(cuEventRecord(fork, own));
            }
            call!(cuStreamWaitEvent(others[at], fork, 0));
            fill(target, others[at]);
            call!(cuEventRecord(joined, others[at]));
            call!(cuStreamWaitEvent(own, joined, 0));
        },
        &mut [("create an event, destroy", &mut |_, _| destroy_event(event()))],
        |_| {
            let mut graph = null_mut();
            call!(cuStreamEndCapture(own, &raw mut graph));
            destroy(graph);
            is_begun.set(false);
        },
    );
    others.into_iter().for_each(crate::calls::destroy_stream);
    free(target);
    destroy_event(joined);
    destroy_event(fork);
    call!(cuStreamDestroy_v2(own));
}

unsafe extern "C" fn do_nothing(_: *mut c_void) {}

/// User objects whose destructors have not run.
fn objects(measure: &Measure) {
    let own = stream();
    let target = memory(64);
    let object = || {
        let mut object: CUuserObject = null_mut();
        call!(cuUserObjectCreate(&raw mut object, null_mut(), Some(do_nothing), 1, 1));
        object
    };
    let release = |object| {
        call!(cuUserObjectRelease(object, 1));
    };
    measure.kind(
        "user objects",
        100_000,
        |_| object(),
        &mut [("create, release", &mut |_, _| release(object()))],
        |all| all.into_iter().for_each(release),
    );
    measure.kind(
        "destructors that wait for launches",
        10_000,
        |at| {
            if at == 0 {
                // All launches wait for this operation.
                fill(target, own);
            }
            let (graph, object) = (graph(), object());
            call!(cuGraphRetainUserObject(graph, object, 1, 1));
            let executable = instantiate(graph);
            call!(cuGraphLaunch(executable, own));
            destroy_executable(executable);
            destroy(graph);
        },
        &mut [("create an event, destroy", &mut |_, _| destroy_event(event()))],
        |_| synchronize(own),
    );
    free(target);
    call!(cuStreamDestroy_v2(own));
}
