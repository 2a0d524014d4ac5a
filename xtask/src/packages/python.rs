//! `cargo xtask python`: runs the tests of the Python packages with their wheels.
//!
//! It needs only Python with pip. What builds the wheels, NumPy and pytest are fetched from PyPI into `target/`.

use crate::packages::wheels::{self, Build, CUDA_SAFE, CUDA_SIM};
use crate::{root, status};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn test(args: &[String]) -> Result<()> {
    let root = root();
    install(&root, false)?;
    let mut pytest = pytest(&root);
    pytest.arg(root.join("python/tests")).arg(root.join("cuda-sim/cdylib/python/tests")).args(args);
    let status = pytest.status().context("running python3")?;
    status::check(status, "the tests of the Python packages failed")
}

/// Builds and installs what the tests need, from the sources in `root`: the repository or a copy of it. A quick
/// installation has no wheel of the software driver, and the tests of this wheel are skipped.
pub(crate) fn install(root: &Path, is_quick: bool) -> Result<()> {
    let folder = root.join("target/python");
    let packages = folder.join("packages");
    install_requirements(&packages)?;
    let built: &[_] = match is_quick {
        true => &[(CUDA_SAFE, Build::Quick)],
        false => &[(CUDA_SAFE, Build::Native), (CUDA_SIM, Build::Unoptimized)],
    };
    for (package, how) in built {
        let wheel = wheels::build(root, package, &folder.join("wheels"), *how)?;
        let options = ["--upgrade", "--no-deps", "--no-compile"];
        pip(&packages, options, wheel.as_os_str())?;
    }
    if is_simulated() {
        software_driver(root, &folder)?;
    }
    Ok(())
}

fn is_simulated() -> bool {
    std::env::var_os("CUDA_TESTS").is_none_or(|what| what != "require")
}

/// Returns the command that runs tests of what [`install`] installed.
pub(crate) fn pytest(root: &Path) -> Command {
    let folder = root.join("target/python");
    let mut pytest = Command::new("python3");
    pytest
        .args(["-m", "pytest", "--config-file"])
        .arg(root.join("python/pyproject.toml"))
        // A folder that Python does not mistake for the package.
        .current_dir(&folder)
        .env("PYTHONPATH", folder.join("packages"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    if is_simulated() {
        pytest.env("CUDA_SYS_LIBRARY", folder.join(DRIVER));
    }
    // Without the compilers, the tests that need them use those of this machine, or are skipped.
    let nvrtc = root.join("target/compilers/nvidia/cu13/lib/libnvrtc.so.13");
    if nvrtc.is_file() && std::env::var_os("CUDA_NVRTC_LIBRARY").is_none() {
        pytest.env("CUDA_NVRTC_LIBRARY", nvrtc);
    }
    pytest.env("CUDA_NVRTC_CACHE_DIR", folder.join("compiled"));
    pytest
}

/// The file name of the software driver.
const DRIVER: &str = "libcuda.so.1";

/// Installs the requirements of the tests, unless they are installed.
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
    status::check(status, format_args!("pip could not install {}", what.to_string_lossy()))
}

/// Builds the software driver as a file that is loaded in place of the machine's driver.
pub(crate) fn software_driver(root: &Path, folder: &Path) -> Result<PathBuf> {
    let status = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["build", "--quiet", "-p", "cuda-sim-cdylib"])
        .status()
        .context("running cargo build")?;
    status::check(status, "the software driver failed to build")?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let built = target.join("debug/libcuda_sim_cdylib.so");
    let driver = folder.join(DRIVER);
    fs::create_dir_all(folder)?;
    fs::copy(&built, &driver).with_context(|| format!("copying {}", built.display()))?;
    Ok(driver)
}
