//! Access to NVRTC and nvJitLink.

use cuda_nvrtc::sys::{NVJITLINK, NVRTC};
use cuda_sys::{InstallError, Library};
use std::io::Write;
use std::path::{Path, PathBuf};

/// The folder into which `cargo xtask compilers` installs the libraries.
const PINNED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/target/compilers/nvidia/cu13/lib");

/// Reports that the calling test is skipped, and why. Unlike a missing GPU, a missing library is never a failure.
pub(crate) fn skip(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let _ = writeln!(std::io::stderr(), "skipped {test}: {reason}");
}

/// Opens NVRTC, or reports a skip.
pub(crate) fn nvrtc() -> Option<()> {
    open(&NVRTC, "CUDA_NVRTC_LIBRARY", "libnvrtc.so.13")
}

/// Opens nvJitLink, or reports a skip.
pub(crate) fn nvjitlink() -> Option<()> {
    open(&NVJITLINK, "CUDA_NVJITLINK_LIBRARY", "libnvJitLink.so.13")
}

/// Returns the path of a library that `cargo xtask compilers` has installed, or reports a skip.
pub(crate) fn pinned(name: &str) -> Option<PathBuf> {
    let path = Path::new(PINNED).join(name);
    if !path.is_file() {
        skip(&format!("no {name}: run `cargo xtask compilers`"));
        return None;
    }
    Some(path)
}

fn open(library: &Library, variable: &str, name: &str) -> Option<()> {
    if cfg!(miri) {
        skip("Miri opens no library");
        return None;
    }
    let pinned = Path::new(PINNED).join(name);
    if std::env::var_os(variable).is_none() && pinned.is_file() {
        // SAFETY: the file is NVIDIA's library of this name.
        match unsafe { library.load_from(&pinned) } {
            Ok(()) | Err(InstallError::InUse) => {}
            Err(error) => panic!("opening the pinned library: {error}"),
        }
    }
    if let Err(error) = library.load() {
        skip(&format!("run `cargo xtask compilers`; {error}"));
        return None;
    }
    Some(())
}
