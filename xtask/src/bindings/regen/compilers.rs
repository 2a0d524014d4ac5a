//! Generates the raw layer of `cuda-nvrtc` from nvrtc.h and nvJitLink.h.

use super::render;
use crate::bindings::bind::api::{Api, Prototype, parse};
use crate::bindings::bind::clang::bind_compilers;
use crate::generated::Generated;
use crate::root;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// An entry of `xtask/compilers.toml`.
#[derive(Deserialize)]
struct Entry {
    /// The CUDA version that introduced the function, as the symbols of the released libraries show. The
    /// headers do not have it.
    since: String,
    /// One line about the function.
    text: String,
}

/// The libraries: the `static` that opens one, the prefix of its functions, and NVIDIA's page.
const LIBRARIES: [(&str, &str, &str); 2] = [
    ("NVRTC", "nvrtc", "https://docs.nvidia.com/cuda/nvrtc/index.html"),
    ("NVJITLINK", "nvJitLink", "https://docs.nvidia.com/cuda/nvjitlink/index.html"),
];

pub(super) fn generate(include: &Path) -> Result<Vec<Generated>> {
    let api = parse(&bind_compilers(&root(), include)?)?;
    let entries: BTreeMap<String, Entry> = super::read_toml("xtask/compilers.toml")?;
    let names: BTreeSet<&str> = api.functions.iter().map(|f| f.name.as_str()).collect();
    for name in entries.keys() {
        ensure!(
            names.contains(name.as_str()),
            "xtask/compilers.toml names {name}, but the headers do not"
        );
    }
    let version = version(include)?;
    let bindings = root().join("cuda-nvrtc/src/sys/bindings");
    fs::create_dir_all(&bindings).with_context(|| format!("creating {}", bindings.display()))?;
    let file = |name: &str, text: String| Generated {
        path: bindings.join(name),
        text: render::marked(&version, &text),
    };
    let mut files = vec![
        file("enums.rs", enums(&api)),
        file("macros.rs", render::macros(&api, &BTreeMap::new())),
        file("types.rs", render::types(&api)),
        file("layouts.rs", render::layouts(&api)),
    ];
    let mut bound = 0;
    for (library, prefix, page) in LIBRARIES {
        let functions: Vec<&Prototype> =
            api.functions.iter().filter(|function| function.name.starts_with(prefix)).collect();
        bound += functions.len();
        let name = format!("{}.rs", library.to_lowercase());
        files.push(file(&name, rows(&functions, library, page, &entries)?));
    }
    ensure!(bound == api.functions.len(), "a function of neither library");
    Ok(files)
}

fn enums(api: &Api) -> String {
    let mut text = String::from("enums! {\n");
    for item in &api.enums {
        let _ = writeln!(text, "    {}: {} {{", item.name, item.repr);
        for (name, value) in &item.constants {
            let _ = writeln!(text, "        {name} = {value},");
        }
        text.push_str("    }\n");
    }
    text.push_str("}\n");
    text
}

/// Renders the functions of one library.
fn rows(
    functions: &[&Prototype],
    library: &str,
    page: &str,
    entries: &BTreeMap<String, Entry>,
) -> Result<String> {
    let mut text = format!("functions! {{\n    in {library};\n\n");
    for function in functions {
        let name = &function.name;
        let entry = entries
            .get(name)
            .with_context(|| format!("xtask/compilers.toml has no entry for {name}"))?;
        let (major, minor) = entry
            .since
            .split_once('.')
            .with_context(|| format!("{name}: {:?} is not a version", entry.since))?;
        let params: Vec<String> = function
            .params
            .iter()
            .map(|(name, ty)| format!("{name}: {}", render::type_text(ty)))
            .collect();
        let _ = writeln!(
            text,
            "    /// {}\n    ///\n    /// Since CUDA {}. [NVIDIA's page]({page})\n    \
             ({major}, {minor}) {name}({}) -> {};\n",
            entry.text,
            entry.since,
            params.join(", "),
            render::type_text(&function.output)
        );
    }
    text.push_str("}\n");
    Ok(text)
}

/// Returns the version of the headers, for example 13.5. Only the names of the symbols that nvJitLink.h
/// declares have it.
fn version(include: &Path) -> Result<String> {
    let path = include.join("nvJitLink.h");
    let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let after = text.split_once("__nvJitLinkCreate_").map(|(_, rest)| rest);
    let version = after.and_then(|rest| rest.split([' ', '(']).next());
    let version = version.with_context(|| format!("no version in {}", path.display()))?;
    Ok(version.replace('_', "."))
}
