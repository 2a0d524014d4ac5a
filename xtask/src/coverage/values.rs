//! The fields, flags and values of a chapter's types, each with its item of cuda-safe; and in the other
//! direction the choices of users, each with its field, value or parameter.
//!
//! The types are read from the bindings and from the sources of cuda-safe. `xtask/coverage.toml` lists
//! the correspondence and must be complete.

use super::sources::Sources;
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use syn::Item;

/// For each type and each of its parts, the item, or the reason in parentheses why there is none.
pub(super) type Notes = BTreeMap<String, BTreeMap<String, String>>;

/// For each function and each of its parameters that an option sets, the item.
pub(super) type Parameters = BTreeMap<String, BTreeMap<String, String>>;

/// The suffix of an item for a value that the driver returns and that is never passed to it.
const ANSWER: &str = " (answer)";

/// Returns the rows for a chapter's types.
pub(super) fn of_types(notes: &Notes, sources: &Sources) -> Result<String> {
    let known = of_bindings()?;
    let mut out = String::new();
    for (ty, items) in notes {
        let parts = known.get(ty).with_context(|| {
            format!("xtask/coverage.toml has a type {ty} that the bindings do not have")
        })?;
        let gone: Vec<&String> = items.keys().filter(|part| !parts.contains(part)).collect();
        ensure!(
            gone.is_empty(),
            "xtask/coverage.toml has parts of {ty} that the bindings do not have: {gone:?}"
        );
        for part in parts {
            let Some(item) = items.get(part) else {
                bail!("{ty}::{part} has neither an item nor a reason in xtask/coverage.toml");
            };
            let safe = match item.strip_prefix('(').and_then(|why| why.strip_suffix(')')) {
                Some(why) => why.to_owned(),
                None => {
                    in_code(item, sources).with_context(|| format!("the item of {ty}::{part}"))?
                }
            };
            writeln!(out, "| `{ty}` | `{part}` | {safe} |")?;
        }
    }
    Ok(out)
}

/// Returns the rows for a function's parameters.
pub(super) fn of_parameters(
    function: &str,
    row: &str,
    items: &BTreeMap<String, String>,
    sources: &Sources,
) -> Result<String> {
    let mut out = String::new();
    for (name, item) in items {
        let is_there = row.contains(&format!("({name}:")) || row.contains(&format!(" {name}:"));
        ensure!(is_there, "{function} has no parameter {name}");
        let safe =
            in_code(item, sources).with_context(|| format!("the item of {function}.{name}"))?;
        writeln!(out, "| `{function}` | `{name}` | {safe} |")?;
    }
    Ok(out)
}

/// Formats items for the report.
fn in_code(items: &str, sources: &Sources) -> Result<String> {
    let (items, answer) = match items.strip_suffix(ANSWER) {
        Some(items) => (items, ANSWER),
        None => (items, ""),
    };
    for item in items.split(", ") {
        check(item, sources)?;
    }
    Ok(format!("`{}`{answer}", items.replace(", ", "`, `")))
}

/// Checks that every value, flag and field that users can choose corresponds to a value, field or
/// parameter of the driver, or has a reason, and that every reason is needed.
pub(super) fn check_choices<'a>(
    sources: &Sources,
    items: impl Iterator<Item = &'a String>,
    own: &BTreeMap<String, String>,
) -> Result<()> {
    let without_answer = |items: &'a String| items.strip_suffix(ANSWER).unwrap_or(items);
    let known: BTreeSet<&str> = items.flat_map(|items| without_answer(items).split(", ")).collect();
    let fits = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    };
    let (mut idle, mut missing) = (BTreeSet::from_iter(own.keys()), Vec::new());
    for (ty, members) in &sources.choices {
        let path = sources.path(ty);
        for member in members {
            let member = format!("{path}::{member}");
            // `Other` is for values that newer drivers return; names with `_` are for structs that may
            // grow.
            let is_plain = !member.ends_with("::Other") && !member.contains("::_");
            if !is_plain || known.contains(member.as_str()) {
                continue;
            }
            let reasons: Vec<_> =
                own.keys().filter(|own| fits(own, &path) || fits(own, &member)).collect();
            if reasons.is_empty() {
                missing.push(member);
            }
            for reason in reasons {
                idle.remove(reason);
            }
        }
    }
    ensure!(
        missing.is_empty(),
        "values, flags and fields of cuda-safe without a value, field or parameter of the driver \
         and without a reason in xtask/coverage.toml: {}",
        missing.join(", ")
    );
    ensure!(idle.is_empty(), "unused reasons of `own` in xtask/coverage.toml: {idle:?}");
    Ok(())
}

/// Checks that users can write the item.
fn check(item: &str, sources: &Sources) -> Result<()> {
    let (ty, member) = item
        .rsplit_once("::")
        .context("not a member of a type, such as `green::SmResource::sm_count`")?;
    let name = match sources.choices.contains_key(ty) {
        // A module of attributes.
        true => ty,
        false => ty.rsplit("::").next().unwrap_or(ty),
    };
    ensure!(sources.path(name) == ty, "{ty} is not public");
    let is_there = sources.members.contains(&format!("{name}::{member}"));
    ensure!(is_there, "{ty} has no public {member}");
    Ok(())
}

