//! Every scenario once more, with a memory manager: what the driver allocates, frees and pins is asked for by
//! that, and by nobody else.

use crate::scenarios;
use crate::trace::Trace;
use cuda_safe::manager::{
    Block, DriverManager, DriverMemory, HostBlock, MemoryManager, Order, clear_memory_manager,
    set_memory_manager,
};
use cuda_safe::{Context, Device, MemoryInfo, PinnedFlags, Result};
use std::any::Any;
use std::ops::Range;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::thread::ThreadId;

/// Set in the process that does it: its driver is its own.
const CHILD: &str = "CUDA_TESTS_MANAGED";

/// Scenarios in which somebody else allocates or frees: what, and who.
const OTHERS: &[(&str, &[&str], &str)] = &[
    (
        "foreign",
        &["cuMemAllocAsync", "cuMemFreeAsync"],
        "other code, which the scenario plays",
    ),
    (
        "memory",
        &["cuMemFreeAsync"],
        "memory is given away, and taken over as the driver's, which it is not with a manager",
    ),
    (
        "memory pools",
        &["cuMemAllocFromPoolAsync", "cuMemFreeAsync"],
        "memory of a pool that is named",
    ),
    (
        "capture",
        &["cuMemFree_v2", "cuMemFreeHost", "cuMemHostUnregister"],
        "the queue of releases, with what the manager could not free at once",
    ),
    (
        "callback",
        &["cuMemFree_v2", "cuMemFreeHost", "cuMemHostUnregister"],
        "likewise",
    ),
];

/// Scenarios that choose managers themselves.
const MANAGERS: [&str; 9] = [
    "driver manager",
    "caching pool",
    "driver's pools",
    "all wrappers",
    "too little, of a pool",
    "too little, of the device",
    "too little, falls back",
    "shared by processes",
    "pool shared by processes",
];

/// The functions that make memory, end it or pin it.
fn is_of_memory(function: &str) -> bool {
    const BEGINNINGS: [&str; 9] = [
        "cuMemAlloc",
        "cuMemFree",
        "cuMemHostAlloc",
        "cuMemHostRegister",
        "cuMemHostUnregister",
        "cuArray",
        "cuMipmappedArray",
        "cuMemCreate",
        "cuMemRelease",
    ];
    BEGINNINGS.iter().any(|its| function.starts_with(its))
}

/// Which calls were made while the manager was called, by whom.
static INSIDE: Mutex<Vec<(ThreadId, Range<usize>)>> = Mutex::new(Vec::new());

/// While the manager is called.
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

/// The driver's own manager, whose calls are noted.
#[derive(Debug)]
struct Noted(Option<DriverManager>);

impl Noted {
    fn inner(&self) -> &DriverManager {
        self.0.as_ref().expect("it is there to the end")
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let _inside = Inside::new();
        self.0.take();
    }
}

// SAFETY: all is the inner one's.
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
        // SAFETY: the caller's promise.
        unsafe { self.inner().free(block, order) }
    }

    fn allocate_host(&self, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        let _inside = Inside::new();
        self.inner().allocate_host(size, flags)
    }

    unsafe fn free_host(&self, block: HostBlock, order: Order<'_>) {
        let _inside = Inside::new();
        // SAFETY: the caller's promise.
        unsafe { self.inner().free_host(block, order) }
    }

    unsafe fn pin(&self, start: NonNull<u8>, size: usize, flags: PinnedFlags) -> Result<HostBlock> {
        let _inside = Inside::new();
        // SAFETY: the caller's promise.
        unsafe { self.inner().pin(start, size, flags) }
    }

    unsafe fn unpin(&self, block: HostBlock) -> Result<()> {
        let _inside = Inside::new();
        // SAFETY: the caller's promise.
        unsafe { self.inner().unpin(block) }
    }

    unsafe fn release_pin(&self, block: HostBlock, owner: Box<dyn Any + Send>, order: Order<'_>) {
        let _inside = Inside::new();
        // SAFETY: the caller's promise.
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
        // SAFETY: the caller's promise.
        unsafe { self.inner().free_managed(block, order) }
    }
}

/// What a scenario asks of the driver that is of memory, and not the manager's.
fn others_of(run: fn(&mut Trace) -> Result<()>) -> (usize, Vec<&'static str>) {
    set_memory_manager(|context: &Context| Ok(Noted(Some(DriverManager::new(context)?))))
        .expect("the version fits");
    cuda_sim::clear_calls();
    INSIDE.lock().expect("no panic").clear();
    run(&mut Trace::default()).expect("no call fails");
    // What had to wait for its release.
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
fn with_a_manager_nobody_else_allocates_frees_or_pins() {
    let all = || scenarios::ALL.iter();
    if let Ok(name) = std::env::var(CHILD) {
        cuda_sim::install(cuda_sim::Profile::h200())
            .expect("a process of its own has no driver yet");
        crate::kernels::register_kernels();
        let scenario = all().find(|its| its.name == name).expect("a scenario");
        let (managers, mut others) = others_of(scenario.run);
        let known = OTHERS.iter().find(|(its, ..)| *its == name);
        others.retain(|name| !known.is_some_and(|(_, allowed, _)| allowed.contains(name)));
        assert_eq!(
            others, [""; 0],
            "of \"{name}\", beside {managers} of the manager"
        );
        println!("\nmanagers\t{managers}");
        return;
    }
    // Those choose one of their own.
    let with_others = all().filter(|its| !MANAGERS.contains(&its.name));
    let asked: usize = with_others.map(|its| of_child(its.name)).sum();
    assert!(asked > 100, "{asked} calls are no proof");
}

/// Has a process of its own, and so a context without the last one's manager, run a scenario; how often its
/// manager called the driver for memory.
fn of_child(name: &str) -> usize {
    let test = std::thread::current();
    let ended = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "--nocapture", "--test-threads=1"])
        .arg(test.name().expect("a test runs on a thread of its name"))
        .env(CHILD, name)
        .output()
        .expect("started");
    let text = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{name}: {text}\n{errors}");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("managers\t"));
    line.and_then(|count| count.parse().ok())
        .expect("the child counts")
}
