//! The wrappers of `examples/libraries` with functions that play cuBLAS and cuFFT. They fail without a current
//! context, and work on the stream that they were given.

use crate::libraries::{self, cublas::CUBLAS, cufft::CUFFT};
use crate::prelude::*;
use crate::software::misuses::succeeds;
use cuda_safe::sys::{CUcontext, CUdeviceptr, CUstream};
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

const NOT_INITIALIZED: i32 = 1;

/// The stream of the one handle, which is 1 while the handle exists.
static STREAM: AtomicUsize = AtomicUsize::new(0);
static HANDLE: AtomicUsize = AtomicUsize::new(0);

fn has_context() -> bool {
    let mut current: CUcontext = null_mut();
    // SAFETY: the pointer refers to a local variable.
    succeeds(unsafe { cuCtxGetCurrent(&raw mut current) });
    !current.is_null()
}

fn create() -> i32 {
    assert_eq!(HANDLE.swap(1, SeqCst), 0, "one handle at a time");
    if has_context() { 0 } else { NOT_INITIALIZED }
}

fn destroy() -> i32 {
    assert_eq!(HANDLE.swap(0, SeqCst), 1, "the handle exists");
    if has_context() { 0 } else { NOT_INITIALIZED }
}

fn set_stream(stream: CUstream) -> i32 {
    STREAM.store(stream.expose_provenance(), SeqCst);
    0
}

/// Replaces `target` by what `compute` returns for the values of `sources`, on the stream of the handle.
fn enqueue(
    sources: &[(CUdeviceptr, i32)],
    target: CUdeviceptr,
    compute: impl Fn(&[Vec<f32>]) -> Vec<f32>,
) -> i32 {
    if !has_context() {
        return NOT_INITIALIZED;
    }
    let stream: CUstream = std::ptr::with_exposed_provenance_mut(STREAM.load(SeqCst));
    let read = |&(from, len): &(CUdeviceptr, i32)| {
        let mut values = vec![0f32; len as usize];
        let to = values.as_mut_ptr().cast();
        // SAFETY: both sides have `len` values. The next call waits.
        succeeds(unsafe { cuMemcpyDtoHAsync_v2(to, from, size_of_val(&*values), stream) });
        // SAFETY: the stream is alive.
        succeeds(unsafe { cuStreamSynchronize(stream) });
        values
    };
    let values = compute(&sources.iter().map(read).collect::<Vec<_>>());
    // SAFETY: both sides have these values. The next call waits.
    succeeds(unsafe {
        cuMemcpyHtoDAsync_v2(target, values.as_ptr().cast(), size_of_val(&*values), stream)
    });
    // SAFETY: the stream is alive.
    succeeds(unsafe { cuStreamSynchronize(stream) });
    0
}

unsafe extern "C" fn cublas_create(handle: *mut *mut c_void) -> i32 {
    // SAFETY: the caller passes a pointer to a variable.
    unsafe { handle.write(null_mut()) };
    create()
}

extern "C" fn cublas_set_stream(_: *mut c_void, stream: CUstream) -> i32 {
    set_stream(stream)
}

extern "C" fn cublas_destroy(_: *mut c_void) -> i32 {
    destroy()
}

/// The product of matrices that are stored by columns.
extern "C" fn sgemm(
    _: *mut c_void,
    op_a: i32,
    op_b: i32,
    m: i32,
    n: i32,
    k: i32,
    alpha: &f32,
    a: CUdeviceptr,
    lda: i32,
    b: CUdeviceptr,
    ldb: i32,
    beta: &f32,
    c: CUdeviceptr,
    ldc: i32,
) -> i32 {
    assert_eq!((op_a, op_b, *alpha, *beta), (0, 0, 1.0, 0.0));
    assert_eq!((lda, ldb, ldc), (m, k, m));
    enqueue(&[(a, m * k), (b, k * n)], c, |sources| {
        let [a, b] = sources else { unreachable!("two sources") };
        let term = |row, column, i| a[(i * m + row) as usize] * b[(column * k + i) as usize];
        let sum = |row, column| (0..k).map(|i| term(row, column, i)).sum();
        (0..n)
            .flat_map(|column| (0..m).map(move |row| (row, column)))
            .map(|(row, column)| sum(row, column))
            .collect()
    })
}

unsafe extern "C" fn plan_1d(plan: *mut i32, len: i32, kind: i32, batch: i32) -> i32 {
    assert_eq!((len, kind, batch), (4, 0x29, 1));
    // SAFETY: the caller passes a pointer to a variable.
    unsafe { plan.write(5) };
    create()
}

extern "C" fn cufft_set_stream(plan: i32, stream: CUstream) -> i32 {
    assert_eq!(plan, 5);
    set_stream(stream)
}

/// The transform of four complex numbers.
extern "C" fn exec_c2c(plan: i32, from: CUdeviceptr, to: CUdeviceptr, direction: i32) -> i32 {
    assert_eq!(plan, 5);
    enqueue(&[(from, 8)], to, |sources| {
        let bin = |k: usize| {
            let terms = sources[0].chunks(2).enumerate().map(|(n, value)| {
                let angle = direction as f32 * std::f32::consts::FRAC_PI_2 * (k * n) as f32;
                let (sin, cos) = angle.sin_cos();
                [value[0] * cos - value[1] * sin, value[0] * sin + value[1] * cos]
            });
            terms.fold([0.0; 2], |sum, term| [sum[0] + term[0], sum[1] + term[1]])
        };
        (0..4).flat_map(bin).collect()
    })
}

extern "C" fn cufft_destroy(plan: i32) -> i32 {
    assert_eq!(plan, 5);
    destroy()
}

fn find(name: &CStr) -> *const c_void {
    match name.to_bytes() {
        b"cublasCreate_v2" => cublas_create as *const c_void,
        b"cublasSetStream_v2" => cublas_set_stream as *const c_void,
        b"cublasDestroy_v2" => cublas_destroy as *const c_void,
        b"cublasSgemm_v2" => sgemm as *const c_void,
        b"cufftPlan1d" => plan_1d as *const c_void,
        b"cufftSetStream" => cufft_set_stream as *const c_void,
        b"cufftExecC2C" => exec_c2c as *const c_void,
        b"cufftDestroy" => cufft_destroy as *const c_void,
        _ => null(),
    }
}

#[test]
fn cublas_works_on_its_stream_in_its_context_and_is_destroyed() {
    let (_end, context, stream) = in_child!(on_stream());
    // SAFETY: the functions have the signatures that the wrapper declares.
    unsafe { CUBLAS.install(find) }.expect("not in use");
    let other = context.stream().expect("a stream");
    libraries::products_are_ordered_with_the_work_of_the_stream(&stream, &other);
    assert_eq!(STREAM.load(SeqCst), stream.as_raw().addr());
    assert_eq!(HANDLE.load(SeqCst), 0);
}

#[test]
fn cufft_works_on_its_stream_in_its_context_and_is_destroyed() {
    let (_end, context, stream) = in_child!(on_stream());
    // SAFETY: the functions have the signatures that the wrapper declares.
    unsafe { CUFFT.install(find) }.expect("not in use");
    let other = context.stream().expect("a stream");
    libraries::transforms_are_ordered_with_the_work_of_the_stream(&stream, &other);
    assert_eq!(STREAM.load(SeqCst), stream.as_raw().addr());
    assert_eq!(HANDLE.load(SeqCst), 0);
}
