//! Collects the examples of the documentation for `tests/documentation` and embeds the files that
//! other tests read. With the feature `header-check` it also binds the cuda.h of this machine for
//! `tests/abi.rs`. The build never asks for a GPU or a driver: where it builds is not where it runs.

#[path = "tests/common/embed.rs"]
mod embed;

#[path = "tests/documentation/extract.rs"]
mod examples;

// Included by path, so that this check and the generator cannot read a header in two ways.
#[cfg(feature = "header-check")]
#[path = "xtask/src/bind/api.rs"]
mod api;
#[cfg(feature = "header-check")]
#[path = "xtask/src/bind/clang.rs"]
mod clang;

#[cfg(not(feature = "header-check"))]
fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    embed::write()?;
    examples::write()
}

#[cfg(feature = "header-check")]
fn main() -> anyhow::Result<()> {
    embed::write()?;
    examples::write()?;
    header::write()
}

#[cfg(feature = "header-check")]
mod header {
    use crate::api::{Api, parse};
    use crate::clang::{Reading, bind};
    use anyhow::{Context, Result, anyhow, ensure};
    use std::fmt::Write as _;
    use std::path::{Path, PathBuf};
    use std::{env, fs, panic};

    const PROFILER: &str = "cudaProfiler.h";
    const ADVICE: &str = "`cargo xtask header-check` fetches the headers and libclang";

    /// Writes `$OUT_DIR/header.rs`: what the header declares, as constants.
    pub(super) fn write() -> Result<()> {
        for file in ["build.rs", "wrapper.h", "xtask/include"] {
            println!("cargo::rerun-if-changed={file}");
        }
        let include = include_folder()?;
        for name in ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", PROFILER] {
            let file = include.join(name);
            // A file that is not there would make Cargo run this every time.
            if file.is_file() {
                println!("cargo::rerun-if-changed={}", file.display());
            }
        }

        let root = PathBuf::from(variable("CARGO_MANIFEST_DIR").context("no manifest folder")?);
        println!("cargo::rerun-if-env-changed=LIBCLANG_PATH");
        let text = catch_panic(|| bind(&root, &include, Reading::EveryAbi))?;
        let api = parse(&text).with_context(|| format!("reading {}", include.display()))?;
        let out = PathBuf::from(variable("OUT_DIR").context("no OUT_DIR")?).join("header.rs");
        fs::write(&out, render(&api, &include)?)
            .with_context(|| format!("writing {}", out.display()))
    }

    /// The folder of the cuda.h to check. One that a variable names is the only one looked at: to
    /// check another toolkit's header without a word would answer a question nobody asked.
    fn include_folder() -> Result<PathBuf> {
        const NAMED: [(&str, &str); 3] = [
            ("CUDA_INCLUDE", ""),
            ("CUDA_HOME", "include"),
            ("CUDA_PATH", "include"),
        ];
        for (name, _) in NAMED {
            println!("cargo::rerun-if-env-changed={name}");
        }
        for (name, below) in NAMED {
            if let Some(value) = variable(name) {
                let folder = Path::new(&value).join(below);
                ensure!(
                    folder.join("cuda.h").is_file(),
                    "{name} is {value}, and there is no cuda.h in {}; {ADVICE}",
                    folder.display()
                );
                return Ok(folder);
            }
        }
        ["/usr/local/cuda/include", "/usr/include"]
            .into_iter()
            .map(PathBuf::from)
            .find(|folder| folder.join("cuda.h").is_file())
            .with_context(|| {
                format!(
                    "the feature `header-check` needs a cuda.h: {ADVICE}; or name the folder of \
                     one in CUDA_INCLUDE"
                )
            })
    }

    /// An environment variable that says something: an empty one is as good as none.
    fn variable(name: &str) -> Option<String> {
        env::var(name).ok().filter(|value| !value.is_empty())
    }

    /// bindgen panics where it finds no libclang; a build wants a sentence.
    fn catch_panic<T>(work: impl FnOnce() -> Result<T> + panic::UnwindSafe) -> Result<T> {
        let hook = panic::take_hook();
        panic::set_hook(Box::new(|_| {}));
        let done = panic::catch_unwind(work);
        panic::set_hook(hook);
        done.unwrap_or_else(|payload| {
            let text = payload
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| payload.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            Err(anyhow!(
                "bindgen gave up; if it found no libclang: {ADVICE}, or set LIBCLANG_PATH: {text}"
            ))
        })
    }

    fn render(api: &Api, include: &Path) -> Result<String> {
        let version = api
            .constants
            .iter()
            .find(|constant| constant.name == "CUDA_VERSION")
            .with_context(|| format!("{} has no CUDA_VERSION", include.display()))?
            .value;
        let profiler = include.join(PROFILER).is_file();

        let mut text = String::new();
        writeln!(text, "pub(crate) const CUDA_VERSION: i64 = {version};")?;
        writeln!(text, "pub(crate) const HAS_PROFILER: bool = {profiler};")?;

        text.push_str("type Numbers = &'static [(&'static str, i64)];\n");
        text.push_str("pub(crate) const MACROS: Numbers = &[\n");
        for constant in &api.constants {
            writeln!(text, "    ({:?}, {}),", constant.name, constant.value)?;
        }
        text.push_str("];\npub(crate) const ENUMS: &[(&str, Numbers)] = &[\n");
        for item in &api.enums {
            writeln!(text, "    ({:?}, &{:?}),", item.name, item.constants)?;
        }
        text.push_str("];\npub(crate) const RECORDS: &[(&str, i64, i64, Numbers)] = &[\n");
        for layout in &api.layouts {
            writeln!(
                text,
                "    ({:?}, {}, {}, &{:?}),",
                layout.name, layout.size, layout.align, layout.fields
            )?;
        }
        text.push_str("];\npub(crate) const FUNCTIONS: &[&str] = &[\n");
        for function in &api.functions {
            writeln!(text, "    {:?},", function.name)?;
        }
        text.push_str("];\n");
        Ok(text)
    }
}
