//! `Debug` of errors.

/// Implements `Debug` for an error: `{:?}` formats its `Display` text, and `{:#?}` its fields.
///
/// `unwrap`, `expect` and a `main` that returns an error print the `Debug` text, and should name the way out as the
/// `Display` text does. The type is given with the names of its variants and fields:
///
/// ```text
/// debug_text! { struct LoadError { tried, is_driver } }
/// debug_text! { enum InstallError { InUse, Load(_) } }
/// debug_text! { enum Error { Driver(_), PtxTooNew { ptx, driver }, NoDevice } }
/// ```
///
/// A missing variant does not compile. A field that is not named is not formatted.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_text {
    (struct $name:ident { $($field:ident),* $(,)? }) => {
        impl std::fmt::Debug for $name {
            #[inline]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if !f.alternate() {
                    return std::fmt::Display::fmt(self, f);
                }
                let Self { $($field,)* .. } = self;
                f.debug_struct(stringify!($name))$(.field(stringify!($field), $field))*.finish()
            }
        }
    };
    (struct $name:ident(_)) => {
        impl std::fmt::Debug for $name {
            #[inline]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if !f.alternate() {
                    return std::fmt::Display::fmt(self, f);
                }
                f.debug_tuple(stringify!($name)).field(&self.0).finish()
            }
        }
    };
    (enum $name:ident { $($variant:ident $(($its:tt))? $({ $($field:ident),* $(,)? })?),* $(,)? }) => {
        impl std::fmt::Debug for $name {
            #[inline]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if !f.alternate() {
                    return std::fmt::Display::fmt(self, f);
                }
                match self {
                    $($crate::debug_text!(@pattern $variant $(($its, its))? $({ $($field),* })?) =>
                        $crate::debug_text!(@fields f $variant $(($its, its))? $({ $($field),* })?),)*
                }
            }
        }
    };
    (@pattern $variant:ident) => { Self::$variant };
    (@pattern $variant:ident (_, $its:ident)) => { Self::$variant($its) };
    (@pattern $variant:ident { $($field:ident),* }) => { Self::$variant { $($field),* } };
    (@fields $f:ident $variant:ident) => { $f.write_str(stringify!($variant)) };
    (@fields $f:ident $variant:ident (_, $its:ident)) => {
        $f.debug_tuple(stringify!($variant)).field($its).finish()
    };
    (@fields $f:ident $variant:ident { $($field:ident),* }) => {
        $f.debug_struct(stringify!($variant))$(.field(stringify!($field), $field))*.finish()
    };
}
