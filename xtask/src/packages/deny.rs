//! `cargo xtask deny`: checks the dependencies of the workspace with cargo-deny and the rules in `deny.toml`.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};

use crate::install::headers;
use crate::{root, status};

/// The checks that need no database.
const OFFLINE: [&str; 3] = ["bans", "licenses", "sources"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "deny takes no argument");
    let program = headers::provide_cargo_deny()?;
    let deny = |command: &[&str]| -> Result<Output> {
        Command::new(&program)
            .current_dir(root())
            .args(["--workspace", "--color=never"])
            .args(command)
            .output()
            .context("running cargo-deny")
    };
    let check = |checks: &[&str]| -> Result<()> {
        let output = deny(&[&["check"], checks].concat())?;
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        status::check(output.status, "the dependencies violate deny.toml")
    };
    check(&OFFLINE)?;

    // The advisories are a git repository on GitHub, which not every network reaches.
    let fetched = deny(&["fetch", "db"])?;
    if fetched.status.success() {
        return check(&["advisories"]);
    }
    let said = String::from_utf8_lossy(&fetched.stderr);
    let reason = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    println!(
        "advisories skipped, because their database cannot be fetched: {}",
        reason.unwrap_or("cargo-deny gave no reason")
    );
    Ok(())
}
