//! The safe layer's table of device attributes, from `CUdevice_attribute`.

use crate::bind::api::Api;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What `xtask/attributes.toml` says of an attribute.
#[derive(Deserialize)]
pub(crate) struct Kind {
    /// The Rust type that it is read as.
    #[serde(rename = "type")]
    ty: String,
    /// The first CUDA version that knows it, where that is later than 11.7.
    since: Option<String>,
    /// One line for its documentation.
    doc: String,
}

const PREFIX: &str = "CU_DEVICE_ATTRIBUTE_";

pub(crate) fn render(api: &Api, kinds: &BTreeMap<String, Kind>) -> Result<String> {
    let attributes = api
        .enums
        .iter()
        .find(|item| item.name == "CUdevice_attribute")
        .context("the headers have no CUdevice_attribute")?;
    let mut text = String::from("attributes! {\n");
    let mut named = BTreeMap::new();
    for (name, value) in &attributes.constants {
        let short = name
            .strip_prefix(PREFIX)
            .with_context(|| format!("{name} has another prefix"))?;
        let Some(kind) = kinds.get(short) else {
            // Perhaps an older name of a number that has an entry under another.
            named.entry(*value).or_insert(None);
            continue;
        };
        if let Some(Some(other)) = named.insert(*value, Some(short)) {
            bail!("xtask/attributes.toml has {other} and {short}, which are one attribute");
        }
        let since = match &kind.since {
            Some(version) => version_number(version)?,
            None => 0,
        };
        let _ = writeln!(text, "    /// {}", kind.doc);
        let _ = writeln!(text, "    #[doc(alias = \"{name}\")]");
        let _ = writeln!(text, "    {short}: {} = {name}, {since};", kind.ty);
    }
    for (value, short) in named {
        ensure!(
            // The end marker is no attribute.
            short.is_some()
                || attributes
                    .constants
                    .last()
                    .is_some_and(|(_, end)| *end == value),
            "xtask/attributes.toml says nothing of attribute {value}"
        );
    }
    for name in kinds.keys() {
        ensure!(
            attributes
                .constants
                .iter()
                .any(|(known, _)| known.strip_prefix(PREFIX) == Some(name)),
            "xtask/attributes.toml has {name}, and the headers do not"
        );
    }
    text.push_str("}\n");
    Ok(text)
}

/// `12.4` → 12040.
fn version_number(text: &str) -> Result<u32> {
    let (major, minor) = text
        .split_once('.')
        .with_context(|| format!("{text} is no version"))?;
    Ok(major.parse::<u32>()? * 1000 + minor.parse::<u32>()? * 10)
}
