//! A test binary of the workbench, to be run by itself.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::root;

/// A line of cargo's JSON, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

/// Builds `tests/NAME` as `cargo test` builds it, with the checks of arithmetic on, and returns its path.
/// `arguments` go to cargo.
pub(crate) fn build(name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["test", "--no-run", "--quiet", "--test", name])
        .args(["-p", "cuda-workbench"])
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo test")?;
    ensure!(output.status.success(), "tests/{name} does not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut messages = messages.lines().map(serde_json::from_str::<Message>);
    messages
        .find_map(|message| message.ok()?.executable)
        .context("cargo names no executable")
}
