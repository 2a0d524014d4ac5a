//! Fault injection.
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
//! // ... the code under test ...
//! assert_eq!(faults.hits(), 1);
//! ```
//!
//! A fault returns its code in place of the function, which then has no effect. A fault is active until
//! the guard that [`Fault::inject`] returned is dropped.

use crate::account::refuse_in_kernel;
use crate::{state, thread};
use cuda_sys::{CUresult, Function};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

/// A fault: the calls that fail, and the code that they return. Activate it with [`Fault::inject`].
#[derive(Clone, Debug)]
#[must_use = "a fault does nothing before it is injected"]
pub struct Fault {
    calls: Calls,
    nth: u64,
    times: u64,
    code: CUresult,
}

/// The functions whose calls a fault counts.
#[derive(Clone, Copy, Debug)]
enum Calls {
    Any,
    /// The function with this symbol.
    Of(Function),
    /// All versions of the function with this name, with their variants for the per-thread default stream.
    OfVersions(&'static str),
}

impl Calls {
    /// Returns `None` if no function has this name or symbol.
    fn named(name: &str) -> Option<Self> {
        let function = Function::find(name);
        let is_version =
            |function: &Function| function.symbol().starts_with(name) && function.base() == name;
        // The first version of a function may be gone, and then no symbol is its name.
        let version = match function {
            Some(function) => Some(function).filter(is_version),
            None => Function::all().find(is_version),
        };
        let versions = version.map(|function| Self::OfVersions(function.base()));
        versions.or_else(|| function.map(Self::Of))
    }

    fn contain(self, symbol: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Of(function) => function.symbol() == symbol,
            Self::OfVersions(base) => {
                let is_one = |function: Function| function.base() == base;
                symbol.starts_with(base) && Function::find(symbol).is_some_and(is_one)
            }
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Any => "*",
            Self::Of(function) => function.symbol(),
            Self::OfVersions(base) => base,
        })
    }
}

/// The threads to whose calls a fault applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The calling thread. Other tests of the process are not affected.
    Thread,
    /// All threads of the process.
    Process,
}

impl Fault {
    /// Returns a fault of any function.
    pub fn of_any() -> Self {
        Self { calls: Calls::Any, nth: 1, times: 1, code: CUresult::CUDA_ERROR_UNKNOWN }
    }

    /// Returns a fault of a function. A name without a suffix means all versions of the function: the calls of
    /// `cuMemAlloc` in C are calls of `cuMemAlloc_v2`. A symbol with a suffix means this symbol.
    ///
    /// # Panics
    /// No function of the driver has this name: the fault would never make a call fail. See
    /// [`try_of_function`](Self::try_of_function).
    pub fn of_function(name: &str) -> Self {
        match Self::try_of_function(name) {
            Some(fault) => fault,
            None => panic!("the driver has no function {name}"),
        }
    }

    /// Does the same as [`of_function`](Self::of_function), but returns `None` if no function of the driver has
    /// this name.
    pub fn try_of_function(name: &str) -> Option<Self> {
        let calls = Calls::named(name)?;
        Some(Self { calls, ..Self::of_any() })
    }

    /// Sets the first call that fails: the n-th from injection on, counted from 1.
    pub fn nth(self, nth: u64) -> Self {
        Self { nth, ..self }
    }

    /// Makes every call fail from the n-th on, instead of only that one.
    pub fn from_then_on(self) -> Self {
        Self { times: u64::MAX, ..self }
    }

    /// Sets the code that failing calls return.
    ///
    /// # Panics
    /// The code is `CUDA_SUCCESS`: the caller would believe that the function succeeded, and read
    /// outputs that were not written.
    pub fn with(self, code: CUresult) -> Self {
        assert!(!code.is_success(), "the code of a fault must be an error");
        Self { code, ..self }
    }

    /// Activates the fault until the returned guard is dropped.
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

/// Parses a fault: the [name](Fault::of_function) of a function or `*` for any function, optionally `:` and the
/// number of the call that fails and `+` to make later calls fail too, optionally `=` and the code by number
/// or name.
///
/// ```
/// use cuda_sim::fault::Fault;
///
/// let fault: Fault = "cuMemAlloc:3=CUDA_ERROR_OUT_OF_MEMORY".parse()?;
/// let always: Fault = "cuStreamCreate:1+=2".parse()?;
/// # let _ = (fault, always);
/// # Ok::<_, cuda_sim::fault::InvalidFault>(())
/// ```
impl FromStr for Fault {
    type Err = InvalidFault;

