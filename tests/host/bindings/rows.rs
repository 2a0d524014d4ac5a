//! The rows that the bindings are generated from: each raw function uses the table entry of its own
//! symbol.
//!
//! A raw function with the entry of another symbol would call the wrong function, which no other
//! test here would detect.

use cuda_sys::Function;
use std::collections::BTreeSet;

/// The index, name and documentation of each function in a file.
macro_rules! functions {
    ($($(#[$meta:meta])* $index:literal $name:ident($($param:ident: $ty:ty),*);)*) => {
        pub(crate) const ROWS: &[(usize, &str)] = &[$(($index, stringify!($name)),)*];
        #[allow(dead_code, reason = "not needed of every file")]
        pub(crate) const DOCS: &[(&str, &str)] =
            &[$((stringify!($name), concat!($(stringify!($meta), "\n"),*)),)*];
    };
}

mod newest {
    include!("../../../cuda-sys/src/bindings/functions.rs");
}
mod older {
    include!("../../../cuda-sys/src/bindings/functions_abi.rs");
}
mod per_thread {
    include!("../../../cuda-sys/src/bindings/functions_ptds.rs");
}

#[test]
fn each_raw_function_uses_its_own_table_entry() {
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
fn default_stream_variants_have_different_entries() {
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
    // The newest function of each base name in the default API.
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

#[test]
fn the_documentation_of_a_function_names_its_other_versions_and_since_when_they_exist() {
    let function = |name: &str| Function::find(name).expect("a row of the table");
    let all = || newest::DOCS.iter().chain(older::DOCS);
    let mut pairs = 0;
    for (name, docs) in newest::DOCS {
        let (this, since) = (function(name), function(name).since());
        assert!(docs.contains(&format!("Since CUDA {since}.")), "{docs}");
        for (name, docs_of_other) in all() {
            let other = function(name);
            if other.base() != this.base() || other == this {
                continue;
            }
            let link = format!("{name}) since CUDA {}", other.since());
            assert_eq!(docs.contains(&link), other.since() < since, "{docs}: {link}");
            let is_newest = all().all(|(name, _)| {
                let third = function(name);
                third.base() != this.base() || third.since() <= since
            });
            if is_newest && older::ROWS.iter().any(|(_, row)| row == name) {
                pairs += 1;
                let link = format!("(fn@crate::{}), since CUDA {since}", this.symbol());
                assert!(docs_of_other.contains(&link), "{docs_of_other}: {link}");
            }
        }
    }
    assert!(pairs > 80, "{pairs} pairs");
}
