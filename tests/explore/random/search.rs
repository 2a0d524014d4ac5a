//! Searches for a random program that violates a rule, in child processes, and shrinks it.

use crate::programs::Program;
use crate::run::Options;
use cuda_sim::Profile;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of programs that one process runs.
const BATCH: u64 = 100;

/// The devices and drivers, each for a batch in turn. The newest driver has functions that the recorded one
/// does not have.
const PROFILES: [&str; 2] = ["h200*2", "h200*2@13.5"];

/// The number of schedules of each program in the search, and of a smaller program that may still
/// violate a rule.
const SCHEDULES: u64 = 40;
const SHRINK_SCHEDULES: u64 = 600;

/// The number of failures in destructors.
static REPORTS: AtomicU64 = AtomicU64::new(0);

/// A program that violates a rule: its seed, its steps, the seed of the schedule, and the reason.
struct Found {
    program: u64,
    kept: Vec<usize>,
    schedule: u64,
    reason: String,
}

impl Found {
    /// Returns whether the violation is a loss that the documentation describes. The search passes over
    /// every program whose only violations are such losses, so it does not find a loss of the same kind
    /// that has another cause.
    ///
    /// - Memory of a pending copy, and an imported array, are leaked if their stream is captured before the
    ///   work is waited for.
    /// - A graph is leaked, and counted without a report, if a capture into one of its bodies fails.
    fn is_documented(&self) -> bool {
        let lost = self.reason.strip_prefix("reported loss: ");
        let lost = lost.and_then(|rest| rest.split(',').next()?.parse().ok());
        let captured = |report: &&str| report.contains("CUDA_ERROR_STREAM_CAPTURE");
        let reports = self.reason.split("may still use was not released").skip(1);
        let is_copy = lost == Some(reports.filter(captured).count());
        let alive = self.reason.strip_prefix("unreported loss: still alive: ");
        let count = alive.and_then(|alive| alive.strip_suffix(" graphs"));
        let is_graph = count.is_some_and(|count| count.parse::<u32>().is_ok());
        is_copy || is_graph && self.description().contains("capture into a body")
    }

    fn description(&self) -> String {
        Program::of(self.program).keeping(&self.kept).describe()
    }
}

/// Runs programs for some seconds or a number of programs, or the one program that the options name.
pub(crate) fn search(options: &Options) -> ExitCode {
    if let Some(program) = options.program {
        let kept = options.keep.clone();
        return one(program, kept, options);
    }
    let begin = Instant::now();
    let limit = Duration::from_secs(options.seconds);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let (next, programs) = (AtomicU64::new(options.seed), AtomicU64::new(0));
    let (schedules, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let found: Mutex<Option<Found>> = Mutex::new(None);
    let is_over = |next: u64| match options.programs {
        Some(count) => next - options.seed >= count,
        None => begin.elapsed() >= limit,
    };
    let schedules_of_each = if options.serial { 0 } else { SCHEDULES };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while !is_over(next.load(Ordering::Relaxed)) && !stop.load(Ordering::Relaxed) {
                    let mut first = next.fetch_add(BATCH, Ordering::Relaxed);
                    let end = first + BATCH;
                    while first < end {
                        let arguments = [("--program", first), ("--batch", end - first)];
                        let output = child(&arguments, None, schedules_of_each, 0);
                        programs.fetch_add(output.programs, Ordering::Relaxed);
                        schedules.fetch_add(output.schedules, Ordering::Relaxed);
                        let Some(its) = output.found else { break };
                        // A process ends with the first violation.
                        first = its.program + 1;
                        if its.is_documented() {
                            continue;
                        }
                        if !options.serial && its.reason.contains(&options.only) {
                            stop.store(true, Ordering::Relaxed);
                            // The other workers complete their batches, so that the first program is the same
                            // in every run.
                            let mut found = found.lock().expect("no panic");
                            if found.as_ref().is_none_or(|other| its.program < other.program) {
                                *found = Some(its);
                            }
                            break;
                        }
                        if options.trace || options.serial {
                            println!("passed over: program {}: {}", its.program, its.reason);
                        }
                    }
                }
            });
        }
    });
    let found = found.into_inner().expect("no panic");
    let violations = u8::from(found.is_some());
    if let Some(found) = found {
        println!("random: program {}: {}", found.program, found.reason);
        if !options.no_shrink {
            print(&shrink(found));
        }
    }
    println!(
        "programs {}, schedules {}, violations {violations}",
        programs.into_inner(),
        schedules.into_inner()
    );
    ExitCode::from(violations)
}

/// Runs one program again.
fn one(program: u64, kept: Option<Vec<usize>>, options: &Options) -> ExitCode {
    let kept = kept.unwrap_or_else(|| (0..Program::of(program).steps.len()).collect());
    let arguments = [("--program", program), ("--batch", 1)];
    let mut output = child(&arguments, Some(&kept), options.schedules, options.seed);
    let violations = u8::from(output.found.is_some());
    if let Some(mut found) = output.found.take() {
        found.kept = kept;
        print(&found);
        if options.trace {
            println!("{}", output.trace);
        }
    }
    println!("programs 1, schedules {}, violations {violations}", output.schedules);
    ExitCode::from(violations)
}

