//! The C library in `examples/adopters/c-library`: its tests pass, and detect the bugs that are planted here.

use crate::common::skip;
use crate::{REPOSITORY, driver, folder, or_skip, text, unique};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Returns the folder of the library.
fn library() -> PathBuf {
    Path::new(REPOSITORY).join("examples/adopters/c-library")
}

/// Runs `make test` in a folder with the library, on the software driver. Reports a skip without `make` or a C
/// compiler.
fn make_test(library: &Path) -> Option<Output> {
    let driver = driver()?;
    let compiler = PathBuf::from(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    for program in [Path::new("make"), &compiler] {
        match Command::new(program).arg("--version").output() {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                skip(&format!("no {}", program.display()));
                return None;
            }
            output => output.expect("starting a program"),
        };
    }
    let build = unique(&folder(), "c-library");
    let output = Command::new("make")
        .arg("--silent")
        .arg("-C")
        .arg(library)
        .arg("test")
        .arg(format!("ROOT={REPOSITORY}"))
        .arg(format!("BUILD={}", build.display()))
        .arg(format!("DRIVER={}", driver.display()))
        .arg(format!("CC={}", compiler.display()))
        .env("CUDA_SIM", "h200")
        .output()
        .expect("starting make");
    fs::remove_dir_all(build).expect("a folder of this test");
    Some(output)
}

#[test]
fn the_tests_of_the_c_library_pass() {
    let output = or_skip!(make_test(&library()));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{stdout}\n{stderr}");
    let lines: Vec<&str> = stdout.lines().collect();
    let [runs, "all tests passed"] = lines[..] else {
        panic!("{stdout}\n{stderr}");
    };
    assert!(runs.ends_with(" calls failed, one in each run"), "{runs}");
}

/// Returns the output of the tests of the library without one of its lines.
#[track_caller]
fn output_without(line: &str) -> Option<String> {
    // A packed test has neither the driver nor the library.
    driver()?;
    let copy = unique(&folder(), "library-with-a-bug");
    for name in ["src", "tests"] {
        fs::create_dir_all(copy.join(name)).expect("making a folder");
        for entry in fs::read_dir(library().join(name)).expect("the folder of the library") {
            let entry = entry.expect("an entry");
            let target = copy.join(name).join(entry.file_name());
            fs::copy(entry.path(), target).expect("copying a file");
        }
    }
    fs::copy(library().join("Makefile"), copy.join("Makefile")).expect("copying the Makefile");
    let source = copy.join("src/vector_store.c");
    let code = fs::read_to_string(&source).expect("reading the library");
    let (before, after) = code.split_once(line).expect("a line of the library");
    fs::write(&source, format!("{before}{after}")).expect("writing the library");
    let output = make_test(&copy);
    fs::remove_dir_all(copy).expect("a folder of this test");
    let output = output?;
    assert!(!output.status.success(), "the bug was not detected");
    Some(text(&output.stdout))
}

#[test]
fn the_tests_detect_a_slot_that_is_reused_too_early() {
    let output = or_skip!(output_without("TRY(cuEventSynchronize(next->copied));"));
    assert!(output.contains("not true: vector[i] == expected[i]"), "{output}");
}

#[test]
fn the_tests_detect_memory_that_an_error_leaks() {
    let output = or_skip!(output_without("cuMemFree_v2(larger);"));
    assert!(output.contains("and then objects were leaked"), "{output}");
}
