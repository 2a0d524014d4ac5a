//! Measures an allocation and its free with different memory managers, on one thread and on several.

use crate::time::Spread;
use crate::work::ok;
use crate::{Fallible, driver};
use cuda_memory::trace::Trace;
use cuda_memory::{CachingManager, CachingOptions, OrderedManager};
use cuda_safe::manager::{MemoryManager, Order, clear_memory_manager, set_memory_manager};
use cuda_safe::memory::pool::attribute::RESERVED_HIGH;
use cuda_safe::{Context, ContextFlags, Device, DeviceBuffer, Stream};
use cuda_sys::CUstream;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

const SIZE: usize = 1 << 20;
/// Number of pairs in a batch.
const BATCH: usize = 200_000;

/// Runs a number of pairs on a stream.
type Pairs<'a> = Box<dyn Fn(&Stream, usize) + Sync + 'a>;

/// A way to allocate memory and to free it immediately.
struct Way<'a> {
    name: &'static str,
    run: Pairs<'a>,
    /// The maximum number of pairs in a batch.
    batch: usize,
}

/// The options of a measurement.
pub(crate) struct Options<'a> {
    pub(crate) rounds: usize,
    pub(crate) threads: usize,
    pub(crate) null: bool,
    /// A file with a trace to replay instead.
    pub(crate) trace: Option<&'a str>,
}

pub(crate) fn run(options: &Options<'_>) -> Fallible<()> {
    let Options { rounds, threads, null, trace } = *options;
    let driver = driver::open(null)?;
    println!("{}\n", driver.name());
    set_memory_manager(CachingManager::new)?;
    let context = Context::primary(&Device::get(0)?)?;
    clear_memory_manager();
    let pool = context.memory_manager_as::<CachingManager>()?;
    let pool = pool.ok_or("the context already has another memory manager")?;
    // With the driver that does nothing, all created streams would have the same handle.
    let streams: Vec<Stream> = (0..threads)
        .map(|number| stream(&context, number, driver.is_null()))
        .collect::<Result<_, _>>()?;
    if let Some(path) = trace {
        let trace: Trace = std::fs::read_to_string(path)?.parse()?;
        return replay(&trace, pool, &streams, rounds, driver.is_null());
    }
    let ways = ways(pool);
    println!(
        "| allocate, free 1 MiB, ns per pair | 1 thread | {threads} threads, own streams | speed-up | {threads} threads, one stream | speed-up |"
    );
    println!("|---|--:|--:|--:|--:|--:|");
    let mut times = vec![[Vec::new(), Vec::new(), Vec::new()]; ways.len()];
    // Alternately, so that other load on the machine affects all of them equally.
    for round in 0..rounds.min(51) + 1 {
        for (way, times) in ways.iter().zip(&mut times) {
            let alone = together(way, &streams[..1]);
            let own = together(way, &streams);
            let one = together(way, &vec![streams[0].clone(); threads]);
            if round != 0 {
                times[0].push(alone);
                times[1].push(own);
                times[2].push(one);
            }
        }
    }
    for (way, [alone, own, one]) in ways.iter().zip(times) {
        let [alone, own, one] = [alone, own, one].map(Spread::of);
        println!(
            "| {} | {:.1} [{:.1}..{:.1}] | {:.1} | {:.1} | {:.1} | {:.1} |",
            way.name,
            alone.median,
            alone.low,
            alone.high,
            own.median,
            alone.median / own.median,
            one.median,
            alone.median / one.median,
        );
    }
    println!("\n{:?}", pool.stats());
    Ok(())
}

