//! Attributes of streams, and memory operations.

use crate::scenarios::{expect, invalid, primary, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::stream::{
    AccessWindow, BarrierScope, MemoryOperation, MemorySyncDomain, MemorySyncDomainMap,
    SynchronizationPolicy, WaitCondition,
};
use cuda_safe::{Context, ContextFlags, DeviceBuffer, Invalid, Result, Stream};

pub(crate) fn attributes(trace: &mut Trace) -> Result<()> {
    let (context, [stream, other]) = primary_and_streams()?;
    assert!(!stream.is_blocking()?);
    let policy = SynchronizationPolicy::Yield;
    stream.set_synchronization_policy(policy)?;
    other.copy_attributes_from(&stream)?;
    assert_eq!(other.synchronization_policy()?, Some(policy));
    stream.set_priority(-1)?;
    stream.set_memory_sync_domain(MemorySyncDomain::Remote)?;
    stream.memory_sync_domain()?;
    let map = MemorySyncDomainMap { default: 0, remote: 1 };
    stream.set_memory_sync_domain_map(map)?;
    assert_eq!(stream.memory_sync_domain_map()?, map);
    let memory = DeviceBuffer::<u8>::zeroed(&stream, 64)?;
    stream.set_access_window(&memory, AccessWindow::default())?;
    assert!(stream.access_window()?.is_some());
    stream.clear_access_window()?;

    // SAFETY: `stream` outlives the borrowed stream.
    let borrowed = unsafe { Stream::borrow_checked(stream.as_raw(), &context) }?;
    trace.drop(borrowed);
    let own = Context::new(&context.device(), ContextFlags::empty())?;
    // SAFETY: as above.
    let wrong = unsafe { Stream::borrow_checked(stream.as_raw(), &own) };
    expect(wrong, invalid(|why| matches!(why, Invalid::OtherContext { .. })))?;
    trace.drops_from_here()
}

pub(crate) fn memory_operations(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    // A single stream, so that the words are freed after the waits even if a call fails.
    let stream = context.stream()?;
    let mut words = DeviceBuffer::<u32>::zeroed_sync(&stream, 2)?;
    let mut wide = DeviceBuffer::<u64>::zeroed_sync(&stream, 1)?;
    stream.synchronize()?;
    let (narrow, far) = (words.as_raw(), wide.as_raw());
    let condition = WaitCondition::AtLeast;
    words.as_mut_slice().write_value(0, 1)?;
    wide.as_mut_slice().write_value(0, 1)?;
    let barrier = MemoryOperation::Barrier(BarrierScope::System);
    let operations = [
        MemoryOperation::Write32 { address: narrow + 4, value: 2 },
        MemoryOperation::FlushRemoteWrites,
    ];
    // SAFETY: the words stay alive until the stream has completed, and nothing else uses them.
    unsafe { stream.memory_operations(&operations) }?;
    let waits = [
        MemoryOperation::Wait32 { address: narrow, value: 1, condition, flush: true },
        MemoryOperation::Wait64 { address: far, value: 1, condition, flush: false },
        barrier,
    ];
    for wait in waits {
        // SAFETY: as above.
        unsafe { stream.memory_operation(wait) }?;
    }
    stream.synchronize()?;
    trace.drops_from_here()
}
