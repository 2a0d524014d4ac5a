//! Kernel launches: the kernel, the launch configuration, the arguments and optional attributes.
//!
//! - [`TypedKernel::launch`] is for kernels whose parameter types are known at compile time.
//! - [`LaunchBuilder`] is for parameter types that are known only at run time, and for more than 24
//!   parameters.
//! - `sys::cuLaunchKernel` is for arrays of argument pointers that come from C. It checks nothing.

mod attributes;
mod builder;
mod limit;
pub(crate) mod occupancy;
mod packed;
mod params;

pub(crate) use attributes::List;
pub use attributes::{AccessPolicyWindow, LaunchAttributes, MemoryDomainMap, ProgrammaticEvent};
pub use builder::{LaunchArgument, LaunchBuilder};
pub use occupancy::{OccupancyOptions, SuggestedBlock};
pub use params::{Argument, Arguments, KernelValue, Param, Params, Value};
pub(crate) use params::{pointer, sealed, tuples};

use crate::call::{
    Answer, Error, Invalid, Outcome, Result, answer, debug_struct, under_current, without_current,
};
use crate::module::Kernel;
use crate::stream::{Stream, same_context};
use core::ffi::c_void;
use cuda_sys::CUresult;
use std::marker::PhantomData;

/// A launch configuration: the number of blocks, the threads per block, and the dynamic shared memory
/// per block.
///
/// Create one with [`LaunchConfig::linear`], [`LaunchConfig::for_elements`] or [`LaunchConfig::new`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LaunchConfig {
    /// The number of blocks in the grid along x, y and z.
    pub grid: [u32; 3],
    /// The number of threads in a block along x, y and z.
    pub block: [u32; 3],
    /// The dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// Returns a configuration without dynamic shared memory.
    #[inline]
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self { grid, block, shared_bytes: 0 }
    }

    /// Returns a one-dimensional configuration.
    #[inline]
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self::new([blocks, 1, 1], [threads, 1, 1])
    }

    /// Returns a one-dimensional configuration with one thread per element, in blocks of `threads`
    /// threads.
    ///
    /// The driver refuses a launch without blocks. Code for arrays of any length skips the launch of an
    /// empty one:
    ///
    /// ```no_run
    /// use cuda_safe::{DeviceBuffer, LaunchConfig, Result, TypedKernel};
    ///
    /// /// Doubles all elements of a buffer, which may be empty.
    /// fn double(
    ///     kernel: &TypedKernel<(&'static mut [f32], u32)>,
    ///     data: &mut DeviceBuffer<f32>,
    /// ) -> Result<()> {
    ///     let (stream, len) = (data.stream().clone(), data.len());
    ///     if len == 0 {
    ///         return Ok(());
    ///     }
    ///     let config = LaunchConfig::for_elements(len, 256)?;
    ///     // SAFETY: the kernel accesses the first `len` elements of the buffer.
    ///     unsafe { kernel.launch(&stream, config, (data, len as u32)) }
    /// }
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Invalid::LaunchConfig`] if there are no elements (the driver rejects an empty grid, so skip the
    /// launch) or no threads, or if the number of blocks does not fit into a `u32`.
    #[inline]
    pub fn for_elements(elements: usize, threads: u32) -> Result<Self> {
        let blocks = u32::try_from(elements.div_ceil(threads.max(1) as usize));
        let config = Self::linear(blocks.unwrap_or(0), threads);
        config.check()?;
        Ok(config)
    }

    /// Sets the dynamic shared memory per block, in bytes.
    #[must_use]
    #[inline]
    pub const fn with_shared_bytes(self, shared_bytes: u32) -> Self {
        Self { shared_bytes, ..self }
    }

    /// Checks that no dimension is zero. The driver checks the device's limits.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        let [x, y, z] = self.block.map(u64::from);
        // Neither product overflows 64 bits: the first is a product of two 32-bit numbers and is
        // clamped before the second.
        let row = x * y;
        let threads = row.min(u64::from(u32::MAX) + 1) * z;
        let [a, b, c] = self.grid;
        let is_empty = threads == 0 || a == 0 || b == 0 || c == 0;
        if is_empty || threads > u64::from(u32::MAX) { Err(self.refused()) } else { Ok(()) }
    }

    #[cold]
    #[inline(never)]
    fn refused(&self) -> Error {
        Invalid::LaunchConfig { grid: self.grid, block: self.block }.into()
    }
}

impl Kernel {
    /// Enqueues a launch. Calls `cuLaunchKernel`.
    ///
    /// # Safety
    /// The conditions of [`TypedKernel::launch`] apply. In addition, `arguments` must contain one
    /// pointer for each parameter of the kernel, to as many readable bytes as the parameter has.
    #[inline(always)]
    unsafe fn enqueue(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        config.check()?;
        same_context("the kernel", self.context(), stream.context())?;
        let arguments = arguments.as_mut_ptr();
        // SAFETY: the caller guarantees the conditions of this function.
        let answer = unsafe { self.call_launch(stream, config, arguments) };
        if answer.is_done() {
            return Ok(());
        }
        // SAFETY: see the previous call.
        unsafe { self.launch_failed(answer.code, stream, config, arguments) }
    }

    /// # Safety
    /// See [`enqueue`](Self::enqueue). The kernel and the stream must belong to one context.
    #[inline(always)]
    unsafe fn call_launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: *mut *mut c_void,
    ) -> Answer {
        let [grid_x, grid_y, grid_z] = config.grid;
        let [block_x, block_y, block_z] = config.block;
        let (function, raw) = (self.as_raw(), stream.raw());
        // SAFETY: the kernel and the stream are alive. The caller guarantees the rest. The driver copies
        // the arguments before it returns.
        unsafe {
            answer!(cuLaunchKernel(
                function,
                grid_x,
                grid_y,
                grid_z,
                block_x,
                block_y,
                block_z,
                config.shared_bytes,
                raw,
                arguments,
                std::ptr::null_mut()
            ))
        }
    }

    /// Repeats a launch with the context current if the driver requires that, and explains its error.
    /// This is a separate function, which keeps the common path short.
    ///
    /// # Safety
    /// See [`call_launch`](Self::call_launch).
    #[cold]
    #[inline(never)]
    unsafe fn launch_failed(
        &self,
        code: CUresult,
        stream: &Stream,
        config: LaunchConfig,
        arguments: *mut *mut c_void,
    ) -> Result<()> {
        // The caller passes only the code, which stays in a register.
        let call = "cuLaunchKernel";
        under_current(Answer { call, code }, stream.context(), || {
            // SAFETY: the caller guarantees the conditions of this function.
            unsafe { self.call_launch(stream, config, arguments) }
        })
        .map_err(|error| limit::explain(error, self, stream, config, None))
    }

    /// Enqueues a launch with attributes. Calls `cuLaunchKernelEx`.
    ///
    /// # Safety
    /// The conditions of [`TypedKernel::launch_with`] apply. In addition, `arguments` must contain one
    /// pointer for each parameter of the kernel, to as many readable bytes as the parameter has.
    #[inline]
    unsafe fn enqueue_with(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        config.check()?;
        same_context("the kernel", self.context(), stream.context())?;
        let mut list = List::new();
        attributes.fill(&mut list, stream.context())?;
        let raw_config = list.config(config, stream.raw());
        let (raw_config, none) = (&raw const raw_config, std::ptr::null_mut());
        let arguments = arguments.as_mut_ptr();
        without_current(stream.context(), || {
            // SAFETY: the kernel, the stream and the events are alive and belong to one context, and
            // the configuration has as many attributes as it counts. The caller guarantees the rest.
            // The driver copies the arguments before it returns.
            unsafe { answer!(cuLaunchKernelEx(raw_config, self.as_raw(), arguments, none)) }
        })
        .map_err(|error| limit::explain(error, self, stream, config, Some(attributes)))
    }
}

/// A [`Kernel`] with the types of its parameters. Returned by [`Kernel::typed`].
///
/// To store one in a struct, write `'static` for the lifetimes:
/// `TypedKernel<(&'static [f32], &'static mut [f32], u32)>`. A launch accepts buffers with any lifetime.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module};
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let add = Module::from_ptx(&context, ptx)?
///     .kernel("add")?
///     .typed::<(&[f32], &[f32], &mut [f32], u32)>()?;
///
/// let a = DeviceBuffer::from_slice(&stream, &[1.0f32; 1000])?;
/// let b = DeviceBuffer::from_slice(&stream, &[2.0f32; 1000])?;
/// let mut sum = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
/// let config = LaunchConfig::for_elements(1000, 256)?;
/// // SAFETY: `add` reads and writes the first 1000 elements of the buffers, and nothing else.
/// unsafe { add.launch(&stream, config, (&a, &b, &mut sum, 1000)) }?;
/// assert_eq!(sum.to_vec()?, [3.0; 1000]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct TypedKernel<P> {
    kernel: Kernel,
    params: PhantomData<fn(P)>,
}

