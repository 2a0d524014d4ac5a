//! `cargo xtask coverage`: writes COVERAGE.md, the coverage of the driver API by `cuda-safe`.
//!
//! The functions are the rows of cuda-sys, and their safe items are the items of cuda-safe that have
//! them as `doc(alias)`. The reasons why a function has no safe item are in `xtask/coverage.toml`, and
//! so are the items for the fields and values of some types. An item with such an alias must link to the
//! raw function. The page for readers who know the C names is written too, and the page for those who know cudarc's is checked. The
//! statements of the project's source documents are in `xtask/seeds/`.

mod cudarc;
mod names;
pub(crate) mod seeds;
mod sources;
mod values;

use crate::generated::{Generated, settle};
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use cuda_sys::Function;
use serde::Deserialize;
pub(crate) use sources::is_test;
use sources::{PRIVATE, Sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

const PAGES: &str = "https://docs.nvidia.com/cuda/cuda-driver-api";

/// The contents of `xtask/coverage.toml`.
#[derive(Deserialize)]
struct Notes {
    /// NVIDIA's chapters in the order of the report: the name in links, and the title.
    groups: Vec<(String, String)>,
    /// For a base name or a pattern, the reason why there is no safe item. The longest match applies.
    reasons: BTreeMap<String, String>,
    /// For each chapter, its types with the items for their parts.
    types: BTreeMap<String, values::Notes>,
    /// Parameters that options set.
    parameters: values::Parameters,
    /// Items that correspond to no parameter, with the reason.
    own: BTreeMap<String, String>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("coverage takes no arguments except --check"),
    };
    let notes = fs::read_to_string(root().join("xtask/coverage.toml"))
        .context("reading xtask/coverage.toml")?;
    let notes: Notes = toml::from_str(&notes).context("reading xtask/coverage.toml")?;
    let mut sources = Sources::default();
    sources.read(&root().join("cuda-safe/src/lib.rs"), Some(""))?;
    check_links(&sources)?;
    cudarc::check()?;
    let types = parts(&notes, &sources)?;
    let rows = rows(&sources, &notes.reasons)?;
    check_readme(&rows)?;
    let mut text = render(&notes.groups, &rows, &types)?;
    text.push_str(&seeds::render()?);

    let coverage = Generated { path: root().join("COVERAGE.md"), text };
    let names =
        Generated { path: root().join(names::PATH), text: names::render(&notes.groups, &rows)? };
    settle(&[coverage, names], check, "coverage")
}

/// Checks the number of functions in the comparison of the README.
fn check_readme(rows: &[Row]) -> Result<()> {
    let readme = fs::read_to_string(root().join("README.md")).context("reading README.md")?;
    let [all, wrapped, ..] = totals(rows);
    let row = format!("| driver functions, of {all} | {wrapped} |");
    ensure!(readme.contains(&row), "README.md needs a row that begins with {row:?}");
    Ok(())
}

/// Returns, for each chapter, the rows for the fields and values of its types and for parameters.
fn parts(notes: &Notes, sources: &Sources) -> Result<BTreeMap<String, String>> {
    let mut parts = BTreeMap::new();
    for (group, types) in &notes.types {
        parts.insert(group.clone(), values::of_types(types, sources)?);
    }
    let functions = default_api()?;
    for (symbol, items) in &notes.parameters {
        let found = functions.iter().find(|(its, ..)| its.symbol() == symbol);
        let (_, group, row) = found.with_context(|| format!("there is no function {symbol}"))?;
        let rows = values::of_parameters(symbol, row, items, sources)?;
        parts.entry(group.clone()).or_default().push_str(&rows);
    }
    let items = (notes.types.values().flat_map(BTreeMap::values)).chain(notes.parameters.values());
    values::check_choices(sources, items.flat_map(BTreeMap::values), &notes.own)?;
    Ok(parts)
}

/// Checks that each item with a driver function as alias links to the raw function, whose documentation
/// links to NVIDIA's. rustdoc checks that the links are valid.
fn check_links(sources: &Sources) -> Result<()> {
    for (function, item) in &sources.unlinked {
        let item = item.trim_start_matches(PRIVATE);
        eprintln!(
            "{item} has the alias {function} but no link like [`{function}`](fn@cuda_sys::{function})"
        );
    }
    let count = sources.unlinked.len();
    ensure!(count == 0, "{count} links to raw functions are missing in cuda-safe");
    Ok(())
}

