//! The CUDA driver API for Rust: contexts, streams, memory, kernels, graphs and green contexts, as
//! objects that release themselves.
//!
//! # A kernel launch
//!
//! ```no_run
//! use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module};
//!
//! # let ptx = "";
//! let context = Context::primary(&Device::get(0)?)?;
//! let stream = context.stream()?;
//! // `ptx` has a kernel `add(const float *a, const float *b, float *sum, unsigned n)`.
//! let add = Module::from_ptx(&context, ptx)?
//!     .kernel("add")?
//!     .typed::<(&[f32], &[f32], &mut [f32], u32)>()?;
//!
//! let a = DeviceBuffer::from_slice(&stream, &[1.0f32; 1000])?;
//! let b = DeviceBuffer::from_slice(&stream, &[2.0f32; 1000])?;
//! let mut sum = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
//! let config = LaunchConfig::for_elements(1000, 256)?;
//! // SAFETY: `add` reads the first 1000 elements of `a` and `b`, writes those of `sum`, and accesses no
//! // other memory.
//! unsafe { add.launch(&stream, config, (&a, &b, &mut sum, 1000)) }?;
//! assert_eq!(sum.to_vec()?, [3.0; 1000]);
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! # A green context
//!
//! ```no_run
//! use cuda_safe::green::{GreenContext, SmResource, SplitByCount};
//! use cuda_safe::Device;
//!
//! // Splits the GPU into two partitions that share no multiprocessor (SM).
//! let device = Device::get(0)?;
//! let split = SmResource::of_device(&device)?.split_by_count(SplitByCount {
//!     min: 32,
//!     max_groups: Some(2),
//!     ..Default::default()
//! })?;
//! for group in split.groups {
//!     let partition = GreenContext::new([group])?;
//!     // Work on this stream runs on the SMs of the partition.
//!     let stream = partition.stream()?;
//!     println!("{} SMs, stream {stream:?}", partition.sm_count());
//! }
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! # Three rules
//!
//! 1. **Objects keep their parents alive.** They may be dropped in any order, on any thread, with
//!    any context current or none. `mem::forget` leaks an object and has no other effect.
//! 2. **The context stack belongs to the caller.** It is the same before and after every call, except
//!    for the functions that exist to change it ([`Context::make_current`],
//!    [`Context::bind_to_thread`]). A call that needs a current context makes its context current
//!    for the length of the call. A call that names a stream, an event or a buffer needs no current
//!    context, and is one driver call unless its documentation says otherwise.
//! 3. **A buffer is bound to a stream.** All safe work on the buffer runs on that stream, and the
//!    buffer is freed there, so a chain of operations needs neither waits nor events. Using it on
//!    another stream is an error; [`DeviceBuffer::rebind`] moves it there.
//!
//! # The guide
//!
//! [`_guide`] has a chapter for each task, with complete programs: the [first
//! kernel](_guide::chapter_01_first_kernel), [streams](_guide::chapter_02_streams), [which buffer
//! when](_guide::chapter_03_memory), [errors and drops](_guide::chapter_04_errors),
//! [threads](_guide::chapter_05_threads), [graphs](_guide::chapter_06_graphs), [green
//! contexts](_guide::chapter_07_green_contexts), [arrays of other libraries](_guide::chapter_08_arrays), [one
//! memory pool](_guide::chapter_09_memory_pool), [testing without a GPU](_guide::chapter_10_testing), [several
//! GPUs](_guide::chapter_11_several_gpus), [raw calls](_guide::chapter_12_raw_calls), and [moving from
//! cudarc](_guide::moving_from_cudarc). Its bridges connect other libraries: [cuBLAS and
//! cuFFT](_guide::bridge_cuda_libraries), [cudarc](_guide::bridge_cudarc), [PyTorch's C++ API and
//! tch](_guide::bridge_pytorch), [ort](_guide::bridge_ort), [wgpu](_guide::bridge_wgpu),
//! [candle](_guide::bridge_candle).
//!
//! # Features
//!
//! | feature | module |
//! |---|---|
//! | `array` | [`array`](mod@array): CUDA arrays, textures and surfaces |
//! | `external` | [`external`]: memory, semaphores and registered resources of other APIs |
//! | `graph` | [`graph`] and [`capture`] |
//! | `interop` | [`interop`]: the CUDA Array Interface and DLPack |
//! | `process` | [`process`]: the log of the driver, core dumps, checkpoints, the profiler |
//! | `tensor-map` | [`tensor_map`] |
//! | `virtual-memory` | [`virtual_memory`] |
//! | `serde` | descriptions of arrays are serializable |
//! | `tracing` | entries of the driver's log are events of `tracing` |
//!
//! All but `serde` and `tracing` are enabled by default. Without them the crate compiles in about half the time,
//! and has devices, contexts, streams, events, modules, launches, memory, memory managers and green contexts.
//!
//! # Reference
//!
//! | page | contents |
//! |---|---|
//! | [`reference::releases`] | which calls and drops block; deferred releases |
//! | [`reference::devices`] | what works between objects of different devices |
//! | [`reference::threads`] | which types are `Send` and `Sync` |
//! | [`reference::raw_handles`] | how objects are created from raw handles, and converted to them |
//! | [`reference::driver_bugs`] | bugs of NVIDIA's driver, and how to avoid them |
//! | [`Error`] | what failed, and the way out. Nothing panics because of the driver |
//! | [`sys`] | every function of the driver API, including those without a safe wrapper |
//!
//! # Non-goals
//!
//! This crate has no kernel compiler: kernels come from nvcc, NVRTC (the crate `cuda-nvrtc`) or Rust for
//! `nvptx64`, as PTX, cubin or fatbin images. It is not an array library, and it does not wrap the runtime API.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![cfg_attr(
    not(feature = "default"),
    allow(
        dead_code,
        unused_imports,
        reason = "the rooms with a feature use parts of the rooms below that nothing else uses"
    )
)]

