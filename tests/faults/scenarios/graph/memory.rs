//! Memory that nodes of graphs allocate.

use crate::scenarios::{primary_and_streams, refused};
use crate::trace::Trace;
use cuda_safe::graph::GraphAllocation;
use cuda_safe::graph::{AllocOptions, InstantiateOptions};
use cuda_safe::{Context, Device, Graph, Invalid, Result};

/// Builds a graph that frees one allocation and keeps another, which is returned.
fn build(context: &Context) -> Result<(Graph, GraphAllocation<u32>)> {
    let options = AllocOptions::default();
    let mut graph = Graph::new(context)?;
    let (node, mut memory) = graph.add_alloc::<u32>(&[], 4, &options)?;
    let fill = graph.add_fill(&[node.id()], &mut memory, 7)?;
    let (second, mut kept) = graph.add_alloc::<u32>(&[fill.id()], 4, &options)?;
    let copy = graph.add_copy(&[second.id()], &mut kept, &memory)?;
    let free = graph.add_free(&[copy.id()], &mut memory)?;
    assert_eq!(graph.alloc_parameters(node)?.size_bytes, 16);
    assert_eq!(graph.free_parameters(free)?, memory.as_raw());
    Ok((graph, kept))
}

/// Memory that a graph keeps: taken, freed by a launch, and freed by a drop.
pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;

    let (graph, kept) = build(&context)?;
    let options = InstantiateOptions { auto_free_on_launch: true, ..Default::default() };
    let mut executable = graph.instantiate_with(&options)?;
    executable.launch(&stream)?;
    executable.launch(&other)?;
    let buffer = executable.take_allocation(&kept, &stream)?;
    assert_eq!(buffer.to_vec()?, [7; 4]);
    trace.drop(buffer);
    // If the driver refused the free, this launch frees the memory.
    executable.launch(&other)?;
    stream.synchronize()?;
    other.synchronize()?;
    trace.drop(executable);

    // If a drop fails, the first graph cannot be instantiated or launched again.
    let (graph, kept) = build(&context)?;
    let mut executable = graph.instantiate()?;
    executable.launch(&stream)?;
    refused(executable.launch(&stream), |why| matches!(why, Invalid::AllocationAlive { .. }))?;
    let buffer = executable.take_allocation(&kept, &other)?;
    assert_eq!(buffer.to_vec()?, [7; 4]);
    stream.synchronize()?;
    trace.drop((executable, graph, buffer));
    trace.drops_from_here()
}

pub(crate) fn usage(_: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let usage = device.graph_memory()?;
    assert!(usage.used <= usage.reserved);
    device.reset_graph_memory_high()?;
    device.trim_graph_memory()
}
