//! `cargo xtask mutants [OPTION …] [FILE …]`: mutation tests of cuda-safe and
//! cuda-memory on the software driver.
//!
//! cargo-mutants changes one expression of the source at a time and runs the tests. A mutant that no
//! test detects survives. It shows a line whose effect is not tested.
//!
//! Nearly all of the time is spent on compiling and linking. Therefore:
//! - The tests of a mutant run in [`STAGES`]. A later stage runs only for the survivors of the earlier
//!   ones, and each stage builds only the test binaries that it runs.
//! - Each job works in a copy of the sources with a separate target folder, below `target/mutants`. Both
//!   are kept, so every build is incremental, including the first one of a run.
//! - The profile has no debug information. The software driver is not mutated, so it is optimized.
//! - The linker is rustc's LLD, the default on x86-64 Linux since Rust 1.90, and the system's linker
//!   elsewhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::install::debian;
use crate::install::tools;
use crate::root;

const CARGO_MUTANTS: &str = "27.1.0";

const SOURCES: [&str; 2] = ["cuda-safe/src", "cuda-memory/src"];

/// The files and folders in [`SOURCES`] that are mutated unless the command line names files: captures,
/// releases, guards, split guards and the caching pool.
const FILES: &[&str] = &[
    "caching",
    "caching.rs",
    "call/fork.rs",
    "call/report.rs",
    "call/zone.rs",
    "capture/mod.rs",
    "capture_state",
    "context/extension.rs",
    "context/guard.rs",
    "event/mod.rs",
    "green/split_guard.rs",
    "manager/conditions.rs",
    "manager/defer.rs",
    "manager/event.rs",
    "manager/free_counter.rs",
    "manager/order.rs",
    "manager/registered.rs",
    "memory/buffer/shared.rs",
    "memory/pool/frees.rs",
    "memory/pool/memory.rs",
    "release",
    "stream/completion.rs",
    "stream/end.rs",
    "stream/enqueue.rs",
    "stream/host.rs",
    "stream/retained.rs",
    "stream/wait.rs",
];

/// Mutants that are excluded, as regular expressions of their names. No program depends on the output of
/// `Debug`.
const EXCLUDED: &[&str] = &[r"<impl (\w+::)*Debug for "];

/// Test binaries that run together, and the profile of the software driver for them.
#[derive(Clone, Copy)]
struct Stage<'a> {
    targets: &'static [&'static str],
    /// Arguments of the test binaries.
    tests: &'a [&'a str],
    profile: &'static str,
}

/// Tests that take half of the time of all tests.
const SLOW: &str = "manager::locks";
const SLOW_TOO: &str = "10_seconds";

/// The stages. The first one detects most mutants; the last one runs the code for old drivers.
const STAGES: &[Stage<'static>] = &[
    Stage {
        targets: &["--test=driver", "--test=sim"],
        tests: &["--skip", SLOW, "--skip", SLOW_TOO],
        profile: "h200",
    },
    Stage { targets: &["--lib", "--test=host"], tests: &[], profile: "h200" },
    // Interleavings of several threads.
    Stage { targets: &["--test=loom"], tests: &[], profile: "h200" },
    Stage {
        targets: &["--test=explore", "--features=explore"],
        tests: &["--schedules", "200"],
        profile: "h200",
    },
    Stage { targets: &["--test=sim"], tests: &[SLOW, SLOW_TOO], profile: "h200" },
    Stage { targets: &["--test=driver"], tests: &[], profile: "p40@11.8" },
];

/// Further arguments for Cargo: the package with the test binaries, in addition to the mutated one, and
/// the build profile.
const ARGUMENTS: &[&str] = &[
    "--package=cuda-workbench",
    "--config=profile.mutants.inherits='dev'",
    "--config=profile.mutants.debug=false",
    "--config=profile.mutants.package.cuda-sim.opt-level=3",
    "--config=profile.mutants.package.cuda-sys.opt-level=3",
];

/// The prefix of a survivor's line in a report.
const SURVIVED: &str = "survived: ";

