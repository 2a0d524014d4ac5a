//! The command `cuda-sim`.

use crate::common::skip;
use crate::{folder, or_skip, runner, text, unique};
use cuda_sim::environment::Variable;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Returns the command with the cache of these tests, or reports a skip.
fn command() -> Option<Command> {
    let mut command = Command::new(runner()?);
    for variable in Variable::ALL {
        command.env_remove(variable.name());
    }
    command.env("XDG_CACHE_HOME", &*CACHE);
    Some(command)
}

/// The cache, without the libraries of older builds.
static CACHE: LazyLock<PathBuf> = LazyLock::new(|| {
    let cache = folder().join("cache");
    for library in fs::read_dir(cache.join("cuda-sim")).into_iter().flatten() {
        let Ok(library) = library else { continue };
        let time = library.metadata().and_then(|its| its.modified());
        let age = time.ok().and_then(|time| time.elapsed().ok());
        // Another run of the tests may use it.
        if age.is_some_and(|age| age > Duration::from_secs(3600)) {
            let _ = fs::remove_dir_all(library.path());
        }
    }
    cache
});

/// Runs the command.
fn output(arguments: &[&str]) -> Option<Output> {
    let mut command = command()?;
    Some(command.args(arguments).output().expect("starting the command"))
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
    let options = ["--profile=a100", "--driver", "12.4", "--devices=3", "--seed=5"];
    let output = or_skip!(python(&options, code));
    assert_eq!(text(&output.stdout), "12040 3 a100*3@12.4#5\n");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn options_replace_parts_of_the_profile_of_the_environment() {
    for (inherited, options, expected) in [
        ("a100*2@12.4#7", &["--driver=12.6"][..], "a100*2@12.6#7"),
        ("a100", &["--devices=3", "--seed=1"], "a100*3#1"),
        ("a100@12.4", &["--profile=h200"], "h200"),
        ("", &["--profile=h200@12.4", "--devices=2"], "h200*2@12.4"),
    ] {
        let mut command = or_skip!(command());
        command.args(["run", "--no-account"]).args(options);
        command.args(["sh", "-c", "echo $CUDA_SIM"]);
        let output = command.env("CUDA_SIM", inherited).output();
        let output = output.expect("the command");
        assert_eq!(text(&output.stdout), format!("{expected}\n"), "{output:?}");
    }
}

#[test]
fn a_signal_that_the_caller_ignores_is_ignored_by_the_program() {
    let runner = or_skip!(runner());
    let script = "trap '' HUP; exec \"$0\" run --no-account -- sh -c 'kill -HUP $$; echo alive'";
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).arg(runner);
    let output = shell.env("XDG_CACHE_HOME", &*CACHE).output();
    let output = output.expect("a shell");
    assert_eq!(text(&output.stdout), "alive\n", "{output:?}");
}

/// Prints the code of `cuInit` and the files of the driver that are mapped, in another folder.
const OPENED: &str = "import ctypes, os; os.chdir('/'); code = ctypes.CDLL('libcuda.so.1').cuInit(0)\n\
                      maps = {line.split()[-1] for line in open('/proc/self/maps')}\n\
                      print(code, *[path for path in maps if 'libcuda' in path])";

/// Runs a program without an account, and returns the folder of the driver that it opened.
#[track_caller]
fn opened_in(command: &mut Command) -> PathBuf {
    command.args(["run", "--no-account", "python3", "-c", OPENED]);
    let output = command.output().expect("the command");
    let shown = text(&output.stdout);
    let path = shown.trim_end().strip_prefix("0 ");
    let path = path.unwrap_or_else(|| panic!("{shown}{}", text(&output.stderr)));
    Path::new(path).parent().expect("a folder").to_owned()
}

#[test]
fn a_program_that_changes_its_folder_finds_the_driver_with_a_relative_temporary_folder() {
    let place = unique(&folder(), "temporary");
    fs::create_dir_all(place.join("inner")).expect("a folder of this test");
    let mut command = or_skip!(command());
    command
        .current_dir(&place)
        .env("TMPDIR", "inner")
        .env("HOME", "/proc")
        .env_remove("XDG_CACHE_HOME");
    let driver = opened_in(&mut command);
    assert!(driver.starts_with(place.join("inner")), "{driver:?}");
    // The program's account finds its folder too.
    let mut command = or_skip!(self::command());
    command.args(["run", "--", "python3", "-c", OPENED]);
    let output = command.current_dir(&place).env("TMPDIR", "inner").output();
    let errors = text(&output.expect("the command").stderr);
    assert!(errors.contains("account of 1 process\n"), "{errors}");
    // Only the library is left.
    let left = fs::read_dir(place.join("inner")).expect("a folder of this test");
    assert_eq!(left.count(), 1);
    fs::remove_dir_all(place).expect("a folder of this test");
}

