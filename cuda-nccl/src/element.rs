//! The types of elements.

use crate::sys::ncclDataType_t;
use cuda_safe::bytemuck::{AnyBitPattern, NoUninit, Pod, Zeroable};

/// A type whose values NCCL sends and reduces.
///
/// Elements of other types can be sent as bytes: see [`DeviceSlice::cast`](cuda_safe::DeviceSlice::cast). So can the
/// types of crates such as `half` be converted to [`Float16`] and [`BFloat16`].
///
/// # Safety
/// `DATA_TYPE` is the type of NCCL with the size and the meaning of this type.
pub unsafe trait Element: NoUninit + AnyBitPattern {
    /// The type of NCCL.
    const DATA_TYPE: ncclDataType_t;
}

macro_rules! elements {
    ($($name:ty => $data_type:ident;)*) => {$(
        // SAFETY: the types have the same size and the same meaning.
        unsafe impl Element for $name {
            const DATA_TYPE: ncclDataType_t = ncclDataType_t::$data_type;
        }
    )*};
}

/// Floating point numbers that Rust does not have, as their bits.
macro_rules! floats {
    ($($(#[$meta:meta])* $name:ident($bits:ident);)*) => {$(
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $bits);

        // SAFETY: zero is a valid value of the only field.
        unsafe impl Zeroable for $name {}
        // SAFETY: the type has the representation of its only field, which is an integer.
        unsafe impl Pod for $name {}
    )*};
}

floats! {
    /// The bits of a number of half precision (IEEE 754 binary16).
    Float16(u16);
    /// The bits of a number of the format bfloat16.
    BFloat16(u16);
    /// The bits of a number of 8 bits with an exponent of 4 bits. Since NCCL 2.24.
    Float8E4M3(u8);
    /// The bits of a number of 8 bits with an exponent of 5 bits. Since NCCL 2.24.
    Float8E5M2(u8);
}

elements! {
    i8 => ncclInt8;
    u8 => ncclUint8;
    i32 => ncclInt32;
    u32 => ncclUint32;
    i64 => ncclInt64;
    u64 => ncclUint64;
    f32 => ncclFloat32;
    f64 => ncclFloat64;
    Float16 => ncclFloat16;
    BFloat16 => ncclBfloat16;
    Float8E4M3 => ncclFloat8e4m3;
    Float8E5M2 => ncclFloat8e5m2;
}
