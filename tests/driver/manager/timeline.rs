//! The timeline of a manager: used and cached memory, and its fragmentation.

use super::{context_with, manager_as};
use crate::common::child;
use cuda_memory::{
    CachingManager, CachingOptions, LimitManager, LoggingManager, Sample, StatisticsManager,
};
use cuda_safe::manager::{MemoryManager, MemoryPointer};
use cuda_safe::{Context, DeviceBuffer};

/// A quarter of it is too large for the caches of streams.
const SLAB: usize = 16 << 20;

type Pool = LimitManager<CachingManager>;
type Manager = StatisticsManager<LoggingManager<Pool>>;

#[test]
fn a_timeline_reports_the_cached_memory_of_a_wrapped_pool() {
    child::with_gpu(|device| {
        let context = context_with(&device, |context: &Context| {
            let options = CachingOptions { slab_bytes: SLAB, ..Default::default() };
            let pool = LimitManager::new(CachingManager::with(context, options)?, usize::MAX);
            let logged = LoggingManager::new(pool, std::io::sink());
            Ok(StatisticsManager::new(logged))
        });
        let stream = context.stream().expect("a stream");
        let manager: &Manager = manager_as(&context);
        let look = || {
            manager.sample();
            let timeline = manager.timeline();
            let Sample { classes, cached, fragmentation, .. } =
                timeline.samples().last().expect("the slab that was just allocated");
            (classes.iter().sum::<u64>(), *cached, *fragmentation)
        };
        assert_eq!(look(), (0, 0, 0.0));
        let quarter = SLAB / 4;
        let bytes = || DeviceBuffer::<u8>::uninit(&stream, quarter).expect("memory");
        let all = [bytes(), bytes(), bytes(), bytes()];
        assert_eq!(look(), (SLAB as u64, 0, 0.0), "the whole slab is in use");
        let [first, second, third, fourth] = all;
        drop((first, third));
        stream.synchronize().expect("a wait");
        // Each of two pieces that do not touch is half of the cached memory.
        let half = SLAB as u64 / 2;
        assert_eq!(look(), (half, half, 0.5));
        drop((second, fourth));
        stream.synchronize().expect("a wait");
        let (used, cached, fragmentation) = look();
        assert_eq!((used, cached), (0, SLAB as u64));
        assert_eq!(fragmentation, 0.0, "in one piece");
        manager.trim(0).expect("a trim");
        assert_eq!(look(), (0, 0, 0.0));
        drop(MemoryPointer::allocate(&context, 1).expect("memory"));
    });
}
