//! Host memory: pinned, registered, mapped and managed.

use super::buffers::with_buffer;
use super::worker::{Item, Worker};
use cuda_safe::device::attribute;
use cuda_safe::error::Rejected;
use cuda_safe::memory::{Advice, ManagedBuffer, MappedBuffer, MemoryLocation};
use cuda_safe::memory::{PinnedOptions, RegisterOptions};
use cuda_safe::{CUresult, DeviceBuffer};
use cuda_safe::{PinnedBuffer, Result};

pub(super) fn pinned_in(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let stream = known.buffer.stream().clone();
        let mut host = PinnedBuffer::zeroed(stream.context(), known.elements.len())?;
        known.elements.reverse();
        host.copy_from_slice(&known.elements);
        let pending = known.buffer.copy_from_pinned(host)?;
        worker.keep(Item::Pending(pending, known.elements.clone()));
        Ok(())
    })
}

pub(super) fn pinned_out(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let stream = known.buffer.stream().clone();
        let host = PinnedBuffer::zeroed(stream.context(), known.elements.len())?;
        worker.keep(Item::Pending(known.buffer.copy_to_pinned(host)?, known.elements.clone()));
        Ok(())
    })
}

pub(super) fn end_copy(worker: &mut Worker<'_>) -> Result<()> {
    let pending = worker.take(|item| match item {
        Item::Pending(pending, elements) => Ok((pending, elements)),
        other => Err(other),
    });
    if let Some((pending, elements)) = pending {
        pending.is_complete()?;
        assert_eq!(*pending.synchronize()?, elements);
    }
    Ok(())
}

pub(super) fn lend(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |_, known| {
        let stream = known.buffer.stream().clone();
        let mut host = PinnedBuffer::zeroed(stream.context(), known.elements.len())?;
        stream.copy_scope(|scope| scope.copy_to_pinned(&known.buffer, &mut host))?;
        assert_eq!(*host, known.elements);
        Ok(())
    })
}

/// Copies a vector to the device and back.
pub(super) fn register(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let elements = worker.numbers();
    let options = RegisterOptions::default();
    let registered = PinnedBuffer::try_register_with(stream.context(), elements.clone(), options);
    let host = match registered {
        Ok(host) => host,
        Err(Rejected { error, value }) => {
            // A vector of another thread lies in the same page.
            let taken = CUresult::CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
            assert_eq!((error.code(), value), (Some(taken), elements));
            return Ok(());
        }
    };
    let mut buffer = DeviceBuffer::uninit(&stream, elements.len())?;
    let there = buffer.copy_from_pinned(host)?;
    let back = buffer.copy_to_pinned(there.synchronize()?)?;
    assert_eq!(back.synchronize()?.unregister()?, elements);
    Ok(())
}

pub(super) fn make_mapped(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let elements = worker.numbers();
    let options = PinnedOptions { mapped: true, ..PinnedOptions::default() };
    let mut host = PinnedBuffer::zeroed_with(stream.context(), elements.len(), options)?;
    host.copy_from_slice(&elements);
    worker.keep(Item::Mapped(MappedBuffer::new(host, &stream)?, elements));
    Ok(())
}

pub(super) fn make_managed(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let device = stream.context().device();
    if !device.attribute(attribute::MANAGED_MEMORY)? {
        return Ok(());
    }
    let elements = worker.numbers();
    let buffer = ManagedBuffer::from_slice(&stream, &elements)?;
    if device.attribute(attribute::CONCURRENT_MANAGED_ACCESS)? {
        let range = buffer.range(..)?;
        match worker.below(3) {
            0 => range.advise(Advice::PreferredLocation(MemoryLocation::Host))?,
            1 => range.prefetch(MemoryLocation::Device(device))?,
            _ => {}
        }
    }
    worker.keep(Item::Managed(buffer, elements));
    Ok(())
}

/// Runs device work on memory that the host can access too; sometimes the host reads it.
pub(super) fn use_turn(worker: &mut Worker<'_>) -> Result<()> {
    let item = worker.take(|item| match item {
        Item::Mapped(..) | Item::Managed(..) => Ok(item),
        other => Err(other),
    });
    let Some(mut item) = item else {
        return Ok(());
    };
    let (arena, looks) = (worker.arena, worker.below(2) == 0);
    let (x, elements) = match &mut item {
        Item::Mapped(buffer, elements) => (buffer.as_mut_slice(), elements),
        Item::Managed(buffer, elements) => (buffer.device_mut()?, elements),
        _ => unreachable!("taken above"),
    };
    if !x.is_empty() {
        let stream = x.stream().clone();
        arena.home(stream.context()).scale.run(&stream, x, 5, 2)?;
        let new = |element: &mut i32| *element = element.wrapping_mul(5).wrapping_add(2);
        elements.iter_mut().for_each(new);
    }
    match &mut item {
        Item::Mapped(buffer, elements) if looks => assert_eq!(buffer.host()?, elements),
        Item::Managed(buffer, elements) if looks => assert_eq!(buffer.host()?, elements),
        _ => {}
    }
    worker.keep(item);
    Ok(())
}

/// Converts mapped memory back to pinned memory.
pub(super) fn end_turn(worker: &mut Worker<'_>) -> Result<()> {
    let mapped = worker.take(|item| match item {
        Item::Mapped(buffer, elements) => Ok((buffer, elements)),
        other => Err(other),
    });
    if let Some((buffer, elements)) = mapped {
        assert_eq!(*buffer.into_pinned()?, elements);
    }
    Ok(())
}
