//! `Debug` of objects.

/// Implements `Debug` for a type with a list of fields, whose values are computed from the object. `..` says that
/// the type has more fields. Type parameters are listed before the type:
///
/// ```text
/// debug_struct! { [T] PeerBuffer<T> |its| { len: its.len(), stream: its.stream(), .. } }
/// ```
///
/// expands to
///
/// ```text
/// impl<T> fmt::Debug for PeerBuffer<T> {
///     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
///         let its = self;
///         f.debug_struct("PeerBuffer")
///             .field("len", &its.len())
///             .field("stream", &its.stream())
///             .finish_non_exhaustive()
///     }
/// }
/// ```
macro_rules! debug_struct {
    ($([$($generic:tt)*])? $name:ident $(<$($argument:tt),*>)? |$its:ident| {
        $($field:ident: $value:expr),* $(,)?
    }) => {
        impl$(<$($generic)*>)? std::fmt::Debug for $name $(<$($argument),*>)? {
            #[inline]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $its = self;
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &$value))*.finish()
            }
        }
    };
    ($([$($generic:tt)*])? $name:ident $(<$($argument:tt),*>)? |$its:ident| {
        $($field:ident: $value:expr,)* ..
    }) => {
        impl$(<$($generic)*>)? std::fmt::Debug for $name $(<$($argument),*>)? {
            #[inline]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let $its = self;
                f.debug_struct(stringify!($name))$(.field(stringify!($field), &$value))*.finish_non_exhaustive()
            }
        }
    };
}
pub(crate) use debug_struct;
