//! The rules that must hold after a run with failing calls.

use crate::by_design;
use crate::run::{End, Of, Run};
use crate::trace::Span;
use cuda_safe::{CUresult, Error, Invalid};
use cuda_sim::Call;

/// The first call that was made to fail.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    /// Its index in the calls of the run.
    pub(crate) at: usize,
    pub(crate) function: &'static str,
    pub(crate) code: CUresult,
    /// Whether all later calls fail too.
    pub(crate) from_then_on: bool,
}

impl Failed {
    /// Returns the first call whose result differs from the run without a fault, or `None` if the
    /// fault made no difference.
    pub(crate) fn find(run: &Run, sound: &[Call], code: CUresult, all: bool) -> Option<Self> {
        let is_same = |at: usize, call: &Call| {
            sound.get(at).is_some_and(|it| it.function == call.function && it.result == call.result)
        };
        let differs = |(at, call): &(usize, &Call)| !is_same(*at, call);
        let (at, call) = run.calls.iter().enumerate().find(differs)?;
        Some(Self { at, function: call.function, code, from_then_on: all })
    }
}

/// Returns the violations in a run without a fault.
pub(crate) fn after_sound_run(run: &Run) -> Vec<String> {
    let mut wrong = of_every_run(run);
    wrong.extend(misuses(run, None));
    if let End::Failed(error) = &run.end {
        wrong.push(format!("fails without a fault: {error}"));
    }
    if run.leaked != 0 {
        wrong.push(format!("{} leaked without a fault", run.leaked));
    }
    if !run.heard.is_empty() {
        wrong.push(format!("reported without a fault: {:?}", run.heard));
    }
    let (what, more) = run.after.more_than(&run.before);
    if more != 0 {
        wrong.push(format!("left behind: {what}"));
    }
    if run.thread != run.thread_before {
        wrong.push(format!("the thread is left with {:?}", run.thread));
    }
    if run.trace.depths().iter().any(|depth| *depth != 0) {
        wrong.push("a thread ends with a context on its stack".to_owned());
    }
    wrong
}

/// Returns the violations in a run with a failing call.
pub(crate) fn after_fault(run: &Run, failed: &Failed) -> Vec<String> {
    let mut wrong = of_every_run(run);
    wrong.extend(misuses(run, Some(failed)));
    wrong.extend(error(run, failed));
    wrong.extend(reports(run, failed));
    wrong.extend(leaks(run, failed));
    wrong.extend(threads(run, failed));
    wrong
}

fn of_every_run(run: &Run) -> Vec<String> {
    let mut wrong = Vec::new();
    if let End::Panicked(words) = &run.end {
        wrong.push(format!("a panic: {words}"));
    }
    if let Err(error) = &run.drain {
        wrong.push(format!("later calls fail: {error}"));
    }
    let (what, more) = run.before.more_than(&run.after);
    if more != 0 {
        wrong.push(format!("destroyed an object of other code: {what}"));
    }
    wrong
}

/// Checks that the run made no call that the driver accepts although it is a misuse.
fn misuses(run: &Run, failed: Option<&Failed>) -> Vec<String> {
    let not_by_design = |what: &&String| {
        !failed.is_some_and(|it| {
            by_design::is_consequence(what, it.function, it.code, it.from_then_on)
        })
    };
    let wrong = run.misuses.iter().filter(not_by_design);
    wrong.map(|what| format!("a misuse: {what}")).collect()
}

/// Checks that the error names the function that failed. A missing error is a violation unless it
/// is missing by design.
fn error(run: &Run, failed: &Failed) -> Option<String> {
    let Failed { function, code, .. } = *failed;
    let span = run.trace.span(failed.at);
    match &run.end {
        End::Panicked(_) => None,
        End::Failed(error) if names(error, run, failed) => None,
        End::Failed(error) => Some(format!("the error is: {error}")),
        End::Done => {
            let again = run.calls[failed.at + 1..]
                .iter()
                .any(|call| call.function == function && call.result != code);
            let heard = run.heard_of(Of::Stack) != 0;
            by_design::why_unreported(function, code, span, again, heard)
                .is_none()
                .then(|| "there is no error".to_owned())
        }
    }
}

