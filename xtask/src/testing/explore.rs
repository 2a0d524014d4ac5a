//! `cargo xtask explore`: explores thread schedules of `tests/explore` on the software driver.
//! `cargo xtask explore --reverts` shows that random programs find known errors.

mod reverts;

use std::process::Command;

use anyhow::{Context, Result};

use crate::status;
use crate::testing::test_binary;

pub(crate) fn run(args: &[String]) -> Result<()> {
    if let Some(("--reverts", names)) = args.split_first().map(|(flag, rest)| (flag.as_str(), rest))
    {
        return reverts::run(names);
    }
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
