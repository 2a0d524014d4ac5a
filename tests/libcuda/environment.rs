//! The page with the environment variables of the software driver.

use crate::{REPOSITORY, command, driver, or_skip, text};
use cuda_sim::environment::Variable;
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

/// Returns the names of the software driver's variables that a text quotes.
fn names(text: &str, quote: char) -> BTreeSet<String> {
    let quoted = text.split(quote);
    let names = quoted.filter(|name| {
        let mut letters = name.chars();
        name.starts_with("CUDA_SIM") && letters.all(|its| its == '_' || its.is_ascii_uppercase())
    });
    names.map(str::to_owned).collect()
}

#[test]
fn one_file_reads_the_variables_of_the_driver_and_the_page_has_all_of_them() {
    let sources = Path::new(REPOSITORY).join("cuda-sim");
    if !sources.is_dir() {
        return crate::common::skip("the sources are elsewhere");
    }
    let known: BTreeSet<String> = Variable::ALL.map(|its| its.name().to_owned()).into();
    let page = fs::read_to_string(sources.join("src/environment.md")).expect("the page");
    let (page, _) = page.split_once("\nOther parts").expect("the second table");
    let (_, table) = page.split_once("\n|---").expect("a table");
    let rows = table.lines().filter_map(|row| row.split('|').nth(1));
    assert_eq!(rows.flat_map(|row| names(row, '`')).collect::<BTreeSet<_>>(), known);

    let mut all = Vec::new();
    for folder in ["src", "cdylib/src", "cdylib/runner"] {
        files(&sources.join(folder), &mut all);
    }
    let is_source = |file: &&PathBuf| file.extension().is_some_and(|end| end == "rs");
    for file in all.iter().filter(is_source) {
        let source = fs::read_to_string(file).expect("a source");
        let is_reader = file.ends_with("cuda-sim/src/environment.rs");
        // The command also reads variables of the system.
        let is_runner = file.ends_with("runner/run.rs") || file.ends_with("runner/cache.rs");
        let reads = source.contains("env::var");
        assert!(!reads || is_reader || is_runner, "{} reads variables", file.display());
        let mut named = names(&source, '"');
        // Names the library at compile time, in the build script.
        named.remove("CUDA_SIM_LIBRARY");
        assert!(named.is_empty() || is_reader, "{}: {named:?}", file.display());
        assert!(!is_reader || named == known, "{named:?}");
    }
}

#[test]
fn a_wrong_value_of_any_variable_gives_a_driver_without_devices() {
    let driver = or_skip!(driver());
    let python = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))";
    for (variable, value, reason) in [
        ("CUDA_SIM", "h200@12.5", "no profile 12.5: the GPUs are"),
        ("CUDA_SIM_KERNELS", "yes", "\"yes\" is not \"interpret\", \"registered\" or \"ignore\""),
        ("CUDA_SIM_RACES", "typo", "\"typo\" is neither \"0\" nor \"1\""),
        (
            "CUDA_SIM_CHECKS",
            "sync",
            "no check \"sync\": the checks are memcheck, initcheck, racecheck, synccheck",
        ),
        ("CUDA_SIM_LENIENT", "yes", "\"yes\" is neither \"0\" nor \"1\""),
        (
            "CUDA_SIM_COVERAGE",
            "kernels.info",
            "\"kernels.info\" is not the absolute path of a file",
        ),
        ("CUDA_SIM_ACCOUNT", "stderr", "\"stderr\" is neither \"-\" nor the absolute path"),
        ("CUDA_SIM_FAULTS", "cuMemAlloc_v2,cuNever", "no fault cuNever: a fault is"),
        ("CUDA_SIM_FAULTS", "cuInit:0", "no fault cuInit:0"),
        ("CUDA_SIM_FAULTS", "cuInit=0", "no fault cuInit=0"),
        ("CUDA_SIM_FAULTS", "cuInit=CUDA_ERROR_OF_MINE", "no fault cuInit="),
    ] {
        let mut run = command("python3", &driver, "h200");
        let Ok(output) = run.args(["-c", python]).env(variable, value).output() else {
            return crate::common::skip("no python3");
        };
        assert_eq!(text(&output.stdout), "100\n");
        let errors = text(&output.stderr);
        assert!(errors.starts_with(&format!("cuda-sim: {variable}: ")), "{errors}");
        assert!(errors.contains(reason), "{errors}");
        assert!(errors.ends_with("; the driver reports no devices\n"));
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}

#[test]
fn every_wrong_variable_is_reported_and_the_account_is_still_written() {
    let driver = or_skip!(driver());
    let python = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))";
    let mut run = command("python3", &driver, "h200");
    let run = run.args(["-c", python]).envs([
        ("CUDA_SIM_KERNELS", "no"),
        ("CUDA_SIM_RACES", "on"),
        ("CUDA_SIM_ACCOUNT", "-"),
    ]);
    let Ok(output) = run.output() else {
        return crate::common::skip("no python3");
    };
    assert_eq!(text(&output.stdout), "100\n");
    let errors = text(&output.stderr);
    let lines: Vec<&str> = errors.lines().collect();
    assert!(lines[0].starts_with("cuda-sim: CUDA_SIM_KERNELS: "), "{errors}");
    assert!(lines[1].starts_with("cuda-sim: CUDA_SIM_RACES: "), "{errors}");
    assert!(lines[2].starts_with("cuda-sim: process "), "{errors}");
}

#[test]
fn a_fault_of_the_environment_makes_the_call_fail_that_it_names() {
    let driver = or_skip!(driver());
    let python = "import ctypes; cu = ctypes.CDLL('libcuda.so.1')\n\
                  print(*[cu.cuInit(0) for _ in range(4)], cu.cuDeviceGetCount(None))";
    let mut run = command("python3", &driver, "h200");
    let run = run
        .args(["-c", python])
        .env("CUDA_SIM_FAULTS", "cuInit:2=CUDA_ERROR_OUT_OF_MEMORY, cuInit:4+=3");
    let Ok(output) = run.output() else {
        return crate::common::skip("no python3");
    };
    assert_eq!(text(&output.stdout), "0 2 0 3 1\n");
}
