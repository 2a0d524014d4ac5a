//! Libraries that take a driver's place, made from `fakes/*.c` while the tests run.

use crate::common::{self, c};
use cuda_sys::Function;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Names what the crates open in place of the system's driver.
pub(crate) const VARIABLE: &str = "CUDA_SYS_LIBRARY";
/// No file: with this in [`VARIABLE`] no machine has a driver.
pub(crate) const NOWHERE: &str = "/nonexistent/libcuda.so.1";

/// The files of `fakes/`.
const SOURCES: &[(&str, &[u8])] = include!(concat!(env!("OUT_DIR"), "/fakes.rs"));

/// The library made from `fakes/NAME.c`; a skip where there is no C compiler.
pub(crate) fn build(name: &str) -> Option<String> {
    let folder = folder();
    let source = write_source(&folder, &format!("{name}.c"));
    let library = folder.join(format!("{name}.so"));
    // Several tests, and the children of each, make the same library: it appears whole or not.
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
    let (_, text) = SOURCES
        .iter()
        .find(|(file, _)| *file == name)
        .expect("a file of fakes/");
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
        writeln!(rows, "FUNCTION({})", function.symbol()).expect("a string takes any text");
    }
    let folder = folder();
    let part = unique(&folder, "functions");
    fs::write(&part, rows).expect("writing the header");
    fs::rename(&part, folder.join("functions.h")).expect("putting the header in its place");
}

/// A path in the tests' own folder that nobody else has.
pub(crate) fn unique(folder: &Path, name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{name}.{}.{number}", std::process::id()))
}

/// Where the libraries lie.
pub(crate) fn folder() -> PathBuf {
    let folder = common::scratch().join("fakes");
    fs::create_dir_all(&folder).expect("making the folder of the fakes");
    folder
}
