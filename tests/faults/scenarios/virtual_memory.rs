//! Virtual memory: mappings that move, and buffers that grow and shrink.

use super::primary;
use crate::trace::Trace;
use cuda_safe::pool::MemoryAccess;
use cuda_safe::virtual_memory::{GrowableBuffer, PhysicalMemory, PhysicalOptions, Reservation};
use cuda_safe::{Error, Result};

/// A mapping that is used, moved, and dropped after its work.
pub(super) fn mapping(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let stream = context.stream()?;
    let size = PhysicalOptions::new(context.device()).granularity()?;
    let space = Reservation::new(4 * size)?;
    let mut mapping = space.map(0, PhysicalMemory::new(context.device(), size)?)?;
    assert_eq!(mapping.access(context.device())?, MemoryAccess::ReadWrite);
    mapping.set_access(context.device(), MemoryAccess::ReadWrite)?;
    let properties = mapping.memory().properties()?;
    assert_eq!(properties.location, Some(context.device().into()));
    let mapping = mapping.remap(&space, size)?;
    let mut buffer = mapping.into_buffer::<u32>(&stream)?;
    buffer.fill(7)?;
    let mapping = buffer.into_mapping()?;
    let memory = mapping.unmap()?;
    let mapping = space.map(2 * size, memory)?;
    let buffer = mapping.into_buffer::<u32>(&stream)?;
    assert_eq!(buffer.slice(..2)?.to_vec()?, [7; 2]);
    let rejected = space.try_map(4 * size, PhysicalMemory::new(context.device(), size)?);
    let rejected = rejected.expect_err("it does not fit");
    assert!(matches!(rejected.error, Error::Invalid(_)));
    trace.drop(rejected);
    trace.drop(buffer);
    trace.drop(space);
    trace.drop(stream);
    trace.drops_from_here();
    Ok(())
}

/// A buffer that grows, shrinks, and grows again.
pub(super) fn growable(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let stream = context.stream()?;
    let size = PhysicalOptions::new(context.device()).granularity()?;
    let mut buffer = GrowableBuffer::<u8>::new(&stream, 8 * size)?;
    buffer.extend_from_slice(&[1, 2, 3])?;
    buffer.resize_zeroed(2 * size)?;
    buffer.grow(3 * size)?;
    trace.drops_after("cuEventCreate", || buffer.truncate(size))?;
    trace.drops_before(|| stream.synchronize())?;
    buffer.resize_zeroed(2 * size)?;
    assert_eq!(buffer.as_slice().slice(..4)?.to_vec()?, [1, 2, 3, 0]);
    // What cannot be unmapped now is unmapped when the buffer is dropped.
    trace.drops_after("cuEventCreate", || buffer.truncate(0))?;
    trace.drops_before(|| stream.synchronize())?;
    trace.drops(cuda_safe::attempt_deferred_releases);
    trace.drop(buffer);
    trace.drops_from_here();
    Ok(())
}
