//! Runs every scenario with a memory manager, and checks that only the manager allocates, frees and
//! pins memory with the driver.

use crate::scenarios;
use crate::trace::Trace;
use cuda_safe::context::MemoryInfo;
use cuda_safe::manager::{
    Block, DriverManager, DriverMemory, HostBlock, MemoryManager, Order, clear_memory_manager,
    set_memory_manager,
};
use cuda_safe::memory::PinnedFlags;
use cuda_safe::{Context, Device, Error, Result};
use std::any::Any;
use std::ops::Range;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// Set in the child process that runs a scenario, because the process needs its own driver.
const CHILD: &str = "CUDA_TESTS_MANAGED";

/// Scenarios in which other code allocates or frees: the functions, and the caller.
const OTHERS: &[(&str, &[&str], &str)] = &[
    ("foreign", &["cuMemAllocAsync", "cuMemFreeAsync"], "other code, which the scenario plays"),
    (
        "memory",
        &["cuMemFreeAsync"],
        "the memory is released with `into_raw` and taken over as driver memory",
    ),
    ("memory pools", &["cuMemAllocFromPoolAsync", "cuMemFreeAsync"], "memory of an explicit pool"),
    (
        "capture",
        &["cuMemFree_v2", "cuMemFreeHost", "cuMemHostUnregister"],
        "the release queue, for memory that the manager could not free at once",
    ),
    (
        "sparse arrays",
        &["cuMemCreate", "cuMemRelease"],
        "physical memory, which managers do not allocate",
    ),
    (
        "resources that are refused, and exports",
        &["cuMemCreate", "cuMemRelease"],
        "physical memory, which managers do not allocate",
    ),
    (
        "mapping",
        &["cuMemCreate", "cuMemRelease"],
        "physical memory, which managers do not allocate",
    ),
    (
        "growable buffer",
        &["cuMemCreate", "cuMemRelease"],
        "physical memory, which managers do not allocate",
    ),
    (
        "multicast object",
        &["cuMemCreate", "cuMemRelease"],
        "physical memory, which managers do not allocate",
    ),
    (
        "logical endpoint",
        &["cuMemCreate", "cuMemRelease"],
        "physical memory, which managers do not allocate",
    ),
    (
        "copies over the fabric",
        &["cuMemCreate", "cuMemRelease"],
        "physical memory, which managers do not allocate",
    ),
    (
        "external memory",
        &["cuMemFree_v2"],
        "mappings of memory of another API, which managers do not allocate",
    ),
    ("graph memory", &["cuMemFreeAsync"], "memory that a node of a graph has allocated"),
    (
        "callback",
        &["cuMemFree_v2", "cuMemFreeHost", "cuMemHostUnregister"],
        "the release queue, for memory that the manager could not free at once",
    ),
];

/// Scenarios that choose memory managers themselves.
const MANAGERS: [&str; 10] = [
    "driver manager",
    "caching pool",
    "expandable pool",
    "driver's pools",
    "all wrappers",
    "pool limit",
    "device memory limit",
    "limit with fallback",
    "interprocess memory",
    "interprocess pool",
];

/// Returns whether a function allocates, frees or pins memory. Managers do not allocate arrays, which have
/// no address.
fn is_of_memory(function: &str) -> bool {
    const BEGINNINGS: [&str; 7] = [
        "cuMemAlloc",
        "cuMemFree",
        "cuMemHostAlloc",
        "cuMemHostRegister",
        "cuMemHostUnregister",
        "cuMemCreate",
        "cuMemRelease",
    ];
    BEGINNINGS.iter().any(|its| function.starts_with(its))
}

/// The ranges of driver calls that were made inside the manager, each with its thread.
static INSIDE: Mutex<Vec<(ThreadId, Range<usize>)>> = Mutex::new(Vec::new());

/// Marks the calls as inside the manager while it is alive.
struct Inside(usize);

impl Inside {
    fn new() -> Self {
        Self(cuda_sim::calls().len())
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        let range = self.0..cuda_sim::calls().len();
        let mut inside = INSIDE.lock().unwrap_or_else(PoisonError::into_inner);
        inside.push((std::thread::current().id(), range));
    }
}

/// The driver manager, with its calls recorded.
#[derive(Debug)]
struct Noted(Option<DriverManager>);

impl Noted {
    fn inner(&self) -> &DriverManager {
        self.0.as_ref().expect("set until the drop")
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let _inside = Inside::new();
        self.0.take();
    }
}

