//! `cargo xtask line-coverage [--corpus] [--missing]`: how much of cuda-safe the tests reach without a
//! GPU; with `--corpus`, how much of what reads others' descriptions of arrays the corpus of the fuzz
//! targets reaches, and nothing else.
//!
//! The work is cargo-tarpaulin's, with its `llvm` engine: the compiler counts, and tarpaulin reads
//! the counts itself, so no LLVM tools are needed. Its other engine, `ptrace`, sets breakpoints; it
//! crashes tests that start threads, which ours do all the time.
//!
//! What a process counts is written when it exits. Lines that run only in a forked child, which
//! ends by `_exit`, are therefore missing though they are tested: `fork::forked`, and the early
//! returns of a forked process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::{debian, root, tools};

/// The release of cargo-tarpaulin. It builds with Rust 1.95 and reads the counts of its LLVM (22).
const TARPAULIN: &str = "0.37.5";

/// The test binaries to run, and what the software driver plays for them: what it plays by itself,
/// a driver so old that the older functions are called, and the newest.
const RUNS: &[(&str, &[&str])] = &[
    // `faults` brings profiles of its own.
    ("h200", &["host", "driver", "sim", "faults"]),
    ("p40@11.8", &["driver"]),
    // The newest has what a recorded one has not yet.
    ("h100@13.5", &["driver"]),
];

const SOURCES: &str = "cuda-safe/src";

/// What is measured.
struct Measure {
    runs: &'static [(&'static str, &'static [&'static str])],
    /// Of the tests, those with this in their name.
    tests: Option<&'static str>,
    /// Of the sources, these.
    files: Option<&'static [&'static str]>,
    /// The least share of the lines, in percent.
    least: usize,
}

const ALL: Measure = Measure {
    runs: RUNS,
    tests: None,
    files: None,
    least: 85,
};

const CORPUS: Measure = Measure {
    runs: &[("h200", &["host"])],
    tests: Some("interop::corpus"),
    files: Some(&[
        "interop/array.rs",
        "interop/dlpack/dtype.rs",
        "interop/dlpack/managed.rs",
        "interop/dtype.rs",
        "interop/layout.rs",
        "interop/layout/index.rs",
        "interop/stream.rs",
        "interop/typestr.rs",
    ]),
    least: 95,
};

/// Of each file below [`SOURCES`], its lines with code, and whether they ran.
type Lines = BTreeMap<String, BTreeMap<usize, bool>>;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let knows = |arg: &String| matches!(arg.as_str(), "--corpus" | "--missing");
    ensure!(
        args.iter().all(knows),
        "line-coverage knows --corpus and --missing only"
    );
    let has = |arg: &str| args.iter().any(|its| its == arg);
    let missing = has("--missing");
    let measured = if has("--corpus") { CORPUS } else { ALL };
    // The default features send results to a service, which takes OpenSSL.
    let tarpaulin = tools::provide("tarpaulin", TARPAULIN, &["--no-default-features"])?;
    let mut lines = Lines::new();
    for (profile, binaries) in measured.runs {
        let report = measure(&tarpaulin, profile, binaries, measured.tests)?;
        add(&mut lines, &report)?;
    }
    if let Some(files) = measured.files {
        lines.retain(|file, _| files.contains(&file.as_str()));
        ensure!(
            lines.len() == files.len(),
            "a file of {files:?} is not there"
        );
    }
    // Some files are all declarations.
    lines.retain(|_, lines| !lines.is_empty());
    for (file, lines) in &lines {
        println!("{SOURCES}/{file}: {}/{}", count(lines), lines.len());
        if missing && count(lines) < lines.len() {
            println!("    {}", ranges(lines));
        }
    }
    let total = lines.values().map(BTreeMap::len).sum::<usize>();
    let covered = lines.values().map(count).sum::<usize>();
    ensure!(total > 0, "no lines of {SOURCES} were measured");
    let percent = 100.0 * covered as f64 / total as f64;
    println!("{SOURCES}: {covered} of {total} lines, {percent:.1} %");
    let least = measured.least;
    ensure!(
        covered * 100 >= total * least,
        "the tests reach less than {least} % of the lines"
    );
    Ok(())
}

