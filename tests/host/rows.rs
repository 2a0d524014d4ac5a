//! The rows that the bindings are made of: each raw function uses the place of its own symbol.
//!
//! A call through another one's place would be a call of the wrong function, which nothing else
//! here would see.

use cuda_sys::Function;
use std::collections::BTreeSet;

/// Index and name of each function of a file.
macro_rules! functions {
    ($($(#[$meta:meta])* $index:literal $name:ident($($param:ident: $ty:ty),*);)*) => {
        pub(crate) const ROWS: &[(usize, &str)] = &[$(($index, stringify!($name)),)*];
    };
}

mod newest {
    include!("../../cuda-sys/src/bindings/functions.rs");
}
mod older {
    include!("../../cuda-sys/src/bindings/functions_abi.rs");
}
mod per_thread {
    include!("../../cuda-sys/src/bindings/functions_ptds.rs");
}

#[test]
fn each_raw_function_uses_its_own_place() {
    let symbols: Vec<&str> = Function::all().map(Function::symbol).collect();
    for (index, name) in [newest::ROWS, older::ROWS, per_thread::ROWS].concat() {
        assert_eq!(symbols[index], name);
    }
}

#[test]
fn every_symbol_has_one_raw_function() {
    let rows = [newest::ROWS, older::ROWS, per_thread::ROWS].concat();
    let indices: BTreeSet<usize> = rows.iter().map(|(index, _)| *index).collect();
    assert_eq!(rows.len(), Function::all().len());
    assert_eq!(indices.len(), rows.len());
}

#[test]
fn variants_of_the_default_stream_are_apart() {
    let stream_of = |rows: &[(usize, &str)], per_thread: bool| {
        for (_, name) in rows {
            let function = Function::find(name).expect("a row of the table");
            assert_eq!(function.is_per_thread(), per_thread, "{name}");
        }
    };
    stream_of(newest::ROWS, false);
    stream_of(older::ROWS, false);
    stream_of(per_thread::ROWS, true);
}

#[test]
fn older_functions_are_older() {
    // What is newest of each base name that the default API has.
    for (_, name) in newest::ROWS {
        let newest = Function::find(name).expect("a row of the table");
        let others = older::ROWS
            .iter()
            .map(|(_, name)| Function::find(name).expect("a row of the table"))
            .filter(|other| other.base() == newest.base());
        for other in others {
            assert!(other.since() <= newest.since(), "{other:?} and {newest:?}");
        }
    }
}
