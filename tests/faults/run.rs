//! One run of a scenario, and its observed effects.

use crate::Scenario;
use crate::by_design;
use crate::state::{Objects, Thread};
use crate::trace::Trace;
use cuda_safe::sys::{CUstreamCaptureMode, cuThreadExchangeStreamCaptureMode};
use cuda_safe::{Context, Device, DeviceBuffer, Error, Report};
use cuda_sim::Call;
use cuda_sim::fault::{Fault, Scope};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// The reports that the report hook received since the run began.
static HEARD: Mutex<Vec<Heard>> = Mutex::new(Vec::new());

/// The kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Release,
    /// Memory that work may still use, and how many uncounted objects stay alive with it.
    Stranding(u64),
    Stack,
}

#[derive(Clone, Debug)]
pub(crate) struct Heard {
    pub(crate) of: Of,
    pub(crate) error: Error,
}

pub(crate) fn listen() {
    cuda_safe::set_report_hook(|report| {
        let (of, error) = match report {
            Report::Leaked { what, error, .. } => match by_design::kept_with(what) {
                Some(objects) => (Of::Stranding(objects), error),
                None => (Of::Release, error),
            },
            Report::ContextStack { error, .. } => (Of::Stack, error),
            _ => return,
        };
        let error = error.clone();
        HEARD.lock().unwrap_or_else(PoisonError::into_inner).push(Heard { of, error });
    });
}

/// How a scenario ended.
#[derive(Debug)]
pub(crate) enum End {
    Done,
    Failed(Error),
    Panicked(String),
}

/// A run, and the state before and after it.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) end: End,
    pub(crate) trace: Trace,
    /// The calls, in the order in which they returned.
    pub(crate) calls: Vec<Call>,
    /// The number of calls that were made to fail.
    pub(crate) failed: u64,
    pub(crate) heard: Vec<Heard>,
    pub(crate) leaked: u64,
    pub(crate) misuses: Vec<String>,
    pub(crate) thread_before: Thread,
    pub(crate) thread: Thread,
    pub(crate) before: Objects,
    pub(crate) after: Objects,
    /// Why deferred releases could not be completed after the run.
    pub(crate) drain: Result<(), Error>,
}

impl Run {
    /// Returns how many reports of a kind were received.
    pub(crate) fn heard_of(&self, of: Of) -> u64 {
        self.heard.iter().filter(|heard| heard.of == of).count() as u64
    }

    /// Returns how often memory was stranded, and how many uncounted objects stay alive with it.
    pub(crate) fn stranded(&self) -> (u64, u64) {
        let kept = self.heard.iter().filter_map(|heard| match heard.of {
            Of::Stranding(objects) => Some(objects),
            Of::Release | Of::Stack => None,
        });
        kept.fold((0, 0), |(times, all), objects| (times + 1, all + objects))
    }
}

/// Runs a scenario with a fault in force until the last object is dropped, and then records the
/// state.
pub(crate) fn run(scenario: &Scenario, fault: Option<Fault>) -> Run {
    let before = Objects::now();
    let leaked = cuda_safe::leaked();
    let misuses = cuda_sim::misuses().len();
    let thread_before = Thread::now();
    HEARD.lock().unwrap_or_else(PoisonError::into_inner).clear();
    cuda_sim::clear_calls();
    // The calls depend on the order of the work, which must be that of the run without a fault.
    cuda_sim::restart_seed();

    let mut trace = Trace::default();
    // The fault applies to all threads. Those of the scenario run one at a time.
    let fault = fault.map(|fault| fault.inject(Scope::Process));
    let end = match catch_unwind(AssertUnwindSafe(|| (scenario.run)(&mut trace))) {
        Ok(Ok(())) => End::Done,
        Ok(Err(error)) => End::Failed(error),
        Err(panic) => End::Panicked(words(&*panic)),
    };
    let failed = fault.as_ref().map_or(0, |fault| fault.hits());
    drop(fault);
    let calls = cuda_sim::calls();
    crate::scenarios::clean_up();
    let thread = Thread::now();
    let drain = drain();
    // A leaked object keeps its context alive, which keeps its cached events.
    cuda_safe::event::destroy_cached();
    Run {
        end,
        trace,
        calls,
        failed,
        heard: HEARD.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        leaked: cuda_safe::leaked() - leaked,
        misuses: cuda_sim::misuses().split_off(misuses),
        thread_before,
        thread,
        before,
        after: Objects::now(),
        drain,
    }
}

/// Completes the deferred releases, as the next create or synchronize call does.
fn drain() -> Result<(), Error> {
    // A capture that failed to end is still open, and the wait is allowed only in the relaxed mode.
    let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // SAFETY: the pointer refers to a local variable.
    let _ = unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    let done = Device::get(0).and_then(|device| Context::primary(&device)).and_then(|context| {
        let stream = context.stream()?;
        // The free waits for all work. (A wait for the context would be refused because of that
        // capture.)
        drop(DeviceBuffer::<u8>::zeroed_sync(&stream, 1)?);
        stream.synchronize()
    });
    // SAFETY: as above.
    let _ = unsafe { cuThreadExchangeStreamCaptureMode(&raw mut mode) };
    done
}

fn words(panic: &dyn std::any::Any) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without text")
        .to_owned()
}
