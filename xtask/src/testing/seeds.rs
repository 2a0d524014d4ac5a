//! `cargo xtask seeds --mutants [FILTER …]`: shows that the tests of a statement see a violation of it.
//!
//! `xtask/seeds/mutants.toml` has changes of the code, each of which violates the statements that name it. A copy of
//! the sources has all of them at once: each is chosen by an environment variable when its place runs, so that the
//! tests are built once. Then each test of these statements runs in a process of its own, first without a change,
//! and then with each change whose statements name it, until one test of each statement fails. The changes whose
//! names contain a FILTER are tried, or all.

use crate::coverage::seeds::{self, Mutant, Statement, split};
use crate::packages::python;
use crate::root;
use crate::testing::{copy, in_parallel};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The environment variable with the name of the change that is in effect.
const VARIABLE: &str = "CUDA_SEED_MUTANT";

pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some((flag, filters)) = args.split_first() else {
        bail!("seeds takes --mutants, and parts of the names of mutants");
    };
    ensure!(flag == "--mutants", "seeds does not take {flag}");
    let (mutants, statements) = seeds::mutants()?;
    let chosen: Vec<&Mutant> = mutants
        .iter()
        .filter(|its| filters.is_empty() || filters.iter().any(|part| its.name.contains(part)))
        .collect();
    ensure!(!chosen.is_empty(), "no mutant has such a name");

    let concerned = chosen.iter().flat_map(|mutant| concerned(&statements, mutant));
    let tests = concerned.flat_map(|statement| statement.tests.iter().map(String::as_str));
    let tests: BTreeSet<&str> = tests.filter(|name| runs_here(name)).collect();
    let copy = root().join("target/seeds");
    fs::create_dir_all(&copy).with_context(|| format!("creating {}", copy.display()))?;
    write_copy(&copy, &mutants)?;
    let programs = Programs::build(copy, &tests)?;
    let tests: Vec<&str> = tests.into_iter().collect();
    println!("{} tests, without a change and with {} changes", tests.len(), chosen.len());

    let jobs = thread::available_parallelism().map_or(1, NonZero::get);
    // Tests that fail without a change show nothing.
    let baseline = in_parallel(&tests, jobs, |test| {
        let run = programs.run(test, None, Duration::from_secs(600))?;
        if run.outcome == Outcome::Failed {
            println!("FAILED without a change: {test}\n{}", run.output);
        }
        Ok((*test, run))
    })?;
    let count = |outcome| {
        let runs = baseline.iter().filter(|(_, run)| run.outcome == outcome);
        runs.count()
    };
    let failed = count(Outcome::Failed);
    ensure!(failed == 0, "{failed} tests fail without a change");
    println!("without a change: {} pass", count(Outcome::Passed));
    let times: BTreeMap<&str, Duration> = baseline
        .iter()
        .filter(|(_, run)| run.outcome == Outcome::Passed)
        .map(|(test, run)| (*test, run.time))
        .collect();

    let number = AtomicUsize::new(0);
    let survivors = in_parallel(&chosen, jobs, |mutant| {
        let start = Instant::now();
        let missed = missed(&programs, &times, &statements, mutant)?;
        let number = number.fetch_add(1, Ordering::Relaxed) + 1;
        let verdict = if missed.is_empty() { "caught" } else { "MISSED" };
        println!(
            "{number}/{} {verdict} {} ({} s)",
            chosen.len(),
            mutant.name,
            start.elapsed().as_secs()
        );
        let of = |says: &str| format!("{}: no test fails for {says:?}", mutant.name);
        Ok(missed.into_iter().map(of).collect::<Vec<_>>())
    })?
    .concat();
    let of = statements.iter().filter(|its| {
        let is_chosen = |mutant: &&Mutant| its.mutants.contains(&mutant.name);
        chosen.iter().any(is_chosen)
    });
    let (of, not_run): (Vec<_>, Vec<_>) = of.partition(|its| {
        let mut tests = its.tests.iter();
        tests.any(|test| times.contains_key(test.as_str()))
    });
    for statement in &not_run {
        println!("not run here: {:?}", statement.says);
    }
    survivors.iter().for_each(|line| eprintln!("{line}"));
    let count = survivors.len();
    ensure!(count == 0, "{count} statements are violated without a failing test");
    println!(
        "{} mutants, each caught by the tests of its statements: {} statements, and {} without a test that runs here",
        chosen.len(),
        of.len(),
        not_run.len()
    );
    Ok(())
}

