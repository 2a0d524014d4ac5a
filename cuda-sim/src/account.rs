//! Records of calls and misuses, and the counts of live objects.

mod argument;

pub(crate) use argument::arguments;
pub use argument::{Argument, record_arguments};

use crate::thread;
use cuda_sys::CUresult;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// A driver call. [`calls`] returns them in the order in which they returned.
#[derive(Clone, Debug)]
pub struct Call {
    /// The symbol of the function.
    pub function: &'static str,
    /// The calling thread.
    pub thread: ThreadId,
    /// The code that the call returned.
    pub result: CUresult,
    /// The arguments, if [`record_arguments`] is on. Output parameters are not recorded.
    pub arguments: Vec<Argument>,
}

impl Call {
    /// Returns the [values](Argument::values) of an argument, or `None` if it was not recorded or has
    /// another type.
    pub fn values<T: 'static>(&self, argument: &str) -> Option<&[T]> {
        let mut all = self.arguments.iter();
        all.find(|its| its.name == argument)?.values()
    }
}

static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
static MISUSES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static NOT_SIMULATED: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
static COUNTS: Mutex<BTreeMap<&'static str, [u64; 2]>> = Mutex::new(BTreeMap::new());
static UNREGISTERED: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SEED: AtomicU64 = AtomicU64::new(0);

/// Stores the seed, which the report of a misuse names.
pub(crate) fn note_seed(seed: u64) -> u64 {
    SEED.store(seed, Ordering::Relaxed);
    seed
}

/// How often a function was called. [`call_counts`] returns the counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallCount {
    /// The symbol of the function.
    pub function: &'static str,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls that returned another code than `CUDA_SUCCESS`.
    pub failures: u64,
}

/// Returns how often each function was called since [`install`](crate::install), ordered by symbol.
/// [`clear_calls`] does not reset the counts.
pub fn call_counts() -> Vec<CallCount> {
    let counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    counts
        .iter()
        .map(|(function, [calls, failures])| CallCount {
            function,
            calls: *calls,
            failures: *failures,
        })
        .collect()
}

/// Records the launch of a kernel that is not registered.
pub(crate) fn note_unregistered(kernel: &str) {
    let mut known = UNREGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.iter().any(|its| its == kernel) {
        known.push(kernel.to_owned());
    }
}

/// Returns the names of the kernels that were launched although they are not
/// [registered](crate::kernel::register), in the order in which they first ran.
pub fn unregistered_kernels() -> Vec<String> {
    let known = UNREGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    known.clone()
}

pub(crate) fn record(function: &'static str, arguments: Vec<Argument>, result: CUresult) {
    {
        let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
        let [calls, failures] = counts.entry(function).or_default();
        *calls += 1;
        *failures += u64::from(!result.is_success());
    }
    CALLS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(Call {
            function,
            thread: thread::id(),
            result,
            arguments,
        });
}

/// Reports a misuse: an incorrect call that a real driver accepts or crashes on.
pub(crate) fn misuse(what: impl Into<String>) {
    let what = what.into();
    // Which misuse is found depends on the order in which work ran, and therefore on the seed.
    let seed = SEED.load(Ordering::Relaxed);
    eprintln!("cuda-sim: misuse: {what} (seed {seed}: Profile::with_seed replays it)");
    note_misuse(what);
}

/// Records a misuse that is reported elsewhere.
pub(crate) fn note_misuse(what: String) {
    MISUSES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(what);
}

/// Records a call of a function that is not simulated, and reports the first call of each such function.
pub(crate) fn note_not_simulated(function: cuda_sys::Function) {
    let name = function.symbol();
    let mut known = NOT_SIMULATED.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.contains(&name) {
        known.push(name);
        eprintln!("cuda-sim: {name} is not simulated: it returns CUDA_ERROR_NOT_SUPPORTED here");
    }
    drop(known);
    record(name, Vec::new(), CUresult::CUDA_ERROR_NOT_SUPPORTED);
}

/// Returns the symbols of the functions that the program has called although this driver does not simulate
/// them, in the order of their first calls. These functions return `CUDA_ERROR_NOT_SUPPORTED`, which says
/// nothing about the device.
pub fn not_simulated() -> Vec<&'static str> {
    let known = NOT_SIMULATED.lock().unwrap_or_else(PoisonError::into_inner);
    known.clone()
}

