//! Programs in C.

use crate::common::c;
use crate::{
    H200_SPLITS, NOT_SIMULATED, REPOSITORY, command, driver, minima, or_skip, output_of,
    output_with, text, unique,
};
use cuda_sys::{CudaVersion, Function};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Compiles `NAME.c` against the driver, or reports a skip without a C compiler.
fn compile(name: &str, driver: &Path) -> Option<PathBuf> {
    let source = Path::new(REPOSITORY).join(format!("tests/libcuda/{name}.c"));
    let program = unique(&crate::folder(), name);
    c::compile(&source, &program, |compiler| {
        compiler
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread"])
            .arg("-L")
            .arg(driver)
            // A library that the program does not call is not linked, so the program has to open
            // the driver itself.
            .args(["-Wl,--as-needed", "-lcuda", "-ldl"])
            // Independent of the compiler's default: with `-z now` a missing function ends the
            // program at its start.
            .arg("-Wl,-z,now");
    })?;
    Some(program)
}

/// The output of `program.c` after the devices and their splits.
const REST: &str = "\
memory: as it was
stack: created current, popped what was pushed, then as before, empty 201
end of thread: well
host function: ran by itself
not simulated 801 801, newer 500, no code 1
at exit: well
";

#[test]
fn a_program_gets_what_an_h200_gives() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile("program", &driver));
    let output = output_with(command(&program, &driver, "h200").args(minima()), NOT_SIMULATED);
    assert_eq!(
        output,
        format!(
            "before cuInit: 3\n\
             device 0: NVIDIA H200, 132 SMs, 9.0, driver 13000\n\
             {H200_SPLITS}{REST}"
        )
    );
    // Without a profile in the environment.
    let mut untold = command(&program, &driver, "");
    let again = output_with(untold.args(minima()).env_remove("CUDA_SIM"), NOT_SIMULATED);
    assert_eq!(again, output);
    remove(&program);
}

#[test]
fn a_program_sums_on_two_devices() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile("nccl", &driver));
    let output = output_of(&mut command(&program, &driver, "h200*2"));
    let sums = "10 12 14 16 18\n";
    assert_eq!(output, format!("version 22902, an invalid argument\n{sums}{sums}"));
    remove(&program);
}

#[test]
fn the_races_of_a_program_are_printed_if_its_environment_requests_it() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile("race", &driver));
    output_of(&mut command(&program, &driver, "h200"));
    let mut detecting = command(&program, &driver, "h200");
    let output = detecting.env("CUDA_SIM_RACES", "1").output();
    let output = output.expect("starting a program");
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let lines: Vec<&str> = errors.lines().collect();
    let [race, count] = lines[..] else {
        panic!("{errors}");
    };
    let start = "cuda-sim: race on 64 bytes of device memory at ";
    assert!(race.starts_with(start), "{race}");
    for part in ["a fill (cuMemsetD8Async) writes", "a copy (cuMemcpyDtoDAsync_v2) reads"] {
        assert!(race.contains(part), "{race}");
    }
    assert_eq!(count, "cuda-sim: number of races: 1");
    remove(&program);
}

#[test]
fn the_memory_that_a_program_leaks_is_listed_by_the_functions_that_have_allocated_it() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile("leak", &driver));
    let account = |leaks: &str| {
        let mut program = command(&program, &driver, "h200");
        program.env("CUDA_SIM_ACCOUNT", "-").env("CUDA_SIM_LEAKS", leaks);
        let output = program.output().expect("starting a program");
        assert!(output.status.success(), "{output:?}");
        text(&output.stderr)
    };
    let listed = account("1");
    let (_, leaks) = listed.split_once("places that leak memory: 2\n").expect(&listed);
    let [large, small] = leaks.lines().collect::<Vec<_>>()[..] else { panic!("{listed}") };
    assert!(
        large.starts_with("  2 allocations of device memory, 3072 bytes, by upload"),
        "{large}"
    );
    assert!(small.starts_with("  1 allocation of pinned memory, 64 bytes, by main"), "{small}");
    assert!(!account("0").contains("places that leak memory"));
    remove(&program);
}

#[test]
fn a_misuse_is_reported_with_the_function_that_calls_the_driver() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile("leak", &driver));
    let output = command(&program, &driver, "h200").arg("twice").output();
    let errors = text(&output.expect("starting a program").stderr);
    let (_, site) = errors.split_once("misuse: cuMemFree of ").expect(&errors);
    assert!(site.contains(", found in a call by release"), "{errors}");
    remove(&program);
}

#[test]
fn a_program_gets_the_profile_that_it_is_started_with() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile("program", &driver));
    let output = output_with(command(&program, &driver, "a100@12.4").arg("16"), NOT_SIMULATED);
    assert_eq!(
        output,
        format!(
            "before cuInit: 3\n\
             device 0: NVIDIA A100-SXM4-80GB, 108 SMs, 8.0, driver 12040\n\
             split flags=0: 16:6x16+12\n\
             split flags=1: 16:6x16+12\n\
             {REST}"
        )
    );
    remove(&program);
}

#[test]
fn an_unknown_profile_gives_a_driver_without_a_device() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile("program", &driver));
    let output = command(&program, &driver, "voodoo2").output().expect("starting a program");
    assert!(output.status.success());
    assert_eq!(text(&output.stdout), "before cuInit: 3\nno device: CUDA_ERROR_NO_DEVICE\n");
    let told = text(&output.stderr);
    assert!(
        told.starts_with("cuda-sim: CUDA_SIM: no profile voodoo2: the GPUs are h200, "),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1);
    remove(&program);
}

#[test]
fn a_program_finds_the_functions_of_its_driver_and_no_others() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile("lookup", &driver));
    let mut names = String::new();
    for function in Function::all() {
        writeln!(names, "{}", function.symbol()).expect("writing to a string cannot fail");
    }
    let list = unique(&crate::folder(), "names");
    fs::write(&list, names).expect("writing the names");
    for (profile, version) in [
        ("h200@13.5", CudaVersion::BINDINGS),
        ("h200", CudaVersion::new(13, 0)),
        ("h200@12.4", CudaVersion::new(12, 4)),
        ("h200@11.8", CudaVersion::new(11, 8)),
    ] {
        let (mut expected, mut there) = (String::new(), 0);
        for function in Function::all() {
            if function.since() <= version {
                there += 1;
            } else {
                let name = function.symbol();
                writeln!(expected, "missing: {name}").expect("writing to a string cannot fail");
            }
        }
        let all = Function::all().len();
        writeln!(expected, "{there} of {all}, thread 0").expect("writing to a string cannot fail");
        let names = File::open(&list).expect("reading the names");
        let output = output_of(command(&program, &driver, profile).stdin(names));
        assert_eq!(output, expected, "{profile}");
    }
    remove(&list);
    remove(&program);
}

fn remove(file: &Path) {
    fs::remove_file(file).expect("a file of this test");
}
