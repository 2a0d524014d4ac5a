//! Attributes of memory pools, for [`MemoryPool::attribute`](crate::memory::MemoryPool::attribute) and
//! [`MemoryPool::set_attribute`](crate::memory::MemoryPool::set_attribute).
//!
//! ```no_run
//! use cuda_safe::memory::pool::attribute::{RELEASE_THRESHOLD, RESERVED_CURRENT, USED_HIGH};
//! use cuda_safe::{Context, Device};
//! use cuda_safe::memory::MemoryPool;
//!
//! let context = Context::primary(&Device::get(0)?)?;
//! let pool = MemoryPool::default_of(&context)?;
//! pool.set_attribute(RELEASE_THRESHOLD, 1 << 30)?;
//! let (reserved, used) = (pool.attribute(RESERVED_CURRENT)?, pool.attribute(USED_HIGH)?);
//! println!("{reserved} bytes reserved, at most {used} bytes used");
//! pool.reset_high_water(USED_HIGH)?;
//! # Ok::<_, cuda_safe::Error>(())
//! ```

use crate::call::{Error, copy, debug};
use crate::device::attribute::explain_newer;
use cuda_sys::{
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType, CUmemPool_attribute,
    CudaVersion,
};
use std::marker::PhantomData;

/// An attribute of a memory pool with a value of type `T`. `A` is [`ReadOnly`], [`Settable`] or
/// [`HighWater`].
///
/// The constants of [this module](self) are the only attributes.
pub struct PoolAttribute<T, A = ReadOnly> {
    raw: CUmemPool_attribute,
    name: &'static str,
    since: CudaVersion,
    value: PhantomData<fn() -> (T, A)>,
}

/// Marks attributes that can only be read.
#[derive(Debug)]
pub enum ReadOnly {}

/// Marks attributes that can be set with
/// [`MemoryPool::set_attribute`](crate::memory::MemoryPool::set_attribute).
#[derive(Debug)]
pub enum Settable {}

/// Marks high-water marks, which can be reset with
/// [`MemoryPool::reset_high_water`](crate::memory::MemoryPool::reset_high_water).
#[derive(Debug)]
pub enum HighWater {}

impl<T, A> PoolAttribute<T, A> {
    /// Returns the driver's constant for the attribute.
    pub fn as_raw(&self) -> CUmemPool_attribute {
        self.raw
    }

    /// Returns the name of the constant in this module.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the CUDA version that introduced the attribute.
    pub fn since(&self) -> CudaVersion {
        self.since
    }

    /// Translates the error of an attribute query. For an attribute that is newer than the driver, the
    /// driver returns `CUDA_ERROR_INVALID_VALUE`; this becomes
    /// [`Invalid::UnknownAttribute`](crate::Invalid::UnknownAttribute).
    pub(super) fn explain(&self, error: Error) -> Error {
        explain_newer(error, self.name, Some(self.since))
    }
}

copy! { [T, A] PoolAttribute<T, A> }

debug! { [T, A] PoolAttribute<T, A> |its, f| f.write_str(its.name) }

/// The value type of an attribute. This trait is sealed: the values in the driver are 32-bit or 64-bit
/// integers.
pub trait PoolValue: sealed::Sealed {
    #[doc(hidden)]
    fn from_bytes(bytes: [u8; 8]) -> Self;
    #[doc(hidden)]
    fn to_bytes(self) -> [u8; 8];
}

mod sealed {
    pub trait Sealed {}
}

/// Implements the conversions of the value types from and to the driver's format. A 32-bit value is in
/// the first four bytes.
macro_rules! values {
    ($($ty:ty: |$value:ident: $number:ident| $read:expr, |$this:ident| $write:expr;)*) => {$(
        impl sealed::Sealed for $ty {}
        impl PoolValue for $ty {
            fn from_bytes(bytes: [u8; 8]) -> Self {
                const SIZE: usize = size_of::<$number>();
                let mut its = [0; SIZE];
                its.copy_from_slice(&bytes[..SIZE]);
                let $value = $number::from_ne_bytes(its);
                $read
            }
            fn to_bytes(self) -> [u8; 8] {
                let $this = self;
                let number: $number = $write;
                let mut bytes = [0; 8];
                bytes[..size_of::<$number>()].copy_from_slice(&number.to_ne_bytes());
                bytes
            }
        }
    )*};
}