#[test]
fn the_library_is_in_a_folder_that_only_the_user_can_change() {
    let place = unique(&folder(), "places");
    let (cache, temporary) = (place.join("cache"), place.join("temporary"));
    fs::create_dir_all(&temporary).expect("a folder of this test");
    let run = |cache: &Path| {
        let mut command = command()?;
        command.env("TMPDIR", &temporary).env("XDG_CACHE_HOME", cache);
        Some(opened_in(&mut command))
    };
    let first = or_skip!(run(&cache));
    let its = cache.join("cuda-sim");
    assert_eq!(first.parent(), Some(&*its));
    assert_eq!(fs::metadata(&its).expect("the folder").mode() & 0o777, 0o700);
    // The second run uses the same file.
    let library = || fs::metadata(first.join("libcuda.so.1")).expect("the library");
    let number = library().ino();
    assert_eq!(or_skip!(run(&cache)).as_path(), first);
    assert_eq!(library().ino(), number);
    // A damaged file is replaced.
    fs::write(first.join("libcuda.so.1"), "damaged").expect("the library");
    assert_eq!(or_skip!(run(&cache)).as_path(), first);
    assert!(library().len() > 7);

    // Folders that another user could change are not used.
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(&its, open.clone()).expect("the folder");
    let second = or_skip!(run(&cache));
    assert!(second.starts_with(&temporary), "{second:?}");
    fs::set_permissions(second.parent().expect("a folder"), open).expect("the folder");
    let mut command = or_skip!(command());
    command.env("TMPDIR", &temporary).env("XDG_CACHE_HOME", &cache);
    let output = command.args(["run", "true"]).output().expect("the command");
    assert_eq!(output.status.code(), Some(125));
    let errors = text(&output.stderr);
    for part in ["no place for the library: other users can write to ", "set XDG_CACHE_HOME"] {
        assert!(errors.contains(part), "{errors}");
    }
    // Nor is a link, or a path that the dynamic linker would split.
    let target = place.join("target");
    fs::DirBuilder::new().mode(0o700).create(&target).expect("a folder");
    let linked = place.join("linked");
    fs::create_dir(&linked).expect("a folder of this test");
    symlink(&target, linked.join("cuda-sim")).expect("a link");
    for (cache, reason) in [(linked, "is not a folder"), (place.join("a:b"), "contains :")] {
        let mut command = or_skip!(self::command());
        command.env("TMPDIR", &temporary).env("XDG_CACHE_HOME", cache);
        let output = command.args(["run", "true"]).output().expect("the command");
        let errors = text(&output.stderr);
        assert!(errors.contains(reason), "{errors}");
    }
    fs::remove_dir_all(place).expect("a folder of this test");
}

#[test]
fn the_command_prints_the_folder_of_the_library_in_the_cache() {
    let mut run = or_skip!(command());
    let used = opened_in(&mut run);
    let printed = or_skip!(output(&["library"]));
    assert!(printed.status.success());
    assert_eq!(Path::new(text(&printed.stdout).trim_end()), used);
    assert!(used.join("libcuda.so.1").is_file() && used.join("libcuda.so").is_file());
}

