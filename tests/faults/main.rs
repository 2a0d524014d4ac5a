//! The fault sweep checks what happens when any single driver call fails.
//!
//! The [scenarios](scenarios) use every feature of `cuda-safe` on the software driver. Each runs
//! once without a fault, which counts its calls, and then once for every call and every error code
//! with that call failing. It also runs once for every call with all calls failing from there on,
//! as after an illegal address. After each run the [rules](rules) are checked: no panic, no
//! abort and no hang, no uncounted leak, nothing destroyed twice or used after destruction, the context stack
//! of the thread unchanged, and the failing function named in the error. Afterwards the scenario
//! must run without a trace of the failure. A debug build does a sample of the sweep.
//!
//! `cargo test --profile=bench --test faults -- --nocapture` prints one line per scenario, and the totals
//! at the end. No GPU is used, even if there is one.

mod by_design;
mod child;
mod job;
mod managed;
mod rules;
mod run;
mod scenarios;
mod state;
mod trace;
mod violations;

use cuda_safe::{CUresult, Error};
use job::Job;
use trace::Trace;

/// A program that uses the crate until it ends or returns its first error. Then everything that it
/// created is dropped.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The first driver version that the scenario runs on.
    pub(crate) since: (u16, u16),
    pub(crate) devices: u32,
    pub(crate) run: fn(&mut Trace) -> Result<(), Error>,
}

/// The error codes of single failing calls.
const CODES: [CUresult; 8] = [
    CUresult::CUDA_ERROR_OUT_OF_MEMORY,
    CUresult::CUDA_ERROR_NOT_PERMITTED,
    CUresult::CUDA_ERROR_NOT_SUPPORTED,
    CUresult::CUDA_ERROR_INVALID_DEVICE,
    CUresult::CUDA_ERROR_INVALID_CONTEXT,
    CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUresult::CUDA_ERROR_ILLEGAL_ADDRESS,
    CUresult::CUDA_ERROR_DEINITIALIZED,
];

/// The driver that is swept with all codes, and other drivers, with which the crate takes other
/// paths.
const PROFILES: [(&str, &[CUresult]); 3] = [
    ("h200@13.0", &CODES),
    ("h200@12.4", &[CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_INVALID_CONTEXT]),
    ("h200@13.5", &[CUresult::CUDA_ERROR_OUT_OF_MEMORY, CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED]),
];

/// Returns all jobs of the sweep, one child process each.
fn jobs(scenario: &'static Scenario) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (profile, codes) in PROFILES {
        let profile: cuda_sim::Profile = profile.parse().expect("a profile");
        let (major, minor) = scenario.since;
        if profile.driver() < cuda_safe::CudaVersion::new(major, minor) {
            continue;
        }
        let job = |code: CUresult, from_then_on| Job {
            scenario,
            profile: profile.clone().with_devices(scenario.devices),
            code,
            from_then_on,
            start: 0,
        };
        jobs.extend(codes.iter().map(|code| job(*code, false)));
        if codes.len() > 1 {
            jobs.push(job(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, true));
        }
    }
    jobs
}

/// Also runs in every child process, where it performs the one job that the environment names.
#[test]
fn sweep() {
    if let Some(job) = Job::from_environment() {
        child::work(&job);
        return;
    }
    let jobs: Vec<Job> = scenarios::ALL.iter().flat_map(jobs).collect();
    let done = job::run_all(jobs);
    let (mut failed, mut violations) = (0, Vec::new());
    for scenario in scenarios::ALL {
        let its: Vec<_> =
            done.iter().filter(|(job, _)| job.scenario.name == scenario.name).collect();
        let calls = its.first().map_or(0, |(_, report)| report.calls);
        let its_failed: u64 = its.iter().map(|(_, report)| report.failed).sum();
        let found: usize = its.iter().map(|(_, report)| report.violations.len()).sum();
        println!("{:14} {calls:4} calls, {its_failed:6} failed, {found} violations", scenario.name);
        failed += its_failed;
        violations.extend(its.iter().flat_map(|(_, report)| &report.violations));
    }
    for violation in &violations {
        println!("violation: {violation}");
    }
    println!(
        "fault sweep: {} scenarios, {failed} calls failed, {} violations",
        scenarios::ALL.len(),
        violations.len()
    );
    assert!(failed >= 1000, "only {failed} calls failed");
    assert!(violations.is_empty(), "see the list above");
}
