//! The types of kernel parameters, and the conversion of arguments to bytes.

use crate::call::Result;
use bytemuck::NoUninit;
use core::ffi::c_void;
use cuda_sys::{CUdeviceptr, CUtensorMap};

/// The type of one kernel parameter. This trait is sealed.
///
/// | parameter type | CUDA C++ | argument (one of) |
/// |---|---|---|
/// | `&[T]` | `const T*` | `&DeviceBuffer<T>`, `Into<DeviceSlice<T>>`, `&ArrayView<T>` |
/// | `&mut [T]` | `T*` | `&mut DeviceBuffer<T>`, `Into<DeviceSliceMut<T>>`, `&mut ArrayViewMut<T>` |
/// | `u32`, `f32`, …, `bool` | the same | the value |
/// | [`Value<T>`] | a struct by value | [`Value`] |
/// | [`CUtensorMap`] | `const __grid_constant__ CUtensorMap` | `&TensorMap`, or the value |
/// | `array::TextureObject` | `cudaTextureObject_t` | `&array::Texture` |
/// | `array::SurfaceObject` | `cudaSurfaceObject_t` | `&mut array::Surface` |
///
/// A [`DeviceSlice`](crate::DeviceSlice) or [`DeviceSliceMut`](crate::DeviceSliceMut) is passed as its
/// pointer alone. Kernels take lengths as separate parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not the type of a kernel parameter",
    label = "not a kernel parameter",
    note = "use `&[T]` for a pointer that the kernel reads, and `&mut [T]` for one that it writes",
    note = "use `cuda_safe::launch::Value<T>` for a `repr(C)` struct that is passed by value"
)]
pub trait Param: sealed::Sealed {
    /// The representation that the driver copies.
    #[doc(hidden)]
    type Bytes: Copy;
}

/// An argument that can be passed for a parameter of type `P`. This trait is sealed, because the launch
/// trusts the bytes that it returns.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for a kernel parameter of type `{P}`",
    label = "not an argument of type `{P}`",
    note = "a parameter `&[T]` takes `&DeviceBuffer<T>`, and a parameter `&mut [T]` takes `&mut DeviceBuffer<T>`",
    note = "a number must have exactly the type of the parameter, for example `1u32` for `u32`"
)]
pub trait Argument<P: Param> {
    /// Returns the bytes of the argument if it may be used in this launch.
    #[doc(hidden)]
    fn bytes(self, index: usize, launch: sealed::Target<'_>) -> Result<P::Bytes>;
}

/// The types of all parameters of a kernel: a tuple of up to 24 [`Param`]s. This trait is sealed.
///
/// A [`LaunchBuilder`](crate::launch::LaunchBuilder) launches kernels with more parameters.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a list of kernel parameters",
    label = "not a tuple of up to 24 kernel parameters",
    note = "one parameter is a tuple with a comma: `(u32,)`",
    note = "a kernel with more than 24 parameters is launched with `Kernel::launch_builder`"
)]
pub trait Params: sealed::Sealed {
    /// Returns the size of each parameter, in bytes.
    #[doc(hidden)]
    fn sizes() -> &'static [usize];
}

/// The arguments that can be passed for the parameters `P`: a tuple with one [`Argument`] per
/// parameter. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` do not match the kernel parameters `{P}`",
    label = "not arguments for `{P}`",
    note = "pass a tuple with one argument for each parameter; one argument is a tuple with a comma: `(x,)`"
)]
pub trait Arguments<P: Params> {
    /// Checks the arguments and calls `launch` with pointers to their bytes.
    #[doc(hidden)]
    fn with_pointers(
        self,
        target: sealed::Target<'_>,
        launch: impl FnOnce(&mut [*mut c_void]) -> Result<()>,
    ) -> Result<()>;
}

pub(crate) mod sealed {
    use crate::call::error::{Error, Result};
    use crate::module::Kernel;
    use crate::stream::Stream;

    pub trait Sealed {}

    /// The kernel and the stream of a launch. Other crates cannot name this type, so they cannot
    /// implement a method that takes it.
    #[derive(Clone, Copy, Debug)]
    pub struct Target<'a> {
        pub(crate) kernel: &'a Kernel,
        pub(crate) stream: &'a Stream,
    }

    impl Target<'_> {
        /// Returns an error that names both streams, unless the memory of an argument is bound to the
        /// stream of the launch.
        #[inline(always)]
        pub(crate) fn check_stream(self, index: usize, its: &Stream) -> Result<()> {
            if *its == *self.stream {
                return Ok(());
            }
            Err(other_stream(self.kernel, index, its, self.stream))
        }
    }

    // The compiler knows that a function with these parameters changes nothing. It would not know that
    // for a closure, and would load the streams again for each argument.
    #[cold]
    #[inline(never)]
    fn other_stream(kernel: &Kernel, index: usize, its: &Stream, expected: &Stream) -> Error {
        let kernel = kernel.name();
        let what = || format!("argument {index} (zero-based) of kernel \"{kernel}\"");
        its.other_stream(what, expected)
    }
}

