//! The software driver as a shared library, used by programs that do not know of it: C programs
//! that link with it or look up its functions, NVIDIA's own bindings for Python, and the crates of
//! this workspace.
#![cfg(target_os = "linux")]

#[path = "../common/mod.rs"]
mod common;

mod c_library;
mod environment;
mod install;
mod kernels;
mod lookup;
mod played;
mod programs;
mod python;
mod runner;

use common::skip;
use serde::Deserialize;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

const REPOSITORY: &str = env!("CARGO_MANIFEST_DIR");

/// The splits that an H200 with driver 580 gave, as `MINIMUM:GROUPSxSIZE+REMAINDER`, one line per
/// set of flags.
const H200_SPLITS: &str = include_str!("h200-splits.txt");

/// Returns the recorded minimum counts.
fn minima() -> impl Iterator<Item = &'static str> {
    let line = H200_SPLITS.lines().next().expect("a line for flags 0");
    let splits = line.split(' ').filter_map(|word| word.split_once(':'));
    splits.filter_map(|(min, split)| (!split.is_empty()).then_some(min))
}

/// A file that a build creates, as Cargo reports it.
#[derive(Deserialize)]
struct Artifact {
    target: Target,
    filenames: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

/// Builds the driver and the command `cuda-sim`, and returns the file of the driver. The command is beside it.
/// Reports a skip if they cannot be built.
fn build() -> Option<PathBuf> {
    let manifest = Path::new(REPOSITORY).join("Cargo.toml");
    if !manifest.is_file() {
        skip("the sources are elsewhere");
        return None;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["build", "--package=cuda-sim-cdylib"])
        .args(["--offline", "--locked", "--message-format=json-render-diagnostics"])
        .arg("--manifest-path")
        .arg(manifest)
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            skip("no cargo to build the driver with");
            return None;
        }
        output => output.expect("starting cargo"),
    };
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "building the driver:\n{stderr}");
    let mut artifacts = stdout
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(|artifact| artifact.target.name == "cuda_sim_cdylib");
    let artifact = artifacts.next().expect("cargo reports its artifacts");
    artifact.filenames.into_iter().next()
}

/// Returns the command `cuda-sim`, or reports a skip if it cannot be built.
fn runner() -> Option<PathBuf> {
    build().map(|library| library.with_file_name("cuda-sim"))
}

/// Returns a folder with the driver, under the names that the linker and programs use. Reports a skip if it
/// cannot be built.
fn driver() -> Option<PathBuf> {
    let library = build()?;
    let folder = folder().join("driver");
    fs::create_dir_all(&folder).expect("making the folder of the driver");
    for name in ["libcuda.so.1", "libcuda.so"] {
        // Other tests do the same at the same time, so the file is moved into place when it is
        // complete.
        let part = unique(&folder, name);
        fs::copy(&library, &part).expect("copying the driver");
        fs::rename(&part, folder.join(name)).expect("putting the driver in its place");
    }
    Some(folder)
}

/// Returns a command that finds the driver, which plays `profile`.
fn command(program: impl AsRef<Path>, driver: &Path, profile: &str) -> Command {
    let mut command = Command::new(program.as_ref());
    let mut search = driver.as_os_str().to_owned();
    if let Some(inherited) = std::env::var_os("LD_LIBRARY_PATH") {
        search.push(":");
        search.push(inherited);
    }
    command.env("LD_LIBRARY_PATH", search).env("CUDA_SIM", profile);
    command
}

/// The error output of a program that calls a function that is not simulated, once or more often.
const NOT_SIMULATED: &str = "cuda-sim: cuTexRefDestroy is not simulated: it returns \
                             CUDA_ERROR_NOT_SUPPORTED here\n";

/// Returns the output of a program, which must exit successfully without error output.
#[track_caller]
fn output_of(command: &mut Command) -> String {
    output_with(command, "")
}

/// Returns the output of a program, which must exit successfully with this error output.
#[track_caller]
fn output_with(command: &mut Command, errors: &str) -> String {
    let output = command.output().expect("starting a program");
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(
        output.status.success() && stderr == errors,
        "{} ({command:?}):\n{stdout}\n{stderr}",
        output.status
    );
    stdout
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the folder of these tests.
fn folder() -> PathBuf {
    let folder = common::scratch().join("libcuda");
    fs::create_dir_all(&folder).expect("making the tests' folder");
    folder
}

/// Returns a path that nothing else uses.
fn unique(folder: &Path, name: &str) -> PathBuf {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    folder.join(format!("{name}.{}.{number}", std::process::id()))
}
