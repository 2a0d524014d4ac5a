//! `cargo xtask explore`: explores thread schedules of `tests/explore` on the software driver.

use std::process::Command;

use anyhow::{Context, Result};

use crate::{status, test_binary};

pub(crate) fn run(args: &[String]) -> Result<()> {
    let binary = test_binary::build("explore", &["--profile=explore", "--features=explore"])?;
    let status = Command::new(&binary)
        .args(args)
        .status()
        .with_context(|| format!("running {}", binary.display()))?;
    match status.code() {
        Some(0) => Ok(()),
        // The binary has printed the violations. Its counts must remain the last line of the output.
        Some(code) => std::process::exit(code),
        None => status::check(status, format_args!("{} ended", binary.display())),
    }
}
