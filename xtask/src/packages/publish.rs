//! `cargo xtask publish [--upload]`: packages and builds the crates as crates.io would have them.
//!
//! The workspace is copied to `target/publish`, and the manifests of the copy get the names of
//! `xtask/publish.toml`. The library names stay, so no source changes. Without `--upload`, this is
//! `cargo publish --dry-run`, which builds each package against the packages of the other crates.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use toml::{Table, Value};

use crate::install::debian;
use crate::packages::LICENSES;
use crate::testing::copy;
use crate::{root, status};

/// The contents of `xtask/publish.toml`.
#[derive(Deserialize)]
struct Pins {
    /// For each crate, which is also its folder, the name of its package on crates.io.
    names: BTreeMap<String, String>,
    /// The same for packages that no other one depends on, by their folders.
    programs: BTreeMap<String, String>,
    semver: Semver,
    /// Fields that every package gets.
    package: Table,
}

/// The commit that the public interface is compared with before the first release.
#[derive(Deserialize)]
struct Semver {
    baseline: String,
}

impl Pins {
    /// Returns the folder of each package, and its name on crates.io.
    fn packages(&self) -> impl Iterator<Item = (&String, &String)> {
        self.names.iter().chain(&self.programs)
    }
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let upload = match args {
        [] => false,
        [flag] if flag == "--upload" => true,
        _ => bail!("publish takes no arguments except --upload"),
    };
    let pins = pins()?;
    if upload {
        check_release()?;
    }
    let tree = copy_packages(&pins)?;
    for (_, name) in pins.packages() {
        let files = debian::stdout(&mut command_in(&tree, &["package", "--list", "-p", name]))?;
        check_files(name, &files)?;
    }
    let mut command: Vec<&str> = vec!["publish"];
    if !upload {
        command.push("--dry-run");
    }
    for (_, name) in pins.packages() {
        command.extend(["-p", name]);
    }
    let status = command_in(&tree, &command).status();
    // What is left of a build does no harm.
    let _ = fs::remove_dir_all(target());
    status::check(status.context("running cargo publish")?, "cargo publish failed")?;
    println!(
        "{}: {}",
        if upload { "uploaded" } else { "ready" },
        Vec::from_iter(pins.packages().map(|(_, name)| name.as_str())).join(", ")
    );
    Ok(())
}

/// Copies the packages with their names on crates.io, and returns the folder of the workspace.
fn copy_packages(pins: &Pins) -> Result<PathBuf> {
    let tree = root().join("target/publish/tree");
    copy::copy_sources(&tree)?;
    rewrite(&tree.join("Cargo.toml"), |manifest| rewrite_workspace(manifest, pins))?;
    for (folder, name) in pins.packages() {
        rewrite(&tree.join(folder).join("Cargo.toml"), |manifest| {
            rename(manifest, name, &pins.package)
        })?;
        for license in LICENSES {
            fs::copy(root().join(license), tree.join(folder).join(license))
                .with_context(|| format!("copying {license}"))?;
        }
    }
    Ok(tree)
}

/// Copies the packages. Returns the folder of each one, with its name on crates.io.
pub(crate) fn copies() -> Result<Vec<(PathBuf, String)>> {
    let pins = pins()?;
    let tree = copy_packages(&pins)?;
    Ok(pins.packages().map(|(folder, name)| (tree.join(folder), name.clone())).collect())
}

fn pins() -> Result<Pins> {
    let path = "xtask/publish.toml";
    let text = fs::read_to_string(root().join(path)).with_context(|| format!("reading {path}"))?;
    toml::from_str(&text).with_context(|| format!("reading {path}"))
}

/// Returns the crates that are published, by their names in the workspace.
pub(crate) fn crates() -> Result<Vec<String>> {
    Ok(pins()?.names.into_keys().collect())
}

/// Returns the commit that the public interface is compared with before the first release.
pub(crate) fn first_baseline() -> Result<String> {
    Ok(pins()?.semver.baseline)
}

/// Checks that the owner permits a release and that it is a commit.
fn check_release() -> Result<()> {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).context("reading Cargo.toml")?;
    let manifest: Table = toml::from_str(&manifest).context("reading Cargo.toml")?;
    let publish = manifest["workspace"].get("package").and_then(|package| package.get("publish"));
    ensure!(
        publish.and_then(Value::as_bool) != Some(false),
        "Cargo.toml has `publish = false`: the owner of the project chooses the names in \
         xtask/publish.toml first, and then sets it to true"
    );
    let changes =
        debian::stdout(Command::new("git").current_dir(root()).args(["status", "--porcelain"]))?;
    ensure!(changes.is_empty(), "uncommitted changes:\n{changes}");
    Ok(())
}

fn rewrite(path: &Path, change: impl FnOnce(&mut Table) -> Result<()>) -> Result<()> {
    let shown = || path.display().to_string();
    let text = fs::read_to_string(path).with_context(shown)?;
    let mut manifest: Table = toml::from_str(&text).with_context(shown)?;
    change(&mut manifest).with_context(shown)?;
    fs::write(path, toml::to_string(&manifest).with_context(shown)?).with_context(shown)
}

