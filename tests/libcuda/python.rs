//! NVIDIA's own bindings for Python, `cuda-bindings`, which look up every function with
//! `cuGetProcAddress_v2`.

use crate::common::skip;
use crate::{
    H200_SPLITS, NOT_SIMULATED, REPOSITORY, command, driver, minima, or_skip, output_with, text,
    unique,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the folder of the package, installing it into the repository's `target` if needed.
/// Reports a skip if that is not possible.
fn bindings() -> Option<PathBuf> {
    let python = Path::new(REPOSITORY).join("target/python");
    let folder = python.join("cuda-bindings");
    let pins = Path::new(REPOSITORY).join("tests/libcuda/requirements.txt");
    let pinned = fs::read(&pins).expect("the list of packages");
    // A copy of the list shows which version is installed. Another version of Python cannot import
    // it.
    let is_there = fs::read(folder.join("requirements.txt")).is_ok_and(|there| there == pinned);
    if is_there && is_importable(&folder) {
        return Some(folder);
    }
    fs::create_dir_all(&python).expect("making the folder for Python");
    let part = unique(&python, "cuda-bindings");
    let output = Command::new("python3")
        .args(["-m", "pip", "install", "--quiet", "--retries=1"])
        .args(["--disable-pip-version-check", "--no-warn-conflicts"])
        .args(["--only-binary=:all:", "--require-hashes", "--requirement"])
        .arg(&pins)
        .arg("--target")
        .arg(&part)
        .output();
    let why = match output {
        Err(error) => error.to_string(),
        Ok(output) if !output.status.success() => text(&output.stderr),
        Ok(_) => {
            fs::write(part.join("requirements.txt"), &pinned).expect("writing the list");
            // The folder may be missing, or belong to another test with the same list.
            let _ = fs::remove_dir_all(&folder);
            fs::rename(&part, &folder).expect("putting the package in its place");
            return Some(folder);
        }
    };
    let _ = fs::remove_dir_all(&part);
    let why = why.lines().last().unwrap_or("pip failed without a message");
    skip(&format!("no cuda-bindings for Python: {why}"));
    None
}

fn is_importable(folder: &Path) -> bool {
    let output = Command::new("python3")
        .args(["-c", "import cuda.bindings.driver"])
        .env("PYTHONPATH", folder)
        .output();
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn nvidias_python_bindings_get_what_an_h200_gives() {
    let driver = or_skip!(driver());
    let bindings = or_skip!(bindings());
    let mut program = command("python3", &driver, "h200");
    program
        .arg(Path::new(REPOSITORY).join("tests/libcuda/splits.py"))
        .args(minima())
        .env("PYTHONPATH", bindings);
    assert_eq!(
        output_with(&mut program, NOT_SIMULATED),
        format!(
            "device 0: NVIDIA H200, 132 SMs, 9.0, driver 13000\n\
             {H200_SPLITS}\
             memory: as it was\n\
             not simulated: CUDA_ERROR_NOT_SUPPORTED\n"
        )
    );
}