fn names(error: &Error, run: &Run, failed: &Failed) -> bool {
    if let Some(error) = error.driver_error() {
        if failed.from_then_on {
            let its = |call: &Call| call.function == error.call && call.result == error.code;
            return error.code == failed.code && run.calls[failed.at..].iter().any(its);
        }
        return error.call == failed.function && error.code == failed.code;
    }
    match error {
        // The outer guard detects a context that could not be popped.
        Error::Invalid(invalid) => {
            let ends = by_design::is_end_of_guard(failed.function);
            match **invalid {
                Invalid::ContextStack { .. } => ends,
                Invalid::GuardOrder { .. } => ends || failed.from_then_on,
                _ => false,
            }
        }
        _ => false,
    }
}

/// Checks that the errors reported to the report hook name the function.
fn reports(run: &Run, failed: &Failed) -> Vec<String> {
    run.heard
        .iter()
        .filter(|heard| !names(&heard.error, run, failed))
        .map(|heard| format!("the report is: {}", heard.error))
        .collect()
}

/// Checks that every object left behind is counted, and that every counted leak has a reason.
fn leaks(run: &Run, failed: &Failed) -> Vec<String> {
    let mut wrong = Vec::new();
    let span = run.trace.span(failed.at);
    let (what, more) = run.after.more_than(&run.before);
    let taken_as_gone =
        by_design::is_taken_as_gone(failed.function, failed.code, Some(Span::Drops));
    let allowed = run.leaked
        + u64::from(taken_as_gone)
        + told_of_stuck(run, failed)
        + kept_by_views(run, failed)
        + stranded(run, failed).1;
    if more > allowed {
        wrong.push(format!("left behind: {what}; counted: {}", run.leaked));
    }
    // One failure causes one leak, but each of several nested guards may leave a context on the
    // stack.
    let one = u64::from(by_design::may_leak(failed.function, span));
    let one = one.max(stranded(run, failed).0);
    // A pool stays alive with its memory, memory with its mapping or sparse array, and addresses with
    // their mappings.
    let kept = run.after.shared().saturating_sub(run.before.shared()) as u64;
    let one = if one == 0 { 0 } else { one + kept };
    if !failed.from_then_on && run.leaked > one.max(stuck(run)) {
        wrong.push(format!("{} counted as leaked", run.leaked));
    }
    wrong
}

/// Checks that the stacks and capture modes of the threads are unchanged, unless the restoring call
/// failed.
fn threads(run: &Run, failed: &Failed) -> Vec<String> {
    let mut wrong = Vec::new();
    let (before, after) = (run.thread_before, run.thread);
    if after.depth < before.depth {
        wrong.push("a context of other code was popped".to_owned());
    }
    let stuck = stuck(run);
    let may_stick = failed.from_then_on || by_design::is_end_of_guard(failed.function);
    if stuck > run.leaked + told_of_stuck(run, failed) || (stuck != 0 && !may_stick) {
        wrong.push(format!("{stuck} contexts too many on stacks, {} of them counted", run.leaked));
    }
    if after.current_is_dead {
        wrong.push("a destroyed context is left on the stack".to_owned());
    }
    let may_stay = failed.from_then_on || failed.function == "cuThreadExchangeStreamCaptureMode";
    if after.mode != before.mode && !may_stay {
        wrong.push("the capture mode of the thread was not restored".to_owned());
    }
    wrong
}

/// Returns how many green contexts stay alive because their view is on a stack. Each keeps its
/// primary context alive.
fn kept_by_views(run: &Run, failed: &Failed) -> u64 {
    if !failed.from_then_on && !by_design::is_end_of_guard(failed.function) {
        return 0;
    }
    let kept = run.after.green_contexts() - run.before.green_contexts();
    kept as u64
}

/// Returns how often memory was stranded because the end of the work that uses it is unknown, and
/// how many objects stay alive with it.
fn stranded(run: &Run, failed: &Failed) -> (u64, u64) {
    let span = run.trace.span(failed.at);
    if !failed.from_then_on && !by_design::may_strand(failed.function, span) {
        return (0, 0);
    }
    run.stranded()
}

/// Returns how many contexts of other code were left on the stack with an error that reports it.
/// Their owner must then keep them alive.
fn told_of_stuck(run: &Run, failed: &Failed) -> u64 {
    let is_reported = match &run.end {
        End::Failed(error) => names(error, run, failed),
        _ => false,
    };
    let may_stick = failed.from_then_on || by_design::is_end_of_guard(failed.function);
    u64::from(is_reported && may_stick).min(stuck(run))
}

/// Returns how many contexts were left on the stacks of all threads.
fn stuck(run: &Run) -> u64 {
    let here = run.thread.depth.saturating_sub(run.thread_before.depth);
    (here + run.trace.depths().iter().sum::<usize>()) as u64
}
