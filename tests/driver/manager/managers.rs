//! Any manager compared with a model: random allocations, frees and moves on random streams. Work
//! on the streams writes tags into the memory and checks them at the end.

mod held;
mod ledger;
mod log;
mod untyped;

use self::held::Store;
use self::ledger::Ledger;
use self::log::{LOG, Log, any, log_of};
use self::untyped::{SPOILT, Untyped};
use super::{context_with, manager_as};
use crate::common::random::Random;
use crate::common::{self, child};
use cuda_memory::trace::Trace;
use cuda_memory::{
    CachingManager, CachingOptions, Fallback, FallbackManager, LeakManager, LimitManager,
    LoggingManager, OrderedManager, StatisticsManager,
};
use cuda_safe::manager::{
    Block, CleanupGuard, DriverManager, DriverMemory, MemoryManager, MemoryPointer, Order,
    clear_memory_manager, is_out_of_memory, set_memory_manager,
};
use cuda_safe::{Context, Device, DeviceBuffer, Result, Stream};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Allocated memory, whose first and last element hold its tag.
struct Live {
    memory: DeviceBuffer<u32>,
    tag: u32,
}

/// The ranges that the manager has allocated.
#[derive(Default)]
struct Model(BTreeMap<u64, u64>);

impl Model {
    fn add(&mut self, address: u64, size: usize) {
        assert_eq!(address % 256, 0, "{address:#x}");
        let end = address + size as u64;
        let before = self.0.range(..end).next_back();
        assert!(
            before.is_none_or(|(_, its)| *its <= address),
            "{address:#x}..{end:#x} overlaps {before:x?}"
        );
        self.0.insert(address, end);
    }

    fn remove(&mut self, address: u64) {
        self.0.remove(&address).expect("it was allocated");
    }
}

/// Allocates memory. This succeeds unless guards defer too many releases, so it drops the guards
/// and retries.
fn enough<T>(guards: &mut Vec<CleanupGuard>, allocate: impl Fn() -> Result<T>) -> T {
    match allocate() {
        Err(error) if is_out_of_memory(&error) && !guards.is_empty() => {
            guards.clear();
            allocate().expect("memory")
        }
        memory => memory.expect("memory"),
    }
}

/// Returns the position of the first item that belongs to the stream.
fn position<T>(all: &[T], stream: impl Fn(&T) -> &Stream, log: &Log) -> Option<usize> {
    all.iter().position(|its| *stream(its) == log.stream)
}

/// Returns a random number of elements. Small and large numbers are equally frequent.
fn some(random: &mut Random) -> usize {
    1 + random.next() as usize % (1 << random.below(19))
}

