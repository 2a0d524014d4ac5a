//! The shared library, which a release build of the command contains.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// The library. A debug build has none: it uses the one that Cargo has put beside the command.
#[cfg(has_library)]
const LIBRARY: Option<&[u8]> = Some(include_bytes!(env!("CUDA_SIM_LIBRARY")));
#[cfg(not(has_library))]
const LIBRARY: Option<&[u8]> = None;

/// The name that Cargo gives to the library.
const BUILT: &str = "libcuda_sim_cdylib.so";

/// Writes the library to a folder, under the name that programs load, and under the one that linkers and some
/// programs look for.
pub(crate) fn write(folder: &Path) -> Result<(), String> {
    let path = folder.join("libcuda.so.1");
    let done = fs::create_dir_all(folder)
        .and_then(|()| replace(&path))
        .and_then(|()| link(&folder.join("libcuda.so")));
    done.map_err(|why| format!("writing {}: {why}", path.display()))
}

/// Writes a new file, because processes may have mapped the old one.
fn replace(path: &Path) -> io::Result<()> {
    let part = path.with_extension(format!("{}", std::process::id()));
    match LIBRARY {
        Some(library) => fs::write(&part, library)?,
        None => {
            let command = std::env::current_exe()?;
            let built = command.with_file_name(BUILT);
            if !built.is_file() {
                let why = format!(
                    "this is a debug build, which does not contain the library, and there is no {}",
                    built.display()
                );
                return Err(io::Error::new(io::ErrorKind::NotFound, why));
            }
            fs::copy(built, &part)?;
        }
    }
    fs::rename(part, path)
}

fn link(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink("libcuda.so.1", path)
}
