//! Memory of tensors of tch in this library, and the other way round. The guide shows the first part of this file
//! (`bridge_pytorch`).

use cuda_safe::{Context, DeviceBuffer, Result, Stream, StreamOptions};
use std::ptr::with_exposed_provenance;
use tch::{Device, Kind, Tensor};

/// Creates a stream that waits for the default stream of PyTorch, and for which that stream waits.
fn stream(context: &Context) -> Result<Stream> {
    context.stream_with(StreamOptions { blocking: true, ..Default::default() })
}

/// Returns the memory of a contiguous tensor of `f32` as a buffer.
///
/// # Safety
/// The tensor is on the device of the stream, which [`stream`] has created. It outlives the buffer, and its storage is
/// not replaced as long as the buffer is alive.
unsafe fn ours(tensor: &Tensor, stream: &Stream) -> Result<DeviceBuffer<f32>> {
    assert!(tensor.kind() == Kind::Float && tensor.is_contiguous());
    let address = tensor.data_ptr().expose_provenance() as u64;
    // SAFETY: the tensor has this memory, which outlives the buffer. The streams order the accesses.
    unsafe { DeviceBuffer::borrow_raw(address, tensor.numel(), stream) }
}

/// Returns the memory of a buffer as a tensor.
///
/// # Safety
/// [`stream`] has created the stream of the buffer. The buffer outlives the tensor and all tensors that share its
/// memory.
unsafe fn theirs(buffer: &mut DeviceBuffer<f32>, shape: &[i64]) -> Tensor {
    assert_eq!(shape.iter().product::<i64>(), buffer.len() as i64);
    let device = Device::Cuda(buffer.stream().context().device().ordinal() as usize);
    let address = with_exposed_provenance(buffer.as_raw() as usize);
    // SAFETY: the buffer has this size, and outlives the tensor.
    unsafe { Tensor::from_blob(address, shape, &[], Kind::Float, device) }
}

fn main() -> Result<()> {
    let stream = stream(&Context::primary(&cuda_safe::Device::get(0)?)?)?;
    // tch begins, and this library continues.
    let tensor = Tensor::arange(4, (Kind::Float, Device::Cuda(0)));
    // SAFETY: the tensor outlives the buffer.
    let mut buffer = unsafe { ours(&tensor, &stream) }?;
    buffer.slice_mut(..1)?.fill(7.0)?;
    drop(buffer);
    assert_eq!(Vec::<f32>::try_from(tensor).expect("a vector"), [7.0, 1.0, 2.0, 3.0]);

    // This library begins, and tch continues.
    let mut buffer = DeviceBuffer::from_slice(&stream, &[1.0f32, 2.0, 3.0, 4.0])?;
    // SAFETY: the buffer outlives the tensor.
    let mut tensor = unsafe { theirs(&mut buffer, &[2, 2]) };
    let _ = tensor.g_add_scalar_(1.0);
    drop(tensor);
    assert_eq!(buffer.to_vec()?, [2.0, 3.0, 4.0, 5.0]);
    println!("tch and this library have exchanged memory");
    Ok(())
}
