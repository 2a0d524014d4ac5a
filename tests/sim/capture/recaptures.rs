//! Recaptures of graphs. All of this is unverified (from documentation): no driver at hand has them.

use crate::capture::errors::is_captured;
use crate::prelude::*;
use cuda_safe::error::Rejected;

const MODE: CaptureMode = CaptureMode::ThreadLocal;

fn on_newest() -> (AtEnd, Context, Stream) {
    let (end, context) = on("h200@13.5".parse().expect("a profile"));
    let stream = context.stream().expect("a stream");
    (end, context, stream)
}

fn zeroed(stream: &Stream) -> DeviceBuffer<i32> {
    let buffer = DeviceBuffer::zeroed(stream, 4).expect("memory");
    stream.synchronize().expect("a wait");
    buffer
}

#[test]
fn a_recapture_changes_the_parameters_and_names_the_nodes() {
    let (_end, _rest0, stream) = in_child!(on_newest());
    let (mut a, mut b) = (zeroed(&stream), zeroed(&stream));
    let graph = stream.capture(MODE, |_| {
        a.fill(1)?;
        b.fill(2)
    });
    let mut graph = graph.expect("a graph");
    let nodes = graph.nodes().expect("the nodes");
    let mut executable = graph.instantiate().expect("an executable graph");
    let recaptured = stream.recapture(graph, MODE, |_| {
        a.fill(1)?;
        b.fill(3)
    });
    let (graph, changed) = recaptured.expect("the same nodes");
    assert_eq!(changed.len(), 1, "{changed:?}");
    assert_eq!((changed[0].node, changed[0].is_updatable), (nodes[1], true));
    executable.update(&graph).expect("the nodes can be updated");
    // SAFETY: the buffers are alive and are used on this stream only.
    unsafe { executable.launch_unchecked(&stream) }.expect("a launch");
    assert_eq!(a.to_vec().expect("a copy"), [1; 4]);
    assert_eq!(b.to_vec().expect("a copy"), [3; 4]);
}

#[test]
fn a_recapture_names_nodes_with_other_events_and_host_functions() {
    let (_end, context, stream) = in_child!(on_newest());
    let [first, second] = [context.event(), context.event()].map(|its| its.expect("an event"));
    let shared = Arc::new(());
    let body = |recorded: &Event, waited: &Event| {
        let own = Arc::clone(&shared);
        stream.capture_host_function(move || drop(Arc::clone(&own)))?;
        recorded.record_external(&stream)?;
        stream.wait_external(waited)
    };
    let graph = stream.capture(MODE, |_| body(&first, &second));
    let mut graph = graph.expect("a graph");
    let nodes = graph.nodes().expect("the nodes");
    // Each host function is another one.
    let expected = [
        (&first, &second, vec![nodes[0]]),
        (&second, &second, vec![nodes[0], nodes[1]]),
        (&second, &first, vec![nodes[0], nodes[2]]),
    ];
    for (recorded, waited, expected) in expected {
        let recaptured = stream.recapture(graph, MODE, |_| body(recorded, waited));
        let (its, changed) = recaptured.expect("the same nodes");
        let changed: Vec<_> = changed.iter().map(|its| its.node).collect();
        assert_eq!(changed, expected);
        graph = its;
    }
}

#[test]
fn a_recapture_names_a_batch_of_other_memory_operations() {
    let (_end, _context, stream) = in_child!(on_newest());
    let words = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
    let address = words.as_raw();
    let write = |value| {
        let operation = cuda_safe::stream::MemoryOperation::Write32 { address, value };
        // SAFETY: the word is valid memory, and nothing else uses it.
        unsafe { stream.memory_operations(&[operation]) }
    };
    let mut graph = stream.capture(MODE, |_| write(1)).expect("a graph");
    for (value, expected) in [(1, 0), (2, 1), (2, 0)] {
        let (its, changed) =
            stream.recapture(graph, MODE, |_| write(value)).expect("the same node");
        assert_eq!(changed.len(), expected, "{value}");
        graph = its;
    }
}

