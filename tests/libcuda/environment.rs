//! The page with the environment variables of the software driver.

use crate::{REPOSITORY, command, driver, need, text};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the files of a folder and its folders.
fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files(&path, found),
            false => found.push(path),
        }
    }
}

/// Returns the names of variables between `start` and `end`.
fn names(text: &str, start: &str, end: char) -> BTreeSet<String> {
    let parts = text.split(start).skip(1);
    let rests = parts.filter_map(|part| part.split_once(end));
    rests
        .map(|(rest, _)| format!("CUDA_SIM{rest}"))
        .filter(|name| {
            name.chars()
                .all(|letter| letter == '_' || letter.is_ascii_uppercase())
        })
        .collect()
}

#[test]
fn every_variable_that_the_driver_reads_is_in_the_table() {
    let sources = Path::new(REPOSITORY).join("cuda-sim");
    if !sources.is_dir() {
        return crate::common::skip("the sources are elsewhere");
    }
    let mut all = Vec::new();
    for folder in ["src", "cdylib/src", "cdylib/runner"] {
        files(&sources.join(folder), &mut all);
    }
    let mut used = BTreeSet::new();
    for file in all
        .iter()
        .filter(|file| file.extension().is_some_and(|end| end == "rs"))
    {
        let source = fs::read_to_string(file).expect("a source");
        let reads = source.contains("env::var");
        let places = [
            "cdylib/src/environment.rs",
            "cdylib/runner/run.rs",
            "cdylib/runner/options.rs",
            "cuda-sim/src/profile.rs",
        ];
        let is_the_place = places.iter().any(|place| file.ends_with(place));
        assert!(!reads || is_the_place, "{} reads variables", file.display());
        used.extend(names(&source, "\"CUDA_SIM", '"'));
    }
    // Names the library at compile time, in the build script.
    used.remove("CUDA_SIM_LIBRARY");
    let page = fs::read_to_string(sources.join("src/environment.md")).expect("the page");
    let (page, _) = page.split_once("\nOther parts").expect("the second table");
    assert_eq!(names(page, "\n| `CUDA_SIM", '`'), used);
}

#[test]
fn a_wrong_value_of_any_variable_gives_a_driver_without_devices() {
    let driver = need!(driver());
    let python = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))";
    for (variable, value, reason) in [
        ("CUDA_SIM", "h200@12.5", "no profile 12.5: the GPUs are"),
        ("CUDA_SIM_KERNELS", "yes", "\"yes\" is not \"ignore\""),
        (
            "CUDA_SIM_FAULTS",
            "cuMemAlloc_v2,cuNever",
            "no fault cuNever: a fault is",
        ),
        ("CUDA_SIM_FAULTS", "cuInit:0", "no fault cuInit:0"),
        ("CUDA_SIM_FAULTS", "cuInit=0", "no fault cuInit=0"),
        (
            "CUDA_SIM_FAULTS",
            "cuInit=CUDA_ERROR_OF_MINE",
            "no fault cuInit=",
        ),
    ] {
        let mut run = command("python3", &driver, "h200");
        let Ok(output) = run.args(["-c", python]).env(variable, value).output() else {
            return crate::common::skip("no python3");
        };
        assert_eq!(text(&output.stdout), "100\n");
        let errors = text(&output.stderr);
        assert!(
            errors.starts_with(&format!("cuda-sim: {variable}: ")),
            "{errors}"
        );
        assert!(errors.contains(reason), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn a_fault_of_the_environment_makes_the_call_fail_that_it_names() {
    let driver = need!(driver());
    let python = "import ctypes; cu = ctypes.CDLL('libcuda.so.1')\n\
                  print(*[cu.cuInit(0) for _ in range(4)], cu.cuDeviceGetCount(None))";
    let mut run = command("python3", &driver, "h200");
    let run = run.args(["-c", python]).env(
        "CUDA_SIM_FAULTS",
        "cuInit:2=CUDA_ERROR_OUT_OF_MEMORY, cuInit:4+=3",
    );
    let Ok(output) = run.output() else {
        return crate::common::skip("no python3");
    };
    assert_eq!(text(&output.stdout), "0 2 0 3 1\n");
}
