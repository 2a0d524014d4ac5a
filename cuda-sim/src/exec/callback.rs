//! Callbacks under way, which other threads may have to wait for.

use super::{Executor, Work};
use crate::thread;
use core::ffi::c_void;
use cuda_sys::{CUhostFn, CUresult, CUstream, CUstreamCallback};
use std::thread::ThreadId;

/// What the host is to run.
#[derive(Clone, Copy)]
pub(crate) enum HostFunction {
    /// Of `cuLaunchHostFunc`: not run if work fails.
    Plain(CUhostFn),
    /// Of `cuStreamAddCallback`: then called with the error. With the stream that it was given.
    WithResult(CUstreamCallback, CUstream),
}

/// Something that the host is to run before the call can go on.
pub(crate) struct Callback {
    pub(crate) operation: u64,
    pub(crate) function: HostFunction,
    pub(crate) result: CUresult,
    pub(crate) data: *mut c_void,
}

// SAFETY: the pointer is passed on, never followed; any thread may run the function.
unsafe impl Send for Callback {}

/// What the callbacks that have not ended are doing.
pub(crate) enum Progress {
    /// There are none.
    None,
    /// One will end without this thread.
    Elsewhere,
    /// Each is this thread's own, or waits for another.
    Never,
}

impl Executor {
    /// A callback runs on that thread.
    pub(crate) fn run_on(&mut self, operation: u64, thread: ThreadId) {
        if let Some(its) = self.running.get_mut(&operation) {
            *its = thread;
        }
    }

    /// A callback has returned: what is behind it may run.
    pub(crate) fn end_callback(&mut self, operation: u64) {
        // Nothing has it if its context went meanwhile.
        self.finish(operation);
        // They look again.
        self.blocked.clear();
    }

    /// After a failure nothing more is done, and those callbacks are called that want to know.
    pub(crate) fn take_failed(&mut self, result: CUresult) -> Vec<Callback> {
        let mut failed = Vec::new();
        for id in std::mem::take(&mut self.failing) {
            let work = self.operations.get(&id).map(|its| &its.work);
            let Some(Work::HostFn { function, data }) = work else {
                continue;
            };
            let (function, data) = (*function, *data);
            self.running.insert(id, thread::id());
            failed.push(Callback {
                operation: id,
                function,
                result,
                data,
            });
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

    /// Whether this thread waits for the end of a callback.
    pub(crate) fn set_blocked(&mut self, blocked: bool) {
        let here = thread::id();
        if blocked {
            self.blocked.insert(here);
        } else {
            self.blocked.remove(&here);
        }
    }
}
