//! `cargo xtask wheel`: the Python package as a wheel; `cargo xtask python`: its tests.
//!
//! Both need a Python with pip and nothing else: maturin, NumPy and pytest come from PyPI into `target/`.

use crate::{headers, root};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn wheel(args: &[String]) -> Result<()> {
    let folder = match args {
        [] => root().join("target/wheels"),
        [folder] => std::path::absolute(folder)?,
        _ => bail!("wheel takes one folder"),
    };
    println!("{}", build(&folder)?.display());
    Ok(())
}

/// Builds the wheel into a folder, in the place of older ones.
pub(crate) fn build(folder: &Path) -> Result<PathBuf> {
    for wheel in wheels(folder)? {
        fs::remove_file(&wheel).with_context(|| format!("removing {}", wheel.display()))?;
    }
    let status = Command::new(headers::provide_maturin()?)
        .current_dir(root().join("python"))
        .args(["build", "--release", "--quiet", "--out"])
        .arg(folder)
        .status()
        .context("running maturin")?;
    ensure!(status.success(), "maturin could not build the wheel");
    let wheel = wheels(folder)?.pop();
    wheel.with_context(|| format!("maturin left no wheel in {}", folder.display()))
}

/// Our wheels in a folder, which need not be there.
fn wheels(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    let mut wheels = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("cuda_safe-") && name.ends_with(".whl") {
            wheels.push(entry.path());
        }
    }
    Ok(wheels)
}

pub(crate) fn test(args: &[String]) -> Result<()> {
    let folder = root().join("target/python");
    let packages = folder.join("packages");
    let wheel = build(&root().join("target/wheels"))?;
    install_requirements(&packages)?;
    let options = ["--upgrade", "--no-deps", "--no-compile"];
    pip(&packages, options, wheel.as_os_str())?;

    let mut pytest = Command::new("python3");
    pytest
        .args(["-m", "pytest"])
        .arg(root().join("python/tests"))
        .arg("--config-file")
        .arg(root().join("python/pyproject.toml"))
        .args(args)
        // Not in a folder that Python would take for the package.
        .current_dir(&folder)
        .env("PYTHONPATH", &packages)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if std::env::var_os("CUDA_TESTS").is_none_or(|what| what != "require") {
        pytest.env("CUDA_SYS_LIBRARY", software_driver(&folder)?);
    }
    let status = pytest.status().context("running python3")?;
    ensure!(status.success(), "tests of python/ failed");
    Ok(())
}

/// What the tests need, unless it is there.
fn install_requirements(packages: &Path) -> Result<()> {
    let requirements = root().join("python/tests/requirements.txt");
    let wanted = fs::read_to_string(&requirements)
        .with_context(|| format!("reading {}", requirements.display()))?;
    let marker = packages.join("requirements.txt");
    if fs::read_to_string(&marker).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    if packages.exists() {
        fs::remove_dir_all(packages)?;
    }
    let options = ["--only-binary=:all:", "--no-compile", "-r"];
    pip(packages, options, requirements.as_os_str())?;
    fs::write(&marker, wanted).with_context(|| format!("writing {}", marker.display()))
}

fn pip(
    target: &Path,
    options: impl IntoIterator<Item = &'static str>,
    what: &std::ffi::OsStr,
) -> Result<()> {
    let status = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet"])
        .arg("--disable-pip-version-check")
        .env("PIP_ROOT_USER_ACTION", "ignore")
        .arg("--target")
        .arg(target)
        .args(options)
        .arg(what)
        .status()
        .context("running `python3 -m pip`")?;
    ensure!(
        status.success(),
        "pip could not install {}",
        what.to_string_lossy()
    );
    Ok(())
}

/// The software driver as a file, which is loaded in the place of the machine's.
fn software_driver(folder: &Path) -> Result<PathBuf> {
    let status = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["build", "--quiet", "-p", "cuda-sim-cdylib"])
        .status()
        .context("running cargo build")?;
    ensure!(status.success(), "the software driver does not build");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let built = target.join("debug/libcuda_sim_cdylib.so");
    let driver = folder.join("libcuda.so.1");
    fs::create_dir_all(folder)?;
    fs::copy(&built, &driver).with_context(|| format!("copying {}", built.display()))?;
    Ok(driver)
}
