//! Captures and graphs.

use crate::scenarios::{expect, invalid, primary_and_streams, raw, scale};
use crate::trace::Trace;
use cuda_safe::bytemuck::Pod;
use cuda_safe::capture::{CaptureMode, CaptureStatus};
use cuda_safe::graph::{EdgeKind, GraphBuffer, InstantiateOptions};
use cuda_safe::sys::CUgraphDebugDot_flags;
use cuda_safe::{CUresult, CudaVersion, DeviceBuffer, Error, Graph};
use cuda_safe::{ExecutableGraph, Invalid, LaunchConfig, PinnedBuffer, Result, Stream};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    let (forks, joins) = (context.event()?, context.event()?);
    let outside = context.event()?;
    let mut a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let mut b = DeviceBuffer::<u32>::zeroed(&other, 4)?;
    stream.synchronize()?;
    other.synchronize()?;
    assert_eq!(stream.capture_id()?, None);

    raw::may_stay_captured(&stream);
    let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
        forks.record(stream)?;
        other.wait_event(&forks)?;
        a.fill(1)?;
        b.fill(2)?;
        joins.record(&other)?;
        stream.wait_event(&joins)?;
        stream.wait_external(&outside)?;
        outside.record_external(stream)?;
        assert_eq!(stream.capture_status()?, CaptureStatus::Active);
        assert_eq!(stream.capture_id()?, other.capture_id()?);
        expect(DeviceBuffer::<u8>::uninit(stream, 4), captured())?;
        expect(a.copy_from_slice(&[0; 4]), captured())?;
        expect(a.to_vec(), captured())?;
        expect(stream.launch_host_function(|| {}), captured())
    })?;
    let executable = graph.instantiate()?;
    trace.drop(graph);
    // From here on the memory is freed after the launch, even if a later call fails.
    b.rebind(&stream)?;
    // SAFETY: the buffers are alive and bound to this stream.
    unsafe { executable.launch_unchecked(&stream) }?;
    stream.synchronize()?;
    assert_eq!(a.to_vec()?, [1; 4]);
    assert_eq!(b.to_vec()?, [2; 4]);
    trace.drop(executable);

    trace.drop(stream.begin_capture(CaptureMode::Relaxed)?);
    CaptureMode::Relaxed.with(|| stream.capture_status())??;
    stream.synchronize()?;
    trace.drops_from_here()
}

/// Returns the elements of a buffer after the launches so far.
pub(crate) fn elements<T: Pod>(
    trace: &mut Trace,
    executable: &mut ExecutableGraph,
    buffer: &mut GraphBuffer<T>,
    stream: &Stream,
) -> Result<Vec<T>> {
    let access = executable.access(buffer, stream)?;
    let elements = access.as_slice().to_vec()?;
    trace.drop(access);
    Ok(elements)
}

fn captured() -> impl Fn(&Error) -> bool {
    invalid(|why| *why == Invalid::StreamIsCaptured)
}

/// A graph with a node of each kind that is built by hand: launched, changed, updated and dropped.
pub(crate) fn built(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    let event = context.event()?;
    let scale = scale(&context)?;
    let config = LaunchConfig::linear(1, 8);

    let mut graph = Graph::new(&context)?;
    let mut a = graph.own(DeviceBuffer::<i32>::zeroed(&stream, 8)?)?;
    let mut host = graph.own_pinned(PinnedBuffer::<i32>::zeroed(&context, 8)?);
    let shared = DeviceBuffer::from_slice(&other, &[1; 8])?.share()?;
    let copy = graph.add_copy(&[], &mut a, &shared)?;
    let arguments = (&mut a, 2, 0, 8);
    // SAFETY: the kernel accesses the 8 elements.
    let kernel = unsafe { graph.add_kernel(&[copy.id()], &context, &scale, config, arguments) }?;
    let down = graph.add_copy(&[kernel.id()], &mut host, &a)?;
    let fill = graph.add_fill(&[down.id()], &mut a, 7)?;
    let call = graph.add_host_function(&[], || ())?;
    let record = graph.add_event_record(&[call.id()], &event)?;
    let wait = graph.add_event_wait(&[record.id()], &event)?;
    let mut child = Graph::new(&context)?;
    child.add_empty(&[])?;
    let child_node = graph.add_child(&[wait.id()], &mut child)?;
    let extra = graph.add_empty(&[])?;
    graph.add_dependency(child_node, extra)?;
    graph.remove_dependency(child_node, extra)?;
    graph.remove(extra)?;
    assert_eq!(graph.nodes()?.len(), 8);
    assert_eq!(graph.edges()?.len(), 6);
    trace.drop(child.try_clone()?);

    let options = InstantiateOptions { upload: Some(&stream), ..Default::default() };
    let mut executable = graph.instantiate_with(&options)?;
    executable.launch(&stream)?;
    executable.launch(&other)?;
    assert_eq!(executable.host(&mut host)?, [2; 8]);
    let mut nodes = executable.nodes(&graph)?;
    let arguments = (&mut a, 3, 0, 8);
    // SAFETY: as above.
    unsafe { nodes.set_kernel(kernel, &context, &scale, config, arguments) }?;
    nodes.set_fill(fill, &mut a, 8)?;
    nodes.set_host_function(call, || ())?;
    nodes.set_event_record(record, &event)?;
    nodes.set_event_wait(wait, &event)?;
    nodes.set_copy(copy, &mut a, &shared)?;
    nodes.set_child(child_node, &child)?;
    nodes.set_enabled(fill, false)?;
    executable.launch(&stream)?;
    assert_eq!(elements(trace, &mut executable, &mut a, &other)?, [3; 8]);
    executable.update(&graph)?;
    executable.launch(&stream)?;
    assert_eq!(executable.host(&mut host)?, [2; 8]);
    stream.synchronize()?;
    other.synchronize()?;
    trace.drop((executable, graph));
    trace.drops_from_here()
}

