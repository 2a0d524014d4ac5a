//! `cargo install` of the command from its package, as a registry distributes it.

use crate::common::skip;
use crate::{REPOSITORY, text, unique};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The packages that are not in a registry: the command, and those that it needs for a build or a test.
const PACKAGES: [&str; 5] = ["cuda-sys", "cuda-safe", "cuda-ptx", "cuda-sim", "cuda-sim-cdylib"];

/// Runs Cargo or another program, which must succeed.
#[track_caller]
fn succeed(command: &mut Command) -> String {
    let output = command.output().expect("starting a program");
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{errors}");
    text(&output.stdout)
}

fn cargo(at: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .current_dir(at)
        .env("CARGO_NET_OFFLINE", "true")
        // Both builds take less time.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

#[test]
#[ignore = "builds the driver twice in release mode; run it with `cargo test --test libcuda -- --ignored`"]
fn the_command_is_installed_from_its_package_and_contains_the_library() {
    let repository = Path::new(REPOSITORY);
    if !repository.join("Cargo.toml").is_file() {
        return skip("the sources are elsewhere");
    }
    // Outside of the workspace, to which Cargo would count the packages.
    let folder = unique(&std::env::temp_dir(), "cuda-sim-install");
    fs::create_dir_all(&folder).expect("making the test's folder");

    let mut package = cargo(repository);
    package.args([
        "package",
        "--no-verify",
        "--allow-dirty",
        "--exclude-lockfile",
        "--quiet",
        "--target-dir",
    ]);
    package.arg(&folder);
    for name in PACKAGES {
        package.args(["--package", name]);
    }
    succeed(&mut package);
    let mut patches = "[patch.crates-io]\n".to_owned();
    let mut command = None;
    for entry in fs::read_dir(folder.join("package")).expect("the packages") {
        let path = entry.expect("a package").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(".crate") else {
            continue;
        };
        let mut unpack = Command::new("tar");
        succeed(unpack.current_dir(&folder).arg("xzf").arg(&path));
        // The version follows the name.
        let its = PACKAGES.iter().find(|its| {
            let version = name.strip_prefix(**its).and_then(|rest| rest.strip_prefix('-'));
            version.is_some_and(|version| version.starts_with(|first: char| first.is_ascii_digit()))
        });
        match *its.expect("one of the packages") {
            "cuda-sim-cdylib" => command = Some(folder.join(name)),
            its => patches += &format!("{its}.path = {:?}\n", folder.join(name)),
        }
    }
    // In place of a registry. The build script's Cargo finds the file too.
    fs::create_dir(folder.join(".cargo")).expect("making a folder");
    fs::write(folder.join(".cargo/config.toml"), patches).expect("writing the configuration");
    let command = command.expect("the package of the command");
    let mut install = cargo(&folder);
    install.args(["install", "--quiet", "--path"]).arg(command);
    succeed(
        install
            .arg("--root")
            .arg(folder.join("root"))
            .arg("--target-dir")
            .arg(folder.join("target")),
    );
    // Nothing of the build is left.
    for left in ["target", "package"] {
        fs::remove_dir_all(folder.join(left)).expect("removing the build");
    }

    let mut run = Command::new(folder.join("root/bin/cuda-sim"));
    run.args(["run", "--no-account", "--devices=4", "--", "python3", "-c"]);
    run.arg("import ctypes; print(ctypes.CDLL('libcuda.so').cuInit(0))");
    run.env("XDG_CACHE_HOME", folder.join("cache"));
    assert_eq!(succeed(&mut run), "0\n");
    let mut library = Command::new(folder.join("root/bin/cuda-sim"));
    succeed(library.arg("library").arg(folder.join("driver")));
    let library = fs::read(folder.join("driver/libcuda.so.1")).expect("the library");
    let command = fs::read(folder.join("root/bin/cuda-sim")).expect("the command");
    let copies = command.windows(library.len()).filter(|part| *part == library).count();
    assert_eq!(copies, 1, "the command has more than one copy of the library");
    run_workflow(&folder);
    fs::remove_dir_all(&folder).expect("removing the test's folder");
}

/// Runs the commands of the workflow for adopters, but for the installation, in a folder with a crate. Its test passes,
/// and then leaks a buffer.
#[track_caller]
fn run_workflow(folder: &Path) {
    let file = Path::new(REPOSITORY).join("examples/adopters/workflow.yml");
    let workflow = fs::read_to_string(file).expect("the workflow");
    let commands = workflow.lines().filter_map(|line| line.trim().strip_prefix("- run: "));
    let commands: Vec<&str> = commands.collect();
    let ["cargo install cuda-sim-cdylib", build, test] = commands[..] else {
        panic!("{commands:?}");
    };

    let adopter = folder.join("adopter");
    fs::create_dir_all(adopter.join("src")).expect("making a folder");
    fs::write(adopter.join("Cargo.toml"), ADOPTER).expect("writing the manifest");
    let mut path = vec![folder.join("root/bin")];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    let path = std::env::join_paths(path).expect("a search path");
    let shell = |line: &str| {
        let mut shell = Command::new("sh");
        shell.current_dir(&adopter).args(["-c", line]).env("PATH", &path);
        shell.env("CARGO_NET_OFFLINE", "true").env("XDG_CACHE_HOME", folder.join("cache"));
        shell
    };
    fs::write(adopter.join("src/lib.rs"), ADOPTER_TEST).expect("writing the test");
    succeed(&mut shell(build));
    succeed(&mut shell(test));
    let leaks = ADOPTER_TEST.replace("drop(", "std::mem::forget(");
    fs::write(adopter.join("src/lib.rs"), leaks).expect("writing the test");
    let output = shell(test).output().expect("starting a shell");
    let errors = text(&output.stderr);
    assert_eq!(output.status.code(), Some(120), "{errors}");
    assert!(errors.contains("rejected: objects alive: "), "{errors}");
}

const ADOPTER: &str = r#"
[package]
name = "adopter"
edition = "2024"

[dependencies]
cuda-safe = "0.1"
"#;

const ADOPTER_TEST: &str = "
#[test]
fn a_buffer_keeps_its_elements() {
    let device = cuda_safe::Device::get(0).unwrap();
    let stream = cuda_safe::Context::primary(&device).unwrap().stream().unwrap();
    let buffer = cuda_safe::DeviceBuffer::from_slice(&stream, &[1, 2, 3]).unwrap();
    assert_eq!(buffer.to_vec().unwrap(), [1, 2, 3]);
    drop(buffer);
}
";
