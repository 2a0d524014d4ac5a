//! The `cuda.h` that build.rs bound (the one of this machine or a pinned one) compared with
//! cuda-sys.
//!
//! cuda-sys is generated from one version of the headers and used with drivers of other versions.
//! An older header must agree with cuda-sys except for the [`EXCEPTIONS`]. A header of the same
//! version must agree completely. A newer header must agree on all names that both have.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

/// The facts that build.rs read from the header.
mod header {
    include!(concat!(env!("OUT_DIR"), "/header.rs"));
}

/// The rows that cuda-sys is generated from, in the form of [`header`]. cuda-sys itself asserts
/// that rustc lays out its records as the rows say.
mod rows {
    macro_rules! macros {
        ($($(#[$meta:meta])* $name:ident: $ty:ident = $value:expr,)*) => {
            pub(crate) const MACROS: &[(&str, i64)] = &[$((stringify!($name), $value),)*];
        };
    }
    macro_rules! enums {
        ($($(#[$meta:meta])* $kind:ident $name:ident: $repr:ident {
            $($constant:ident = $value:expr,)*
        })*) => {
            pub(crate) const ENUMS: &[(&str, &[(&str, i64)])] =
                &[$((stringify!($name), &[$((stringify!($constant), $value),)*]),)*];
        };
    }
    macro_rules! layouts {
        ($($name:ident: size $size:literal, align $align:literal {
            $($field:ident = $offset:literal,)*
        })*) => {
            pub(crate) const RECORDS: &[(&str, i64, i64, &[(&str, i64)])] =
                &[$((stringify!($name), $size, $align, &[$((stringify!($field), $offset),)*]),)*];
        };
    }
    macro_rules! table {
        ($($name:ident $since:literal,)*) => {
            pub(crate) const FUNCTIONS: &[&str] = &[$(stringify!($name),)*];
        };
    }
    include!("../cuda-sys/src/bindings/macros.rs");
    include!("../cuda-sys/src/bindings/enums.rs");
    include!("../cuda-sys/src/bindings/layouts.rs");
    include!("../cuda-sys/src/bindings/table.rs");
}

/// How an older header may differ from cuda-sys without harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// A record got larger.
    Grew,
    /// A record got smaller.
    Shrank,
    /// A record's alignment got stricter.
    Stricter,
    /// A field got another offset.
    Moved,
    /// A constant got another number.
    Renumbered,
    /// A name was removed from the headers.
    Gone,
}

struct Exception {
    names: &'static [&'static str],
    change: Change,
    /// The version whose header made the last change. The exception does not apply from this
    /// version on.
    until: i64,
    reason: &'static str,
}

