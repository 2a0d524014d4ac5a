//! The rows of the bindings in generated files. `cargo xtask regen-bindings` writes the files in the folder
//! of this module.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::doc_markdown,
    clippy::wildcard_imports,
    reason = "the names are NVIDIA's"
)]

use super::search::{NVJITLINK, NVRTC};
use core::ffi::{c_char, c_int, c_uint, c_void};
use core::fmt;
use cuda_sys::{CudaVersion, Zeroable, lazy_extern};

/// C enums: integers with named constants. A newer library may return a value without a name.
macro_rules! enums {
    ($($name:ident: $repr:ident { $($constant:ident = $value:expr,)* })*) => {$(
        #[doc = concat!("The C enum `", stringify!($name), "`.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            $(pub const $constant: Self = Self($value);)*

            /// Returns the C name of this value, or `None` if the headers do not define one.
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some(stringify!($constant)),)*
                    _ => None,
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }
    )*};
}

/// Object-like macros of the headers.
macro_rules! macros {
    ($($name:ident: $ty:ident = $value:expr,)*) => {
        $(pub const $name: $ty = $value;)*
    };
}

/// Structs whose default is all zeros, as in `cuda-sys`.
macro_rules! zero_by_default {
    ($($name:ident,)*) => {$(
        // SAFETY: the record consists of integers. All zeros is a valid value.
        unsafe impl Zeroable for $name {}

        impl Default for $name {
            fn default() -> Self {
                Zeroable::zeroed()
            }
        }
    )*};
}

/// Checks that libclang and rustc agree on the layout of each record.
macro_rules! layouts {
    ($($name:ident: size $size:literal, align $align:literal {
        $($field:ident = $offset:literal,)*
    })*) => {
        const _: () = {$(
            assert!(size_of::<$name>() == $size);
            assert!(align_of::<$name>() == $align);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        )*};
    };
}

/// The functions of a library, each with the CUDA version that introduced it.
macro_rules! functions {
    (in $library:ident; $(
        $(#[$meta:meta])*
        ($major:literal, $minor:literal)
        $name:ident($($param:ident: $ty:ty),*) -> $output:ty;
    )*) => {
        lazy_extern! {
            // SAFETY: the declarations were generated from NVIDIA's header of the library. All its versions
            // declare these symbols in the same way.
            unsafe extern "C" in $library {
                $($(#[$meta])* pub fn $name($($param: $ty),*) -> $output;)*
            }
        }

        /// The functions with the versions that introduced them.
        pub(super) static FUNCTIONS: &[(&str, CudaVersion)] =
            &[$((stringify!($name), CudaVersion::new($major, $minor)),)*];
    };
}

mod nvrtc {
    use super::*;
    include!("bindings/nvrtc.rs");
}

mod nvjitlink {
    use super::*;
    include!("bindings/nvjitlink.rs");
}

pub use nvjitlink::*;
pub use nvrtc::*;

include!("bindings/macros.rs");
include!("bindings/enums.rs");
include!("bindings/types.rs");
include!("bindings/layouts.rs");

/// Returns the CUDA version that introduced a function of NVRTC or nvJitLink, or `None` if these bindings do
/// not have the function.
#[inline]
pub fn since(function: &str) -> Option<CudaVersion> {
    let mut all = nvrtc::FUNCTIONS.iter().chain(nvjitlink::FUNCTIONS);
    all.find(|(name, _)| *name == function).map(|(_, since)| *since)
}
