//! Nodes of graphs that are changed and read.

use crate::scenarios::{VECTOR, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::graph::node_attribute;
use cuda_safe::stream::MemoryOperation;
use cuda_safe::{DeviceBuffer, Graph, LaunchConfig, Module, Result};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let events = (context.event()?, context.event()?);
    let module = Module::from_ptx(&context, VECTOR)?;
    let nothing = module.kernel("nothing")?.typed::<()>()?;
    let config = LaunchConfig::linear(1, 8);
    let word = DeviceBuffer::<u32>::zeroed_sync(&stream, 1)?;

    let mut graph = Graph::new(&context)?;
    let mut a = graph.own(DeviceBuffer::<i32>::zeroed(&stream, 8)?)?;
    let b = graph.own(DeviceBuffer::<i32>::zeroed(&stream, 8)?)?;
    // SAFETY: the kernel accesses nothing.
    let kernel = unsafe { graph.add_kernel(&[], &context, &nothing, config, ()) }?;
    // SAFETY: as above.
    let other = unsafe { graph.add_kernel(&[], &context, &nothing, config, ()) }?;
    let copy = graph.add_copy(&[], &mut a, &b)?;
    let fill = graph.add_fill(&[copy.id()], &mut a, 1)?;
    let host = graph.add_host_function(&[], || ())?;
    let record = graph.add_event_record(&[], &events.0)?;
    let wait = graph.add_event_wait(&[], &events.0)?;
    let mut child = Graph::new(&context)?;
    child.add_empty(&[])?;
    let child_node = graph.add_child(&[], &mut child)?;
    let write = |value| MemoryOperation::Write32 { address: word.as_raw(), value };
    let (first, second) = ([write(1)], [write(2)]);
    // SAFETY: the word outlives the launches, and no other work uses it meanwhile.
    let operations = unsafe { graph.add_memory_operations(&[], &first) }?;
    // SAFETY: there is no semaphore, here and below.
    let signal = unsafe { graph.add_semaphore_signals(&[], &[]) }?;
    // SAFETY: as above.
    let waits = unsafe { graph.add_semaphore_waits(&[], &[]) }?;

    // SAFETY: the kernel accesses nothing.
    unsafe { graph.set_kernel(kernel, &context, &nothing, config, ()) }?;
    graph.set_copy(copy, &mut a, &b)?;
    graph.set_fill(fill, &mut a, 2)?;
    graph.set_host_function(host, || ())?;
    graph.set_event_record(record, &events.1)?;
    graph.set_event_wait(wait, &events.1)?;
    graph.raw_node_event(record)?;
    graph.raw_node_event(wait)?;
    assert_eq!(graph.child(child_node)?.nodes()?.len(), 1);
    // SAFETY: the kernel does nothing, whatever its attributes.
    unsafe { graph.set_kernel_attribute(kernel, node_attribute::PRIORITY, -1) }?;
    // SAFETY: as above.
    unsafe { graph.copy_kernel_attributes(kernel, other) }?;
    assert_eq!(graph.kernel_attribute(other, node_attribute::PRIORITY)?, -1);
    // SAFETY: as where it was added.
    unsafe { graph.set_memory_operations(operations, &second) }?;
    assert_eq!(graph.memory_operations(operations)?, second);
    // SAFETY: as above.
    unsafe { graph.set_semaphore_signals(signal, &[]) }?;
    // SAFETY: as above.
    unsafe { graph.set_semaphore_waits(waits, &[]) }?;
    assert!(graph.semaphore_signals(signal)?.is_empty());
    assert!(graph.semaphore_waits(waits)?.is_empty());

    let mut executable = graph.instantiate()?;
    executable.launch(&stream)?;
    let mut nodes = executable.nodes(&graph)?;
    // SAFETY: as where it was added.
    unsafe { nodes.set_memory_operations(operations, &first) }?;
    // SAFETY: as above.
    unsafe { nodes.set_semaphore_signals(signal, &[]) }?;
    // SAFETY: as above.
    unsafe { nodes.set_semaphore_waits(waits, &[]) }?;
    executable.launch(&stream)?;
    stream.synchronize()?;
    assert_eq!(word.to_vec()?, [1]);
    trace.drop((executable, graph));

    let mut graph = Graph::new(&context)?;
    // SAFETY: the kernel accesses nothing.
    let kernel = unsafe { graph.add_kernel(&[], &context, &nothing, config, ()) }?;
    // SAFETY: no kernel gets the handle.
    unsafe { graph.make_device_updatable(kernel) }?;
    trace.drop(graph);
    trace.drops_from_here()
}
