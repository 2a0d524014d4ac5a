//! Planes, volumes and batches of copies.

use crate::scenarios::primary_and_streams;
use crate::trace::Trace;
use cuda_safe::memory::{CopyBatch, Extent, PitchedBuffer, Region};
use cuda_safe::{DeviceBuffer, Result};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (_, [stream]) = primary_and_streams()?;
    let (whole, part) = (Extent::new_3d(4, 3, 2), Extent::new_3d(2, 2, 2));
    let inside = Region::new(whole).at(1, 1, 0);
    let mut volume = DeviceBuffer::<u32>::zeroed(&stream, 24)?;
    let mut cut = DeviceBuffer::<u32>::uninit(&stream, 8)?;
    volume.as_mut_slice().copy_3d_from_slice(part, inside, &[5; 8], Region::new(part))?;
    cut.as_mut_slice().copy_3d_from(part, Region::new(part), &volume, inside)?;
    let mut back = [0; 24];
    volume.as_slice().copy_3d_to_slice(part, inside, &mut back, inside)?;
    assert_eq!(back.iter().sum::<u32>(), 40);
    assert_eq!(cut.to_vec()?, [5; 8]);

    let mut plane = PitchedBuffer::<u16>::zeroed(&stream, 5, 4)?;
    plane.copy_from_slice(&[1; 20])?;
    assert_eq!(plane.to_vec()?, [1; 20]);
    plane.fill(2)?;
    let mut bytes = DeviceBuffer::<u8>::uninit(&stream, 20)?;
    let rows = Extent::new_2d(5, 4);
    bytes.as_mut_slice().fill_3d(rows, Region::new(rows), 3)?;
    cut.as_mut_slice().fill_3d(part, Region::new(part), 4)?;
    trace.drop(plane);

    let mut batch = CopyBatch::new(&stream);
    let (low, high) = cut.as_mut_slice().split_at(4)?;
    batch.push(low, volume.slice(..4)?)?;
    batch.push(high, volume.slice(4..8)?)?;
    batch.enqueue()?;
    assert_eq!(cut.to_vec()?[5], 5);
    trace.drops_from_here()
}
