//! An operation of candle that copies a tensor with this library. The guide shows the first part of this file
//! (`bridge_candle`).

use candle_core::cuda_backend::cudarc::driver::{CudaStream, DevicePtr, DevicePtrMut};
use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, Layout, Result, Shape, backend::BackendStorage, bail,
};
use cuda_safe::{Context, DeviceBuffer, Stream};
use std::sync::Arc;

/// Returns candle's stream as a stream of this library. It must not be the default stream.
fn ours(stream: &Arc<CudaStream>) -> cuda_safe::Result<Stream> {
    let (raw, owner) = (stream.context().cu_ctx(), Arc::clone(stream));
    // SAFETY: the stream owns its context, which is not that of a green context.
    let context = unsafe { Context::from_foreign(raw.cast(), owner) }?;
    // SAFETY: the stream belongs to this context, and is alive as long as its owner.
    unsafe { Stream::from_foreign(stream.cu_stream().cast(), &context, Arc::clone(stream)) }
}

/// Copies a tensor. A kernel of this library is launched in the same way.
struct Duplicate;

impl CustomOp1 for Duplicate {
    fn name(&self) -> &'static str {
        "duplicate"
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        bail!("only on CUDA")
    }

    fn cuda_fwd(&self, storage: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        let Some((start, end)) = layout.contiguous_offsets() else { bail!("not contiguous") };
        let (device, len) = (storage.device().clone(), end - start);
        let theirs = device.cuda_stream();
        let stream = ours(&theirs).map_err(candle_core::Error::wrap)?;
        let source = storage.as_cuda_slice::<f32>()?.slice(start..end);
        // SAFETY: the copy below writes all elements.
        let mut target = unsafe { device.alloc::<f32>(len) }?;
        {
            let (from, _read) = source.device_ptr(&theirs);
            let (to, _written) = target.device_ptr_mut(&theirs);
            // SAFETY: the slice is alive in this block, is only read, and its use is ordered on this stream.
            let from = unsafe { DeviceBuffer::<f32>::borrow_raw(from, len, &stream) };
            // SAFETY: the slice is alive in this block, and its use is ordered on this stream.
            let to = unsafe { DeviceBuffer::<f32>::borrow_raw(to, len, &stream) };
            let copied = from.and_then(|from| to?.copy_from(&from));
            copied.map_err(candle_core::Error::wrap)?;
        }
        Ok((CudaStorage::wrap_cuda_slice(target, device), layout.shape().clone()))
    }
}

fn main() -> Result<()> {
    let device = candle_core::Device::new_cuda_with_stream(0)?;
    let input = candle_core::Tensor::arange(0f32, 6., &device)?.reshape((2, 3))?;
    let output = input.apply_op1_no_bwd(&Duplicate)?;
    assert_eq!(output.to_vec2::<f32>()?, [[0., 1., 2.], [3., 4., 5.]]);
    println!("the operation has copied a tensor of candle");
    Ok(())
}
