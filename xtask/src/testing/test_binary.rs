//! Builds a test binary that another command runs, and limits its time.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::{root, status};

/// A line of cargo's JSON output, with the fields that are used here.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
}

/// Builds `tests/NAME` in the same way as `cargo test --workspace`, with overflow checks enabled, and returns its
/// path. `arguments` are passed to cargo.
pub(crate) fn build(name: &str, arguments: &[&str]) -> Result<PathBuf> {
    let output = Command::new(env!("CARGO"))
        .current_dir(root())
        .args(["test", "--no-run", "--quiet", "--test", name])
        .arg("--workspace")
        .args(arguments)
        .arg("--message-format=json-render-diagnostics")
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo test")?;
    status::check(output.status, format_args!("tests/{name} failed to build"))?;
    let messages = String::from_utf8_lossy(&output.stdout);
    let mut messages = messages.lines().map(serde_json::from_str::<Message>);
    messages.find_map(|message| message.ok()?.executable).context("cargo reported no executable")
}

/// Returns a command that runs a program and ends it after a time, with the processes that it has started.
pub(crate) fn limited(program: &Path, limit: Duration) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--signal=KILL").arg(limit.as_secs().to_string()).arg(program);
    command
}
