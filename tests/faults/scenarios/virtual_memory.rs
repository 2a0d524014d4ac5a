//! Virtual memory: mappings that move, and buffers that grow and shrink.

use super::primary_and_streams;
use crate::trace::Trace;
use cuda_safe::memory::pool::MemoryAccess;
use cuda_safe::virtual_memory::{
    EndpointDevices, EndpointIds, EndpointOptions, FabricCopyBatch, GrowableBuffer,
    MulticastOptions, MulticastTeam, PhysicalMemory, PhysicalOptions, Reservation,
};
use cuda_safe::{Device, DeviceBuffer, Error, Result};

/// A mapping that is used, moved, and dropped after its work.
pub(super) fn mapping(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
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
    let mapping = space.map(2 * size, mapping.unmap()?)?;
    let buffer = mapping.into_buffer::<u32>(&stream)?;
    assert_eq!(buffer.slice(..2)?.to_vec()?, [7; 2]);
    let rejected = space.try_map(4 * size, PhysicalMemory::new(context.device(), size)?);
    let rejected = rejected.expect_err("it does not fit");
    assert!(matches!(rejected.error, Error::Invalid(_)));
    trace.drop((rejected, buffer, space, stream));
    trace.drops_from_here()
}

/// A buffer that grows, shrinks, and grows again.
pub(super) fn growable(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
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
    trace.drops(cuda_safe::event::destroy_cached);
    trace.drops_after("cuEventCreate", || buffer.truncate(0))?;
    trace.drops_before(|| stream.synchronize())?;
    trace.drops(cuda_safe::attempt_deferred_releases);
    trace.drop(buffer);
    trace.drops_from_here()
}

/// A multicast object of two devices, with both kinds of bindings and a mapping.
pub(super) fn multicast(trace: &mut Trace) -> Result<()> {
    let devices = [Device::get(0)?, Device::get(1)?];
    let options = MulticastOptions::new(2, 4 << 20);
    let size = options.recommended_granularity()?;
    let mut team = MulticastTeam::new(&options)?;
    for device in &devices {
        team.add(device)?;
    }
    let object = team.complete()?;
    let one = object.bind(devices[0], 0, PhysicalMemory::new(devices[0], size)?)?;
    let space = Reservation::new(size)?.map(0, PhysicalMemory::new(devices[1], size)?)?;
    let other = object.bind(devices[1], 0, space)?;
    let mut mapping = object.map(&Reservation::new(2 * size)?, 0)?;
    mapping.set_access(devices[0], MemoryAccess::ReadWrite)?;
    let memory = one.unbind()?;
    // A mapping whose drop failed would keep its addresses.
    mapping.unmap()?;
    let others = other.unbind()?.unmap()?;
    let again = object.bind(devices[1], 0, others)?;
    trace.drop((object, memory, again));
    trace.drops_from_here()
}

/// A logical endpoint with both kinds of bindings.
pub(super) fn endpoint(trace: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let options = EndpointOptions::new(EndpointDevices::Unicast(device), 4 << 20);
    let size = options.limits()?.alignment;
    let mut pending = EndpointIds::reserve(1)?.create(0, &options)?;
    let endpoint = loop {
        match pending.finish()? {
            Ok(endpoint) => break endpoint,
            Err(again) => pending = again,
        }
    };
    let one = endpoint.bind(device, 0, PhysicalMemory::new(device, size)?)?;
    let mapping = Reservation::new(size)?.map(0, PhysicalMemory::new(device, size)?)?;
    let other = endpoint.bind(device, size, mapping)?;
    let memory = one.unbind()?;
    let again = endpoint.bind(device, 0, other.unbind()?.unmap()?)?;
    trace.drop((endpoint, memory, again));
    trace.drops_from_here()
}

/// Copies to a logical endpoint and back.
pub(super) fn fabric_copies(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let device = context.device();
    let options = EndpointOptions::new(EndpointDevices::Unicast(device), 2 << 20);
    let mut pending = EndpointIds::reserve(1)?.create(0, &options)?;
    let endpoint = loop {
        match pending.finish()? {
            Ok(endpoint) => break endpoint,
            Err(again) => pending = again,
        }
    };
    let bound = endpoint.bind(device, 0, PhysicalMemory::new(device, 2 << 20)?)?;
    let source = DeviceBuffer::from_slice(&stream, &[1u32, 2])?;
    let mut target = DeviceBuffer::<u32>::zeroed(&stream, 2)?;
    let mut copy = || {
        let mut batch = FabricCopyBatch::new(&stream);
        batch.push_to_endpoint(&endpoint, 4, &source)?;
        // SAFETY: memory is bound there until the stream has been waited for, and nothing else uses it.
        unsafe { batch.enqueue() }?;
        let mut batch = FabricCopyBatch::new(&stream);
        batch.push_from_endpoint(&mut target, &endpoint, 4)?;
        // SAFETY: as above.
        unsafe { batch.enqueue() }?;
        target.to_vec()
    };
    let copied = copy();
    // If a call failed, copies may be pending, and the memory must stay bound until they have completed.
    if copied.is_err() {
        let _ = stream.synchronize().or_else(|_| stream.synchronize());
    }
    assert_eq!(copied?, [1, 2]);
    trace.drop((endpoint, bound, source, target));
    trace.drops_from_here()
}

/// What the driver says about the fabric.
pub(super) fn fabric(_: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    device.fabric_cluster()?;
    assert_eq!(device.fabric_cliques()?.len(), 2);
    Ok(())
}
