//! Child processes for tests, because an opened driver stays open for the whole process.

use crate::or_skip;
use cuda_safe::{Context, Device, Stream};
use std::io::Write;
use std::process::{Command, Output};

const VARIABLE: &str = "CUDA_TESTS_CHILD";

/// Runs `body` in a child process: the same test binary, restricted to this test. In the child,
/// this runs `body` and returns true. In the parent, it checks that the child succeeded.
///
/// `environment` is set for the child.
#[track_caller]
pub(crate) fn in_child(environment: &[(&str, &str)], body: impl FnOnce()) {
    if entered(environment) {
        body();
    }
}

/// In the child process that [`in_child`] describes, returns true. In the parent, starts the child,
/// checks that it succeeded, and returns false.
///
/// Under Miri, each test has its own process from the start (`miri.rs`), but no environment of its own.
#[track_caller]
pub(crate) fn entered(environment: &[(&str, &str)]) -> bool {
    if cfg!(miri) {
        if !environment.is_empty() {
            super::skip("under Miri, it has no environment of its own");
        }
        return environment.is_empty();
    }
    let thread = std::thread::current();
    let test = thread.name().expect("the thread of a test has the name of the test");
    let is_child = std::env::var(VARIABLE).is_ok_and(|name| name == test);
    if !is_child {
        run(test, environment);
    }
    is_child
}

/// Runs `body` in a child process, as [`in_child`] does, with the first device. The child reports a
/// skip if there is none.
#[track_caller]
pub(crate) fn with_gpu(body: impl FnOnce(Device)) {
    in_child(&[], || body(or_skip!(super::gpu())));
}

/// Runs `body` in a child process, with the primary context of the first device.
#[track_caller]
pub(crate) fn with_context(body: impl FnOnce(Context)) {
    in_child(&[], || body(or_skip!(super::context())));
}

/// Like [`with_context`], if the driver has at least this CUDA version.
#[track_caller]
pub(crate) fn with_context_since(major: u16, minor: u16, body: impl FnOnce(Context)) {
    in_child(&[], || body(or_skip!(super::context_since(major, minor))));
}

/// Runs `body` in a child process, with the primary context of the first device and a new stream.
#[track_caller]
pub(crate) fn with_stream(body: impl FnOnce(Context, Stream)) {
    in_child(&[], || {
        let (context, stream) = or_skip!(super::context_and_stream());
        body(context, stream);
    });
}

/// In a child process, starts another child for the same test and checks that it succeeded.
#[track_caller]
pub(crate) fn again(environment: &[(&str, &str)]) {
    let thread = std::thread::current();
    run(thread.name().expect("as above"), environment);
}

/// Runs `body` in a child process, which exits with the code that `body` returns while its other
/// threads are still running. Checks the exit code.
#[track_caller]
#[allow(dead_code, reason = "not every test binary uses this")]
pub(crate) fn exits(code: i32, body: impl FnOnce() -> i32) {
    let thread = std::thread::current();
    let test = thread.name().expect("the thread of a test has the name of the test");
    if std::env::var(VARIABLE).is_ok_and(|name| name == test) {
        std::process::exit(body());
    }
    let output = start(test, &[]);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{stdout}\n{stderr}");
}

#[track_caller]
fn run(test: &str, environment: &[(&str, &str)]) {
    let output = start(test, environment);
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "the child failed ({}):\n{stdout}\n{stderr}",
        output.status
    );
    // Repeats the child's skips and notes in the parent's output.
    let is_told = |line: &&str| line.starts_with("skipped ") || line.starts_with("note: ");
    for line in stderr.lines().filter(is_told) {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
}

fn start(test: &str, environment: &[(&str, &str)]) -> Output {
    let binary = std::env::current_exe().expect("the path of the test binary");
    Command::new(binary)
        .args([
            test,
            "--exact",
            "--nocapture",
            "--test-threads=1",
            // The test may be an ignored one that was requested.
            "--include-ignored",
        ])
        .env(VARIABLE, test)
        .envs(environment.iter().copied())
        .output()
        .expect("starting the test binary again")
}
