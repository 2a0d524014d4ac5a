//! Implementations of standard traits, which a `derive` would bound by the traits of type parameters.

/// Implements `Debug` by an expression. Type parameters are listed before the type:
///
/// ```text
/// debug! { [T] Attribute<T> |its, f| f.write_str(its.name) }
/// ```
///
/// expands to
///
/// ```text
/// impl<T> fmt::Debug for Attribute<T> {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         let its = self;
///         f.write_str(its.name)
///     }
/// }
/// ```
macro_rules! debug {
    ($([$($generic:tt)*])? $name:ident $(<$($argument:tt),*>)? |$its:ident, $f:ident| $format:expr) => {
        impl$(<$($generic)*>)? std::fmt::Debug for $name $(<$($argument),*>)? {
            #[inline]
            fn fmt(&self, $f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $its = self;
                $format
            }
        }
    };
}
pub(crate) use debug;

/// Implements `Debug` for a type with a list of fields, whose values are computed from the object. `..` says that
/// the type has more fields.
///
/// ```text
/// debug_struct! { [T] PeerBuffer<T> |its| { len: its.len(), stream: its.stream(), .. } }
/// ```
///
/// formats as `PeerBuffer { len: 3, stream: Stream { .. }, .. }`.
macro_rules! debug_struct {
    ($([$($generic:tt)*])? $name:ident $(<$($argument:tt),*>)? |$its:ident| {
        $($field:ident: $value:expr),* $(,)?
    }) => {
        $crate::call::debug! {
            $([$($generic)*])? $name $(<$($argument),*>)? |$its, f|
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &$value))*.finish()
        }
    };
    ($([$($generic:tt)*])? $name:ident $(<$($argument:tt),*>)? |$its:ident| {
        $($field:ident: $value:expr,)* ..
    }) => {
        $crate::call::debug! {
            $([$($generic)*])? $name $(<$($argument),*>)? |$its, f|
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &$value))*.finish_non_exhaustive()
        }
    };
}
pub(crate) use debug_struct;

/// Implements `Clone` and `Copy`, whatever the type parameters are: `copy! { [T] DeviceSlice<'_, T> }`.
macro_rules! copy {
    ($([$($generic:tt)*])? $name:ident $(<$($argument:tt),*>)?) => {
        impl$(<$($generic)*>)? Clone for $name $(<$($argument),*>)? {
            fn clone(&self) -> Self {
                *self
            }
        }
        impl$(<$($generic)*>)? Copy for $name $(<$($argument),*>)? {}
    };
}
pub(crate) use copy;

/// Implements `From` by an expression for each row. Type parameters are listed before the row:
///
/// ```text
/// convert! { ['a, T] |array: &'a Array<T>| -> ArrayRef<'a, T> { array.as_ref() } }
/// ```
///
/// expands to
///
/// ```text
/// impl<'a, T> From<&'a Array<T>> for ArrayRef<'a, T> {
///     fn from(array: &'a Array<T>) -> Self {
///         array.as_ref()
///     }
/// }
/// ```
macro_rules! convert {
    ($($([$($generic:tt)*])? |$its:ident: $from:ty| -> $to:ty { $value:expr })*) => {$(
        impl$(<$($generic)*>)? From<$from> for $to {
            #[inline]
            fn from($its: $from) -> Self {
                $value
            }
        }
    )*};
}
pub(crate) use convert;
