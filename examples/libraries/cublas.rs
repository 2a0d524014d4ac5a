//! cuBLAS on a stream, without a toolkit at build time. The guide shows this file (`bridge_cuda_libraries`).

use cuda_safe::sys::{CUdeviceptr, CUstream, Library, LibrarySearch, SymbolError, lazy_extern};
use cuda_safe::{DeviceBuffer, Stream};
use std::{error::Error, ffi::c_void, ptr::null_mut};

// SAFETY: the initializers of cuBLAS have no requirements.
pub(crate) static CUBLAS: Library = unsafe {
    Library::with_search(|| {
        let (variable, packages) = ("CUBLAS_LIBRARY", &["nvidia/cu13", "nvidia/cublas"]);
        let files = &["libcublas.so.13", "libcublas.so.12", "libcublas.so"];
        LibrarySearch { variable, files, packages }.candidates()
    })
};
type Handle = *mut c_void;
lazy_extern! {
    // SAFETY: these are the declarations of `cublas_v2.h`. Device pointers are passed as addresses.
    unsafe extern "C" in CUBLAS {
        fn cublasCreate_v2(handle: *mut Handle) -> i32;
        fn cublasSetStream_v2(handle: Handle, stream: CUstream) -> i32;
        fn cublasDestroy_v2(handle: Handle) -> i32;
        fn cublasSgemm_v2(handle: Handle, op_a: i32, op_b: i32, m: i32, n: i32, k: i32, alpha: &f32, a: CUdeviceptr,
            lda: i32, b: CUdeviceptr, ldb: i32, beta: &f32, c: CUdeviceptr, ldc: i32) -> i32;
    }
}
/// Returns an error if the library or the function is missing, or if the status is not 0.
fn check(status: Result<i32, SymbolError>) -> Result<(), Box<dyn Error>> {
    let status = status?;
    (status == 0).then_some(()).ok_or_else(|| format!("cuBLAS returned the status {status}").into())
}

/// A handle of cuBLAS, whose work runs on one stream.
pub(crate) struct Blas(Handle, Stream);
// SAFETY: a handle may be used on any thread, by one thread at a time. Each method borrows it mutably.
unsafe impl Send for Blas {}

impl Blas {
    pub(crate) fn new(stream: &Stream) -> Result<Self, Box<dyn Error>> {
        stream.context().with_current(|_| {
            let mut handle = null_mut();
            // SAFETY: the pointer refers to a variable, and a context is current.
            check(unsafe { cublasCreate_v2(&raw mut handle) })?;
            let blas = Self(handle, stream.clone());
            // SAFETY: the handle is alive. The stream outlives it.
            check(unsafe { cublasSetStream_v2(handle, stream.as_raw()) }).map(|()| blas)
        })?
    }

    /// Enqueues `c = a · b`, row by row: `a` has `m` rows of `k` elements, and `b` has `k` rows of `n`.
    ///
    /// # Safety
    /// If the stream is captured, the handle and the matrices outlive the graph and its launches.
    pub(crate) unsafe fn multiply(
        &mut self,
        [m, n, k]: [usize; 3],
        [a, b]: [&DeviceBuffer<f32>; 2],
        c: &mut DeviceBuffer<f32>,
    ) -> Result<(), Box<dyn Error>> {
        for (matrix, rows, columns) in [(a, m, k), (b, k, n), (&*c, m, n)] {
            if Some(matrix.len()) != rows.checked_mul(columns) || matrix.stream() != &self.1 {
                return Err("a matrix has another size, or is bound to another stream".into());
            }
        }
        let [m, n, k] = [m.try_into()?, n.try_into()?, k.try_into()?];
        let (a, b, c) = (a.as_raw(), b.as_raw(), c.as_raw());
        // cuBLAS stores columns, so this computes the transposed product: `b` comes first.
        // SAFETY: the matrices have these sizes. They are freed on this stream, after the work.
        check(self.1.context().with_current(|_| unsafe {
            cublasSgemm_v2(self.0, 0, 0, n, m, k, &1.0, b, n, a, k, &0.0, c, n)
        })?)
    }
}

impl Drop for Blas {
    fn drop(&mut self) {
        // The handle owns memory that its work uses. If the wait fails, it is leaked.
        if self.1.synchronize().is_ok() {
            // SAFETY: the handle is alive, its work is complete, and it is not used again.
            let _ = self.1.context().with_current(|_| unsafe { cublasDestroy_v2(self.0) });
        }
    }
}
