//! `cargo xtask regen-bindings`: the generated files of the crates, from NVIDIA's headers.

mod attributes;
mod functions;
mod groups;
mod render;
mod since;

use crate::bind::api::{Api, parse};
use crate::bind::clang::{Reading, bind};
use crate::generated::{Generated, settle};
use crate::{headers, root};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What `xtask/overrides.toml` says; the value of every entry is its reason.
#[derive(Deserialize)]
struct Overrides {
    /// Enums that are sets of bits without being called so.
    flags: BTreeMap<String, String>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut check = false;
    let mut header = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--check" => check = true,
            "--header" => header = Some(args.next().context("--header needs a folder")?),
            other => bail!("regen-bindings does not know {other}"),
        }
    }
    headers::provide_libclang()?;
    let include = match header {
        Some(folder) => PathBuf::from(folder),
        None => headers::fetch(headers::versions()?.first().context("no headers pinned")?)?,
    };
    settle(&generate(&include)?, check, "regen-bindings")
}

fn generate(include: &Path) -> Result<Vec<Generated>> {
    let root = root();
    let overrides: Overrides = read_toml("xtask/overrides.toml")?;
    let docs: BTreeMap<String, String> = read_toml("xtask/docs.toml")?;
    let kinds: BTreeMap<String, attributes::Kind> = read_toml("xtask/attributes.toml")?;

    let api = parse(&bind(&root, include, Reading::EveryAbi)?)?;
    let default = parse(&bind(&root, include, Reading::DefaultApi)?)?;
    let default: BTreeSet<String> = default.functions.into_iter().map(|f| f.name).collect();
    let since = since::read(include)?;
    let groups = groups::read(include)?;
    let functions = functions::describe(&api.functions, &default, &since, &groups, &docs)?;

    let version = header_version(&api)?;
    let bindings = root.join("cuda-sys/src/bindings");
    let file = |name: &str, text: String| Generated {
        path: bindings.join(name),
        text: render::marked(&version, &text),
    };
    Ok(vec![
        file("enums.rs", render::enums(&api, &overrides.flags)?),
        file("macros.rs", render::macros(&api)),
        file("types.rs", render::types(&api)),
        file("layouts.rs", render::layouts(&api)),
        file("table.rs", render::table(&functions)),
        file(
            "functions.rs",
            render::functions(&functions, functions::Place::Root),
        ),
        file(
            "functions_abi.rs",
            render::functions(&functions, functions::Place::Abi),
        ),
        file(
            "functions_ptds.rs",
            render::functions(&functions, functions::Place::Ptds),
        ),
        Generated {
            path: root.join("cuda-safe/src/device/attributes.rs"),
            text: render::marked(&version, &attributes::render(&api, &kinds)?),
        },
    ])
}

fn read_toml<T: serde::de::DeserializeOwned>(path: &str) -> Result<T> {
    let text = fs::read_to_string(root().join(path)).with_context(|| format!("reading {path}"))?;
    toml::from_str(&text).with_context(|| format!("reading {path}"))
}

/// `CUDA_VERSION` as people write it: 13050 is 13.5.
fn header_version(api: &Api) -> Result<String> {
    let number = api
        .constants
        .iter()
        .find(|constant| constant.name == "CUDA_VERSION")
        .context("the header has no CUDA_VERSION")?
        .value;
    Ok(format!("{}.{}", number / 1000, number % 1000 / 10))
}
