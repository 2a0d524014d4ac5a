//! The fields, flags and values of a chapter's types, each with its item of cuda-safe.
//!
//! Which there are is read from the bindings; the items are listed in `xtask/coverage.toml`, and have to
//! be there.

use super::sources::Sources;
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use syn::Item;

/// Type → its part → the item, or in parentheses why there is none.
pub(super) type Notes = BTreeMap<String, BTreeMap<String, String>>;

/// The table of a chapter's types.
pub(super) fn render(notes: &Notes, sources: &Sources) -> Result<String> {
    let known = of_bindings()?;
    let mut out = String::from(
        "| Type | Field or value | Safe item, or why there is none |\n|---|---|---|\n",
    );
    for (ty, items) in notes {
        let parts = known.get(ty).with_context(|| {
            format!("xtask/coverage.toml has a type {ty}, the bindings have not")
        })?;
        let gone: Vec<&String> = items.keys().filter(|part| !parts.contains(part)).collect();
        ensure!(
            gone.is_empty(),
            "xtask/coverage.toml has parts of {ty} that the bindings have not: {gone:?}"
        );
        for part in parts {
            let Some(item) = items.get(part) else {
                bail!("{ty}::{part} has no item, and no reason, in xtask/coverage.toml");
            };
            let safe = match item.strip_prefix('(').and_then(|why| why.strip_suffix(')')) {
                Some(why) => why.to_owned(),
                None => {
                    check(item, sources).with_context(|| format!("the item of {ty}::{part}"))?;
                    format!("`{item}`")
                }
            };
            writeln!(out, "| `{ty}` | `{part}` | {safe} |")?;
        }
    }
    Ok(out)
}

/// Whether users can write it.
fn check(item: &str, sources: &Sources) -> Result<()> {
    let (ty, member) = item
        .rsplit_once("::")
        .context("is no member of a type, as `green::SmResource::sm_count` is")?;
    let (module, name) = match ty.rsplit_once("::") {
        Some((module, name)) => (format!("{module}::"), name),
        None => (String::new(), ty),
    };
    let public = sources.public.get(name) == Some(&module);
    ensure!(public, "{ty} is not public");
    let is_there = sources.members.contains(&format!("{name}::{member}"));
    ensure!(is_there, "{ty} has no public {member}");
    Ok(())
}

/// The parts of all types that have some: fields, and the names of values. Types go by the names that
/// C has for them.
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
        // What has no name in C, and what nobody sees into.
        let parts: Vec<String> = named.filter(|name| !name.starts_with('_')).collect();
        if !parts.is_empty() {
            let name = ident.strip_suffix("_st").unwrap_or(&ident);
            all.insert(name.to_owned(), parts);
        }
    }
    // One macro call: a head for each type, and a line for each value.
    let mut open: Option<(String, Vec<String>)> = None;
    for line in read("enums")?.lines().map(str::trim) {
        let head = ["flags ", "values "]
            .iter()
            .find_map(|kind| line.strip_prefix(kind));
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