/// The shortest time limit for the tests of a mutant, in seconds.
const LEAST_TIMEOUT: f64 = 15.0;

/// The time limit as a multiple of the time that the tests take without a mutation.
const TIMEOUT_FACTOR: f64 = 4.0;

/// The options of the command line.
struct Options {
    files: Vec<String>,
    all: bool,
    /// `K/N`, where K counts from zero: every N-th mutant, starting with the K-th.
    shard: (usize, usize),
    sample: Option<usize>,
    seed: u64,
    jobs: usize,
    /// A file with one mutant name per line.
    names: Option<PathBuf>,
    /// Arguments for the tests of tests/sim that run before everything else.
    first: Option<String>,
}

pub(crate) fn run(args: &[String]) -> Result<()> {
    let options = parse(args)?;
    let program = tools::provide("mutants", CARGO_MUTANTS, &[])?;
    let folder = root().join("target/mutants");
    let jobs: Vec<PathBuf> = (0..options.jobs).map(|job| folder.join(job.to_string())).collect();
    for job in &jobs {
        copy_sources(&job.join("tree"))?;
    }
    let examined = examined(&options)?;
    let mut mutants = list(&program, &jobs[0], &examined)?;
    if let Some(path) = &options.names {
        let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let names: BTreeSet<_> = text.lines().map(without_place).collect();
        mutants.retain(|name| names.contains(&without_place(name)));
    }
    mutants = choose(mutants, &options);
    ensure!(!mutants.is_empty(), "no mutants");
    println!("{} mutants; the logs are in target/mutants", mutants.len());

    let begin = Instant::now();
    let mut results: BTreeMap<String, Outcome> = BTreeMap::new();
    let mut left = mutants.clone();
    let tests: Vec<&str> = options.first.iter().flat_map(|its| its.split(' ')).collect();
    let first = options.first.as_ref().map(|_| Stage {
        targets: &["--test=sim"],
        tests: &tests,
        profile: "h200",
    });
    for (number, stage) in first.iter().chain(STAGES).enumerate() {
        if left.is_empty() {
            break;
        }
        println!(
            "stage {number}: {} {} as {}, {} mutants",
            stage.targets.join(" "),
            stage.tests.join(" "),
            stage.profile,
            left.len()
        );
        let outcomes = run_stage(&program, &jobs, number, stage, &examined, &left)?;
        for (name, outcome) in outcomes {
            results.entry(name).or_default().add(&outcome);
        }
        left.retain(|name| results.get(name).is_some_and(|its| its.summary == "MissedMutant"));
    }
    report(&mutants, &results, &left, begin.elapsed().as_secs_f64())
}

fn parse(args: &[String]) -> Result<Options> {
    let mut options = Options {
        files: Vec::new(),
        all: false,
        shard: (0, 1),
        sample: None,
        seed: 0,
        names: None,
        first: None,
        jobs: std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)),
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value"));
        match arg.as_str() {
            "--all" => options.all = true,
            "--shard" => {
                let value = value()?;
                let parts =
                    value.split_once('/').with_context(|| format!("--shard {value} is not K/N"))?;
                options.shard = (parts.0.parse()?, parts.1.parse()?);
                let (k, n) = options.shard;
                ensure!(k < n, "--shard {k}/{n}: K counts from 0 to N - 1");
            }
            "--sample" => options.sample = Some(value()?.parse().context("--sample")?),
            "--seed" => options.seed = value()?.parse().context("--seed")?,
            "--first" => options.first = Some(value()?.clone()),
            "--names" => options.names = Some(value()?.into()),
            "--jobs" => options.jobs = value()?.parse().context("--jobs")?,
            _ if arg.starts_with('-') => bail!("unknown option of mutants: {arg}"),
            file => options.files.push(file.to_owned()),
        }
    }
    ensure!(options.jobs > 0, "--jobs must be at least 1");
    ensure!(!options.all || options.files.is_empty(), "--all cannot be combined with files");
    Ok(options)
}

