//! Launches whose parameter types are known only at run time.

use super::packed::PackedArguments;
use super::params::{Argument, KernelValue, Param, Value, sealed};
use super::{LaunchAttributes, LaunchConfig};
use crate::call::{Error, Result, debug_struct};
use crate::module::Kernel;
use crate::stream::Stream;
use core::ffi::c_void;
use cuda_sys::CUtensorMap;
use std::marker::PhantomData;

/// A launch whose arguments are added one by one. Returned by [`Kernel::launch_builder`].
///
/// It is for kernels whose parameter types are known only at run time, and for kernels with more
/// parameters than [`Params`](crate::launch::Params) supports. For other kernels, [`Kernel::typed`] compares the
/// types with the kernel's parameters once, and a launch costs less.
///
/// Arguments are checked as in [`TypedKernel::launch`](crate::TypedKernel::launch). The builder copies
/// values, and borrows buffers until it is last used. It can launch the kernel several times with the
/// same arguments.
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, LaunchConfig, Module};
///
/// # let ptx = "";
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let add = Module::from_ptx(&context, ptx)?.kernel("add")?;
///
/// let inputs = [
///     DeviceBuffer::from_slice(&stream, &[1.0f32; 1000])?,
///     DeviceBuffer::from_slice(&stream, &[2.0f32; 1000])?,
/// ];
/// let mut sum = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
/// let mut launch = add.launch_builder(&stream);
/// for input in &inputs {
///     launch.arg(input);
/// }
/// launch.arg(&mut sum).arg(1000u32);
/// // SAFETY: `add` reads and writes the first 1000 elements of the buffers, and nothing else. Its
/// // parameters are three pointers to floats and an unsigned int.
/// unsafe { launch.launch(LaunchConfig::for_elements(1000, 256)?) }?;
/// assert_eq!(sum.to_vec()?, [3.0; 1000]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
///
/// # Errors
/// An argument that cannot be passed is an error of [`launch`](Self::launch), so that calls of
/// [`arg`](Self::arg) can be chained.
///
/// # Cost
/// A launch with up to 16 arguments allocates no host memory, unless its structs have more than 128 bytes
/// in total.
#[must_use = "a builder launches nothing until `launch` is called"]
pub struct LaunchBuilder<'a> {
    kernel: &'a Kernel,
    stream: &'a Stream,
    arguments: PackedArguments,
    /// The first error of an argument.
    error: Option<Error>,
    /// The borrows of the arguments. A builder is not `Send`, because the types of the arguments, which
    /// may not be `Send`, are erased.
    borrowed: PhantomData<(&'a mut (), *mut ())>,
}

/// An argument of a [`LaunchBuilder`]: an argument whose type determines the type of the parameter.
///
/// | argument | parameter in CUDA C++ |
/// |---|---|
/// | `&DeviceBuffer<T>`, `&MappedBuffer<T>`, `&SharedReader<T>`, `&ImportedArray<T>`, `DeviceSlice<T>`, `&ArrayView<T>` | `const T*` |
/// | `&mut DeviceBuffer<T>`, `&mut MappedBuffer<T>`, `DeviceSliceMut<T>`, `&mut ArrayViewMut<T>` | `T*` |
/// | `bool`, `u8`, …, `i64`, `usize`, `isize`, `f32`, `f64` | the same type |
/// | [`Value<T>`] | a struct by value |
/// | `&TensorMap`, [`CUtensorMap`] | `const __grid_constant__ CUtensorMap` |
/// | `&array::Texture` | `cudaTextureObject_t` |
/// | `&mut array::Surface` | `cudaSurfaceObject_t` |
///
/// Types that convert to a slice of device memory can implement this trait:
///
/// ```
/// use cuda_safe::{DeviceBuffer, DeviceSlice};
/// use cuda_safe::launch::LaunchArgument;
///
/// struct Matrix {
///     elements: DeviceBuffer<f32>,
/// }
///
/// impl<'a> From<&'a Matrix> for DeviceSlice<'a, f32> {
///     fn from(matrix: &'a Matrix) -> Self {
///         matrix.elements.as_slice()
///     }
/// }
///
/// impl LaunchArgument for &Matrix {
///     type Param = &'static [f32];
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed to a kernel",
    label = "not an argument of a launch",
    note = "pass `&DeviceBuffer` for a pointer that the kernel reads, and `&mut DeviceBuffer` for one that it writes",
    note = "pass numbers and `bool` by value, and a `repr(C)` struct as `cuda_safe::launch::Value`"
)]
pub trait LaunchArgument: Argument<<Self as LaunchArgument>::Param> {
    /// The type of the parameter for which the argument is passed.
    type Param: Param;
}

