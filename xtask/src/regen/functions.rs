//! What is known of each function: where it goes, since when it exists, what its page says.

use super::since::{Since, split_abi, split_mode};
use crate::bind::api::Prototype;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};

/// The module of `cuda-sys` that a function lives in.
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
    /// As `cuDriverGetVersion` counts: 12040 is 12.4.
    pub(crate) since: u32,
    /// The lines of the documentation.
    pub(crate) docs: Vec<String>,
}

/// Describes all functions, sorted by symbol.
pub(crate) fn describe<'a>(
    prototypes: &'a [Prototype],
    default: &BTreeSet<String>,
    since: &Since,
    groups: &BTreeMap<String, String>,
    docs: &BTreeMap<String, String>,
) -> Result<Vec<Function<'a>>> {
    let since = assign(prototypes, since)?;
    let current: BTreeMap<&str, &str> = default
        .iter()
        .map(|symbol| (split_abi(symbol).0, symbol.as_str()))
        .collect();
    let mut functions = Vec::new();
    for prototype in prototypes {
        let symbol = prototype.name.as_str();
        let (plain, mode) = split_mode(symbol);
        let (base, _) = split_abi(plain);
        let place = match mode {
            "" if default.contains(symbol) => Place::Root,
            "" => Place::Abi,
            _ => Place::Ptds,
        };
        let text = docs
            .get(base)
            .with_context(|| format!("xtask/docs.toml says nothing of {base}"))?;
        let since = since[symbol];
        let mut lines = match place {
            Place::Root => vec![text.clone()],
            Place::Abi => vec![format!("An older ABI of `{base}`. {text}")],
            Place::Ptds => vec![format!(
                "`{base}` with the calling thread's own default stream. {text}"
            )],
        };
        lines.push(String::new());
        let mut last = format!("Since CUDA {}.{}.", since / 1000, since % 1000 / 10);
        if let Some(current) = current.get(base).filter(|_| place != Place::Root) {
            last += &format!(" See [`{current}`](fn@crate::{current}).");
        }
        if let Some(group) = groups.get(base) {
            last += &format!(
                " [NVIDIA's page](https://docs.nvidia.com/cuda/cuda-driver-api/group__{}.html)",
                group.replace('_', "__")
            );
        }
        lines.push(last);
        functions.push(Function {
            prototype,
            place,
            base,
            since,
            docs: lines,
        });
    }
    functions.sort_by(|a, b| a.prototype.name.cmp(&b.prototype.name));
    Ok(functions)
}

/// Pairs the ABIs of each base name with the versions of its function-pointer types: both are in
/// the order of their appearance, and there are as many of one as of the other.
fn assign<'a>(prototypes: &'a [Prototype], since: &Since) -> Result<BTreeMap<&'a str, u32>> {
    let mut abis: BTreeMap<(String, &str), Vec<(u32, &str)>> = BTreeMap::new();
    for prototype in prototypes {
        let (plain, mode) = split_mode(&prototype.name);
        let (base, abi) = split_abi(plain);
        abis.entry((base.to_owned(), mode))
            .or_default()
            .push((abi, &prototype.name));
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
