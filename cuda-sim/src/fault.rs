//! Faults on demand.
//!
//! ```no_run
//! use cuda_sim::fault::{Fault, Scope};
//! use cuda_sys::CUresult;
//!
//! // The second allocation of this thread fails, once.
//! let faults = Fault::of_function("cuMemAllocAsync")
//!     .nth(2)
//!     .with(CUresult::CUDA_ERROR_OUT_OF_MEMORY)
//!     .inject(Scope::Thread);
//! // ... what is tested ...
//! assert_eq!(faults.hits(), 1);
//! ```
//!
//! A fault answers in the place of the function, which then has no effect. Faults end with the
//! guard that [`Fault::inject`] gives.

use cuda_sys::CUresult;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

/// Which calls fail, and how.
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing before it is injected"]
pub struct Fault {
    function: Option<&'static str>,
    nth: u64,
    times: u64,
    code: CUresult,
}

/// Whose calls a fault sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// This thread's: other tests of the process go on undisturbed.
    Thread,
    /// All threads'.
    Process,
}

impl Fault {
    /// Of any function.
    pub fn of_any() -> Self {
        Self {
            function: None,
            nth: 1,
            times: 1,
            code: CUresult::CUDA_ERROR_UNKNOWN,
        }
    }

    /// Of one, by the name of its symbol (`cuMemAlloc_v2`).
    pub fn of_function(symbol: &'static str) -> Self {
        Self {
            function: Some(symbol),
            ..Self::of_any()
        }
    }

    /// Beginning with the n-th call from now on, counted from 1.
    pub fn nth(self, nth: u64) -> Self {
        Self { nth, ..self }
    }

    /// Not only once: every call from the n-th on.
    pub fn from_then_on(self) -> Self {
        Self {
            times: u64::MAX,
            ..self
        }
    }

    /// With this code.
    pub fn with(self, code: CUresult) -> Self {
        Self { code, ..self }
    }

    /// From now on, until the guard is dropped.
    pub fn inject(self, scope: Scope) -> Injected {
        let thread = (scope == Scope::Thread).then(|| std::thread::current().id());
        let active = Arc::new(Active {
            fault: self,
            thread,
            seen: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        });
        lock().push(Arc::clone(&active));
        Injected { active }
    }
}

#[derive(Debug)]
struct Active {
    fault: Fault,
    thread: Option<ThreadId>,
    seen: AtomicU64,
    hits: AtomicU64,
}

static ACTIVE: Mutex<Vec<Arc<Active>>> = Mutex::new(Vec::new());

fn lock() -> std::sync::MutexGuard<'static, Vec<Arc<Active>>> {
    ACTIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A fault that is in force; dropped, it ends.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct Injected {
    active: Arc<Active>,
}

impl Injected {
    /// How many calls have failed by it.
    pub fn hits(&self) -> u64 {
        self.active.hits.load(Ordering::Relaxed)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        lock().retain(|active| !Arc::ptr_eq(active, &self.active));
    }
}

/// The code that a call is to answer instead of doing something.
pub(crate) fn hit(function: &str) -> Option<CUresult> {
    let mut code = None;
    let here = std::thread::current().id();
    for active in lock().iter() {
        let fault = &active.fault;
        let concerned = fault.function.is_none_or(|name| name == function)
            && active.thread.is_none_or(|thread| thread == here);
        if !concerned {
            continue;
        }
        let number = active.seen.fetch_add(1, Ordering::Relaxed) + 1;
        if number >= fault.nth && number - fault.nth < fault.times {
            active.hits.fetch_add(1, Ordering::Relaxed);
            code = Some(fault.code);
        }
    }
    code
}
