//! `cargo xtask explore`: explores thread schedules of `tests/explore` on the software driver.

use std::process::Command;

use anyhow::{Context, Result};

use crate::test_binary;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let binary = test_binary::build("explore", &["--profile=explore", "--features=explore"])?;
    let status = Command::new(&binary)
        .args(args)
        .status()
        .with_context(|| format!("running {}", binary.display()))?;
    if !status.success() {
        // The binary has printed the violations. Its counts must remain the last line of the output.
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}
