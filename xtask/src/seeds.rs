//! `cargo xtask seeds --mutants [FILTER …]`: shows that the tests of a statement see a violation of it.
//!
//! `xtask/seeds/mutants.toml` has changes of the code, each of which violates the statements that name it. This
//! command makes one change at a time in a copy of the sources, and runs the tests of these statements. At least
//! one test of each must fail. The names that contain a FILTER are tried, or all.

use crate::coverage::seeds::{self, Mutant, Statement, split};
use crate::root;
use anyhow::{Context, Result, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Seconds. A test that has not ended by then waits for something that a change took away.
const TIMEOUT: &str = "600";

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

    let copy = root().join("target/seeds");
    write_copy(&copy, None)?;
    // Tests that fail without a change show nothing.
    let tests = chosen
        .iter()
        .flat_map(|mutant| tests_of(&concerned(&statements, mutant)));
    let broken = failed(&copy, &tests.collect())?;
    ensure!(
        broken.is_empty(),
        "without a change, these tests do not pass: {broken:?}"
    );

    let mut survivors = Vec::new();
    for (number, mutant) in chosen.iter().enumerate() {
        let start = Instant::now();
        let concerned = concerned(&statements, mutant);
        write_copy(&copy, Some(mutant))?;
        let caught = failed(&copy, &tests_of(&concerned))?;
        let missed = concerned.iter().filter(|its| {
            let mut tests = its.tests.iter();
            !tests.any(|test| caught.contains(test.as_str()))
        });
        let missed: Vec<String> = missed
            .map(|its| format!("{}: no test fails for {:?}", mutant.name, its.says))
            .collect();
        println!(
            "{}/{} {} {} ({} s)",
            number + 1,
            chosen.len(),
            if missed.is_empty() {
                "caught"
            } else {
                "MISSED"
            },
            mutant.name,
            start.elapsed().as_secs()
        );
        survivors.extend(missed);
    }
    write_copy(&copy, None)?;
    survivors.iter().for_each(|line| eprintln!("{line}"));
    let count = survivors.len();
    ensure!(
        count == 0,
        "{count} statements are violated without a failing test"
    );
    println!(
        "{} mutants, each caught by the tests of its statements",
        chosen.len()
    );
    Ok(())
}

/// Returns the statements that a mutant violates.
fn concerned<'a>(statements: &'a [Statement], mutant: &Mutant) -> Vec<&'a Statement> {
    statements
        .iter()
        .filter(|its| its.mutants.contains(&mutant.name))
        .collect()
}

/// Returns the tests of statements that this machine can run.
fn tests_of<'a>(statements: &[&'a Statement]) -> BTreeSet<&'a str> {
    let tests = statements
        .iter()
        .flat_map(|its| its.tests.iter().map(String::as_str));
    tests.filter(|test| !needs_gpu(test)).collect()
}

fn needs_gpu(test: &str) -> bool {
    test.starts_with("tests/gpu/")
}