    fn from_str(text: &str) -> Result<Self, InvalidFault> {
        let invalid = || InvalidFault(text.to_owned());
        let (call, code) = match text.split_once('=') {
            Some((call, code)) => (call, Some(code)),
            None => (text, None),
        };
        let (symbol, number) = match call.split_once(':') {
            Some((symbol, number)) => (symbol, number),
            None => (call, "1"),
        };
        let mut fault = match symbol {
            "*" => Self::of_any(),
            name => Self::try_of_function(name).ok_or_else(invalid)?,
        };
        let (number, is_first_of_all) = match number.strip_suffix('+') {
            Some(number) => (number, true),
            None => (number, false),
        };
        let number = number.parse().ok().filter(|number| *number != 0);
        fault = fault.nth(number.ok_or_else(invalid)?);
        if is_first_of_all {
            fault = fault.from_then_on();
        }
        let Some(code) = code else { return Ok(fault) };
        // 999 is the highest code.
        let mut codes = (1..=CUresult::CUDA_ERROR_UNKNOWN.0).map(CUresult);
        let is_it = |its: &CUresult| {
            its.name().is_some_and(|name| name == code || code.parse() == Ok(its.0))
        };
        Ok(fault.with(codes.find(is_it).ok_or_else(invalid)?))
    }
}

/// Prints the fault in the form that is parsed.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from_then_on = if self.times == 1 { "" } else { "+" };
        let Self { calls, nth, code, .. } = self;
        write!(f, "{calls}:{nth}{from_then_on}={}", code.0)
    }
}

/// The error of parsing a [`Fault`].
#[derive(Clone, PartialEq, Eq)]
pub struct InvalidFault(String);

impl fmt::Display for InvalidFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no fault {}: a fault is the name of a driver function or *, optionally : and the number of \
             the call that fails (with + for all calls from there on), optionally = and an error code by \
             number or name, as in cuMemAlloc:3=CUDA_ERROR_OUT_OF_MEMORY",
            self.0
        )
    }
}

cuda_sys::debug_text! { struct InvalidFault(_) }

impl std::error::Error for InvalidFault {}

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

/// Returns the active faults that have not made a call fail, in the form that [`Fault`] parses. Such a fault
/// tests nothing.
pub fn unfired() -> Vec<String> {
    let active = lock();
    let unfired = active.iter().filter(|its| its.hits.load(Ordering::Relaxed) == 0);
    unfired.map(|its| its.fault.to_string()).collect()
}

/// An active fault. Dropping it deactivates the fault. If it has made no call fail, this is reported on stderr.
#[derive(Debug)]
#[must_use = "the fault ends when this is dropped"]
pub struct Injected {
    active: Arc<Active>,
}

impl Injected {
    /// Returns the number of calls that this fault has made fail.
    pub fn hits(&self) -> u64 {
        self.active.hits.load(Ordering::Relaxed)
    }
}

impl Drop for Injected {
    fn drop(&mut self) {
        lock().retain(|active| !Arc::ptr_eq(active, &self.active));
        if self.hits() == 0 && !std::thread::panicking() {
            eprintln!("cuda-sim: no call was made that the fault {} makes fail", self.active.fault);
        }
    }
}

/// Active limits of the bytes that the allocations of a device may have in total. The last one applies.
static MEMORY_LIMITS: Mutex<Vec<Arc<u64>>> = Mutex::new(Vec::new());
/// Number of active guards of [`strict_contexts`].
static STRICT: AtomicU64 = AtomicU64::new(0);

fn memory_limits() -> std::sync::MutexGuard<'static, Vec<Arc<u64>>> {
    MEMORY_LIMITS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Limits the memory of each device until the guard is dropped; then the previous limit applies again.
/// The limit applies to the whole process, since all threads share a device's memory. To make
/// allocations of one thread fail, use [`Fault::of_function`].
pub fn limit_memory(bytes: u64) -> Limit {
    let bytes = Arc::new(bytes);
    memory_limits().push(Arc::clone(&bytes));
    Limit { memory: Some(bytes) }
}

/// Simulates a driver that is stricter than version 580 until the guard is dropped: on a thread without
/// a current context, calls that name a stream, an event or memory return `CUDA_ERROR_INVALID_CONTEXT`.
/// This applies to the whole process.
pub fn strict_contexts() -> Limit {
    STRICT.fetch_add(1, Ordering::Relaxed);
    Limit { memory: None }
}

/// Simulates an access to an illegal address on the device. As with a GPU, the process cannot use the
/// device afterwards.
pub fn poison() {
    if refuse_in_kernel("cuda_sim::fault::poison") {
        return;
    }
    state::with(|world| world.runs.fatal = Some(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS));
}

/// Guard of [`limit_memory`] or [`strict_contexts`]. Dropping it ends the limit.
#[derive(Debug)]
#[must_use = "the limit ends when this is dropped"]
pub struct Limit {
    /// `None` for [`strict_contexts`].
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

/// Returns the code that a strict driver returns for a call on a thread without a context.
pub(crate) fn strictness(function: &str) -> Option<CUresult> {
    const CONCERNED: [&str; 6] = ["cuEvent", "cuFunc", "cuLaunch", "cuMem", "cuModule", "cuStream"];
    let refused = STRICT.load(Ordering::Relaxed) != 0
        && thread::current().is_none()
        && CONCERNED.iter().any(|prefix| function.starts_with(prefix));
    refused.then_some(CUresult::CUDA_ERROR_INVALID_CONTEXT)
}

/// Returns the code that an active fault makes this call return.
pub(crate) fn hit(function: &str) -> Option<CUresult> {
    let mut code = None;
    let here = thread::id();
    for active in lock().iter() {
        let fault = &active.fault;
        let concerned =
            active.thread.is_none_or(|thread| thread == here) && fault.calls.contain(function);
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