/// Runs `steps` random steps.
fn work(context: &Context, seed: u64, steps: usize) {
    let mut random = Random(seed);
    // Six streams of this crate, and two of other code.
    let mut logs: Vec<Log> = (0..8).map(|its| Log::new(context, its >= 6)).collect();
    let mut model = Model::default();
    for log in &logs {
        model.add(log.found.as_raw(), LOG * 4);
    }
    let mut store = Store::new(context);
    let (address, size) = store.range();
    model.add(address, size);
    let mut live: Vec<Live> = Vec::new();
    let (mut untyped, mut guards) = (Vec::<Untyped>::new(), Vec::<CleanupGuard>::new());
    let manager = context.memory_manager().expect("made").expect("chosen");
    for step in 0..steps {
        let tag = step as u32 | 1 << 31;
        match random.below(100) {
            0..40 if live.len() < 200 => {
                let len = some(&mut random);
                let stream = any(&logs, &mut random);
                let mut memory = enough(&mut guards, || DeviceBuffer::<u32>::uninit(&stream, len));
                model.add(memory.as_raw(), len * 4);
                memory.slice_mut(..1).and_then(|mut its| its.fill(tag)).expect("a fill");
                let last = memory.slice_mut(len - 1..);
                last.and_then(|mut its| its.fill(tag)).expect("a fill");
                live.push(Live { memory, tag });
            }
            40..77 if !live.is_empty() => {
                let Live { memory, tag } = live.swap_remove(random.below(live.len()));
                log_of(&mut logs, memory.stream()).look(&memory, tag);
                model.remove(memory.as_raw());
                match random.below(20) {
                    0 => std::thread::scope(|scope| {
                        scope.spawn(|| drop(memory));
                    }),
                    _ => drop(memory),
                }
            }
            77..80 if !live.is_empty() => {
                let place = random.below(live.len());
                let memory = &mut live[place].memory;
                memory.rebind(&any(&logs, &mut random)).expect("moved");
            }
            80..84 if untyped.len() < 16 => {
                let what = (some(&mut random), tag);
                let its = Untyped::new(context, &logs, &mut random, &mut guards, what);
                model.add(its.address(), its.len() * 4);
                untyped.push(its);
            }
            84..90 if !untyped.is_empty() => {
                let before = untyped.swap_remove(random.below(untyped.len()));
                let len = before.len();
                model.remove(before.address());
                before.end(context, &mut logs, &mut random);
                if random.below(2) == 0 {
                    // The next owner writes the memory at once.
                    let what = (len, tag);
                    let its = Untyped::new(context, &logs, &mut random, &mut guards, what);
                    model.add(its.address(), its.len() * 4);
                    untyped.push(its);
                }
            }
            90..93 => store.add(context, &logs, &mut random, &mut guards),
            93..96 => store.remove(&logs, &mut random),
            96 => {
                // The stream is destroyed after all of its work. A new stream may get the same
                // handle.
                let place = random.below(logs.len());
                while let Some(its) = position(&live, |its| its.memory.stream(), &logs[place]) {
                    let Live { memory, tag } = live.swap_remove(its);
                    logs[place].look(&memory, tag);
                    model.remove(memory.as_raw());
                }
                while let Some(its) = position(&untyped, |its| &its.stream, &logs[place]) {
                    let its = untyped.swap_remove(its);
                    model.remove(its.address());
                    its.end(context, &mut logs, &mut random);
                }
                logs[place].compare();
                let mut log = logs.swap_remove(place);
                model.remove(log.found.as_raw());
                // This work is still pending when the stream is destroyed.
                log.found.fill(SPOILT).expect("a fill");
                let is_lent = log.is_lent();
                drop(log);
                guards.clear();
                logs.push(Log::new(context, is_lent));
                let new = logs.last().expect("just made");
                model.add(new.found.as_raw(), LOG * 4);
            }
            98 => match random.below(4) {
                0 => guards.push(manager.defer_cleanup()),
                1 | 2 => drop(guards.pop()),
                _ => {
                    manager.trim(random.below(1 << 24)).expect("a trim");
                }
            },
            _ => any(&logs, &mut random).synchronize().expect("a wait"),
        }
    }
    drop(guards);
    for its in untyped {
        model.remove(its.address());
        its.end(context, &mut logs, &mut random);
    }
    model.remove(store.range().0);
    store.end(context, &logs, &mut random);
    for Live { memory, tag } in live {
        log_of(&mut logs, memory.stream()).look(&memory, tag);
        model.remove(memory.as_raw());
    }
    for log in &mut logs {
        log.compare();
        model.remove(log.found.as_raw());
    }
    assert_eq!(model.0.len(), 0);
}

/// Returns the number of steps, which is lower in a debug build and under Miri.
fn steps(release: usize) -> usize {
    match cfg!(debug_assertions) {
        _ if cfg!(miri) => 60,
        true => (release / 50).max(4000),
        false => release,
    }
}

/// Runs random steps with a manager in a child process, and checks that nothing is left.
fn with<M: MemoryManager>(
    count: usize,
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
    look: impl FnOnce(&M),
) {
    child::with_gpu(|device| {
        set_memory_manager(move |context| Ok(Ledger::new(make(context)?)))
            .expect("a matching version");
        let leaked = cuda_safe::leaked();
        let context = Context::primary(&device).expect("a context");
        for seed in 0..4 {
            work(&context, seed, count / 4);
        }
        let ledger: &Ledger<M> = manager_as(&context);
        ledger.balance();
        look(&ledger.inner);
        drop(context);
        all_is_gone(&device);
        assert_eq!(cuda_safe::leaked(), leaked);
        clear_memory_manager();
    });
}

fn all_is_gone(device: &Device) {
    assert!(!device.primary_state().expect("known").active);
    if common::is_software() {
        let alive = cuda_sim::alive();
        assert_eq!((alive.device_allocations, alive.events), (0, 0));
        assert_eq!((alive.pinned_allocations, alive.registered), (0, 0));
        assert_eq!(alive.managed_allocations, 0);
        assert_eq!(cuda_sim::misuses(), Vec::<String>::new());
    }
}

fn was_used_and_trims_everything(pool: &CachingManager) {
    let stats = pool.stats();
    assert!(stats.hits != 0 && stats.misses != 0, "{stats:?}");
    pool.trim(0).expect("a trim");
    let after = pool.stats();
    assert_eq!((after.reserved, after.cached(), after.in_use), (0, 0, 0), "{after:?}");
}

