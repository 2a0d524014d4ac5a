//! Memory and semaphores of other APIs. The driver and files in memory play the other API.

use super::primary_and_streams;
use crate::trace::Trace;
use cuda_safe::array::ArrayShape;
use cuda_safe::external::{
    BinarySemaphore, ExternalMemory, ExternalMemoryOptions, ImageOptions, TimelineSemaphore,
};
use cuda_safe::{DeviceBuffer, Graph, Result};
use cuda_sim::external::{ExternalSemaphore, memory};

const SIZE: usize = 64 << 10;

/// Memory that is mapped as ranges and as an image.
pub(super) fn memories(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let import = |options| {
        let file = memory(SIZE as u64).expect("memory");
        // SAFETY: the descriptor is that of memory of this size.
        unsafe { ExternalMemory::try_import(&context, file.into(), SIZE, options) }
    };
    let ranges = import(ExternalMemoryOptions::default())?;
    let mapping = ranges.map(4096, 4096)?;
    // SAFETY: all work on the range is on one stream.
    let mut buffer = unsafe { mapping.into_buffer::<u32>(&stream) }?;
    buffer.fill(7)?;
    assert_eq!(buffer.slice(..2)?.to_vec()?, [7; 2]);
    let unbound = ranges.map(8192, 4096)?;
    let options = ExternalMemoryOptions { dedicated: true, ..ExternalMemoryOptions::default() };
    let memory = import(options)?;
    let shape = ArrayShape::TwoD { width: 16, height: 16 };
    // SAFETY: no other code uses the memory.
    let image = unsafe { memory.map_image::<u8>(&stream, shape, 2, ImageOptions::default()) }?;
    assert_eq!(image.levels(), 2);
    trace.drop((buffer, ranges, memory, unbound));
    trace.drop((image, stream));
    trace.drops_from_here()
}

/// Semaphores on two streams, and in a graph.
pub(super) fn semaphores(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    let theirs = ExternalSemaphore::timeline(0).expect("a semaphore");
    let exported = theirs.export().expect("a descriptor");
    // SAFETY: the descriptor is that of a timeline semaphore.
    let mut timeline = unsafe { TimelineSemaphore::import(&context, exported) }?;
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    theirs.signal(1).expect("signaled");
    stream.wait_timeline(&timeline, 1)?;
    buffer.fill(3)?;
    stream.signal_timeline(&mut timeline, 2)?;
    other.signal_timeline(&mut timeline, 3)?;
    other.synchronize()?;
    assert_eq!(theirs.value().expect("a value"), 3);
    assert_eq!(buffer.to_vec()?, [3; 4]);

    let exported = ExternalSemaphore::binary().and_then(|its| its.export());
    // SAFETY: the descriptor is that of a binary semaphore.
    let imported = unsafe { BinarySemaphore::try_import(&context, exported.expect("a semaphore")) };
    let mut binary = imported?;
    stream.signal_binary(&mut binary)?;
    other.wait_binary(&mut binary)?;
    other.synchronize()?;

    let mut graph = Graph::new(&context)?;
    // SAFETY: the semaphores outlive the graph.
    let node = unsafe { graph.add_semaphore_signals(&[], &[timeline.graph_signal(4)]) }?;
    // SAFETY: as above.
    unsafe { graph.add_semaphore_waits(&[node.id()], &[timeline.graph_wait(4)]) }?;
    let executable = graph.instantiate()?;
    executable.launch(&stream)?;
    stream.synchronize()?;
    assert_eq!(theirs.value().expect("a value"), 4);
    trace.drop((executable, graph));
    trace.drop((timeline, binary, buffer, stream, other));
    trace.drops_from_here()
}
