//! `cargo xtask sbom [DIR]`: writes a list of the dependencies of each crate that is published, a software bill of materials
//! in the format `CycloneDX`, with cargo-cyclonedx. Wheels contain such a list already, which maturin writes.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::tools;
use crate::packages::{folder, publish};
use crate::status;

const CARGO_CYCLONEDX: &str = "0.5.9";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let folder = folder(args, "sbom")?;
    fs::create_dir_all(&folder).with_context(|| format!("creating {}", folder.display()))?;
    let program = tools::provide("cyclonedx", CARGO_CYCLONEDX, &[])?;
    for (package, name) in publish::copies()? {
        let status = Command::new(&program)
            .current_dir(&package)
            .args(["cyclonedx", "--quiet", "--format=json", "--spec-version=1.5", "--target=all"])
            // With all features, and without what only builds and tests need.
            .args(["--all-features", "--no-build-deps", "--override-filename=sbom"])
            .status()
            .context("running cargo-cyclonedx")?;
        status::check(status, format_args!("cargo-cyclonedx failed for {name}"))?;
        let list = package.join("sbom.json");
        let text =
            fs::read_to_string(&list).with_context(|| format!("reading {}", list.display()))?;
        // The ids of packages contain the folder of this machine.
        let tree = package.parent().context("a package without a folder")?;
        let text = text.replace(&*tree.to_string_lossy(), "");
        let file = folder.join(format!("{name}.cdx.json"));
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        println!("{}", file.display());
    }
    Ok(())
}
