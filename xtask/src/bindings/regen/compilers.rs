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

/// An entry of `xtask/compilers.toml` or `xtask/nccl.toml`.
#[derive(Deserialize)]
pub(super) struct Entry {
    /// The version that introduced the function, as the released libraries and headers show. No header has it.
    pub(super) since: String,
    /// One line about the function.
    text: String,
    /// The safe item that calls the function.
    pub(super) item: Option<String>,
    /// The reason why there is none.
    pub(super) left_out: Option<String>,
}

/// A library, for the documentation of its functions.
pub(super) struct Library {
    /// The `static` that opens it.
    pub(super) name: &'static str,
    /// The prefix of its functions.
    pub(super) prefix: &'static str,
    /// The product whose versions the entries have.
    pub(super) product: &'static str,
    /// The file with the entries.
    pub(super) entries: &'static str,
    /// NVIDIA's page.
    pub(super) page: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        name: "NVRTC",
        prefix: "nvrtc",
        product: "CUDA",
        entries: "xtask/compilers.toml",
        page: "https://docs.nvidia.com/cuda/nvrtc/index.html",
    },
    Library {
        name: "NVJITLINK",
        prefix: "nvJitLink",
        product: "CUDA",
        entries: "xtask/compilers.toml",
        page: "https://docs.nvidia.com/cuda/nvjitlink/index.html",
    },
];

/// Reads the entries of a file, each of which must name a function of the headers.
pub(super) fn entries(api: &Api, path: &str) -> Result<BTreeMap<String, Entry>> {
    let entries: BTreeMap<String, Entry> = super::read_toml(path)?;
    let names: BTreeSet<&str> = api.functions.iter().map(|f| f.name.as_str()).collect();
    for name in entries.keys() {
        ensure!(names.contains(name.as_str()), "{path} names {name}, but the headers do not");
    }
    Ok(entries)
}

pub(super) fn generate(include: &Path) -> Result<Vec<Generated>> {
    let api = parse(&bind_compilers(&root(), include)?)?;
    let entries = entries(&api, "xtask/compilers.toml")?;
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
    for library in LIBRARIES {
        let functions = api.functions.iter();
        let functions: Vec<&Prototype> =
            functions.filter(|function| function.name.starts_with(library.prefix)).collect();
        bound += functions.len();
        let name = format!("{}.rs", library.name.to_lowercase());
        files.push(file(&name, rows(&functions, &library, &entries)?));
    }
    ensure!(bound == api.functions.len(), "a function of neither library");
    Ok(files)
}

pub(super) fn enums(api: &Api) -> String {
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
pub(super) fn rows(
    functions: &[&Prototype],
    library: &Library,
    entries: &BTreeMap<String, Entry>,
) -> Result<String> {
    let Library { name, product, page, .. } = library;
    let mut text = format!("functions! {{\n    in {name};\n\n");
    for function in functions {
        let name = &function.name;
        let entry = entries.get(name);
        let entry =
            entry.with_context(|| format!("{} has no entry for {name}", library.entries))?;
        let since = entry.since.replace('.', ", ");
        let params: Vec<String> = function
            .params
            .iter()
            .map(|(name, ty)| format!("{name}: {}", render::type_text(ty)))
            .collect();
        let _ = writeln!(
            text,
            "    /// {}\n    ///\n    /// Since {product} {}. [NVIDIA's page]({page})\n    \
             ({since}) {name}({}) -> {};\n",
            entry.text,
            entry.since,
            params.join(", "),
            render::type_text(&function.output)
        );
    }
    text.push_str("}\n");
    Ok(text)
}

/// Returns the product of the headers with its version, for example CUDA 13.5. Only the names of the symbols that nvJitLink.h
/// declares have it.
fn version(include: &Path) -> Result<String> {
    let path = include.join("nvJitLink.h");
    let text = fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
    let text = String::from_utf8_lossy(&text);
    let after = text.split_once("__nvJitLinkCreate_").map(|(_, rest)| rest);
    let version = after.and_then(|rest| rest.split([' ', '(']).next());
    let version = version.with_context(|| format!("no version in {}", path.display()))?;
    Ok(format!("CUDA {}", version.replace('_', ".")))
}