#[test]
fn a_recapture_tells_which_changes_need_a_new_executable_graph() {
    let (_end, _rest0, stream) = in_child!(on_newest());
    let mut a = zeroed(&stream);
    let extent = Extent::new_2d(1, 2);
    let mut fill = |value| {
        let region = Region::new(Extent::new_2d(2, 2));
        a.as_mut_slice().fill_3d(extent, region, value)
    };
    let graph = stream.capture(MODE, |_| fill(1)).expect("a graph");
    let recaptured = stream.recapture(graph, MODE, |_| fill(2));
    let (graph, changed) = recaptured.expect("the same node");
    assert!(matches!(&changed[..], [its] if !its.is_updatable), "{changed:?}");
    let executable = graph.instantiate().expect("an executable graph");
    // SAFETY: the buffer is alive and is used on this stream only.
    unsafe { executable.launch_unchecked(&stream) }.expect("a launch");
    assert_eq!(a.to_vec().expect("a copy"), [2, 0, 2, 0]);
}

/// A graph whose recapture failed is undefined. Using it in any other way is a misuse.
#[test]
fn a_recapture_of_other_nodes_fails_and_destroys_the_graph() {
    let (_end, _rest0, stream) = in_child!(on_newest());
    let (mut a, mut b) = (zeroed(&stream), zeroed(&stream));
    let failure = Some(CUresult::CUDA_ERROR_GRAPH_RECAPTURE_FAILURE);
    let object = Arc::new(());
    let mut graph = || {
        let own = Arc::clone(&object);
        let graph = stream.capture(MODE, |stream| {
            stream.capture_host_function(move || drop(Arc::clone(&own)))?;
            a.fill(1)
        });
        graph.expect("a graph")
    };
    let other_type = stream.recapture(graph(), MODE, |_| b.fill(1));
    assert_eq!(other_type.expect_err("a fill").code(), failure);
    let too_few = stream.recapture(graph(), MODE, |stream| stream.capture_host_function(|| ()));
    assert_eq!(too_few.expect_err("one node").code(), failure);
    let too_many = stream.recapture(graph(), MODE, |stream| {
        stream.capture_host_function(|| ())?;
        b.fill(1)?;
        b.fill(2)
    });
    assert_eq!(too_many.expect_err("three nodes").code(), failure);
    let stopped = stream.recapture(graph(), MODE, |_| Err(Error::Forked));
    assert_eq!(stopped.expect_err("its error"), Error::Forked);
    assert_eq!(alive().graphs, 0);
    assert_eq!(Arc::strong_count(&object), 1);
    assert!(!is_captured(&stream));
}

#[test]
fn a_graph_that_is_built_by_hand_is_recaptured_and_then_borrows_memory() {
    let (_end, context, stream) = in_child!(on_newest());
    let mut buffer = zeroed(&stream);
    let mut graph = Graph::new(&context).expect("a graph");
    let mut own = graph.own(zeroed(&stream)).expect("the graph owns it");
    let fill = graph.add_fill(&[], &mut own, 1).expect("a node");
    let recapture = stream.begin_recapture(graph, MODE).expect("begins");
    assert_eq!(recapture.stream(), &stream);
    buffer.fill(2).expect("captured");
    let (graph, changed) = recapture.end().expect("the same node");
    assert_eq!(changed[0].node, fill.id());
    let executable = graph.instantiate().expect("an executable graph");
    let refused = executable.launch(&stream);
    assert!(matches!(refused, Err(Error::Invalid(why)) if *why == Invalid::GraphBorrows));
    // SAFETY: the buffer is alive and is used on this stream only.
    unsafe { executable.launch_unchecked(&stream) }.expect("a launch");
    assert_eq!(buffer.to_vec().expect("a copy"), [2; 4]);
}

#[test]
fn a_driver_before_13_3_cannot_recapture_and_the_graph_is_returned() {
    let (_end, context, stream) = in_child!(on_stream());
    let graph = Graph::new(&context).expect("a graph");
    let refused = stream.try_begin_recapture(graph, MODE);
    let Rejected { error, value } = refused.expect_err("the function is missing");
    assert!(matches!(error, Error::Missing(_)), "{error}");
    let graph = value.expect("the graph");
    graph.instantiate().map(drop).expect("it is as before");
    // SAFETY: the graph outlives the borrowed one.
    let borrowed = unsafe { Graph::borrow_raw(graph.as_raw(), &context) };
    let refused = stream.try_begin_recapture(borrowed.expect("a graph"), MODE);
    let error = refused.expect_err("another owner").error;
    assert!(matches!(error, Error::Invalid(why) if *why == Invalid::ForeignGraph));
}
