//! The packages of the project: how they are built, tested and published.

pub(crate) mod adopters;
pub(crate) mod deny;
pub(crate) mod pack;
pub(crate) mod publish;
pub(crate) mod python;
pub(crate) mod sbom;
pub(crate) mod semver;
pub(crate) mod wheels;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::root;

/// The files of the root folder that each package contains.
const LICENSES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Returns the folder that is the only argument of a command, or the default one in `target`.
fn folder(args: &[String], default: &str) -> Result<PathBuf> {
    match args {
        [] => Ok(root().join("target").join(default)),
        [folder] => Ok(std::path::absolute(folder)?),
        _ => bail!("the command takes at most one argument, the folder"),
    }
}