#[cfg(feature = "default")]
pub mod _guide;
#[cfg(feature = "array")]
pub mod array;
mod call;
#[cfg(feature = "graph")]
pub mod capture;
mod capture_state;
pub mod context;
pub mod device;
pub mod event;
#[cfg(feature = "external")]
pub mod external;
#[cfg(feature = "graph")]
pub mod graph;
pub mod green;
#[cfg(feature = "interop")]
pub mod interop;
pub mod launch;
pub mod manager;
pub mod memory;
pub mod module;
#[cfg(doctest)]
#[cfg(feature = "default")]
mod must_not_compile;
#[cfg(feature = "process")]
pub mod process;
#[cfg(feature = "default")]
pub mod reference;
mod release;
pub mod stream;
mod sync;
#[cfg(feature = "tensor-map")]
pub mod tensor_map;
#[cfg(feature = "virtual-memory")]
pub mod virtual_memory;

pub use bytemuck;
pub use call::error;
pub use call::error::{Error, Result};
pub use call::function::check;
pub use call::init::{init, version};
pub use call::invalid::Invalid;
#[cfg(feature = "freed-hook")]
pub use call::report::set_freed_hook;
pub use call::report::{Report, leaked, set_report_hook};
pub use context::{Context, ContextFlags};
pub use cuda_sys as sys;
pub use cuda_sys::{CUresult, CudaVersion};
pub use device::Device;
pub use event::{Event, EventOptions};
#[cfg(feature = "graph")]
pub use graph::{ExecutableGraph, Graph};
pub use launch::{LaunchConfig, TypedKernel};
pub use memory::{DeviceBuffer, DeviceSlice, DeviceSliceMut, PinnedBuffer, SharedBuffer};
pub use module::{Kernel, Module};
pub use release::{attempt_deferred_releases, deferred_releases};
pub use stream::{Stream, StreamOptions};
#[cfg(feature = "explore")]
pub use sync::explore;