/// The queries of a graph, edges of other kinds, and child graphs that are moved.
pub(crate) fn queried(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let scale = scale(&context)?;
    let config = LaunchConfig::linear(1, 8);

    let mut graph = Graph::new(&context)?;
    let mut a = graph.own(DeviceBuffer::<i32>::zeroed(&stream, 8)?)?;
    let mut b = graph.own(DeviceBuffer::<i32>::zeroed(&stream, 8)?)?;
    let fill = graph.add_fill(&[], &mut a, 7)?;
    let copy = graph.add_copy(&[fill.id()], &mut b, &a)?;
    // SAFETY: the kernel accesses the 8 elements.
    let first =
        unsafe { graph.add_kernel(&[copy.id()], &stream, &scale, config, (&mut a, 2, 0, 8)) }?;
    // SAFETY: as above.
    let second =
        unsafe { graph.add_kernel(&[copy.id()], &context, &scale, config, (&mut b, 3, 0, 8)) }?;
    graph.add_dependency_with(first, second, EdgeKind::Programmatic)?;
    assert_eq!(graph.roots()?, [fill.id()]);
    assert_eq!(graph.dependencies(copy)?, [fill.id()]);
    assert_eq!(graph.dependents(fill)?, [copy.id()]);
    assert_eq!(graph.edges()?.len(), 4);
    assert_eq!(graph.kernel_config(first)?.grid, config.grid);
    assert_eq!(graph.copy_parameters(copy)?.WidthInBytes, 32);
    assert_eq!(graph.fill_parameters(fill)?.value, 7);
    let file = std::env::temp_dir().join(format!("faults-{}.dot", std::process::id()));
    let written = graph.write_dot(&file, CUgraphDebugDot_flags(0));
    // There is no file if the call failed.
    let _ = std::fs::remove_file(&file);
    written?;

    let is_newer = invalid(|why| matches!(why, Invalid::NeedsNewerDriver { .. }));
    let mut parent = Graph::new(&context)?;
    let mut last = parent.add_empty(&[])?.id();
    // Both this and the function query the version, and a failed query counts as the newest.
    if cuda_safe::version()? < CudaVersion::new(12, 9) {
        trace.drop(graph);
    } else {
        match parent.try_add_child_moved(&[last], graph) {
            Ok(child) => last = child.id(),
            Err(rejected) if is_newer(&rejected.error) => trace.drop(rejected.value),
            Err(rejected) => return Err(rejected.into()),
        }
    }
    parent.add_empty(&[last])?;
    let mut executable = parent.instantiate()?;
    executable.flags()?;
    executable.upload(&stream)?;
    executable.launch(&stream)?;
    let other = Graph::new(&context)?;
    expect(executable.update(&other), |error: &Error| {
        error.code() == Some(CUresult::CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE)
    })?;
    trace.drop(other);
    stream.synchronize()?;
    trace.drop((executable, parent));
    trace.drops_from_here()
}

/// Launches on two streams that are not complete when their objects are replaced and dropped.
pub(crate) fn busy(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    let (event, later) = (context.event()?, context.event()?);
    let mut graph = Graph::new(&context)?;
    let mut data = graph.own(DeviceBuffer::<i32>::zeroed(&stream, 8)?)?;
    let fill = graph.add_fill(&[], &mut data, 7)?;
    let record = graph.add_event_record(&[fill.id()], &event)?;
    let mut same = Graph::new(&context)?;
    let mut its = same.own(DeviceBuffer::<i32>::zeroed(&stream, 8)?)?;
    let its_fill = same.add_fill(&[], &mut its, 8)?;
    same.add_event_record(&[its_fill.id()], &event)?;

    let mut executable = graph.instantiate()?;
    executable.launch(&stream)?;
    executable.launch(&other)?;
    let mut nodes = executable.nodes(&graph)?;
    assert!(nodes.is_enabled(fill)?);
    nodes.set_event_record(record, &later)?;
    executable.launch(&stream)?;
    executable.update(&same)?;
    executable.launch(&other)?;
    let access = executable.access(&mut its, &stream)?;
    trace.drop(access);
    executable.launch(&stream)?;
    trace.drop(executable);
    // Each call attempts the deferred release of the objects first.
    trace.drops_before(|| stream.synchronize())?;
    trace.drops_before(|| other.synchronize())?;
    trace.drops(cuda_safe::attempt_deferred_releases);

    // A second executable graph uses the memory after the launches of the first.
    let mut again = same.instantiate()?;
    again.launch(&other)?;
    assert_eq!(elements(trace, &mut again, &mut its, &stream)?, [8; 8]);
    trace.drop(again);

    trace.drop((same, graph));
    trace.drops_from_here()
}

/// A graph with a host function that is dropped after launches on two streams. The software driver runs the
/// function inside the calls that ask for its stream.
pub(crate) fn busy_host_function(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    let mut graph = Graph::new(&context)?;
    graph.add_host_function(&[], || ())?;
    let executable = graph.instantiate()?;
    executable.launch(&stream)?;
    executable.launch(&other)?;
    trace.drop((graph, executable));
    // Each call attempts the deferred release of the objects first.
    trace.drops_before(|| stream.synchronize())?;
    trace.drops_before(|| other.synchronize())?;
    trace.drops(cuda_safe::attempt_deferred_releases);
    trace.drops_from_here()
}
