//! Types that may be zero bytes.

use core::mem::MaybeUninit;

/// Types for which a value of zero bytes is valid.
///
/// All structs, unions, enums and handles of this crate are, and C's integers, floating-point numbers, raw
/// pointers and arrays.
///
/// # Safety
/// A value that consists of zero bytes must be a valid value of the type.
pub unsafe trait Zeroable: Sized {
    /// Returns the value that consists of zero bytes.
    #[inline]
    fn zeroed() -> Self {
        let value = MaybeUninit::zeroed();
        // SAFETY: all bytes are zero, which is a valid value of this type.
        unsafe { value.assume_init() }
    }
}

macro_rules! zeroable {
    ($($number:ty)*) => {$(
        // SAFETY: zero bytes are the number zero.
        unsafe impl Zeroable for $number {}
    )*};
}

zeroable! { u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 }

// SAFETY: zero bytes are the null pointer.
unsafe impl<T> Zeroable for *mut T {}
// SAFETY: zero bytes are the null pointer.
unsafe impl<T> Zeroable for *const T {}
// SAFETY: each element of zero bytes is valid.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}
