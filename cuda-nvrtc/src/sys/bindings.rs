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
use cuda_sys::{
    __enums as enums, __layouts as layouts, __macros as macros,
    __zero_by_default as zero_by_default,
};
use cuda_sys::{CudaVersion, lazy_extern};

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
