//! The guide: how to do common tasks, one chapter each.
//!
//! A chapter begins with what it enables you to do, shows one complete program, and then explains the
//! rules behind it and the errors that you may meet. Each chapter can be read alone. All programs run in
//! the tests of this crate, on the software driver `cuda-sim`. A bridge connects another library, and says
//! who owns what, what orders the work, and where its program runs.
//!
//! | chapter | read it to |
//! |---|---|
//! | [1 First kernel](chapter_01_first_kernel) | compile a kernel, launch it and read the result; a reduction |
//! | [2 Streams and events](chapter_02_streams) | overlap copies with kernels, order streams, measure time |
//! | [3 Memory](chapter_03_memory) | choose a buffer type |
//! | [4 Errors and drops](chapter_04_errors) | handle errors, and know when memory is released |
//! | [5 Threads and contexts](chapter_05_threads) | use a GPU from several threads, and beside other CUDA libraries |
//! | [6 Graphs](chapter_06_graphs) | record work once and launch it repeatedly |
//! | [7 Green contexts](chapter_07_green_contexts) | divide a GPU between two services |
//! | [8 Arrays of other libraries](chapter_08_arrays) | exchange arrays with PyTorch, CuPy, Numba and JAX |
//! | [9 One memory pool](chapter_09_memory_pool) | give all buffers of a process one allocator |
//! | [10 Testing](chapter_10_testing) | test without a GPU, inject failures, explore thread schedules |
//! | [11 Several GPUs](chapter_11_several_gpus) | divide work between GPUs, and copy between them |
//! | [12 Raw calls](chapter_12_raw_calls) | call any driver function beside the objects of this crate |
//! | [Moving from cudarc](moving_from_cudarc) | port a crate that uses `cudarc` |
//! | [Bridge: cuBLAS, cuFFT](bridge_cuda_libraries) | call NVIDIA's libraries on a stream of this crate |
//! | [Bridge: cudarc](bridge_cudarc) | use streams and memory of cudarc here, and those of this crate there |
//! | [Bridge: PyTorch's C++ API, tch](bridge_pytorch) | write an operation on tensors of PyTorch with this crate |
//! | [Bridge: ort](bridge_ort) | run a model of ONNX Runtime on a stream and memory of this crate |
//! | [Bridge: wgpu](bridge_wgpu) | share a buffer with `wgpu` |
//! | [Bridge: candle](bridge_candle) | write an operation of `candle` with this crate |
//! | [Names: C](names_c) | find the item for a function of the CUDA driver API |
//! | [Names: cudarc](names_cudarc) | find the item for one of `cudarc` |
//! | [Names: cust](names_cust) | find the item for one of `cust` or `rustacuda` |
//!
//! The [first page](crate) of the crate has the three rules that the chapters build on. The tables in
//! [`reference`](crate::reference) have the details.

/// Chapter 1: compile a kernel, launch it, and read the result.
///
#[doc = include_str!("_guide/01_first_kernel.md")]
pub mod chapter_01_first_kernel {}

/// Chapter 2: overlap copies with kernels, order streams, and measure time.
///
#[doc = include_str!("_guide/pictures/streams.svg")]
///
#[doc = include_str!("_guide/02_streams.md")]
pub mod chapter_02_streams {}

/// Chapter 3: which buffer to use when.
///
#[doc = include_str!("_guide/03_memory.md")]
pub mod chapter_03_memory {}

/// Chapter 4: errors, drops, and deferred releases.
///
#[doc = include_str!("_guide/pictures/owners.svg")]
///
#[doc = include_str!("_guide/04_errors.md")]
pub mod chapter_04_errors {}

/// Chapter 5: threads, contexts, and other CUDA libraries in the process.
///
#[doc = include_str!("_guide/05_threads.md")]
pub mod chapter_05_threads {}

/// Chapter 6: record work once, launch it repeatedly.
///
#[doc = include_str!("_guide/pictures/graph.svg")]
///
#[doc = include_str!("_guide/06_graphs.md")]
pub mod chapter_06_graphs {}

/// Chapter 7: partition a GPU with green contexts.
///
#[doc = include_str!("_guide/pictures/partitions.svg")]
///
#[doc = include_str!("_guide/07_green_contexts.md")]
pub mod chapter_07_green_contexts {}

/// Chapter 8: arrays of PyTorch, CuPy, Numba, JAX and other libraries.
///
#[doc = include_str!("_guide/08_arrays.md")]
pub mod chapter_08_arrays {}

/// Chapter 9: one memory pool for a whole process.
///
#[doc = include_str!("_guide/09_memory_pool.md")]
pub mod chapter_09_memory_pool {}

/// Chapter 10: tests without a GPU, with injected failures and explored schedules.
///
#[doc = include_str!("_guide/10_testing.md")]
pub mod chapter_10_testing {}

/// Chapter 11: several GPUs.
///
#[doc = include_str!("_guide/11_several_gpus.md")]
pub mod chapter_11_several_gpus {}

/// Chapter 12: raw driver calls beside the objects of this crate.
///
#[doc = include_str!("_guide/12_raw_calls.md")]
pub mod chapter_12_raw_calls {}

/// Moving a crate from `cudarc` to this one.
///
#[doc = include_str!("_guide/moving_from_cudarc.md")]
pub mod moving_from_cudarc {}

/// A bridge to cuBLAS and cuFFT.
///
#[doc = include_str!("_guide/bridges/cuda_libraries.md")]
pub mod bridge_cuda_libraries {}

/// A bridge to `cudarc`.
///
#[doc = include_str!("_guide/bridges/cudarc.md")]
pub mod bridge_cudarc {}

/// A bridge to PyTorch's C++ API and `tch`.
///
#[doc = include_str!("_guide/bridges/pytorch.md")]
pub mod bridge_pytorch {}

/// A bridge to `ort`, the bindings of ONNX Runtime.
///
#[doc = include_str!("_guide/bridges/ort.md")]
pub mod bridge_ort {}

/// A bridge to `wgpu`.
///
#[doc = include_str!("_guide/bridges/wgpu.md")]
pub mod bridge_wgpu {}

/// A bridge to `candle`.
///
#[doc = include_str!("_guide/bridges/candle.md")]
pub mod bridge_candle {}

/// Names: the functions of the CUDA driver API.
///
#[allow(clippy::doc_markdown, reason = "the reasons are written for COVERAGE.md too")]
#[doc = include_str!("_guide/names_c.md")]
pub mod names_c {}

/// Names: the items of `cudarc`.
///
#[doc = include_str!("_guide/names_cudarc.md")]
pub mod names_cudarc {}

/// Names: the items of `cust` and `rustacuda`.
///
#[doc = include_str!("_guide/names_cust.md")]
pub mod names_cust {}
