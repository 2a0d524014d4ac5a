//! The C functions of the example `torch_extension`, called as PyTorch calls them: with memory, a stream and a tensor that
//! other code owns.

#[allow(unreachable_pub, reason = "the functions are exported in the example only")]
#[path = "../torch_extension/lib.rs"]
mod extension;

use cuda_safe::interop::Layout;
use cuda_safe::interop::dlpack::{DataType, Export, ManagedTensor, MemoryKind};
use cuda_safe::sys::{
    CUdeviceptr, CUresult, CUstream, cuMemAlloc_v2, cuMemFree_v2, cuMemcpyDtoHAsync_v2,
    cuMemsetD32Async, cuStreamSynchronize,
};
use cuda_safe::{Context, Device};
use extension::{extension_close, extension_open, extension_scale};
use std::ptr::null_mut;

const LEN: usize = 6;

#[track_caller]
fn check(result: CUresult) {
    assert_eq!(result, CUresult::CUDA_SUCCESS);
}

/// Memory of the caching allocator of PyTorch.
struct Memory(CUdeviceptr);

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the memory is not freed elsewhere.
        check(unsafe { cuMemFree_v2(self.0) });
    }
}

/// Fills a tensor on `stream`, passes it to the library, and reads the result on `stream`.
fn scale_on(extension: *mut extension::Extension, stream: CUstream) -> [i32; LEN] {
    let mut memory = Memory(0);
    // SAFETY: the pointer refers to a variable, and a context is current.
    check(unsafe { cuMemAlloc_v2(&mut memory.0, 4 * LEN) });
    // SAFETY: the memory has this length.
    check(unsafe { cuMemsetD32Async(memory.0, 7, LEN, stream) });

    let layout = Layout::c_contiguous(&[2, 3], 4).expect("a layout");
    let (ty, address) = (DataType::of::<i32>(), memory.0);
    // PyTorch keeps the memory until it is used again on the same stream.
    let input = Export::new(ty, layout, address, MemoryKind::Device, 0, ()).expect("a tensor");
    let input = input.into_raw().expect("a tensor that can be written");
    // SAFETY: the extension is open, and the work on the tensor is on this stream.
    let output = unsafe { extension_scale(extension, input.as_ptr(), stream, 3) };
    assert!(!output.is_null());
    // The allocator uses the memory again.
    // SAFETY: the memory has this length.
    check(unsafe { cuMemsetD32Async(memory.0, 8, LEN, stream) });

    // SAFETY: no other code has the pointer.
    let output = unsafe { ManagedTensor::from_raw(output) }.expect("a tensor");
    assert_eq!((output.dtype(), output.layout().shape(), output.device()), (ty, &[LEN][..], 0));
    let mut values = [0; LEN];
    let (to, from) = (values.as_mut_ptr().cast(), output.address());
    // SAFETY: both sides have this size, and the copy is complete after the wait.
    check(unsafe { cuMemcpyDtoHAsync_v2(to, from, 4 * LEN, stream) });
    // The deleter orders the end of the memory after this work.
    drop(output);
    // SAFETY: the stream is alive.
    check(unsafe { cuStreamSynchronize(stream) });
    values
}

#[test]
fn work_is_ordered_with_a_stream_of_pytorch_and_with_its_default_stream() {
    let profile = cuda_sim::Profile::h200().with_race_detection();
    cuda_sim::install(profile).expect("nothing was called before");
    {
        let context = Context::primary(&Device::get(0).expect("a device")).expect("a context");
        let pool = context.stream().expect("a stream");
        let extension = extension_open(0);
        assert!(!extension.is_null());
        let _current = context.make_current().expect("a current context");
        for stream in [null_mut(), pool.as_raw()] {
            assert_eq!(scale_on(extension, stream), [21; LEN]);
        }
        // An error of the library is a null pointer. The tensor is released.
        // SAFETY: the extension is open.
        let refused = unsafe { extension_scale(extension, null_mut(), null_mut(), 3) };
        assert!(refused.is_null());
        // SAFETY: it is not used again.
        unsafe { extension_close(extension) };
    }
    assert!(cuda_sim::misuses().is_empty(), "{:?}", cuda_sim::misuses());
    assert_eq!(cuda_sim::alive(), cuda_sim::Alive::default());
}
