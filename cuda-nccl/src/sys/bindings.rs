//! The rows of the bindings in generated files. `cargo xtask regen-bindings` writes the files in the folder of this
//! module.

#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::doc_markdown,
    clippy::use_self,
    reason = "the names are NVIDIA's"
)]

use super::NCCL;
use crate::version::NcclVersion;
use core::ffi::{c_char, c_int, c_uint, c_void};
use cuda_sys::lazy_extern;
use cuda_sys::{
    __enums as enums, __layouts as layouts, __macros as macros,
    __zero_by_default as zero_by_default,
};
pub use cuda_sys::{CUevent as cudaEvent_t, CUstream as cudaStream_t};

/// The functions, each with the NCCL version that introduced it.
macro_rules! functions {
    (in $library:ident; $(
        $(#[$meta:meta])*
        ($major:literal, $minor:literal $(, $patch:literal)?)
        $name:ident($($param:ident: $ty:ty),*) -> $output:ty;
    )*) => {
        lazy_extern! {
            // SAFETY: the declarations were generated from the header of NCCL. All versions since 2.18 declare
            // these symbols in the same way, but for structs that have become longer at their ends.
            unsafe extern "C" in $library {
                $($(#[$meta])* pub fn $name($($param: $ty),*) -> $output;)*
            }
        }

        /// The functions with the versions that introduced them.
        static FUNCTIONS: &[(&str, NcclVersion)] =
            &[$((stringify!($name), NcclVersion::new($major, $minor, 0 $(+ $patch)?)),)*];
    };
}

include!("bindings/macros.rs");
include!("bindings/enums.rs");
include!("bindings/types.rs");
include!("bindings/layouts.rs");
include!("bindings/functions.rs");

/// Returns the names of all functions, with the versions that introduced them.
#[inline]
pub fn functions() -> impl Iterator<Item = (&'static str, NcclVersion)> {
    FUNCTIONS.iter().copied()
}

/// Returns the NCCL version that introduced a function, or `None` if these bindings do not have the function.
#[inline]
pub fn since(function: &str) -> Option<NcclVersion> {
    FUNCTIONS.iter().find(|(name, _)| *name == function).map(|(_, since)| *since)
}
