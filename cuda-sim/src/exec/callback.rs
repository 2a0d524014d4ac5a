//! Callbacks that are running, for which other threads may have to wait.

use super::{Executor, Work};
use crate::account::misuse;
use crate::thread;
use core::ffi::c_void;
use cuda_sys::{CUhostFn, CUresult, CUstream, CUstreamCallback};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;

/// The addresses of data that was freed, unless they were passed to the driver again since.
static FREED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

fn freed() -> MutexGuard<'static, BTreeSet<usize>> {
    FREED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Notes that a program passes the data of a callback to the driver: there is new data at the address.
pub(crate) fn note_given(data: *mut c_void) {
    freed().remove(&data.addr());
}

/// Notes that the data at an address was freed.
pub(crate) fn note_freed(data: usize) {
    freed().insert(data);
}

/// A function that runs on the host.
#[derive(Clone, Copy)]
pub(crate) enum HostFunction {
    /// A function of `cuLaunchHostFunc`, which does not run after a failure.
    Plain(CUhostFn),
    /// A function of `cuStreamAddCallback`, with its stream. After a failure it is called with the
    /// error.
    WithResult(CUstreamCallback, CUstream),
}

/// A callback that the host must run before the current call can continue.
pub(crate) struct Callback {
    pub(crate) operation: u64,
    pub(crate) function: HostFunction,
    pub(crate) result: CUresult,
    pub(crate) data: *mut c_void,
}

// SAFETY: the pointer is passed on and never dereferenced, and any thread may run the function.
unsafe impl Send for Callback {}

impl Callback {
    /// Returns whether the function may run. If its data was freed, this is a misuse, and the function does
    /// not run, because it would use the data.
    pub(crate) fn may_run(&self) -> bool {
        let address = self.data.addr();
        let is_freed = freed().contains(&address);
        if is_freed {
            misuse(format!(
                "a host function or a destructor would run after its data at {address:#x} was freed"
            ));
        }
        !is_freed
    }
}

impl Work {
    /// Returns whether this is a callback with the data at an address, or contains one.
    fn uses_data(&self, address: usize) -> bool {
        match self {
            Self::HostFn { data, .. } => data.addr() == address,
            Self::All(parts) => parts.iter().any(|its| its.uses_data(address)),
            Self::Conditional(its) => {
                let mut steps = its.bodies.iter().flat_map(|body| &body.steps);
                steps.any(|step| step.work.uses_data(address))
            }
            _ => false,
        }
    }
}

/// The state of the callbacks that have not ended.
pub(crate) enum Progress {
    /// There are no such callbacks.
    None,
    /// At least one will end without this thread.
    Elsewhere,
    /// Each runs on this thread, or waits for another one.
    Never,
}

impl Executor {
    /// Records that a callback runs on `thread`.
    pub(crate) fn run_on(&mut self, operation: u64, thread: ThreadId) {
        if let Some(its) = self.running.get_mut(&operation) {
            *its = thread;
        }
    }

    /// Returns whether a callback that runs on another thread, or that will run, has the data at an address. A
    /// callback may free its own data. After a failure, only callbacks run that are told of it.
    pub(crate) fn uses_data(&self, address: usize, has_failed: bool) -> bool {
        let here = thread::id();
        self.operations.iter().any(|(id, its)| {
            let will_run = match self.running.get(id) {
                Some(on) => *on != here,
                None => !has_failed || self.failing.contains(id),
            };
            will_run && its.work.uses_data(address)
        })
    }

    /// Records that a callback has returned. Work after it may now run.
    pub(crate) fn end_callback(&mut self, operation: u64) {
        if let Some(order) = &mut self.order {
            order.end_host_function(operation);
        }
        // There is no such operation if its context was destroyed meanwhile.
        self.finish(operation);
        // Blocked threads evaluate their conditions again.
        self.blocked.clear();
    }

    /// Returns the callbacks that must be called after a failure. No other work runs after that.
    pub(crate) fn take_failed(&mut self, result: CUresult) -> Vec<Callback> {
        let mut failed = Vec::new();
        for id in std::mem::take(&mut self.failing) {
            let work = self.operations.get(&id).map(|its| &its.work);
            let Some(Work::HostFn { function, data }) = work else {
                continue;
            };
            let (function, data) = (*function, *data);
            self.running.insert(id, thread::id());
            failed.push(Callback { operation: id, function, result, data });
        }
        failed
    }

    pub(crate) fn in_callbacks(&self) -> Progress {
        let here = thread::id();
        let mut progress = Progress::None;
        for on in self.running.values() {
            if *on != here && !self.blocked.contains(on) {
                return Progress::Elsewhere;
            }
            progress = Progress::Never;
        }
        progress
    }

    /// Sets whether this thread waits for a callback to end.
    pub(crate) fn set_blocked(&mut self, blocked: bool) {
        let here = thread::id();
        self.blocked.retain(|its| *its != here);
        if blocked {
            self.blocked.push(here);
        }
    }
}
