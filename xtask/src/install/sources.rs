//! The sources of packages of crates.io.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::status;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    manifest_path: PathBuf,
}

/// Returns the folder where cargo keeps the sources of a package. `cargo` is a call of cargo in the folder of a project
/// that depends on the package, without a command. Unless it has the option `--offline`, cargo downloads the package.
pub(crate) fn folder(mut cargo: Command, package: &str) -> Result<PathBuf> {
    let output = cargo
        .args(["metadata", "--format-version=1", "--quiet"])
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo metadata")?;
    status::check(output.status, format_args!("cargo could not find or download {package}"))?;
    let metadata: Metadata =
        serde_json::from_slice(&output.stdout).context("parsing the output of cargo metadata")?;
    let found = metadata.packages.into_iter().find(|its| its.name == package);
    let found = found.with_context(|| format!("cargo metadata has no {package}"))?;
    Ok(found.manifest_path.parent().context("a manifest is in a folder")?.to_owned())
}