/// Runs the tests on that driver: the report. What they print goes into a file beside it.
fn measure(
    tarpaulin: &Path,
    profile: &str,
    binaries: &[&str],
    only: Option<&str>,
) -> Result<PathBuf> {
    let target = root().join("target/coverage");
    let folder = target.join(profile);
    debian::replace_dir(&folder)?;
    let log = folder.join("log");
    let file = File::create(&log).with_context(|| format!("writing {}", log.display()))?;

    println!("line-coverage: running the tests on {profile}");
    let status = tests(tarpaulin, binaries)
        .arg("--target-dir")
        .arg(target.join("build"))
        .arg("--output-dir")
        .arg(&folder)
        .args(only.into_iter().flat_map(|only| ["--", only]))
        .env("CUDA_SIM", profile)
        .stdout(file.try_clone().context("a second handle of the log")?)
        .stderr(file)
        .status()
        .context("running cargo-tarpaulin")?;
    if !status.success() {
        eprintln!("{}", fs::read_to_string(&log).unwrap_or_default());
        bail!("a test failed, or tarpaulin did, see above");
    }
    Ok(folder.join("tarpaulin-report.json"))
}

fn tests(tarpaulin: &Path, binaries: &[&str]) -> Command {
    let mut command = Command::new(tarpaulin);
    command
        .current_dir(root())
        .args(["tarpaulin", "--engine", "llvm", "--skip-clean", "--locked"])
        .args(["--out", "json", "--no-fail-fast", "--timeout", "300"])
        .args(["--color", "never"])
        .args(["-p", "cuda-workbench", "-p", "cuda-safe", "--lib"])
        .arg(format!("--include-files={SOURCES}/*"));
    for binary in binaries {
        if root().join(format!("tests/{binary}/main.rs")).is_file() {
            command.args(["--test", binary]);
        }
    }
    command
}

/// Tarpaulin's report, as far as it matters here.
#[derive(Deserialize)]
struct Report {
    files: Vec<Source>,
}

#[derive(Deserialize)]
struct Source {
    /// The components of the path.
    path: Vec<String>,
    traces: Vec<Trace>,
}

#[derive(Deserialize)]
struct Trace {
    line: usize,
    stats: Stats,
}

#[derive(Deserialize)]
enum Stats {
    /// How often the line ran.
    Line(u64),
}

/// Adds a report: a line ran if it ran in any of them.
fn add(lines: &mut Lines, report: &Path) -> Result<()> {
    let context = || format!("reading {}", report.display());
    let text = fs::read_to_string(report).with_context(context)?;
    let report: Report = serde_json::from_str(&text).with_context(context)?;
    let sources = root().join(SOURCES);
    for file in report.files {
        let path: PathBuf = file.path.iter().collect();
        let name = path.strip_prefix(&sources);
        let name = name.with_context(|| format!("{} is not asked for", path.display()))?;
        let lines = lines.entry(name.display().to_string()).or_default();
        for trace in file.traces {
            let Stats::Line(times) = trace.stats;
            *lines.entry(trace.line).or_default() |= times > 0;
        }
    }
    Ok(())
}

fn count(lines: &BTreeMap<usize, bool>) -> usize {
    lines.values().filter(|ran| **ran).count()
}

/// The lines that did not run, as in `3-5 8`. A range goes on over lines without code.
fn ranges(lines: &BTreeMap<usize, bool>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let mut ran_before = true;
    for (line, ran) in lines {
        match ranges.last_mut() {
            _ if *ran => {}
            Some((_, end)) if !ran_before => *end = *line,
            _ => ranges.push((*line, *line)),
        }
        ran_before = *ran;
    }
    let ranges = ranges.into_iter().map(|(start, end)| match start {
        start if start == end => start.to_string(),
        start => format!("{start}-{end}"),
    });
    ranges.collect::<Vec<_>>().join(" ")
}
