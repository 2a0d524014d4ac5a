//! Installs programs that other commands run into `target/tools`, with Cargo.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::debian;
use crate::{root, status};

/// Returns the path of the Cargo subcommand `cargo-NAME` in exactly this version. Installs it first
/// unless an earlier run did. `options` are passed to `cargo install`.
pub(crate) fn provide(name: &str, version: &str, options: &[&str]) -> Result<PathBuf> {
    let tools = root().join("target/tools");
    let package = format!("cargo-{name}");
    let program = tools.join("bin").join(&package);
    let installed = debian::stdout(Command::new(&program).args([name, "--version"]));
    if installed.is_ok_and(|installed| installed.trim().ends_with(&format!(" {version}"))) {
        return Ok(program);
    }
    println!("installing {package} {version} into target/tools");
    let status = Command::new(env!("CARGO"))
        .args(["install", &package, "--locked", "--force"])
        .args(["--version", version])
        .args(options)
        .arg("--root")
        .arg(&tools)
        // Warnings of the tool must not be errors.
        .env_remove("RUSTFLAGS")
        .status()
        .context("running cargo install")?;
    status::check(status, format_args!("{package} could not be installed"))?;
    Ok(program)
}