// SAFETY: every call is forwarded to the inner manager.
unsafe impl MemoryManager for Noted {
    fn interface_version() -> u32 {
        1
    }

    fn base(&self) -> &DriverMemory {
        self.inner().base()
    }

    fn reset(&self) {
        let _inside = Inside::new();
        self.inner().reset();
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        let _inside = Inside::new();
        self.inner().allocate(size, order)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        let _inside = Inside::new();
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner().free(block, order) }
    }

    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        let _inside = Inside::new();
        self.inner().allocate_host(size, flags)
    }

    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        let _inside = Inside::new();
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner().free_host(block, order) }
    }

    unsafe fn pin(&self, start: NonNull<u8>, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        let _inside = Inside::new();
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner().pin(start, size, flags) }
    }

    unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        let _inside = Inside::new();
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner().unpin(block) }
    }

    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        let _inside = Inside::new();
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner().release_pin(block, owner, order) }
    }

    fn allocate_managed(&self, size: usize, global: bool) -> Result<Block> {
        let _inside = Inside::new();
        self.inner().allocate_managed(size, global)
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        self.inner().memory_info()
    }

    unsafe fn free_managed(&self, block: Block, order: Order<'_>) {
        let _inside = Inside::new();
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner().free_managed(block, order) }
    }
}

/// Runs a scenario. Returns the number of memory calls that the manager made, and the memory calls
/// that other code made.
fn others_of(run: fn(&mut Trace) -> Result<()>) -> (usize, Vec<&'static str>) {
    set_memory_manager(|context: &Context| Ok(Noted(Some(DriverManager::new(context)?))))
        .expect("a matching version");
    cuda_sim::clear_calls();
    INSIDE.lock().expect("no panic").clear();
    match run(&mut Trace::default()) {
        // The scenario needs a newer driver.
        Err(Error::Missing(_)) => {}
        done => done.expect("no call fails"),
    }
    // Completes the deferred releases.
    let context = Device::get(0).and_then(|device| Context::primary(&device));
    context.and_then(|its| its.synchronize()).expect("a wait");
    clear_memory_manager();
    let inside = INSIDE.lock().expect("no panic");
    let is_inside = |thread: ThreadId, place: usize| {
        let has =
            |(its, range): &(ThreadId, Range<usize>)| *its == thread && range.contains(&place);
        inside.iter().any(has)
    };
    let calls = cuda_sim::calls();
    let of_memory = calls.iter().enumerate();
    let of_memory = of_memory.filter(|(_, call)| is_of_memory(call.function));
    let (its, others): (Vec<_>, Vec<_>) =
        of_memory.partition(|(place, call)| is_inside(call.thread, *place));
    let others = others.into_iter().map(|(_, call)| call.function);
    (its.len(), others.collect())
}

#[test]
fn with_a_manager_only_the_manager_allocates_frees_and_pins() {
    let all = || scenarios::ALL.iter();
    if let Ok(name) = std::env::var(CHILD) {
        let scenario = all().find(|its| its.name == name).expect("a scenario");
        let profile = cuda_sim::Profile::h200().with_devices(scenario.devices);
        cuda_sim::install(profile).expect("this child process has no driver yet");
        let (managers, mut others) = others_of(scenario.run);
        let known = OTHERS.iter().find(|(its, ..)| *its == name);
        others.retain(|name| !known.is_some_and(|(_, allowed, _)| allowed.contains(name)));
        assert_eq!(others, [""; 0], "of \"{name}\", besides {managers} calls of the manager");
        println!("\nmanagers\t{managers}");
        return;
    }
    // The scenarios in `MANAGERS` replace the manager with another one.
    let with_others = all().filter(|its| !MANAGERS.contains(&its.name));
    let asked: usize = with_others.map(|its| of_child(its.name)).sum();
    assert!(asked > 100, "only {asked} calls");
}

/// Runs a scenario in a child process, and so in a context without the previous manager. Returns
/// how often its manager called the driver for memory.
fn of_child(name: &str) -> usize {
    let test = std::thread::current();
    let ended = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg(test.name().expect("the thread of a test has the name of the test"))
        .env(CHILD, name)
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{name}: {text}\n{errors}");
    let line = text.lines().find_map(|line| line.strip_prefix("managers\t"));
    line.and_then(|count| count.parse().ok()).expect("the child prints the count")
}
