//! Describes each function: its module, the first version that has it, and its documentation.

use super::since::{Since, split_abi, split_mode};
use crate::bindings::bind::api::{Prototype, type_name};
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};

/// The module of `cuda-sys` that contains a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The newest default API, at the root of the crate.
    Root,
    /// Older ABIs.
    Abi,
    /// Variants for the per-thread default stream.
    Ptds,
}

pub(crate) struct Function<'a> {
    pub(crate) prototype: &'a Prototype,
    pub(crate) place: Place,
    pub(crate) base: &'a str,
    /// In the encoding of `cuDriverGetVersion`: 12040 is 12.4.
    pub(crate) since: u32,
    pub(crate) docs: String,
}

/// The texts for the documentation.
pub(crate) struct Texts<'a> {
    /// `xtask/docs.toml`: the first line of each base name.
    pub(crate) lines: &'a BTreeMap<String, String>,
    /// `xtask/overrides.toml`: more paragraphs of some symbols.
    pub(crate) more: &'a BTreeMap<String, String>,
    /// NVIDIA's chapter of each base name.
    pub(crate) groups: &'a BTreeMap<String, String>,
}

/// Describes all functions, sorted by symbol.
pub(crate) fn describe<'a>(
    prototypes: &'a [Prototype],
    default: &BTreeSet<String>,
    since: &Since,
    texts: &Texts,
) -> Result<Vec<Function<'a>>> {
    let since = assign(prototypes, since)?;
    let mut functions = Vec::new();
    for prototype in prototypes {
        let symbol = prototype.name.as_str();
        ensure!(type_name(&prototype.output)? == "CUresult", "{symbol} does not return a CUresult");
        let (plain, mode) = split_mode(symbol);
        let (base, _) = split_abi(plain);
        let place = match mode {
            "" if default.contains(symbol) => Place::Root,
            "" => Place::Abi,
            _ => Place::Ptds,
        };
        let line = texts
            .lines
            .get(base)
            .with_context(|| format!("xtask/docs.toml has no entry for {base}"))?;
        let mut docs = match place {
            Place::Root => format!("{line}\n\n"),
            Place::Abi => format!("An older ABI of `{base}`. {line}\n\n"),
            Place::Ptds => format!("`{base}` with the per-thread default stream. {line}\n\n"),
        };
        if let Some(more) = texts.more.get(symbol) {
            docs += &format!("{}\n\n", more.trim());
        }
        docs += &versions(symbol, place, default, &since);
        if let Some(group) = texts.groups.get(base) {
            docs += &format!(
                " [NVIDIA's page](https://docs.nvidia.com/cuda/cuda-driver-api/group__{}.html)",
                group.replace('_', "__")
            );
        }
        functions.push(Function { prototype, place, base, since: since[symbol], docs });
    }
    functions.sort_by(|a, b| a.prototype.name.cmp(&b.prototype.name));
    Ok(functions)
}

/// Returns since when drivers have a function and its older or newest version, as sentences with links.
fn versions(
    symbol: &str,
    place: Place,
    default: &BTreeSet<String>,
    since: &BTreeMap<&str, u32>,
) -> String {
    let version = |symbol: &str| {
        let since = since[symbol];
        format!("CUDA {}.{}", since / 1000, since % 1000 / 10)
    };
    let (plain, mode) = split_mode(symbol);
    let (base, abi) = split_abi(plain);
    let mut text = format!("Since {}.", version(symbol));

    // A few base names have two functions in the default API, for example `cuCtxSynchronize_v2`, which
    // takes a context.
    let same = default.get(plain);
    let current = same.or_else(|| default.iter().rfind(|other| split_abi(other).0 == base));
    match (place, current) {
        (Place::Abi, Some(current)) => {
            let of_current = version(current);
            text += &format!(
                " The newest version is [`{current}`](fn@crate::{current}), since {of_current}."
            );
        }
        (Place::Ptds, Some(current)) => {
            text += &format!(" See [`{current}`](fn@crate::{current}).");
        }
        _ => {}
    }

    if place == Place::Abi {
        return text;
    }
    let mut older: Vec<(u32, &str)> = since
        .iter()
        .filter(|(_, version)| **version < since[symbol])
        .map(|(other, _)| (split_mode(other), *other))
        .filter(|((_, of_other), _)| *of_other == mode)
        .map(|((plain, _), other)| (split_abi(plain), other))
        .filter(|((of_other, number), _)| *of_other == base && *number < abi)
        .map(|((_, number), other)| (number, other))
        .collect();
    older.sort_unstable();
    let links: Vec<String> = older
        .into_iter()
        .map(|(_, other)| {
            let module = match place {
                Place::Ptds => "ptds::",
                _ if default.contains(other) => "",
                _ => "abi::",
            };
            let since = version(other);
            format!("[`{module}{other}`](fn@crate::{module}{other}) since {since}")
        })
        .collect();
    match links.len() {
        0 => {}
        1 => text += &format!(" Older drivers have an older version: {}.", links[0]),
        _ => text += &format!(" Older drivers have older versions: {}.", links.join(", ")),
    }
    text
}

/// Pairs the ABIs of each base name with the versions of its function-pointer types. Both are in the
/// order of their introduction, and there must be the same number of both.
fn assign<'a>(prototypes: &'a [Prototype], since: &Since) -> Result<BTreeMap<&'a str, u32>> {
    let mut abis: BTreeMap<(String, &str), Vec<(u32, &str)>> = BTreeMap::new();
    for prototype in prototypes {
        let (plain, mode) = split_mode(&prototype.name);
        let (base, abi) = split_abi(plain);
        abis.entry((base.to_owned(), mode)).or_default().push((abi, &prototype.name));
    }
    let mut assigned = BTreeMap::new();
    for ((base, mode), mut symbols) in abis {
        symbols.sort_unstable();
        let versions = since
            .get(&(base.clone(), mode))
            .with_context(|| format!("no function-pointer type for {base}{mode}"))?;
        ensure!(
            versions.len() == symbols.len(),
            "{base}{mode} has {} symbols and {} function-pointer types",
            symbols.len(),
            versions.len()
        );
        for ((_, symbol), version) in symbols.into_iter().zip(versions) {
            assigned.insert(symbol, *version);
        }
    }
    Ok(assigned)
}
