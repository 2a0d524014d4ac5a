//! `cargo xtask wheel` builds a wheel of each Python package for this machine; `cargo xtask wheels` builds those of a
//! release and checks them.
//!
//! The packages are that of `python/`, and the software driver with its command. maturin and zig are fetched from PyPI
//! into `target/`.

use crate::install::{headers, toolchain};
use crate::packages::{LICENSES, folder};
use crate::{root, status};
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod check;

/// A Python package.
pub(crate) struct Package {
    /// The name, as in names of wheels.
    pub(crate) name: &'static str,
    /// The folder of its pyproject.toml.
    folder: &'static str,
    /// The tags for Python and its ABI.
    tags: &'static str,
    /// The end of the path of the one binary in the wheel.
    binary: &'static str,
    /// The oldest C library that it runs with.
    c_library: CLibrary,
}

/// A version of glibc.
type CLibrary = (u32, u32);

/// The arrays and the objects of the driver.
pub(crate) const CUDA_SAFE: Package = Package {
    name: "cuda_safe",
    folder: "python",
    tags: "cp310-abi3",
    binary: "/_native.abi3.so",
    // The oldest that Rust's standard library supports.
    c_library: (2, 17),
};

/// The command `cuda-sim` with the software driver, and its module.
pub(crate) const CUDA_SIM: Package = Package {
    name: "cuda_sim",
    folder: "cuda-sim/cdylib",
    tags: "py3-none",
    binary: "/scripts/cuda-sim",
    // `memfd_create` is in 2.27, for which wheels have no tag.
    c_library: (2, 28),
};

/// How a wheel is built.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Build {
    /// Without optimization and with the system's linker, for tests on this machine. Not for the command, which would
    /// not contain the library.
    Quick,
    /// As `Native`, but without optimization, which takes a third of the time.
    Unoptimized,
    /// Optimized, for this machine and others like it.
    Native,
    /// Optimized, for an architecture.
    For(&'static str),
}

/// The architectures of a release, all with Linux.
const ARCHITECTURES: [&str; 2] = ["x86_64", "aarch64"];

pub(crate) fn wheel(args: &[String]) -> Result<()> {
    let folder = folder(args, "wheels")?;
    for package in [CUDA_SAFE, CUDA_SIM] {
        println!("{}", build(&root(), &package, &folder, Build::Native)?.display());
    }
    Ok(())
}

pub(crate) fn wheels(args: &[String]) -> Result<()> {
    let folder = folder(args, "wheels")?;
    ensure!(has_zig(), "the wheels of a release are built on x86-64 Linux, because zig links them");
    for architecture in ARCHITECTURES {
        if architecture != std::env::consts::ARCH {
            toolchain::add_target(&target(architecture))?;
        }
        for package in [CUDA_SAFE, CUDA_SIM] {
            let wheel = build(&root(), &package, &folder, Build::For(architecture))?;
            let checked = check::check(&wheel, &package, architecture)
                .with_context(|| wheel.display().to_string())?;
            println!("{}: {checked}", wheel.display());
        }
    }
    Ok(())
}

/// Returns whether zig runs on this machine.
const fn has_zig() -> bool {
    cfg!(all(target_os = "linux", target_env = "gnu", target_arch = "x86_64"))
}

/// Returns the name of the target in Rust.
fn target(architecture: &str) -> String {
    format!("{architecture}-unknown-linux-gnu")
}

