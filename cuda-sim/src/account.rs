//! Records of calls and misuses, and the counts of live objects.

mod argument;

pub(crate) use argument::arguments;
pub use argument::{Argument, record_arguments};

use crate::caller::caller;
use crate::thread;
use cuda_sys::CUresult;
use std::backtrace::Backtrace;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
/// The counts of the calls that [`clear_calls`] removed from [`CALLS`]. It is locked after [`CALLS`].
static CLEARED: Mutex<Counts> = Mutex::new(Counts::new());
static UNREGISTERED: Mutex<Vec<String>> = Mutex::new(Vec::new());
static LIMITS: Mutex<Vec<String>> = Mutex::new(Vec::new());
static SEED: AtomicU64 = AtomicU64::new(0);
static OPTIONS: AtomicBool = AtomicBool::new(false);

/// Makes messages name the options of the command `cuda-sim run` instead of functions of this crate.
#[doc(hidden)]
pub fn name_options() {
    OPTIONS.store(true, Ordering::Relaxed);
}

/// Returns the name of a setting for messages: of its option if the program does not call this crate, else of its
/// function.
pub(crate) fn setting(function: &'static str, option: &'static str) -> &'static str {
    match OPTIONS.load(Ordering::Relaxed) {
        true => option,
        false => function,
    }
}

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

/// The numbers of calls and of failures of each function.
type Counts = BTreeMap<&'static str, [u64; 2]>;

fn add_to(counts: &mut Counts, calls: &[Call]) {
    for call in calls {
        let [calls, failures] = counts.entry(call.function).or_default();
        *calls += 1;
        *failures += u64::from(!call.result.is_success());
    }
}

/// Returns how often each function was called since [`install`](crate::install), ordered by symbol.
/// [`clear_calls`] does not reset the counts.
pub fn call_counts() -> Vec<CallCount> {
    let counts = {
        let calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = CLEARED.lock().unwrap_or_else(PoisonError::into_inner).clone();
        add_to(&mut counts, &calls);
        counts
    };
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
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).push(Call {
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
    let setting = setting("Profile::with_seed", "cuda-sim run --seed");
    let site = calling_function().map(|site| format!(", found in a call by {site}"));
    let site = site.unwrap_or_default();
    eprintln!("cuda-sim: misuse: {what}{site} (seed {seed}: {setting} replays it)");
    note_misuse(what);
}

/// Returns the function of the program that calls the driver, if the driver is a shared library. (A test in Rust has the
/// backtrace of its panic, and looking up a function takes milliseconds.)
fn calling_function() -> Option<String> {
    let is_shared = OPTIONS.load(Ordering::Relaxed);
    let site = is_shared.then(|| caller(&Backtrace::force_capture().to_string()))?;
    // Libffi calls for an interpreter, whose functions are not those of the program.
    site.filter(|site| !site.starts_with("ffi_call"))
}

/// Records a misuse that is reported elsewhere.
pub(crate) fn note_misuse(what: String) {
    MISUSES.lock().unwrap_or_else(PoisonError::into_inner).push(what);
}

/// Records that a check has reached a limit, and reports each limit once.
pub(crate) fn note_limit(text: String) {
    let mut known = LIMITS.lock().unwrap_or_else(PoisonError::into_inner);
    if !known.contains(&text) {
        eprintln!("cuda-sim: {text}");
        known.push(text);
    }
}

/// Returns the limits that checks have reached.
pub(crate) fn limits() -> Vec<String> {
    LIMITS.lock().unwrap_or_else(PoisonError::into_inner).clone()
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
        misuse(format!("a kernel calls {calls}; a kernel on a GPU cannot call the driver"));
    }
    inside
}

/// Returns all calls since [`install`](crate::install) or the last [`clear_calls`].
pub fn calls() -> Vec<Call> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Clears the record of calls.
pub fn clear_calls() {
    let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
    add_to(&mut CLEARED.lock().unwrap_or_else(PoisonError::into_inner), &calls);
    calls.clear();
}

/// Returns the misuses detected so far: incorrect calls that a real driver accepts or crashes on. Each
/// message names the violated rule.
pub fn misuses() -> Vec<String> {
    MISUSES.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Clears the records of calls and misuses.
pub(crate) fn clear() {
    clear_calls();
    MISUSES.lock().unwrap_or_else(PoisonError::into_inner).clear();
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

/// Defines the struct, with the name of each count in texts.
macro_rules! alive {
    ($($(#[$meta:meta])* $field:ident: $type:ident = $name:literal,)*) => {
        /// The number of live objects of each kind. Returned by [`alive`](crate::alive).
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[allow(missing_docs, reason = "the names say it")]
        pub struct Alive {
            $($(#[$meta])* pub $field: $type,)*
        }

        impl Alive {
            /// Returns each count with its name.
            pub(crate) fn counts(&self) -> Vec<(u64, &'static str)> {
                vec![$((self.$field as u64, $name)),*]
            }

            /// Adds the objects that were alive before and are not alive after.
            pub(crate) fn add_difference(&mut self, before: &Self, after: &Self) {
                $(self.$field += before.$field.saturating_sub(after.$field);)*
            }
        }
    };
}

alive! {
    /// Retains of primary contexts.
    retains: usize = "retains",
    contexts: usize = "contexts",
    green_contexts: usize = "green contexts",
    streams: usize = "streams",
    events: usize = "events",
    modules: usize = "modules",
    libraries: usize = "libraries",
    linkers: usize = "linkers",
    graphs: usize = "graphs",
    executable_graphs: usize = "executable graphs",
    user_objects: usize = "user objects",
    device_allocations: usize = "device allocations",
    device_bytes: u64 = "bytes of device memory",
    pinned_allocations: usize = "pinned allocations",
    /// Registered ranges of host memory.
    registered: usize = "registered",
    /// Allocations of managed memory, of pools too. Their bytes are not among `device_bytes`.
    managed_allocations: usize = "managed allocations",
    /// Memory pools, except the default pools of devices.
    pools: usize = "pools",
    /// Physical memory of `cuMemCreate` that a handle or a mapping keeps. Its bytes on devices are among
    /// `device_bytes`.
    physical_allocations: usize = "physical allocations",
    /// Reserved address ranges.
    reservations: usize = "reservations",
    mappings: usize = "mappings",
    /// Arrays, except levels of mipmapped arrays.
    arrays: usize = "arrays",
    mipmapped_arrays: usize = "mipmapped arrays",
    /// Texture objects.
    textures: usize = "textures",
    /// Surface objects.
    surfaces: usize = "surfaces",
    /// Imported memory of other APIs. Its mappings are device allocations without bytes.
    external_memories: usize = "external memories",
    /// Imported semaphores of other APIs.
    external_semaphores: usize = "external semaphores",
    /// Resources of OpenGL and EGL (`cuGraphicsGLRegisterBuffer` and others).
    graphics_resources: usize = "registered graphics resources",
    /// Communicators of the [software NCCL](crate::nccl).
    communicators: usize = "communicators",
}

impl Alive {
    /// Returns the number of objects of all kinds together.
    pub fn objects(&self) -> usize {
        let all: u64 = self.counts().iter().map(|(count, _)| count).sum();
        // The bytes are in the list too.
        usize::try_from(all - self.device_bytes).unwrap_or(usize::MAX)
    }
}

impl fmt::Display for Alive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = self.counts();
        let counts: Vec<String> =
            counts.iter().map(|(count, name)| format!("{count} {name}")).collect();
        f.write_str(&counts.join(", "))
    }
}
