//! The command `cuda-sim`.

use crate::common::skip;
use crate::{folder, need, runner, text, unique};
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Output, Stdio};

/// Runs the command.
fn output(arguments: &[&str]) -> Option<Output> {
    let mut command = Command::new(runner()?);
    command.args(arguments);
    for variable in [
        "CUDA_SIM",
        "CUDA_SIM_KERNELS",
        "CUDA_SIM_FAULTS",
        "CUDA_SIM_ACCOUNT",
    ] {
        command.env_remove(variable);
    }
    Some(command.output().expect("starting the command"))
}

/// Opens the driver in Python.
const OPEN: &str = "import ctypes, os, subprocess, sys; cu = ctypes.CDLL('libcuda.so.1')\n";

/// Runs Python code in `cuda-sim run`, or reports a skip.
fn python(options: &[&str], code: &str) -> Option<Output> {
    if Command::new("python3").arg("-V").output().is_err() {
        skip("no python3");
        return None;
    }
    let code = format!("{OPEN}{code}");
    let program = ["--", "python3", "-c", &code, "an argument"];
    output(&[&["run"], options, &program].concat())
}

#[test]
fn a_program_runs_on_the_profile_of_the_options_and_its_status_is_returned() {
    let code = "version = ctypes.c_int(); count = ctypes.c_int(); cu.cuInit(0)\n\
                cu.cuDriverGetVersion(ctypes.byref(version)); cu.cuDeviceGetCount(ctypes.byref(count))\n\
                print(version.value, count.value, os.environ['CUDA_SIM']); sys.exit(7)";
    let options = [
        "--profile=a100",
        "--driver",
        "12.4",
        "--devices=3",
        "--seed=5",
    ];
    let output = need!(python(&options, code));
    assert_eq!(text(&output.stdout), "12040 3 a100*3@12.4#5\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn options_replace_parts_of_the_profile_of_the_environment() {
    let runner = need!(runner());
    for (inherited, options, expected) in [
        ("a100*2@12.4#7", &["--driver=12.6"][..], "a100*2@12.6#7"),
        ("a100", &["--devices=3", "--seed=1"], "a100*3#1"),
        ("a100@12.4", &["--profile=h200"], "h200"),
        ("", &["--profile=h200@12.4", "--devices=2"], "h200*2@12.4"),
    ] {
        let mut command = Command::new(&runner);
        command.args(["run", "--no-account"]).args(options);
        command.args(["sh", "-c", "echo $CUDA_SIM"]);
        let output = command.env("CUDA_SIM", inherited).output();
        let output = output.expect("the command");
        assert_eq!(text(&output.stdout), format!("{expected}\n"), "{output:?}");
    }
}

#[test]
fn a_signal_that_the_caller_ignores_is_ignored_by_the_program() {
    let runner = need!(runner());
    let script = "trap '' HUP; exec \"$0\" run --no-account -- sh -c 'kill -HUP $$; echo alive'";
    let output = Command::new("sh").args(["-c", script]).arg(runner).output();
    let output = output.expect("a shell");
    assert_eq!(text(&output.stdout), "alive\n", "{output:?}");
}

#[test]
fn a_program_that_changes_its_folder_finds_the_driver_with_a_relative_temporary_folder() {
    let runner = need!(runner());
    let place = unique(&folder(), "temporary");
    fs::create_dir_all(place.join("inner")).expect("a folder of this test");
    let script =
        "import os; os.chdir('/')\nimport ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))";
    let mut command = Command::new(&runner);
    command.args([
        "run",
        "--",
        "sh",
        "-c",
        "cd / && exec python3 -c \"$0\"",
        script,
    ]);
    let output = command.current_dir(&place).env("TMPDIR", "inner").output();
    let output = output.expect("the command");
    assert_eq!(text(&output.stdout), "0\n", "{output:?}");
    let errors = text(&output.stderr);
    assert!(errors.contains("account of 1 process\n"), "{errors}");

    let mut command = Command::new(&runner);
    let output = command
        .args(["run", "true"])
        .env("TMPDIR", "/tmp/a:b")
        .output();
    let output = output.expect("the command");
    assert_eq!(output.status.code(), Some(127));
    let errors = text(&output.stderr);
    assert!(errors.contains("contains :; set TMPDIR"), "{errors}");
    fs::remove_dir_all(place).expect("a folder of this test");
}

#[test]
fn the_account_has_the_calls_and_the_objects_of_every_process() {
    let child = "cu.cuInit(0); cu.cuGraphicsUnregisterResource(None)";
    let code = format!(
        "context = ctypes.c_void_p(); address = ctypes.c_uint64()\n\
         cu.cuInit(0); cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cu.cuCtxSetCurrent(context)\n\
         cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1000)); cu.cuMemFree_v2(ctypes.c_uint64(5))\n\
         subprocess.run([sys.executable, '-c', {:?}])\n\
         if os.fork() == 0: sys.exit(0)\n\
         os.wait()",
        format!("{OPEN}{child}").replace('\n', ";")
    );
    let output = need!(python(&[], &code));
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let account = errors.split_once("cuda-sim: accounts of 2 processes\n");
    let (said, account) = account.unwrap_or_else(|| panic!("{errors}"));
    assert!(
        said.contains("cuGraphicsUnregisterResource is not simulated"),
        "{said}"
    );
    // A title is one line, and has the start of the program.
    let lines = account
        .lines()
        .map(|line| match line.starts_with("process ") {
            true => "#",
            false => line,
        });
    let account = lines.collect::<Vec<_>>().join("\n") + "\n";
    let accounts: Vec<&str> = account.split('#').collect();
    let [nothing, parent, child] = accounts[..] else {
        panic!("{account}");
    };
    assert_eq!(nothing, "");
    let parent = parent.split_once('\n').expect("a title").1;
    assert_eq!(
        parent,
        "calls: 5, of which 1 failed\n  1 cuCtxSetCurrent\n  1 cuDevicePrimaryCtxRetain\n  1 cuInit\n  \
         1 cuMemAlloc_v2\n  1 cuMemFree_v2, of which 1 failed\n\
         misuses: 1\n  cuMemFree of 0x5, which is not a live allocation\n\
         objects alive: 1 retains, 1 device allocations, 1000 bytes of device memory\n"
    );
    let child = child.split_once('\n').expect("a title").1;
    assert_eq!(
        child,
        "calls: 2, of which 1 failed\n  1 cuGraphicsUnregisterResource, of which 1 failed\n  1 cuInit\n\
         functions that are not simulated: 1\n  cuGraphicsUnregisterResource\nobjects alive: none\n"
    );
}

#[test]
fn the_number_of_races_is_in_the_account_or_alone() {
    let output = need!(python(&["--races"], "cu.cuInit(0)"));
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("cuda-sim: account of 1 process\n"),
        "{errors}"
    );
    assert!(
        errors.ends_with("objects alive: none\nnumber of races: 0\n"),
        "{errors}"
    );
    let output = need!(python(&["--races", "--no-account"], "cu.cuInit(0)"));
    assert_eq!(text(&output.stderr), "cuda-sim: number of races: 0\n");
}

