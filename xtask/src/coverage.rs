//! `cargo xtask coverage`: COVERAGE.md, what of the driver's API has a safe form in `cuda-safe`.
//!
//! The functions come from the rows of cuda-sys, their safe items from the `doc(alias)`es of
//! cuda-safe, and the reasons for what is missing from `xtask/coverage.toml`; so do the items of the
//! fields and values of some types. An item with such an alias has to link to the raw function. The
//! statements of the documents that this project began from are in `xtask/seeds/`.

mod seeds;
mod sources;
mod values;

use crate::generated::{Generated, settle};
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use cuda_sys::Function;
use serde::Deserialize;
use sources::{PRIVATE, Sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

const PAGES: &str = "https://docs.nvidia.com/cuda/cuda-driver-api";

/// What `xtask/coverage.toml` says.
#[derive(Deserialize)]
struct Notes {
    /// NVIDIA's chapters in the order of the report: the name in links, the title.
    groups: Vec<(String, String)>,
    /// Base name, or pattern → why there is no safe item. The longest that fits counts.
    reasons: BTreeMap<String, String>,
    /// Chapter → its types, with the items of their parts.
    types: BTreeMap<String, values::Notes>,
    /// Parameters that options become.
    parameters: values::Parameters,
    /// What no argument has, with the reason.
    own: BTreeMap<String, String>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let check = match args {
        [] => false,
        [flag] if flag == "--check" => true,
        _ => bail!("coverage takes nothing but --check"),
    };
    let notes = fs::read_to_string(root().join("xtask/coverage.toml"))
        .context("reading xtask/coverage.toml")?;
    let notes: Notes = toml::from_str(&notes).context("reading xtask/coverage.toml")?;
    let mut sources = Sources::default();
    sources.read(&root().join("cuda-safe/src/lib.rs"), Some(""))?;
    check_links(&sources)?;
    let types = parts(&notes, &sources)?;
    let mut text = render(&notes.groups, &rows(&sources, &notes.reasons)?, &types)?;
    text.push_str(&seeds::render()?);

    let path = root().join("COVERAGE.md");
    settle(&[Generated { path, text }], check, "coverage")
}

/// Chapter → the rows of its types' fields and values, and of parameters.
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

/// Each item that names a function of the driver links to the raw one, whose page has the link to
/// NVIDIA's. (That the links lead somewhere, rustdoc checks.)
fn check_links(sources: &Sources) -> Result<()> {
    for (function, item) in &sources.unlinked {
        let item = item.trim_start_matches(PRIVATE);
        eprintln!(
            "{item} has the alias {function}, and no link like [`{function}`](fn@cuda_sys::{function})"
        );
    }
    let count = sources.unlinked.len();
    ensure!(
        count == 0,
        "{count} links to raw functions are missing in cuda-safe"
    );
    Ok(())
}

/// Where a function stands.
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

/// The default API with what the safe layer has of it.
fn rows(sources: &Sources, reasons: &BTreeMap<String, String>) -> Result<Vec<Row>> {
    let functions = default_api()?;
    let mut items: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (alias, item) in &sources.aliases {
        let known = functions
            .iter()
            .any(|(function, ..)| function.base() == alias);
        ensure!(known, "{item} has the alias {alias}, which is no base name");
        let (head, rest) = item.split_once("::").unwrap_or((item, ""));
        let Some(module) = sources.public.get(head) else {
            // rustdoc shows nothing of it, so the function counts as used inside.
            let item = item.trim_start_matches(PRIVATE);
            eprintln!("{item} is not public: its alias {alias} tells nobody anything");
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
        rows.push(Row {
            function,
            group,
            state,
        });
    }
    ensure!(
        unexplained.is_empty(),
        "no safe item, and no reason in xtask/coverage.toml: {}",
        unexplained.join(", ")
    );
    ensure!(
        idle.is_empty(),
        "reasons in xtask/coverage.toml for nothing that lacks a safe item: {}",
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
        // A whole name counts before any pattern.
        .max_by_key(|(pattern, _)| (!pattern.contains('*'), pattern.len()))
        .map(|(pattern, reason)| (pattern.as_str(), reason.as_str()))
}

/// The functions at the root of cuda-sys, each with NVIDIA's chapter (empty where there is none) and its
/// row, with the parameters.
fn default_api() -> Result<Vec<(Function, String, String)>> {
    let path = "cuda-sys/src/bindings/functions.rs";
    let text = fs::read_to_string(root().join(path)).with_context(|| format!("reading {path}"))?;
    let mut functions = Vec::new();
    let mut group = String::new();
    for line in text.lines().map(str::trim) {
        if let Some((_, link)) = line.split_once("/group__") {
            group = link.split(".html").next().unwrap_or_default().to_owned();
        }
        // A row is its place in the table, the symbol and the parameters.
        let symbol = match line.split_once(' ') {
            Some((place, row)) if place.parse::<usize>().is_ok() => row.split('(').next(),
            _ => continue,
        };
        let function = symbol
            .and_then(Function::find)
            .with_context(|| format!("{path} has a row that cuda-sys does not know: {line}"))?;
        functions.push((function, std::mem::take(&mut group), line.to_owned()));
    }
    ensure!(!functions.is_empty(), "{path} has no rows");
    Ok(functions)
}

/// A line of the totals: functions, wrapped, used inside, missing.
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
        ensure!(
            !rows.is_empty(),
            "the group {group} of xtask/coverage.toml has no function"
        );
        chapters.push((group, title, rows));
    }
    for Row {
        function, group, ..
    } in rows
    {
        let known = groups.iter().any(|(name, _)| name == group);
        ensure!(
            known,
            "{function:?} is of the group {group:?}, not in xtask/coverage.toml"
        );
    }

    for group in types.keys() {
        let known = groups.iter().any(|(name, _)| name == group);
        ensure!(known, "xtask/coverage.toml has types of no group: {group}");
    }

    let [all, wrapped, inside, missing] = totals(rows);
    let mut out = format!(
        "<!-- @generated by `cargo xtask coverage`. Do not edit. -->

# Coverage

What of the CUDA driver API has a safe form in `cuda-safe`, and why the rest has none yet. Of the
{all} functions **{wrapped} are wrapped**, {inside} more are used inside, {missing} are not wrapped.
`cuda-sys` has them all.

These are the functions at the root of `cuda-sys`, the default API of its headers. Older ABIs
(`cuda_sys::abi`) and the variants for the per-thread default stream (`cuda_sys::ptds`) are left
out: they are other forms of the same functions.

- *Function* is the name in NVIDIA's documentation, *symbol* the one in the driver.
- *Since* is the first CUDA version whose driver has the symbol.
- An item of `cuda-safe` stands in `code`; it has the function as an alias in its documentation.
  Of two symbols with one function name, both count as wrapped.
- *used inside*: the safe layer calls it, and has no item for it.
- Anything else is the reason why there is no safe item.
- (answer): a value that the driver answers, and that nothing passes to it. `tests/sim/arguments` shows
  every other field, value and parameter in the arguments of a call.

The reasons, the order of the groups and the items of fields, values and parameters are in
`xtask/coverage.toml`, all else is read from the sources. The last section, [The seeds](#the-seeds), has
the statements of the documents that this project began from, each with its tests.

| Group | Functions | Wrapped | Used inside | Not wrapped |
|---|--:|--:|--:|--:|
"
    );
    for (_, title, rows) in &chapters {
        let [all, wrapped, inside, missing] = totals(rows.iter().copied());
        writeln!(
            out,
            "| {title} | {all} | {wrapped} | {inside} | {missing} |"
        )?;
    }
    writeln!(
        out,
        "| **All** | {all} | {wrapped} | {inside} | {missing} |"
    )?;

    for (group, title, rows) in chapters {
        writeln!(out, "\n## {title}\n")?;
        if !group.is_empty() {
            writeln!(out, "[NVIDIA's page]({PAGES}/group__{group}.html)\n")?;
        }
        writeln!(
            out,
            "| Function | Symbol | Since | Safe item, or why there is none |"
        )?;
        writeln!(out, "|---|---|---|---|")?;
        for Row {
            function, state, ..
        } in rows
        {
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
                "\nThe fields, flags and values of its types, and parameters that options become:\n\n\
                 | Type or function | Field, value or parameter | Safe item, or why there is none |\n\
                 |---|---|---|\n{types}"
            )?;
        }
    }
    Ok(out)
}