/// Makes `tree` a copy of the sources: of tracked files and of new ones. An unchanged file keeps its
/// modification time, so that Cargo does not rebuild it.
pub(crate) fn copy_sources(tree: &Path) -> Result<()> {
    copy_changed_sources(tree, &BTreeMap::new())
}

/// Copies the sources, except for the files whose text is given.
pub(crate) fn copy_changed_sources(tree: &Path, changed: &BTreeMap<String, String>) -> Result<()> {
    let files = debian::stdout(
        Command::new("git")
            .current_dir(root())
            .args(["ls-files", "-z", "--cached", "--others"])
            .arg("--exclude-standard"),
    )?;
    let mut copied = BTreeSet::new();
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let from = root().join(file);
        // A tracked file may have been deleted.
        if !from.is_file() {
            continue;
        }
        let to = tree.join(file);
        let text = match changed.get(file) {
            Some(text) => text.clone().into_bytes(),
            None => fs::read(&from).with_context(|| format!("reading {}", from.display()))?,
        };
        if !fs::read(&to).is_ok_and(|there| there == text) {
            let parent = to.parent().context("a file without a folder")?;
            fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
            // A copy has the permissions of the file.
            fs::copy(&from, &to).with_context(|| format!("writing {}", to.display()))?;
            // This makes it newer than the output built from the previous copy.
            fs::write(&to, text).with_context(|| format!("writing {}", to.display()))?;
        }
        copied.insert(to);
    }
    remove_others(tree, &copied)
}

/// Removes files that are not copies, except for the target folder.
fn remove_others(folder: &Path, copied: &BTreeSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            if path.file_name() != Some("target".as_ref()) {
                remove_others(&path, copied)?;
            }
        } else if !copied.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(())
}

/// Returns the globs of the files to mutate.
fn examined(options: &Options) -> Result<Vec<String>> {
    if options.all {
        return Ok(SOURCES.map(|folder| format!("{folder}/**/*.rs")).into());
    }
    let mut globs = Vec::new();
    let named = !options.files.is_empty();
    let listed = FILES.iter().map(|&file| file.to_owned());
    let files = if named { options.files.clone() } else { listed.collect() };
    for file in files {
        let places = SOURCES.map(|folder| format!("{folder}/{file}"));
        let mut places = std::iter::once(file.clone()).chain(places);
        let file = places.find(|place| root().join(place).exists()).unwrap_or(file);
        let path = root().join(&file);
        if path.is_dir() {
            globs.push(format!("{}/**/*.rs", file.trim_end_matches('/')));
        } else if path.is_file() {
            globs.push(file);
        } else {
            ensure!(!named, "{file} does not exist");
            println!("note: {file}, listed in xtask/src/testing/mutants.rs, does not exist");
        }
    }
    Ok(globs)
}

/// A configuration file of cargo-mutants.
#[derive(Serialize)]
struct Config<'a> {
    examine_globs: &'a [String],
    exclude_re: &'static [&'static str],
    /// If empty, all mutants.
    examine_re: Vec<String>,
    /// For builds too, which would otherwise build every test binary and example.
    additional_cargo_args: Vec<&'static str>,
    additional_cargo_test_args: Vec<&'a str>,
    profile: &'static str,
    cap_lints: bool,
    minimum_test_timeout: f64,
    timeout_multiplier: f64,
}

impl<'a> Config<'a> {
    fn new(stage: &Stage<'a>, examined: &'a [String], mutants: &[String]) -> Self {
        let arguments = stage.targets.iter().chain(ARGUMENTS);
        let separator = std::iter::once(&"--");
        Self {
            examine_globs: examined,
            exclude_re: EXCLUDED,
            examine_re: mutants.iter().map(|name| exactly(name)).collect(),
            additional_cargo_args: arguments.copied().collect(),
            additional_cargo_test_args: separator.chain(stage.tests).copied().collect(),
            profile: "mutants",
            cap_lints: true,
            minimum_test_timeout: LEAST_TIMEOUT,
            timeout_multiplier: TIMEOUT_FACTOR,
        }
    }

