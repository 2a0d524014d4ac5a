//! Kernels of programs in C and Python: those that run by their PTX, and those that the programs register. The code is
//! that of the README of `cuda-sim`.

use crate::common::{c, skip};
use crate::{
    REPOSITORY, command, driver, folder, or_skip, output_of, output_with, runner, text, unique,
};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the code of a language in the README of `cuda-sim` that contains `part`.
fn documented(language: &str, part: &str) -> String {
    let page = include_str!("../../cuda-sim/README.md");
    let start = format!("```{language}\n");
    let blocks = page.split("\n```\n").filter_map(|block| block.split_once(&start));
    let mut blocks = blocks.filter(|(_, code)| code.contains(part));
    let (_, code) = blocks.next().expect("code of the language");
    assert!(blocks.next().is_none(), "one example of {language} with {part}");
    code.to_owned() + "\n"
}

/// Compiles the harness, with the functions of the README before it.
fn compile(driver: &Path) -> Option<PathBuf> {
    let source = Path::new(REPOSITORY).join("tests/libcuda/kernels.c");
    let example = unique(&folder(), "readme");
    fs::write(&example, documented("c", "cuSimRegisterKernel")).expect("writing the example");
    let program = compile_with(driver, &source, &["-include".as_ref(), example.as_os_str()]);
    fs::remove_file(example).expect("a file of this test");
    program
}

fn compile_with(driver: &Path, source: &Path, options: &[&OsStr]) -> Option<PathBuf> {
    let program = unique(&folder(), "kernels");
    c::compile(source, &program, |compiler| {
        compiler
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
            .arg(Path::new(REPOSITORY).join("cuda-sim/cdylib/include"))
            .arg("-I")
            .arg(Path::new(REPOSITORY).join("tests/libcuda/include"))
            .args(options)
            .arg("-L")
            .arg(driver)
            .args(["-lcuda", "-ldl"]);
    })?;
    Some(program)
}

/// Returns a folder with the PTX of the kernel in the README.
fn folder_with_ptx() -> PathBuf {
    let folder = unique(&folder(), "scale");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("scale.ptx"), include_str!("scale.ptx")).expect("writing the PTX");
    folder
}

#[test]
fn a_c_program_runs_a_kernel_by_its_ptx() {
    let driver = or_skip!(driver());
    let folder = folder_with_ptx();
    let source = folder.join("program.c");
    fs::write(&source, documented("c", "cuModuleLoad")).expect("writing the program");
    let program = or_skip!(compile_with(&driver, &source, &[]));
    output_of(command(&program, &driver, "h200").current_dir(&folder));
    // Without the kernel, the values do not change.
    let mut run = command(&program, &driver, "h200");
    let output = run.current_dir(&folder).env("CUDA_SIM_KERNELS", "ignore").output();
    assert!(text(&output.expect("starting a program").stderr).contains("values[0] == 2.5f"));
    fs::remove_file(program).expect("a file of this test");
    fs::remove_dir_all(folder).expect("a folder of this test");
}

/// Returns the folder of NVIDIA's headers that `cargo xtask` has installed with pip from `package`, or reports a
/// skip.
fn headers(package: &str) -> Option<PathBuf> {
    let list = include_str!("../../xtask/headers.toml");
    let newest = list.split("[[headers]]").nth(1).expect("an entry");
    assert!(newest.contains(&format!("{{ name = \"{package}\", ")), "{newest}");
    let version = newest.split('"').nth(1).expect("a version");
    let headers = Path::new(REPOSITORY).join("target/headers").join(version);
    if !headers.is_dir() {
        skip("NVIDIA's headers are not in target/headers: cargo xtask header-check installs them");
        return None;
    }
    Some(headers)
}

#[test]
fn the_commands_of_the_readme_compile_and_check_the_c_program() {
    let commands = documented("console", "-lcuda");
    let lines: Vec<&str> = commands.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    // `cargo xtask python` tests the wheel.
    let [install, pip, commands @ ..] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!(*install, "python3 -m pip install cuda-sim");
    let pip = pip.strip_prefix("python3 -m pip install --target headers ").expect(pip);
    assert_eq!(commands.len(), 2, "{commands:?}");

    let headers = or_skip!(headers(pip));
    let command = or_skip!(runner());
    if Command::new("cc").arg("--version").output().is_err() {
        return skip("no C compiler cc");
    }
    let folder = folder_with_ptx();
    symlink(headers, folder.join("headers")).expect("a link to the headers");
    fs::write(folder.join("scale.c"), documented("c", "cuModuleLoad")).expect("the program");
    let run = |line: &str| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        let own = command.parent().expect("a folder").to_owned();
        let paths = std::iter::once(own).chain(std::env::split_paths(&paths));
        Command::new("sh")
            .args(["-c", line])
            .current_dir(&folder)
            .env("PATH", std::env::join_paths(paths).expect("paths without a colon"))
            .env("XDG_CACHE_HOME", folder.join("cache"))
            .output()
            .expect("starting a shell")
    };
    for line in commands {
        let output = run(line);
        assert!(output.status.success(), "{line}:\n{}", text(&output.stderr));
    }
    // The program called the driver, and its kernel ran by its PTX.
    let account = text(&run(commands[1]).stderr);
    assert!(account.contains("  1 cuLaunchKernel\n"), "{account}");
    assert!(!account.contains("misuses"), "{account}");
    fs::remove_dir_all(folder).expect("a folder of this test");
}

