//! The symbols of the functions, and a slot for the address of each.

use crate::library::Slot;

/// The symbols with the CUDA version that introduced them, in the order of their names.
macro_rules! table {
    ($($name:ident $since:literal,)*) => {
        /// The name (with a NUL) and the `since` of every symbol. A function's index is its index in
        /// this table.
        pub(super) static SYMBOLS: &[(&str, i32)] =
            &[$((concat!(stringify!($name), "\0"), $since),)*];

        /// The address of each symbol, or null until its first call.
        pub(crate) static SLOTS: [Slot; SYMBOLS.len()] = [const { Slot::new() }; SYMBOLS.len()];
    };
}

// A file of rows, like those of `bindings`: tests/abi.rs includes it with its own macro.
include!("../bindings/table.rs");
