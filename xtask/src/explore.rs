//! `cargo xtask explore`: schedules of the threads of `tests/explore`, on the software driver.

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
        // It has printed the violations. Its counts stay the last line.
        std::process::exit(status.code().unwrap_or(1));
    }
    Ok(())
}
