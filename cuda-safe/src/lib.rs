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
//! # Which calls block the host
//!
//! The first lines of each copy say whether it blocks the host. Copies that are *enqueued* do not
//! wait for the work: [`copy_from`](DeviceBuffer::copy_from) between buffers, and
//! [`copy_from_pinned`](DeviceBuffer::copy_from_pinned) and
//! [`copy_to_pinned`](DeviceBuffer::copy_to_pinned) for pinned memory. Copies of ordinary slices
//! block until all earlier work on the stream has completed:
//! [`from_slice`](DeviceBuffer::from_slice), [`copy_from_slice`](DeviceBuffer::copy_from_slice),
//! [`copy_to_slice`](DeviceBuffer::copy_to_slice) and [`to_vec`](DeviceBuffer::to_vec).
//!
//! Functions called `synchronize` block the host until work has completed. `is_complete` returns at
//! once, and [`Stream::completion`] returns a future. `wait_event` makes a stream wait, not the host.
//!
//! Some drops block, and a drop that is not possible at once is deferred to a later call, which may
//! then block too. Every call that enqueues work can block while the driver's queue is full, and while
//! another thread frees synchronous or pinned memory or loads a module: [`reference::releases`].
//!
//! # Errors
//!
//! An [`Error`] names the driver function that failed, the argument that was rejected, the limit
//! that a launch exceeds, or the CUDA version that is required. Nothing panics because of the
//! driver, its absence or its version.
//! One `?` converts each error to the error type of a library that implements `From<Error>`.
//! Functions that take ownership of a value drop it if they fail; those whose value cannot be obtained
//! again have a `try_` variant, which returns it in a [`Rejected`].
//!
//! # Raw handles
//!
//! [`sys`] has every function of the driver API, including those without a safe wrapper
//! (COVERAGE.md in the repository lists them). `as_raw` returns the handle of an object, and
//! `into_raw` releases ownership of it. Many types can be made from a handle that other code
//! created: `from_raw` takes ownership, `borrow_raw` never destroys the handle, and `from_foreign`
//! keeps its owner alive. [`reference::raw_handles`] lists the types.
//!
//! # Reference
//!
//! | module | contents |
//! |---|---|
//! | [`reference::releases`] | what each type waits for when it is dropped; deferred releases |
//! | [`reference::devices`] | what works between objects of different devices |
//! | [`reference::threads`] | which types are `Send` and `Sync` |
//! | [`reference::raw_handles`] | how objects are created from raw handles, and converted to them |
//! | [`reference::driver_bugs`] | bugs of NVIDIA's driver, and how to avoid them |
//!
//! # Non-goals
//!
//! This crate has no kernel compiler: kernels come from nvcc, NVRTC (the crate `cuda-nvrtc`) or Rust for
//! `nvptx64`, as PTX, cubin or fatbin images. It is not an array library, and it does not wrap the runtime API.

pub mod array;
mod base;
mod driver;
pub mod graph;
pub mod green;
pub mod interop;
pub mod manager;
mod memory;
#[cfg(doctest)]
mod must_not_compile;
pub mod reference;
pub mod tensor_map;
pub mod virtual_memory;

pub use base::call::check;
pub use base::error::{
    CompileError, DriverError, Error, LaunchError, LaunchLimit, OutOfMemory, Rejected, Result,
};
#[cfg(feature = "explore")]
pub use base::explore;
pub use base::init::{init, version};
pub use base::invalid::Invalid;
pub use base::release::{attempt_deferred_releases, deferred_releases};
pub use base::report::{Report, leaked, set_report_hook};
pub use bytemuck;
pub use cuda_sys as sys;
pub use cuda_sys::{CUresult, CudaVersion};
pub use driver::context::{
    CachePreference, Context, ContextFlags, CurrentContext, GraphicsClient, Limit, MemoryInfo,
    PrimaryState, RdmaScope,
};
pub use driver::device::{Device, FabricClique, FabricCliqueKind, Uuid, attribute};
pub use driver::event::{Event, EventIpcHandle, EventOptions};
pub use driver::graph::{ExecutableGraph, Graph, GraphRecorder};
pub use driver::launch::{
    AccessPolicyWindow, Argument, Arguments, KernelValue, LaunchArgument, LaunchAttributes,
    LaunchBuilder, LaunchConfig, MemoryDomainMap, Param, Params, ProgrammaticEvent, TypedKernel,
    Value,
};
pub use driver::module::attribute as kernel_attribute;
pub use driver::module::{
    Global, JitOptions, Kernel, Library, LinkInput, Linked, Linker, LoadingMode, Module,
    OccupancyOptions, Parameter, SuggestedBlock,
};
pub use driver::stream::{
    AccessProperty, AccessWindow, AtomicReduction, BarrierScope, Capture, CaptureMode,
    CaptureStatus, DefaultStream, GraphicsCapture, GraphicsCommands, MemoryOperation,
    MemorySyncDomain, MemorySyncDomainMap, Stream, StreamFuture, StreamOptions,
    SynchronizationPolicy, WaitCondition, WeakStream,
};
pub use driver::{checkpoint, coredump, device, logs, profiler};
#[cfg(target_os = "linux")]
pub use memory::DmaBufOptions;
pub use memory::{
    Advice, CompressionFormat, CopyAttributes, CopyBatch, CopyScope, DecompressBatch, DeviceBuffer,
    DeviceChunksExact, DeviceChunksExactMut, DeviceSlice, DeviceSliceMut, Extent, GraphAllocation,
    GraphBuffer, GraphPinned, ImportedPool, ManagedBuffer, ManagedRange, MappedBuffer,
    MemoryAccess, MemoryLocation, MemoryPool, MemoryPoolOptions, MemoryType, PeerReader, Pending,
    Pinned, PinnedBuffer, PinnedFlags, PinnedOptions, PinnedRange, PitchedBuffer, PointerInfo,
    RangeInfo, Region, RegisterOptions, SharedBuffer, SharedReader, SourceOrder, pool,
};
