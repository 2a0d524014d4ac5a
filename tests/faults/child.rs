//! The child process, which performs the runs of one job.

use crate::job::Job;
use crate::rules::{self, Failed};
use crate::run::{self, Run};
use cuda_safe::sys::{cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain};
use cuda_safe::{Context, Device};
use cuda_sim::Call;
use cuda_sim::fault::Fault;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a run may take. Most take milliseconds.
const LIMIT: Duration = Duration::from_secs(20);

/// The number of runs that have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);

/// Says where a run begins, and gives it [`LIMIT`].
fn begin(place: &str) {
    println!("at\t{place}");
    BEGUN.fetch_add(1, Ordering::Relaxed);
}

/// Aborts the process when a run does not end. The parent process reports the place.
fn watch() {
    let mut last = BEGUN.load(Ordering::Relaxed);
    loop {
        std::thread::sleep(LIMIT);
        let begun = BEGUN.load(Ordering::Relaxed);
        if begun == last {
            eprintln!("a run has not ended after {} s", LIMIT.as_secs());
            std::process::abort();
        }
        last = begun;
    }
}

/// Every call fails in turn. In a debug build, which is twenty times slower, only some calls of the
/// scenarios fail.
fn stride(job: &Job) -> usize {
    let is_sampled = cfg!(debug_assertions) && !job.is_planted();
    if is_sampled { 48 } else { 1 }
}

/// Runs a job and prints the results, one per line. If a run leaves state behind that would affect
/// the next one, prints the number of the next run and exits.
pub(crate) fn work(job: &Job) {
    // The test harness has already printed the beginning of a line.
    println!();
    cuda_sim::install(job.profile.clone()).expect("this child process has no driver yet");
    run::listen();
    std::thread::spawn(watch);
    if job.start == 0 {
        first_call(job);
    }
    cuda_safe::init().expect("no call fails here");
    // If one call fails, all capture queries are made, so that each of them fails once. If all
    // calls fail from one on, only those that the scenario needs are made.
    if !job.from_then_on {
        others_may_capture();
    }
    // Runs once before: from then on the process knows that other code has streams and events.
    sound_run(job, "before any other");
    let sound = sound_run(job, "before any fault");
    println!("calls\t{}", sound.len());
    // Two sound runs: one in which the primary context, with all objects in it, is destroyed at the
    // end, and one in which other code retains it, which shows the objects that are left.
    let runs = match job.from_then_on {
        false => 2 * sound.len(),
        // If the calls fail from one on, everything is left behind anyway.
        true => sound.len(),
    };
    // A debug build fails other calls for each code.
    let is_due = |number: &usize| (number + job.code.0 as usize) % stride(job) == 0;
    for number in (job.start..runs).filter(is_due) {
        let held = number >= sound.len();
        let nth = number % sound.len() + 1;
        let who = if held { ", retained by others" } else { "" };
        let place = format!("call {nth}, {}{who}", sound[nth - 1].function);
        begin(&place);
        if held {
            retain();
        }
        let run = run::run(job.scenario, Some(fault(job, nth as u64)));
        check(job, &place, &run, &sound);
        // Restores the state for the next run, so that a new process is needed only if green
        // contexts are left.
        run.thread_before.restore();
        let clean = run.after.green_contexts() == run.before.green_contexts();
        if clean {
            sound_run(job, &place);
        }
        if held {
            release();
        }
        for _ in run.before.retains()..run.after.retains() {
            release();
        }
        if !clean {
            if number + 1 < runs {
                println!("next\t{}", number + 1);
            }
            return;
        }
    }
}

/// Fails the first driver call. The driver is initialized once per process, so this call can fail
/// only here.
fn first_call(job: &Job) {
    let place = "the first call of the process";
    begin(place);
    let run = run::run(job.scenario, Some(fault(job, 1)));
    check(job, place, &run, &[]);
    run.thread_before.restore();
}

fn fault(job: &Job, nth: u64) -> Fault {
    let fault = Fault::of_any().nth(nth).with(job.code);
    if job.from_then_on { fault.from_then_on() } else { fault }
}

fn check(job: &Job, place: &str, run: &Run, sound: &[Call]) {
    println!("failed\t{}", u64::from(run.failed != 0));
    let wrong = match Failed::find(run, sound, job.code, job.from_then_on) {
        Some(failed) => rules::after_fault(run, &failed),
        // The call returns this code even without the fault.
        None => rules::after_sound_run(run),
    };
    tell(job, place, &wrong);
}

/// Runs the scenario without a fault and returns its calls.
fn sound_run(job: &Job, place: &str) -> Vec<Call> {
    BEGUN.fetch_add(1, Ordering::Relaxed);
    let run = run::run(job.scenario, None);
    let wrong: Vec<String> = rules::after_sound_run(&run)
        .iter()
        .map(|wrong| format!("in the run without a fault: {wrong}"))
        .collect();
    tell(job, place, &wrong);
    run.calls
}

fn tell(job: &Job, place: &str, wrong: &[String]) {
    for wrong in wrong {
        println!("violation\t{}: {}", job.place(place), wrong.replace('\n', " "));
    }
}

/// Retains the primary context, as other code might.
fn retain() {
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    let answer = unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) };
    assert!(answer.is_success(), "{answer}");
}

fn release() {
    // SAFETY: this releases the retain above, which nothing else releases.
    let answer = unsafe { cuDevicePrimaryCtxRelease_v2(0) };
    assert!(answer.is_success(), "{answer}");
}

/// Exposes a raw handle, with which other code could begin a capture.
fn others_may_capture() {
    let context = Device::get(0).and_then(|device| Context::primary(&device));
    let event = context.and_then(|context| context.event()).expect("no call fails here");
    assert!(!event.as_raw().is_null());
}
