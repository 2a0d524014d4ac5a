//! A caching pool with too little memory, on several streams: because of its own limit, because of
//! the device's memory, and with a fallback.

use crate::scenarios::manager::managers::choose;
use crate::scenarios::primary;
use crate::trace::Trace;
use cuda_memory::{CacheStats, CachingManager, CachingOptions, Fallback, FallbackManager};
use cuda_safe::manager::{MemoryManager, MemoryPointer};
use cuda_safe::{Context, DeviceBuffer, Error, Result, Stream};
use cuda_sim::fault::limit_memory;

/// The available memory: two pieces, or one whole and one piece. This leaves room for a piece that
/// could not be freed.
const ALL: usize = 6 << 20;
const PIECE: usize = 2 << 20;
const WHOLE: usize = 4 << 20;

fn pool(context: &Context, max_bytes: usize) -> Result<CachingManager> {
    let options = CachingOptions { max_bytes, slab_bytes: 1 << 20, ..Default::default() };
    CachingManager::with(context, options)
}

pub(crate) fn of_the_pool(trace: &mut Trace) -> Result<()> {
    let _chosen = choose(|context| pool(context, ALL));
    let context = primary()?;
    use_all(trace, &context, CachingManager::stats)?;
    end(trace, context)
}

pub(crate) fn of_the_device(trace: &mut Trace) -> Result<()> {
    // In addition to memory that an earlier run could not free.
    let used = cuda_sim::alive().device_bytes;
    let _limit = limit_memory(used + ALL as u64);
    let _chosen = choose(|context| pool(context, 0));
    let context = primary()?;
    use_all(trace, &context, CachingManager::stats)?;
    end(trace, context)
}

pub(crate) fn that_falls_back(trace: &mut Trace) -> Result<()> {
    type FallsBack = FallbackManager<CachingManager>;
    let _chosen = choose(|context| {
        let pool = pool(context, ALL)?;
        Ok(FallbackManager::new(pool, Fallback::Host))
    });
    let context = primary()?;
    use_all(trace, &context, |manager: &FallsBack| manager.inner().stats())?;
    context.synchronize()?;
    let stream = context.stream()?;
    let whole = trace.looks_elsewhere(|| memory(&stream, WHOLE))?;
    let more = trace.looks_elsewhere(|| memory(&stream, WHOLE))?;
    assert_eq!(more.slice(..4)?.to_vec()?, [1; 4]);
    let manager = context.memory_manager_as::<FallsBack>()?;
    assert!(manager.expect("the chosen manager").count() >= 1);
    trace.drop((whole, more, stream));
    end(trace, context)
}

/// Allocates memory and enqueues some fills on it.
fn memory(stream: &Stream, len: usize) -> Result<DeviceBuffer<u8>> {
    let mut memory = DeviceBuffer::uninit(stream, len)?;
    for _ in 0..8 {
        memory.slice_mut(..4)?.fill(1)?;
    }
    Ok(memory)
}

/// Allocates all of it in pieces, then as a whole: on one stream, on another, and without a stream.
/// Only one of them has work at a time, so that each run is the same.
fn use_all<M: MemoryManager>(
    trace: &mut Trace,
    context: &Context,
    stats: impl Fn(&M) -> CacheStats,
) -> Result<()> {
    let (one, two) = (context.stream()?, context.stream()?);
    let piece = || memory(&one, PIECE);
    let pieces = trace.looks_elsewhere(|| Ok::<_, Error>((piece()?, piece()?)))?;
    trace.drop(pieces);
    // The pieces are released for this, after all work.
    let whole = trace.looks_elsewhere(|| memory(&one, WHOLE))?;
    trace.drop(whole);
    // The stream waits for the other stream.
    let mut second = trace.looks_elsewhere(|| DeviceBuffer::<u8>::uninit(&two, WHOLE))?;
    second.slice_mut(..4)?.fill(2)?;
    assert_eq!(second.slice(..4)?.to_vec()?, [2; 4]);
    second.slice_mut(..4)?.fill(3)?;
    trace.drop(second);
    // The host waits.
    let third = trace.looks_elsewhere(|| MemoryPointer::allocate(context, WHOLE))?;
    trace.drop(third);
    let manager = context.memory_manager_as::<M>()?;
    let stats = stats(manager.expect("the chosen manager"));
    // If the stream cannot wait, the host does.
    let waits = (stats.stream_waits, stats.host_waits);
    assert!(waits.0 + waits.1 >= 2, "{stats:?}");
    // If the pool falls back for a piece, that piece is not released.
    assert!(stats.slabs_added >= 2 && stats.slabs <= 2, "{stats:?}");
    trace.drop((one, two));
    Ok(())
}

fn end(trace: &mut Trace, context: Context) -> Result<()> {
    trace.drop(context);
    trace.drops_from_here()
}
