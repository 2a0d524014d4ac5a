//! Batches of copies with host memory and with regions, and copies of regions between contexts.

use crate::scenarios::primary_and_streams;
use crate::trace::Trace;
use cuda_safe::memory::{CopyBatch, Extent, Region};
use cuda_safe::{Context, ContextFlags, Device, DeviceBuffer, PinnedBuffer, Result};

pub(crate) fn run(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let mut there = PinnedBuffer::<u32>::zeroed(&context, 4)?;
    let mut back = PinnedBuffer::<u32>::zeroed(&context, 4)?;
    there.copy_from_slice(&[1, 2, 3, 4]);
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let mut other = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let plane = Extent::new_2d(2, 2);
    let packed = Region::new(plane);

    let mut batch = CopyBatch::new(&stream);
    batch.push_from_pinned(&mut buffer, &mut there)?;
    batch.push_from_slice(&mut other, &[5, 6, 7, 8])?;
    batch.enqueue()?;
    let mut batch = CopyBatch::new(&stream);
    batch.push_from_slice(&mut other, &[5, 6, 7, 9])?;
    batch.enqueue()?;
    stream.copy_scope(|scope| {
        let mut batch = CopyBatch::new(&stream);
        batch.push_3d_to_pinned(plane, &other, packed, &mut back, packed)?;
        batch.push_3d_from_slice(plane, &mut buffer, packed, &[0, 1, 2, 3], packed)?;
        scope.enqueue(batch)
    })?;
    assert_eq!(*back, [5, 6, 7, 9]);

    let away = Context::new(&Device::get(0)?, ContextFlags::empty())?;
    let stream = away.stream()?;
    let shared = buffer.share()?;
    let reader = shared.on_peer(&stream)?;
    let mut copy = DeviceBuffer::<u32>::uninit(&stream, 4)?;
    copy.as_mut_slice().copy_3d_from_peer(plane, packed, &reader, packed)?;
    assert_eq!(copy.to_vec()?, [0, 1, 2, 3]);
    trace.drop((reader, shared));
    trace.drops_from_here()
}
