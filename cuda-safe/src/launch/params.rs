//! The types of a kernel's parameters, and how arguments become bytes.

use crate::error::Result;
use crate::memory::DeviceBuffer;
use crate::stream::Stream;
use bytemuck::NoUninit;
use core::ffi::c_void;
use cuda_sys::CUdeviceptr;

/// The type of one kernel parameter. Sealed.
///
/// | parameter type | in CUDA C++ | argument |
/// |---|---|---|
/// | `&[T]` | `const T*` | `&DeviceBuffer<T>` |
/// | `&mut [T]` | `T*` | `&mut DeviceBuffer<T>` |
/// | `u32`, `f32`, … | the same | the value |
/// | [`Value<T>`] | a struct by value | [`Value`] |
///
/// A slice stands for its pointer alone: kernels get lengths as parameters of their own.
pub trait Param: sealed::Sealed {
    /// What is given for it at a launch.
    type Argument<'a>;

    /// What the driver copies.
    #[doc(hidden)]
    type Bytes: Copy;

    /// The bytes of an argument, if it may be used on the stream.
    #[doc(hidden)]
    fn bytes(index: usize, given: Self::Argument<'_>, stream: &Stream) -> Result<Self::Bytes>;
}

/// The types of all parameters of a kernel: a tuple of up to 16 [`Param`]s. Sealed.
pub trait Params: sealed::Sealed {
    /// What is given at a launch: a tuple of [`Param::Argument`]s.
    type Arguments<'a>;

    /// The size of each, in bytes.
    #[doc(hidden)]
    fn sizes() -> &'static [usize];

    /// Checks the arguments and gives pointers to their bytes to `launch`.
    #[doc(hidden)]
    fn with_pointers(
        stream: &Stream,
        arguments: Self::Arguments<'_>,
        launch: impl FnOnce(&mut [*mut c_void]) -> Result<()>,
    ) -> Result<()>;
}

mod sealed {
    pub trait Sealed {}
}

/// A plain value that has no type of its own in the list of [`Param`]: a `repr(C)` struct without
/// padding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Value<T>(pub T);

impl<T: NoUninit> sealed::Sealed for Value<T> {}
impl<T: NoUninit> Param for Value<T> {
    type Argument<'a> = Self;
    type Bytes = T;

    #[inline]
    fn bytes(_: usize, given: Self, _: &Stream) -> Result<T> {
        Ok(given.0)
    }
}

macro_rules! by_value {
    ($($ty:ty)*) => {$(
        impl sealed::Sealed for $ty {}
        impl Param for $ty {
            type Argument<'a> = Self;
            type Bytes = Self;

            #[inline]
            fn bytes(_: usize, given: Self, _: &Stream) -> Result<Self> {
                Ok(given)
            }
        }
    )*};
}

by_value!(u8 i8 u16 i16 u32 i32 u64 i64 usize isize f32 f64);

impl<T: 'static> sealed::Sealed for &[T] {}
impl<T: 'static> Param for &[T] {
    type Argument<'a> = &'a DeviceBuffer<T>;
    type Bytes = CUdeviceptr;

    #[inline]
    fn bytes(index: usize, given: &DeviceBuffer<T>, stream: &Stream) -> Result<CUdeviceptr> {
        given.check_stream(|| argument(index), stream)?;
        Ok(given.as_raw())
    }
}

impl<T: 'static> sealed::Sealed for &mut [T] {}
impl<T: 'static> Param for &mut [T] {
    type Argument<'a> = &'a mut DeviceBuffer<T>;
    type Bytes = CUdeviceptr;

    #[inline]
    fn bytes(index: usize, given: &mut DeviceBuffer<T>, stream: &Stream) -> Result<CUdeviceptr> {
        given.check_stream(|| argument(index), stream)?;
        Ok(given.as_raw())
    }
}

fn argument(index: usize) -> String {
    format!("argument {index}")
}

macro_rules! tuples {
    ($($($name:ident $value:ident $index:tt),*;)*) => {$(
        impl<$($name: Param),*> sealed::Sealed for ($($name,)*) {}
        impl<$($name: Param),*> Params for ($($name,)*) {
            type Arguments<'a> = ($($name::Argument<'a>,)*);

            fn sizes() -> &'static [usize] {
                const { &[$(size_of::<$name::Bytes>()),*] }
            }

            #[inline]
            #[allow(unused_variables, reason = "a kernel may have no parameters")]
            fn with_pointers(
                stream: &Stream,
                arguments: Self::Arguments<'_>,
                launch: impl FnOnce(&mut [*mut c_void]) -> Result<()>,
            ) -> Result<()> {
                $(let $value = $name::bytes($index, arguments.$index, stream)?;)*
                launch(&mut [$((&raw const $value).cast_mut().cast()),*])
            }
        }
    )*};
}

tuples! {
    ;
    A a 0;
    A a 0, B b 1;
    A a 0, B b 1, C c 2;
    A a 0, B b 1, C c 2, D d 3;
    A a 0, B b 1, C c 2, D d 3, E e 4;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10, L l 11;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10, L l 11, M m 12;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10, L l 11, M m 12,
        N n 13;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10, L l 11, M m 12,
        N n 13, O o 14;
    A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10, L l 11, M m 12,
        N n 13, O o 14, P p 15;
}
