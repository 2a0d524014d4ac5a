//! `cargo xtask line-coverage [--corpus] [--missing]`: measures the lines of cuda-safe and
//! cuda-memory that the tests without a GPU run. With `--corpus`, it measures only the parsers of foreign array descriptions, and
//! runs only the corpus of the fuzz targets.
//!
//! The measurement uses cargo-tarpaulin with its `llvm` engine: the compiler inserts counters, and
//! tarpaulin reads them itself, so no LLVM tools are needed. The other engine, `ptrace`, sets
//! breakpoints and crashes tests that start threads, as most tests here do.
//!
//! A process writes its counters when it exits. Lines that run only in a forked child, which ends with
//! `_exit`, therefore count as missing although they are tested: `fork::forked`, and the early returns
//! of a forked process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::install::debian;
use crate::install::tools;
use crate::{root, status};

/// The version of cargo-tarpaulin. It builds with Rust 1.95 and reads the counters of its LLVM (22).
const TARPAULIN: &str = "0.37.5";

/// The test binaries to run, and the profiles of the software driver for them: the default, a driver so
/// old that the older functions are called, and the newest.
const RUNS: &[(&str, &[&str])] = &[
    // `faults` selects its own profiles.
    ("h200", &["host", "driver", "sim", "faults"]),
    ("p40@11.8", &["driver"]),
    // The newest driver has functions that the recorded one does not have.
    ("h100@13.5", &["driver"]),
];

const SOURCES: [&str; 2] = ["cuda-safe/src", "cuda-memory/src"];

/// What a run measures.
struct Measure {
    runs: &'static [(&'static str, &'static [&'static str])],
    /// Only tests with this in their names.
    tests: Option<&'static str>,
    /// Only these source files.
    files: Option<&'static [&'static str]>,
    /// The minimum share of the lines, in percent.
    least: usize,
}

const ALL: Measure = Measure { runs: RUNS, tests: None, files: None, least: 85 };

const CORPUS: Measure = Measure {
    runs: &[("h200", &["host"])],
    tests: Some("interop::array_interface::corpus"),
    files: Some(&[
        "cuda-safe/src/interop/array.rs",
        "cuda-safe/src/interop/dlpack/dtype.rs",
        "cuda-safe/src/interop/dlpack/managed.rs",
        "cuda-safe/src/interop/dtype.rs",
        "cuda-safe/src/interop/layout/mod.rs",
        "cuda-safe/src/interop/stream.rs",
    ]),
    least: 95,
};

/// For each file in [`SOURCES`], its lines with code, and whether they ran.
type Lines = BTreeMap<String, BTreeMap<usize, bool>>;

pub(crate) fn run(args: &[String]) -> Result<()> {
    let knows = |arg: &String| matches!(arg.as_str(), "--corpus" | "--missing");
    ensure!(
        args.iter().all(knows),
        "line-coverage takes no arguments except --corpus and --missing"
    );
    let has = |arg: &str| args.iter().any(|its| its == arg);
    let missing = has("--missing");
    let measured = if has("--corpus") { CORPUS } else { ALL };
    // The default features send results to a service and need OpenSSL.
    let tarpaulin = tools::provide("tarpaulin", TARPAULIN, &["--no-default-features"])?;
    let mut lines = Lines::new();
    for (profile, binaries) in measured.runs {
        let report = measure(&tarpaulin, profile, binaries, measured.tests)?;
        add(&mut lines, &report)?;
    }
    if let Some(files) = measured.files {
        lines.retain(|file, _| files.contains(&file.as_str()));
        ensure!(lines.len() == files.len(), "one of {files:?} does not exist");
    }
    // Some files contain only declarations.
    lines.retain(|_, lines| !lines.is_empty());
    for (file, lines) in &lines {
        println!("{file}: {}/{}", count(lines), lines.len());
        if missing && count(lines) < lines.len() {
            println!("    {}", ranges(lines));
        }
    }
    let total = lines.values().map(BTreeMap::len).sum::<usize>();
    let covered = lines.values().map(count).sum::<usize>();
    ensure!(total > 0, "no lines were measured");
    let percent = 100.0 * covered as f64 / total as f64;
    println!("{covered} of {total} lines, {percent:.1} %");
    let least = measured.least;
    ensure!(covered * 100 >= total * least, "the tests run less than {least} % of the lines");
    Ok(())
}

/// Runs the tests with a profile and returns the path of the report. The output of the tests is written
/// to a file next to it.
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
    let output = fs::read(&log).with_context(|| format!("reading {}", log.display()))?;
    let what =
        format!("the tests or tarpaulin failed on {profile}; {} has all output", log.display());
    status::check_log(status, what, &String::from_utf8_lossy(&output))?;
    Ok(folder.join("tarpaulin-report.json"))
}

fn tests(tarpaulin: &Path, binaries: &[&str]) -> Command {
    let mut command = Command::new(tarpaulin);
    command
        .current_dir(root())
        .args(["tarpaulin", "--engine", "llvm", "--skip-clean", "--locked"])
        .args(["--out", "json", "--no-fail-fast", "--timeout", "300"])
        .args(["--color", "never"])
        .args(["-p", "cuda-workbench", "-p", "cuda-safe"])
        .args(["-p", "cuda-memory", "--lib"])
        .args(SOURCES.map(|folder| format!("--include-files={folder}/*")));
    for binary in binaries {
        if root().join(format!("tests/{binary}/main.rs")).is_file() {
            command.args(["--test", binary]);
        }
    }
    command
}

/// Tarpaulin's report, with the fields that are used here.
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
    /// The number of times that the line ran.
    Line(u64),
}

/// Adds a report. A line counts as run if it ran in any of the reports.
fn add(lines: &mut Lines, report: &Path) -> Result<()> {
    let context = || format!("reading {}", report.display());
    let text = fs::read_to_string(report).with_context(context)?;
    let report: Report = serde_json::from_str(&text).with_context(context)?;
    for file in report.files {
        let path: PathBuf = file.path.iter().collect();
        let name = path.strip_prefix(root());
        let name =
            name.with_context(|| format!("unexpected file in the report: {}", path.display()))?;
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

/// Formats the lines that did not run, as `3-5 8`. A range includes lines without code.
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
