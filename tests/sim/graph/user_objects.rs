//! User objects on the software driver: who holds them, and when and where their destructors run. As
//! measured with driver 580.

use crate::prelude::*;

const MOVE: u32 = 1;

/// What the destructors of a test did.
#[derive(Default)]
struct Ended {
    count: AtomicU32,
    /// The code of a call that is not permitted on callback threads.
    refused: AtomicU32,
}

unsafe extern "C" fn end(data: *mut c_void) {
    // SAFETY: the data is an `Ended` that outlives the test.
    let ended = unsafe { data.cast::<Ended>().as_ref() }.expect("data");
    let mut context = null_mut();
    let code = code!(cuCtxGetCurrent(&raw mut context));
    ended.refused.store(code.0, Ordering::Relaxed);
    ended.count.fetch_add(1, Ordering::Relaxed);
}

impl Ended {
    /// Creates a user object with one reference.
    fn object(&self) -> CUuserObject {
        out!(cuUserObjectCreate(core::ptr::from_ref(self).cast_mut().cast(), Some(end), 1, 1))
    }

    /// Creates a graph that has the only reference of an object.
    fn graph(&self, bench: &Bench) -> CUgraph {
        let graph = graph();
        bench.append(graph, &[], 1);
        succeeds!(cuGraphRetainUserObject(graph, self.object(), 1, MOVE));
        graph
    }

    fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Makes driver calls until a destructor on the driver's thread has run.
    fn wait(&self, count: u32) {
        for _ in 0..1000 {
            if self.count() == count {
                return;
            }
            succeeds!(cuCtxSynchronize());
        }
        panic!("{} of {count} destructors ran", self.count());
    }
}

#[test]
fn the_last_release_runs_the_destructor_inside_the_call() {
    let _bench = in_child!(without_misuse());
    let ended = Ended::default();
    let object = ended.object();
    succeeds!(cuUserObjectRetain(object, 2));
    succeeds!(cuUserObjectRelease(object, 2));
    assert_eq!(ended.count(), 0);
    succeeds!(cuUserObjectRelease(object, 1));
    assert_eq!(ended.count(), 1);
    assert_eq!(ended.refused.load(Ordering::Relaxed), CUresult::CUDA_ERROR_NOT_PERMITTED.0);
}

#[test]
fn invalid_user_objects_are_refused() {
    let _bench = in_child!(without_misuse());
    let mut object = null_mut();
    let place = &raw mut object;
    refused!(INVALID, cuUserObjectCreate(place, null_mut(), Some(end), 1, 0));
    refused!(INVALID, cuUserObjectCreate(place, null_mut(), Some(end), 0, 1));
    refused!(INVALID, cuUserObjectCreate(place, null_mut(), None, 1, 1));
}

#[test]
fn a_graph_retains_some_references_of_a_user_object_with_a_known_flag() {
    let _bench = in_child!(without_misuse());
    let (ended, graph) = (Ended::default(), graph());
    let object = ended.object();
    refused!(INVALID, cuGraphRetainUserObject(graph, object, 0, MOVE));
    refused!(INVALID, cuGraphRetainUserObject(graph, object, 1, MOVE << 1));
    refused!(INVALID, cuGraphRetainUserObject(graph, null_mut(), 1, MOVE));
    assert_eq!(ended.count(), 0);
    succeeds!(cuGraphRetainUserObject(graph, object, 1, MOVE));
    destroy(graph);
    assert_eq!(ended.count(), 1);
}

#[test]
fn a_graph_releases_its_objects_when_it_is_destroyed() {
    let bench = &in_child!(without_misuse());
    let ended = Ended::default();
    let graph = ended.graph(bench);
    let clone: CUgraph = out!(cuGraphClone(graph));
    let parent = crate::graph::calls::graph();
    let _: CUgraphNode = out!(cuGraphAddChildGraphNode(parent, null(), 0, graph));
    let executable = instantiate(parent);
    for graph in [graph, clone, parent] {
        destroy(graph);
        assert_eq!(ended.count(), 0);
    }
    // The executable graph was never launched, so the destructor runs in the call.
    destroy_executable(executable);
    assert_eq!(ended.count(), 1);
}

#[test]
fn an_executable_graph_has_the_objects_of_its_instantiation() {
    let bench = &in_child!(without_misuse());
    let (ended, later) = (Ended::default(), Ended::default());
    let (graph, object) = (graph(), ended.object());
    bench.append(graph, &[], 1);
    succeeds!(cuGraphRetainUserObject(graph, object, 1, MOVE));
    let executable = instantiate(graph);
    succeeds!(cuGraphRetainUserObject(graph, later.object(), 1, MOVE));
    succeeds!(cuGraphReleaseUserObject(graph, object, 1));
    destroy(graph);
    assert_eq!((ended.count(), later.count()), (0, 1));
    destroy_executable(executable);
    assert_eq!(ended.count(), 1);
}