/// The coverage of a function.
enum State {
    Wrapped(Vec<String>),
    UsedInside,
    Missing(String),
}

struct Row {
    function: Function,
    group: String,
    state: State,
}

/// Returns the functions of the default API with their coverage.
fn rows(sources: &Sources, reasons: &BTreeMap<String, String>) -> Result<Vec<Row>> {
    let functions = default_api()?;
    let mut items: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (alias, item) in &sources.aliases {
        let known = functions.iter().any(|(function, ..)| function.base() == alias);
        ensure!(known, "{item} has the alias {alias}, which is not a base name");
        let (head, rest) = item.split_once("::").unwrap_or((item, ""));
        let Some(module) = sources.public.get(head) else {
            // rustdoc does not show the item, so the function counts as used inside.
            let item = item.trim_start_matches(PRIVATE);
            eprintln!("{item} is not public, so its alias {alias} has no effect");
            continue;
        };
        let separator = if rest.is_empty() { "" } else { "::" };
        let item = format!("{module}{head}{separator}{rest}");
        items.entry(alias).or_default().push(item);
    }
    let used: BTreeSet<&str> = sources.used.iter().map(|symbol| symbol.base()).collect();

    let mut idle: BTreeSet<&str> = reasons.keys().map(String::as_str).collect();
    let mut unexplained = Vec::new();
    let mut rows = Vec::new();
    for (function, group, _) in functions {
        let base = function.base();
        let state = if let Some(items) = items.get(base) {
            State::Wrapped(items.clone())
        } else if used.contains(base) {
            State::UsedInside
        } else if let Some((pattern, reason)) = reason(reasons, base) {
            idle.remove(pattern);
            State::Missing(reason.to_owned())
        } else {
            unexplained.push(base);
            continue;
        };
        rows.push(Row { function, group, state });
    }
    ensure!(
        unexplained.is_empty(),
        "functions without a safe item and without a reason in xtask/coverage.toml: {}",
        unexplained.join(", ")
    );
    ensure!(
        idle.is_empty(),
        "unused reasons in xtask/coverage.toml: {}",
        Vec::from_iter(idle).join(", ")
    );
    Ok(rows)
}

fn reason<'a>(reasons: &'a BTreeMap<String, String>, base: &str) -> Option<(&'a str, &'a str)> {
    let fits = |pattern: &str| match pattern.split_once('*') {
        Some((start, end)) => {
            let rest = base.strip_prefix(start);
            rest.is_some_and(|rest| rest.ends_with(end))
        }
        None => pattern == base,
    };
    reasons
        .iter()
        .filter(|(pattern, _)| fits(pattern))
        // An exact name takes precedence over any pattern.
        .max_by_key(|(pattern, _)| (!pattern.contains('*'), pattern.len()))
        .map(|(pattern, reason)| (pattern.as_str(), reason.as_str()))
}

/// Returns the functions at the root of cuda-sys, each with NVIDIA's chapter (empty if there is none)
/// and its row, which contains the parameters.
fn default_api() -> Result<Vec<(Function, String, String)>> {
    let path = "cuda-sys/src/bindings/functions.rs";
    let text = fs::read_to_string(root().join(path)).with_context(|| format!("reading {path}"))?;
    let mut functions = Vec::new();
    let mut group = String::new();
    for line in text.lines().map(str::trim) {
        if let Some((_, link)) = line.split_once("/group__") {
            group = link.split(".html").next().unwrap_or_default().to_owned();
        }
        // A row consists of the index in the table, the symbol and the parameters.
        let symbol = match line.split_once(' ') {
            Some((place, row)) if place.parse::<usize>().is_ok() => row.split('(').next(),
            _ => continue,
        };
        let function = symbol
            .and_then(Function::find)
            .with_context(|| format!("{path} has a row for an unknown function: {line}"))?;
        functions.push((function, std::mem::take(&mut group), line.to_owned()));
    }
    ensure!(!functions.is_empty(), "{path} has no rows");
    Ok(functions)
}