/// Constants without a type in C, by the prefix of their names; and the attributes of streams.
const CONSTANTS: [(&str, &str); 6] = [
    ("CU_MEMHOSTALLOC", "macros"),
    ("CU_MEMHOSTREGISTER", "macros"),
    ("CU_MEM_POOL_CREATE_USAGE", "macros"),
    ("CUDA_ARRAY3D", "macros"),
    ("CU_TRSF", "macros"),
    ("CUstreamAttrID", "constants"),
];

/// Returns the parts of all types that have parts: fields, and the names of values. Types have their C
/// names.
fn of_bindings() -> Result<BTreeMap<String, Vec<String>>> {
    let mut all = BTreeMap::new();
    let read = |name| {
        let path = format!("cuda-sys/src/bindings/{name}.rs");
        fs::read_to_string(root().join(&path)).with_context(|| format!("reading {path}"))
    };
    let types = syn::parse_file(&read("types")?).context("parsing the types of the bindings")?;
    for item in types.items {
        let (ident, fields) = match item {
            Item::Struct(item) => (item.ident, item.fields),
            _ => continue,
        };
        let ident = ident.to_string();
        let named = fields.iter().filter_map(|field| field.ident.as_ref());
        let named = named.map(ToString::to_string);
        // Parts without a name in C, and opaque parts, are left out.
        let parts: Vec<String> = named.filter(|name| !name.starts_with('_')).collect();
        if !parts.is_empty() {
            let name = ident.strip_suffix("_st").unwrap_or(&ident);
            all.insert(name.to_owned(), parts);
        }
    }
    for (ty, file) in CONSTANTS {
        let start = if ty == "CUstreamAttrID" { "CU_STREAM_ATTRIBUTE" } else { ty };
        let names = read(file)?
            .lines()
            .filter_map(|line| line.trim().split([':', ' ']).next().map(str::to_owned))
            .filter(|name| name.strip_prefix(start).is_some_and(|rest| rest.starts_with('_')))
            .collect();
        all.insert(ty.to_owned(), names);
    }
    // A macro call with a header line for each type and a line for each value.
    let mut open: Option<(String, Vec<String>)> = None;
    for line in read("enums")?.lines().map(str::trim) {
        let head = ["flags ", "values "].iter().find_map(|kind| line.strip_prefix(kind));
        if let Some((name, _)) = head.and_then(|head| head.split_once(':')) {
            open = Some((name.to_owned(), Vec::new()));
        } else if line == "}" {
            all.extend(open.take());
        } else if let (Some((_, values)), Some((name, _))) = (&mut open, line.split_once(" = ")) {
            values.push(name.to_owned());
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::{Sources, check_choices};
    use std::collections::BTreeMap;

    fn checked(items: &[&str], own: &[&str]) -> Result<(), String> {
        let mut sources = Sources::default();
        sources.visit(
            "pub enum Limit { Stack, Heap, Other(u32) }
            pub struct Options { pub urgent: bool, pub _non_exhaustive: (), inside: u32 }
            struct Private { field: u32 }
            bitflags! { pub struct Flags: u32 { const ONE = 1; const _ = !0; } }
            c_enum! { pub enum Policy = CUpolicy or Other { Auto = CU_AUTO, } }",
        );
        let items: Vec<String> = items.iter().map(|item| (*item).to_owned()).collect();
        let own = own.iter().map(|own| ((*own).to_owned(), String::new()));
        let own: BTreeMap<String, String> = own.collect();
        check_choices(&sources, items.iter(), &own).map_err(|error| error.to_string())
    }

    const ALL: [&str; 4] =
        ["Limit::Stack, Limit::Heap", "Options::urgent", "Flags::ONE (answer)", "Policy::Auto"];

    #[test]
    fn every_value_flag_and_field_needs_an_item_or_a_reason() {
        assert_eq!(checked(&ALL, &[]), Ok(()));
        for missing in ["Limit::Heap", "Options::urgent", "Flags::ONE", "Policy::Auto"] {
            let items = ALL.map(|items| items.replace(missing, "Nothing::here"));
            let items = items.each_ref().map(String::as_str);
            let error = checked(&items, &[]).expect_err("one has no item");
            assert!(error.ends_with(missing), "{error}");
            assert_eq!(checked(&items, &[missing]), Ok(()));
        }
        assert_eq!(checked(&ALL[1..], &["Limit"]), Ok(()));
        assert_eq!(checked(&ALL[1..], &["Lim*"]), Ok(()));
    }

    #[test]
    fn a_reason_that_is_not_needed_is_refused() {
        let error = checked(&ALL, &["Limit"]).expect_err("all have items");
        assert!(error.contains("Limit"), "{error}");
    }
}