fn stays_below_its_limit(pool: &CachingManager) {
    let stats = pool.stats();
    assert!(stats.reserved_peak <= 64 << 20, "{stats:?}");
}

#[test]
fn random_work_with_the_driver_manager() {
    with(steps(20_000), DriverManager::new, |_| {});
}

#[test]
fn random_work_with_a_caching_pool() {
    let options = CachingOptions { slab_bytes: 4 << 20, ..Default::default() };
    let make = move |context: &Context| CachingManager::with(context, options);
    with(steps(1_000_000), make, was_used_and_trims_everything);
}

#[test]
fn random_work_with_a_small_caching_pool() {
    let options = CachingOptions {
        max_bytes: 64 << 20,
        slab_bytes: 4 << 20,
        thread_cache_bytes: 1 << 20,
        ..Default::default()
    };
    let make = move |context: &Context| CachingManager::with(context, options);
    with(steps(100_000), make, stays_below_its_limit);
}

#[test]
fn random_work_with_an_expandable_pool() {
    or_skip!(common::has_virtual_memory(&or_skip!(common::gpu())));
    let make = |context: &Context| CachingManager::expandable(context, CachingOptions::default());
    with(steps(400_000), make, was_used_and_trims_everything);
}

/// Memory is unmapped in the middle of the pool while its neighbors are in use.
#[test]
fn random_work_with_a_small_expandable_pool() {
    or_skip!(common::has_virtual_memory(&or_skip!(common::gpu())));
    let options =
        CachingOptions { max_bytes: 64 << 20, thread_cache_bytes: 1 << 20, ..Default::default() };
    let make = move |context: &Context| CachingManager::expandable(context, options);
    with(steps(50_000), make, stays_below_its_limit);
}

#[test]
fn random_work_with_driver_pools() {
    with(steps(50_000), OrderedManager::new, |_| {});
}

/// All wrappers at once, around a pool with too little memory.
type Wrapped =
    LeakManager<StatisticsManager<LoggingManager<FallbackManager<LimitManager<CachingManager>>>>>;

#[test]
fn random_work_with_all_wrapping_managers() {
    let make = |context: &Context| {
        let options = CachingOptions { slab_bytes: 4 << 20, ..Default::default() };
        let pool = CachingManager::with(context, options)?;
        assert_eq!(pool.options(), options);
        let limited = LimitManager::new(pool, 1 << 20);
        assert_eq!(limited.limit(), 1 << 20);
        let falls_back = FallbackManager::new(limited, Fallback::Host);
        let logged = LoggingManager::new(falls_back, std::io::sink());
        Ok(LeakManager::new(StatisticsManager::new(logged)))
    };
    with(steps(50_000), make, |manager: &Wrapped| {
        assert_eq!(manager.outstanding(), []);
        let statistics = manager.inner().statistics();
        assert_eq!((statistics.used, statistics.freed), (0, statistics.allocated));
        assert_eq!(statistics.failed, 0);
        let falls_back = manager.inner().inner().inner();
        assert!(falls_back.count() != 0);
        assert!(statistics.high > 1 << 20);
        assert_eq!(falls_back.inner().used(), 0);
        manager.inner().inner().flush().expect("a writer that fails");
    });
}

/// Writes a trace of a program, and replays it.
#[test]
fn a_trace_is_written_and_replayed() {
    child::with_gpu(|device| {
        let path = std::env::temp_dir().join(format!("trace-{}.txt", std::process::id()));
        let file = path.clone();
        let make = move |context: &Context| {
            let file = std::fs::File::create(&file).expect("a file");
            let pool = CachingManager::new(context)?;
            Ok(StatisticsManager::new(LoggingManager::new(pool, file)))
        };
        let context = context_with(&device, make);
        let (one, two) = (context.stream().expect("a"), context.stream().expect("b"));
        let bytes = |stream, len| DeviceBuffer::<u8>::uninit(stream, len).expect("memory");
        let (a, b) = (bytes(&one, 1000), bytes(&two, 2000));
        drop(a);
        let c = MemoryPointer::allocate(&context, 3000).expect("memory");
        drop((b, c));

        type Logged = StatisticsManager<LoggingManager<CachingManager>>;
        let manager: &Logged = manager_as(&context);
        manager.sample();
        assert_eq!(manager.timeline().samples().len(), 1);
        manager.inner().flush().expect("written");
        let text = std::fs::read_to_string(&path).expect("the file");
        let trace: Trace = text.parse().expect("a trace");
        assert_eq!((trace.events().len(), trace.high()), (6, 5000));
        let last = trace.events().last().expect("six");
        assert!(last.time() >= trace.events()[0].time());

        let pool = manager.inner().inner();
        // SAFETY: the pool is part of the manager of the context of the streams.
        let replayed = unsafe { trace.replay(pool, &[one, two]) };
        let replayed = replayed.expect("the trace was replayed before");
        assert_eq!((replayed.allocated, replayed.high), (3, 5000));
        assert_eq!(pool.stats().in_use, 0);
        std::fs::remove_file(&path).expect("removed");
    });
}