#[rustfmt::skip]
const EXCEPTIONS: &[Exception] = &[
    Exception { names: &["CUdevSmResource_st"], change: Change::Grew, until: 13_040,
        reason: "the driver writes it, and only inside CUdevResource, whose size is fixed" },
    Exception { names: &["CUDA_CHILD_GRAPH_NODE_PARAMS_st"], change: Change::Grew, until: 12_090,
        reason: "only ever inside CUgraphNodeParams, whose size is fixed" },
    Exception {
        names: &["CUDA_EVENT_RECORD_NODE_PARAMS_st", "CUDA_EXT_SEM_SIGNAL_NODE_PARAMS_v2_st",
            "CUDA_EXT_SEM_WAIT_NODE_PARAMS_v2_st", "CUDA_HOST_NODE_PARAMS_v2_st"],
        change: Change::Grew, until: 13_040,
        reason: "only ever inside CUgraphNodeParams, whose size is fixed" },
    Exception { names: &["CUdevResource_st__bindgen_ty_1"], change: Change::Shrank, until: 13_010,
        reason: "its tail became nextResource, at the end of a CUdevResource of the same size" },
    Exception { names: &["CUdevResource_st"], change: Change::Stricter, until: 13_010,
        reason: "nextResource is a pointer, and alignment to 8 implies alignment to 4" },
    Exception { names: &["CUtensorMap_st"], change: Change::Stricter, until: 13_000,
        reason: "alignment to 128 implies alignment to 64" },
    Exception {
        names: &["CUmemPoolProps_st.reserved", "CUcheckpointCheckpointArgs_st.reserved",
            "CUcheckpointRestoreArgs_st.reserved",
            "CU_DEV_SM_RESOURCE_GROUP_PARAMS_st.reserved"],
        change: Change::Moved, until: 13_040,
        reason: "new fields took its first bytes, which an older driver requires to be zero" },
    Exception { names: &["CUcheckpointRestoreArgs_st.reserved1"], change: Change::Gone, until: 13_030,
        reason: "it became part of reserved" },
    Exception { names: &["CUmemLocation_st.id"], change: Change::Gone, until: 13_020,
        reason: "replaced by an anonymous union of the same size that starts with id" },
    Exception {
        names: &["CU_COREDUMP_MAX", "CU_DEVICE_ATTRIBUTE_MAX", "CU_EGL_COLOR_FORMAT_MAX",
            "CU_FUNC_ATTRIBUTE_MAX", "CU_JIT_NUM_OPTIONS", "CU_LAUNCH_ATTRIBUTE_MAX", "CU_LIMIT_MAX"],
        change: Change::Renumbered, until: 13_040,
        reason: "it counts the others, and no function takes it" },
    Exception { names: &["CU_COREDUMP_LIGHTWEIGHT_FLAGS"], change: Change::Renumbered, until: 13_050,
        reason: "it combines the others, and newer ones with them: an older driver may reject those" },
    Exception { names: &["CU_DEV_RESOURCE_TYPE_MAX"], change: Change::Gone, until: 13_010,
        reason: "it counted the others, and no function took it" },
    Exception { names: &["CU_TARGET_COMPUTE_101", "CU_TARGET_COMPUTE_101A", "CU_TARGET_COMPUTE_101F"], change: Change::Gone,
        until: 13_000, reason: "the target left the list, and no other target has its number" },
    Exception { names: &["CUdevSmResourceSplit_flags"], change: Change::Gone, until: 13_010,
        reason: "CUdevSmResourceSplitByCount_flags since, with the same constants" },
];

/// The kind of a number, or of a name without a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Size,
    Alignment,
    Offset,
    Value,
    Enum,
    Function,
}

/// One side of the comparison. Enums and functions have the number 0, because only their names are
/// compared.
#[derive(Clone)]
struct Api {
    version: i64,
    facts: BTreeMap<(Kind, String), i64>,
}

type Numbers<T> = &'static [(&'static str, T)];
type Records = &'static [(&'static str, i64, i64, Numbers<i64>)];

impl Api {
    fn new(
        macros: Numbers<i64>,
        enums: Numbers<Numbers<i64>>,
        records: Records,
        functions: &[&str],
    ) -> Self {
        let mut facts = BTreeMap::new();
        let mut add = |kind, name: String, number| {
            let old = facts.insert((kind, name.clone()), number);
            assert_eq!(old, None, "{name} is defined twice");
        };
        // In C, the constants of macros and of all enums share one namespace.
        for (name, members) in enums {
            add(Kind::Enum, (*name).to_owned(), 0);
            members.iter().for_each(|(name, value)| add(Kind::Value, (*name).to_owned(), *value));
        }
        macros.iter().for_each(|(name, value)| add(Kind::Value, (*name).to_owned(), *value));
        let mut taken = BTreeSet::new();
        for (name, size, align, fields) in records {
            let name = counterpart(name, fields, &taken);
            taken.insert(name);
            add(Kind::Size, name.to_owned(), *size);
            add(Kind::Alignment, name.to_owned(), *align);
            for (field, offset) in *fields {
                add(Kind::Offset, format!("{name}.{field}"), *offset);
            }
        }
        functions.iter().for_each(|name| add(Kind::Function, (*name).to_owned(), 0));
        // The version is not compared. It selects the exceptions.
        let version = facts.remove(&(Kind::Value, "CUDA_VERSION".to_owned()));
        Self { version: version.expect("a header without a version"), facts }
    }

