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

use crate::{call, thread, world};
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
    ///
    /// # Panics
    /// The code is `CUDA_SUCCESS`: whoever calls would believe that the function did something,
    /// and use what it did not write.
    pub fn with(self, code: CUresult) -> Self {
        assert!(!code.is_success(), "a fault answers with an error");
        Self { code, ..self }
    }

    /// From now on, until the guard is dropped.
    pub fn inject(self, scope: Scope) -> Injected {
        let thread = (scope == Scope::Thread).then(thread::id);
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

/// Bytes that allocations of a device may have together: the last of what is in force.
static MEMORY_LIMITS: Mutex<Vec<Arc<u64>>> = Mutex::new(Vec::new());
/// How many guards want it.
static STRICT: AtomicU64 = AtomicU64::new(0);

fn memory_limits() -> std::sync::MutexGuard<'static, Vec<Arc<u64>>> {
    MEMORY_LIMITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory of each device ends there, until the guard is dropped; the limit before it is in force again
/// then. For the whole process: a device has one memory, whoever asks. (One thread's allocations fail
/// by [`Fault::of_function`].)
pub fn limit_memory(bytes: u64) -> Limit {
    let bytes = Arc::new(bytes);
    memory_limits().push(Arc::clone(&bytes));
    Limit {
        memory: Some(bytes),
    }
}

/// A stricter driver than 580, until the guard is dropped: calls that name a stream, an event or
/// memory answer `CUDA_ERROR_INVALID_CONTEXT` on a thread without a current context. For the whole
/// process, as a driver is.
pub fn strict_contexts() -> Limit {
    STRICT.fetch_add(1, Ordering::Relaxed);
    Limit { memory: None }
}

/// The device meets an illegal address now: as on a GPU, the process cannot use it any more.
pub fn poison() {
    if call::refuse_in_kernel("cuda_sim::fault::poison") {
        return;
    }
    world::with(|world| world.fatal = Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
}

/// [`limit_memory`] or [`strict_contexts`] in force; dropped, it ends.
#[derive(Debug)]
#[must_use = "the limit ends when this is dropped"]
pub struct Limit {
    /// None: of strict contexts.
    memory: Option<Arc<u64>>,
}

impl Drop for Limit {
    fn drop(&mut self) {
        match &self.memory {
            Some(its) => memory_limits().retain(|limit| !Arc::ptr_eq(limit, its)),
            None => {
                STRICT.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

pub(crate) fn memory_limit(all: u64) -> u64 {
    memory_limits().last().map_or(all, |limit| all.min(**limit))
}

/// The code of a strict driver for a call on a thread without a context.
pub(crate) fn strictness(function: &str) -> Option<CUresult> {
    const CONCERNED: [&str; 6] = [
        "cuEvent", "cuFunc", "cuLaunch", "cuMem", "cuModule", "cuStream",
    ];
    let refused = STRICT.load(Ordering::Relaxed) != 0
        && thread::current().is_none()
        && CONCERNED.iter().any(|prefix| function.starts_with(prefix));
    refused.then_some(CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

/// The code that a call is to answer instead of doing something.
pub(crate) fn hit(function: &str) -> Option<CUresult> {
    let mut code = None;
    let here = thread::id();
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
