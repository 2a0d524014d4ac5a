//! Macros for the generated bindings of other libraries of NVIDIA: `cuda-nvrtc` and `cuda-nccl` expand their rows
//! with them. They are not part of the public interface.

/// C enums: integers with named constants. A newer library may return a value without a name.
#[doc(hidden)]
#[macro_export]
macro_rules! __enums {
    ($($name:ident: $repr:ident { $($constant:ident = $value:expr,)* })*) => {$(
        #[doc = concat!("The C enum `", stringify!($name), "`.")]
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $repr);

        impl $name {
            $(pub const $constant: Self = Self($value);)*

            /// Returns the C name of this value, or `None` if the headers do not define one.
            #[allow(unreachable_patterns, reason = "a value may have several names; the first one is used")]
            pub fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$constant => Some(stringify!($constant)),)*
                    _ => None,
                }
            }
        }

        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({})"), self.0),
                }
            }
        }
    )*};
}

/// Object-like macros of the headers.
#[doc(hidden)]
#[macro_export]
macro_rules! __macros {
    ($($name:ident: $ty:ident = $value:expr,)*) => {
        $(pub const $name: $ty = $value;)*
    };
}

/// Structs and unions whose default is all zeros.
#[doc(hidden)]
#[macro_export]
macro_rules! __zero_by_default {
    ($($name:ident,)*) => {$(
        // SAFETY: the record consists of numbers, raw pointers, and structs and unions of these. All zeros is a
        // valid value of each.
        unsafe impl $crate::Zeroable for $name {}

        impl Default for $name {
            fn default() -> Self {
                $crate::Zeroable::zeroed()
            }
        }
    )*};
}

/// Checks that libclang and rustc agree on the layout of each record.
#[doc(hidden)]
#[macro_export]
macro_rules! __layouts {
    ($($name:ident: size $size:literal, align $align:literal {
        $($field:ident = $offset:literal,)*
    })*) => {
        const _: () = {$(
            assert!(::core::mem::size_of::<$name>() == $size);
            assert!(::core::mem::align_of::<$name>() == $align);
            $(assert!(::core::mem::offset_of!($name, $field) == $offset);)*
        )*};
    };
}
