//! Launches: a kernel, a shape, arguments, and attributes where the launch is no plain one.

mod attributes;
mod params;

pub(crate) use attributes::List;
pub use attributes::{AccessPolicyWindow, LaunchAttributes, MemoryDomainMap, ProgrammaticEvent};
pub use params::{Argument, Arguments, Param, Params, Value};

use crate::call::{answer, without_current};
use crate::error::{Error, Result};
use crate::invalid::Invalid;
use crate::module::Kernel;
use crate::stream::{Stream, same_context};
use core::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;

/// How many blocks, how many threads in each, and how much dynamic shared memory a block has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LaunchConfig {
    /// Blocks in the grid along x, y, z.
    pub grid: [u32; 3],
    /// Threads in a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// A grid of blocks, without dynamic shared memory.
    pub const fn new(grid: [u32; 3], block: [u32; 3]) -> Self {
        Self {
            grid,
            block,
            shared_bytes: 0,
        }
    }

    /// A line of blocks.
    pub const fn linear(blocks: u32, threads: u32) -> Self {
        Self::new([blocks, 1, 1], [threads, 1, 1])
    }

    /// A line of as many blocks of `threads` as `elements` need, one thread each.
    ///
    /// # Errors
    /// [`Invalid::LaunchConfig`]: no elements, no threads, or more blocks than a number holds.
    pub fn for_elements(elements: usize, threads: u32) -> Result<Self> {
        let blocks = match elements.div_ceil(threads.max(1) as usize) {
            blocks if threads == 0 || blocks == 0 => None,
            blocks => u32::try_from(blocks).ok(),
        };
        let config = Self::linear(blocks.unwrap_or(0), threads);
        config.check()?;
        Ok(config)
    }

    /// The same with dynamic shared memory, in bytes a block.
    #[must_use]
    pub const fn with_shared_bytes(self, shared_bytes: u32) -> Self {
        Self {
            shared_bytes,
            ..self
        }
    }

    /// The limits of the device are the driver's to check; a shape without extent is nothing.
    #[inline]
    pub(crate) fn check(&self) -> Result<()> {
        let [x, y, z] = self.block.map(u64::from);
        // Neither product is beyond 64 bits if the first is a number of threads.
        let row = x * y;
        let threads = row.min(u64::from(u32::MAX) + 1) * z;
        let [a, b, c] = self.grid;
        let is_empty = threads == 0 || a == 0 || b == 0 || c == 0;
        if is_empty || threads > u64::from(u32::MAX) {
            return Err(self.refused());
        }
        Ok(())
    }

    #[cold]
    #[inline(never)]
    fn refused(&self) -> Error {
        Invalid::LaunchConfig {
            grid: self.grid,
            block: self.block,
        }
        .into()
    }
}

impl Kernel {
    /// `cuLaunchKernel(kernel, …)` with pointers to the arguments, nothing checked but the shape
    /// and the context: for arguments whose types are known at run time only.
    ///
    /// # Errors
    /// As for [`TypedKernel::launch`].
    ///
    /// # Safety
    /// As for [`TypedKernel::launch`]; and there is a pointer for each of the kernel's parameters,
    /// to as many readable bytes as the parameter has.
    ///
    /// Since CUDA 4.0. Raw: [`cuLaunchKernel`](fn@cuda_sys::cuLaunchKernel).
    #[doc(alias = "cuLaunchKernel")]
    #[inline(always)]
    pub unsafe fn launch_raw(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        config.check()?;
        same_context("the kernel", self.context(), stream.context())?;
        let [grid_x, grid_y, grid_z] = config.grid;
        let [block_x, block_y, block_z] = config.block;
        let (function, raw) = (self.as_raw(), stream.raw());
        let (shared, arguments) = (config.shared_bytes, arguments.as_mut_ptr());
        // By value: so they stay in registers.
        without_current(stream.context(), move || {
            // SAFETY: the kernel and the stream are alive and of one context; the rest is the
            // caller's promise. The driver copies the arguments before it returns.
            unsafe {
                answer!(cuLaunchKernel(
                    function,
                    grid_x,
                    grid_y,
                    grid_z,
                    block_x,
                    block_y,
                    block_z,
                    shared,
                    raw,
                    arguments,
                    std::ptr::null_mut()
                ))
            }
        })
    }

    /// `cuLaunchKernelEx(&config, kernel, …)` with pointers to the arguments: as
    /// [`launch_raw`](Self::launch_raw), with attributes.
    ///
    /// # Errors
    /// As for [`TypedKernel::launch_with`].
    ///
    /// # Safety
    /// As for [`TypedKernel::launch_with`]; and there is a pointer for each of the kernel's
    /// parameters, to as many readable bytes as the parameter has.
    ///
    /// Since CUDA 11.6. Raw: [`cuLaunchKernelEx`](fn@cuda_sys::cuLaunchKernelEx).
    #[doc(alias = "cuLaunchKernelEx")]
    #[inline]
    pub unsafe fn launch_raw_with(
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
        let config = list.config(config, stream.raw());
        let (config, none) = (&raw const config, std::ptr::null_mut());
        let arguments = arguments.as_mut_ptr();
        without_current(stream.context(), || {
            // SAFETY: the kernel, the stream and the events are alive and of one context, and the
            // configuration has the attributes that it counts; the rest is the caller's promise.
            // The driver copies the arguments before it returns.
            unsafe { answer!(cuLaunchKernelEx(config, self.as_raw(), arguments, none)) }
        })
    }
}

