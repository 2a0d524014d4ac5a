//! The thread of the driver, if the profile has one: it runs work that no call runs.

use super::{device_step_if, run};
use crate::exec::Callback;
use crate::state::driver_thread::GIVEN;
use crate::state::{self, World, lock};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

/// The time without calls after which the thread runs work.
const PAUSE: Duration = Duration::from_millis(10);

/// Number of calls so far.
static CALLS: AtomicU64 = AtomicU64::new(0);
/// Whether the thread waits for work, without a time limit. Changes while the driver's lock is held.
static IS_IDLE: AtomicBool = AtomicBool::new(false);

/// What the thread does next.
enum Next {
    /// Runs host functions that were handed to it, or that must hear of a failure.
    Run(Vec<Callback>),
    /// Runs work until a call is made. The number is that of the calls so far.
    Work(u64),
}

/// Starts the thread. If the system cannot start one, work runs only inside of calls.
pub(crate) fn start() {
    let thread = std::thread::Builder::new().name("cuda-sim".to_owned());
    // The thread is never joined: it ends with the process.
    let started = thread.spawn(|| {
        loop {
            match next() {
                Next::Run(callbacks) => callbacks.into_iter().for_each(run),
                Next::Work(calls) => {
                    let may_go_on = |world: &World| {
                        world.runs.driver_thread.is_some() && CALLS.load(Ordering::Relaxed) == calls
                    };
                    while device_step_if(may_go_on) {}
                }
            }
        }
    });
    if let Ok(started) = started {
        state::with(|world| {
            world.runs.driver_thread = Some(started.thread().id());
            GIVEN.notify_one();
        });
    }
}

/// Notes a call, which may have enqueued work.
pub(super) fn note_call(world: &World) {
    if world.runs.driver_thread.is_some() {
        CALLS.fetch_add(1, Ordering::Relaxed);
        if !world.runs.executor.is_empty() && IS_IDLE.load(Ordering::Relaxed) {
            GIVEN.notify_one();
        }
    }
}

/// Waits until there is something to do.
fn next() -> Next {
    let mut locked = lock();
    loop {
        let world = locked.as_mut().filter(|world| world.runs.driver_thread.is_some());
        let Some(world) = world else {
            locked = wait(locked);
            continue;
        };
        // One at a time, so that a call that waits can take back the others.
        if let Some(callback) = world.runs.handed.pop_front() {
            return Next::Run(vec![callback]);
        }
        let failed = world.failed_callbacks();
        if !failed.is_empty() {
            return Next::Run(failed);
        }
        if world.runs.fatal.is_some() || world.runs.executor.is_empty() {
            locked = wait(locked);
            continue;
        }
        let calls = CALLS.load(Ordering::Relaxed);
        let waited = GIVEN.wait_timeout_while(locked, PAUSE, |locked| {
            locked.as_ref().is_none_or(|world| world.runs.handed.is_empty())
        });
        let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
        if timeout.timed_out() && CALLS.load(Ordering::Relaxed) == calls {
            return Next::Work(calls);
        }
        locked = again;
    }
}

fn wait(locked: MutexGuard<'_, Option<World>>) -> MutexGuard<'_, Option<World>> {
    IS_IDLE.store(true, Ordering::Relaxed);
    let locked = GIVEN.wait(locked).unwrap_or_else(PoisonError::into_inner);
    IS_IDLE.store(false, Ordering::Relaxed);
    locked
}
