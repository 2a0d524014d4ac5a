//! DLPack's C structures.
//!
//! They are written by hand according to the header of DLPack 1.3. They do not change within a
//! major version, and assertions check their sizes and offsets for 64-bit machines.

#![allow(missing_docs, reason = "names and fields are those of dlpack.h")]

use core::ffi::c_void;

/// The version of a tensor's structures.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLPackVersion {
    pub major: u32,
    pub minor: u32,
}

/// A type of device. Newer headers may have more types than this type names.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DLDeviceType(pub i32);

#[allow(non_upper_case_globals, reason = "the names are those of dlpack.h")]
impl DLDeviceType {
    pub const kDLCPU: Self = Self(1);
    pub const kDLCUDA: Self = Self(2);
    pub const kDLCUDAHost: Self = Self(3);
    pub const kDLCUDAManaged: Self = Self(13);
}

/// A type of device, and the number of a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDevice {
    pub device_type: DLDeviceType,
    /// 0 for memory that is not on a device.
    pub device_id: i32,
}

/// The type of elements. The codes are those of [`TypeCode`](super::TypeCode).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DLDataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// An array without an owner.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct DLTensor {
    pub data: *mut c_void,
    pub device: DLDevice,
    pub ndim: i32,
    pub dtype: DLDataType,
    /// The extents of the `ndim` dimensions.
    pub shape: *mut i64,
    /// The strides of the `ndim` dimensions, in elements. Before version 1.2, null means a
    /// C-contiguous array.
    pub strides: *mut i64,
    /// The distance in bytes from `data` to the first element.
    pub byte_offset: u64,
}

/// An array with its owner in the format before version 1, for capsules named `dltensor`.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensor {
    pub dl_tensor: DLTensor,
    pub manager_ctx: *mut c_void,
    /// Called once with this structure, which it also frees. `None` if the producer needs no call.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

/// An array with its owner in the format of version 1 and later, for capsules named
/// `dltensor_versioned`.
///
/// The fields up to `flags` are at the same place in every version.
#[repr(C)]
#[derive(Debug)]
pub struct DLManagedTensorVersioned {
    pub version: DLPackVersion,
    pub manager_ctx: *mut c_void,
    /// Called once with this structure, which it also frees. `None` if the producer needs no call.
    pub deleter: Option<unsafe extern "C" fn(*mut Self)>,
    pub flags: u64,
    pub dl_tensor: DLTensor,
}

/// The array must not be written.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1;
/// The array is a copy that the producer made for the consumer alone.
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 1 << 1;
/// Elements of less than a byte are padded to one byte each instead of packed.
pub const DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED: u64 = 1 << 2;

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<DLPackVersion>() == 8);
    assert!(size_of::<DLDevice>() == 8);
    assert!(size_of::<DLDataType>() == 4);
    assert!(size_of::<DLTensor>() == 48 && align_of::<DLTensor>() == 8);
    assert!(offset_of!(DLTensor, device) == 8);
    assert!(offset_of!(DLTensor, ndim) == 16);
    assert!(offset_of!(DLTensor, dtype) == 20);
    assert!(offset_of!(DLTensor, shape) == 24);
    assert!(offset_of!(DLTensor, strides) == 32);
    assert!(offset_of!(DLTensor, byte_offset) == 40);
    assert!(size_of::<DLManagedTensor>() == 64);
    assert!(offset_of!(DLManagedTensor, manager_ctx) == 48);
    assert!(offset_of!(DLManagedTensor, deleter) == 56);
    assert!(size_of::<DLManagedTensorVersioned>() == 80);
    assert!(offset_of!(DLManagedTensorVersioned, manager_ctx) == 8);
    assert!(offset_of!(DLManagedTensorVersioned, deleter) == 16);
    assert!(offset_of!(DLManagedTensorVersioned, flags) == 24);
    assert!(offset_of!(DLManagedTensorVersioned, dl_tensor) == 32);
};
