//! Streams and memory of cudarc and of this library, used as each other's. The guide shows the first part of this
//! file (`bridge_cudarc`).

use cuda_safe::{Context, DeviceBuffer, Stream};
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DeviceRepr};
use std::sync::Arc;

/// Returns cudarc's stream as a stream of this library. It must not be the default stream.
fn ours(stream: &Arc<CudaStream>) -> cuda_safe::Result<Stream> {
    let (raw, owner) = (stream.context().cu_ctx(), Arc::clone(stream));
    // SAFETY: the stream owns its context, which is not that of a green context.
    let context = unsafe { Context::from_foreign(raw.cast(), owner) }?;
    // SAFETY: the stream belongs to this context, and is alive as long as its owner.
    unsafe { Stream::from_foreign(stream.cu_stream().cast(), &context, Arc::clone(stream)) }
}

/// Passes the ownership of a slice to a buffer, on the slice's stream. The context must support
/// stream-ordered memory (`has_async_alloc`).
fn into_ours<T: DeviceRepr>(slice: CudaSlice<T>) -> cuda_safe::Result<DeviceBuffer<T>> {
    assert!(slice.context().has_async_alloc());
    let (stream, len) = (ours(slice.stream())?, slice.len());
    // SAFETY: the memory is stream-ordered and no longer owned. `leak` orders its uses before later work on its
    // stream.
    unsafe { DeviceBuffer::from_raw(slice.leak(), len, &stream) }
}

/// Returns a stream of this library as cudarc's.
///
/// # Safety
/// `stream` belongs to `context`, and outlives the result and all slices that are bound to it.
unsafe fn theirs(stream: &Stream, context: &Arc<CudaContext>) -> Arc<CudaStream> {
    // SAFETY: the caller guarantees it.
    unsafe { context.wrap_borrowed_stream(stream.as_raw().cast()) }
}

/// Passes the ownership of a buffer to a slice, on the buffer's stream.
///
/// # Safety
/// The buffer owns stream-ordered memory without a memory manager. `stream` is its stream, as [`theirs`] returns it.
unsafe fn into_theirs<T>(buffer: DeviceBuffer<T>, stream: &Arc<CudaStream>) -> CudaSlice<T> {
    let len = buffer.len();
    let (address, _) = buffer.into_raw();
    // SAFETY: the memory has `len` elements, is no longer owned, and was only used on this stream.
    unsafe { stream.upgrade_device_ptr(address, len) }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cudarc = CudaContext::new(0)?;
    // cudarc begins, and this library continues on the same stream.
    let stream = cudarc.new_stream()?;
    let slice = stream.clone_htod(&[1u32, 2, 3])?;
    let mut buffer = into_ours(slice)?;
    buffer.slice_mut(..1)?.zero()?;
    assert_eq!(buffer.to_vec()?, [0, 2, 3]);
    drop(buffer);

    // This library begins, and cudarc continues.
    let context = Context::primary(&cuda_safe::Device::get(0)?)?;
    let stream = context.stream()?;
    let buffer = DeviceBuffer::from_slice(&stream, &[4u32, 5, 6])?;
    {
        // SAFETY: both have the primary context. The stream is dropped after this block.
        let wrapped = unsafe { theirs(&stream, &cudarc) };
        // SAFETY: no memory manager is set, and the buffer is bound to this stream.
        let slice = unsafe { into_theirs(buffer, &wrapped) };
        assert_eq!(wrapped.clone_dtoh(&slice)?, [4, 5, 6]);
    }
    stream.synchronize()?;
    println!("cudarc and this library have exchanged streams and memory");
    Ok(())
}