#[test]
fn a_process_that_outlives_the_command_finds_the_library() {
    let place = unique(&folder(), "late");
    fs::create_dir_all(&place).expect("a folder of this test");
    let (ended, result) = (place.join("ended"), place.join("result"));
    // Opens the driver after the command has ended.
    let script = "(until [ -e \"$1\" ]; do sleep 0.05; done
                   python3 -c \"$0\" >\"$2.part\"; mv \"$2.part\" \"$2\") >/dev/null 2>&1 </dev/null &";
    let mut command = or_skip!(command());
    command.args(["run", "--no-account", "sh", "-c", script, OPENED]);
    let output = command.args([&ended, &result]).output().expect("the command");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    fs::write(&ended, "").expect("a file of this test");
    let start = Instant::now();
    let result = loop {
        match fs::read_to_string(&result) {
            Ok(result) => break result,
            Err(why) => assert!(start.elapsed() < Duration::from_secs(60), "{why}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(result.starts_with("0 "), "{result}");
    fs::remove_dir_all(place).expect("a folder of this test");
}

#[test]
fn a_program_of_cuda_sys_uses_the_library_although_its_environment_names_another_driver() {
    const CHILD: &str = "CUDA_TESTS_CHILD_OF_RUNNER";
    if std::env::var_os(CHILD).is_some() {
        println!("{:?}", cuda_safe::version());
        return;
    }
    let mut command = or_skip!(command());
    command.args(["run", "--no-account", "--driver=12.4"]);
    command.arg(std::env::current_exe().expect("the path of this program"));
    command.args(["--exact", "--nocapture"]);
    command.arg(
        "runner::a_program_of_cuda_sys_uses_the_library_although_its_environment_names_another_driver",
    );
    let command = command.env(CHILD, "1");
    let output = command.env("CUDA_SYS_LIBRARY", "/no/such/driver").output();
    let output = output.expect("the command");
    let shown = text(&output.stdout);
    let version = format!("{:?}\n", Ok::<_, ()>(cuda_safe::sys::CudaVersion::new(12, 4)));
    assert!(shown.contains(&version), "{shown}");
}

#[test]
fn the_exit_status_says_whether_the_command_or_the_program_failed() {
    let place = unique(&folder(), "status");
    fs::create_dir_all(&place).expect("a folder of this test");
    let plain = place.join("plain");
    fs::write(&plain, "text").expect("a file of this test");
    let plain = plain.to_str().expect("a path in UTF-8");
    for (program, status) in [
        (&["sh", "-c", "exit 0"][..], 0),
        (&["sh", "-c", "exit 3"], 3),
        (&["sh", "-c", "exit 125"], 125),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["/no/such/program"], 127),
        (&["no-such-program-in-the-path"], 127),
        (&["/"], 126),
        (&[plain], 126),
        (&["--no-such-option"], 125),
    ] {
        let output = or_skip!(output(&[&["run", "--no-account"], program].concat()));
        assert_eq!(output.status.code(), Some(status), "{program:?}");
    }
    fs::remove_dir_all(place).expect("a folder of this test");
}

#[test]
fn the_account_has_the_calls_and_the_objects_of_every_process() {
    let child = "cu.cuInit(0); cu.cuTexRefDestroy(None)";
    let code = format!(
        "context = ctypes.c_void_p(); address = ctypes.c_uint64()\n\
         cu.cuInit(0); cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cu.cuCtxSetCurrent(context)\n\
         cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1000)); cu.cuMemFree_v2(ctypes.c_uint64(5))\n\
         subprocess.run([sys.executable, '-c', {:?}])\n\
         if os.fork() == 0: sys.exit(0)\n\
         os.wait()",
        format!("{OPEN}{child}").replace('\n', ";")
    );
    let output = or_skip!(python(&[], &code));
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let account = errors.split_once("cuda-sim: accounts of 2 processes\n");
    let (said, account) = account.unwrap_or_else(|| panic!("{errors}"));
    assert!(said.contains("cuTexRefDestroy is not simulated"), "{said}");
    // A title is one line, and has the start of the program.
    let lines = account.lines().map(|line| match line.starts_with("process ") {
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
        "calls: 2, of which 1 failed\n  1 cuInit\n  1 cuTexRefDestroy, of which 1 failed\n\
         functions that are not simulated: 1\n  cuTexRefDestroy\nobjects alive: none\n"
    );
}

#[test]
fn the_number_of_races_is_in_the_account_or_alone() {
    let output = or_skip!(python(&["--races"], "cu.cuInit(0)"));
    let errors = text(&output.stderr);
    assert!(errors.starts_with("cuda-sim: account of 1 process\n"), "{errors}");
    assert!(errors.ends_with("objects alive: none\nnumber of races: 0\n"), "{errors}");
    let output = or_skip!(python(&["--races", "--no-account"], "cu.cuInit(0)"));
    assert_eq!(text(&output.stderr), "cuda-sim: number of races: 0\n");
}

#[test]
fn checks_of_kernels_are_an_option_and_an_unknown_one_is_an_error() {
    let output = or_skip!(output(&["run", "--check", "memcheck,racecheks", "true"]));
    assert_eq!(output.status.code(), Some(125));
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("cuda-sim: no check \"racecheks\": the checks are memcheck, "),
        "{errors}"
    );
    let code = "print(os.environ['CUDA_SIM_CHECKS'], cu.cuInit(0))";
    let output = or_skip!(python(&["--no-account", "--check", "memcheck,synccheck"], code));
    assert_eq!(text(&output.stdout), "memcheck,synccheck 0\n");
}

/// Launches a kernel that branches on a word of memory that nothing has written.
const UNWRITTEN: &str = r#"
text = b""".version 8.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 a) {
    .reg .pred %p; .reg .b32 %r; .reg .b64 %d;
    ld.param.u64 %d, [a];
    ld.global.u32 %r, [%d];
    setp.eq.u32 %p, %r, 0;
    @%p st.global.u32 [%d+4], 1;
    ret;
}"""
V = ctypes.c_void_p; context, module, kernel, memory = V(), V(), V(), ctypes.c_uint64()
codes = [cu.cuInit(0), cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cu.cuCtxSetCurrent(context),
    cu.cuModuleLoadData(ctypes.byref(module), text), cu.cuModuleGetFunction(ctypes.byref(kernel), module, b'k'),
    cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(64))]
arguments = (V * 1)(ctypes.cast(ctypes.byref(memory), V))
codes += [cu.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None), cu.cuCtxSynchronize()]
print(*codes)
"#;

