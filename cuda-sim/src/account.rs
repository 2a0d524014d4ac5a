//! What was called, what is alive, what was done wrong.

mod argument;

pub(crate) use argument::arguments;
pub use argument::{Argument, record_arguments};

use crate::{call, thread, world};
use cuda_sys::CUresult;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// One call of the driver, in the order in which they ended.
#[derive(Clone, Debug)]
pub struct Call {
    /// The symbol.
    pub function: &'static str,
    /// Who called.
    pub thread: ThreadId,
    /// What it answered.
    pub result: CUresult,
    /// The arguments, if [`record_arguments`] has turned that on, without those that are places for
    /// an answer.
    pub arguments: Vec<Argument>,
}

impl Call {
    /// Returns the [values](Argument::values) of an argument. `None` if it was not recorded, or has
    /// another type.
    pub fn values<T: 'static>(&self, argument: &str) -> Option<&[T]> {
        let mut all = self.arguments.iter();
        all.find(|its| its.name == argument)?.values()
    }
}

static CALLS: Mutex<Vec<Call>> = Mutex::new(Vec::new());
static MISTAKES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SEED: AtomicU64 = AtomicU64::new(0);

/// Keeps the seed, to tell it of what is found.
pub(crate) fn note_seed(seed: u64) -> u64 {
    SEED.store(seed, Ordering::Relaxed);
    seed
}

pub(crate) fn record(function: &'static str, arguments: Vec<Argument>, result: CUresult) {
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

/// Something that a real driver accepts, or crashes on, and that is wrong all the same.
pub(crate) fn mistake(what: impl Into<String>) {
    let what = what.into();
    // What was found hangs on which work ran first, and so on the seed.
    let seed = SEED.load(Ordering::Relaxed);
    eprintln!("cuda-sim: mistake: {what} (seed {seed}: Profile::with_seed replays it)");
    MISTAKES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(what);
}

/// All calls since the start or the last [`clear_calls`].
pub fn calls() -> Vec<Call> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Forgets the calls so far.
pub fn clear_calls() {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// What was done wrong that a real driver accepts or crashes on, by the rules that were broken.
pub fn mistakes() -> Vec<String> {
    MISTAKES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone()
}

/// Forgets what was called and what was done wrong so far.
pub(crate) fn clear() {
    clear_calls();
    MISTAKES
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clear();
}

pub(crate) fn call_count() -> usize {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).len()
}

pub(crate) fn first_mistake() -> Option<String> {
    let mistakes = MISTAKES.lock().unwrap_or_else(PoisonError::into_inner);
    mistakes.first().cloned()
}

/// How many contexts are on this thread's stack.
pub fn stack_depth() -> usize {
    thread::depth()
}

/// How many contexts are on the stack of each thread that has any: of those that are over, too.
pub fn stack_depths() -> Vec<(ThreadId, usize)> {
    thread::depths()
}

/// How many objects of each kind there are.
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
    pub device_allocations: usize,
    pub device_bytes: u64,
    pub pinned_allocations: usize,
    /// Host memory that is registered.
    pub registered: usize,
    pub managed_allocations: usize,
    /// Memory pools beside those that devices have by themselves.
    pub pools: usize,
}

impl fmt::Display for Alive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} retains, {} contexts, {} green contexts, {} streams, {} events, {} modules, \
             {} libraries, {} linkers, {} graphs, {} executable graphs, {} device allocations ({} bytes), {} pinned allocations, \
             {} registered, {} managed allocations, {} pools",
            self.retains,
            self.contexts,
            self.green_contexts,
            self.streams,
            self.events,
            self.modules,
            self.libraries,
            self.linkers,
            self.graphs,
            self.executable_graphs,
            self.device_allocations,
            self.device_bytes,
            self.pinned_allocations,
            self.registered,
            self.managed_allocations,
            self.pools
        )
    }
}

/// What is alive. Work that is only waiting to run, a free among it, runs first; in a host function
/// not what is behind it.
pub fn alive() -> Alive {
    if call::refuse_in_kernel("cuda_sim::alive") {
        return Alive::default();
    }
    call::settle();
    world::with(|world| world.alive()).unwrap_or_default()
}
