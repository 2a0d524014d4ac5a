//! Many threads do everything at random: nothing crashes, fails, leaks, or differs from a model.
//!
//! `CUDA_STRESS_SECONDS=60` goes on for so long, `CUDA_STRESS_SEED=7` makes other decisions. What a
//! thread decides hangs on the seed and its number alone, so the same seed does the same again; how
//! the threads get in each other's way does not. `CUDA_STRESS_SKIP=graphs,code::link` leaves actions
//! out, and `CUDA_STRESS_TRACE=1` tells of each before it is done, for when the process crashes.
//!
//! On a GPU all of it is in the primary context and its green contexts: with a second context
//! (`CUDA_STRESS_CONTEXTS=2`) a driver (580 on an H200) crashes after some 300,000 steps, in calls that
//! have to do with both (`cuMemcpyPeerAsync`, `cuCtxWaitEvent`, `cuMemcpyHtoDAsync` with the other
//! context current). Without these (`CUDA_STRESS_SKIP=contexts,shared::copy`) it does not.

mod actions;
mod boxes;
mod buffers;
mod code;
mod contexts;
mod events;
mod graphs;
mod green;
mod host;
mod items;
mod shared;
mod streams;
mod worker;

use crate::common::{self, child};
use crate::kernels::{Scale, nothing};
use crate::need;
use cuda_safe::green::{GreenContext, GreenPool, GreenPoolOptions, SmResource, SplitByCount};
use cuda_safe::{
    Context, ContextFlags, Device, MemoryPool, MemoryPoolOptions, Stream, TypedKernel,
};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};
use std::time::{Duration, Instant};
use worker::{Item, Worker};

const THREADS: u64 = 16;

/// What each thread does unless it is told for how long.
const STEPS: usize = 400;

/// What the threads share.
struct Arena {
    /// The primary context, and perhaps one of its own.
    homes: Vec<Home>,
    greens: Vec<GreenContext>,
    /// Instead of green contexts: who splits a device has all of it. And the SMs of a small
    /// partition.
    pool: Option<(GreenPool, u32)>,
    streams: Mutex<Vec<Stream>>,
    /// What a thread leaves for another, which may well drop it.
    mailbox: Mutex<Vec<Item>>,
    /// Held to read by whoever captures, and to write by what would break captures.
    captures: RwLock<()>,
    /// Host functions that were given to streams, and those that ran.
    given: AtomicU64,
    ran: Arc<AtomicU64>,
}

/// A context, and what is there for all work in it.
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
        let own = || Context::create(&device, ContextFlags::empty()).expect("a context");
        let own = two.then(own);
        let has_pool = seed % 2 == 0 && common::offers(12, 5);
        Self {
            homes: Some(primary)
                .into_iter()
                .chain(own)
                .map(Home::new)
                .collect(),
            pool: has_pool.then(|| pool(&device)).flatten(),
            greens: if has_pool {
                Vec::new()
            } else {
                partitions(&device)
            },
            streams: Mutex::default(),
            mailbox: Mutex::default(),
            captures: RwLock::default(),
            given: AtomicU64::new(0),
            ran: Arc::default(),
        }
    }

    fn home(&self, context: &Context) -> &Home {
        let its = self.homes.iter().find(|home| home.context == *context);
        its.expect("there is no third")
    }
}

/// What an environment variable asks for.
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().expect("a number"))
}

/// A pool of green contexts, if the driver has them.
fn pool(device: &Device) -> Option<(GreenPool, u32)> {
    let resource = SmResource::of_device(device).ok()?;
    let unit = resource.granularity().expect("known").min;
    let pool = GreenPool::new(device, GreenPoolOptions::default());
    Some((pool.expect("nobody has the device"), unit))
}

/// Green contexts of the device, if the driver has them.
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
fn sixteen_threads_do_everything_at_random() {
    need!(common::gpu());
    child::in_child(&[], || {
        need!(common::gpu());
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

/// All work is done, and nothing is left.
fn end(arena: Arena) {
    for home in &arena.homes {
        home.context.synchronize().expect("all work is right");
    }
    let (given, ran) = (arena.given.load(Ordering::SeqCst), arena.ran.clone());
    assert_eq!(ran.load(Ordering::SeqCst), given, "host functions");
    drop(arena);
    assert_eq!(cuda_safe::leaked(), 0);
    if common::is_software() {
        assert_eq!(cuda_sim::mistakes(), [""; 0]);
        assert_eq!(cuda_sim::alive(), cuda_sim::Alive::default());
    }
}
