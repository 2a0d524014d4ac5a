//! What a device can be asked, each with its type.
//!
//! ```no_run
//! use cuda_safe::{Device, attribute};
//!
//! let device = Device::get(0)?;
//! if device.attribute(attribute::COOPERATIVE_LAUNCH)? {
//!     println!("kernels can wait for all of their blocks");
//! }
//! for (name, value) in attribute::all(&device)? {
//!     println!("{name}: {value}");
//! }
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! `cargo xtask regen-bindings` writes the rows from the headers' `CUdevice_attribute`.

use crate::driver;
use crate::error::Error;
use crate::invalid::Invalid;
use cuda_sys::{CUdevice_attribute, CUresult, CudaVersion};
use std::fmt;
use std::marker::PhantomData;

/// A device attribute whose value is a `T`. The constants of [this module](self) are all there are.
pub struct Attribute<T> {
    raw: CUdevice_attribute,
    name: &'static str,
    /// 0 where every driver that these bindings know has it.
    since: i32,
    value: PhantomData<fn() -> T>,
}

impl<T> Attribute<T> {
    const fn new(raw: CUdevice_attribute, name: &'static str, since: i32) -> Self {
        Self {
            raw,
            name,
            since,
            value: PhantomData,
        }
    }

    /// The driver's number for it.
    pub fn raw(&self) -> CUdevice_attribute {
        self.raw
    }

    /// Its C name without the prefix: `MAX_THREADS_PER_BLOCK`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The first CUDA version that knows it; none for those of 11.7 and before.
    pub fn since(&self) -> Option<CudaVersion> {
        (self.since != 0).then_some(CudaVersion::from_number(self.since))
    }

    pub(super) fn explain(&self, error: Error) -> Error {
        explain_newer(error, self.name, self.since())
    }
}

/// An attribute that is newer than the driver is an invalid value to it.
pub(crate) fn explain_newer(
    error: Error,
    attribute: &'static str,
    since: Option<CudaVersion>,
) -> Error {
    match (error.code(), since, driver::version()) {
        (Some(CUresult::CUDA_ERROR_INVALID_VALUE), Some(since), Ok(driver)) if driver < since => {
            Invalid::UnknownAttribute {
                attribute,
                since,
                driver,
            }
            .into()
        }
        _ => error,
    }
}

impl<T> Clone for Attribute<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Attribute<T> {}

impl<T> fmt::Debug for Attribute<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

/// A type that attributes have. Sealed: the driver gives all of them as an `int`.
pub trait AttributeValue: sealed::Sealed + fmt::Debug {
    #[doc(hidden)]
    fn from_raw(value: i32) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

/// The types of attributes, and how each is read.
macro_rules! values {
    ($($ty:ty: |$value:ident| $read:expr;)*) => {$(
        impl sealed::Sealed for $ty {}
        #[allow(clippy::cast_sign_loss, reason = "some are bit patterns that fill all 32 bits")]
        impl AttributeValue for $ty {
            fn from_raw($value: i32) -> Self {
                $read
            }
        }
    )*};
}

values! {
    bool: |value| value != 0;
    i32: |value| value;
    u32: |value| value as u32;
    cuda_sys::CUcomputemode: |value| Self(value as u32);
    cuda_sys::CUdeviceNumaConfig: |value| Self(value as u32);
    cuda_sys::CUflushGPUDirectRDMAWritesOptions: |value| Self(value as u32);
    cuda_sys::CUGPUDirectRDMAWritesOrdering: |value| Self(value as u32);
    cuda_sys::CUlogicalEndpointIpcHandleType: |value| Self(value as u32);
    cuda_sys::CUmemAllocationHandleType: |value| Self(value as u32);
    cuda_sys::CUmemDecompressAlgorithm: |value| Self(value as u32);
}

/// The rows become constants, and the list that reads them all.
macro_rules! attributes {
    ($($(#[$meta:meta])* $name:ident: $ty:ident = $c:ident, $since:literal;)*) => {
        $(
            $(#[$meta])*
            #[doc = ""]
            #[doc = concat!("`", stringify!($c), "`.")]
            pub const $name: Attribute<attribute_type!($ty)> =
                Attribute::new(CUdevice_attribute::$c, stringify!($name), $since);
        )*

        /// Reads all attributes that the driver knows: the name, and the value as text.
        ///
        /// # Errors
        /// Those of the driver, but for attributes that it does not know: they are left out.
        pub fn all(device: &super::Device) -> crate::Result<Vec<(&'static str, String)>> {
            let mut all = Vec::new();
            $(match device.attribute($name) {
                Ok(value) => all.push(($name.name(), format!("{value:?}"))),
                Err(error) if is_unknown(&error) => {}
                Err(error) => return Err(error),
            })*
            Ok(all)
        }
    };
}

fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Invalid(invalid) if matches!(**invalid, Invalid::UnknownAttribute { .. }))
        || error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// A primitive type as it is, an enum of the driver's from `cuda_sys`.
macro_rules! attribute_type {
    (bool) => {
        bool
    };
    (i32) => {
        i32
    };
    (u32) => {
        u32
    };
    ($name:ident) => {
        cuda_sys::$name
    };
}

include!("attributes.rs");
