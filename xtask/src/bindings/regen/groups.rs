//! The chapter of NVIDIA's reference for each function, for the link in its documentation.

use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

const HEADERS: [&str; 5] = ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h"];

/// Returns a map from base name to Doxygen group. Only the names are read.
pub(crate) fn read(include: &Path) -> Result<BTreeMap<String, String>> {
    let mut groups = BTreeMap::new();
    for header in HEADERS {
        let path = include.join(header);
        let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        let mut open: Vec<String> = Vec::new();
        for line in String::from_utf8_lossy(&text).lines() {
            if let Some((_, group)) = line.split_once("\\defgroup ") {
                open.extend(group.split_whitespace().next().map(str::to_owned));
            } else if line.contains("@}") {
                open.pop();
            } else if let (Some(name), Some(group)) = (declared(line), open.last()) {
                groups.entry(name).or_insert_with(|| group.clone());
            }
        }
    }
    Ok(groups)
}

/// Returns the function that a line declares.
fn declared(line: &str) -> Option<String> {
    let (_, declaration) = line.split_once("CUDAAPI ")?;
    let (name, _) = declaration.split_once('(')?;
    Some(name.trim().to_owned())
}