/// Returns the statements that a mutant violates.
fn concerned<'a>(statements: &'a [Statement], mutant: &Mutant) -> Vec<&'a Statement> {
    statements.iter().filter(|its| its.mutants.contains(&mutant.name)).collect()
}

/// Returns whether a test can run with a change: not if it needs a GPU, nor if only the compiler runs it.
fn runs_here(test: &str) -> bool {
    !test.starts_with("tests/gpu/") && !test.contains("/must_not_compile.rs::")
}

/// Returns the statements that a mutant violates although none of their tests fails. `times` has the tests that pass
/// without a change, and their times. The quickest test of a statement runs first.
fn missed<'a>(
    programs: &Programs,
    times: &BTreeMap<&str, Duration>,
    statements: &'a [Statement],
    mutant: &Mutant,
) -> Result<Vec<&'a str>> {
    let mut known = BTreeMap::new();
    let mut missed = Vec::new();
    for statement in concerned(statements, mutant) {
        let names = statement.tests.iter().map(String::as_str);
        let mut tests: Vec<_> = names.filter_map(|name| Some((*times.get(name)?, name))).collect();
        // A test that failed before needs no time.
        tests.sort_by_key(|(time, name)| (known.get(name) != Some(&true), *time));
        let mut is_caught = tests.is_empty();
        for (time, test) in tests {
            let fails = match known.get(test) {
                Some(fails) => *fails,
                None => {
                    let limit = Duration::from_secs(60) + 10 * time;
                    programs.run(test, Some(&mutant.name), limit)?.outcome == Outcome::Failed
                }
            };
            known.insert(test, fails);
            is_caught |= fails;
            if is_caught {
                break;
            }
        }
        if !is_caught {
            missed.push(statement.says.as_str());
        }
    }
    Ok(missed)
}

/// Brings the copy to the state of the repository, with all mutants. Files that stay the same are not written, so that
/// little is built again.
fn write_copy(copy: &Path, mutants: &[Mutant]) -> Result<()> {
    let mut files: BTreeMap<&str, Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        files.entry(&mutant.file).or_default().push(mutant);
    }
    let mut changed = BTreeMap::new();
    for (file, mutants) in files {
        let path = root().join(file);
        let text = fs::read_to_string(path).with_context(|| format!("reading {file}"))?;
        changed.insert(file.to_owned(), with_mutants(file, &text, &mutants)?);
    }
    copy::copy_changed_sources(copy, &changed)
}

/// Returns the text of a file with switches for its mutants.
fn with_mutants(file: &str, text: &str, mutants: &[&Mutant]) -> Result<String> {
    let mut places: BTreeMap<(usize, usize), Vec<&Mutant>> = BTreeMap::new();
    for mutant in mutants {
        let place = mutant.place(text)?;
        let place = (place.start, place.end);
        places.entry(place).or_default().push(mutant);
    }
    let mut changed = String::new();
    let mut end = 0;
    for ((start, next), mutants) in places {
        let names: Vec<&str> = mutants.iter().map(|its| its.name.as_str()).collect();
        ensure!(start >= end, "{file}: the places of {names:?} and of another mutant overlap");
        changed.push_str(&text[end..start]);
        let mut expression = text[start..next].to_owned();
        for mutant in mutants {
            expression = switch(file, mutant, &expression);
        }
        changed.push_str(&expression);
        end = next;
    }
    changed.push_str(&text[end..]);
    Ok(changed)
}

/// Returns an expression with the value of the mutant if it is in effect, or a statement that does what the mutant does.
fn switch(file: &str, mutant: &Mutant, expression: &str) -> String {
    let Mutant { name, to, .. } = mutant;
    if file.ends_with(".py") {
        return format!(
            "(({to}) if __import__('os').environ.get('{VARIABLE}') == '{name}' else ({expression}))"
        );
    }
    let chosen = format!(
        "if ::std::env::var_os(\"{VARIABLE}\").is_some_and(|its| its == \"{name}\") {{ {to} }} else {{ {expression} }}"
    );
    // A statement ends with a semicolon.
    match mutant.from.ends_with(';') {
        true => chosen,
        // Without the function, the compiler warns of parentheses.
        false => format!("::std::convert::identity({chosen})"),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    /// This machine lacks something, such as a library.
    Skipped,
    Failed,
}

/// A test that has run.
struct Run {
    outcome: Outcome,
    time: Duration,
    output: String,
}

/// The programs with the tests.
struct Programs {
    copy: PathBuf,
    /// By name, such as `driver` or `cuda-safe`.
    binaries: BTreeMap<Binary, PathBuf>,
}

/// A program with tests.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Binary {
    /// `tests/NAME`.
    Test(String),
    /// The unit tests of a package.
    Unit(String),
    Python,
}