fn print(found: &Found) {
    let program = Program::of(found.program).keeping(&found.kept);
    let kept: Vec<String> = found.kept.iter().map(usize::to_string).collect();
    println!("random: {} steps: {}", found.kept.len(), found.reason);
    print!("{}", program.describe());
    println!(
        "    reproduce: cargo xtask explore random --program {} --keep {} --schedules 1 --seed {} --trace",
        found.program,
        kept.join(","),
        found.schedule
    );
}

/// Returns the rule that was violated.
fn rule_of(reason: &str) -> &str {
    match reason.split_once(" panicked: ") {
        Some((_, text)) => text.split([':', '[']).next().unwrap_or(text),
        None => reason.split(':').next().unwrap_or(reason),
    }
}

/// Removes steps, several at first and then one by one, as long as the same rule is violated.
fn shrink(found: Found) -> Found {
    let smaller = |kept: Vec<usize>| {
        let arguments = [("--program", found.program), ("--batch", 1)];
        let its = child(&arguments, Some(&kept), SHRINK_SCHEDULES, 0).found?;
        let is_same = rule_of(&its.reason) == rule_of(&found.reason);
        is_same.then_some(Found { kept, ..its })
    };
    // The program runs alone, because programs of one process are not fully isolated.
    let Some(mut smallest) = smaller(found.kept.clone()) else {
        return found;
    };
    let mut size = smallest.kept.len().div_ceil(2).max(1);
    loop {
        let mut is_smaller = false;
        let mut start = 0;
        while start < smallest.kept.len() {
            let mut kept = smallest.kept.clone();
            kept.drain(start..(start + size).min(kept.len()));
            match smaller(kept) {
                Some(its) => {
                    smallest = its;
                    is_smaller = true;
                }
                None => start += size,
            }
        }
        match (is_smaller, size) {
            (false, 1) => return smallest,
            (true, _) => {}
            (false, _) => size = size.div_ceil(2),
        }
    }
}

/// The output of a child process.
struct Output {
    programs: u64,
    schedules: u64,
    found: Option<Found>,
    trace: String,
}

fn child(arguments: &[(&str, u64)], kept: Option<&[usize]>, schedules: u64, seed: u64) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program has a path"));
    command.args(["random", "--child"]);
    for (name, value) in arguments {
        command.args([*name, &value.to_string()]);
    }
    if let Some(kept) = kept {
        let kept: Vec<String> = kept.iter().map(usize::to_string).collect();
        command.args(["--keep", &kept.join(",")]);
    }
    command.args(["--schedules", &schedules.to_string()]);
    command.args(["--seed", &seed.to_string()]);
    let output = command.stdin(Stdio::null()).output();
    let output = output.expect("a child process");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut result = Output { programs: 0, schedules: 0, found: None, trace: String::new() };
    let mut last = arguments[0].1;
    let (mut is_over, mut reports) = (false, String::new());
    for line in text.lines() {
        if let Some(report) = line.strip_prefix("report ") {
            reports += &format!(" ({report})");
        } else if let Some(program) = line.strip_prefix("program ") {
            reports.clear();
            last = program.parse().unwrap_or(last);
        } else if let Some(counts) = line.strip_prefix("explored ") {
            result.programs += 1;
            result.schedules += counts.parse::<u64>().unwrap_or(0);
        } else if let Some(rest) = line.strip_prefix("violation ") {
            let (schedule, reason) = rest.split_once(' ').unwrap_or(("0", rest));
            result.found = Some(Found {
                program: last,
                kept: (0..Program::of(last).steps.len()).collect(),
                schedule: schedule.parse().unwrap_or(0),
                reason: format!("{reason}{reports}"),
            });
            is_over = true;
        } else if let Some(line) = line.strip_prefix("trace ") {
            result.trace += &format!("    {line}\n");
        } else if line == "over" {
            is_over = true;
        }
    }
    if !is_over {
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors = errors.lines().last().unwrap_or_default();
        result.found = Some(Found {
            program: last,
            kept: (0..Program::of(last).steps.len()).collect(),
            schedule: 0,
            reason: format!("the process failed, {}: {errors}{reports}", output.status),
        });
    }
    result
}

/// Explores a batch of programs in this process, up to the first violation.
pub(crate) fn explore_batch(options: &Options) -> ExitCode {
    let first = options.program.unwrap_or(0);
    let batches = PROFILES.len() as u64;
    let profile = PROFILES[(first / BATCH % batches) as usize];
    let profile: Profile = profile.parse().expect("a profile");
    let profile = profile.with_race_detection();
    // Losses without a report are by design: the objects of a call that raced with the end of a capture.
    cuda_safe::set_report_hook(|report| {
        REPORTS.fetch_add(1, Ordering::Relaxed);
        println!("report {}", report.to_string().replace('\n', " "));
    });
    let explorer =
        crate::run::explorer(profile, options).reported(|| REPORTS.load(Ordering::Relaxed));
    for number in first..first.wrapping_add(options.batch) {
        println!("program {number}");
        let mut program = Program::of(number);
        if let Some(kept) = &options.keep {
            program = program.keeping(kept);
        }
        let report = explorer.explore(move || super::run(&program));
        println!("explored {}", report.schedules);
        if let Some(violation) = report.violation {
            let reason = violation.reason.replace('\n', " ");
            println!("violation {} {reason}", violation.seed);
            for line in violation.trace {
                println!("trace {line}");
            }
            // Threads of the schedule may wait forever, and objects may be left.
            std::process::exit(1);
        }
    }
    println!("over");
    ExitCode::SUCCESS
}
