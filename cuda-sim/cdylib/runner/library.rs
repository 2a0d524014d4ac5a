//! The shared library, which a release build of the command contains.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The library. A debug build has none: it uses the one that Cargo has put beside the command. It is not a constant,
/// because each use of a constant is a copy in the program.
#[cfg(has_library)]
static LIBRARY: Option<&[u8]> = Some(include_bytes!(env!("CUDA_SIM_LIBRARY")));
#[cfg(not(has_library))]
static LIBRARY: Option<&[u8]> = None;

/// The name that Cargo gives to the library.
const BUILT: &str = "libcuda_sim_cdylib.so";

/// Returns the library.
pub(crate) fn bytes() -> Result<Cow<'static, [u8]>, String> {
    if let Some(library) = LIBRARY {
        return Ok(library.into());
    }
    let command = std::env::current_exe().map_err(|why| format!("finding the library: {why}"))?;
    let built = command.with_file_name(BUILT);
    let read = fs::read(&built).map(Cow::Owned);
    read.map_err(|why| {
        let path = built.display();
        format!("this is a debug build, which does not contain the library; reading {path}: {why}")
    })
}

/// Writes the library to a folder, under the name that programs load, and under the one that linkers and some
/// programs look for. Other processes may do the same and use the folder at the same time.
pub(crate) fn write(folder: &Path, library: &[u8]) -> Result<(), String> {
    let path = folder.join("libcuda.so.1");
    let done = fs::create_dir_all(folder)
        .and_then(|()| replace(&path, library))
        .and_then(|()| link(&folder.join("libcuda.so")));
    done.map_err(|why| format!("writing {}: {why}", path.display()))
}

/// Writes a new file unless there is one with this content. It takes the place of an old one when it is
/// complete, because processes may have mapped the old one.
fn replace(path: &Path, library: &[u8]) -> io::Result<()> {
    if fs::read(path).is_ok_and(|old| old == library) {
        return Ok(());
    }
    let part = part(path);
    fs::write(&part, library)?;
    fs::rename(part, path)
}

fn link(path: &Path) -> io::Result<()> {
    if fs::read_link(path).is_ok_and(|old| old.as_os_str() == "libcuda.so.1") {
        return Ok(());
    }
    let part = part(path);
    symlink("libcuda.so.1", &part)?;
    fs::rename(part, path)
}

/// Returns the path of a file that will be renamed. Processes in different containers can have the same id.
fn part(path: &Path) -> PathBuf {
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let time = time.map_or(0, |time| time.subsec_nanos());
    path.with_extension(format!("{}-{time}", std::process::id()))
}