/// Removes the workbench and the members that are not published, and gives the dependencies their names.
fn rewrite_workspace(manifest: &mut Table, pins: &Pins) -> Result<()> {
    manifest.retain(|key, _| key == "workspace" || key == "profile");
    let workspace = table(manifest, "workspace")?;
    workspace.remove("default-members");
    let members = pins.packages().map(|(folder, _)| Value::String(folder.clone()));
    workspace.insert("members".to_owned(), members.collect::<Vec<_>>().into());
    let package = table(workspace, "package")?;
    package.insert("publish".to_owned(), true.into());
    let dependencies = table(workspace, "dependencies")?;
    for (folder, name) in &pins.names {
        table(dependencies, folder)?.insert("package".to_owned(), name.as_str().into());
    }
    Ok(())
}

/// Names a package, and keeps the name of its library.
fn rename(manifest: &mut Table, name: &str, fields: &Table) -> Result<()> {
    let package = table(manifest, "package")?;
    let before = package.insert("name".to_owned(), name.into());
    let before = before.as_ref().and_then(Value::as_str).context("the package has no name")?;
    let before = before.replace('-', "_");
    package.extend(fields.clone());
    let library = manifest
        .entry("lib")
        .or_insert_with(|| Table::new().into())
        .as_table_mut()
        .context("`lib` is not a table")?;
    library.insert("name".to_owned(), before.into());
    Ok(())
}

fn table<'a>(parent: &'a mut Table, key: &str) -> Result<&'a mut Table> {
    let value = parent.get_mut(key).and_then(Value::as_table_mut);
    value.with_context(|| format!("no table `{key}`"))
}

/// The header of this project.
const HEADER: &str = "include/cuda_sim.h";

/// Checks the list of files in a package: the licenses are there, and no header of NVIDIA's is.
fn check_files(name: &str, list: &str) -> Result<()> {
    for license in LICENSES {
        let found = list.lines().any(|file| file == license);
        ensure!(found, "the package {name} has no {license}");
    }
    let header = list.lines().find(|file| file.ends_with(".h") && *file != HEADER);
    ensure!(header.is_none(), "the package {name} has a header: {}", header.unwrap_or_default());
    Ok(())
}

/// Returns the folder of the builds of this process.
fn target() -> PathBuf {
    root().join(format!("target/publish/{}", std::process::id()))
}

/// Returns a Cargo command that runs in the copy.
fn command_in(tree: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO"));
    command
        .current_dir(tree)
        .args(args)
        // The copy is in a folder that git ignores.
        .args(["--allow-dirty", "--quiet"])
        // Cargo keeps what it unpacked for a folder, and does not see that the packages changed.
        .env("CARGO_TARGET_DIR", target())
        // The builds are only checks.
        .env("CARGO_PROFILE_DEV_DEBUG", "false");
    command
}

#[cfg(test)]
mod tests {
    use super::{Pins, Table, check_files, rename, rewrite_workspace};

    #[test]
    fn a_renamed_package_keeps_its_library_name() {
        let mut manifest: Table =
            toml::from_str("[package]\nname = \"cuda-sys\"").expect("a manifest");
        let fields = toml::from_str("repository = \"here\"").expect("fields");
        rename(&mut manifest, "other", &fields).expect("renamed");
        assert_eq!(manifest["package"]["name"].as_str(), Some("other"));
        assert_eq!(manifest["package"]["repository"].as_str(), Some("here"));
        assert_eq!(manifest["lib"]["name"].as_str(), Some("cuda_sys"));
    }

    #[test]
    fn only_published_crates_are_members_and_dependencies_are_renamed() {
        let mut manifest: Table = toml::from_str(
            "[package]\nname = \"bench\"\n[workspace]\nmembers = [\"a\", \"x\"]\n\
             [workspace.package]\npublish = false\n\
             [workspace.dependencies]\na = { path = \"a\", version = \"1\" }",
        )
        .expect("a manifest");
        let pins: Pins = toml::from_str(
            "names = { a = \"b\" }\nprograms = {}\nsemver = { baseline = \"c\" }\npackage = {}",
        )
        .expect("the names");
        rewrite_workspace(&mut manifest, &pins).expect("rewritten");
        let expected: Table = toml::from_str(
            "[workspace]\nmembers = [\"a\"]\n[workspace.package]\npublish = true\n\
             [workspace.dependencies]\na = { path = \"a\", version = \"1\", package = \"b\" }",
        )
        .expect("a manifest");
        assert_eq!(manifest, expected);
    }

    #[test]
    fn a_package_without_licenses_or_with_a_header_is_rejected() {
        let licenses = "LICENSE-APACHE\nLICENSE-MIT\n";
        check_files("a", licenses).expect("complete");
        check_files("a", "LICENSE-MIT\n").expect_err("no Apache license");
        check_files("a", &format!("{licenses}src/cuda.h\n")).expect_err("a header");
    }
}