#[test]
fn a_python_program_runs_a_kernel_by_its_ptx() {
    let driver = or_skip!(driver());
    if Command::new("python3").arg("-V").output().is_err() {
        return skip("no python3");
    }
    let folder = folder_with_ptx();
    fs::write(folder.join("program.py"), documented("python", "")).expect("writing the program");
    output_of(command("python3", &driver, "h200").arg("program.py").current_dir(&folder));
    fs::remove_dir_all(folder).expect("a folder of this test");
}

/// The output of `kernels.c` before the last kernel.
const WELL: &str = "\
scale 0
2.5 5 7.5 10
look: grid 2 3 4, block 5 6 7, cluster 1, shared 80, user me
arguments: 2 of 8 and 1 bytes, the second is 200
no variable 500
counter 7 of 4 bytes
from another thread 1
look: grid 1 1 1, block 1 1 1, cluster 1, shared 0, user me
arguments: 2 of 8 and 1 bytes, the second is 200
no variable 500
counter 8 of 4 bytes
from another thread 1
after the launch 1 1
cuGetProcAddress 0 1, dlsym 1
";

#[test]
fn a_c_program_registers_kernels() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile(&driver));
    let output = output_of(command(&program, &driver, "h200").arg("scale"));
    assert_eq!(output, format!("{WELL}scale 0\n"));

    let failed = |kernel: &str, output: &str, reason: &str| {
        let run = command(&program, &driver, "h200").arg(kernel).output();
        let run = run.expect("starting a program");
        assert_eq!(text(&run.stdout), format!("{WELL}{output}"));
        let errors = text(&run.stderr);
        let start = format!("cuda-sim: misuse: kernel \"{kernel}\": ");
        assert!(errors.starts_with(&start) && errors.contains(reason), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    };
    failed("stray", "stray read 1\nstray 700\n", "64 bytes at 0x");
    failed("fails", "fails 700\n", "out of paper");

    let run = command(&program, &driver, "h200").arg("poison").output();
    let run = run.expect("starting a program");
    assert_eq!(text(&run.stdout), format!("{WELL}beyond the memory 1\npoisoned 1\n"));
    let errors = text(&run.stderr);
    assert!(errors.contains("are poisoned from the byte 12 of 16 bytes"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
    fs::remove_file(program).expect("a file of this test");
}

#[test]
fn a_kernel_that_is_not_registered_runs_by_its_ptx_or_fails_with_its_name_or_does_nothing() {
    let driver = or_skip!(driver());
    let program = or_skip!(compile(&driver));
    let mut run = command(&program, &driver, "h200");
    run.arg("unregistered");
    // The kernel runs by its PTX.
    assert_eq!(output_of(&mut run), "scale 0\n");

    let output = run.env("CUDA_SIM_KERNELS", "registered").output().expect("starting a program");
    assert_eq!(text(&output.stdout), "scale 700\n");
    let errors = text(&output.stderr);
    let reason = "cuda-sim: misuse: kernel \"scale\" is not registered, so it cannot run: ";
    assert!(errors.starts_with(reason), "{errors}");
    assert!(errors.contains("cuSimRegisterKernel"), "{errors}");

    let output = output_of(run.env("CUDA_SIM_KERNELS", "ignore"));
    assert_eq!(output, "scale 0\n");
    fs::remove_file(program).expect("a file of this test");
}

#[test]
fn a_python_program_registers_a_kernel() {
    let driver = or_skip!(driver());
    if Command::new("python3").arg("-V").output().is_err() {
        return skip("no python3");
    }
    let harness = Path::new(REPOSITORY).join("tests/libcuda/kernels.py");
    let harness = fs::read_to_string(harness).expect("the harness");
    let program = unique(&folder(), "kernels.py");
    fs::write(&program, harness).expect("writing the program");
    for argument in [None, Some("on the driver's thread")] {
        let mut run = command("python3", &driver, "h200");
        let output = output_with(run.arg(&program).args(argument), "");
        assert_eq!(output, "2.5 5.0 7.5 10.0\n");
    }
    fs::remove_file(program).expect("a file of this test");
}
