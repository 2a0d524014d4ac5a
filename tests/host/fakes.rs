//! Libraries that replace the driver, compiled from `fakes/*.c` while the tests run.

use crate::common::{self, c};
use cuda_sys::Function;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// The variable that names the library to open instead of the system's driver.
pub(crate) const VARIABLE: &str = "CUDA_SYS_LIBRARY";
/// A file that does not exist. With this in [`VARIABLE`], no machine has a driver.
pub(crate) const NOWHERE: &str = "/nonexistent/libcuda.so.1";

/// The files of `fakes/`.
const SOURCES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/fakes.rs"));

/// Names the folder with libraries that were compiled before, since a program that runs with Wine cannot start a
/// compiler.
const COMPILED: &str = "CUDA_TESTS_FAKES";

/// Compiles the library from `fakes/NAME.c`, or reports a skip without a C compiler.
pub(crate) fn build(name: &str) -> Option<String> {
    if let Some(folder) = std::env::var_os(COMPILED) {
        let library = Path::new(&folder).join(format!("{name}.dll"));
        return Some(library.into_os_string().into_string().expect("UTF-8 paths"));
    }
    let folder = folder();
    let source = write_source(&folder, &format!("{name}.c"));
    let library = folder.join(format!("{name}.so"));
    // Several tests and their children compile the same library, so it is moved into place when it
    // is complete.
    let part = unique(&folder, name);
    c::compile(&source, &part, |compiler| {
        compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-I"]);
        compiler.arg(&folder);
    })?;
    fs::rename(&part, &library).expect("putting the library in its place");
    Some(library.into_os_string().into_string().expect("UTF-8 paths"))
}

/// Writes a file of `fakes/` for the compiler to read.
fn write_source(folder: &Path, name: &str) -> PathBuf {
    let (_, text) = SOURCES.iter().find(|(file, _)| *file == name).expect("a file of fakes/");
    let source = folder.join(name);
    let part = unique(folder, name);
    fs::write(&part, text).expect("writing the source");
    fs::rename(&part, &source).expect("putting the source in its place");
    source
}

/// Writes `functions.h`, a row for each function of the driver API, for a source to include.
pub(crate) fn write_functions_h() {
    let mut rows = String::new();
    for function in Function::all() {
        writeln!(rows, "FUNCTION({})", function.symbol()).expect("writing to a string cannot fail");
    }
    let folder = folder();
    let part = unique(&folder, "functions");
    fs::write(&part, rows).expect("writing the header");
    fs::rename(&part, folder.join("functions.h")).expect("putting the header in its place");
}

/// Returns a path in the tests' own folder that nothing else uses.
pub(crate) fn unique(folder: &Path, name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{name}.{}.{number}", std::process::id()))
}

/// Returns the folder of the libraries.
pub(crate) fn folder() -> PathBuf {
    let folder = common::scratch().join("fakes");
    fs::create_dir_all(&folder).expect("making the folder of the fakes");
    folder
}
