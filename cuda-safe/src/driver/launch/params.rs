//! The types of kernel parameters, and the conversion of arguments to bytes.

use crate::base::error::Result;
use crate::driver::stream::Stream;
use bytemuck::NoUninit;
use core::ffi::c_void;
use cuda_sys::CUdeviceptr;

/// The type of one kernel parameter. This trait is sealed.
///
/// | parameter type | CUDA C++ | argument (one of) |
/// |---|---|---|
/// | `&[T]` | `const T*` | `&DeviceBuffer<T>`, `Into<DeviceSlice<T>>`, `&ArrayView<T>` |
/// | `&mut [T]` | `T*` | `&mut DeviceBuffer<T>`, `Into<DeviceSliceMut<T>>`, `&mut ArrayViewMut<T>` |
/// | `u32`, `f32`, … | the same | the value |
/// | [`Value<T>`] | a struct by value | [`Value`] |
///
/// A [`DeviceSlice`](crate::DeviceSlice) or [`DeviceSliceMut`](crate::DeviceSliceMut) is passed as its pointer alone. Kernels take lengths as
/// separate parameters.
pub trait Param: sealed::Sealed {
    /// The representation that the driver copies.
    #[doc(hidden)]
    type Bytes: Copy;
}

/// An argument that can be passed for a parameter of type `P`. This trait is sealed, because the launch
/// trusts the bytes that it returns.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for a kernel parameter of type `{P}`",
    label = "not an argument of type `{P}`"
)]
pub trait Argument<P: Param> {
    /// Returns the bytes of the argument if it may be used on the stream.
    #[doc(hidden)]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<P::Bytes>;
}

/// The types of all parameters of a kernel: a tuple of up to 16 [`Param`]s. This trait is sealed.
pub trait Params: sealed::Sealed {
    /// Returns the size of each parameter, in bytes.
    #[doc(hidden)]
    fn sizes() -> &'static [usize];
}

/// The arguments that can be passed for the parameters `P`: a tuple with one [`Argument`] per
/// parameter. This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` do not match the kernel parameters `{P}`",
    label = "not arguments for `{P}`"
)]
pub trait Arguments<P: Params> {
    /// Checks the arguments and calls `launch` with pointers to their bytes.
    #[doc(hidden)]
    fn with_pointers(
        self,
        stream: &Stream,
        _: sealed::Here,
        launch: impl FnOnce(&mut [*mut c_void]) -> Result<()>,
    ) -> Result<()>;
}

pub(crate) mod sealed {
    pub trait Sealed {}

    /// Other crates cannot name this type, so they cannot implement a method that takes it.
    #[derive(Clone, Copy, Debug)]
    pub struct Here;
}

/// A by-value argument whose type is not listed in [`Param`]: a `repr(C)` struct without padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value<T>(pub T);

impl<T: NoUninit> sealed::Sealed for Value<T> {}
impl<T: NoUninit> Param for Value<T> {
    type Bytes = T;
}
impl<T: NoUninit> Argument<Self> for Value<T> {
    #[inline]
    fn bytes(self, _: usize, _: &Stream, _: sealed::Here) -> Result<T> {
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
            fn bytes(self, _: usize, _: &Stream, _: sealed::Here) -> Result<Self> {
                Ok(self)
            }
        }
    )*};
}

by_value!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64);

impl<T: 'static> sealed::Sealed for &[T] {}
impl<T: 'static> Param for &[T] {
    type Bytes = CUdeviceptr;
}
impl<T: 'static> sealed::Sealed for &mut [T] {}
impl<T: 'static> Param for &mut [T] {
    type Bytes = CUdeviceptr;
}
/// Returns the name of an argument for error texts.
pub(crate) fn argument(index: usize) -> String {
    format!("argument {index}")
}

macro_rules! tuples {
    ($($($param:ident $given:ident $value:ident $index:tt),*;)*) => {$(
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
                stream: &Stream,
                here: sealed::Here,
                launch: impl FnOnce(&mut [*mut c_void]) -> Result<()>,
            ) -> Result<()> {
                $(let $value = self.$index.bytes($index, stream, here)?;)*
                launch(&mut [$((&raw const $value).cast_mut().cast()),*])
            }
        }
    )*};
}

tuples! {
    ;
    A A1 a 0;
    A A1 a 0, B B1 b 1;
    A A1 a 0, B B1 b 1, C C1 c 2;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6, H H1 h 7;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6, H H1 h 7, I I1 i 8;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6, H H1 h 7, I I1 i 8,
        J J1 j 9;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6, H H1 h 7, I I1 i 8,
        J J1 j 9, K K1 k 10;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6, H H1 h 7, I I1 i 8,
        J J1 j 9, K K1 k 10, L L1 l 11;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6, H H1 h 7, I I1 i 8,
        J J1 j 9, K K1 k 10, L L1 l 11, M M1 m 12;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6, H H1 h 7, I I1 i 8,
        J J1 j 9, K K1 k 10, L L1 l 11, M M1 m 12, N N1 n 13;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6, H H1 h 7, I I1 i 8,
        J J1 j 9, K K1 k 10, L L1 l 11, M M1 m 12, N N1 n 13, O O1 o 14;
    A A1 a 0, B B1 b 1, C C1 c 2, D D1 d 3, E E1 e 4, F F1 f 5, G G1 g 6, H H1 h 7, I I1 i 8,
        J J1 j 9, K K1 k 10, L L1 l 11, M M1 m 12, N N1 n 13, O O1 o 14, P P1 p 15;
}