    fn write(&self, path: &Path) -> Result<()> {
        let text = toml::to_string(self).context("serializing the configuration")?;
        fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }
}

/// Returns a regular expression that matches exactly this text.
fn exactly(text: &str) -> String {
    let mut expression = String::from("^");
    for character in text.chars() {
        if r"\.+*?()|[]{}^$".contains(character) {
            expression.push('\\');
        }
        expression.push(character);
    }
    expression + "$"
}

/// Returns the cargo-mutants command for the copy of a job.
fn command(program: &Path, job: &Path, config: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(job.join("tree"))
        .args(["mutants", "--package=cuda-safe", "--package=cuda-memory"])
        .arg("--colors=never")
        .arg("--config")
        .arg(config)
        .env("CARGO_INCREMENTAL", "1")
        .env("CUDA_TESTS", "skip")
        // Some tests panic on purpose, and printing a backtrace takes longer than the test.
        .env("RUST_BACKTRACE", "0")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env_remove("RUSTFLAGS");
    command
}

/// A mutant in the output of cargo-mutants.
#[derive(Deserialize)]
struct Mutant {
    name: String,
}

/// Returns the names of all mutants.
fn list(program: &Path, job: &Path, examined: &[String]) -> Result<Vec<String>> {
    let config = job.join("list.toml");
    Config::new(&STAGES[0], examined, &[]).write(&config)?;
    let mutants = debian::stdout(command(program, job, &config).args(["--list", "--json"]))?;
    let mutants: Vec<Mutant> =
        serde_json::from_str(&mutants).context("parsing the list of mutants")?;
    let mut seen = BTreeSet::new();
    let names = mutants.into_iter().map(|mutant| mutant.name);
    Ok(names.filter(|name| seen.insert(name.clone())).collect())
}

/// Returns the file and the change of a mutant, without line and column, which differ after an edit of
/// the file.
fn without_place(line: &str) -> (&str, &str) {
    let name = line.strip_prefix(SURVIVED).unwrap_or(line);
    let mut parts = name.splitn(4, ':');
    match (parts.next(), parts.nth(2)) {
        (Some(file), Some(change)) => (file, change),
        _ => (name, ""),
    }
}

/// Selects the requested sample, and the requested shard of it, in the order of the list.
fn choose(mut mutants: Vec<String>, options: &Options) -> Vec<String> {
    if let Some(sample) = options.sample.filter(|&sample| sample < mutants.len()) {
        let mut state = options.seed;
        let mut indices: Vec<usize> = (0..mutants.len()).collect();
        for place in 0..sample {
            let left = indices.len() - place;
            let other = place + (random(&mut state) % left as u64) as usize;
            indices.swap(place, other);
        }
        indices.truncate(sample);
        indices.sort_unstable();
        mutants = indices.iter().map(|&index| mutants[index].clone()).collect();
    }
    let (k, n) = options.shard;
    mutants.into_iter().skip(k).step_by(n).collect()
}

