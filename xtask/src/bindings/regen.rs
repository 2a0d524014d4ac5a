//! `cargo xtask regen-bindings`: generates files of the crates from NVIDIA's headers.

mod attributes;
mod compilers;
mod functions;
mod groups;
mod nccl;
mod render;
mod since;

use crate::bindings::bind::api::{Api, parse};
use crate::bindings::bind::clang::{Reading, bind};
use crate::generated::{Generated, settle};
use crate::install::headers;
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The contents of `xtask/overrides.toml`.
#[derive(Deserialize)]
struct Overrides {
    /// Enums that are sets of bits although their names do not end in `_flags`. The value of an entry is
    /// its reason.
    flags: BTreeMap<String, String>,
    /// Enums whose values must not be ignored. The value of an entry is the compiler's message.
    must_use: BTreeMap<String, String>,
    /// Documentation of enums, of macros, and of functions in addition to their line in `xtask/docs.toml`.
    docs: BTreeMap<String, String>,
}

impl Overrides {
    /// Checks that the headers have every name.
    fn check(&self, api: &Api) -> Result<()> {
        let enums = api.enums.iter().map(|item| item.name.as_str());
        let enums: BTreeSet<&str> = enums.collect();
        let macros = api.constants.iter().map(|item| item.name.as_str());
        let functions = api.functions.iter().map(|item| item.name.as_str());
        let all = enums.iter().copied().chain(macros).chain(functions);
        let all: BTreeSet<&str> = all.collect();
        for (section, names, known) in [
            ("flags", &self.flags, &enums),
            ("must_use", &self.must_use, &enums),
            ("docs", &self.docs, &all),
        ] {
            for name in names.keys() {
                ensure!(
                    known.contains(name.as_str()),
                    "xtask/overrides.toml names {name} under [{section}], but the headers do not"
                );
            }
        }
        Ok(())
    }
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let mut check = false;
    let mut header = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--check" => check = true,
            "--header" => header = Some(args.next().context("--header needs a folder")?),
            other => bail!("unknown argument of regen-bindings: {other}"),
        }
    }
    headers::provide_libclang()?;
    let [include, compilers, nccl] = match header {
        Some(folder) => [(); 3].map(|()| PathBuf::from(&folder)),
        None => [
            headers::fetch(headers::versions()?.first().context("no headers pinned")?)?,
            headers::provide_compilers()?.join("include"),
            headers::provide_nccl()?.join("include"),
        ],
    };
    let mut files = generate(&include)?;
    files.extend(compilers::generate(&compilers)?);
    files.extend(nccl::generate(&nccl)?);
    settle(&files, check, "regen-bindings")
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
    overrides.check(&api)?;
    let texts = functions::Texts { lines: &docs, more: &overrides.docs, groups: &groups };
    let functions = functions::describe(&api.functions, &default, &since, &texts)?;

    let version = header_version(&api)?;
    let bindings = root.join("cuda-sys/src/bindings");
    let file = |name: &str, text: String| Generated {
        path: bindings.join(name),
        text: render::marked(&version, &text),
    };
    Ok(vec![
        file("enums.rs", render::enums(&api, &overrides)),
        file("macros.rs", render::macros(&api, &overrides.docs)),
        file("types.rs", render::types(&api)),
        file("layouts.rs", render::layouts(&api)),
        file("table.rs", render::table(&functions)),
        file("functions.rs", render::functions(&functions, functions::Place::Root)),
        file("functions_abi.rs", render::functions(&functions, functions::Place::Abi)),
        file("functions_ptds.rs", render::functions(&functions, functions::Place::Ptds)),
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

/// Returns the product of the headers with `CUDA_VERSION` in the usual form: CUDA 13.5 for 13050.
fn header_version(api: &Api) -> Result<String> {
    let number = api
        .constants
        .iter()
        .find(|constant| constant.name == "CUDA_VERSION")
        .context("the header has no CUDA_VERSION")?
        .value;
    Ok(format!("CUDA {}.{}", number / 1000, number % 1000 / 10))
}