/// A by-value argument whose type is not listed in [`Param`]: a `repr(C)` struct.
///
/// The struct must have the same layout as the type of the kernel's parameter in CUDA C++. A struct
/// without padding derives [`bytemuck::NoUninit`]; a struct with padding implements [`KernelValue`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value<T>(pub T);

/// A type that kernels can take by value. Every [`NoUninit`] type implements this trait.
///
/// Implement it for a struct with padding:
///
/// ```
/// use cuda_safe::launch::{KernelValue, Param, Value};
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Options {
///     transposed: bool,
///     scale: f32,
/// }
///
/// // SAFETY: the struct is `repr(C)`, and its fields have the types of the struct in CUDA C++.
/// unsafe impl KernelValue for Options {}
///
/// fn is_parameter<P: Param>() {}
/// is_parameter::<Value<Options>>();
/// ```
///
/// # Safety
/// - The type has a defined layout: it is `repr(C)` or `repr(transparent)`, and so are the types of its
///   fields. The layout is that of the type in CUDA C++ for which kernels declare it.
/// - Its bytes may be copied to a device: it contains no reference, and no pointer to memory that the
///   device must not access. The driver copies the padding too, whose contents are undefined.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed to a kernel by value",
    label = "may have padding or no defined layout",
    note = "derive `bytemuck::NoUninit` for a `repr(C)` struct without padding",
    note = "write `unsafe impl cuda_safe::launch::KernelValue for {Self} {{}}` for a `repr(C)` struct with padding"
)]
pub unsafe trait KernelValue: Copy + 'static {}

// SAFETY: a `NoUninit` type is `Copy` and has neither padding nor references. `bytemuck` requires a
// defined layout of such types.
#[diagnostic::do_not_recommend]
unsafe impl<T: NoUninit> KernelValue for T {}

impl<T: KernelValue> sealed::Sealed for Value<T> {}
impl<T: KernelValue> Param for Value<T> {
    type Bytes = T;
}
impl<T: KernelValue> Argument<Self> for Value<T> {
    #[inline]
    fn bytes(self, _: usize, _: sealed::Target<'_>) -> Result<T> {
        Ok(self.0)
    }
}

macro_rules! by_value {
    ($($ty:ty)*) => {$(
        impl sealed::Sealed for $ty {}
        impl Param for $ty {
            type Bytes = Self;
        }
        impl Argument<Self> for $ty {
            #[inline]
            fn bytes(self, _: usize, _: sealed::Target<'_>) -> Result<Self> {
                Ok(self)
            }
        }
    )*};
}

by_value!(bool u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64 CUtensorMap);

impl<T: 'static> sealed::Sealed for &[T] {}
impl<T: 'static> Param for &[T] {
    type Bytes = CUdeviceptr;
}
impl<T: 'static> sealed::Sealed for &mut [T] {}
impl<T: 'static> Param for &mut [T] {
    type Bytes = CUdeviceptr;
}

/// Returns the address of a value as the driver takes it. The driver only reads the value.
#[inline(always)]
pub(crate) fn pointer<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

/// Implements the traits of one list of parameters.
macro_rules! tuple {
    ($(($param:ident $given:ident $value:ident $index:tt))*) => {
        impl<$($param: Param),*> sealed::Sealed for ($($param,)*) {}
        impl<$($param: Param),*> Params for ($($param,)*) {
            fn sizes() -> &'static [usize] {
                const { &[$(size_of::<$param::Bytes>()),*] }
            }
        }
        impl<$($param: Param, $given: Argument<$param>),*> Arguments<($($param,)*)> for ($($given,)*) {
            #[inline(always)]
            #[allow(unused_variables, reason = "a kernel may have no parameters")]
            fn with_pointers(
                self,
                target: sealed::Target<'_>,
                launch: impl FnOnce(&mut [*mut c_void]) -> Result<()>,
            ) -> Result<()> {
                $(let $value = self.$index.bytes($index, target)?;)*
                launch(&mut [$(pointer(&$value)),*])
            }
        }
    };
}

/// Passes each list of up to 24 parameters to a macro, as `(Parameter Given value index)` for each of them.
macro_rules! tuples {
    ($each:ident) => {
        tuples! {
            $each []
            (A A1 a 0) (B B1 b 1) (C C1 c 2) (D D1 d 3) (E E1 e 4) (F F1 f 5) (G G1 g 6) (H H1 h 7)
            (I I1 i 8) (J J1 j 9) (K K1 k 10) (L L1 l 11) (M M1 m 12) (N N1 n 13) (O O1 o 14) (P P1 p 15)
            (Q Q1 q 16) (R R1 r 17) (S S1 s 18) (T T1 t 19) (U U1 u 20) (V V1 v 21) (W W1 w 22) (X X1 x 23)
        }
    };
    ($each:ident [$($list:tt)*]) => {
        $each! { $($list)* }
    };
    ($each:ident [$($list:tt)*] $next:tt $($rest:tt)*) => {
        $each! { $($list)* }
        tuples! { $each [$($list)* $next] $($rest)* }
    };
}
pub(crate) use tuples;

tuples!(tuple);
