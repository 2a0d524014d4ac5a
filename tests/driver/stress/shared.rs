//! Buffers that several streams read.

use super::worker::{Item, Known, Worker};
use cuda_safe::{DeviceBuffer, Result, SharedBuffer};

fn take(worker: &mut Worker<'_>) -> Option<(SharedBuffer<i32>, Vec<i32>)> {
    worker.take(|item| match item {
        Item::Shared(shared, elements) => Ok((shared, elements)),
        other => Err(other),
    })
}

pub(super) fn share(worker: &mut Worker<'_>) -> Result<()> {
    let Some(Known { buffer, elements }) = worker.take_buffer() else {
        return Ok(());
    };
    worker.keep(Item::Shared(buffer.share()?, elements));
    Ok(())
}

pub(super) fn read(worker: &mut Worker<'_>) -> Result<()> {
    let Some((shared, elements)) = take(worker) else {
        return Ok(());
    };
    let stream = worker.stream_beside(shared.stream())?;
    let reader = shared.on(&stream)?;
    let mut copy = DeviceBuffer::uninit(&stream, elements.len())?;
    copy.copy_from(&reader)?;
    worker.keep(Item::Shared(shared.clone(), elements.clone()));
    worker.keep(Item::Reader(reader, elements.clone()));
    worker.keep(Item::Buffer(Known {
        buffer: copy,
        elements,
    }));
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