/// Builds the wheel of a package in `root` into a folder, and removes older ones for the same architecture. The same
/// wheel is tested and distributed.
///
/// On x86-64 Linux, zig links it against the oldest C library that the package supports. Elsewhere the system's linker
/// is used, and the wheel requires the C library of the build machine or a later one, as its tag states.
pub(crate) fn build(root: &Path, package: &Package, folder: &Path, how: Build) -> Result<PathBuf> {
    ensure!(
        how != Build::Quick || package.folder != CUDA_SIM.folder,
        "the wheel would lack its library"
    );
    let source = root.join(package.folder);
    for name in LICENSES {
        let read = |folder: &Path| {
            let path = folder.join(name);
            fs::read(&path).with_context(|| format!("reading {}", path.display()))
        };
        let is_same = read(root)? == read(&source)?;
        ensure!(is_same, "{}/{name} differs from {name}; copy the latter", package.folder);
    }
    let architecture = match how {
        Build::For(architecture) => architecture,
        Build::Quick | Build::Unoptimized | Build::Native => std::env::consts::ARCH,
    };
    for wheel in wheels_in(folder, package, architecture)? {
        fs::remove_file(&wheel).with_context(|| format!("removing {}", wheel.display()))?;
    }
    let mut maturin = Command::new(headers::provide_maturin()?);
    maturin.current_dir(source).args(["build", "--quiet", "--out"]).arg(folder);
    if how == Build::Quick {
        maturin.args(["--profile", "dev", "--compatibility", "linux"]);
    } else {
        maturin.arg("--release");
    }
    if how == Build::Unoptimized {
        maturin.env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0");
    } else {
        // The code of the command itself, which prints lists and accounts. The release profile of the repository does not
        // optimize it. The library in the command has an optimization of its own.
        maturin.args(["--config", "profile.release.package.cuda-sim.opt-level='s'"]);
    }
    if how != Build::Quick && has_zig() {
        let zig = headers::provide_zig()?;
        let (major, minor) = package.c_library;
        maturin
            .args(["--zig", "--target", &target(architecture)])
            .args(["--compatibility", &format!("manylinux_{major}_{minor}")])
            // In the environment, because the command builds the library with another call of Cargo.
            .env("RUSTFLAGS", format!("-Clink-arg={}", unwinder(&zig, architecture)?.display()))
            .env("PYTHONPATH", zig);
    }
    let status = maturin.status().context("running maturin")?;
    status::check(status, "maturin could not build the wheel")?;
    let wheel = wheels_in(folder, package, architecture)?.pop();
    wheel.with_context(|| format!("maturin wrote no wheel to {}", folder.display()))
}

/// Returns the path of a library with the name and the functions of the system's unwinder. It is passed to the linker by
/// path, because for the name zig would link its own unwinder. A thread that ends in C code, as Python's threads do when
/// the interpreter exits, is unwound by the system's unwinder, and Rust frames on its stack must use the same one.
///
/// The library is only for the linker, so its functions do nothing. This machine need not have the unwinder of another
/// architecture.
fn unwinder(zig: &Path, architecture: &str) -> Result<PathBuf> {
    const NAME: &str = "libgcc_s.so.1";
    const FUNCTIONS: [&str; 16] = [
        "Backtrace",
        "DeleteException",
        "FindEnclosingFunction",
        "ForcedUnwind",
        "GetCFA",
        "GetDataRelBase",
        "GetGR",
        "GetIP",
        "GetIPInfo",
        "GetLanguageSpecificData",
        "GetRegionStart",
        "GetTextRelBase",
        "RaiseException",
        "Resume",
        "SetGR",
        "SetIP",
    ];
    let folder = root().join("target/unwinder").join(architecture);
    let library = folder.join(NAME);
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let source = folder.join("unwinder.c");
    let text: String = FUNCTIONS.map(|name| format!("void _Unwind_{name}(void) {{}}\n")).concat();
    fs::write(&source, text).with_context(|| format!("writing {}", source.display()))?;
    let status = Command::new("python3")
        .args(["-m", "ziglang", "cc", "-shared", "-nostdlib", "-target"])
        .args([&format!("{architecture}-linux-gnu"), &format!("-Wl,-soname,{NAME}"), "-o"])
        .args([&library, &source])
        .env("PYTHONPATH", zig)
        .status()
        .context("running zig")?;
    status::check(status, "zig could not build a library for the linker")?;
    Ok(library)
}

/// Returns the wheels of a package for an architecture in a folder, which need not exist.
fn wheels_in(folder: &Path, package: &Package, architecture: &str) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Ok(Vec::new());
    };
    let (start, end) = (format!("{}-", package.name), format!("_{architecture}.whl"));
    let mut wheels = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if name.starts_with(&start) && name.ends_with(&end) {
            wheels.push(entry.path());
        }
    }
    Ok(wheels)
}