#[test]
fn the_account_says_which_process_ended_without_one() {
    let output = need!(python(&[], "cu.cuInit(0); os.kill(os.getpid(), 9)"));
    assert_eq!(output.status.code(), Some(128 + 9));
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("cuda-sim: account of 1 process\n"),
        "{errors}"
    );
    assert!(
        errors.contains("no account: the process ended without exit handlers"),
        "{errors}"
    );
}

#[test]
fn the_account_goes_to_a_file_or_nowhere() {
    let file = unique(&folder(), "account");
    let name = file.to_str().expect("a path in UTF-8");
    let output = need!(python(&["--account", name], "cu.cuInit(0)"));
    assert_eq!(text(&output.stderr), "");
    let account = fs::read_to_string(&file).expect("the account");
    assert!(
        account.starts_with("cuda-sim: account of 1 process\nprocess "),
        "{account}"
    );
    fs::remove_file(file).expect("a file of this test");

    let output = need!(python(
        &["--no-account"],
        "cu.cuInit(0); print('CUDA_SIM_ACCOUNT' in os.environ)"
    ));
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("False\n".to_owned(), String::new())
    );
}

#[test]
fn a_program_that_does_not_call_the_driver_is_said_not_to() {
    let output = need!(output(&["run", "sh", "-c", "echo well"]));
    assert_eq!(text(&output.stdout), "well\n");
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("cuda-sim: no process called the driver. "),
        "{errors}"
    );
}

#[test]
fn a_signal_is_passed_on_to_the_program() {
    let runner = need!(runner());
    let script = "trap 'echo stopped; exit 3' TERM; echo ready; while :; do sleep 0.1; done";
    let mut command = Command::new(runner);
    command.args(["run", "--no-account", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("the command");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("output");
    assert_eq!(line, "ready\n");
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-TERM", &id]).status();
    assert!(sent.expect("kill").success());
    assert_eq!(child.wait().expect("the command").code(), Some(3));
    line.clear();
    output.read_to_string(&mut line).expect("output");
    assert_eq!(line, "stopped\n");
}

#[test]
fn wrong_arguments_are_named() {
    for (arguments, reason) in [
        (&["run"][..], "run needs a program"),
        (&["walk"], "no command walk"),
        (&["run", "--slowly", "true"], "--slowly"),
        (&["run", "--driver=12.5", "true"], "no profile 12.5"),
        (&["run", "--faults=cuNever", "true"], "no fault cuNever"),
        (
            &["run", "/no/such/program"],
            "starting /no/such/program: No such file",
        ),
        (
            &[
                "run",
                "--account=/no/such/folder/account",
                "sh",
                "-c",
                "exit 7",
            ],
            "writing the account to /no/such/folder/account: No such file",
        ),
        (&["library"], "missing"),
    ] {
        let output = need!(output(arguments));
        assert_eq!(output.status.code(), Some(127), "{arguments:?}");
        let errors = text(&output.stderr);
        assert!(
            errors.starts_with("cuda-sim: ") && errors.contains(reason),
            "{errors}"
        );
    }
}

#[test]
fn the_lists_have_profiles_and_functions() {
    let profiles = text(&need!(output(&["profiles"])).stdout);
    assert!(
        profiles.starts_with("h200\tNVIDIA H200, CUDA 13.0\n"),
        "{profiles}"
    );
    let list = |arguments: &[&str]| output(arguments).map(|output| text(&output.stdout));
    let simulated = need!(list(&["functions", "--driver", "12.4"]));
    let others = need!(list(&["functions", "--not-simulated"]));
    for name in [
        "cuGreenCtxCreate\t12.4",
        "cuGetProcAddress_v2\t12.0",
        "cuMemAlloc_v2\t3.2",
    ] {
        assert!(
            simulated.lines().any(|line| line == name),
            "{name}: {simulated}"
        );
    }
    assert!(!simulated.contains("cuDevSmResourceSplit\t"));
    assert!(others.contains("cuGetExportTable\t") && !others.contains("cuMemAlloc_v2\t"));
    let header = text(&need!(output(&["header"])).stdout);
    assert!(header.contains("int cuSimRegisterKernel("));
}
