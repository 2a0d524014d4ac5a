//! Builds the tests with mutants, and runs them.
//!
//! Tests that need NVIDIA's libraries find those that other commands have installed in `target`, and are skipped
//! otherwise.

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::PACKAGES;
use crate::install::debian;
use crate::root;
use crate::testing::{in_parallel, test_binary};

/// The builds: their arguments for Cargo, and the start of the names of the programs that they are for.
const BUILDS: [(&[&str], &str); 2] = [
    (&["--lib", "--tests", "--features=cuda-workbench/serde,cuda-workbench/tracing"], ""),
    (&["--test=explore", "--features=cuda-workbench/explore"], "explore"),
];

/// The profile of other tests, without debug information.
const PROFILE: [&str; 3] = [
    "--profile=mutants",
    "--config=profile.mutants.inherits='dev'",
    "--config=profile.mutants.debug=false",
];

/// Programs without the test harness, which are one test each, and their arguments.
const WHOLE: [(&str, &[&str]); 3] =
    [("differ", &[]), ("explore", &["--schedules", "200"]), ("ptx", &[])];

/// The tests that take longer than all others together: they only run with `--slow`.
const SLOW: [&str; 3] = ["differ ", "explore ", "faults sweep"];

/// A program whose tests also run with the oldest driver, for the code that only it needs.
const OLD: (&str, &str) = ("driver", "p40@11.8");

/// An error of the compiler.
pub(super) struct Fault {
    pub(super) message: String,
    pub(super) main: Vec<Place>,
    pub(super) others: Vec<Place>,
}

/// A part of a file.
pub(super) struct Place {
    pub(super) file: String,
    pub(super) range: Range<usize>,
}

/// A line of Cargo's JSON output, with the fields that are used here.
#[derive(Deserialize)]
struct Line {
    message: Option<Message>,
    executable: Option<PathBuf>,
    target: Option<Target>,
    manifest_path: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Message {
    level: String,
    rendered: Option<String>,
    spans: Vec<Span>,
    children: Vec<Self>,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    byte_start: usize,
    byte_end: usize,
    is_primary: bool,
}

/// A program with tests.
struct Program {
    name: String,
    path: PathBuf,
    /// The folder of its package, in which Cargo runs it.
    folder: PathBuf,
}

/// The programs with the tests.
pub(super) struct Build {
    programs: Vec<Program>,
}

/// A test, with what is known after it has run without a mutant.
#[derive(Clone)]
pub(super) struct Test {
    name: String,
    program: usize,
    arguments: Vec<String>,
    driver: Option<&'static str>,
    time: Duration,
    /// The mutants that it reaches.
    pub(super) ids: BTreeSet<usize>,
}

/// Builds the tests in a copy of the sources, or returns the errors of the compiler.
pub(super) fn build(tree: &Path, is_slow: bool) -> Result<Result<Build, Vec<Fault>>> {
    for folder in ["compilers", "drivers"] {
        let (installed, place) = (root().join("target").join(folder), tree.join("target"));
        if installed.exists() {
            fs::create_dir_all(&place).context("creating a folder")?;
            debian::stdout(Command::new("ln").arg("-sfn").args([installed, place.join(folder)]))?;
        }
    }
    let mut programs = Vec::new();
    let mut faults = Vec::new();
    // The second build has only slow tests.
    for (arguments, name) in BUILDS.into_iter().take(if is_slow { 2 } else { 1 }) {
        let output = Command::new(env!("CARGO"))
            .current_dir(tree)
            .args(["build", "--quiet", "--keep-going", "--message-format=json"])
            .args(PROFILE)
            .args(PACKAGES.iter().chain(&["cuda-workbench"]).map(|name| format!("-p={name}")))
            .args(arguments)
            .env("RUSTFLAGS", "--cap-lints=allow")
            .env("CARGO_INCREMENTAL", "1")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .context("running cargo")?;
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let line: Line = serde_json::from_str(line).context("reading the output of cargo")?;
            faults.extend(line.message.filter(|its| its.level == "error").and_then(fault));
            let (Some(path), Some(target)) = (line.executable, line.target) else { continue };
            let folder = line.manifest_path.as_deref().and_then(Path::parent);
            let folder = folder.context("a program without a package")?.to_owned();
            // Cargo also builds the programs that the tests start.
            if target.kind.iter().all(|kind| kind != "bin") && target.name.starts_with(name) {
                programs.push(Program { name: target.name, path, folder });
            }
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success() || !faults.is_empty(),
            "the copy does not build:\n{errors}"
        );
        if !faults.is_empty() {
            return Ok(Err(faults));
        }
    }
    programs.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Ok(Build { programs }))
}

