//! Captures into graphs, recorded graphs, and recaptures.

use crate::scenarios::{primary_and_streams, raw, scale};
use crate::trace::Trace;
use cuda_safe::Result;
use cuda_safe::capture::CaptureMode;
use cuda_safe::graph::EdgeKind;
use cuda_safe::{DeviceBuffer, Error, Graph, LaunchConfig, PinnedBuffer};

const MODE: CaptureMode = CaptureMode::ThreadLocal;

/// A capture into a graph, with host functions, dependencies and a child graph.
pub(crate) fn into(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    let (forks, joins) = (context.event()?, context.event()?);
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    stream.synchronize()?;
    let mut graph = Graph::new(&context)?;
    let first = graph.add_empty(&[])?;
    let mut child = Graph::new(&context)?;
    child.add_host_function(&[], || ())?;

    raw::may_stay_captured(&stream);
    let mut capture = stream.begin_capture_into(graph, &[first.id()], MODE)?;
    forks.record(&stream)?;
    other.wait_event(&forks)?;
    other.capture_host_function(|| ())?;
    joins.record(&other)?;
    buffer.fill(1)?;
    stream.wait_event(&joins)?;
    // SAFETY: no other thread uses the streams.
    let dependencies = unsafe { capture.dependencies() }?;
    capture.set_dependencies(&dependencies)?;
    capture.add_dependencies(&[(first.id(), EdgeKind::Full)])?;
    stream.capture_host_function(|| ())?;
    // SAFETY: as above.
    unsafe { capture.add_child(&mut child) }?;
    let (mut graph, last) = capture.end_with_nodes()?;
    graph.add_empty(&last)?;
    let executable = graph.instantiate()?;
    trace.drop((graph, child));
    // SAFETY: the buffer is alive and bound to this stream.
    unsafe { executable.launch_unchecked(&stream) }?;
    stream.synchronize()?;
    executable.take_panic()?;
    assert_eq!(buffer.to_vec()?, [1; 4]);
    trace.drop(executable);

    trace.drop(stream.begin_capture_into(Graph::new(&context)?, &[], MODE)?);
    trace.drops_from_here()
}

/// Captures into the body of a conditional node, and into a body within it.
pub(crate) fn into_body(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    stream.synchronize()?;
    let mut graph = Graph::new(&context)?;
    let handles = [
        graph.conditional_handle(&context, Some(1))?,
        graph.conditional_handle(&context, Some(1))?,
    ];
    let outer = graph.add_if(&[], handles[0], |_| Ok(()))?;
    let inner = graph.edit_body(outer, 0, |body| body.add_if(&[], handles[1], |_| Ok(())))?;

    raw::may_stay_captured(&stream);
    let before = [inner.id()];
    let capture = stream.begin_capture_into_body(graph, outer, 0, &before, MODE)?;
    buffer.fill(1)?;
    let (mut graph, last) = capture.end_with_nodes()?;
    graph.edit_body(outer, 0, |body| body.add_empty(&last).map(drop))?;
    let captured = stream.capture_into_body(graph, inner, 0, &[], MODE, |_| buffer.fill(2));
    let (graph, _) = captured?;
    let executable = graph.instantiate()?;
    trace.drop(graph);
    // SAFETY: the buffer is alive and bound to this stream.
    unsafe { executable.launch_unchecked(&stream) }?;
    stream.synchronize()?;
    assert_eq!(buffer.to_vec()?, [1; 4]);
    trace.drop(executable);

    let mut graph = Graph::new(&context)?;
    let handle = graph.conditional_handle(&context, Some(1))?;
    let node = graph.add_if(&[], handle, |_| Ok(()))?;
    trace.drop(stream.begin_capture_into_body(graph, node, 0, &[], MODE)?);
    trace.drops_from_here()
}

/// A recorded graph, with memory of its own and a capture.
pub(crate) fn recorded(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    let event = context.event()?;
    let scale = scale(&context)?;
    raw::may_stay_captured(&stream);
    let mut recorder = Graph::new(&context)?.into_recorder(&stream)?;
    let mut host = recorder.own_pinned(PinnedBuffer::<i32>::zeroed(&context, 4)?)?;
    let mut data = recorder.zeroed::<i32>(4)?;
    recorder.fill(&mut data, 1)?;
    let config = LaunchConfig::linear(1, 4);
    // SAFETY: the kernel accesses the 4 elements.
    unsafe { recorder.launch(&scale, config, (&mut data, 2, 1, 4)) }?;
    recorder.host_function(|| ())?;
    recorder.record_event(&event)?;
    // SAFETY: the captured work uses no memory.
    unsafe { recorder.capture::<Error>(MODE, |stream| stream.capture_host_function(|| ())) }?;
    recorder.copy(&mut host, &data)?;
    let graph = recorder.into_graph()?;
    let mut executable = graph.instantiate()?;
    trace.drop(graph);
    executable.launch(&stream)?;
    executable.launch(&other)?;
    assert_eq!(executable.host(&mut host)?, [3; 4]);
    stream.synchronize()?;
    other.synchronize()?;
    trace.drop(executable);
    trace.drops_from_here()
}

/// A recapture of a graph, and an update with it.
pub(crate) fn recaptured(trace: &mut Trace) -> Result<()> {
    let (_, [stream, other]) = primary_and_streams()?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    stream.synchronize()?;
    raw::may_stay_captured(&stream);
    let graph = stream.capture(MODE, |_| buffer.fill(1))?;
    let mut executable = graph.instantiate()?;
    let (graph, changed) = stream.recapture(graph, MODE, |_| buffer.fill(2))?;
    assert_eq!(changed.len(), 1);
    executable.update(&graph)?;
    trace.drop(graph);
    // SAFETY: the buffer is alive and not used until the launch is complete.
    unsafe { executable.launch_unchecked(&other) }?;
    other.synchronize()?;
    assert_eq!(buffer.to_vec()?, [2; 4]);
    trace.drop(executable);
    trace.drops_from_here()
}