/// A [`Kernel`] with the types of its arguments; of [`Kernel::typed`].
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

impl<P: Params> TypedKernel<P> {
    pub(crate) fn new(kernel: &Kernel) -> Result<Self> {
        if let Some(parameters) = kernel.parameters()? {
            let given = P::sizes();
            if parameters.len() != given.len() {
                return Err(Invalid::ArgumentCount {
                    kernel: kernel.name().to_owned(),
                    parameters: parameters.len(),
                    given: given.len(),
                }
                .into());
            }
            for (index, (parameter, given)) in parameters.iter().zip(given).enumerate() {
                if parameter.size != *given {
                    return Err(Invalid::ArgumentSize {
                        kernel: kernel.name().to_owned(),
                        index,
                        parameter: parameter.size,
                        given: *given,
                    }
                    .into());
                }
            }
        }
        Ok(Self {
            kernel: kernel.clone(),
            params: PhantomData,
        })
    }

    /// The kernel.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// `cuLaunchKernel(kernel, …)`: gives the launch to the stream; one call of the driver. It
    /// does not wait, and errors of the kernel appear later, at a wait.
    ///
    /// # Errors
    /// A shape without extent; a stream of another context than the kernel's; a buffer that is
    /// bound to another stream; `CUDA_ERROR_INVALID_VALUE` for a shape beyond the device;
    /// `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES`.
    ///
    /// # Safety
    /// With these arguments and this shape, and whatever the kernel is
    /// [set to](Kernel::set_attribute), it
    /// - accesses the buffers within their lengths, and writes only those given as `&mut`,
    /// - touches no other memory but its own: local, static shared, as much dynamic shared memory
    ///   as the launch gives it, and variables of its module, on which launches on other streams
    ///   and [buffers](crate::Global::buffer) of them do not race with it,
    /// - has parameters of the types of `P`, as sizes do not tell types apart; on drivers before
    ///   CUDA 12.4, also as many of them and of these sizes,
    /// - leaves bits in the buffers that are allowed for their element types.
    ///
    /// A launch is not kept out of captures: one that another thread begins on the stream while this call is
    /// under way may record it. If the stream is being captured, the graph has the addresses: the same is
    /// then true of each of its launches, and the buffers are alive until that is done. It has the kernel
    /// too: the module stays loaded for as long as the graph, and what is made of it, is there.
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
        arguments.with_pointers(stream, params::sealed::Here, |pointers| {
            // SAFETY: the caller's promise; and the pointers are to values of the types of `P`, as
            // many as the kernel has parameters and of their sizes (checked when it was typed).
            unsafe { self.kernel.launch_raw(stream, config, pointers) }
        })
    }

    /// `cuLaunchKernelEx(&config, kernel, …)`: as [`launch`](Self::launch), with attributes; one
    /// call of the driver, and no allocation.
    ///
    /// # Errors
    /// As for [`launch`](Self::launch); [`Invalid::UnknownAttribute`] for an attribute that is
    /// newer than the driver; [`Invalid::LaunchAttribute`]; an event of another context, or one
    /// with timing (`CUDA_ERROR_INVALID_VALUE`); `CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE`;
    /// clusters that the device has not, that do not divide the grid, or are too large.
    ///
    /// # Safety
    /// As for [`launch`](Self::launch), with these attributes. And with
    /// [`programmatic_serialization`](LaunchAttributes::programmatic_serialization), as the kernel
    /// may start while the one before it in the stream is at work, and may end before it:
    /// - every block waits for that (PTX `griddepcontrol.wait`, `cudaGridDependencySynchronize`)
    ///   before it uses memory that work given to the stream before uses, other than both reading
    ///   it, and in any case before it ends, so that what comes after it comes after both.
    ///
    /// In a capture the events of the attributes outlive the graph, what is made of it, and its launches, as well.
    ///
    /// Since CUDA 11.6 (officially 11.8); each attribute says when it came. Raw:
    /// [`cuLaunchKernelEx`](fn@cuda_sys::cuLaunchKernelEx).
    ///
    /// ```no_run
    /// use cuda_safe::{LaunchAttributes, LaunchConfig, TypedKernel};
    ///
    /// # let context = cuda_safe::Context::primary(&cuda_safe::Device::get(0)?)?;
    /// # let stream = context.stream()?;
    /// # let module = cuda_safe::Module::from_ptx(&context, "")?;
    /// # let sum: TypedKernel<()> = module.kernel("nothing")?.typed()?;
    /// // As many blocks as run at once, which wait for each other.
    /// let fit = sum.kernel().max_active_blocks(256, Default::default())?;
    /// let cooperative = LaunchAttributes {
    ///     cooperative: true,
    ///     ..Default::default()
    /// };
    /// // SAFETY: the kernel touches nothing.
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
        arguments.with_pointers(stream, params::sealed::Here, |pointers| {
            // SAFETY: as for `launch`.
            unsafe {
                self.kernel
                    .launch_raw_with(stream, config, attributes, pointers)
            }
        })
    }
}

impl<P> Clone for TypedKernel<P> {
    fn clone(&self) -> Self {
        Self {
            kernel: self.kernel.clone(),
            params: PhantomData,
        }
    }
}

impl<P> fmt::Debug for TypedKernel<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedKernel")
            .field("kernel", &self.kernel)
            .field("params", &std::any::type_name::<P>())
            .finish()
    }
}
