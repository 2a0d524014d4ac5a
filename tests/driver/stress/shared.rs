//! Buffers that several streams read.

use super::worker::{Item, Known, Worker};
use cuda_safe::{DeviceBuffer, Result, SharedBuffer};

fn take(worker: &mut Worker<'_>) -> Option<(SharedBuffer<i32>, Vec<i32>)> {
    worker.take(|item| match item {
        Item::Shared(shared, elements) => Ok((shared, elements)),
        other => Err(other),
    })
}

/// Shares a buffer. In half of the cases new work was just enqueued on it, so the readers usually
/// have to wait.
pub(super) fn share(worker: &mut Worker<'_>) -> Result<()> {
    let Some(Known { mut buffer, mut elements }) = worker.take_buffer() else {
        return Ok(());
    };
    if worker.below(2) == 0 {
        worker.keep(Item::Shared(buffer.share()?, elements));
        return Ok(());
    }
    let value = worker.below(1 << 20) as i32;
    buffer.fill(value)?;
    elements.fill(value);
    read_of(worker, buffer.share()?, elements)
}

pub(super) fn read(worker: &mut Worker<'_>) -> Result<()> {
    match take(worker) {
        Some((shared, elements)) => read_of(worker, shared, elements),
        None => Ok(()),
    }
}

fn read_of(worker: &mut Worker<'_>, shared: SharedBuffer<i32>, elements: Vec<i32>) -> Result<()> {
    let stream = worker.stream_beside(shared.stream())?;
    let reader = shared.on(&stream)?;
    let mut copy = DeviceBuffer::uninit(&stream, elements.len())?;
    copy.copy_from(&reader)?;
    if worker.below(2) == 0 {
        assert_eq!(copy.to_vec()?, elements);
    }
    worker.keep(Item::Shared(shared, elements.clone()));
    worker.keep(Item::Reader(reader, elements.clone()));
    worker.keep(Item::Buffer(Known { buffer: copy, elements }));
    Ok(())
}

pub(super) fn unshare(worker: &mut Worker<'_>) -> Result<()> {
    let Some((shared, elements)) = take(worker) else {
        return Ok(());
    };
    let item = match shared.into_buffer() {
        Ok(buffer) => Item::Buffer(Known { buffer, elements }),
        Err(shared) => Item::Shared(shared, elements),
    };
    worker.keep(item);
    Ok(())
}

pub(super) fn copy_to_the_other_context(worker: &mut Worker<'_>) -> Result<()> {
    let Some((shared, elements)) = take(worker) else {
        return Ok(());
    };
    let stream = worker.stream()?;
    let reader = shared.on_peer(&stream)?;
    let mut buffer = DeviceBuffer::uninit(&stream, elements.len())?;
    buffer.copy_from_peer(&reader)?;
    worker.keep(Item::Shared(shared, elements.clone()));
    worker.keep(Item::Buffer(Known { buffer, elements }));
    Ok(())
}
