//! An operation on tensors of PyTorch's C++ API: a library of three C functions, which `scale.cpp` in this folder calls.
//! The guide shows both files (`bridge_pytorch`).

use cuda_safe::interop::StreamSync;
use cuda_safe::interop::dlpack::ManagedTensor;
use cuda_safe::interop::dlpack::raw::DLManagedTensor;
use cuda_safe::sys::CUstream;
use cuda_safe::{
    Context, Device, DeviceBuffer, LaunchConfig, Module, Stream, StreamOptions, TypedKernel,
};
use std::error::Error;
use std::ptr::{NonNull, null_mut};

/// The objects that the operation needs on one device. Opaque to C.
#[derive(Debug)]
pub struct Extension {
    /// A blocking stream: it and the default stream of PyTorch wait for each other.
    blocking: Stream,
    /// Computes `x[i] = x[i] * factor + offset`.
    scale: TypedKernel<(&'static mut [i32], i32, i32, u32)>,
}

impl Extension {
    fn open(device: u32) -> Result<Self, Box<dyn Error>> {
        let context = Context::primary(&Device::get(device)?)?;
        let options = StreamOptions { blocking: true, ..Default::default() };
        let kernels = include_str!("../../tests/kernels/vector.ptx");
        let scale = Module::from_ptx(&context, kernels)?.kernel("scale")?.typed()?;
        Ok(Self { blocking: context.stream_with(options)?, scale })
    }

    /// Returns the stream for an operation whose caller works on the stream `raw`.
    ///
    /// # Safety
    /// `raw` is null or a stream of the primary context that is never destroyed.
    unsafe fn stream(&self, raw: CUstream) -> cuda_safe::Result<Stream> {
        if raw.is_null() {
            return Ok(self.blocking.clone());
        }
        // SAFETY: the stream is one of this context and outlives every owner, as the caller guarantees.
        unsafe { Stream::from_foreign(raw, self.blocking.context(), ()) }
    }

    /// Multiplies a tensor by a factor. The result is a new tensor with one dimension.
    ///
    /// # Safety
    /// The work on the tensor is ordered before later work on `raw`, and `raw` is a stream as in [`stream`](Self::stream).
    unsafe fn scale(
        &self,
        tensor: ManagedTensor,
        raw: CUstream,
        factor: i32,
    ) -> Result<NonNull<DLManagedTensor>, Box<dyn Error>> {
        // SAFETY: the caller guarantees it.
        let stream = unsafe { self.stream(raw) }?;
        // SAFETY: the memory is only read, on this stream. PyTorch reuses it after the work of the caller's stream.
        let input = unsafe { tensor.import::<i32>(&stream, StreamSync::Ignore) }?;
        let mut output = DeviceBuffer::uninit(&stream, input.len())?;
        output.copy_from(&input)?;
        if !output.is_empty() {
            let config = LaunchConfig::for_elements(output.len(), 256)?;
            let len = u32::try_from(output.len())?;
            // SAFETY: the kernel accesses the first `len` elements of the buffer.
            unsafe { self.scale.launch(&stream, config, (&mut output, factor, 0, len)) }?;
        }
        Ok(output.into_dlpack()?.into_raw()?)
    }
}

/// Returns null for an error, after printing it.
fn pointer<T>(result: Result<NonNull<T>, Box<dyn Error>>) -> *mut T {
    result.map_or_else(
        |error| {
            eprintln!("torch_extension: {error}");
            null_mut()
        },
        NonNull::as_ptr,
    )
}

/// Prepares the operation for a device. Returns null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn extension_open(device: u32) -> *mut Extension {
    pointer(Extension::open(device).map(|its| NonNull::from(Box::leak(Box::new(its)))))
}

/// Returns a new tensor with the elements of `tensor` multiplied by `factor`, or null on failure. Takes ownership of
/// `tensor`.
///
/// # Safety
/// `extension` was returned by [`extension_open`] and is not closed. `tensor` is null or a tensor of DLPack that the
/// caller owns. `stream` is the caller's current stream: the work on the tensor is ordered before later work on it, and
/// it is null, for the default stream, or a stream of the primary context that is never destroyed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extension_scale(
    extension: *const Extension,
    tensor: *mut DLManagedTensor,
    stream: CUstream,
    factor: i32,
) -> *mut DLManagedTensor {
    // SAFETY: the caller guarantees that it is alive.
    let extension = unsafe { &*extension };
    // SAFETY: the caller passes the ownership. The deleter of PyTorch may be called on any thread, and takes no lock that
    // is held during a call of this library.
    let result = unsafe { ManagedTensor::from_raw(tensor) };
    let result = result.map_err(Into::into);
    // SAFETY: the caller guarantees both.
    pointer(result.and_then(|tensor| unsafe { extension.scale(tensor, stream, factor) }))
}

/// Releases an extension.
///
/// # Safety
/// `extension` was returned by [`extension_open`] and is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extension_close(extension: *mut Extension) {
    // SAFETY: the pointer is that of a box, and the caller passes the ownership.
    drop(unsafe { Box::from_raw(extension) });
}