/// A line of cargo's JSON output, with the fields that are used here.
#[derive(Deserialize)]
struct Message {
    executable: Option<PathBuf>,
    target: Option<Target>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

/// The features that a test binary needs, which have its name.
const FEATURES: [&str; 2] = ["serde", "tracing"];

impl Programs {
    /// Builds what the tests need.
    fn build(copy: PathBuf, tests: &BTreeSet<&str>) -> Result<Self> {
        let mut needed = BTreeSet::new();
        for test in tests {
            needed.insert(place(test)?.0);
        }
        let mut cargo = Command::new(env!("CARGO"));
        cargo
            .current_dir(&copy)
            .env_remove("CARGO_TARGET_DIR")
            .args(["test", "--no-run", "--quiet", "-p", "cuda-workbench"])
            .arg("--message-format=json-render-diagnostics");
        for binary in &needed {
            match binary {
                Binary::Test(name) => {
                    cargo.args(["--test", name]);
                    if FEATURES.contains(&name.as_str()) {
                        cargo.arg(format!("--features=cuda-workbench/{name}"));
                    }
                }
                Binary::Unit(package) => {
                    cargo.args(["--lib", "-p", package]);
                }
                Binary::Python => {}
            }
        }
        let output = cargo.output().context("running cargo test")?;
        ensure!(
            output.status.success(),
            "the tests with the mutants do not build:\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        if needed.contains(&Binary::Python) {
            python::install(&copy, true)?;
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let messages = messages.lines().map(serde_json::from_str::<Message>);
        let mut binaries = BTreeMap::new();
        for message in messages {
            let message = message.context("reading the messages of cargo")?;
            let (Some(executable), Some(target)) = (message.executable, message.target) else {
                continue;
            };
            let binary = if target.kind.iter().any(|kind| kind == "test") {
                Binary::Test(target.name)
            } else {
                Binary::Unit(target.name.replace('_', "-"))
            };
            binaries.insert(binary, executable);
        }
        Ok(Self { copy, binaries })
    }

    /// Runs a test with a mutant in effect, or with none.
    fn run(&self, test: &str, mutant: Option<&str>, limit: Duration) -> Result<Run> {
        let (binary, name) = place(test)?;
        let mut program = match &binary {
            Binary::Python => {
                let mut pytest = python::pytest(&self.copy);
                let (path, name) = split(test)?;
                let file = self.copy.join(path);
                pytest.arg(format!("{}::{name}", file.display()));
                pytest
            }
            Binary::Test(_) | Binary::Unit(_) => {
                let path = self.binaries.get(&binary);
                let path = path.with_context(|| format!("cargo built no program for {test}"))?;
                let mut program = Command::new(path);
                program.args(["--exact", &name]);
                // As cargo does.
                let folder = match &binary {
                    Binary::Unit(package) => self.copy.join(package),
                    _ => self.copy.clone(),
                };
                program
                    .env("CARGO", env!("CARGO"))
                    .env("CARGO_MANIFEST_DIR", &folder)
                    .current_dir(folder);
                program
            }
        };
        program.env_remove(VARIABLE);
        if let Some(mutant) = mutant {
            program.env(VARIABLE, mutant);
        }
        // `timeout` also ends the processes that the test has started.
        let mut timeout = Command::new("timeout");
        timeout
            .arg(limit.as_secs().to_string())
            .arg(program.get_program())
            .args(program.get_args())
            .stdin(Stdio::null());
        if let Some(folder) = program.get_current_dir() {
            timeout.current_dir(folder);
        }
        for (key, value) in program.get_envs() {
            match value {
                Some(value) => timeout.env(key, value),
                None => timeout.env_remove(key),
            };
        }
        let start = Instant::now();
        let output = timeout.output().with_context(|| format!("running {test}"))?;
        let stdout = String::from_utf8_lossy(&output.stdout);
        let has_passed = match binary {
            Binary::Python => stdout.contains(" passed"),
            Binary::Test(_) | Binary::Unit(_) => stdout.contains("ok. 1 passed"),
        };
        let is_skipped = binary == Binary::Python && !has_passed;
        let outcome = match (output.status.success(), has_passed) {
            (true, true) => Outcome::Passed,
            (true, false) if is_skipped => Outcome::Skipped,
            _ => Outcome::Failed,
        };
        Ok(Run {
            outcome,
            time: start.elapsed(),
            output: format!("{stdout}{}", String::from_utf8_lossy(&output.stderr)),
        })
    }
}

/// Returns the program of a test, and its name there.
fn place(test: &str) -> Result<(Binary, String)> {
    let (path, name) = split(test)?;
    if path.ends_with(".py") {
        return Ok((Binary::Python, name.to_owned()));
    }
    let path = path.trim_end_matches(".rs");
    let (binary, inner) = match path.split_once("/src/") {
        Some((package, inner)) => (Binary::Unit(package.to_owned()), inner),
        None => {
            let path = path.strip_prefix("tests/");
            let path = path.with_context(|| format!("{test} is in no known folder"))?;
            let (binary, inner) = path.split_once('/').unwrap_or((path, "main"));
            (Binary::Test(binary.to_owned()), inner)
        }
    };
    let module = inner.trim_end_matches("/mod").replace('/', "::");
    let name = match module.as_str() {
        "main" | "lib" => name.to_owned(),
        module => format!("{module}::{name}"),
    };
    Ok((binary, name))
}

#[cfg(test)]
mod tests {
    use super::{Binary, place, with_mutants};
    use crate::coverage::seeds::Mutant;

