//! `cargo xtask semver [BASELINE]`: checks with cargo-semver-checks that the version of each crate admits
//! the changes of its public interface.
//!
//! The baseline is a commit or tag, by default the last release. The sources of this repository are the
//! baseline rather than crates.io, so names and checks are the same before and after the first release.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{debian, publish, root, tools};

const CARGO_SEMVER_CHECKS: &str = "0.51.0";

/// The tags of releases, as `CONTRIBUTING.md` says.
const RELEASES: &str = "v[0-9]*";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let baseline = match args {
        [] => match last_release() {
            Some(tag) => tag,
            None => {
                println!("no release to compare with: no commit has a tag like v0.1.0");
                return Ok(());
            }
        },
        [baseline] if !baseline.starts_with('-') => baseline.clone(),
        _ => bail!("semver takes no argument except the baseline, a commit or tag"),
    };
    let program = tools::provide("semver-checks", CARGO_SEMVER_CHECKS, &[])?;
    let mut command = Command::new(program);
    command
        .current_dir(root())
        .args(["semver-checks", "--baseline-rev", &baseline]);
    for name in publish::crates()? {
        command.args(["--package", &name]);
    }
    let status = command.status().context("running cargo-semver-checks")?;
    ensure!(
        status.success(),
        "a version does not admit the changes since {baseline}"
    );
    Ok(())
}

/// Returns the tag of the last release before this commit, if there is one.
fn last_release() -> Option<String> {
    let found = debian::stdout(Command::new("git").current_dir(root()).args([
        "describe",
        "--tags",
        "--abbrev=0",
        "--match",
        RELEASES,
    ]));
    found.ok().map(|tag| tag.trim().to_owned())
}