    fn of_header() -> Self {
        use header::{ENUMS, FUNCTIONS, MACROS, RECORDS};
        let api = Self::new(MACROS, ENUMS, RECORDS, FUNCTIONS);
        assert_eq!(api.version, header::CUDA_VERSION);
        api
    }

    fn of_cuda_sys() -> Self {
        use rows::{ENUMS, FUNCTIONS, MACROS, RECORDS};
        Self::new(MACROS, ENUMS, RECORDS, FUNCTIONS)
    }
}

/// Returns the name in cuda-sys of a record of the header. bindgen numbers the anonymous records
/// inside a record, and a new one shifts the numbers, so this picks the record that shares the most
/// field names.
fn counterpart(name: &'static str, fields: Numbers<i64>, taken: &BTreeSet<&str>) -> &'static str {
    fn nest(name: &str) -> (Option<&str>, usize) {
        let mut parts = name.split("__bindgen_ty_");
        (parts.next(), parts.count())
    }
    if nest(name).1 == 0 {
        return name;
    }
    let score = |other: &str, own: Numbers<i64>| {
        let shared = own.iter().filter(|(own, _)| fields.iter().any(|(field, _)| field == own));
        (shared.count(), Reverse(own.len()), other == name)
    };
    rows::RECORDS
        .iter()
        .filter(|row| nest(row.0) == nest(name) && !taken.contains(row.0))
        .map(|row| (score(row.0, row.3), row.0))
        .max()
        .filter(|((shared, ..), _)| *shared > 0)
        .map_or(name, |(_, name)| name)
}

/// The differences between a header and cuda-sys.
#[derive(Debug, Default, PartialEq)]
struct Difference {
    /// Differences that no exception allows.
    faults: Vec<String>,
    /// Names that only a newer header has.
    news: Vec<String>,
}

fn compare(header: &Api, ours: &Api, kinds: &[Kind]) -> Difference {
    let mut found = Difference::default();
    let order = header.version.cmp(&ours.version);
    let of_kinds = |api: &Api| {
        let facts = api.facts.clone().into_iter();
        facts.filter(|((kind, _), _)| kinds.contains(kind)).collect::<Vec<_>>()
    };
    for ((kind, name), number) in of_kinds(header) {
        let own = ours.facts.get(&(kind, name.clone())).copied();
        let (change, what) = match own {
            Some(own) if own == number => continue,
            Some(own) => {
                let change = match kind {
                    Kind::Size if own > number => Some(Change::Grew),
                    Kind::Size => Some(Change::Shrank),
                    Kind::Alignment if own > number => Some(Change::Stricter),
                    Kind::Offset => Some(Change::Moved),
                    Kind::Value => Some(Change::Renumbered),
                    _ => None,
                };
                (change, format!("{number} in this header, {own} in cuda-sys"))
            }
            None if order == Ordering::Greater => {
                found.news.push(format!("{kind:?} of {name}"));
                continue;
            }
            None => (Some(Change::Gone), "in this header, not in cuda-sys".to_owned()),
        };
        let line = format!("{name}: {kind:?} {what}");
        let exception = EXCEPTIONS.iter().find(|exception| {
            header.version < exception.until
                && Some(exception.change) == change
                && exception.names.contains(&name.as_str())
        });
        match exception {
            Some(exception) => println!("{line}; allowed: {}", exception.reason),
            None => found.faults.push(line),
        }
    }
    for ((kind, name), _) in of_kinds(ours) {
        // A name that only cuda-sys has is newer than an older header, or was removed from a newer
        // one.
        if order == Ordering::Equal && !header.facts.contains_key(&(kind, name.clone())) {
            let line = format!("{name}: {kind:?} in cuda-sys, not in this header");
            found.faults.push(line);
        }
    }
    found
}

#[track_caller]
fn hold(kinds: &[Kind]) {
    let (header, mut ours) = (Api::of_header(), Api::of_cuda_sys());
    if !header::HAS_PROFILER {
        // cudaProfiler.h is in a separate package, which many installations do not have.
        let profiler = ["cuProfiler", "CUoutput_mode", "CU_OUT_"];
        ours.facts.retain(|(_, name), _| !profiler.iter().any(|prefix| name.starts_with(prefix)));
    }
    let Difference { faults, news } = compare(&header, &ours, kinds);
    if !news.is_empty() {
        let advice = "not in cuda-sys, until `cargo xtask regen-bindings` binds this header";
        // The test harness captures `print!` output of passing tests, so this writes to stderr
        // directly.
        let _ = writeln!(std::io::stderr(), "\n{advice}:\n{}", news.join("\n"));
    }
    let (version, faults) = (header.version, faults.join("\n"));
    assert!(faults.is_empty(), "CUDA_VERSION {version} and cuda-sys disagree:\n{faults}");
}

#[test]
fn every_record_has_the_layout_of_this_header() {
    hold(&[Kind::Size, Kind::Alignment, Kind::Offset]);
}

#[test]
fn every_constant_has_the_value_of_this_header() {
    hold(&[Kind::Value, Kind::Enum]);
}

#[test]
fn every_function_of_this_header_is_bound() {
    hold(&[Kind::Function]);
}

/// Returns the report on a header of `version` that has the numbers of cuda-sys, except for one
/// changed or added number.
fn with_wrong(version: i64, kind: Kind, name: &str, number: i64) -> Difference {
    let ours = Api::of_cuda_sys();
    let mut header = ours.clone();
    header.version = version;
    header.facts.insert((kind, name.to_owned()), number);
    compare(&header, &ours, &[kind])
}

#[test]
fn a_wrong_number_is_reported() {
    let ours = Api::of_cuda_sys();
    for (kind, name, line) in [
        (Kind::Size, "CUuuid_st", "Size 99 in this header, 16 in cuda-sys"),
        (Kind::Alignment, "CUuuid_st", "Alignment 99 in this header, 1 in cuda-sys"),
        (Kind::Offset, "CUDA_MEMCPY2D_st.srcY", "Offset 99 in this header, 8 in cuda-sys"),
        (Kind::Value, "CUDA_ERROR_NOT_FOUND", "Value 99 in this header, 500 in cuda-sys"),
        (Kind::Function, "cuNever", "Function in this header, not in cuda-sys"),
    ] {
        let faults = vec![format!("{name}: {line}")];
        for version in [ours.version, 12_040] {
            assert_eq!(with_wrong(version, kind, name, 99).faults, faults);
        }
    }
}

#[test]
fn a_header_of_the_same_version_has_every_binding() {
    let ours = Api::of_cuda_sys();
    let mut header = ours.clone();
    header.facts.remove(&(Kind::Function, "cuInit".to_owned()));
    let faults = compare(&header, &ours, &[Kind::Function]).faults;
    assert_eq!(faults, ["cuInit: Function in cuda-sys, not in this header"]);
}

#[test]
fn an_exception_applies_to_its_change_and_versions_only() {
    let record = |version, size| with_wrong(version, Kind::Size, "CUdevSmResource_st", size).faults;
    assert!(record(13_030, 16).is_empty());
    assert_eq!(record(13_040, 16).len(), 1);
    assert_eq!(record(13_030, 24).len(), 1);
}

#[test]
fn a_newer_header_may_only_add_names() {
    let found = with_wrong(99_000, Kind::Function, "cuNever", 0);
    assert_eq!((found.faults.len(), found.news), (0, vec!["Function of cuNever".to_owned()]));
    assert_eq!(with_wrong(99_000, Kind::Size, "CUuuid_st", 8).faults.len(), 1);
}
