//! The functions that the library exports. Each has the name and type of a symbol of `cuda-sys` and
//! forwards its arguments.

#![allow(
    non_snake_case,
    clippy::too_many_arguments,
    clippy::wildcard_imports,
    reason = "the names are NVIDIA's"
)]

use core::ffi::c_void;

macro_rules! functions {
    ($($(#[$meta:meta])* $index:literal $name:ident($($param:ident: $ty:ty),*);)*) => {
        $(
            // SAFETY (of the name): it is the driver's name. This library is loaded in place of the
            // driver, and nothing links it.
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($param: $ty),*) -> CUresult {
                let Some(entry) = driver::entry($index) else {
                    return CUresult::CUDA_ERROR_NOT_FOUND;
                };
                // SAFETY: the entry at the symbol's index is a function of the symbol's type.
                let function = unsafe { transmute::<Entry, $name>(entry) };
                // SAFETY: the caller follows the rules of the function.
                unsafe { function($($param),*) }
            }
        )*

        /// The index and address of each function.
        pub(super) const ALL: &[(usize, *const c_void)] =
            // The cast to the type of the symbol checks the signature.
            &[$(($index, $name as $name as *const c_void)),*];
    };
}

/// The names that the rows use.
macro_rules! names {
    () => {
        use crate::driver::{self, Entry};
        use core::ffi::*;
        use core::mem::transmute;
        use cuda_sys::*;
    };
}

mod newest {
    names!();
    include!("rows/functions.rs");
}

mod older {
    names!();
    use cuda_sys::abi::*;
    include!("rows/functions_abi.rs");
}

mod per_thread {
    names!();
    use cuda_sys::ptds::*;
    include!("rows/functions_ptds.rs");
}

/// Returns the index and address of every function.
pub(crate) fn all() -> impl Iterator<Item = (usize, *const c_void)> {
    let all = [newest::ALL, older::ALL, per_thread::ALL];
    all.into_iter().flatten().copied()
}
