//! Conditional nodes and launches from the device.

use crate::scenarios::graph::graphs::elements;
use crate::scenarios::primary_and_streams;
use crate::trace::Trace;
use cuda_safe::graph::{ConditionalHandle, DeviceGraph, InstantiateOptions};
use cuda_safe::{DeviceBuffer, Graph, LaunchConfig, Module, Result};

const CONDITIONAL: &str = include_str!("../../../kernels/conditional.ptx");
const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

/// A graph with nested conditional nodes: launched, changed, edited and dropped while it runs.
pub(crate) fn bodies(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let module = Module::from_ptx(&context, CONDITIONAL)?;
    let choose = module.kernel("choose")?.typed::<(ConditionalHandle, u32)>()?;
    let count_down = module.kernel("count_down")?.typed::<(ConditionalHandle, &mut [u32])>()?;

    let mut graph = Graph::new(&context)?;
    let mut data = graph.own(DeviceBuffer::<u32>::zeroed(&stream, 8)?)?;
    let mut left = graph.own(DeviceBuffer::from_slice(&stream, &[2u32])?)?;
    let again = graph.conditional_handle(&context, Some(1))?;
    let inner = graph.conditional_handle(&context, None)?;
    let mut fill = None;
    let node = graph.add_while(&[], again, |body| {
        // SAFETY: the kernel sets the handle that it gets.
        let set = unsafe { body.add_kernel(&[], &context, &choose, ONE, (inner, 1)) }?;
        body.add_if(&[set.id()], inner, |body| {
            fill = Some(body.add_fill(&[], &mut data, 7)?);
            Ok(())
        })?;
        // SAFETY: the kernel decrements one element and sets the handle that it gets.
        unsafe { body.add_kernel(&[], &context, &count_down, ONE, (again, &mut left)) }?;
        Ok(())
    })?;
    graph.edit_body(node, 0, |body| body.add_empty(&[]).map(drop))?;
    let mut executable = graph.instantiate()?;
    executable.launch(&stream)?;
    if let Some(fill) = fill {
        executable.nodes(&graph)?.set_fill(fill, &mut data, 8)?;
    }
    assert_eq!(elements(trace, &mut executable, &mut data, &stream)?, [7; 8]);
    trace.drop((executable, graph));
    stream.synchronize()?;
    trace.drops_from_here()
}

/// An executable graph that is uploaded for kernels, and returned.
pub(crate) fn device_launch(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    let mut graph = Graph::new(&context)?;
    let mut data = graph.own(DeviceBuffer::<u8>::zeroed(&stream, 8)?)?;
    graph.add_fill(&[], &mut data, 7)?;
    let options = InstantiateOptions { device_launch: true, ..Default::default() };
    let executable = graph.instantiate_with(&options)?;
    executable.launch(&stream)?;
    let device = DeviceGraph::new(executable, &other)?;
    if let Ok(mut executable) = device.into_executable() {
        assert_eq!(elements(trace, &mut executable, &mut data, &other)?, [7; 8]);
        executable.launch(&other)?;
        trace.drop(executable);
    }
    // The launch may not be complete, so the graph is destroyed later.
    trace.drops_before(|| other.synchronize())?;
    trace.drops_from_here()
}
