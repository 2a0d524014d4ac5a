//! A job of the sweep for one child process, and its results.

use crate::{Scenario, scenarios, violations};
use cuda_safe::CUresult;
use cuda_sim::Profile;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

const VARIABLE: &str = "CUDA_FAULTS_JOB";

/// A scenario with one error code: in each run another call fails.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) scenario: &'static Scenario,
    pub(crate) profile: Profile,
    pub(crate) code: CUresult,
    /// Whether all later calls fail too.
    pub(crate) from_then_on: bool,
    /// The run to start with. After some runs only a new process has a clean state.
    pub(crate) start: usize,
}

/// The results of a job.
#[derive(Default)]
pub(crate) struct Report {
    /// The number of calls of the scenario without a fault.
    pub(crate) calls: usize,
    pub(crate) failed: u64,
    pub(crate) violations: Vec<String>,
}

impl Job {
    /// Returns the job that this process was started for.
    pub(crate) fn from_environment() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let mut parts = text.split('|');
        let mut part = || parts.next().expect("a part of the job");
        let name = part();
        let mut all = scenarios::ALL.iter().chain(&violations::ALL);
        Some(Self {
            scenario: all.find(|it| it.name == name).expect("a scenario"),
            profile: part().parse().expect("a profile"),
            code: CUresult(part().parse().expect("a code")),
            from_then_on: part() == "true",
            start: part().parse().expect("a number"),
        })
    }

    /// Returns whether the scenario contains a bug.
    pub(crate) fn is_planted(&self) -> bool {
        let mut all = violations::ALL.iter();
        all.any(|it| it.name == self.scenario.name)
    }

    fn text(&self) -> String {
        let Self { scenario, profile, code, from_then_on, start } = self;
        let driver = profile.driver();
        let (name, devices, code) = (scenario.name, scenario.devices, code.0);
        format!("{name}|h200*{devices}@{driver}|{code}|{from_then_on}|{start}")
    }

    /// Describes the job and the place in it, for a violation.
    pub(crate) fn place(&self, what: &str) -> String {
        let all = if self.from_then_on { " and all others" } else { "" };
        format!(
            "{} on CUDA {}: {what} with {}{all}",
            self.scenario.name,
            self.profile.driver(),
            self.code,
        )
    }

    /// Runs the job in child processes, one after the other, because some runs need a clean
    /// process.
    pub(crate) fn run(&self) -> Report {
        let mut report = Report::default();
        let mut job = self.clone();
        loop {
            let output = Command::new(std::env::current_exe().expect("the path of this binary"))
                .args(["sweep", "--exact", "--nocapture", "--test-threads=1"])
                .env(VARIABLE, job.text())
                .output()
                .expect("starting the test binary again");
            let text = String::from_utf8_lossy(&output.stdout);
            let (mut at, mut next) = (String::new(), None);
            for line in text.lines() {
                let (kind, rest) = line.split_once('\t').unwrap_or((line, ""));
                match kind {
                    "calls" => report.calls = rest.parse().unwrap_or(0),
                    "at" => at = rest.to_owned(),
                    "failed" => report.failed += rest.parse().unwrap_or(0),
                    "violation" => report.violations.push(rest.to_owned()),
                    "next" => next = rest.parse().ok(),
                    _ => {}
                }
            }
            if !output.status.success() {
                let errors = String::from_utf8_lossy(&output.stderr);
                let place = self.place(&at);
                report
                    .violations
                    .push(format!("{place}: the process ended ({}): {errors}", output.status));
                return report;
            }
            match next {
                Some(next) => job.start = next,
                None => return report,
            }
        }
    }
}

/// Runs all jobs, one per core at a time. The reports are in the order of the jobs.
pub(crate) fn run_all(jobs: Vec<Job>) -> Vec<(Job, Report)> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let done = Mutex::new(Vec::new());
    let work = || {
        loop {
            let job = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((number, job)) = job else { return };
            let report = job.run();
            done.lock().unwrap_or_else(PoisonError::into_inner).push((number, job, report));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(work);
        }
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(number, ..)| *number);
    done.into_iter().map(|(_, job, report)| (job, report)).collect()
}
