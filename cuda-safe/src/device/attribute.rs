//! Device attributes, each with the type of its value.
//!
//! ```no_run
//! use cuda_safe::Device;
//! use cuda_safe::device::attribute;
//!
//! let device = Device::get(0)?;
//! if device.attribute(attribute::COOPERATIVE_LAUNCH)? {
//!     println!("kernels can synchronize across all of their blocks");
//! }
//! for (name, value) in attribute::all(&device)? {
//!     println!("{name}: {value}");
//! }
//! # Ok::<_, cuda_safe::Error>(())
//! ```
//!
//! `cargo xtask regen-bindings` generates the table of attributes from `CUdevice_attribute` of the
//! headers.

use crate::call::{Error, Invalid, copy, debug, init};
use cuda_sys::{CUdevice_attribute, CUresult, CudaVersion};
use std::fmt;
use std::marker::PhantomData;

/// A device attribute with a value of type `T`. The constants of [this module](self) are its only
/// values.
pub struct Attribute<T> {
    raw: CUdevice_attribute,
    name: &'static str,
    /// The first CUDA version of the attribute, or 0 if every supported driver has it.
    since: i32,
    value: PhantomData<fn() -> T>,
}

impl<T> Attribute<T> {
    const fn new(raw: CUdevice_attribute, name: &'static str, since: i32) -> Self {
        Self { raw, name, since, value: PhantomData }
    }

    /// Returns the C constant of the attribute.
    pub fn as_raw(&self) -> CUdevice_attribute {
        self.raw
    }

    /// Returns the C name without the prefix, for example `MAX_THREADS_PER_BLOCK`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the CUDA version that introduced the attribute, or `None` if that is 11.7 or earlier.
    pub fn since(&self) -> Option<CudaVersion> {
        (self.since != 0).then_some(CudaVersion::from_number(self.since))
    }

    pub(super) fn explain(&self, error: Error) -> Error {
        explain_newer(error, self.name, self.since())
    }
}

/// Replaces `CUDA_ERROR_INVALID_VALUE` by [`Invalid::UnknownAttribute`] if the attribute is newer than
/// the driver, because drivers return that code for unknown attributes.
#[inline]
pub(crate) fn explain_newer(
    error: Error,
    attribute: &'static str,
    since: Option<CudaVersion>,
) -> Error {
    match (error.code(), since, init::version()) {
        (Some(CUresult::CUDA_ERROR_INVALID_VALUE), Some(since), Ok(driver)) if driver < since => {
            Invalid::UnknownAttribute { attribute, since, driver }.into()
        }
        _ => error,
    }
}

copy! { [T] Attribute<T> }

debug! { [T] Attribute<T> |its, f| f.write_str(its.name) }

/// A type of attribute values. This trait is sealed, because the driver returns every value as an `int`.
pub trait AttributeValue: sealed::Sealed + fmt::Debug {
    #[doc(hidden)]
    fn from_raw(value: i32) -> Self;
}

mod sealed {
    pub trait Sealed {}
}

/// Implements [`AttributeValue`] for each type, with the conversion from `int`.
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

/// Defines a constant for each row, and the list of all attributes.
macro_rules! attributes {
    ($($(#[$meta:meta])* $name:ident: $ty:ident = $c:ident, $since:literal;)*) => {
        $(
            $(#[$meta])*
            #[doc = ""]
            #[doc = concat!("`", stringify!($c), "`.")]
            pub const $name: Attribute<attribute_type!($ty)> =
                Attribute::new(CUdevice_attribute::$c, stringify!($name), $since);
        )*

        /// Every attribute, with the function that formats its value.
        const ALL: &[(Attribute<i32>, fn(i32) -> String)] = &[$((
            Attribute::new(CUdevice_attribute::$c, stringify!($name), $since),
            text::<attribute_type!($ty)>,
        ),)*];
    };
}

fn text<T: AttributeValue>(value: i32) -> String {
    format!("{:?}", T::from_raw(value))
}

/// Returns the name and the value, as text, of every attribute that the driver knows.
///
/// # Errors
/// The errors of the driver calls. Attributes that the driver does not know are not an error;
/// they are omitted.
#[inline]
pub fn all(device: &super::Device) -> crate::Result<Vec<(&'static str, String)>> {
    let mut all = Vec::new();
    for (attribute, text) in ALL {
        match device.attribute(*attribute) {
            Ok(value) => all.push((attribute.name(), text(value))),
            Err(error) if is_unknown(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}

#[inline]
fn is_unknown(error: &Error) -> bool {
    matches!(error, Error::Invalid(invalid) if matches!(**invalid, Invalid::UnknownAttribute { .. }))
        || error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// The type of a row: a primitive type, or an enum of the driver from `cuda_sys`.
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
