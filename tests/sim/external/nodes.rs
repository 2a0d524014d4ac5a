//! Semaphores in graphs.

use super::misuse::{import_semaphore, signal};
use super::semaphores::{binary, timeline, value};
use crate::prelude::*;
use cuda_sim::external::ExternalSemaphore;

/// Returns the handles and values of signals or waits.
fn values<P>(pairs: &[(CUexternalSemaphore, P)], value: fn(&P) -> u64) -> Vec<(usize, u64)> {
    pairs.iter().map(|(semaphore, its)| (semaphore.addr(), value(its))).collect()
}

#[test]
fn nodes_wait_and_signal() {
    let (_end, context, stream) = in_child!(on_stream());
    let ((theirs, ours), (theirs_single, single)) = (timeline(&context), binary(&context));
    let mut graph = Graph::new(&context).expect("a graph");
    let waits = [ours.graph_wait(1), single.graph_wait()];
    // SAFETY: the semaphores outlive the graph.
    let wait = unsafe { graph.add_semaphore_waits(&[], &waits) }.expect("a node");
    let signals = [ours.graph_signal(2), single.graph_signal()];
    // SAFETY: as above.
    let signal = unsafe { graph.add_semaphore_signals(&[wait.id()], &signals) }.expect("a node");
    let read = graph.semaphore_waits(wait).expect("known");
    // SAFETY: the fields are numbers.
    let found = values(&read, |its| its.params.fence.value);
    assert_eq!(found, [(ours.as_raw().addr(), 1), (single.as_raw().addr(), 0)]);
    let read = graph.semaphore_signals(signal).expect("known");
    let found = values(&read, |its| its.params.fence.value);
    assert_eq!(found, [(ours.as_raw().addr(), 2), (single.as_raw().addr(), 0)]);

    let mut executable = graph.instantiate().expect("instantiated");
    for frame in 0..3 {
        let signals = [ours.graph_signal(2 * frame + 2), single.graph_signal()];
        let waits = [ours.graph_wait(2 * frame + 1), single.graph_wait()];
        let mut nodes = executable.nodes(&graph).expect("its nodes");
        // SAFETY: the semaphores outlive the graph.
        unsafe { nodes.set_semaphore_waits(wait, &waits) }.expect("changed");
        // SAFETY: as above.
        unsafe { nodes.set_semaphore_signals(signal, &signals) }.expect("changed");
        // SAFETY: as above.
        let fewer = unsafe { nodes.set_semaphore_waits(wait, &waits[..1]) };
        assert!(fewer.is_err(), "the number of semaphores cannot change");
        theirs.signal(2 * frame + 1).expect("signaled");
        theirs_single.signal(1).expect("signaled");
        executable.launch(&stream).expect("a launch");
        stream.synchronize().expect("a wait");
        assert_eq!(value(&theirs), 2 * frame + 2);
        assert!(theirs_single.take().expect("a wait"));
    }
    drop((executable, graph));
}

#[test]
fn raw_signals_and_waits_are_captured() {
    let bench = &in_child!(without_misuse());
    let theirs = ExternalSemaphore::timeline(0).expect("a semaphore");
    let semaphore = import_semaphore(9, theirs.export().expect("a descriptor"));
    let mut wait = CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS::zeroed();
    wait.params.fence.value = 1;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL;
    succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
    let its = &raw const semaphore;
    succeeds!(cuWaitExternalSemaphoresAsync(its, &raw const wait, 1, bench.stream));
    signal(semaphore, 2, bench.stream);
    let mut graph: CUgraph = null_mut();
    succeeds!(cuStreamEndCapture(bench.stream, &raw mut graph));
    let mut nodes = 0;
    succeeds!(cuGraphGetNodes(graph, null_mut(), &raw mut nodes));
    assert_eq!((nodes, value(&theirs)), (2, 0));
    let executable = instantiate(graph);
    theirs.signal(1).expect("signaled");
    bench.launch(executable);
    succeeds!(cuStreamSynchronize(bench.stream));
    assert_eq!(value(&theirs), 2);
    destroy_executable(executable);
    destroy(graph);
    succeeds!(cuDestroyExternalSemaphore(semaphore));
}

#[test]
fn a_destroyed_semaphore_of_a_node_is_found() {
    let (context, stream) = &in_child!(expecting_misuse());
    let (_theirs, ours) = timeline(context);
    let mut graph = Graph::new(context).expect("a graph");
    // SAFETY: the promise is broken on purpose.
    unsafe { graph.add_semaphore_signals(&[], &[ours.graph_signal(1)]) }.expect("a node");
    let executable = graph.instantiate().expect("instantiated");
    drop(ours);
    executable.launch(stream).expect_err("the semaphore is destroyed");
    found("launched after the semaphore of a node was destroyed");
}