    #[test]
    fn the_place_of_a_test_is_found_by_its_path() {
        for (test, expected, name) in [
            ("tests/driver/green/mod.rs::a::b", Binary::Test("driver".to_owned()), "green::a::b"),
            ("tests/sim/rules/mod.rs::b", Binary::Test("sim".to_owned()), "rules::b"),
            ("tests/faults/main.rs::sweep", Binary::Test("faults".to_owned()), "sweep"),
            ("tests/serde.rs::b", Binary::Test("serde".to_owned()), "b"),
            (
                "cuda-safe/src/green/probe.rs::tests::b",
                Binary::Unit("cuda-safe".to_owned()),
                "green::probe::tests::b",
            ),
            ("python/tests/test_a.py::test_b", Binary::Python, "test_b"),
        ] {
            assert_eq!(place(test).expect(test), (expected, name.to_owned()));
        }
    }

    #[test]
    fn all_mutants_of_a_file_are_written_at_once() {
        let mutant = |name: &str, from: &str, to: &str| Mutant {
            name: name.to_owned(),
            file: "a.rs".to_owned(),
            after: String::new(),
            from: from.to_owned(),
            to: to.to_owned(),
        };
        let (a, b, c) = (mutant("a", "1", "7"), mutant("b", "2", "8"), mutant("c", "2", "9"));
        let changed = with_mutants("a.rs", "f(1, 2)", &[&a, &b, &c]).expect("one text");
        let wait = mutant("e", "wait();", "");
        let text = with_mutants("a.rs", "wait(); end();", &[&wait]).expect("one text");
        assert!(text.starts_with("if ::std"), "{text}");
        assert!(text.ends_with("{  } else { wait(); } end();"), "{text}");
        for part in [
            "\"a\") { 7 } else { 1 })",
            "{ 8 } else { 2 }",
            "\"c\") { 9 } else { ::std::convert::identity(if",
        ] {
            assert!(changed.contains(part), "{part} is not in {changed}");
        }
        let changed = with_mutants("a.py", "f(1, 2)", &[&a]).expect("one text");
        assert_eq!(
            changed,
            "f(((7) if __import__('os').environ.get('CUDA_SEED_MUTANT') == 'a' else (1)), 2)"
        );
        let wider = mutant("d", "1, 2", "3, 4");
        with_mutants("a.rs", "f(1, 2)", &[&a, &wider]).expect_err("an overlap");
    }
}
