//! `cargo xtask semver [BASELINE]`: checks with cargo-semver-checks that the version of each crate admits
//! the changes of its public interface.
//!
//! The baseline is a commit or tag: by default the last release, and before the first one the commit in
//! `xtask/publish.toml`. The sources of this repository are the baseline rather than crates.io, so names and checks are
//! the same before and after the first release. The features are those that docs.rs documents; the others are test
//! facilities.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use toml::{Table, Value};

use crate::install::debian;
use crate::install::tools;
use crate::packages::publish;
use crate::root;

const CARGO_SEMVER_CHECKS: &str = "0.51.0";

/// The tags of releases, as `CONTRIBUTING.md` says.
const RELEASES: &str = "v[0-9]*";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let baseline = match args {
        [] => last_release().map_or_else(publish::first_baseline, Ok)?,
        [baseline] if !baseline.starts_with('-') => baseline.clone(),
        _ => bail!("semver takes no argument except the baseline, a commit or tag"),
    };
    println!("comparing with {baseline}");
    let program = tools::provide("semver-checks", CARGO_SEMVER_CHECKS, &[])?;
    let mut incompatible = Vec::new();
    for name in publish::crates()? {
        let mut command = Command::new(&program);
        command.current_dir(root()).args(["semver-checks", "--baseline-rev", &baseline]).args([
            "--package",
            &name,
            "--default-features",
        ]);
        for feature in documented_features(&name)? {
            command.args(["--features", &feature]);
        }
        let status = command.status().context("running cargo-semver-checks")?;
        if !status.success() {
            incompatible.push(name);
        }
    }
    ensure!(
        incompatible.is_empty(),
        "the versions do not admit the changes since {baseline}: {}",
        incompatible.join(", ")
    );
    Ok(())
}

/// Returns the features of a crate that docs.rs documents.
fn documented_features(name: &str) -> Result<Vec<String>> {
    let path = root().join(name).join("Cargo.toml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let manifest: Table = toml::from_str(&text).with_context(|| path.display().to_string())?;
    let keys = ["package", "metadata", "docs.rs", "features"];
    let manifest = Value::Table(manifest);
    let mut found = Some(&manifest);
    for key in keys {
        found = found.and_then(|table| table.get(key));
    }
    let features = found.and_then(Value::as_array);
    let names = features.into_iter().flatten().filter_map(Value::as_str);
    Ok(names.map(str::to_owned).collect())
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
