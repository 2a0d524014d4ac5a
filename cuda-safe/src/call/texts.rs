//! Enums with a text for each variant: a macro that makes one from a table, and the test of every row.

/// Defines an enum from a table of its variants with their texts. The row
///
/// ```text
/// /// A range that is out of bounds for `len` elements.
/// Range { start: usize, end: usize, len: usize } =>
///     "the range {start}..{end} is out of bounds for {len} elements";
/// ```
///
/// is this variant, and this arm of `Display`:
///
/// ```text
/// /// A range that is out of bounds for `len` elements.
/// Range { start: usize, end: usize, len: usize },
///
/// Self::Range { start, end, len } =>
///     write!(f, "the range {start}..{end} is out of bounds for {len} elements"),
/// ```
///
/// A text that does not use a field does not compile. The arguments of a format string follow it, as in `write!`.
/// Fields can have documentation.
macro_rules! texts {
    (
        $(#[$attribute:meta])*
        pub enum $enum:ident {
            $(
                $(#[$doc:meta])*
                $name:ident $({ $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? })?
                    => $text:literal $(, $part:expr)*;
            )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $enum {
            $($(#[$doc])* $name $({ $($(#[$field_doc])* $field: $type),* })?,)*
        }

        impl std::fmt::Display for $enum {
            #[inline]
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$name $({ $($field),* })? => write!(f, $text $(, $part)*),)*
                }
            }
        }

        cuda_sys::debug_text! { enum $enum { $($name $({ $($field),* })?),* } }

        #[cfg(test)]
        impl $enum {
            /// Returns a value of each variant, whose fields have different values.
            pub(crate) fn samples() -> Vec<Self> {
                let mut seed = 0;
                vec![$(Self::$name $({ $($field: $crate::call::texts::tests::sample(&mut seed)),* })?),*]
            }

            /// Returns the fields whose value `text` does not show.
            pub(crate) fn not_shown_in(&self, text: &str) -> Vec<&'static str> {
                let fields: Vec<(&str, bool)> = match self {
                    $(Self::$name $({ $($field),* })? => {
                        vec![$($((stringify!($field), $crate::call::texts::tests::Sample::is_shown($field, text))),*)?]
                    })*
                };
                fields.into_iter().filter(|(_, shown)| !shown).map(|(field, _)| field).collect()
            }
        }
    };
}
pub(crate) use texts;

#[cfg(test)]
pub(crate) mod tests {
    use crate::call::{Error, Extent, Invalid, LaunchLimit, Region};
    use cuda_sys::{CUresult, CudaVersion};

    /// A value of a field.
    pub(crate) trait Sample {
        fn of(seed: u32) -> Self;
        fn is_shown(&self, text: &str) -> bool;
    }

    /// Returns the value of the next seed. A seed is a multiple of 16, and no known handle type of a memory pool.
    pub(crate) fn sample<T: Sample>(seed: &mut u32) -> T {
        *seed += 16;
        T::of(*seed)
    }

    macro_rules! numbers {
        ($($type:ty),*) => {$(
            impl Sample for $type {
                fn of(seed: u32) -> Self {
                    seed.try_into().expect("the seeds are small")
                }

                fn is_shown(&self, text: &str) -> bool {
                    text.contains(&self.to_string()) || text.contains(&format!("{self:#x}"))
                }
            }
        )*};
    }
    numbers!(i32, u32, u64, u128, usize);

    /// The samples of other types: the value of a seed, and the text that shows the value.
    macro_rules! samples {
        ($($type:ty: |$seed:pat_param| $value:expr, |$its:ident| $shown:expr;)*) => {$(
            impl Sample for $type {
                fn of($seed: u32) -> Self {
                    $value
                }

                fn is_shown(&self, text: &str) -> bool {
                    let $its = self;
                    text.contains(&$shown)
                }
            }
        )*};
    }
    samples! {
        &'static str: |seed| String::leak(format!("word {seed}")), |its| **its;
        String: |seed| format!("word {seed}"), |its| **its;
        char: |_| 'y', |its| format!("along {its}");
        bool: |seed| seed % 32 == 0, |_its| "";
        CudaVersion: |seed| Self::new(seed as u16, 1), |its| its.to_string();
        CUresult: |_| Self::CUDA_ERROR_UNKNOWN, |its| its.to_string();
        [u8; 4]: |_| *b"MZ\x90\0", |_its| "4d, 5a, 90, 00";
        [u32; 3]: |seed| [seed, 1, 2], |its| its[0].to_string();
        Vec<String>: |seed| vec![format!("one {seed}"), format!("two {seed}")], |its| its.join(", ");
        Vec<Option<u32>>: |seed| vec![Some(seed), None], |its| format!("{}, the rest", its[0].expect("a size"));
        Extent: |seed| Self::new_3d(seed as usize, 1, 2),
            |its| format!("{} x {} x {}", its.width, its.height, its.depth);
        Region: |seed| Self { offset: seed as usize, pitch: 1, rows: 2 },
            |its| format!("offset {} with a pitch of {} elements and {} rows", its.offset, its.pitch, its.rows);
    }

    impl<T: Sample> Sample for Option<T> {
        fn of(seed: u32) -> Self {
            Some(T::of(seed))
        }

        fn is_shown(&self, text: &str) -> bool {
            self.as_ref().is_none_or(|its| its.is_shown(text))
        }
    }

    #[test]
    fn every_text_shows_the_fields() {
        for invalid in Invalid::samples() {
            let text = invalid.to_string();
            assert_eq!(invalid.not_shown_in(&text), [""; 0], "{invalid:?} prints {text:?}");
            assert!(!text.ends_with('.') && text.trim() == text, "{text:?}");
            assert_eq!(format!("{invalid:?}"), text);
            // The same text appears in the `Error` it converts to, which has no driver code.
            let error = Error::from(invalid);
            assert_eq!(error.to_string(), text);
            assert_eq!(error.code(), None);
        }
    }

    #[test]
    fn every_text_of_a_limit_shows_the_fields() {
        for limit in LaunchLimit::samples() {
            let text = limit.to_string();
            assert_eq!(limit.not_shown_in(&text), [""; 0], "{limit:?} prints {text:?}");
        }
    }
}
