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
            #[inline]
            pub fn name(self) -> Option<&'static str> {
                name_of(Self::NAMES, self.0)
            }

            /// Returns the value with this C name. A value may have several names.
            #[inline]
            pub fn from_name(name: &str) -> Option<Self> {
                value_of(Self::NAMES, name).map(Self)
            }
        }

        // SAFETY: zero bytes are the number zero.
        unsafe impl Zeroable for $name {}

        enums! { @$kind $name: $repr }
    )*};

    (@values $name:ident: $repr:ident) => {
        impl fmt::Debug for $name {
            #[inline]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt_value(f, stringify!($name), Self::NAMES, self.0)
            }
        }
    };

    (@flags $name:ident: $repr:ident) => {
        impl $name {
            /// Returns whether all bits of `other` are set.
            #[inline]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }
        }

        impl fmt::Debug for $name {
            #[inline]
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt_flags(f, Self::NAMES, self.0)
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;
            #[inline]
            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }

        impl core::ops::BitOrAssign for $name {
            #[inline]
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl core::ops::BitAnd for $name {
            type Output = Self;
            #[inline]
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }
    };
}

/// Returns the first name of a value. The functions of all enums share these few, since each enum's own would be
/// compiled in every build.
fn name_of<T: Copy + PartialEq>(
    names: &'static [(&'static str, T)],
    value: T,
) -> Option<&'static str> {
    names.iter().find(|(_, its)| *its == value).map(|(name, _)| *name)
}

/// Returns the value with a name.
fn value_of<T: Copy>(names: &'static [(&'static str, T)], name: &str) -> Option<T> {
    names.iter().find(|(its, _)| *its == name).map(|(_, value)| *value)
}

/// Writes the name of a value, or the name of its type with its number.
fn fmt_value<T: Copy + PartialEq + fmt::Display>(
    f: &mut fmt::Formatter<'_>,
    ty: &str,
    names: &'static [(&'static str, T)],
    value: T,
) -> fmt::Result {
    match name_of(names, value) {
        Some(name) => f.write_str(name),
        None => write!(f, "{ty}({value})"),
    }
}

/// Writes the names of the bits of a value, and the rest as a number.
fn fmt_flags<T>(
    f: &mut fmt::Formatter<'_>,
    names: &'static [(&'static str, T)],
    value: T,
) -> fmt::Result
where
    T: Copy + PartialEq + Default + fmt::LowerHex,
    T: core::ops::BitAnd<Output = T> + core::ops::BitXor<Output = T>,
{
    if let Some(name) = name_of(names, value) {
        return f.write_str(name);
    }
    let mut rest = value;
    let mut first = true;
    for (name, bits) in names {
        if *bits != T::default() && rest & *bits == *bits {
            rest = rest ^ *bits;
            write!(f, "{}{name}", if first { "" } else { " | " })?;
            first = false;
        }
    }
    if rest != T::default() || first {
        write!(f, "{}{rest:#x}", if first { "" } else { " | " })?;
    }
    Ok(())
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
            #[inline]
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
