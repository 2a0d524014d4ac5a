//! `cargo xtask explore --reverts [--together] [NAME …]`: shows that random programs find errors that this project once had.
//!
//! `xtask/reverts.toml` has changes that undo the fix of an error in one place. This command makes one change
//! at a time in a copy of the sources, and runs random programs. A program must violate the rule that the
//! table names, within a number of programs. Without a change, none of these programs may violate any rule.
//! With `--together`, it makes all changes at once, which needs one build instead of one for each change.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::testing::copy;
use crate::{root, status};

const TABLE: &str = "xtask/reverts.toml";

/// A change that undoes a fix.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Revert {
    file: String,
    /// Text that occurs once in the file.
    from: String,
    to: String,
    /// Part of the text of the violation.
    only: String,
    /// The violation occurs in one of so many programs.
    programs: u64,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let (flags, names): (Vec<&String>, Vec<_>) = args.iter().partition(|its| its.starts_with("--"));
    ensure!(
        flags.iter().all(|flag| *flag == "--together"),
        "explore --reverts takes only --together, and names"
    );
    let is_together = !flags.is_empty();
    let text =
        fs::read_to_string(root().join(TABLE)).with_context(|| format!("reading {TABLE}"))?;
    let mut reverts: BTreeMap<String, Revert> =
        toml::from_str(&text).with_context(|| format!("reading {TABLE}"))?;
    reverts.retain(|name, _| names.is_empty() || names.contains(&name));
    ensure!(!reverts.is_empty(), "{TABLE} has none of {names:?}");
    let copy = root().join("target/reverts");
    fs::create_dir_all(&copy).with_context(|| format!("creating {}", copy.display()))?;
    copy::copy_sources(&copy)?;
    let most = reverts.values().map(|its| its.programs).max();
    let found = search(&copy, "", most.unwrap_or_default())?;
    ensure!(found.is_none(), "without a change: {found:?}");
    println!("without a change: no violation");
    let mut missed = Vec::new();
    for (name, revert) in reverts.iter().filter(|_| is_together) {
        apply(&copy, name, revert)?;
    }
    for (name, revert) in &reverts {
        if !is_together {
            copy::copy_sources(&copy)?;
            apply(&copy, name, revert)?;
        }
        match search(&copy, &revert.only, revert.programs)? {
            Some(found) => println!("{name}: {found}"),
            None => {
                println!("{name}: NOT FOUND in {} programs", revert.programs);
                missed.push(name);
            }
        }
    }
    copy::copy_sources(&copy)?;
    ensure!(missed.is_empty(), "random programs do not find {missed:?}");
    Ok(())
}

fn apply(copy: &Path, name: &str, revert: &Revert) -> Result<()> {
    let path = copy.join(&revert.file);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let places = text.matches(&revert.from).count();
    ensure!(
        places == 1,
        "{TABLE}: {name}: {places} places in {} have the text {:?}, not one",
        revert.file,
        revert.from
    );
    let text = text.replacen(&revert.from, &revert.to, 1);
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
}

/// Runs random programs in the copy. Returns the number of the first program with a violation whose text
/// contains `only`, and the text.
fn search(copy: &Path, only: &str, programs: u64) -> Result<Option<String>> {
    let cargo = |action: &[&str]| {
        let mut command = Command::new(env!("CARGO"));
        command.current_dir(copy).args(action);
        command.args(["--quiet", "--profile=explore", "--features=explore"]);
        command.args(["-p", "cuda-workbench", "--test", "explore"]);
        command.env_remove("CARGO_TARGET_DIR");
        command
    };
    let built = cargo(&["test", "--no-run"]).status();
    status::check(built.context("running cargo")?, "the copy failed to build")?;
    let mut command = cargo(&["test"]);
    command.args(["--", "random", "--no-shrink", "--only", only]);
    command.args(["--programs", &programs.to_string()]);
    let output = command.output().context("running the programs")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let found = text.lines().find_map(|line| line.strip_prefix("random: "));
    let is_complete = text.lines().any(|line| line.starts_with("programs "));
    ensure!(is_complete, "the programs did not end: {text}");
    Ok(found.map(str::to_owned))
}
