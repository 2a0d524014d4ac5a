//! Runs each scenario in a child process and prints the results.

use crate::random;
use crate::scenarios::{self, Scenario};
use cuda_sim::Profile;
use cuda_sim::explore::{self, Explorer};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The number of schedules of each scenario, unless the command line sets it.
const SCHEDULES: u64 = 300;

pub(crate) struct Options {
    /// Run only the scenarios whose name contains this. An empty filter selects all.
    filter: String,
    pub(crate) schedules: u64,
    pub(crate) seed: u64,
    list: bool,
    pub(crate) trace: bool,
    /// Run the one scenario of this name in this process.
    child: bool,
    /// How long random programs run, in seconds.
    pub(crate) seconds: u64,
    /// Run this number of random programs instead.
    pub(crate) programs: Option<u64>,
    /// Run random programs under the serial schedules only, and pass over all violations.
    pub(crate) serial: bool,
    /// Do not remove steps of a random program that violates a rule.
    pub(crate) no_shrink: bool,
    /// The seed of a random program, how many programs follow it, and the steps to keep.
    pub(crate) program: Option<u64>,
    pub(crate) batch: u64,
    pub(crate) keep: Option<Vec<usize>>,
    /// Report only violations of random programs whose reason contains this.
    pub(crate) only: String,
}

impl Options {
    pub(crate) fn parse() -> Result<Self, lexopt::Error> {
        use lexopt::prelude::*;
        let mut options = Self {
            filter: String::new(),
            schedules: SCHEDULES,
            seed: 0,
            list: false,
            trace: false,
            child: false,
            seconds: 60,
            programs: None,
            serial: false,
            no_shrink: false,
            program: None,
            batch: 1,
            keep: None,
            only: String::new(),
        };
        let mut parser = lexopt::Parser::from_env();
        while let Some(argument) = parser.next()? {
            match argument {
                Value(filter) => options.filter = filter.string()?,
                Long("schedules") => options.schedules = parser.value()?.parse()?,
                Long("seed") => options.seed = parser.value()?.parse()?,
                Long("list") => options.list = true,
                Long("trace") => options.trace = true,
                Long("only") => options.only = parser.value()?.string()?,
                Long("seconds") => options.seconds = parser.value()?.parse()?,
                Long("programs") => options.programs = Some(parser.value()?.parse()?),
                Long("serial") => options.serial = true,
                Long("no-shrink") => options.no_shrink = true,
                Long("program") => options.program = Some(parser.value()?.parse()?),
                Long("batch") => options.batch = parser.value()?.parse()?,
                Long("keep") => {
                    let kept = parser.value()?.string()?;
                    let kept = kept.split(',').filter(|place| !place.is_empty());
                    let kept = kept.map(|place| place.parse().map_err(|_| "--keep takes numbers"));
                    options.keep = Some(kept.collect::<Result<_, _>>()?);
                }
                Long("child") => options.child = true,
                // Options of the test harness, which this program accepts and ignores.
                Long("nocapture" | "quiet") | Short('q') => {}
                _ => return Err(argument.unexpected()),
            }
        }
        Ok(options)
    }

    /// Returns the chosen scenarios. An exact name takes precedence over names that contain it.
    fn chosen(&self) -> Vec<Scenario> {
        let all = scenarios::all();
        let is_exact = all.iter().any(|its| its.name == self.filter);
        let matches = |its: &Scenario| match is_exact {
            true => its.name == self.filter,
            false => its.name.contains(&self.filter),
        };
        all.into_iter().filter(matches).collect()
    }
}

