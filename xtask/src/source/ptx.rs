//! `cargo xtask ptx`: checks that NVIDIA's assembler accepts every PTX text of the repository.
//!
//! The software driver accepts some code that a GPU's compiler rejects.

use crate::install::headers;
use crate::root;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The architectures to assemble for: the oldest that this assembler supports, and the one on which the
/// tests run.
const DEVICES: [u32; 2] = [75, 90];

/// Folders without PTX of this project.
const ELSEWHERE: [&str; 3] = ["target", "fuzz", ".git"];

pub(crate) fn run(args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "ptx takes no argument");
    let ptxas = headers::provide_ptxas()?;
    let mut files = Vec::new();
    collect(&root(), &mut files)?;
    files.sort();
    ensure!(!files.is_empty(), "no PTX below {}", root().display());
    let mut refused = Vec::new();
    for file in &files {
        let text =
            fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let least = target(&text).with_context(|| format!("no .target in {}", file.display()))?;
        for device in DEVICES.iter().filter(|device| **device >= least) {
            refused.extend(assemble(&ptxas, file, *device)?);
        }
    }
    ensure!(refused.is_empty(), "{}", refused.join("\n"));
    println!("ptxas accepts all {} files", files.len());
    Ok(())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type()?.is_dir() {
            if !ELSEWHERE.iter().any(|other| name == *other) {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the architecture that a text requires at least: 52 for `.target sm_52`.
fn target(text: &str) -> Option<u32> {
    let line = text.lines().find_map(|line| line.strip_prefix(".target sm_"))?;
    let digits = line.split(|c: char| !c.is_ascii_digit()).next()?;
    digits.parse().ok()
}

/// Returns the assembler's error for a file, if any. Warnings count as errors.
fn assemble(ptxas: &Path, file: &Path, device: u32) -> Result<Option<String>> {
    // Not linked, because some texts are inputs for the linker's tests. The output is not used.
    let output = Command::new(ptxas)
        .args(["--compile-only", "--warning-as-error"])
        .arg(format!("--gpu-name=sm_{device}"))
        .arg("--output-file")
        .arg(root().join("target/ptxas/assembled"))
        .arg(file)
        .output()
        .context("running ptxas")?;
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = || format!("{}, sm_{device}:\n{}", file.display(), said.trim());
    Ok((!output.status.success()).then(refused))
}

#[cfg(test)]
mod tests {
    use super::target;

    #[test]
    fn a_text_says_which_device_it_is_for() {
        assert_eq!(target(".version 8.0\n.target sm_90a\n"), Some(90));
        assert_eq!(target(".version 8.0\n"), None);
    }
}