impl Kernel {
    /// Returns the kernel with typed parameters: `kernel.typed::<(&[f32], &mut [f32], u32)>()`.
    ///
    /// The types are checked against the kernel's parameter list if the driver can report it (CUDA
    /// 12.4).
    ///
    /// # Errors
    /// [`Invalid::ArgumentCount`] and [`Invalid::ArgumentSize`].
    pub fn typed<P: Params>(&self) -> Result<TypedKernel<P>, Error> {
        TypedKernel::new(self)
    }
}

impl<P: Params> TypedKernel<P> {
    pub(crate) fn new(kernel: &Kernel) -> Result<Self> {
        kernel.check_sizes(P::sizes())?;
        Ok(Self { kernel: kernel.clone(), params: PhantomData })
    }

    /// Returns the kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    #[inline(always)]
    fn target<'a>(&'a self, stream: &'a Stream) -> sealed::Target<'a> {
        let kernel = &self.kernel;
        sealed::Target { kernel, stream }
    }

    /// Enqueues a launch of the kernel on a stream. Calls `cuLaunchKernel`.
    ///
    /// This makes one driver call and does not wait. Errors of the kernel appear at a later
    /// synchronization.
    ///
    /// # Errors
    /// A dimension is zero; the stream and the kernel belong to different contexts; a buffer is bound
    /// to another stream; [`Error::Launch`] with the limit of the device or the kernel that the launch
    /// exceeds (`CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`).
    ///
    /// # Safety
    /// With these arguments and this configuration, and with all [attributes
    /// set](Kernel::set_attribute) on the kernel, the kernel must:
    /// - access the buffers within their lengths, and write only to those passed as `&mut`;
    /// - access surfaces within their extents, and write through a tensor map only if it
    ///   [is writable](crate::tensor_map::TensorMap::is_writable);
    /// - access no other memory except its own: local memory, static shared memory, the dynamic shared
    ///   memory of the launch, and variables of its module. Launches on other streams and
    ///   [buffers](crate::module::Global::buffer) of these variables must not race with it;
    /// - have parameters of the types in `P`, because sizes do not distinguish types. On drivers before
    ///   CUDA 12.4, the number and sizes of the parameters must match too;
    /// - leave only bits in the buffers that are valid for their element types.
    ///
    /// A launch does not prevent captures: if another thread begins a capture on the stream while this
    /// call is running, the capture may contain the launch. If the stream is capturing, the graph
    /// contains the addresses of buffers, the handles of textures and surfaces, and tensor maps. The
    /// conditions above then apply to each launch of the graph, and these objects and their memory must
    /// stay alive until it completes. The graph also contains the kernel: its module
    /// must stay loaded as long as the graph and the executable graphs created from it exist.
    ///
    /// Since CUDA 4.0. Raw: [`cuLaunchKernel`](fn@cuda_sys::cuLaunchKernel).
    #[doc(alias = "cuLaunchKernel")]
    #[inline]
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: impl Arguments<P>,
    ) -> Result<()> {
        arguments.with_pointers(self.target(stream), |pointers| {
            // SAFETY: the caller guarantees the conditions of `launch`. The pointers refer to values of
            // the types in `P`; their number and sizes match the kernel's parameters, which was checked
            // when the kernel was typed.
            unsafe { self.kernel.enqueue(stream, config, pointers) }
        })
    }

    /// Enqueues a launch of the kernel with attributes on a stream. Calls `cuLaunchKernelEx`.
    ///
    /// This makes one driver call and allocates nothing.
    ///
    /// # Errors
    /// See [`launch`](Self::launch). In addition: [`Invalid::UnknownAttribute`] for an attribute that
    /// is newer than the driver; [`Invalid::LaunchAttribute`]; an event of another context, or one with
    /// timing (`CUDA_ERROR_INVALID_VALUE`); [`Error::Launch`] for a cooperative grid that is too large,
    /// and for clusters that the device does not support, that do not divide the grid, or that are too
    /// large.
    ///
    /// # Safety
    /// The conditions of [`launch`](Self::launch) apply, with these attributes. With
    /// [`programmatic_serialization`](LaunchAttributes::programmatic_serialization), the kernel may
    /// start while the previous kernel in the stream is running, and may complete before it. Then:
    /// - every block must wait for the previous work (PTX `griddepcontrol.wait`,
    ///   `cudaGridDependencySynchronize`) before it uses memory that work enqueued earlier on the
    ///   stream uses, unless both only read it. Every block must also wait before it ends, so that
    ///   later work runs after both.
    ///
    /// During a capture, the events of the attributes must outlive the graph, the executable graphs
    /// created from it, and their launches.
    ///
    /// Since CUDA 11.6 (documented since 11.8). Each attribute states its own minimum version. Raw:
    /// [`cuLaunchKernelEx`](fn@cuda_sys::cuLaunchKernelEx).
    ///
    /// ```no_run
    /// use cuda_safe::{LaunchConfig, TypedKernel};
    /// use cuda_safe::launch::LaunchAttributes;
    ///
    /// # let context = cuda_safe::Context::primary(&cuda_safe::Device::get(0)?)?;
    /// # let stream = context.stream()?;
    /// # let module = cuda_safe::Module::from_ptx(&context, "")?;
    /// # let sum: TypedKernel<()> = module.kernel("nothing")?.typed()?;
    /// // As many blocks as run at the same time, so that they can wait for each other.
    /// let fit = sum.kernel().max_active_blocks(256, Default::default())?;
    /// let cooperative = LaunchAttributes {
    ///     cooperative: true,
    ///     ..Default::default()
    /// };
    /// // SAFETY: the kernel accesses no memory.
    /// unsafe { sum.launch_with(&stream, LaunchConfig::linear(fit, 256), &cooperative, ()) }?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuLaunchKernelEx")]
    #[inline]
    pub unsafe fn launch_with(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
        arguments: impl Arguments<P>,
    ) -> Result<()> {
        arguments.with_pointers(self.target(stream), |pointers| {
            // SAFETY: see `launch`.
            unsafe { self.kernel.enqueue_with(stream, config, attributes, pointers) }
        })
    }
}

impl<P> Clone for TypedKernel<P> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), params: PhantomData }
    }
}

debug_struct! {
    [P] TypedKernel<P> |its| { kernel: its.kernel, params: std::any::type_name::<P>() }
}
