//! `cargo xtask explore`: schedules of the threads of `tests/explore`, on the software driver.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::root;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let binary = build()?;
    let status = Command::new(&binary)
        .args(args)
        .status()
        .with_context(|| format!("running {}", binary.display()))?;
    if !status.success() {
        // It has printed the violations. Its counts stay the last line.
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}

/// A line of cargo's JSON, as far as it matters here.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

fn build() -> Result<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["test", "--no-run", "--quiet", "--profile", "explore"])
        .args(["-p", "cuda-workbench", "--features", "explore"])
        .args(["--test", "explore"])
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo test")?;
    ensure!(output.status.success(), "tests/explore does not build");
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut messages = messages.lines().map(serde_json::from_str::<Message>);
    messages
        .find_map(|message| message.ok()?.executable)
        .context("cargo names no executable")
}
