//! Pinned, registered, mapped and managed memory, pools, and queries of pointers.

use crate::scenarios::{expect, if_there_is, invalid, primary, primary_and_streams, scale};
use crate::trace::Trace;
use cuda_safe::memory::pool::attribute::{RELEASE_THRESHOLD, USED_CURRENT, USED_HIGH};
use cuda_safe::memory::{
    Advice, ManagedBuffer, MappedBuffer, MemoryAccess, MemoryLocation, MemoryPool,
    MemoryPoolOptions, PinnedOptions, RegisterOptions,
};
use cuda_safe::{DeviceBuffer, Invalid, LaunchConfig, PinnedBuffer, Result};

pub(crate) fn pinned(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let options = PinnedOptions { mapped: true, ..Default::default() };
    let memory = PinnedBuffer::<i32>::zeroed_with(&context, 8, options)?;
    memory.flags()?;
    let mut mapped = MappedBuffer::new(memory, &stream)?;
    let scale = scale(&context)?;
    // SAFETY: the kernel accesses 8 elements, and the memory has 8.
    unsafe { scale.launch(&stream, LaunchConfig::linear(1, 8), (&mut mapped, 2, 1, 8)) }?;
    assert_eq!(mapped.host()?, [1; 8]);
    mapped.as_mut_slice().fill(4)?;
    let memory = mapped.into_pinned()?;
    assert_eq!(*memory, [4; 8]);
    let Err(rejected) = memory.try_unregister() else {
        panic!("not a registered vector");
    };
    trace.drop(rejected.value);
    expect::<()>(Err(rejected.error), invalid(|why| *why == Invalid::NotRegistered))?;

    let mut mapped = MappedBuffer::new(PinnedBuffer::<i32>::zeroed(&context, 8)?, &stream)?;
    mapped.as_mut_slice().fill(4)?;
    trace.drop((mapped, scale, stream, context));
    trace.drops_from_here()
}

pub(crate) fn registered(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut buffer = DeviceBuffer::<u64>::zeroed(&stream, 100)?;
    let host = PinnedBuffer::register(&context, vec![5u64; 100])?;
    let host = buffer.copy_from_pinned(host)?.synchronize()?;
    let vector = host.unregister()?;
    assert_eq!(vector, [5; 100]);
    let mut mapped = MappedBuffer::new(PinnedBuffer::register(&context, vector)?, &stream)?;
    mapped.as_mut_slice().zero()?;
    assert_eq!(mapped.host()?, [0; 100]);
    mapped.as_mut_slice().copy_from(&buffer)?;
    // Still in use by pending work when it is unregistered.
    trace.drop(mapped);
    let options = RegisterOptions { mapped: true, portable: true, ..Default::default() };
    let host = PinnedBuffer::register_with(&context, vec![1u8; 100], options)?;
    trace.drop((stream, buffer, context, host));
    trace.drops_from_here()
}

pub(crate) fn managed(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let device = MemoryLocation::Device(context.device());
    let mut buffer = ManagedBuffer::<u32>::zeroed(&stream, 2000)?;
    assert_eq!(buffer.host()?, [0; 2000]);
    buffer.host()?[3] = 3;
    let range = buffer.range(..)?;
    range.advise(Advice::PreferredLocation(device))?;
    range.prefetch(device)?;
    assert_eq!(range.info()?.last_prefetch, Some(device));
    if_there_is(stream.prefetch_batch(&[(range, MemoryLocation::Host)]))?;
    let there = buffer.device()?;
    assert_eq!(there.slice(2..4)?.to_vec()?, [0, 3]);
    // SAFETY: the memory is written before it is read.
    if_there_is(unsafe { stream.discard_batch(&[buffer.range(..)?]) })?;
    let all = [(buffer.range(..)?, device)];
    // SAFETY: as above.
    if_there_is(unsafe { stream.discard_and_prefetch_batch(&all) })?;
    buffer.device_mut()?.fill(8)?;
    assert_eq!(buffer.host()?, [8; 2000]);
    let mut other = ManagedBuffer::from_slice(&stream, &[1u8; 10])?;
    other.device_mut()?.zero()?;
    // Still in use by pending work when it is freed.
    trace.drop((other, stream, context, buffer));
    trace.drops_from_here()
}

pub(crate) fn pools(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let (device, stream) = (context.device(), context.stream()?);
    let pool = MemoryPool::new(&context, MemoryPoolOptions::default())?;
    pool.set_attribute(RELEASE_THRESHOLD, 1 << 20)?;
    pool.grant_access(&device)?;
    // SAFETY: nothing is allocated from the pool.
    unsafe { pool.set_access(&device, MemoryAccess::ReadWrite) }?;
    pool.access(&device)?;
    let mut buffer = DeviceBuffer::<u16>::zeroed_from_pool(&pool, &stream, 100)?;
    assert_eq!(pool.attribute(USED_CURRENT)?, 200);
    pool.reset_high_water(USED_HIGH)?;
    pool.trim_to(0)?;
    let mut other = DeviceBuffer::<u16>::uninit_from_pool(&pool, &stream, 3)?;
    other.fill(1)?;
    trace.drop(other);
    let own = MemoryPool::default_of(&context)?;
    let place = MemoryLocation::Device(device);
    if_there_is(MemoryPool::default_at(&context, place, false))?;
    if_there_is(MemoryPool::current_at(&context, place, false))?;
    // (Any other pool would be leaked.)
    device.set_memory_pool(&own)?;
    assert_eq!(device.memory_pool()?, own.as_raw());
    if_there_is(own.set_current_at(place, false))?;
    trace.drop(pool);
    // The buffer keeps its pool alive.
    buffer.fill(7)?;
    assert_eq!(buffer.to_vec()?, [7; 100]);
    trace.drop((own, stream, context));
    trace.drops_from_here()
}

pub(crate) fn pointers(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut buffer = DeviceBuffer::<u16>::zeroed_sync(&stream, 100)?;
    let (start, end) = (buffer.as_raw(), buffer.as_raw() + 200);
    assert_eq!(context.address_range(start + 7)?, start..end);
    let info = context.pointer_info(start + 7)?;
    assert_eq!(info.map(|info| info.range), Some(start..end));
    assert_eq!(context.pointer_info(0x1234)?, None);
    buffer.set_sync_memops(true)?;
    trace.drops_from_here()
}
