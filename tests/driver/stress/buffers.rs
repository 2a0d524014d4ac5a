//! Buffers with known contents.

use super::worker::{Item, Known, Worker};
use cuda_safe::memory::{MemoryPool, MemoryPoolOptions};
use cuda_safe::{DeviceBuffer, Result, Stream};

pub(super) fn make(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let elements = worker.numbers();
    let (buffer, elements) = match worker.below(8) {
        0 => {
            let len = elements.len();
            (DeviceBuffer::zeroed_sync(&stream, len)?, vec![0; len])
        }
        1 => {
            let len = elements.len();
            (DeviceBuffer::zeroed(&stream, len)?, vec![0; len])
        }
        _ => (DeviceBuffer::from_slice(&stream, &elements)?, elements),
    };
    worker.keep(Item::Buffer(Known { buffer, elements }));
    Ok(())
}

/// Creates a buffer in the memory pool of the stream's context.
pub(super) fn make_in_pool(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let pool = worker.arena.home(stream.context()).pool.clone();
    keep_of_pool(worker, &stream, &pool)
}

/// Creates a buffer in a new pool, which is dropped with the buffer.
pub(super) fn make_in_own_pool(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let pool = MemoryPool::new(stream.context(), MemoryPoolOptions::default())?;
    keep_of_pool(worker, &stream, &pool)
}

fn keep_of_pool(worker: &mut Worker<'_>, stream: &Stream, pool: &MemoryPool) -> Result<()> {
    let elements = worker.numbers();
    let mut buffer = DeviceBuffer::uninit_from_pool(pool, stream, elements.len())?;
    buffer.copy_from_slice(&elements)?;
    worker.keep(Item::Buffer(Known { buffer, elements }));
    Ok(())
}

pub(super) fn check(worker: &mut Worker<'_>) -> Result<()> {
    let Some(known) = worker.take_buffer() else {
        return Ok(());
    };
    known.check()?;
    worker.keep(Item::Buffer(known));
    Ok(())
}

/// Applies a function to a buffer, and keeps the buffer.
pub(super) fn with_buffer(
    worker: &mut Worker<'_>,
    f: impl FnOnce(&mut Worker<'_>, &mut Known) -> Result<()>,
) -> Result<()> {
    let Some(mut known) = worker.take_buffer() else {
        return Ok(());
    };
    f(worker, &mut known)?;
    worker.keep(Item::Buffer(known));
    Ok(())
}

pub(super) fn fill_part(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let start = worker.below(known.elements.len() + 1);
        let end = start + worker.below(known.elements.len() - start + 1);
        let value = worker.below(100) as i32;
        known.buffer.slice_mut(start..end)?.fill(value)?;
        known.elements[start..end].fill(value);
        Ok(())
    })
}

pub(super) fn copy_in(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let value = worker.below(100) as i32;
        known.elements.iter_mut().for_each(|element| *element ^= value);
        known.buffer.copy_from_slice(&known.elements)
    })
}

pub(super) fn scale(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        if known.elements.is_empty() {
            return Ok(());
        }
        let stream = known.buffer.stream().clone();
        let scale = &worker.arena.home(stream.context()).scale;
        scale.run(&stream, &mut known.buffer, 3, 1)?;
        let new = |element: &mut i32| *element = element.wrapping_mul(3).wrapping_add(1);
        known.elements.iter_mut().for_each(new);
        Ok(())
    })
}

pub(super) fn scale_part(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let Some(last) = known.elements.len().checked_sub(1) else {
            return Ok(());
        };
        let start = worker.below(last + 1);
        let stream = known.buffer.stream().clone();
        let scale = &worker.arena.home(stream.context()).scale;
        scale.run(&stream, known.buffer.slice_mut(start..)?, 1, 7)?;
        let new = |element: &mut i32| *element = element.wrapping_add(7);
        known.elements[start..].iter_mut().for_each(new);
        Ok(())
    })
}

pub(super) fn copy_on_device(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let stream = known.buffer.stream().clone();
        let mut copy = DeviceBuffer::uninit(&stream, known.elements.len())?;
        copy.copy_from(&known.buffer)?;
        let elements = known.elements.clone();
        worker.keep(Item::Buffer(Known { buffer: copy, elements }));
        Ok(())
    })
}

pub(super) fn rebind(worker: &mut Worker<'_>) -> Result<()> {
    let Some(Known { mut buffer, elements }) = worker.take_buffer() else {
        return Ok(());
    };
    let stream = worker.stream_beside(buffer.stream())?;
    buffer.rebind(&stream)?;
    worker.keep(Item::Buffer(Known { buffer, elements }));
    Ok(())
}
