//! Data of host functions and user objects that is freed too early: `cuda_sim::data_freed`.

use crate::prelude::*;
use crate::stream::callbacks::one_misuse;
use cuda_sim::{data_freed, misuses};

/// The data of the callbacks, which is alive all the time, so that a run is no access to freed memory.
static RUNS: [AtomicU32; 2] = [AtomicU32::new(0), AtomicU32::new(0)];

unsafe extern "C" fn count(data: *mut c_void) {
    // SAFETY: the data is an element of `RUNS`.
    let runs = unsafe { data.cast::<AtomicU32>().as_ref() };
    runs.expect("data").fetch_add(1, Ordering::Relaxed);
}

unsafe extern "C" fn count_and_free(data: *mut c_void) {
    // SAFETY: the data is an element of `RUNS`.
    unsafe { count(data) };
    data_freed(data);
}

fn data(index: usize) -> *mut c_void {
    (&raw const RUNS[index]).cast_mut().cast()
}

fn runs(index: usize) -> u32 {
    RUNS[index].load(Ordering::Relaxed)
}

fn parameters(index: usize) -> CUDA_HOST_NODE_PARAMS {
    CUDA_HOST_NODE_PARAMS { fn_: Some(count), userData: data(index) }
}

fn host_node(graph: CUgraph, index: usize) -> CUgraphNode {
    let parameters = parameters(index);
    out!(cuGraphAddHostNode(graph, null(), 0, &raw const parameters))
}

#[track_caller]
fn with_bench(body: impl FnOnce(&Bench)) {
    common::child::in_child(&[], || body(&Bench::new(Profile::h200())));
}

#[test]
fn data_that_is_freed_before_its_function_runs_is_a_misuse() {
    with_bench(|bench| {
        succeeds!(cuLaunchHostFunc(bench.stream, Some(count), data(0)));
        data_freed(data(1));
        assert_eq!(misuses(), [""; 0], "nothing uses that data");
        data_freed(data(0));
        one_misuse("is freed while work that is enqueued or running uses it");
        succeeds!(cuStreamSynchronize(bench.stream));
        assert_eq!(runs(0), 0, "the function would use freed data");
        assert!(misuses()[1].contains("would run after its data"));
    });
}

#[test]
fn data_that_is_freed_after_its_function_or_by_it_is_no_misuse() {
    with_bench(|bench| {
        for function in [count, count_and_free] {
            succeeds!(cuLaunchHostFunc(bench.stream, Some(function), data(0)));
            succeeds!(cuStreamSynchronize(bench.stream));
            data_freed(data(0));
        }
        assert_eq!((runs(0), misuses().len()), (2, 0));
    });
}

#[test]
fn data_of_a_launched_graph_that_is_freed_too_early_is_a_misuse() {
    with_bench(|bench| {
        let graph = graph();
        host_node(graph, 0);
        let executable = instantiate(graph);
        destroy(graph);
        succeeds!(cuGraphLaunch(executable, bench.stream));
        succeeds!(cuStreamSynchronize(bench.stream));
        data_freed(data(0));
        assert_eq!(misuses(), [""; 0], "no launch is in progress");
        succeeds!(cuGraphLaunch(executable, bench.stream));
        succeeds!(cuStreamSynchronize(bench.stream));
        one_misuse("would run after its data");
        assert_eq!(runs(0), 1);
        succeeds!(cuGraphLaunch(executable, bench.stream));
        data_freed(data(0));
        assert!(misuses()[1].contains("is freed while work"));
    });
}

#[test]
fn an_address_that_is_passed_again_stands_for_new_data() {
    with_bench(|bench| {
        let graph = graph();
        data_freed(data(0));
        data_freed(data(1));
        let node = host_node(graph, 0);
        let set = parameters(1);
        succeeds!(cuGraphLaunch(instantiate(graph), bench.stream));
        succeeds!(cuGraphHostNodeSetParams(node, &raw const set));
        succeeds!(cuGraphLaunch(instantiate(graph), bench.stream));
        succeeds!(cuStreamSynchronize(bench.stream));
        assert_eq!((runs(0), runs(1), misuses().len()), (1, 1, 0));
    });
}

#[test]
fn data_that_is_freed_before_its_user_object_is_a_misuse() {
    with_bench(|_| {
        let object = out!(cuUserObjectCreate(data(0), Some(count), 1, 1));
        data_freed(data(0));
        one_misuse("is freed while a user object references it");
        succeeds!(cuUserObjectRelease(object, 1));
        assert_eq!(runs(0), 0, "the destructor would use freed data");
        let object = out!(cuUserObjectCreate(data(1), Some(count_and_free), 1, 1));
        succeeds!(cuUserObjectRelease(object, 1));
        assert_eq!((runs(1), misuses().len()), (1, 2));
    });
}
