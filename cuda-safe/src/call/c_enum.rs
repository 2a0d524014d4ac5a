//! Enums of the driver as enums of Rust.

/// Defines an enum with values of a C enum, and its conversions from and to C. A row is a variant and its value in
/// C. With `or Other`, the enum has a variant for values that only a newer driver knows:
///
/// ```text
/// c_enum! {
///     /// The severity of a log entry (`CUlogLevel`).
///     pub enum LogLevel = CUlogLevel or Other {
///         /// A failure.
///         Error = CU_LOG_LEVEL_ERROR,
///     }
/// }
/// ```
///
/// expands to
///
/// ```text
/// /// The severity of a log entry (`CUlogLevel`).
/// #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
/// #[non_exhaustive]
/// pub enum LogLevel {
///     /// A failure.
///     Error,
///     /// A value that this version of the crate does not know, returned by a newer driver.
///     Other(u32),
/// }
///
/// impl LogLevel {
///     pub(crate) const fn raw(self) -> CUlogLevel {
///         match self {
///             Self::Error => CUlogLevel::CU_LOG_LEVEL_ERROR,
///             Self::Other(number) => CUlogLevel(number),
///         }
///     }
///
///     pub(crate) const fn from_raw(raw: CUlogLevel) -> Self {
///         match raw {
///             CUlogLevel::CU_LOG_LEVEL_ERROR => Self::Error,
///             CUlogLevel(number) => Self::Other(number),
///         }
///     }
/// }
/// ```
///
/// Without `or Other` the enum has no such variant, and `from_raw` returns an `Option`.
macro_rules! c_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident = $raw:ident or Other {
            $($(#[$doc:meta])* $value:ident = $constant:ident,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $value,)*
            /// A value that this version of the crate does not know, returned by a newer driver.
            Other(u32),
        }

        #[allow(dead_code, reason = "the driver only takes some of the enums, and only returns others")]
        impl $name {
            #[inline]
            pub(crate) const fn raw(self) -> $raw {
                match self {
                    $(Self::$value => $raw::$constant,)*
                    Self::Other(number) => $raw(number),
                }
            }

            #[inline]
            pub(crate) const fn from_raw(raw: $raw) -> Self {
                match raw {
                    $($raw::$constant => Self::$value,)*
                    $raw(number) => Self::Other(number),
                }
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident = $raw:ident {
            $($(#[$doc:meta])* $value:ident = $constant:ident,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$doc])* $value,)*
        }

        #[allow(dead_code, reason = "the driver only takes some of the enums, and only returns others")]
        impl $name {
            #[inline]
            pub(crate) const fn raw(self) -> $raw {
                match self {
                    $(Self::$value => $raw::$constant,)*
                }
            }

            #[inline]
            pub(crate) const fn from_raw(raw: $raw) -> Option<Self> {
                match raw {
                    $($raw::$constant => Some(Self::$value),)*
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use c_enum;
