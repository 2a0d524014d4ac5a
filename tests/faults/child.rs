//! A child process: the runs of one job.

use crate::job::Job;
use crate::rules::{self, Failed};
use crate::run::{self, Run};
use cuda_safe::sys::{cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRetain};
use cuda_safe::{Context, Device};
use cuda_sim::Call;
use cuda_sim::fault::Fault;

/// Every call fails in turn; in a debug build, where all takes twenty times as long, one of some.
fn stride() -> usize {
    if cfg!(debug_assertions) { 12 } else { 1 }
}

/// Does a job and prints what came of it, a line each. After a run that left something behind
/// which would disturb the next, it prints the number of that one and ends.
pub(crate) fn work(job: &Job) {
    // The test harness has begun a line.
    println!();
    cuda_sim::install(job.profile.clone()).expect("a process of its own has no driver yet");
    crate::kernels::register_kernels();
    run::listen();
    if job.start == 0 {
        first_call(job);
    }
    cuda_safe::init().expect("no call fails now");
    // Where one call fails, all questions for captures are asked, so that each of them fails once. Where all
    // fail from one on, only those that the scenario is asked.
    if !job.from_then_on {
        others_may_capture();
    }
    // Once before: that there are streams and events of other code, the process knows from then on.
    sound_run(job, "before any other");
    let sound = sound_run(job, "before any fault");
    println!("calls\t{}", sound.len());
    // Twice: with the primary context going at the end, which takes along what is in it; and with
    // somebody else holding it, which shows what is left in it.
    let runs = match job.from_then_on {
        false => 2 * sound.len(),
        // What fails leaves everything behind anyway.
        true => sound.len(),
    };
    // Other calls for each code.
    let is_due = |number: &usize| (number + job.code.0 as usize) % stride() == 0;
    for number in (job.start..runs).filter(is_due) {
        let held = number >= sound.len();
        let nth = number % sound.len() + 1;
        let who = if held { ", held by others" } else { "" };
        let place = format!("call {nth}, {}{who}", sound[nth - 1].function);
        println!("at\t{place}");
        if held {
            retain();
        }
        let run = run::run(job.scenario, Some(fault(job, nth as u64)));
        check(job, &place, &run, &sound);
        // Nothing is freed by a new process alone: the next run starts as this one did.
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

/// The driver is started once in a process, so that its very first call fails only here.
fn first_call(job: &Job) {
    let place = "the first call of the process";
    println!("at\t{place}");
    let run = run::run(job.scenario, Some(fault(job, 1)));
    check(job, place, &run, &[]);
    run.thread_before.restore();
}

fn fault(job: &Job, nth: u64) -> Fault {
    let fault = Fault::of_any().nth(nth).with(job.code);
    if job.from_then_on {
        fault.from_then_on()
    } else {
        fault
    }
}

fn check(job: &Job, place: &str, run: &Run, sound: &[Call]) {
    println!("failed\t{}", u64::from(run.failed != 0));
    let wrong = match Failed::find(run, sound, job.code, job.from_then_on) {
        Some(failed) => rules::after_fault(run, &failed),
        // The call has this code anyway.
        None => rules::after_sound_run(run),
    };
    tell(job, place, &wrong);
}

/// The scenario as it should be; its calls.
fn sound_run(job: &Job, place: &str) -> Vec<Call> {
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
        println!(
            "violation\t{}: {}",
            job.place(place),
            wrong.replace('\n', " ")
        );
    }
}

/// Somebody else's hold on the primary context.
fn retain() {
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer is to a local.
    let answer = unsafe { cuDevicePrimaryCtxRetain(&raw mut context, 0) };
    assert!(answer.is_success(), "{answer}");
}

fn release() {
    // SAFETY: it takes back a retain that nobody else will.
    let answer = unsafe { cuDevicePrimaryCtxRelease_v2(0) };
    assert!(answer.is_success(), "{answer}");
}

/// Shows somebody a handle, with which a capture could be begun.
fn others_may_capture() {
    let context = Device::get(0).and_then(|device| Context::primary(&device));
    let event = context.and_then(|context| context.event());
    let event = event.expect("no call fails now");
    assert!(!event.as_raw().is_null());
}
