//! Generated files in the repository: writes them, or checks that they are current.

use crate::root;
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

pub(crate) struct Generated {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl Generated {
    fn is_current(&self) -> bool {
        fs::read_to_string(&self.path).is_ok_and(|there| there == self.text)
    }
}

/// Writes the files that are not current. With `check`, reports them and fails instead.
pub(crate) fn settle(files: &[Generated], check: bool, command: &str) -> Result<()> {
    let stale: Vec<&Generated> = files.iter().filter(|file| !file.is_current()).collect();
    if stale.is_empty() {
        println!("{} generated files are current ({command})", files.len());
        return Ok(());
    }
    if check {
        return differ(&stale, command);
    }
    for file in stale {
        fs::write(&file.path, &file.text)
            .with_context(|| format!("writing {}", file.path.display()))?;
        println!("wrote {}", file.path.display());
    }
    Ok(())
}

fn differ(stale: &[&Generated], command: &str) -> Result<()> {
    let folder = root().join("target/fresh");
    fs::create_dir_all(&folder).context("creating target/fresh")?;
    for file in stale {
        let name = file.path.file_name().context("a file without a name")?;
        let fresh = folder.join(name);
        fs::write(&fresh, &file.text).with_context(|| format!("writing {}", fresh.display()))?;
        let diff = Command::new("diff")
            .arg("-u")
            .args([&file.path, &fresh])
            .output()
            .context("running diff")?;
        print!("{}", String::from_utf8_lossy(&diff.stdout));
    }
    let names: Vec<String> = stale.iter().map(|file| file.path.display().to_string()).collect();
    bail!("not current (run `cargo xtask {command}`): {}", names.join(", "))
}
