//! The rows of the bindings in generated files, and the types and constants among them.
//!
//! The macros of this file expand the rows of the types and constants. [`loader`](crate::loader) expands
//! the table of the symbols, and [`functions`](crate::functions) the functions.
//!
//! `cargo xtask regen-bindings` writes every file in this folder except for this one, `constants.rs`
//! and `zeroable.rs`.

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
        unsafe impl Zeroable for $name {}

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

mod constants;
mod zeroable;
pub use constants::*;
pub use zeroable::Zeroable;

// Included rather than declared as modules, because tests/abi.rs includes the same rows with its own
// macros.
include!("macros.rs");
include!("enums.rs");
include!("types.rs");
include!("layouts.rs");
