//! The bindings: rows in generated files, and the macros that expand the rows.
//!
//! `cargo xtask regen-bindings` writes every file in this folder except for this one and `constants.rs`.

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

use crate::library::Slot;
use crate::loader;
use core::ffi::{c_char, c_int, c_longlong, c_uchar, c_uint, c_ulonglong, c_ushort, c_void};
use core::fmt;

/// C enums: integers with named constants. `values` are alternatives; `flags` are bits that combine.
macro_rules! enums {
    ($($(#[$meta:meta])* $kind:ident $name:ident: $repr:ident {
        $($constant:ident = $value:expr,)*
    })*) => {$(
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            $(pub const $constant: Self = Self($value);)*

            const NAMES: &'static [(&'static str, $repr)] =
                &[$((stringify!($constant), $value),)*];

            /// Returns the C name of this value, or `None` if the headers do not define one.
            pub fn name(self) -> Option<&'static str> {
                let mut names = Self::NAMES.iter();
                names.find(|(_, value)| *value == self.0).map(|(name, _)| *name)
            }

            /// Returns the value with this C name. A value may have several names.
            pub fn from_name(name: &str) -> Option<Self> {
                let mut names = Self::NAMES.iter();
                names.find(|(its, _)| *its == name).map(|(_, value)| Self(*value))
            }
        }

        // SAFETY: zero bytes are the number zero.
        unsafe impl crate::Zeroable for $name {}

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
            /// Returns whether all bits of `other` are set.
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
    ($($(#[$meta:meta])* $name:ident: $ty:ident = $value:expr,)*) => {
        $($(#[$meta])* pub const $name: $ty = $value;)*
    };
}

/// Structs and unions whose default is all zeros, as the driver requires for fields that it does not use
/// yet.
macro_rules! zero_by_default {
    ($($name:ident,)*) => {$(
        // SAFETY: the record consists of integers, newtypes of integers, raw pointers, optional function
        // pointers, and arrays, structs and unions of these (bindgen generates no other types from C).
        // All zeros is a valid value of each.
        unsafe impl crate::Zeroable for $name {}

        impl Default for $name {
            fn default() -> Self {
                crate::Zeroable::zeroed()
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

/// The symbols with the CUDA version that introduced them, in the order of their names.
macro_rules! table {
    ($($name:ident $since:literal,)*) => {
        /// The name (with a NUL) and the `since` of every symbol. A function's index is its index in
        /// this table.
        pub(crate) static SYMBOLS: &[(&str, i32)] =
            &[$((concat!(stringify!($name), "\0"), $since),)*];

        /// The address of each symbol, or null until its first call.
        static SLOTS: [Slot; SYMBOLS.len()] = [const { Slot::new() }; SYMBOLS.len()];
    };
}

/// A function and, under the same name, the type of a pointer to it.
macro_rules! functions {
    ($($(#[$meta:meta])* $index:literal $name:ident($($param:ident: $ty:ty),*);)*) => {
        $(
            $(#[$meta])*
            #[inline]
            pub unsafe fn $name($($param: $ty),*) -> CUresult {
                // The headers declare this signature for the symbol of this name.
                crate::lazy_extern!(
                    @call
                    SLOTS[$index],
                    {
                        let (address, code) = loader::resolve($index);
                        if address.is_null() {
                            return code;
                        }
                        address
                    },
                    $name,
                    ($($param),*)
                )
            }

            #[doc = concat!("The type of a pointer to [`", stringify!($name), "`](fn@self::", stringify!($name), ").")]
            pub type $name = unsafe extern "C" fn($($ty),*) -> CUresult;
        )*

        /// Returns a function of a symbol's type that returns `CUDA_ERROR_NOT_SUPPORTED`, or null if the
        /// symbol is in another list.
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

// Included rather than declared as modules, because tests/abi.rs includes the same rows with its own
// macros.
include!("macros.rs");
include!("enums.rs");
include!("types.rs");
include!("layouts.rs");
include!("table.rs");
include!("functions.rs");

/// Older ABIs of functions that have newer ones, and functions that were removed from the default API.
///
/// Every driver exports them from their `since` version on. A program that must run on drivers older
/// than the newest ABI can fall back to them.
pub mod abi {
    use super::*;
    include!("functions_abi.rs");
}

/// The variants for which stream 0 is the per-thread default stream.
pub mod ptds {
    use super::*;
    include!("functions_ptds.rs");
}

/// Returns a function of a symbol's type that returns `CUDA_ERROR_NOT_SUPPORTED`.
#[inline]
pub(crate) fn not_supported(index: usize) -> *const c_void {
    let all = [refusing, abi::refusing, ptds::refusing].map(|refusing| refusing(index));
    let mut all = all.into_iter();
    all.find(|function| !function.is_null())
        .unwrap_or(core::ptr::null())
}

/// Returns the slot of a symbol. The loader stores the address there.
pub(crate) fn slot(index: usize) -> &'static Slot {
    &SLOTS[index]
}

/// Returns all slots.
pub(crate) fn slots() -> &'static [Slot] {
    &SLOTS
}