/// Brings the copy of the sources to the state of the repository, but for the change. Files that stay the same are
/// not written, so that little is built again.
pub(crate) fn write_copy(copy: &Path, mutant: Option<&Mutant>) -> Result<()> {
    let output = Command::new("git")
        .current_dir(root())
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .output()
        .context("running git")?;
    ensure!(
        output.status.success(),
        "git ls-files failed: {}",
        output.status
    );
    let mut expected = BTreeSet::new();
    for name in output.stdout.split(|byte| *byte == 0) {
        let name = std::str::from_utf8(name).context("the name of a file")?;
        let source = root().join(name);
        if name.is_empty() || !source.is_file() {
            continue;
        }
        let mut bytes = fs::read(&source).with_context(|| format!("reading {name}"))?;
        if let Some(mutant) = mutant.filter(|mutant| mutant.file == name) {
            let text = String::from_utf8(bytes).with_context(|| format!("reading {name}"))?;
            bytes = mutant.apply(&text)?.into_bytes();
        }
        let target = copy.join(name);
        if fs::read(&target).is_ok_and(|there| there == bytes) {
            expected.insert(target);
            continue;
        }
        let folder = target.parent().context("a file without a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        fs::write(&target, bytes).with_context(|| format!("writing {}", target.display()))?;
        expected.insert(target);
    }
    remove_others(copy, &expected)
}

/// Removes the files of an earlier copy that the repository does not have any more.
fn remove_others(folder: &Path, expected: &BTreeSet<std::path::PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry.context("reading a folder")?.path();
        if path.is_dir() && !path.ends_with("target") {
            remove_others(&path, expected)?;
        } else if path.is_file() && !expected.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// The arguments of cargo for a group of tests that run in one process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    /// `tests/NAME`.
    Test(String),
    /// The unit tests of a package.
    Unit(String),
    /// The programs that must not compile.
    MustNotCompile,
    Python,
}

/// Returns the group of a test, and its name there.
fn group(test: &str) -> Result<(Group, String)> {
    let (path, name) = split(test)?;
    if path.ends_with(".py") {
        return Ok((Group::Python, name.to_owned()));
    }
    if path.ends_with("/must_not_compile.rs") {
        return Ok((Group::MustNotCompile, name.to_owned()));
    }
    let path = path.trim_end_matches(".rs");
    let (group, inner) = match path.split_once("/src/") {
        Some((package, inner)) => (Group::Unit(package.to_owned()), inner),
        None => {
            let path = path.strip_prefix("tests/");
            let path = path.with_context(|| format!("{test} is in no known folder"))?;
            let (binary, inner) = path.split_once('/').unwrap_or((path, "main"));
            (Group::Test(binary.to_owned()), inner)
        }
    };
    let module = inner.trim_end_matches("/mod").replace('/', "::");
    let name = match module.as_str() {
        "main" | "lib" => name.to_owned(),
        module => format!("{module}::{name}"),
    };
    Ok((group, name))
}

/// Runs tests in the copy. Returns those that do not pass.
fn failed<'a>(copy: &Path, tests: &BTreeSet<&'a str>) -> Result<BTreeSet<&'a str>> {
    let mut groups: BTreeMap<Group, Vec<(&str, String)>> = BTreeMap::new();
    for test in tests {
        let (group, name) = group(test)?;
        groups.entry(group).or_default().push((test, name));
    }
    let mut failed = BTreeSet::new();
    for (group, tests) in groups {
        let names = tests.iter().map(|(_, name)| name.as_str());
        let passed = passed(copy, &group, &names.collect::<Vec<_>>())?;
        let others = tests.iter().filter(|(_, name)| !passed.contains(name));
        failed.extend(others.map(|(test, _)| *test));
    }
    Ok(failed)
}

/// Runs the tests of a group, and returns the names of those that pass. A change that does not compile is an error,
/// except for programs that must not compile.
fn passed(copy: &Path, group: &Group, names: &[&str]) -> Result<BTreeSet<String>> {
    let mut cargo = Command::new(env!("CARGO"));
    match group {
        Group::Test(binary) => {
            cargo.args(["test", "--test", binary]);
            if matches!(binary.as_str(), "serde" | "tracing") {
                cargo.args(["--features", binary]);
            }
        }
        Group::Unit(package) => {
            cargo.args(["test", "--lib", "-p", package]);
        }
        Group::MustNotCompile => {
            cargo.args(["test", "--doc", "-p", "cuda-safe", "--", "must_not_compile"]);
        }
        Group::Python => {
            cargo.args(["xtask", "python", "-rA", "-k", &names.join(" or ")]);
        }
    }
    if matches!(group, Group::Test(_) | Group::Unit(_)) {
        ensure_builds(&mut cargo, copy, group)?;
        cargo.args(["--", "--exact"]).args(names);
    }
    // `timeout` also ends the processes that cargo has started.
    let output = Command::new("timeout")
        .arg(TIMEOUT)
        .arg(cargo.get_program())
        .args(cargo.get_args())
        .current_dir(copy)
        .env_remove("CARGO_TARGET_DIR")
        // Only a compiler with unstable features compares the error codes of programs that must not compile.
        .envs((*group == Group::MustNotCompile).then_some(("RUSTC_BOOTSTRAP", "1")))
        .output()
        .context("running cargo")?;
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(match group {
        Group::Python => passed_by_pytest(&output, names),
        Group::MustNotCompile => passed_by_doctest(&output, names),
        Group::Test(_) | Group::Unit(_) => passed_by_test(&output),
    })
}