/// Replays a trace with caching pools of slabs and of virtual memory, and with the driver's pool. Prints
/// the time and the peak memory.
fn replay(
    trace: &Trace,
    pool: &CachingManager,
    streams: &[Stream],
    rounds: usize,
    is_null: bool,
) -> Fallible<()> {
    let context = streams[0].context().clone();
    let drivers = OrderedManager::new(&context)?;
    println!(
        "{} events, peak use {:.1} MiB\n",
        trace.events().len(),
        trace.high() as f64 / f64::from(1 << 20)
    );
    println!("| replayed with | µs, first time | µs, again | peak MiB reserved |");
    println!("|---|--:|--:|--:|");
    // The manager of a context of its own: a pool has no caches for streams of other managers.
    set_memory_manager(|context| CachingManager::expandable(context, CachingOptions::default()))?;
    let other = Context::new(&context.device(), ContextFlags::default());
    clear_memory_manager();
    let other = other?;
    let expandable = other.memory_manager_as::<CachingManager>()?;
    let expandable = expandable.ok_or("the context already has another memory manager")?;
    let others: Vec<Stream> = (0..streams.len())
        .map(|number| stream(&other, streams.len() + number, is_null))
        .collect::<Result<_, _>>()?;
    let managers: [(&str, &dyn MemoryManager, &[Stream]); 3] = [
        ("the caching pool", pool, streams),
        ("the expandable caching pool", expandable, &others),
        ("the driver's pool", &drivers, streams),
    ];
    let mut rows: Vec<(&str, f64, Vec<f64>)> = Vec::new();
    for round in 0..rounds.min(21) + 1 {
        for (place, (name, manager, streams)) in managers.into_iter().enumerate() {
            let start = Instant::now();
            // SAFETY: each pool is the manager of the context of its streams, and the streams of the other
            // manager outlive it.
            black_box(unsafe { trace.replay(manager, streams) }?);
            let time = start.elapsed().as_secs_f64() * 1e6;
            for stream in streams {
                stream.synchronize()?;
            }
            match round {
                0 => rows.push((name, time, Vec::new())),
                _ => rows[place].2.push(time),
            }
        }
    }
    let reserved = drivers.pool().map(|pool| pool.attribute(RESERVED_HIGH));
    let reserved = [
        pool.stats().reserved_peak as u64,
        expandable.stats().reserved_peak as u64,
        reserved.unwrap_or(Ok(0))?,
    ];
    for ((name, first, again), bytes) in rows.into_iter().zip(reserved) {
        let again = Spread::of(again);
        println!(
            "| {name} | {first:.0} | {:.0} [{:.0}..{:.0}] | {:.1} |",
            again.median,
            again.low,
            again.high,
            bytes as f64 / f64::from(1 << 20)
        );
    }
    println!("\n{:?}\n{:?}", pool.stats(), expandable.stats());
    Ok(())
}

fn stream(context: &Context, number: usize, is_null: bool) -> cuda_safe::Result<Stream> {
    if !is_null {
        return context.stream();
    }
    let handle = std::ptr::without_provenance_mut((number + 1) << 12);
    // SAFETY: for a driver that does nothing, every handle is a valid stream. (A borrowed stream does
    // not work here, because a manager does not cache memory for it.)
    unsafe { Stream::from_foreign(handle, context, ()) }
}

fn ways(pool: &CachingManager) -> Vec<Way<'_>> {
    vec![
        Way {
            name: "the caching pool",
            run: Box::new(move |stream, count| {
                let order = Order::of(stream);
                for _ in 0..count {
                    let block = ok(pool.allocate(SIZE, order));
                    // SAFETY: the block is freed once and is not used.
                    unsafe { pool.free(black_box(block), order) };
                }
            }),
            batch: BATCH,
        },
        Way {
            name: "the same, by a `DeviceBuffer`",
            run: Box::new(|stream, count| {
                for _ in 0..count {
                    drop(black_box(ok(DeviceBuffer::<u8>::uninit(stream, SIZE))));
                }
            }),
            batch: BATCH,
        },
        Way {
            name: "`cuMemAllocAsync`, `cuMemFreeAsync`",
            run: Box::new(|stream, count| {
                let stream = stream.as_raw();
                for _ in 0..count {
                    in_order(stream);
                }
            }),
            batch: BATCH / 20,
        },
    ]
}

fn in_order(stream: CUstream) {
    let mut address = 0;
    // SAFETY: the stream is alive, and the pointer is to a local variable.
    let code = unsafe { cuda_sys::cuMemAllocAsync(&raw mut address, SIZE, stream) };
    assert!(code.is_success(), "{code}");
    // SAFETY: the memory was just allocated on this stream.
    let code = unsafe { cuda_sys::cuMemFreeAsync(black_box(address), stream) };
    assert!(code.is_success(), "{code}");
}

/// Returns nanoseconds per pair for all threads together: from the first start to the last end.
fn together(way: &Way<'_>, streams: &[Stream]) -> f64 {
    let all_are_there = Barrier::new(streams.len());
    let work = |stream: &Stream| {
        // A first run, for objects that are created on first use.
        (way.run)(stream, 10);
        all_are_there.wait();
        let start = Instant::now();
        (way.run)(stream, way.batch);
        let end = Instant::now();
        // Wait for the work that the thread has enqueued, if any.
        ok(stream.synchronize());
        (start, end)
    };
    let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
        let threads = streams.iter().map(|stream| scope.spawn(|| work(stream)));
        // All threads must be started before the first is joined.
        let threads: Vec<_> = threads.collect();
        let times = threads.into_iter().map(|thread| thread.join());
        times.filter_map(Result::ok).collect()
    });
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    let time = end.zip(start).map(|(end, start)| end - start);
    let pairs = (way.batch * times.len()) as f64;
    time.map_or(f64::NAN, |time| time.as_nanos() as f64 / pairs)
}