/// A manager whose blocks are larger than requested.
#[derive(Debug)]
struct Rounding(DriverManager);

// SAFETY: every call is forwarded to the inner manager, with a larger size.
unsafe impl MemoryManager for Rounding {
    fn interface_version() -> u32 {
        1
    }

    fn base(&self) -> &DriverMemory {
        self.0.base()
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        self.0.allocate(size.next_multiple_of(512), order)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.0.free(block, order) }
    }
}

#[test]
fn a_replay_counts_the_bytes_of_larger_blocks() {
    child::with_gpu(|device| {
        let context = context_with(&device, |context| Ok(Rounding(DriverManager::new(context)?)));
        let manager = manager_as::<Rounding>(&context);
        let text = "a 0 1 100 0\nf 1 1 0\na 2 2 600 0\na 3 3 10 0\nf 4 2 0\nf 5 3 0";
        let trace: Trace = text.parse().expect("a trace");
        // SAFETY: the replay uses no stream.
        let replayed = unsafe { trace.replay(manager, &[]) }.expect("memory");
        assert_eq!((replayed.allocated, replayed.high), (3, 1024 + 512));
    });
}

/// Work of several threads on the same streams, each on its own memory.
fn beside_others(streams: &[Stream], model: &Mutex<Model>, seed: u64, steps: usize) {
    let mut random = Random(seed);
    let mut live: Vec<Live> = Vec::new();
    for step in 0..steps {
        if live.len() < 24 && random.below(2) == 0 {
            let stream = &streams[random.below(streams.len())];
            let len = 1 + random.next() as usize % (1 << random.below(16));
            let mut memory = DeviceBuffer::<u32>::uninit(stream, len).expect("memory");
            let lock = || model.lock().expect("no panic");
            lock().add(memory.as_raw(), len * 4);
            let tag = (seed as u32) << 24 | step as u32;
            let first = memory.slice_mut(..1);
            first.and_then(|mut its| its.fill(tag)).expect("a fill");
            live.push(Live { memory, tag });
        } else if !live.is_empty() {
            let Live { memory, tag } = live.swap_remove(random.below(live.len()));
            if random.below(8) == 0 {
                let first = memory.slice(..1).and_then(|its| its.to_vec());
                assert_eq!(first.expect("a copy"), [tag]);
            }
            model.lock().expect("no panic").remove(memory.as_raw());
            drop(memory);
        }
    }
    for Live { memory, .. } in live {
        model.lock().expect("no panic").remove(memory.as_raw());
    }
}

#[test]
fn threads_share_streams_and_a_pool() {
    child::with_gpu(|device| {
        let options = CachingOptions {
            slab_bytes: 4 << 20,
            // So small that the per-thread caches overflow.
            thread_cache_bytes: 256 << 10,
            ..Default::default()
        };
        let context = context_with(&device, move |context| CachingManager::with(context, options));
        let streams: Vec<Stream> = (0..3).map(|_| context.stream().expect("a stream")).collect();
        let model = Mutex::new(Model::default());
        let (threads, count) = if cfg!(miri) { (2, 20) } else { (8, steps(40_000)) };
        std::thread::scope(|scope| {
            for seed in 0..threads {
                let (streams, model) = (&streams, &model);
                scope.spawn(move || beside_others(streams, model, seed, count));
            }
            // One thread creates and destroys streams.
            scope.spawn(|| {
                for seed in threads..5 * threads {
                    let own = [context.stream().expect("a stream")];
                    beside_others(&own, &model, seed, 20);
                    let manager =
                        context.memory_manager().expect("made").expect("the chosen manager");
                    manager.trim(1 << 20).expect("a trim");
                }
            });
        });
        assert_eq!(model.into_inner().expect("no panic").0.len(), 0);
        let pool = context.memory_manager_as::<CachingManager>();
        assert_eq!(pool.expect("made").expect("the chosen manager").stats().in_use, 0);
        drop(streams);
        drop(context);
        all_is_gone(&device);
    });
}
