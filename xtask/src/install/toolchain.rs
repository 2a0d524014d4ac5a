//! `cargo xtask msrv`: checks that the crates build with the oldest supported compiler, also for Windows.
//!
//! rustup installs this compiler, and the nightly one for `cargo xtask miri`.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::install::debian;
use crate::status;

/// The target of tests that run with Wine.
pub(crate) const WINDOWS: &str = "x86_64-pc-windows-gnu";

/// A target that cuda-sys must reject.
const NARROW: &str = "i686-unknown-linux-gnu";

const CRATES: &[&str] = &[
    "-p",
    "cuda-sys",
    "-p",
    "cuda-safe",
    "-p",
    "cuda-memory",
    "-p",
    "cuda-nvrtc",
    "-p",
    "cuda-nccl",
    "-p",
    "cuda-ptx",
    "-p",
    "tensor-backend",
    "-p",
    "tenant-server",
];

pub(crate) fn msrv(args: &[String]) -> Result<()> {
    let if_available = args == ["--if-available"];
    ensure!(args.is_empty() || if_available, "msrv takes no arguments except --if-available");
    let version = oldest_supported()?;
    match install(&version, &["--target", WINDOWS, "--target", NARROW]) {
        Err(why) if if_available => {
            println!("msrv: NOT CHECKED: {why:#}");
            return Ok(());
        }
        installed => installed?,
    }

    let mut check = cargo_check(&version, CRATES);
    succeed(check.arg("--all-features"))?;
    let crates = "cuda-sys, cuda-safe, cuda-memory, cuda-nvrtc, cuda-nccl, cuda-ptx and the crates in examples/adopters";
    println!("msrv: {crates} pass `cargo check` of Rust {version} with all features");

    // Code for one operating system alone leaves imports unused on the other.
    let mut check = cargo_check(&version, CRATES);
    succeed(check.args(["--target", WINDOWS]).env("RUSTFLAGS", "-Dwarnings"))?;
    println!("msrv: {crates} pass `cargo check` for {WINDOWS}");

    refuses_32_bits(&version)
}

/// Returns the `rust-version` of the workspace.
fn oldest_supported() -> Result<String> {
    let path = crate::root().join("Cargo.toml");
    let manifest = fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?
        .parse::<toml::Table>()
        .with_context(|| format!("in {}", path.display()))?;
    let package = manifest.get("workspace").and_then(|workspace| workspace.get("package"));
    let version = package.and_then(|package| package.get("rust-version")?.as_str());
    let version = version.context("the root Cargo.toml has no workspace.package.rust-version")?;
    Ok(version.to_owned())
}

fn cargo_check(version: &str, crates: &[&str]) -> Command {
    let mut command = rustup(version, "cargo");
    command.current_dir(crate::root()).arg("check").args(crates);
    // The versions in Cargo.lock are checked; an old cargo must not change them.
    command.args(["--locked", "--target-dir", "target/msrv"]);
    command
}

/// Checks that a build for a 32-bit target fails with the message that explains why.
fn refuses_32_bits(version: &str) -> Result<()> {
    let mut check = cargo_check(version, &["-p", "cuda-sys", "--target", NARROW]);
    let output = check.output().context("cannot run cargo")?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && words.contains("needs a 64-bit target"),
        "cuda-sys does not reject {NARROW}:\n{words}"
    );
    println!("msrv: cuda-sys rejects {NARROW}");
    Ok(())
}

/// Returns a program of a toolchain of rustup.
pub(crate) fn rustup(toolchain: &str, program: &str) -> Command {
    let mut command = outside("rustup");
    command.args(["run", toolchain, program]);
    command
}

/// Returns a program with an environment that does not refer to the running toolchain.
fn outside(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for variable in ["CARGO", "RUSTC", "RUSTUP_TOOLCHAIN", "LD_LIBRARY_PATH"] {
        command.env_remove(variable);
    }
    command
}

/// Installs the nightly toolchain with Miri, unless it is installed.
pub(crate) fn install_miri() -> Result<()> {
    match debian::stdout(rustup("nightly", "cargo").args(["miri", "--version"])) {
        Ok(_) => Ok(()),
        Err(_) => install("nightly", &["--component", "miri", "--component", "rust-src"]),
    }
}

/// Installs the standard library for a target, for the toolchain of this process.
pub(crate) fn add_target(target: &str) -> Result<()> {
    debian::stdout(Command::new("rustup").args(["target", "add", target]))
        .with_context(|| format!("rustup cannot install the standard library for {target}"))?;
    Ok(())
}

/// Installs a toolchain, or adds what it lacks.
fn install(toolchain: &str, parts: &[&str]) -> Result<()> {
    let mut install = Command::new("rustup");
    install.args(["toolchain", "install", toolchain, "--no-self-update", "--profile", "minimal"]);
    debian::stdout(install.args(parts))
        .with_context(|| format!("rustup cannot install the toolchain {toolchain}"))?;
    Ok(())
}

/// Runs a check. Its output is shown to the user.
fn succeed(command: &mut Command) -> Result<()> {
    let status = command.status().context("cannot run cargo")?;
    status::check(status, "`cargo check` failed with the oldest supported compiler")
}
