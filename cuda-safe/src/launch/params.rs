//! The types of a kernel's parameters, and how arguments become bytes.

use crate::error::Result;
use crate::interop::{ArrayView, ArrayViewMut};
use crate::memory::{DeviceSlice, DeviceSliceMut};
use crate::stream::Stream;
use bytemuck::NoUninit;
use core::ffi::c_void;
use cuda_sys::CUdeviceptr;

/// The type of one kernel parameter. Sealed.
///
/// | parameter type | in CUDA C++ | argument |
/// |---|---|---|
/// | `&[T]` | `const T*` | `&DeviceBuffer<T>`, or what else becomes a [`DeviceSlice`]; `&ArrayView<T>` |
/// | `&mut [T]` | `T*` | `&mut DeviceBuffer<T>`, or what else becomes a [`DeviceSliceMut`]; `&mut ArrayViewMut<T>` |
/// | `u32`, `f32`, … | the same | the value |
/// | [`Value<T>`] | a struct by value | [`Value`] |
///
/// A slice stands for its pointer alone: kernels get lengths as parameters of their own.
pub trait Param: sealed::Sealed {
    /// What the driver copies.
    #[doc(hidden)]
    type Bytes: Copy;
}

/// What can be given for a parameter of type `P` at a launch. Sealed: what it gives to a kernel is
/// trusted.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no argument for a kernel parameter of type `{P}`",
    label = "not an argument of type `{P}`"
)]
pub trait Argument<P: Param> {
    /// The bytes of the argument, if it may be used on the stream.
    #[doc(hidden)]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<P::Bytes>;
}

/// The types of all parameters of a kernel: a tuple of up to 16 [`Param`]s. Sealed.
pub trait Params: sealed::Sealed {
    /// The size of each, in bytes.
    #[doc(hidden)]
    fn sizes() -> &'static [usize];
}

/// What can be given for the parameters `P` at a launch: a tuple of as many [`Argument`]s. Sealed.
#[diagnostic::on_unimplemented(
    message = "the arguments `{Self}` are not those of a kernel with parameters `{P}`",
    label = "not the arguments of `{P}`"
)]
pub trait Arguments<P: Params> {
    /// Checks the arguments and gives pointers to their bytes to `launch`.
    #[doc(hidden)]
    fn with_pointers(
        self,
        stream: &Stream,
        _: sealed::Here,
        launch: impl FnOnce(&mut [*mut c_void]) -> Result<()>,
    ) -> Result<()>;
}

pub(super) mod sealed {
    pub trait Sealed {}

    /// Nobody else can name it, and so write a method that takes it.
    #[derive(Clone, Copy, Debug)]
    pub struct Here;
}

/// A plain value that has no type of its own in the list of [`Param`]: a `repr(C)` struct without
/// padding.
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
impl<'a, T: 'static, S: Into<DeviceSlice<'a, T>>> Argument<&[T]> for S {
    #[inline]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<CUdeviceptr> {
        let slice = self.into();
        slice.check_stream(|| argument(index), stream)?;
        Ok(slice.as_raw())
    }
}

impl<T: 'static> sealed::Sealed for &mut [T] {}
impl<T: 'static> Param for &mut [T] {
    type Bytes = CUdeviceptr;
}
impl<'a, T: 'static, S: Into<DeviceSliceMut<'a, T>>> Argument<&mut [T]> for S {
    #[inline]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<CUdeviceptr> {
        let slice = self.into();
        slice.as_slice().check_stream(|| argument(index), stream)?;
        Ok(slice.as_raw())
    }
}

impl<T: 'static> Argument<&[T]> for &ArrayView<'_, T> {
    #[inline]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<CUdeviceptr> {
        first(self, index, stream)
    }
}

impl<T: 'static> Argument<&mut [T]> for &mut ArrayViewMut<'_, T> {
    #[inline]
    fn bytes(self, index: usize, stream: &Stream, _: sealed::Here) -> Result<CUdeviceptr> {
        first(self.whole(), index, stream)
    }
}

/// The address of the first element.
fn first<T>(view: &ArrayView<'_, T>, index: usize, stream: &Stream) -> Result<CUdeviceptr> {
    let slice = DeviceSlice::<T>::new(view.as_raw(), 0, view.stream());
    slice.check_stream(|| argument(index), stream)?;
    Ok(slice.as_raw())
}

fn argument(index: usize) -> String {
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