/// Returns whether this thread is running a kernel, and then reports a misuse. A kernel runs while the
/// driver's lock is held, so the call would deadlock.
pub(crate) fn refuse_in_kernel(calls: &str) -> bool {
    let inside = thread::in_kernel();
    if inside {
        misuse(format!(
            "a kernel calls {calls}; a kernel on a GPU cannot call the driver"
        ));
    }
    inside
}

/// Returns all calls since [`install`](crate::install) or the last [`clear_calls`].
pub fn calls() -> Vec<Call> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Clears the record of calls.
pub fn clear_calls() {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Returns the misuses detected so far: incorrect calls that a real driver accepts or crashes on. Each
/// message names the violated rule.
pub fn misuses() -> Vec<String> {
    MISUSES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Clears the records of calls and misuses.
pub(crate) fn clear() {
    clear_calls();
    MISUSES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
}

pub(crate) fn call_count() -> usize {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).len()
}

pub(crate) fn first_misuse() -> Option<String> {
    let misuses = MISUSES.lock().unwrap_or_else(PoisonError::into_inner);
    misuses.first().cloned()
}

/// Returns the number of contexts on the calling thread's stack.
pub fn stack_depth() -> usize {
    thread::depth()
}

/// Returns the number of contexts on the stack of each thread that has any, including threads that have
/// ended.
pub fn stack_depths() -> Vec<(ThreadId, usize)> {
    thread::depths()
}

/// The number of live objects of each kind. Returned by [`alive`](crate::alive).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Alive {
    /// Retains of primary contexts.
    pub retains: usize,
    pub contexts: usize,
    pub green_contexts: usize,
    pub streams: usize,
    pub events: usize,
    pub modules: usize,
    pub libraries: usize,
    pub linkers: usize,
    pub graphs: usize,
    pub executable_graphs: usize,
    pub user_objects: usize,
    pub device_allocations: usize,
    pub device_bytes: u64,
    pub pinned_allocations: usize,
    /// Registered ranges of host memory.
    pub registered: usize,
    /// Allocations of managed memory, of pools too. Their bytes are not among `device_bytes`.
    pub managed_allocations: usize,
    /// Memory pools, except the default pools of devices.
    pub pools: usize,
    /// Physical memory of `cuMemCreate` that a handle or a mapping keeps. Its bytes on devices are among
    /// `device_bytes`.
    pub physical_allocations: usize,
    /// Reserved address ranges.
    pub reservations: usize,
    pub mappings: usize,
    /// Arrays, except levels of mipmapped arrays.
    pub arrays: usize,
    pub mipmapped_arrays: usize,
    /// Texture objects.
    pub textures: usize,
    /// Surface objects.
    pub surfaces: usize,
}

impl Alive {
    /// Returns the number of objects of all kinds together.
    pub fn objects(&self) -> usize {
        let all: u64 = self.counts().iter().map(|(count, _)| count).sum();
        // The bytes are in the list too.
        usize::try_from(all - self.device_bytes).unwrap_or(usize::MAX)
    }

    /// Returns each count with its name.
    pub(crate) fn counts(&self) -> [(u64, &'static str); 24] {
        let count = |count: usize, name| (count as u64, name);
        [
            count(self.retains, "retains"),
            count(self.contexts, "contexts"),
            count(self.green_contexts, "green contexts"),
            count(self.streams, "streams"),
            count(self.events, "events"),
            count(self.modules, "modules"),
            count(self.libraries, "libraries"),
            count(self.linkers, "linkers"),
            count(self.graphs, "graphs"),
            count(self.executable_graphs, "executable graphs"),
            count(self.user_objects, "user objects"),
            count(self.device_allocations, "device allocations"),
            (self.device_bytes, "bytes of device memory"),
            count(self.pinned_allocations, "pinned allocations"),
            count(self.registered, "registered"),
            count(self.managed_allocations, "managed allocations"),
            count(self.pools, "pools"),
            count(self.physical_allocations, "physical allocations"),
            count(self.reservations, "reservations"),
            count(self.mappings, "mappings"),
            count(self.arrays, "arrays"),
            count(self.mipmapped_arrays, "mipmapped arrays"),
            count(self.textures, "textures"),
            count(self.surfaces, "surfaces"),
        ]
    }
}

impl fmt::Display for Alive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        let counts: Vec<String> = counts
            .iter()
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        f.write_str(&counts.join(", "))
    }
}
