//! The CUDA version that introduced each symbol, from NVIDIA's `*Typedefs.h`.

use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// For each base name and stream mode, the versions of its ABIs, oldest first.
pub(crate) type Since = BTreeMap<(String, &'static str), Vec<u32>>;

/// Reads the function-pointer types: `PFN_cuMemcpyHtoD_v3020`, `PFN_cuMemcpyHtoD_v7000_ptds`.
pub(crate) fn read(include: &Path) -> Result<Since> {
    let mut since = Since::new();
    for entry in fs::read_dir(include)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if !name.is_some_and(|name| name.ends_with("Typedefs.h")) {
            continue;
        }
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        for line in String::from_utf8_lossy(&text).lines() {
            if let Some((base, version, mode)) = typedef(line) {
                since.entry((base, mode)).or_default().push(version);
            }
        }
    }
    ensure!(!since.is_empty(), "no *Typedefs.h in {}", include.display());
    for versions in since.values_mut() {
        versions.sort_unstable();
        versions.dedup();
    }
    Ok(since)
}

fn typedef(line: &str) -> Option<(String, u32, &'static str)> {
    let line = line.trim_start().strip_prefix("typedef")?;
    let name = line.split_once("PFN_")?.1;
    let name = name.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    let (name, mode) = split_mode(name);
    let (base, version) = name.rsplit_once("_v")?;
    Some((base.to_owned(), version.parse().ok()?, mode))
}

/// Splits `cuMemcpy_ptds` into (`cuMemcpy`, `_ptds`). The mode of an unsuffixed name is empty.
pub(crate) fn split_mode(name: &str) -> (&str, &'static str) {
    for mode in ["_ptsz", "_ptds"] {
        if let Some(name) = name.strip_suffix(mode) {
            return (name, mode);
        }
    }
    (name, "")
}

/// Splits `cuCtxCreate_v4` into (`cuCtxCreate`, 4). An unsuffixed name is the first ABI.
pub(crate) fn split_abi(name: &str) -> (&str, u32) {
    let split = name.rsplit_once("_v");
    let numbered = split.and_then(|(base, abi)| Some((base, abi.parse().ok()?)));
    numbered.unwrap_or((name, 1))
}