/// `SplitMix64`, so that a seed selects the same sample on every machine.
fn random(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The report of cargo-mutants, with the fields that are used here.
#[derive(Deserialize)]
struct Outcomes {
    outcomes: Vec<Tested>,
}

#[derive(Deserialize)]
struct Tested {
    scenario: Scenario,
    summary: String,
    phase_results: Vec<Phase>,
}

#[derive(Deserialize)]
enum Scenario {
    Baseline,
    Mutant(Mutant),
}

#[derive(Deserialize)]
struct Phase {
    phase: String,
    duration: f64,
}

/// The result of a mutant, with the seconds of all stages so far.
#[derive(Default)]
struct Outcome {
    /// The result as named by cargo-mutants.
    summary: String,
    build: f64,
    test: f64,
}

impl Outcome {
    fn add(&mut self, other: &Self) {
        self.summary.clone_from(&other.summary);
        self.build += other.build;
        self.test += other.test;
    }
}

/// Runs a stage, divided among the jobs.
fn run_stage(
    program: &Path,
    jobs: &[PathBuf],
    number: usize,
    stage: &Stage<'_>,
    examined: &[String],
    mutants: &[String],
) -> Result<Vec<(String, Outcome)>> {
    let mut running = Vec::new();
    for (index, job) in jobs.iter().enumerate() {
        let share: Vec<String> = mutants.iter().skip(index).step_by(jobs.len()).cloned().collect();
        if share.is_empty() {
            continue;
        }
        let output = job.join(format!("stage{number}"));
        debian::replace_dir(&output)?;
        let config = output.join("mutants.toml");
        Config::new(stage, examined, &share).write(&config)?;
        let log = output.join("log");
        let file = File::create(&log).with_context(|| format!("writing {}", log.display()))?;
        let child = command(program, job, &config)
            .args(["--in-place", "--no-shuffle", "--caught", "--unviable"])
            .arg("--output")
            .arg(&output)
            .env("CUDA_SIM", stage.profile)
            .stdout(file.try_clone().context("a second handle of the log")?)
            .stderr(file)
            .spawn()
            .context("running cargo-mutants")?;
        running.push((child, output, share));
    }
    let mut results = Vec::new();
    let mut failure = None;
    for (mut child, output, share) in running {
        let status = child.wait().context("waiting for cargo-mutants")?;
        // 2: mutants survived; 3: a mutant timed out.
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            let log = output.join("log");
            let text = fs::read_to_string(&log).unwrap_or_default();
            let log = log.display();
            failure = Some(anyhow!("{text}\ncargo-mutants failed ({status}); see {log}"));
            continue;
        }
        // cargo-mutants also tests some mutants that do not match the expressions.
        let mut outcomes = read(&output.join("mutants.out/outcomes.json"))?;
        outcomes.retain(|(name, _)| share.contains(name));
        ensure!(
            outcomes.len() == share.len(),
            "only {} of {} mutants are in {}",
            outcomes.len(),
            share.len(),
            output.display()
        );
        results.extend(outcomes);
    }
    failure.map_or(Ok(results), Err)
}

fn read(path: &Path) -> Result<Vec<(String, Outcome)>> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let outcomes: Outcomes =
        serde_json::from_str(&text).context("parsing the report of cargo-mutants")?;
    let mut results = Vec::new();
    for tested in outcomes.outcomes {
        let Scenario::Mutant(mutant) = tested.scenario else {
            continue;
        };
        let seconds = |phase: &str| {
            let phases = tested.phase_results.iter().filter(|its| its.phase == phase);
            phases.map(|its| its.duration).sum()
        };
        let (build, test) = (seconds("Build"), seconds("Test"));
        let summary = tested.summary;
        let outcome = Outcome { summary, build, test };
        results.push((mutant.name, outcome));
    }
    Ok(results)
}

/// Lists the survivors. The last line contains the counts.
fn report(
    mutants: &[String],
    results: &BTreeMap<String, Outcome>,
    survivors: &[String],
    seconds: f64,
) -> Result<()> {
    let count = |summary: &str| results.values().filter(|its| its.summary == summary).count();
    let (hung, unviable) = (count("Timeout"), count("Unviable"));
    let caught = count("CaughtMutant") + hung;
    let all = mutants.len();
    let viable = all - unviable;
    ensure!(
        caught + survivors.len() == viable,
        "{caught} caught and {} surviving mutants do not add up to {viable}",
        survivors.len()
    );
    for name in survivors {
        println!("{SURVIVED}{name}");
    }
    let mean = |part: fn(&Outcome) -> f64| results.values().map(part).sum::<f64>() / all as f64;
    println!(
        "{hung} of the caught mutants timed out; {:.1} s per mutant ({:.1} s of building and {:.1} s of testing in a job)",
        seconds / all as f64,
        mean(|its| its.build),
        mean(|its| its.test)
    );
    let percent = 100.0 * caught as f64 / viable.max(1) as f64;
    println!("mutants {all}, viable {viable}, caught {caught} ({percent:.1} %)");
    Ok(())
}
