//! Managers under load from kernels: each kernel writes its pattern late into its memory, another
//! kernel checks the pattern, and the memory is reused while both are still running. On a GPU this
//! runs for some seconds with each manager, on threads that share streams.

mod loose;

use self::loose::Loose;
use crate::common::random::Random;
use crate::common::{self, child};
use crate::module::kernels::{PATTERN, kernel_of};
use cuda_memory::{
    CachingManager, CachingOptions, Fallback, FallbackManager, LimitManager, OrderedManager,
};
use cuda_safe::manager::{DriverManager, MemoryManager, clear_memory_manager, set_memory_manager};
use cuda_safe::{Context, DeviceBuffer, LaunchConfig, Module, Result, Stream, TypedKernel};
use std::time::{Duration, Instant};

type Write = TypedKernel<(&'static mut [u32], u32, u32, u32)>;
type Check = TypedKernel<(&'static [u32], u32, u32, &'static mut [u32])>;

const THREADS: usize = 3;
const STREAMS: usize = 6;

/// The threads of a block, and the elements of the largest memory, as a power of two.
const BLOCK: u32 = if cfg!(miri) { 8 } else { 256 };
const LARGEST: usize = if cfg!(miri) { 5 } else { 18 };
/// The patterns that the threads check together at least.
const CHECKED: usize = if cfg!(miri) { 3 } else { 100 };

/// Memory that holds the pattern of its tag.
struct Live {
    memory: DeviceBuffer<u32>,
    tag: u32,
}

/// When the test ends: on the software driver after a number of steps, on a GPU after some time.
struct End {
    steps: usize,
    half_time: Instant,
    time: Instant,
}

impl End {
    fn new() -> Self {
        let (steps, seconds) = match (common::is_software(), cfg!(debug_assertions)) {
            _ if cfg!(miri) => (15, 3600),
            (true, true) => (300, 3600),
            (true, false) => (20_000, 3600),
            (false, _) => (usize::MAX, 7),
        };
        let now = Instant::now();
        Self {
            steps,
            half_time: now + Duration::from_secs(seconds) / 2,
            time: now + Duration::from_secs(seconds),
        }
    }

    /// Returns whether half of the time is over. Raw handles of streams are used only afterwards,
    /// because from then on every call checks whether a stream captures.
    fn shows_handles(&self, step: usize) -> bool {
        step >= self.steps / 2 || Instant::now() >= self.half_time
    }

    fn has_come(&self, step: usize) -> bool {
        step >= self.steps || step % 64 == 0 && Instant::now() >= self.time
    }
}

struct Kernels {
    write: Write,
    check: Check,
}

impl Kernels {
    fn new(context: &Context) -> Self {
        let module = Module::from_ptx(context, PATTERN).expect("the test kernels");
        Self {
            write: kernel_of(&module, "write_pattern"),
            check: kernel_of(&module, "check_pattern"),
        }
    }

    /// Launches a kernel that spins and then writes.
    fn write(&self, memory: &mut DeviceBuffer<u32>, tag: u32, cycles: u32) {
        let (stream, n) = (memory.stream().clone(), memory.len() as u32);
        let config = LaunchConfig::linear(n.div_ceil(BLOCK).clamp(1, 8), BLOCK);
        let cycles = if cfg!(miri) { 0 } else { cycles };
        // SAFETY: the kernel writes the first n elements of the memory, which has n.
        let given = unsafe { self.write.launch(&stream, config, (memory, n, tag, cycles)) };
        given.expect("a launch");
    }

    /// Counts the elements without the pattern of their tag.
    fn check(&self, live: &Live, wrong: &mut DeviceBuffer<u32>) {
        let (stream, n) = (live.memory.stream().clone(), live.memory.len() as u32);
        let config = LaunchConfig::linear(n.div_ceil(BLOCK).clamp(1, 8), BLOCK);
        let arguments = (&live.memory, n, live.tag, wrong);
        // SAFETY: the kernel reads the first n elements of the memory, which has n, and writes
        // three others.
        unsafe { self.check.launch(&stream, config, arguments) }.expect("a launch");
    }
}

/// Runs the steps of one thread, on streams that other threads use too. Returns how many patterns
/// were checked.
fn work(context: &Context, streams: &[Stream], kernels: &Kernels, thread: usize) -> usize {
    let mut random = Random(thread as u64);
    let end = End::new();
    let mut wrong: Vec<DeviceBuffer<u32>> =
        streams.iter().map(|stream| DeviceBuffer::zeroed(stream, 3).expect("memory")).collect();
    let mut live: Vec<Live> = Vec::new();
    let mut loose: Vec<Loose> = Vec::new();
    let place_of = |its: &Live| {
        let place = streams.iter().position(|one| one == its.memory.stream());
        place.expect("one of these streams")
    };
    let (mut checked, mut step) = (0, 0);
    while !end.has_come(step) {
        step += 1;
        // Small and large sizes are equally frequent, up to 512 KiB.
        let most = 1 << random.below(LARGEST);
        let len = 1 + random.below(most);
        let stream = &streams[random.below(STREAMS)];
        let tag = (thread << 28 | step & 0x0fff_ffff) as u32;
        match random.below(100) {
            0..40 if live.len() < 24 => {
                let mut memory = DeviceBuffer::<u32>::uninit(stream, len).expect("memory");
                kernels.write(&mut memory, tag, random.below(100_000) as u32);
                live.push(Live { memory, tag });
            }
            40..80 if !live.is_empty() => {
                let its = live.swap_remove(random.below(live.len()));
                kernels.check(&its, &mut wrong[place_of(&its)]);
                checked += 1;
                // Both kernels are still pending at this point.
                drop(its);
            }
            80..85 if loose.len() < 8 => {
                let shows = end.shows_handles(step);
                loose.push(Loose::new(stream, kernels, &mut random, shows, (len, tag)));
            }
            85..92 if !loose.is_empty() => {
                let its = loose.swap_remove(random.below(loose.len()));
                kernels.check(&its.live, &mut wrong[place_of(&its.live)]);
                checked += 1;
                let (len, shows) = (its.len(), end.shows_handles(step));
                its.end(&streams[random.below(STREAMS)], kernels, &mut random, shows);
                // The next owner writes the memory at once.
                loose.push(Loose::new(stream, kernels, &mut random, shows, (len, tag)));
            }
            92..96 if !live.is_empty() => {
                let place = random.below(live.len());
                live[place].memory.rebind(stream).expect("moved");
            }
            96 => {
                // The stream is destroyed with pending work, and its handle may soon be reused.
                let own = context.stream().expect("a stream");
                let some = if cfg!(miri) { 5 } else { 5000 };
                let mut memory = DeviceBuffer::<u32>::uninit(&own, some).expect("memory");
                kernels.write(&mut memory, 7, 50_000);
                drop(memory);
                let shows = end.shows_handles(step);
                let loose = Loose::new(&own, kernels, &mut random, shows, (len, tag));
                loose.end(&own, kernels, &mut random, shows);
                drop(own);
            }
            97 => stream.synchronize().expect("a wait"),
            98 if random.below(20) == 0 => {
                let manager = context.memory_manager().expect("made").expect("chosen");
                manager.trim(1 << 22).expect("a trim");
            }
            _ => {}
        }
    }
    drop((live, loose));
    for wrong in wrong {
        let found = wrong.to_vec().expect("a copy");
        assert_eq!(
            found[0], 0,
            "elements were changed: one of tag {:#x} is {:#x}",
            found[1], found[2]
        );
    }
    checked
}

/// Runs kernels on several threads with a manager, in a child process, and checks that nothing is
/// left.
fn with<M: MemoryManager>(make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static) {
    child::with_gpu(|device| {
        set_memory_manager(make).expect("a matching version");
        let leaked = cuda_safe::leaked();
        let context = Context::primary(&device).expect("a context");
        let kernels = Kernels::new(&context);
        let streams: Vec<Stream> =
            (0..STREAMS).map(|_| context.stream().expect("a stream")).collect();
        let checked: usize = std::thread::scope(|scope| {
            let (context, streams, kernels) = (&context, &streams, &kernels);
            let threads: Vec<_> = (1..=THREADS)
                .map(|thread| scope.spawn(move || work(context, streams, kernels, thread)))
                .collect();
            let ended = threads.into_iter().map(|its| its.join().expect("no panic"));
            ended.sum()
        });
        eprintln!("note: {checked} patterns of kernels were checked");
        assert!(checked > CHECKED);
        drop((streams, kernels, context));
        assert!(!device.primary_state().expect("known").active);
        assert_eq!(cuda_safe::leaked(), leaked);
        if common::is_software() {
            assert_eq!(cuda_sim::alive().device_allocations, 0);
            assert_eq!(cuda_sim::misuses(), Vec::<String>::new());
        }
        clear_memory_manager();
    });
}

#[test]
fn kernels_with_a_caching_pool() {
    let options = CachingOptions { slab_bytes: 4 << 20, ..Default::default() };
    with(move |context| CachingManager::with(context, options));
}

/// The pool is so small that streams wait for each other and for the host.
#[test]
fn kernels_with_a_small_caching_pool() {
    let options = CachingOptions {
        max_bytes: 24 << 20,
        slab_bytes: 2 << 20,
        thread_cache_bytes: 512 << 10,
        ..Default::default()
    };
    with(move |context| {
        let pool = CachingManager::with(context, options)?;
        Ok(FallbackManager::new(pool, Fallback::Managed))
    });
}

#[test]
fn kernels_with_driver_pools() {
    with(OrderedManager::new);
}

#[test]
fn kernels_with_the_driver_manager() {
    with(DriverManager::new);
}

#[test]
fn kernels_with_wrapping_managers() {
    with(|context| {
        let limited = LimitManager::new(CachingManager::new(context)?, 1 << 30);
        Ok(FallbackManager::new(limited, Fallback::Host))
    });
}