#[test]
fn initcheck_of_the_option_and_of_the_variable_finds_memory_that_was_never_written() {
    let expected =
        "misuse: initcheck: kernel `k`: a condition depends on memory that was never written";
    let option = or_skip!(python(&["--no-account", "--check", "initcheck"], UNWRITTEN));
    let driver = or_skip!(crate::driver());
    let mut run = crate::command("python3", &driver, "h200");
    let run = run.args(["-c", &format!("{OPEN}{UNWRITTEN}")]);
    let variable = run.env("CUDA_SIM_CHECKS", "initcheck").output().expect("python3 runs");
    for output in [option, variable] {
        let errors = text(&output.stderr);
        assert_eq!(text(&output.stdout), "0 0 0 0 0 0 0 0\n", "{errors}");
        assert!(errors.contains(expected), "{errors}");
        let memory = "the byte 0 (element 0 of size 4) of 64 bytes of device memory";
        assert!(errors.contains(memory), "{errors}");
    }
    let without = or_skip!(python(&["--no-account"], UNWRITTEN));
    assert_eq!(text(&without.stderr), "");
}

#[test]
fn the_coverage_of_all_processes_is_in_one_file() {
    let place = unique(&folder(), "coverage");
    fs::create_dir_all(&place).expect("a folder of this test");
    let file = place.join("kernels.info");
    fs::write(&file, "of another run").expect("a file of this test");
    // Two processes run the kernel, in another folder, and a fork of the first one does not.
    let code = format!(
        "import os, subprocess, sys; os.chdir('/')\n{UNWRITTEN}\n\
         if len(sys.argv) < 3: subprocess.run([sys.executable, '-c', sys.argv[1], sys.argv[1], 'again'])\n\
         if os.fork() == 0: sys.exit(0)\nos.wait()"
    );
    let code = format!("{OPEN}{code}");
    let mut command = or_skip!(command());
    command.args(["run", "--no-account", "--coverage", "kernels.info", "--"]);
    command.args(["python3", "-c", &code, &code]).current_dir(&place);
    let Ok(output) = command.output() else { return skip("no python3") };
    assert_eq!(text(&output.stdout), "0 0 0 0 0 0 0 0\n0 0 0 0 0 0 0 0\n", "{output:?}");
    assert_eq!(text(&output.stderr), "");
    let trace = fs::read_to_string(&file).expect("the tracefile");
    let records: Vec<&str> = trace.split_inclusive("end_of_record\n").collect();
    let [first, second] = records[..] else { panic!("{trace}") };
    assert_eq!(first, second);
    let (name, record) =
        first.split_once('\n').and_then(|(_, rest)| rest.split_once('\n')).expect(first);
    let copy = fs::read_to_string(name.strip_prefix("SF:").expect(name)).expect("the PTX");
    assert!(copy.starts_with(".version 8.0\n.target sm_80\n"), "{copy}");
    // Memory that was never written is not zero.
    let lines = "DA:6,1\nDA:7,1\nDA:8,1\nDA:9,0\nDA:10,1\n";
    let functions = "FN:4,k\nFNDA:1,k\nFNF:1\nFNH:1\n";
    assert_eq!(record, format!("{functions}{lines}LF:5\nLH:4\nend_of_record\n"));
    fs::remove_dir_all(place).expect("a folder of this test");
    let output = or_skip!(python(&["--coverage", "/no such/folder"], ""));
    assert_eq!(output.status.code(), Some(125));
    let errors = text(&output.stderr);
    assert!(errors.starts_with("cuda-sim: writing the coverage to /no such/folder: "), "{errors}");
}

