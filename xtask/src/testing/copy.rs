//! A copy of the sources, in which a command builds them changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::install::debian;
use crate::root;

/// Makes `tree` a copy of the sources: of tracked files and of new ones. An unchanged file keeps its
/// modification time, so that Cargo does not rebuild it.
pub(crate) fn copy_sources(tree: &Path) -> Result<()> {
    copy_changed_sources(tree, &BTreeMap::new())
}

/// Copies the sources, except for the files whose text is given.
pub(crate) fn copy_changed_sources(tree: &Path, changed: &BTreeMap<String, String>) -> Result<()> {
    let files = debian::stdout(
        Command::new("git")
            .current_dir(root())
            .args(["ls-files", "-z", "--cached", "--others"])
            .arg("--exclude-standard"),
    )?;
    let mut copied = BTreeSet::new();
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let from = root().join(file);
        // A tracked file may have been deleted.
        if !from.is_file() {
            continue;
        }
        let to = tree.join(file);
        let text = match changed.get(file) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(&from).with_context(|| format!("reading {}", from.display()))?,
        };
        if !to.exists() {
            let parent = to.parent().context("a file without a folder")?;
            fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
            // A copy has the permissions of the file.
            fs::copy(&from, &to).with_context(|| format!("writing {}", to.display()))?;
        }
        write_changed(&to, &text)?;
        copied.insert(to);
    }
    remove_others(tree, &copied)
}

/// Writes a file if it does not have this text. So Cargo rebuilds only what has changed.
pub(crate) fn write_changed(file: &Path, text: &[u8]) -> Result<()> {
    if fs::read(file).is_ok_and(|there| there == text) {
        return Ok(());
    }
    fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

/// Removes files that are not copies, except for the target folder.
fn remove_others(folder: &Path, copied: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name() != Some("target".as_ref()) {
                remove_others(&path, copied)?;
            }
        } else if !copied.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}
