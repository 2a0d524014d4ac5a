//! Many threads take random steps: nothing may crash, fail, leak, or differ from a model.
//!
//! `CUDA_STRESS_SECONDS=60` sets the duration, `CUDA_STRESS_SEED=7` the seed. The decisions of a
//! thread depend only on the seed and the number of the thread, so they are reproducible; how the
//! threads interleave is not. `CUDA_STRESS_SKIP=graphs,code::link` excludes actions, and
//! `CUDA_STRESS_TRACE=1` prints each action before it runs, to diagnose a crash.
//!
//! On a GPU all work is in the primary context and its green contexts: with a second context
//! (`CUDA_STRESS_CONTEXTS=2`) a driver (580 on an H200) crashes after some 300,000 steps, in calls
//! that involve both (`cuMemcpyPeerAsync`, `cuCtxWaitEvent`, `cuMemcpyHtoDAsync` with the other
//! context current). Without these (`CUDA_STRESS_SKIP=contexts,shared::copy`) it does not crash.

mod actions;
mod buffers;
mod code;
mod contexts;
mod copies_2d_3d;
mod events;
mod graphs;
mod green;
mod host;
mod items;
mod shared;
mod streams;
mod worker;

use crate::common::{self, child};
use crate::module::kernels::{Scale, nothing};
use cuda_safe::green::{GreenContext, GreenPool, GreenPoolOptions, SmResource, SplitByCount};
use cuda_safe::memory::{MemoryPool, MemoryPoolOptions};
use cuda_safe::{Context, ContextFlags, Device, Stream, TypedKernel};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};
use worker::{Item, Worker};

const THREADS: u64 = 16;

/// The number of steps of each thread, unless a duration is set.
const STEPS: usize = if cfg!(miri) { 1 } else { 400 };

/// The state that the threads share.
struct Arena {
    /// The primary context, and optionally a context of this test.
    homes: Vec<Home>,
    greens: Vec<GreenContext>,
    /// A pool, used instead of separate green contexts because a split takes the whole device, and
    /// the number of SMs of a small partition.
    pool: Option<(GreenPool, u32)>,
    streams: Mutex<Vec<Stream>>,
    /// Items that a thread leaves for another one, which may also drop them.
    mailbox: Mutex<Vec<Item>>,
    /// Read-locked during a capture, and write-locked by calls that would invalidate captures.
    captures: RwLock<()>,
    /// The numbers of host functions that were enqueued and that have run.
    given: AtomicU64,
    ran: Arc<AtomicU64>,
}

/// A context and the objects for work in it.
struct Home {
    context: Context,
    scale: Scale,
    nothing: TypedKernel<()>,
    pool: MemoryPool,
}

impl Home {
    fn new(context: Context) -> Self {
        let pool = MemoryPool::new(&context, MemoryPoolOptions::default());
        Self {
            scale: Scale::new(&context),
            nothing: nothing(&context),
            pool: pool.expect("a memory pool"),
            context,
        }
    }
}

impl Arena {
    fn new(seed: u64) -> Self {
        let device = Device::get(0).expect("a device");
        let primary = Context::primary(&device).expect("a context");
        let two = number("CUDA_STRESS_CONTEXTS").map_or(common::is_software(), |number| number > 1);
        let own = || Context::new(&device, ContextFlags::empty()).expect("a context");
        let own = two.then(own);
        let has_pool = seed % 2 == 0 && common::offers(12, 5);
        Self {
            homes: Some(primary).into_iter().chain(own).map(Home::new).collect(),
            pool: has_pool.then(|| pool(&device)).flatten(),
            greens: if has_pool { Vec::new() } else { partitions(&device) },
            streams: Mutex::default(),
            mailbox: Mutex::default(),
            captures: RwLock::default(),
            given: AtomicU64::new(0),
            ran: Arc::default(),
        }
    }

    fn home(&self, context: &Context) -> &Home {
        let its = self.homes.iter().find(|home| home.context == *context);
        its.expect("only two contexts")
    }
}

/// Returns the number in an environment variable.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// Returns a pool of green contexts, if the driver supports them.
fn pool(device: &Device) -> Option<(GreenPool, u32)> {
    let resource = SmResource::of_device(device).ok()?;
    let unit = resource.granularity().expect("known").min;
    let pool = GreenPool::new(device, GreenPoolOptions::default());
    Some((pool.expect("no other pool has the device"), unit))
}

/// Returns green contexts of the device, if the driver supports them.
fn partitions(device: &Device) -> Vec<GreenContext> {
    let Ok(resource) = SmResource::of_device(device) else {
        return Vec::new();
    };
    let split = resource.split_by_count(SplitByCount {
        max_groups: Some(3),
        label: "stress".to_owned(),
        ..SplitByCount::default()
    });
    let groups = split.expect("a split").groups;
    let partition = |group| GreenContext::new([group]).expect("a partition");
    groups.into_iter().map(partition).collect()
}

#[test]
fn sixteen_threads_run_random_actions() {
    child::with_gpu(|_| {
        let seed = number("CUDA_STRESS_SEED").unwrap_or(1);
        let until =
            number("CUDA_STRESS_SECONDS").map(|time| Instant::now() + Duration::from_secs(time));
        let skip = std::env::var("CUDA_STRESS_SKIP").unwrap_or_default();
        let skip: Vec<_> = skip.split(',').filter(|name| !name.is_empty()).collect();
        let actions: Vec<_> = actions::ALL
            .iter()
            .filter(|action| !skip.iter().any(|name| action.name.starts_with(name)))
            .collect();
        let trace = std::env::var_os("CUDA_STRESS_TRACE").is_some();
        let arena = Arena::new(seed);
        let steps: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (arena, actions) = (&arena, &actions);
                    scope.spawn(move || {
                        let mut worker = Worker::new(arena, seed, thread);
                        let more = |step| until.map_or(step < STEPS, |end| Instant::now() < end);
                        let mut step = 0;
                        while more(step) {
                            let action = worker.choose(actions);
                            if trace {
                                eprintln!("thread {thread}, step {step}, {}", action.name);
                            }
                            if let Err(error) = (action.run)(&mut worker) {
                                let name = action.name;
                                panic!(
                                    "seed {seed}, thread {thread}, step {step}, {name}: {error}"
                                );
                            }
                            step += 1;
                        }
                        step
                    })
                })
                .collect();
            let done = threads.into_iter().map(|thread| thread.join());
            done.map(|steps| steps.expect("a thread panicked")).sum()
        });
        eprintln!("note: stress: seed {seed}, {THREADS} threads, {steps} steps");
        end(arena);
    });
}

/// Waits for all work, and checks that nothing is left.
fn end(arena: Arena) {
    for home in &arena.homes {
        home.context.synchronize().expect("all work succeeded");
    }
    let (given, ran) = (arena.given.load(Ordering::SeqCst), arena.ran.clone());
    assert_eq!(ran.load(Ordering::SeqCst), given, "host functions");
    drop(arena);
    assert_eq!(cuda_safe::leaked(), 0);
    if common::is_software() {
        assert_eq!(cuda_sim::misuses(), [""; 0]);
        assert_eq!(cuda_sim::alive(), cuda_sim::Alive::default());
    }
}
