//! The works on batches of copies and on tensor maps through `cuda-safe`.

use super::{ENCODE, OF_SLICES, ON_DEVICE, PART, PARTS, REPLACE};
use crate::work::{Work, Works, ok};
use cuda_safe::memory::CopyBatch;
use cuda_safe::tensor_map::{TensorDataType, TensorLayout, TensorMap, TensorMapOptions, TiledBox};
use cuda_safe::{Context, Device, DeviceBuffer, Result, Stream};
use std::hint::black_box;

const LAYOUT: TensorLayout<'_> =
    TensorLayout { data_type: TensorDataType::F32, dims: &[32, 32], strides: &[128] };

pub(crate) fn works() -> Result<Works> {
    let stream = Context::primary(&Device::get(0)?)?.stream()?;
    // The works borrow the memory until the process exits.
    let leaked = || -> Result<&'static DeviceBuffer<f32>> {
        Ok(Box::leak(Box::new(DeviceBuffer::zeroed(&stream, 1024)?)))
    };
    let matrices = [leaked()?, leaked()?];
    let encode = move || {
        let (shape, options) = (TiledBox::new(&[8, 8]), TensorMapOptions::default());
        TensorMap::new(matrices[0], LAYOUT, shape, options)
    };
    let mut replaced = encode()?;
    Ok(vec![
        (ON_DEVICE, on_device(stream.clone())?),
        (OF_SLICES, of_slices(stream.clone())?),
        (
            ENCODE,
            Work::each(move || {
                black_box(&ok(encode()));
            }),
        ),
        (
            REPLACE,
            Work::batch(move |n| {
                for i in 0..n {
                    ok(replaced.replace_memory(matrices[i % 2]));
                }
            }),
        ),
    ])
}

fn on_device(stream: Stream) -> Result<Work> {
    let mut to = DeviceBuffer::<u8>::zeroed(&stream, PART * PARTS)?;
    let from = DeviceBuffer::<u8>::zeroed(&stream, PART * PARTS)?;
    Ok(Work::each(move || {
        let mut batch = CopyBatch::with_capacity(&stream, PARTS);
        for (to, from) in ok(to.chunks_exact_mut(PART)).zip(ok(from.chunks_exact(PART))) {
            ok(batch.push(to, from));
        }
        ok(batch.enqueue());
    }))
}

fn of_slices(stream: Stream) -> Result<Work> {
    let mut to = DeviceBuffer::<u8>::zeroed(&stream, PART * PARTS)?;
    let from = vec![0_u8; PART * PARTS];
    Ok(Work::each(move || {
        let mut batch = CopyBatch::with_capacity(&stream, PARTS);
        for (to, from) in ok(to.chunks_exact_mut(PART)).zip(from.chunks_exact(PART)) {
            ok(batch.push_from_slice(to, from));
        }
        ok(batch.enqueue());
    }))
}
