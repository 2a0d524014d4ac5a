//! Generates the table of device attributes in cuda-safe from `CUdevice_attribute`.

use crate::bindings::bind::api::Api;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The entry of an attribute in `xtask/attributes.toml`.
#[derive(Deserialize)]
pub(crate) struct Kind {
    /// The Rust type of the value.
    #[serde(rename = "type")]
    ty: String,
    /// The first CUDA version that has the attribute, if it is later than 11.7.
    since: Option<String>,
    /// The line of its documentation.
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
        let short =
            name.strip_prefix(PREFIX).with_context(|| format!("{name} has another prefix"))?;
        let Some(kind) = kinds.get(short) else {
            // It may be an older name of an attribute that has an entry under another name.
            named.entry(*value).or_insert(None);
            continue;
        };
        if let Some(Some(other)) = named.insert(*value, Some(short)) {
            bail!("{other} and {short} in xtask/attributes.toml are the same attribute");
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
            // The end marker is not an attribute.
            short.is_some() || attributes.constants.last().is_some_and(|(_, end)| *end == value),
            "xtask/attributes.toml has no entry for attribute {value}"
        );
    }
    for name in kinds.keys() {
        ensure!(
            attributes.constants.iter().any(|(known, _)| known.strip_prefix(PREFIX) == Some(name)),
            "xtask/attributes.toml has {name}, but the headers do not"
        );
    }
    text.push_str("}\n");
    Ok(text)
}

/// Converts `12.4` to 12040.
fn version_number(text: &str) -> Result<u32> {
    let (major, minor) =
        text.split_once('.').with_context(|| format!("{text} is not a version"))?;
    Ok(major.parse::<u32>()? * 1000 + minor.parse::<u32>()? * 10)
}