impl Kernel {
    /// Returns a launch on a stream, to which arguments are added one by one.
    #[inline]
    pub fn launch_builder<'a>(&'a self, stream: &'a Stream) -> LaunchBuilder<'a> {
        LaunchBuilder {
            kernel: self,
            stream,
            arguments: PackedArguments::new(),
            error: None,
            borrowed: PhantomData,
        }
    }
}

impl<'a> LaunchBuilder<'a> {
    /// Adds an argument for the next parameter of the kernel.
    ///
    /// A buffer must be bound to the stream of the launch. An argument that cannot be passed is an error
    /// of [`launch`](Self::launch).
    pub fn arg<A: LaunchArgument + 'a>(&mut self, argument: A) -> &mut Self {
        let (kernel, stream) = (self.kernel, self.stream);
        match argument.bytes(self.count(), sealed::Target { kernel, stream }) {
            Ok(bytes) => self.arguments.push(bytes),
            Err(error) => self.fail(error),
        }
        self
    }

    /// Adds an argument by its bytes, for a parameter that is passed by value and whose type is known
    /// only at run time. The bytes are copied.
    #[inline]
    pub fn arg_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.arguments.push_bytes(bytes);
        self
    }

    #[inline]
    fn count(&self) -> usize {
        self.arguments.sizes().len()
    }

    /// Stores the error of an argument, unless there is one already.
    #[cold]
    #[inline(never)]
    fn fail(&mut self, error: Error) {
        self.error.get_or_insert(error);
    }

    /// Enqueues a launch of the kernel with these arguments. Calls `cuLaunchKernel`.
    ///
    /// This makes one driver call and does not wait. The number and the sizes of the arguments are
    /// compared with the kernel's [parameters](Kernel::parameters), which the first launch of the kernel
    /// queries. The method can be called several times.
    ///
    /// # Errors
    /// - [`Invalid::ArgumentCount`](crate::Invalid::ArgumentCount) and
    ///   [`Invalid::ArgumentSize`](crate::Invalid::ArgumentSize), if the driver can report the kernel's
    ///   parameters (CUDA 12.4).
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if a buffer is bound to another stream.
    /// - The errors of [`TypedKernel::launch`](crate::TypedKernel::launch).
    ///
    /// After an error of an argument, every launch of this builder fails with that error.
    ///
    /// # Safety
    /// The conditions of [`TypedKernel::launch`](crate::TypedKernel::launch) apply, also those for a
    /// stream that is being captured. The arguments must have the types of the kernel's parameters,
    /// because sizes do not distinguish types. On drivers before CUDA 12.4, the number and sizes of the
    /// parameters must match too.
    ///
    /// Since CUDA 4.0. Raw: [`cuLaunchKernel`](fn@cuda_sys::cuLaunchKernel).
    #[doc(alias = "cuLaunchKernel")]
    #[inline]
    pub unsafe fn launch(&self, config: LaunchConfig) -> Result<()> {
        self.with_pointers(|pointers| {
            // SAFETY: the caller guarantees the conditions of `launch`. The pointers refer to the
            // arguments. Their number and sizes match the kernel's parameters: this was checked, or the
            // caller guarantees it.
            unsafe { self.kernel.enqueue(self.stream, config, pointers) }
        })
    }

    /// Enqueues a launch of the kernel with these arguments and with attributes. Calls
    /// `cuLaunchKernelEx`.
    ///
    /// # Errors
    /// See [`launch`](Self::launch) and [`TypedKernel::launch_with`](crate::TypedKernel::launch_with).
    ///
    /// # Safety
    /// The conditions of [`launch`](Self::launch) and of
    /// [`TypedKernel::launch_with`](crate::TypedKernel::launch_with) apply.
    ///
    /// Since CUDA 11.6 (documented since 11.8). Raw:
    /// [`cuLaunchKernelEx`](fn@cuda_sys::cuLaunchKernelEx).
    #[doc(alias = "cuLaunchKernelEx")]
    #[inline]
    pub unsafe fn launch_with(
        &self,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> Result<()> {
        self.with_pointers(|pointers| {
            // SAFETY: see `launch`.
            unsafe { self.kernel.enqueue_with(self.stream, config, attributes, pointers) }
        })
    }

    /// Checks the arguments and calls `launch` with pointers to them.
    fn with_pointers(&self, launch: impl FnOnce(&mut [*mut c_void]) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        self.kernel.check_sizes(self.arguments.sizes())?;
        self.arguments.with_pointers(launch)
    }
}

debug_struct! {
    LaunchBuilder<'_> |its| {
        kernel: its.kernel, stream: its.stream, arguments: its.count(), error: its.error, ..
    }
}

macro_rules! values {
    ($($ty:ty)*) => {$(
        impl LaunchArgument for $ty {
            type Param = Self;
        }
    )*};
}

values!(bool u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64 CUtensorMap);

impl<T: KernelValue> LaunchArgument for Value<T> {
    type Param = Self;
}
