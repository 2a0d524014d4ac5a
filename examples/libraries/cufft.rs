//! cuFFT on a stream, without a toolkit at build time. The guide shows this file (`bridge_cuda_libraries`).

use cuda_safe::sys::{CUdeviceptr, CUstream, Library, LibrarySearch, SymbolError, lazy_extern};
use cuda_safe::{DeviceBuffer, Stream};
use std::error::Error;

// SAFETY: the initializers of cuFFT have no requirements.
pub(crate) static CUFFT: Library = unsafe {
    Library::with_search(|| {
        let (variable, packages) = ("CUFFT_LIBRARY", &["nvidia/cu13", "nvidia/cufft"]);
        let files = &["libcufft.so.12", "libcufft.so.11", "libcufft.so"];
        LibrarySearch { variable, files, packages }.candidates()
    })
};
lazy_extern! {
    // SAFETY: these are the declarations of `cufft.h`. Device pointers are passed as addresses.
    unsafe extern "C" in CUFFT {
        fn cufftPlan1d(plan: *mut i32, len: i32, kind: i32, batch: i32) -> i32;
        fn cufftSetStream(plan: i32, stream: CUstream) -> i32;
        fn cufftExecC2C(plan: i32, from: CUdeviceptr, to: CUdeviceptr, direction: i32) -> i32;
        fn cufftDestroy(plan: i32) -> i32;
    }
}
/// Returns an error if the library or the function is missing, or if the status is not 0.
fn check(status: Result<i32, SymbolError>) -> Result<(), Box<dyn Error>> {
    let status = status?;
    (status == 0).then_some(()).ok_or_else(|| format!("cuFFT returned the status {status}").into())
}

/// A plan of cuFFT for the transform of `len` complex numbers, whose work runs on one stream.
pub(crate) struct Transform {
    plan: i32,
    len: usize,
    stream: Stream,
}

impl Transform {
    pub(crate) fn new(stream: &Stream, len: usize) -> Result<Self, Box<dyn Error>> {
        let (mut plan, count, c2c) = (0, len.try_into()?, 0x29);
        stream.context().with_current(|_| {
            // SAFETY: the pointer refers to a variable, and a context is current.
            check(unsafe { cufftPlan1d(&raw mut plan, count, c2c, 1) })?;
            let transform = Self { plan, len, stream: stream.clone() };
            // SAFETY: the plan is alive. The stream outlives it.
            check(unsafe { cufftSetStream(plan, stream.as_raw()) }).map(|()| transform)
        })?
    }

    /// Enqueues the transform of `data` in place. The inverse is not divided by the length.
    ///
    /// # Safety
    /// If the stream is captured, the plan and the buffer outlive the graph and its launches.
    pub(crate) unsafe fn run(
        &mut self,
        data: &mut DeviceBuffer<[f32; 2]>,
        inverse: bool,
    ) -> Result<(), Box<dyn Error>> {
        let (address, direction) = (data.as_raw(), if inverse { 1 } else { -1 });
        if data.len() != self.len || data.stream() != &self.stream || address % 8 != 0 {
            return Err("the data does not fit the plan, or is bound to another stream".into());
        }
        // SAFETY: the data has the size of the plan. It is freed on this stream, after the work.
        check(
            self.stream.context().with_current(|_| unsafe {
                cufftExecC2C(self.plan, address, address, direction)
            })?,
        )
    }
}

impl Drop for Transform {
    fn drop(&mut self) {
        // The plan owns memory that its work uses. If the wait fails, it is leaked.
        if self.stream.synchronize().is_ok() {
            // SAFETY: the plan is alive, its work is complete, and it is not used again.
            let _ = self.stream.context().with_current(|_| unsafe { cufftDestroy(self.plan) });
        }
    }
}
