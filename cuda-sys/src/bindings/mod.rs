//! The bindings: rows in generated files, and the macros here that say what a row becomes.
//!
//! `cargo xtask regen-bindings` writes every file of this folder but this one and `constants.rs`.

#![allow(
    missing_docs,
    missing_debug_implementations,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    clippy::doc_markdown,
    clippy::missing_safety_doc,
    clippy::too_many_arguments,
    clippy::use_self,
    clippy::wildcard_imports,
    reason = "the names are NVIDIA's"
)]

use crate::loader;
use core::ffi::{c_char, c_int, c_longlong, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use core::fmt;
use core::sync::atomic::{AtomicPtr, Ordering};

/// C enums: a number with names. `values` are alternatives, `flags` are bits that combine.
macro_rules! enums {
    ($($kind:ident $name:ident: $repr:ident {
        $($constant:ident = $value:expr,)*
    })*) => {$(
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            $(pub const $constant: Self = Self($value);)*

            const NAMES: &'static [(&'static str, $repr)] =
                &[$((stringify!($constant), $value),)*];

            /// The C name of this value, if the headers have one.
            pub fn name(self) -> Option<&'static str> {
                let mut names = Self::NAMES.iter();
                names.find(|(_, value)| *value == self.0).map(|(name, _)| *name)
            }

            /// The value of a C name. (A value may have several.)
            pub fn from_name(name: &str) -> Option<Self> {
                let mut names = Self::NAMES.iter();
                names.find(|(its, _)| *its == name).map(|(_, value)| Self(*value))
            }
        }

        enums! { @$kind $name: $repr }
    )*};

    (@values $name:ident: $repr:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }
    };

    (@flags $name:ident: $repr:ident) => {
        impl $name {
            /// Whether all bits of `other` are set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                if let Some(name) = self.name() {
                    return f.write_str(name);
                }
                let mut rest = self.0;
                let mut first = true;
                for (name, value) in Self::NAMES {
                    if *value != 0 && rest & *value == *value {
                        rest &= !*value;
                        write!(f, "{}{name}", if first { "" } else { " | " })?;
                        first = false;
                    }
                }
                if rest != 0 || first {
                    write!(f, "{}{rest:#x}", if first { "" } else { " | " })?;
                }
                Ok(())
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl core::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl core::ops::BitAnd for $name {
            type Output = Self;
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }
    };
}

/// Object-like macros of the headers.
macro_rules! macros {
    ($($name:ident: $ty:ident = $value:expr,)*) => {
        $(pub const $name: $ty = $value;)*
    };
}

/// Structs and unions that start as zeros, as the driver wants what it does not know yet.
macro_rules! zero_by_default {
    ($($name:ident,)*) => {$(
        impl Default for $name {
            fn default() -> Self {
                // SAFETY: the record consists of integers, newtypes of integers, raw pointers,
                // optional function pointers, and arrays, structs and unions of these (bindgen
                // makes nothing else of C): all zeros is a value of each.
                unsafe { core::mem::zeroed() }
            }
        }
    )*};
}

/// What libclang says of each record has to be what rustc says.
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

/// The symbols with the CUDA version that brought them, in the order of their names.
macro_rules! table {
    ($($name:ident $since:literal,)*) => {
        /// Name (with its NUL) and `since` of every symbol. A function's index is its place here.
        pub(crate) static SYMBOLS: &[(&str, i32)] =
            &[$((concat!(stringify!($name), "\0"), $since),)*];

        /// The address of each symbol, null until its first call.
        static SLOTS: [AtomicPtr<c_void>; SYMBOLS.len()] =
            [const { AtomicPtr::new(core::ptr::null_mut()) }; SYMBOLS.len()];
    };
}

/// A function and, under the same name, the type of a pointer to it.
macro_rules! functions {
    ($($(#[$meta:meta])* $index:literal $name:ident($($param:ident: $ty:ty),*);)*) => {
        $(
            $(#[$meta])*
            #[inline]
            pub unsafe fn $name($($param: $ty),*) -> CUresult {
                let mut address = SLOTS[$index].load(Ordering::Acquire);
                if address.is_null() {
                    let code;
                    (address, code) = loader::resolve($index);
                    if address.is_null() {
                        return code;
                    }
                }
                // SAFETY: a slot holds null or what the source of functions gave for this very
                // symbol: a function of the symbol's ABI, valid for the process. The symbol's ABI is
                // this signature, as the headers declare it.
                let function = unsafe { core::mem::transmute::<*mut c_void, $name>(address) };
                // SAFETY: the caller keeps the function's own rules.
                unsafe { function($($param),*) }
            }

            #[doc = concat!("The type of a pointer to [`", stringify!($name), "`](fn@self::", stringify!($name), ").")]
            pub type $name = unsafe extern "C" fn($($ty),*) -> CUresult;
        )*

        /// A function of a symbol's type that refuses, if the symbol is here.
        #[inline]
        pub(crate) fn refusing(index: usize) -> *const c_void {
            match index {
                $($index => {
                    #[inline]
                    #[allow(clippy::too_many_arguments, reason = "NVIDIA's functions have them")]
                    unsafe extern "C" fn refuse($(_: $ty),*) -> CUresult {
                        CUresult::CUDA_ERROR_NOT_SUPPORTED
                    }
                    let function: $name = refuse;
                    function as *const c_void
                })*
                _ => core::ptr::null(),
            }
        }
    };
}

mod constants;
pub use constants::*;

// Included, and no modules: tests/abi.rs reads the same rows with macros of its own.
include!("macros.rs");
include!("enums.rs");
include!("types.rs");
include!("layouts.rs");
include!("table.rs");
include!("functions.rs");

/// Older ABIs of functions that have newer ones, and functions that left the default API.
///
/// They exist in every driver from their `since` on; a program that has to run on drivers older
/// than the newest ABI falls back to them.
pub mod abi {
    use super::*;
    include!("functions_abi.rs");
}

/// The variants for which stream 0 is the calling thread's own default stream.
pub mod ptds {
    use super::*;
    include!("functions_ptds.rs");
}

/// A function of a symbol's type that answers `CUDA_ERROR_NOT_SUPPORTED`.
#[inline]
pub(crate) fn not_supported(index: usize) -> *const c_void {
    let all = [refusing, abi::refusing, ptds::refusing].map(|refusing| refusing(index));
    let mut all = all.into_iter();
    all.find(|function| !function.is_null())
        .unwrap_or(core::ptr::null())
}

/// The slot of a symbol, for the loader to fill.
pub(crate) fn slot(index: usize) -> &'static AtomicPtr<c_void> {
    &SLOTS[index]
}

/// All slots.
pub(crate) fn slots() -> &'static [AtomicPtr<c_void>] {
    &SLOTS
}