/// Fails if the tests do not compile: a change that the compiler rejects shows nothing about the tests.
fn ensure_builds(cargo: &mut Command, copy: &Path, group: &Group) -> Result<()> {
    let mut build = Command::new(env!("CARGO"));
    let output = build
        .current_dir(copy)
        .env_remove("CARGO_TARGET_DIR")
        .args(cargo.get_args())
        .args(["--no-run", "--quiet"])
        .output()
        .context("running cargo")?;
    ensure!(
        output.status.success(),
        "{group:?} does not compile:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Reads lines such as `test module::name ... ok`.
fn passed_by_test(output: &str) -> BTreeSet<String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix("test "));
    let passed = lines.filter_map(|line| line.strip_suffix(" ... ok"));
    // `#[should_panic]` adds a word.
    let names = passed.filter_map(|line| line.split(' ').next());
    names.map(str::to_owned).collect()
}

/// Returns the items whose programs are all rejected.
fn passed_by_doctest(output: &str, names: &[&str]) -> BTreeSet<String> {
    let of = |name: &str| {
        let item = format!("must_not_compile::{name} ");
        let lines: Vec<&str> = output.lines().filter(|line| line.contains(&item)).collect();
        !lines.is_empty() && lines.iter().all(|line| line.ends_with("ok"))
    };
    let names = names.iter().filter(|name| of(name));
    names.map(|name| (*name).to_owned()).collect()
}

/// Reads lines such as `PASSED test_file.py::test_name[parameter]`. No parameter may fail.
fn passed_by_pytest(output: &str, names: &[&str]) -> BTreeSet<String> {
    let has = |word: &str, name: &str| {
        let lines = output.lines().filter(|line| line.starts_with(word));
        let names = lines.filter_map(|line| line.split("::").nth(1));
        let mut names = names.filter_map(|rest| rest.split(['[', ' ']).next());
        names.any(|its| its == name)
    };
    let passes = |name: &&&str| has("PASSED", name) && !has("FAILED", name) && !has("ERROR", name);
    let names = names.iter().filter(passes);
    names.map(|name| (*name).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::{Group, group, passed_by_pytest, passed_by_test};

    #[test]
    fn the_place_of_a_test_is_found_by_its_path() {
        for (test, expected, name) in [
            (
                "tests/driver/green.rs::a::b",
                Group::Test("driver".to_owned()),
                "green::a::b",
            ),
            (
                "tests/sim/rules/mod.rs::b",
                Group::Test("sim".to_owned()),
                "rules::b",
            ),
            (
                "tests/faults/main.rs::sweep",
                Group::Test("faults".to_owned()),
                "sweep",
            ),
            ("tests/serde.rs::b", Group::Test("serde".to_owned()), "b"),
            (
                "cuda-safe/src/green/probe.rs::tests::b",
                Group::Unit("cuda-safe".to_owned()),
                "green::probe::tests::b",
            ),
            (
                "cuda-safe/src/must_not_compile.rs::Sealed",
                Group::MustNotCompile,
                "Sealed",
            ),
            ("python/tests/test_a.py::test_b", Group::Python, "test_b"),
        ] {
            assert_eq!(group(test).expect(test), (expected, name.to_owned()));
        }
    }

    #[test]
    fn passed_tests_are_read_from_the_output() {
        let output = "test a::b ... ok\ntest a::c ... FAILED\ntest d - should panic ... ok\ntest e ... ignored\n";
        let passed: Vec<String> = passed_by_test(output).into_iter().collect();
        assert_eq!(passed, ["a::b", "d"]);
        let output = "PASSED t.py::test_a[1]\nPASSED t.py::test_b\nFAILED t.py::test_a[2] - it\n";
        let passed = passed_by_pytest(output, &["test_a", "test_b", "test_c"]);
        assert_eq!(passed.into_iter().collect::<Vec<_>>(), ["test_b"]);
    }
}
