//! Planes, regions of planes, and batches of copies.

use super::buffers::with_buffer;
use super::worker::{Item, Known, Worker};
use cuda_safe::memory::{CopyBatch, Extent, PitchedBuffer, Region};
use cuda_safe::{DeviceBuffer, Result};

/// Returns a plane of the given width over the first elements of a buffer.
fn plane(worker: &mut Worker<'_>, len: usize) -> Extent {
    let width = 1 + worker.below(8);
    Extent::new_2d(width, len / width)
}

/// Returns the indices of the elements in a region of a plane.
fn places(whole: Extent, part: Extent, x: usize, y: usize) -> Vec<usize> {
    let rows = y..y + part.height;
    rows.flat_map(|row| (x..x + part.width).map(move |column| row * whole.width + column)).collect()
}

/// Returns a region of a plane, and its origin.
fn part(worker: &mut Worker<'_>, whole: Extent) -> (Extent, usize, usize) {
    let (x, y) = (worker.below(whole.width), worker.below(whole.height + 1));
    let width = worker.below(whole.width - x) + 1;
    let height = worker.below(whole.height - y + 1);
    (Extent::new_2d(width, height), x, y)
}

pub(super) fn box_in(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let whole = plane(worker, known.elements.len());
        let (extent, x, y) = part(worker, whole);
        let region = Region::new(whole).at(x, y, 0);
        let places = places(whole, extent, x, y);
        let mut there = known.buffer.as_mut_slice();
        if worker.below(2) == 0 {
            there.fill_3d(extent, region, 99)?;
            places.iter().for_each(|place| known.elements[*place] = 99);
        } else {
            let new: Vec<i32> = (0..).take(places.len()).collect();
            there.copy_3d_from_slice(extent, region, &new, Region::new(extent))?;
            let new = places.iter().zip(new);
            new.for_each(|(place, new)| known.elements[*place] = new);
        }
        Ok(())
    })
}

pub(super) fn box_on_device(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let whole = plane(worker, known.elements.len());
        let (extent, x, y) = part(worker, whole);
        let region = Region::new(whole).at(x, y, 0);
        let places = places(whole, extent, x, y);
        let elements: Vec<i32> = places.iter().map(|place| known.elements[*place]).collect();
        let mut buffer = DeviceBuffer::uninit(known.buffer.stream(), elements.len())?;
        let mut target = buffer.as_mut_slice();
        target.copy_3d_from(extent, Region::new(extent), &known.buffer, region)?;
        worker.keep(Item::Buffer(Known { buffer, elements }));
        Ok(())
    })
}

pub(super) fn pitched(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let mut elements = worker.numbers();
    let whole = plane(worker, elements.len());
    elements.truncate(whole.width * whole.height);
    let mut buffer = PitchedBuffer::zeroed(&stream, whole.width, whole.height)?;
    buffer.copy_from_slice(&elements)?;
    if worker.below(2) == 0 {
        buffer.fill(3)?;
        elements.fill(3);
    }
    assert_eq!(buffer.to_vec()?, elements);
    Ok(())
}

pub(super) fn batch(worker: &mut Worker<'_>) -> Result<()> {
    with_buffer(worker, |worker, known| {
        let stream = known.buffer.stream().clone();
        let len = known.elements.len();
        let middle = worker.below(len + 1);
        let mut buffer = DeviceBuffer::uninit(&stream, len)?;
        let (low, high) = buffer.as_mut_slice().split_at(len - middle)?;
        let mut batch = CopyBatch::new(&stream);
        batch.push(low, known.buffer.slice(middle..)?)?;
        batch.push(high, known.buffer.slice(..middle)?)?;
        batch.enqueue()?;
        let mut elements = known.elements.clone();
        elements.rotate_left(middle);
        worker.keep(Item::Buffer(Known { buffer, elements }));
        Ok(())
    })
}
