//! `Debug` of errors.

/// Implements `Debug` for an error, whose fields are given: `{:?}` formats its `Display` text, which `unwrap` and a
/// `main` that returns the error print, and `{:#?}` its fields. The macro of the same name in `cuda-sys` does the same
/// for the other crates, which this one does not know.
macro_rules! debug_text {
    ($name:ident { $($field:ident),* }) => {
        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                if !f.alternate() {
                    return std::fmt::Display::fmt(self, f);
                }
                let Self { $($field),* } = self;
                f.debug_struct(stringify!($name))$(.field(stringify!($field), $field))*.finish()
            }
        }
    };
}

pub(crate) use debug_text;
