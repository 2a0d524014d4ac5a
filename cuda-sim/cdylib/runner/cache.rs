//! The folder in which programs find the library. It stays when the command ends, for processes that outlive it.

use crate::library;
use std::fs::{self, DirBuilder};
use std::hash::{DefaultHasher, Hasher};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Returns a folder with the library, whose name contains a hash of the library. The folder is in the cache of
/// the user, or in the folder for temporary files if there is no usable cache.
pub(crate) fn folder() -> Result<PathBuf, String> {
    let library = library::bytes()?;
    let mut hasher = DefaultHasher::new();
    // The hash need not resist attacks: only the user can write to the folder.
    hasher.write(&library);
    let name = format!("{}-{:016x}", env!("CARGO_PKG_VERSION"), hasher.finish());
    let mut reasons = Vec::new();
    for cache in places()? {
        let folder = cache.join(&name);
        let done = check_path(&folder)
            .and_then(|()| prepare(&cache))
            .and_then(|()| library::write(&folder, &library));
        match done {
            Ok(()) => return Ok(folder),
            Err(why) => reasons.push(why),
        }
    }
    Err(format!(
        "no place for the library: {}; set XDG_CACHE_HOME to a folder of your own",
        reasons.join("; ")
    ))
}

/// The folders that may have libraries, in the order in which they are tried.
fn places() -> Result<Vec<PathBuf>, String> {
    let absolute = |name| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let cache =
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    // Absolute, because the program may change its folder.
    let temporary = std::path::absolute(std::env::temp_dir());
    let temporary = temporary.map_err(|why| format!("the folder for temporary files: {why}"))?;
    let mut places: Vec<PathBuf> = cache.map(|cache| cache.join("cuda-sim")).into_iter().collect();
    places.push(temporary.join(format!("cuda-sim-{}", user())));
    Ok(places)
}

/// Refuses a path that the dynamic linker does not read as one folder.
fn check_path(path: &Path) -> Result<(), String> {
    // Separators of folders, and the start of a variable.
    let is_special = |letter: &char| ":;$".contains(*letter);
    match path.to_string_lossy().chars().find(is_special) {
        Some(letter) => Err(format!("{} contains {letter}", path.display())),
        None => Ok(()),
    }
}

/// Creates a folder, and checks that no other user can change what is in it. Anyone can create folders in the
/// place for temporary files.
fn prepare(folder: &Path) -> Result<(), String> {
    let name = folder.display();
    let mut builder = DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(folder);
    made.map_err(|why| format!("creating {name}: {why}"))?;
    // A link of another user could be changed later.
    let found = fs::symlink_metadata(folder).map_err(|why| format!("{name}: {why}"))?;
    if !found.is_dir() {
        return Err(format!("{name} is not a folder"));
    }
    if found.uid() != user() {
        return Err(format!("{name} belongs to the user {}", found.uid()));
    }
    if found.mode() & 0o022 != 0 {
        return Err(format!("other users can write to {name}"));
    }
    Ok(())
}

fn user() -> u32 {
    // SAFETY: the function has no requirements.
    unsafe { libc::geteuid() }
}
