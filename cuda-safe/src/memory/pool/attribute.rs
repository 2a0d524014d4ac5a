//! What a memory pool can be asked, and what it can be told.
//!
//! ```no_run
//! use cuda_safe::pool::attribute::{RELEASE_THRESHOLD, RESERVED_CURRENT, USED_HIGH};
//! use cuda_safe::{Context, Device, MemoryPool};
//!
//! let context = Context::primary(&Device::get(0)?)?;
//! let pool = MemoryPool::default_of(&context)?;
//! pool.set_attribute(RELEASE_THRESHOLD, 1 << 30)?;
//! println!("{} bytes, for {} at most", pool.attribute(RESERVED_CURRENT)?, pool.attribute(USED_HIGH)?);
//! pool.reset_high(USED_HIGH)?;
//! # Ok::<_, cuda_safe::Error>(())
//! ```

use crate::driver;
use crate::error::Error;
use crate::invalid::Invalid;
use cuda_sys::{
    CUmemAllocationHandleType, CUmemAllocationType, CUmemLocationType, CUmemPool_attribute,
    CUresult, CudaVersion,
};
use std::fmt;
use std::marker::PhantomData;

/// An attribute of a memory pool whose value is a `T`. The constants of [this module](self) are all
/// there are. `A` says what can be done with it beside asking.
pub struct PoolAttribute<T, A = ReadOnly> {
    raw: CUmemPool_attribute,
    name: &'static str,
    since: CudaVersion,
    value: PhantomData<fn() -> (T, A)>,
}

/// Nothing.
#[derive(Debug)]
pub enum ReadOnly {}

/// [`MemoryPool::set_attribute`](crate::MemoryPool::set_attribute).
#[derive(Debug)]
pub enum Settable {}

/// [`MemoryPool::reset_high`](crate::MemoryPool::reset_high).
#[derive(Debug)]
pub enum High {}

impl<T, A> PoolAttribute<T, A> {
    /// The driver's number for it.
    pub fn raw(&self) -> CUmemPool_attribute {
        self.raw
    }

    /// The name of its constant.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The first CUDA version that knows it.
    pub fn since(&self) -> CudaVersion {
        self.since
    }

    /// An attribute that is newer than the driver is an invalid value to it.
    pub(super) fn explain(&self, error: Error) -> Error {
        match (error.code(), driver::version()) {
            (Some(CUresult::CUDA_ERROR_INVALID_VALUE), Ok(driver)) if driver < self.since => {
                Invalid::UnknownAttribute {
                    attribute: self.name,
                    since: self.since,
                    driver,
                }
                .into()
            }
            _ => error,
        }
    }
}

impl<T, A> Clone for PoolAttribute<T, A> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, A> Copy for PoolAttribute<T, A> {}

impl<T, A> fmt::Debug for PoolAttribute<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A type that attributes of pools have. Sealed: the driver has them as `int` or 64 bits.
pub trait PoolValue: sealed::Sealed {
    #[doc(hidden)]
    fn from_bytes(bytes: [u8; 8]) -> Self;
    #[doc(hidden)]
    fn to_bytes(self) -> [u8; 8];
}

mod sealed {
    pub trait Sealed {}
}

/// The types, and how each is written as the driver's: an `int` is the first four of the bytes.
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
    /// Whether memory that one stream has freed is used on another that waits for it by events.
    REUSE_FOLLOW_EVENT_DEPENDENCIES: bool, Settable = CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, (11, 2);
    /// Whether memory that one stream has freed is used on another if it happens to be idle.
    REUSE_ALLOW_OPPORTUNISTIC: bool, Settable = CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, (11, 2);
    /// Whether a stream may be made to wait for another's free, to use its memory.
    REUSE_ALLOW_INTERNAL_DEPENDENCIES: bool, Settable = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, (11, 2);
    /// So many bytes are kept when a wait finds memory that nobody uses. At first none.
    RELEASE_THRESHOLD: u64, Settable = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, (11, 2);
    /// The bytes that the pool has of the system.
    RESERVED_CURRENT: u64, ReadOnly = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, (11, 2);
    /// The most that it had of the system.
    RESERVED_HIGH: u64, High = CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, (11, 2);
    /// The bytes that are allocated.
    USED_CURRENT: u64, ReadOnly = CU_MEMPOOL_ATTR_USED_MEM_CURRENT, (11, 2);
    /// The most that was allocated.
    USED_HIGH: u64, High = CU_MEMPOOL_ATTR_USED_MEM_HIGH, (11, 2);
    /// What kind of memory it is of.
    ALLOCATION_TYPE: CUmemAllocationType, ReadOnly = CU_MEMPOOL_ATTR_ALLOCATION_TYPE, (13, 2);
    /// How it can be shared with other processes.
    EXPORT_HANDLE_TYPES: CUmemAllocationHandleType, ReadOnly = CU_MEMPOOL_ATTR_EXPORT_HANDLE_TYPES, (13, 2);
    /// The number of the place where it is.
    LOCATION_ID: i32, ReadOnly = CU_MEMPOOL_ATTR_LOCATION_ID, (13, 2);
    /// The kind of place where it is.
    LOCATION_TYPE: CUmemLocationType, ReadOnly = CU_MEMPOOL_ATTR_LOCATION_TYPE, (13, 2);
    /// The bytes that it may have at most; 0: what the system allows.
    MAX_POOL_SIZE: u64, ReadOnly = CU_MEMPOOL_ATTR_MAX_POOL_SIZE, (13, 2);
    /// Whether the decompression engine may read it.
    HW_DECOMPRESS_ENABLED: bool, ReadOnly = CU_MEMPOOL_ATTR_HW_DECOMPRESS_ENABLED, (13, 2);
    /// The locality domain of the device that it is in.
    LOCALITY_DOMAIN_ID: i32, ReadOnly = CU_MEMPOOL_ATTR_LOCALITY_DOMAIN_ID, (13, 4);
}
