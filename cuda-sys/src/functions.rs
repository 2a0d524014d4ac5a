//! The functions of the driver: each row of `bindings/functions*.rs` becomes a raw call.

#![allow(
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    clippy::doc_markdown,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    clippy::wildcard_imports,
    reason = "the names are NVIDIA's"
)]

use crate::bindings::*;
use crate::loader::{Function, GetProcAddress, GetVersion, SLOTS, resolve};
use core::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use std::sync::OnceLock;

/// A function and, under the same name, the type of a pointer to it.
macro_rules! functions {
    ($($(#[$meta:meta])* $index:literal $name:ident($($param:ident: $ty:ty),*);)*) => {
        $(
            $(#[$meta])*
            #[inline]
            pub unsafe fn $name($($param: $ty),*) -> CUresult {
                // SAFETY: the address is that of the symbol with this name, in a library that is never closed
                // or in an installed source, whose functions are valid until the process ends. The headers
                // declare this signature for the symbol.
                let function = unsafe {
                    crate::lazy_extern!(
                        @function
                        SLOTS[$index],
                        {
                            let (address, code) = resolve($index);
                            if address.is_null() {
                                return code;
                            }
                            address
                        },
                        $name
                    )
                };
                // SAFETY: the caller follows the rules of the function.
                unsafe { function($($param),*) }
            }

            #[doc = concat!("The type of a pointer to [`", stringify!($name), "`](fn@self::", stringify!($name), ").")]
            pub type $name = unsafe extern "C" fn($($ty),*) -> CUresult;
        )*

        /// Returns a function of a symbol's type that returns `CUDA_ERROR_NOT_SUPPORTED`, or null if the
        /// symbol is in another list.
        #[inline]
        pub(super) fn refusing(index: usize) -> *const c_void {
            match index {
                $($index => {
                    #[inline]
                    #[allow(clippy::too_many_arguments, reason = "NVIDIA's functions have them")]
                    unsafe extern "C" fn refuse($(_: $ty),*) -> CUresult {
                        crate::functions::refused($index)
                    }
                    let function: $name = refuse;
                    function as *const c_void
                })*
                _ => core::ptr::null(),
            }
        }
    };
}

include!("bindings/functions.rs");

/// Older ABIs of functions that have newer ones, and functions that were removed from the default API.
///
/// Every driver exports them from their `since` version on. A program that must run on drivers older
/// than the newest ABI can fall back to them.
pub mod abi {
    use super::*;
    include!("bindings/functions_abi.rs");
}

/// The variants for which stream 0 is the per-thread default stream.
pub mod ptds {
    use super::*;
    include!("bindings/functions_ptds.rs");
}

// The loader calls these two functions without a slot. They have the types of the headers.
const _: fn(cuDriverGetVersion) -> GetVersion = |function| function;
const _: fn(cuGetProcAddress_v2) -> GetProcAddress = |function| function;

static REFUSAL_HOOK: OnceLock<fn(Function)> = OnceLock::new();

/// The body of a function that a source does not implement.
#[cold]
#[inline]
fn refused(index: usize) -> CUresult {
    if let Some(hook) = REFUSAL_HOOK.get() {
        hook(Function::at(index));
    }
    CUresult::CUDA_ERROR_NOT_SUPPORTED
}

impl Function {
    /// Sets the function that the functions of [`not_supported`](Self::not_supported) call, with themselves,
    /// before they return. An [installed](crate::install) source can thus tell which functions a program
    /// misses. Only the first call has an effect. The hook must not panic.
    #[inline]
    pub fn on_not_supported(hook: fn(Self)) {
        // The first hook stays.
        let _ = REFUSAL_HOOK.set(hook);
    }

    /// Returns a function of this function's type that returns `CUDA_ERROR_NOT_SUPPORTED`. An
    /// [installed](crate::install) source can use it for functions that it does not implement. Two calls may
    /// return different addresses.
    #[inline]
    pub fn not_supported(self) -> *const c_void {
        let index = self.index();
        let all = [refusing, abi::refusing, ptds::refusing].map(|refusing| refusing(index));
        let mut all = all.into_iter();
        all.find(|function| !function.is_null()).unwrap_or(core::ptr::null())
    }
}