/// Returns the places of an error. The last error of a crate only counts the others.
fn fault(message: Message) -> Option<Fault> {
    let spans = message.spans.into_iter();
    let spans = spans.chain(message.children.into_iter().flat_map(|its| its.spans));
    let (main, others): (Vec<_>, Vec<_>) = spans.partition(|span| span.is_primary);
    let place = |span: Span| Place { file: span.file_name, range: span.byte_start..span.byte_end };
    let main: Vec<_> = main.into_iter().map(place).collect();
    let others = others.into_iter().map(place).collect();
    let message = message.rendered.unwrap_or_default();
    (!main.is_empty()).then_some(Fault { message, main, others })
}

impl Build {
    /// Runs each test without a mutant, or those that are not slow. Returns those that pass, the quickest first, with
    /// the mutants that they reach.
    pub(super) fn record(&self, folder: &Path, jobs: usize, is_slow: bool) -> Result<Vec<Test>> {
        debian::replace_dir(folder)?;
        let mut tests = Vec::new();
        for number in 0..self.programs.len() {
            tests.extend(self.tests(number)?);
        }
        tests.retain(|its| is_slow || !SLOW.contains(&its.name.as_str()));
        let numbered: Vec<_> = tests.into_iter().enumerate().collect();
        let passed = in_parallel(&numbered, jobs, |(number, test)| {
            let file = folder.join(number.to_string()).display().to_string();
            let begin = Instant::now();
            if !self.passes(test, Duration::from_secs(900), "CUDA_MUTANT_REACHED", &file)? {
                println!("left out, because it fails without a mutant: {}", test.name);
                return Ok(None);
            }
            let time = begin.elapsed();
            // A test that reaches no mutant writes no file.
            let ids = fs::read(file).unwrap_or_default();
            let id = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?) as usize);
            let ids = ids.chunks(4).filter_map(id).collect();
            Ok(Some(Test { time, ids, ..test.clone() }))
        })?;
        let mut passed: Vec<Test> = passed.into_iter().flatten().collect();
        passed.sort_by(|a, b| (a.time, &a.name).cmp(&(b.time, &b.name)));
        Ok(passed)
    }

    /// Returns the tests of a program, which have not run.
    fn tests(&self, number: usize) -> Result<Vec<Test>> {
        let program = &self.programs[number];
        let test = |name: &str, arguments: &[&str], driver| Test {
            name: format!("{} {name}", program.name),
            program: number,
            arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
            driver,
            time: Duration::ZERO,
            ids: BTreeSet::new(),
        };
        if let Some((_, arguments)) = WHOLE.iter().find(|(name, _)| *name == program.name) {
            return Ok(vec![test("", arguments, None)]);
        }
        let listed = |arguments: &[&str]| -> Result<BTreeSet<String>> {
            let mut command = Command::new(&program.path);
            let list = debian::stdout(command.args(["--list", "--format=terse"]).args(arguments))?;
            let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
            Ok(names.map(str::to_owned).collect())
        };
        let ignored = listed(&["--ignored"])?;
        let mut tests = Vec::new();
        for name in listed(&[])?.difference(&ignored) {
            tests.push(test(name, &["--exact", name], None));
            if program.name == OLD.0 {
                tests.push(test(name, &["--exact", name], Some(OLD.1)));
            }
        }
        Ok(tests)
    }

    /// Runs tests with a mutant until one fails, and returns its name.
    pub(super) fn first_failure(&self, tests: &[&Test], id: usize) -> Result<Option<String>> {
        for test in tests {
            let limit = 10 * test.time + Duration::from_secs(5);
            if !self.passes(test, limit, "CUDA_MUTANT", &id.to_string())? {
                return Ok(Some(test.name.clone()));
            }
        }
        Ok(None)
    }

    /// Runs a test, and returns whether it passes within a time limit.
    fn passes(&self, test: &Test, limit: Duration, variable: &str, value: &str) -> Result<bool> {
        let program = &self.programs[test.program];
        let mut command = test_binary::limited(&program.path, limit);
        command
            .args(&test.arguments)
            .current_dir(&program.folder)
            .env("CARGO", env!("CARGO"))
            .env("CARGO_MANIFEST_DIR", &program.folder)
            // Some tests panic on purpose, and printing a backtrace takes longer than the test.
            .env("RUST_BACKTRACE", "0")
            .env(variable, value)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if let Some(driver) = test.driver {
            command.env("CUDA_SIM", driver);
        }
        let status = command.status().with_context(|| format!("running {}", test.name))?;
        Ok(status.success())
    }
}