/// The result of one scenario.
struct Outcome {
    schedules: u64,
    points: u64,
    /// The text to print if the scenario violated a rule.
    violation: Option<String>,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    if options.filter == "random" {
        return match options.child {
            true => random::explore_batch(options),
            false => random::search(options),
        };
    }
    let chosen = options.chosen();
    if options.list {
        for scenario in &chosen {
            println!("{}", scenario.name);
        }
        return ExitCode::SUCCESS;
    }
    if options.child {
        return match chosen.into_iter().next() {
            Some(scenario) => explore_here(scenario, options),
            None => ExitCode::from(2),
        };
    }
    if chosen.is_empty() {
        eprintln!("explore: no scenario's name contains \"{}\"", options.filter);
        return ExitCode::from(2);
    }
    let begin = Instant::now();
    let outcomes = explore_all(&chosen, options);
    let schedules: u64 = outcomes.iter().map(|its| its.schedules).sum();
    let points: u64 = outcomes.iter().map(|its| its.points).sum();
    let violations = outcomes.iter().filter(|its| its.violation.is_some()).count();
    let seconds = begin.elapsed().as_secs_f64();
    println!(
        "{points} scheduling points, {seconds:.1} s, {:.0} schedules per second",
        schedules as f64 / seconds
    );
    println!("scenarios {}, schedules {schedules}, violations {violations}", chosen.len());
    ExitCode::from(u8::from(violations != 0))
}

/// Explores the scenarios in child processes, one per processor at a time.
fn explore_all(chosen: &[Scenario], options: &Options) -> Vec<Outcome> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..workers.min(chosen.len()) {
            scope.spawn(|| {
                while let Some(scenario) = chosen.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = explore_in_child(&scenario.name, options);
                    if let Some(violation) = &outcome.violation {
                        println!("{violation}");
                    }
                    outcomes.lock().expect("no panic").push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().expect("no panic")
}

fn explore_in_child(name: &str, options: &Options) -> Outcome {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args([name, "--child"]);
    command.args(["--schedules", &options.schedules.to_string()]);
    command.args(["--seed", &options.seed.to_string()]);
    if options.trace {
        command.arg("--trace");
    }
    let output = command.stdin(Stdio::null()).output();
    let output = output.expect("a child process");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let counts = text.lines().find_map(|line| line.strip_prefix("explored "));
    let mut counts = counts.into_iter().flat_map(str::split_whitespace);
    let mut number = || counts.next()?.parse::<u64>().ok();
    match (number(), number()) {
        (Some(schedules), Some(points)) => {
            let lines = text.lines().filter(|line| !line.starts_with("explored "));
            let lines: Vec<&str> = lines.collect();
            Outcome { schedules, points, violation: (!lines.is_empty()).then(|| lines.join("\n")) }
        }
        _ => {
            let last = String::from_utf8_lossy(&output.stderr).into_owned();
            Outcome {
                schedules: 0,
                points: 0,
                violation: Some(format!("{name}: the process failed, {}\n{last}", output.status)),
            }
        }
    }
}

/// Installs the software driver, and creates the explorer of this process.
pub(crate) fn explorer(profile: Profile, options: &Options) -> Explorer {
    let profile = profile.with_environment();
    let profile = profile.unwrap_or_else(|why| panic!("{why}"));
    cuda_sim::install(profile).expect("nothing was called before");
    // SAFETY: the functions have the signatures of NCCL, and are part of this program.
    let installed = unsafe { cuda_nccl::sys::NCCL.install(cuda_sim::nccl::symbol) };
    installed.expect("nothing was called before");
    cuda_safe::set_freed_hook(cuda_sim::data_freed);
    cuda_safe::explore::set_hooks(
        explore::is_explored,
        explore::point_at,
        explore::wait_at,
        explore::yield_at,
    );
    Explorer::new()
        .schedules(options.schedules)
        .seed(options.seed)
        .settle(scenarios::settle)
        .reported(cuda_safe::leaked)
}

/// Explores a scenario in this process, and prints the result for the parent.
fn explore_here(scenario: Scenario, options: &Options) -> ExitCode {
    let profile = Profile::h200().with_devices(scenario.devices);
    let explorer = explorer(profile, options).allow_reported(scenario.may_report);
    let report = explorer.explore(scenario.body);
    println!("explored {} {}", report.schedules, report.points);
    let Some(violation) = report.violation else {
        return ExitCode::SUCCESS;
    };
    println!("{}: {violation}", scenario.name);
    if options.trace {
        for line in &violation.trace {
            println!("    {line}");
        }
    }
    println!(
        "    reproduce: cargo xtask explore {} --schedules 1 --seed {} --trace",
        scenario.name, violation.seed
    );
    // Threads of the schedule may wait forever, and objects may be left.
    std::process::exit(1);
}
