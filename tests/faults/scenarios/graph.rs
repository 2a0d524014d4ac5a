//! Captures and graphs.

use super::{expect, invalid, primary, raw};
use crate::trace::Trace;
use cuda_safe::graph::InstantiateOptions;
use cuda_safe::{CaptureMode, CaptureStatus, DeviceBuffer, Error, Graph, Invalid, LaunchConfig};
use cuda_safe::{Module, PinnedBuffer, Result};

pub(super) fn run(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let (stream, other) = (context.stream()?, context.stream()?);
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

    let capture = stream.begin_capture(CaptureMode::Relaxed)?;
    trace.drop(capture);
    CaptureMode::Relaxed.with(|| stream.capture_status())??;
    stream.synchronize()?;
    trace.drops_from_here();
    Ok(())
}

fn captured() -> impl Fn(&Error) -> bool {
    invalid(|why| *why == Invalid::StreamIsCaptured)
}

/// A graph with a node of each kind that is built by hand: launched, changed, updated and dropped.
pub(super) fn built(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let (stream, other) = (context.stream()?, context.stream()?);
    let event = context.event()?;
    let scale = Module::from_ptx(&context, super::VECTOR)?
        .kernel("scale")?
        .typed::<(&mut [i32], i32, i32, u32)>()?;
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
    let clone = child.try_clone()?;
    trace.drop(clone);

    let options = InstantiateOptions {
        upload: Some(&stream),
        ..Default::default()
    };
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
    let access = executable.access(&mut a, &other)?;
    assert_eq!(access.as_slice().to_vec()?, [3; 8]);
    trace.drop(access);
    executable.update(&graph)?;
    executable.launch(&stream)?;
    assert_eq!(executable.host(&mut host)?, [2; 8]);
    stream.synchronize()?;
    other.synchronize()?;
    trace.drop(executable);
    trace.drop(graph);
    trace.drops_from_here();
    Ok(())
}
