//! `cargo xtask differ`: random programs of raw calls on a GPU and on the software driver.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::status;
use crate::testing::test_binary;

/// `record FROM COUNT FILE` writes the programs of seeds, which `differ run FILE TRANSCRIPTS JOBS SECONDS` of a
/// pack runs on a GPU. `check [TRANSCRIPTS]` compares transcripts with the software driver; without a file, those
/// of the repository.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (arguments, file) = match args[..] {
        ["record", from, count, file] => (vec!["make", from, count], Some(file)),
        ["check", transcripts] => (vec!["check", transcripts], None),
        ["check"] => (vec![], None),
        _ => bail!("differ takes `record FROM COUNT FILE` or `check [TRANSCRIPTS]`"),
    };
    let binary = test_binary::build("differ", &[])?;
    let mut command = Command::new(&binary);
    command.args(arguments);
    if let Some(file) = file {
        let output = command.output().context("making programs")?;
        status::check(output.status, "no programs were made")?;
        return std::fs::write(file, output.stdout).with_context(|| format!("writing {file}"));
    }
    let status = command.status().with_context(|| format!("running {}", binary.display()))?;
    status::check(status, "the software driver differs from the recording")
}
