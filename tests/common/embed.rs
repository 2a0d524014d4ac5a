//! Embeds folders of the repository in the tests that read them, so that a packed test binary runs
//! on a machine without the repository. build.rs includes this file.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The folders, each with the name of its generated file.
const FOLDERS: [(&str, &str); 3] = [
    ("cuda-sim/data", "recorded.rs"),
    ("fuzz/corpus", "corpus.rs"),
    ("tests/host/fakes", "fakes.rs"),
];

/// For each folder, writes a file into `$OUT_DIR` with an expression: the slice of all files in the
/// folder. Each element holds the path of a file in the folder, with slashes, and the bytes of the
/// file.
pub(super) fn write() -> io::Result<()> {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?);
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    for (folder, name) in FOLDERS {
        println!("cargo::rerun-if-changed={folder}");
        let folder = root.join(folder);
        let mut files = Vec::new();
        list(&folder, &mut files)?;
        files.sort();
        let mut table = String::from("&[\n");
        for file in files {
            let path = file.strip_prefix(&folder).map_err(io::Error::other)?;
            let path = text(path)?.replace('\\', "/");
            let file = text(&file)?;
            let _ = writeln!(table, "({path:?}, include_bytes!({file:?}).as_slice()),");
        }
        table.push(']');
        fs::write(out.join(name), table)?;
    }
    Ok(())
}

fn text(path: &Path) -> io::Result<&str> {
    let message = || io::Error::other(format!("{} is not UTF-8", path.display()));
    path.to_str().ok_or_else(message)
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            list(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}