#[test]
fn after_a_launch_the_destructor_runs_on_the_thread_of_the_driver() {
    let bench = &in_child!(without_misuse());
    let ended = Ended::default();
    let graph = ended.graph(bench);
    let executable = instantiate(graph);
    destroy(graph);
    bench.launch(executable);
    destroy_executable(executable);
    assert_eq!(ended.count(), 0, "the launch is running");
    succeeds!(cuStreamSynchronize(bench.stream));
    ended.wait(1);
    assert_eq!(ended.refused.load(Ordering::Relaxed), CUresult::CUDA_ERROR_NOT_PERMITTED.0);
}

#[test]
fn a_wait_for_the_context_does_not_wait_for_destructors() {
    let bench = &in_child!(without_misuse());
    let ended = Ended::default();
    let mut late = 0;
    for round in 1..=16 {
        let graph = ended.graph(bench);
        let executable = instantiate(graph);
        destroy(graph);
        bench.launch(executable);
        destroy_executable(executable);
        succeeds!(cuCtxSynchronize());
        late += u32::from(ended.count() < round);
        ended.wait(round);
    }
    assert!(late > 0, "each destructor ran before the wait returned");
}

#[test]
fn an_update_takes_the_objects_of_the_other_graph() {
    let bench = &in_child!(without_misuse());
    let (ended, other_ended) = (Ended::default(), Ended::default());
    let (graph, other) = (ended.graph(bench), other_ended.graph(bench));
    let executable = instantiate(graph);
    destroy(graph);
    let failing = crate::graph::calls::graph();
    assert!(!code!(cuGraphExecUpdate_v2(executable, failing, null_mut())).is_success());
    assert_eq!(ended.count(), 0);
    bench.launch(executable);
    succeeds!(cuGraphExecUpdate_v2(executable, other, null_mut()));
    assert_eq!(ended.count(), 0, "the launch is running");
    destroy(other);
    succeeds!(cuStreamSynchronize(bench.stream));
    ended.wait(1);
    assert_eq!(other_ended.count(), 0);
    destroy_executable(executable);
    other_ended.wait(1);
    destroy(failing);
}

#[test]
fn an_invalidated_capture_releases_its_objects() {
    let bench = &in_child!(without_misuse());
    let ended = Ended::default();
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    succeeds!(cuStreamBeginCapture_v2(bench.stream, mode));
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    let (mut graph, none) = (null_mut(), null_mut());
    succeeds!(cuStreamGetCaptureInfo_v3(
        bench.stream,
        &raw mut status,
        none,
        &raw mut graph,
        null_mut(),
        null_mut(),
        null_mut()
    ));
    succeeds!(cuGraphRetainUserObject(graph, ended.object(), 1, MOVE));
    assert!(!code!(cuStreamSynchronize(bench.stream)).is_success());
    assert_eq!(ended.count(), 0);
    let invalidated = CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    refused!(invalidated, cuStreamEndCapture(bench.stream, &raw mut graph));
    assert_eq!(ended.count(), 1);
    succeeds!(cuStreamIsCapturing(bench.stream, &raw mut status));
}

/// A destructor that releases another object.
unsafe extern "C" fn release_other(data: *mut c_void) {
    assert!(code!(cuUserObjectRelease(data.cast(), 1)).is_success());
}

#[test]
fn a_destructor_may_release_another_object() {
    let _bench = in_child!(without_misuse());
    let ended = Ended::default();
    let inner = ended.object();
    let object: CUuserObject = out!(cuUserObjectCreate(inner.cast(), Some(release_other), 1, 1));
    succeeds!(cuUserObjectRelease(object, 1));
    assert_eq!(ended.count(), 1);
}

#[test]
fn a_release_of_more_references_than_there_are_is_a_misuse() {
    let _bench = in_child!(misused("released more often than it was retained"));
    let ended = Ended::default();
    succeeds!(cuUserObjectRelease(ended.object(), 2));
}

#[test]
fn a_dead_user_object_is_a_misuse() {
    let _bench = in_child!(misused("used after its last reference was released"));
    let ended = Ended::default();
    let object = ended.object();
    succeeds!(cuUserObjectRelease(object, 1));
    assert!(!code!(cuUserObjectRetain(object, 1)).is_success());
}
