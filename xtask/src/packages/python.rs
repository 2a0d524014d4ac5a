//! `cargo xtask wheel` builds the Python package as a wheel; `cargo xtask python` runs its tests.
//!
//! Both need only Python with pip. maturin, zig, NumPy and pytest are fetched from PyPI into `target/`.

use crate::install::headers;
use crate::{root, status};
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) fn wheel(args: &[String]) -> Result<()> {
    let folder = match args {
        [] => root().join("target/wheels"),
        [folder] => std::path::absolute(folder)?,
        _ => bail!("wheel takes at most one argument, the folder"),
    };
    println!("{}", build(&root(), &folder, false)?.display());
    Ok(())
}

/// License files in the wheel. They must be the same as those in the root folder.
const LICENSES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

/// Builds the wheel into a folder and removes older ones. The same wheel is tested and distributed.
///
/// On x86-64 Linux, zig links it against the oldest C library that Rust's standard library supports
/// (glibc 2.17). Elsewhere the system's linker is used, and the wheel requires the C library of the
/// build machine or a later one, as its tag states. A quick build is not optimized, and is for this machine only.
pub(crate) fn build(root: &Path, folder: &Path, is_quick: bool) -> Result<PathBuf> {
    let source = root.join("python");
    for name in LICENSES {
        let read = |folder: &Path| {
            let path = folder.join(name);
            fs::read(&path).with_context(|| format!("reading {}", path.display()))
        };
        let is_same = read(root)? == read(&source)?;
        ensure!(is_same, "python/{name} differs from {name}; copy the latter");
    }
    for wheel in wheels(folder)? {
        fs::remove_file(&wheel).with_context(|| format!("removing {}", wheel.display()))?;
    }
    let mut maturin = Command::new(headers::provide_maturin()?);
    maturin.current_dir(source).args(["build", "--quiet", "--out"]).arg(folder);
    if is_quick {
        maturin.args(["--profile", "dev", "--compatibility", "linux"]);
    } else {
        maturin.arg("--release");
    }
    if !is_quick && cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64")) {
        maturin
            .args(["--zig", "--compatibility", "manylinux_2_17"])
            .env("PYTHONPATH", headers::provide_zig()?)
            // Only for this crate: with flags for all crates, all of them would be rebuilt.
            .args(["--", &format!("-Clink-arg={}", systems_unwinder()?)]);
    }
    let status = maturin.status().context("running maturin")?;
    status::check(status, "maturin could not build the wheel")?;
    let wheel = wheels(folder)?.pop();
    wheel.with_context(|| format!("maturin wrote no wheel to {}", folder.display()))
}

/// Returns the path of the system's unwinder. It is passed to the linker by path, because for its name
/// zig would link its own. A thread that ends in C code, as Python's threads do when the interpreter
/// exits, is unwound by the system's unwinder, and Rust frames on its stack must use the same one.
fn systems_unwinder() -> Result<String> {
    const NAME: &str = "libgcc_s.so.1";
    let output = Command::new("cc")
        .arg(format!("-print-file-name={NAME}"))
        .output()
        .context("running cc")?;
    let path = String::from_utf8(output.stdout)?;
    let path = path.trim();
    ensure!(Path::new(path).is_absolute(), "cc cannot find {NAME}");
    Ok(path.to_owned())
}

/// Returns the wheels of this package in a folder, which need not exist.
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
    let root = root();
    install(&root, false)?;
    let mut pytest = pytest(&root);
    pytest.arg(root.join("python/tests")).args(args);
    let status = pytest.status().context("running python3")?;
    status::check(status, "the tests of python/ failed")
}

/// Builds and installs what the tests need, from the sources in `root`: the repository or a copy of it.
pub(crate) fn install(root: &Path, is_quick: bool) -> Result<()> {
    let folder = root.join("target/python");
    let packages = folder.join("packages");
    let wheel = build(root, &root.join("target/wheels"), is_quick)?;
    install_requirements(&packages)?;
    let options = ["--upgrade", "--no-deps", "--no-compile"];
    pip(&packages, options, wheel.as_os_str())?;
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