#[test]
fn the_account_says_which_process_ended_without_one() {
    let output = or_skip!(python(&[], "cu.cuInit(0); os.kill(os.getpid(), 9)"));
    assert_eq!(output.status.code(), Some(128 + 9));
    let errors = text(&output.stderr);
    assert!(errors.starts_with("cuda-sim: account of 1 process\n"), "{errors}");
    assert!(errors.contains("no account: the process ended without exit handlers"), "{errors}");
}

/// The context of the first device, current, with 4000 bytes of its memory.
const LEAK: &str = "context = ctypes.c_void_p(); address = ctypes.c_uint64(); cu.cuInit(0)
cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cu.cuCtxSetCurrent(context)
cu.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4000))
";
/// Releases the context.
const RELEASE: &str = "cu.cuDevicePrimaryCtxRelease_v2(0)";

#[test]
fn memory_that_ends_with_its_context_is_in_the_account() {
    let output = or_skip!(python(&[], &format!("{LEAK}{RELEASE}")));
    let errors = text(&output.stderr);
    let end = "objects alive: none\nended with their context: 1 device allocations, 4000 bytes of device memory\n";
    assert!(errors.ends_with(end), "{errors}");
    let free = "cu.cuMemFree_v2(address); ";
    let output = or_skip!(python(&[], &format!("{LEAK}{free}{RELEASE}")));
    let errors = text(&output.stderr);
    assert!(errors.ends_with("objects alive: none\n"), "{errors}");
}

#[test]
fn strict_runs_have_an_exit_status_for_what_they_reject() {
    let misuse = "cu.cuInit(0); cu.cuMemFree_v2(ctypes.c_uint64(5))";
    let leak = format!("{LEAK}0");
    let ended = format!("{LEAK}{RELEASE}");
    let correct = format!("{LEAK}cu.cuMemFree_v2(address); {RELEASE}");
    for (options, code, expected, line) in [
        (&["--strict"][..], misuse, 120, "misuses: 1"),
        (&["--strict", "--no-account"], misuse, 120, "misuses: 1"),
        (&["--leaks"], misuse, 120, "misuses: 1"),
        (&["--strict"], "cu.cuInit(0); os.kill(os.getpid(), 9)", 137, "no account: "),
        (&["--strict"], "cu.cuInit(0); os._exit(0)", 120, "no account: "),
        (&["--strict"], "pass", 120, "cuda-sim: no process called the driver"),
        (&["--strict"], "cu.cuInit(0); sys.exit(3)", 3, ""),
        (&["--strict"], &leak, 0, ""),
        (&["--leaks"], &leak, 120, "objects alive: 1 retains"),
        (&["--strict"], &ended, 0, ""),
        (&["--leaks"], &ended, 120, "ended with their context: 1 device"),
        (&["--leaks"], &correct, 0, ""),
        (&[], misuse, 0, ""),
        (
            &["--strict", "--faults", "cuMemAlloc:2"],
            &correct,
            120,
            "faults that made no call fail: 1",
        ),
        (&["--strict", "--faults", "cuMemAlloc=2"], &correct, 0, ""),
    ] {
        let output = or_skip!(python(options, code));
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(expected), "{options:?} {code}: {errors}");
        let rejected = format!("cuda-sim: rejected: {line}");
        assert_eq!(errors.contains(&rejected), !line.is_empty(), "{options:?} {code}: {errors}");
    }
}