values! {
    bool: |value: i32| value != 0, |this| i32::from(this);
    i32: |value: i32| value, |this| this;
    u64: |value: u64| value, |this| this;
    CUmemAllocationType: |value: u32| Self(value), |this| this.0;
    CUmemAllocationHandleType: |value: u32| Self(value), |this| this.0;
    CUmemLocationType: |value: u32| Self(value), |this| this.0;
}

macro_rules! attributes {
    ($($(#[$meta:meta])* $name:ident: $ty:ty, $can:ident = $c:ident, ($major:literal, $minor:literal);)*) => {$(
        $(#[$meta])*
        #[doc = ""]
        #[doc = concat!("`", stringify!($c), "`. Since CUDA ", $major, ".", $minor, ".")]
        pub const $name: PoolAttribute<$ty, $can> = PoolAttribute {
            raw: CUmemPool_attribute::$c,
            name: stringify!($name),
            since: CudaVersion::new($major, $minor),
            value: PhantomData,
        };
    )*};
}

attributes! {
    /// Whether an allocation on one stream may reuse memory that was freed on another stream, if it
    /// is ordered after the free by events.
    REUSE_FOLLOW_EVENT_DEPENDENCIES: bool, Settable = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, (11, 2);
    /// Whether an allocation on one stream may reuse memory that was freed on another stream, if
    /// the free happens to have completed.
    REUSE_ALLOW_OPPORTUNISTIC: bool, Settable = CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, (11, 2);
    /// Whether the driver may make a stream wait for a free on another stream, in order to reuse
    /// the memory.
    REUSE_ALLOW_INTERNAL_DEPENDENCIES: bool, Settable = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, (11, 2);
    /// The number of reserved bytes that the pool may keep. If the pool has reserved more, the driver
    /// returns unused memory to the system at the next synchronization. The default is 0.
    RELEASE_THRESHOLD: u64, Settable = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (11, 2);
    /// The number of bytes that the pool has reserved from the system.
    RESERVED_CURRENT: u64, ReadOnly = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, (11, 2);
    /// The high-water mark of [`RESERVED_CURRENT`].
    RESERVED_HIGH: u64, HighWater = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, (11, 2);
    /// The number of allocated bytes.
    USED_CURRENT: u64, ReadOnly = CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (11, 2);
    /// The high-water mark of [`USED_CURRENT`].
    USED_HIGH: u64, HighWater = CU_MEMPOOL_ATTR_USED_MEM_HIGH, (11, 2);
    /// The kind of memory in the pool.
    ALLOCATION_TYPE: CUmemAllocationType, ReadOnly = CU_MEMPOOL_ATTR_ALLOCATION_TYPE, (13, 2);
    /// The handle types that can share the pool with other processes.
    EXPORT_HANDLE_TYPES: CUmemAllocationHandleType, ReadOnly = CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES, (13, 2);
    /// The id of the pool's location, such as the ordinal of a device or a NUMA node. [`LOCATION_TYPE`]
    /// is the kind of the location.
    LOCATION_ID: i32, ReadOnly = CU_MEMPOOL_ATTR_LOCATION_ID, (13, 2);
    /// The kind of the pool's location, such as a device or the host.
    LOCATION_TYPE: CUmemLocationType, ReadOnly = CU_MEMPOOL_ATTR_LOCATION_TYPE, (13, 2);
    /// The maximum size of the pool in bytes. 0 means the limit of the system.
    MAX_POOL_SIZE: u64, ReadOnly = CU_MEMPOOL_ATTR_MAX_POOL_SIZE, (13, 2);
    /// Whether the decompression engine can read the pool's memory.
    HW_DECOMPRESS_ENABLED: bool, ReadOnly = CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED, (13, 2);
    /// The locality domain of the device in which the pool's memory is located.
    LOCALITY_DOMAIN_ID: i32, ReadOnly = CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID, (13, 4);
}
