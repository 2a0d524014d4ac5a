//! The harness of the test binaries under Miri, which `cargo xtask miri` runs.
//!
//! Miri cannot start processes, and reads a whole test binary each time before it executes the first line. But it can
//! execute a binary many times in one process, each time with another seed and with new memory. Each execution runs one
//! test, so every test has a process of its own, as [`entered`](super::child::entered) promises.

extern crate test;

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use test::{TestDescAndFn, TestFn};

/// Names a folder. Its folder `waiting` has an empty file for each execution, with the name of the test, `#` and a
/// number. An execution moves one of them to the folder `started`. It then writes there how the test ended, `passed`,
/// `skipped` or `stopped`, and after how many milliseconds. The file of a test that failed stays empty.
///
/// Without this variable, an execution prints the names of all tests.
const FOLDER: &str = "CUDA_TESTS_MIRI";

/// A test that runs for longer is stopped, as one that Miri is too slow for.
const LIMIT: Duration = Duration::from_secs(600);

static NAME: OnceLock<String> = OnceLock::new();
static IS_SKIPPED: AtomicBool = AtomicBool::new(false);

pub(crate) fn run(tests: &[&TestDescAndFn]) {
    let Some(folder) = std::env::var_os(FOLDER) else {
        for test in tests.iter().filter(|test| !test.desc.ignore) {
            println!("{}: test", test.desc.name.as_slice());
        }
        return;
    };
    let Some((name, file)) = take(Path::new(&folder)) else {
        return;
    };
    // The compiler sorts the tests by name.
    let index = tests.binary_search_by(|test| test.desc.name.as_slice().cmp(&name));
    let TestFn::StaticTestFn(test) = tests[index.expect("a test of this binary")].testfn else {
        panic!("{name} is not a test");
    };
    let name = NAME.get_or_init(|| name);
    println!("running {name}");
    let (file, start) = (&file, Instant::now());
    let write = move |result: &str| {
        let mut file = file;
        write!(file, "{result} {}", start.elapsed().as_millis()).expect("a writable file");
    };
    let (end, ended) = channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout) {
                write("stopped");
                std::process::exit(0);
            }
        });
        // The main thread runs the test. Miri reports the context stack of another thread that ends as a leak.
        test().expect("the test returns no error");
        drop(end);
    });
    write(if IS_SKIPPED.load(Ordering::Relaxed) { "skipped" } else { "passed" });
}

/// Takes an execution that no other one has taken. Returns the name of the test, and the file for the result.
fn take(folder: &Path) -> Option<(String, File)> {
    let waiting = std::fs::read_dir(folder.join("waiting")).expect("the folder of the executions");
    let mut names = waiting.map(|entry| entry.expect("a file").file_name());
    let name = names.find_map(|name| {
        let started = folder.join("started").join(&name);
        std::fs::rename(folder.join("waiting").join(&name), &started).ok()?;
        Some((name, File::create(started).expect("a writable file")))
    });
    name.map(|(name, file)| {
        let name = name.into_string().expect("the name of a test");
        let (test, _) = name.rsplit_once('#').expect("a number");
        (test.to_owned(), file)
    })
}

/// Notes that the test is skipped, and returns its name.
pub(crate) fn skipped() -> &'static str {
    IS_SKIPPED.store(true, Ordering::Relaxed);
    NAME.get().expect("a test is running")
}