/// Returns a line of the totals: functions, wrapped, used inside, not wrapped.
fn totals<'a>(rows: impl IntoIterator<Item = &'a Row>) -> [usize; 4] {
    let mut totals = [0; 4];
    for row in rows {
        totals[0] += 1;
        totals[match row.state {
            State::Wrapped(_) => 1,
            State::UsedInside => 2,
            State::Missing(_) => 3,
        }] += 1;
    }
    totals
}

fn render(
    groups: &[(String, String)],
    rows: &[Row],
    types: &BTreeMap<String, String>,
) -> Result<String> {
    let mut chapters = Vec::new();
    for (group, title) in groups {
        let rows = Vec::from_iter(rows.iter().filter(|row| row.group == *group));
        ensure!(!rows.is_empty(), "the group {group} in xtask/coverage.toml has no functions");
        chapters.push((group, title, rows));
    }
    for Row { function, group, .. } in rows {
        let known = groups.iter().any(|(name, _)| name == group);
        ensure!(known, "the group {group:?} of {function:?} is not in xtask/coverage.toml");
    }

    for group in types.keys() {
        let known = groups.iter().any(|(name, _)| name == group);
        ensure!(known, "xtask/coverage.toml has types for an unknown group: {group}");
    }

    let [all, wrapped, inside, missing] = totals(rows);
    let mut out = format!(
        "<!-- @generated by `cargo xtask coverage`. Do not edit. -->

# Coverage

This file lists the functions of the CUDA driver API, each with its safe items in `cuda-safe` or the
reason why there is none. Of the {all} functions **{wrapped} are wrapped**, {inside} more are used inside,
{missing} are not wrapped. `cuda-sys` has all of them.

The functions are those at the root of `cuda-sys`, the default API of its headers. Older ABIs
(`cuda_sys::abi`) and the variants for the per-thread default stream (`cuda_sys::ptds`) are omitted,
because they are other forms of the same functions.

- *Function* is the name in NVIDIA's documentation, *symbol* the name in the driver.
- *Since* is the first CUDA version whose driver has the symbol.
- An item of `cuda-safe` is printed as `code`. Its documentation has the function as an alias. If two
  symbols have the same function name, both count as wrapped.
- *used inside*: `cuda-safe` calls the function but has no item for it.
- Any other text is the reason why there is no safe item.
- (answer): a value that the driver returns and that is never passed to it. For every other field, value
  and parameter, `tests/sim/arguments` checks the arguments of a call.

The reasons, the order of the groups, and the items for fields, values and parameters are in
`xtask/coverage.toml`. Everything else is extracted from the sources. The last section,
[The seeds](#the-seeds), lists the statements of the project's source documents, each with its tests.

| Group | Functions | Wrapped | Used inside | Not wrapped |
|---|--:|--:|--:|--:|
"
    );
    for (_, title, rows) in &chapters {
        let [all, wrapped, inside, missing] = totals(rows.iter().copied());
        writeln!(out, "| {title} | {all} | {wrapped} | {inside} | {missing} |")?;
    }
    writeln!(out, "| **All** | {all} | {wrapped} | {inside} | {missing} |")?;

    for (group, title, rows) in chapters {
        writeln!(out, "\n## {title}\n")?;
        if !group.is_empty() {
            writeln!(out, "[NVIDIA's page]({PAGES}/group__{group}.html)\n")?;
        }
        writeln!(out, "| Function | Symbol | Since | Safe item, or the reason for its absence |")?;
        writeln!(out, "|---|---|---|---|")?;
        for Row { function, state, .. } in rows {
            let (base, symbol, since) = (function.base(), function.symbol(), function.since());
            let safe = match state {
                State::Wrapped(items) => format!("`{}`", items.join("`, `")),
                State::UsedInside => "*used inside*".to_owned(),
                State::Missing(reason) => reason.clone(),
            };
            writeln!(out, "| {base} | `{symbol}` | {since} | {safe} |")?;
        }
        if let Some(types) = types.get(group.as_str()) {
            write!(
                out,
                "\nThe fields, flags and values of its types, and parameters that options set:\n\n\
                 | Type or function | Field, value or parameter | Safe item, or the reason for its absence |\n\
                 |---|---|---|\n{types}"
            )?;
        }
    }
    Ok(out)
}
