//! Extracts the examples of the documentation for `tests/documentation` and embeds files that other
//! tests read. With the feature `header-check` it also generates bindings of the installed cuda.h for
//! `tests/abi.rs`. The build does not need a GPU or a driver, because the machine that builds may not be
//! the one that runs.

#[path = "tests/common/embed.rs"]
mod embed;
#[path = "tests/common/kernels.rs"]
mod kernels;

#[path = "tests/documentation/extract.rs"]
mod examples;

// Included by path, so that this check and the generator parse headers with the same code.
#[cfg(feature = "header-check")]
#[path = "xtask/src/bindings/bind/api.rs"]
mod api;
#[cfg(feature = "header-check")]
#[path = "xtask/src/bindings/bind/clang.rs"]
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

    /// Writes `$OUT_DIR/header.rs`, which contains the declarations of the header as constants.
    pub(super) fn write() -> Result<()> {
        for file in ["build.rs", "wrapper.h", "xtask/include"] {
            println!("cargo::rerun-if-changed={file}");
        }
        let include = include_folder()?;
        for name in ["cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", PROFILER] {
            let file = include.join(name);
            // For a file that does not exist, Cargo would run this build script every time.
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

    /// Returns the folder of the cuda.h to check. If an environment variable names a folder, only that
    /// folder is searched: checking the header of another toolkit silently would give a misleading
    /// result.
    fn include_folder() -> Result<PathBuf> {
        const NAMED: [(&str, &str); 3] =
            [("CUDA_INCLUDE", ""), ("CUDA_HOME", "include"), ("CUDA_PATH", "include")];
        for (name, _) in NAMED {
            println!("cargo::rerun-if-env-changed={name}");
        }
        for (name, below) in NAMED {
            if let Some(value) = variable(name) {
                let folder = Path::new(&value).join(below);
                ensure!(
                    folder.join("cuda.h").is_file(),
                    "{name} is {value}, but there is no cuda.h in {}; {ADVICE}",
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
                    "the feature `header-check` needs a cuda.h: {ADVICE}; or set CUDA_INCLUDE to \
                     the folder of one"
                )
            })
    }

    /// Returns an environment variable. An empty one counts as not set.
    fn variable(name: &str) -> Option<String> {
        env::var(name).ok().filter(|value| !value.is_empty())
    }

    /// Runs bindgen and converts a panic to an error. bindgen panics if it does not find libclang.
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
                "bindgen panicked; if libclang is missing, {ADVICE}, or set LIBCLANG_PATH: {text}"
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