#[test]
fn options_list_the_places_that_leak_memory() {
    let code = "context, memory = ctypes.c_void_p(), ctypes.c_uint64(); cu.cuInit(0)\n\
                cu.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0); cu.cuCtxSetCurrent(context)\n\
                cu.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(640))";
    for (option, is_listed) in [
        ("--leaks", true),
        ("--check=memcheck", true),
        ("--check=synccheck, memcheck", true),
        ("--check=synccheck", false),
        ("--strict", false),
    ] {
        let errors = text(&or_skip!(python(&[option], code)).stderr);
        let line = "\n  1 allocation of device memory, 640 bytes, by ";
        assert_eq!(errors.contains(line), is_listed, "{option}: {errors}");
    }
}

#[test]
fn a_misuse_names_the_option_that_replays_it() {
    let output =
        or_skip!(python(&["--seed", "7"], "cu.cuInit(0); cu.cuMemFree_v2(ctypes.c_uint64(5))"));
    let errors = text(&output.stderr);
    assert!(errors.contains("(seed 7: cuda-sim run --seed replays it)"), "{errors}");
}

#[test]
fn the_account_goes_to_a_file_or_nowhere() {
    let file = unique(&folder(), "account");
    let name = file.to_str().expect("a path in UTF-8");
    let output = or_skip!(python(&["--account", name], "cu.cuInit(0)"));
    assert_eq!(text(&output.stderr), "");
    let account = fs::read_to_string(&file).expect("the account");
    assert!(account.starts_with("cuda-sim: account of 1 process\nprocess "), "{account}");
    fs::remove_file(file).expect("a file of this test");

    let output = or_skip!(python(
        &["--no-account"],
        "cu.cuInit(0); print('CUDA_SIM_ACCOUNT' in os.environ)"
    ));
    assert_eq!((text(&output.stdout), text(&output.stderr)), ("False\n".to_owned(), String::new()));
}

#[test]
fn a_program_that_does_not_call_the_driver_is_said_not_to() {
    let output = or_skip!(output(&["run", "sh", "-c", "echo well"]));
    assert_eq!(text(&output.stdout), "well\n");
    let errors = text(&output.stderr);
    assert!(errors.starts_with("cuda-sim: no process called the driver. "), "{errors}");
}

#[test]
fn a_signal_is_passed_on_to_the_program() {
    let script = "trap 'echo stopped; exit 3' TERM; echo ready; while :; do sleep 0.1; done";
    let mut command = or_skip!(command());
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
    for (arguments, status, reason) in [
        (&["run"][..], 125, "run needs a program"),
        (&["walk"], 125, "no command walk"),
        (&["run", "--slowly", "true"], 125, "--slowly"),
        (&["run", "--driver=12.5", "true"], 125, "no profile 12.5"),
        (&["run", "--faults=cuNever", "true"], 125, "no fault cuNever"),
        (&["run", "/no/such/program"], 127, "starting /no/such/program: No such file"),
        (
            &["run", "--account=/no/such/folder/account", "sh", "-c", "exit 7"],
            125,
            "writing the account to /no/such/folder/account: No such file",
        ),
        (&["library", "--cache"], 125, "invalid option '--cache'"),
    ] {
        let output = or_skip!(output(arguments));
        assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        let errors = text(&output.stderr);
        assert!(errors.starts_with("cuda-sim: ") && errors.contains(reason), "{errors}");
    }
}

#[test]
fn the_lists_have_profiles_and_functions() {
    let profiles = text(&or_skip!(output(&["profiles"])).stdout);
    assert!(profiles.starts_with("h200\tNVIDIA H200, CUDA 13.0\n"), "{profiles}");
    let list = |arguments: &[&str]| output(arguments).map(|output| text(&output.stdout));
    let simulated = or_skip!(list(&["functions", "--driver", "12.4"]));
    let others = or_skip!(list(&["functions", "--not-simulated"]));
    for name in ["cuGreenCtxCreate\t12.4", "cuGetProcAddress_v2\t12.0", "cuMemAlloc_v2\t3.2"] {
        assert!(simulated.lines().any(|line| line == name), "{name}: {simulated}");
    }
    assert!(!simulated.contains("cuDevSmResourceSplit\t"));
    assert!(others.contains("cuGetExportTable\t") && !others.contains("cuMemAlloc_v2\t"));
    let header = text(&or_skip!(output(&["header"])).stdout);
    assert!(header.contains("int cuSimRegisterKernel("));
}
