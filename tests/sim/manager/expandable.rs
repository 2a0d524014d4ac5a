//! Expandable pools: the memory that they map, unmap and reserve.
#![cfg(target_os = "linux")]

use crate::prelude::*;
use cuda_memory::trace::Trace;
use cuda_safe::manager::clear_memory_manager;
use std::io::Write;

const PAGE: usize = 2 << 20;

/// Creates an expandable pool that is not the manager of its context.
fn with_pool(options: CachingOptions) -> (AtEnd, Context, CachingManager) {
    let (end, context) = on(Profile::h200());
    let pool = CachingManager::expandable(&context, options).expect("a pool");
    let end = end.after(|| {
        crate::context().synchronize().expect("a wait");
        cuda_safe::attempt_deferred_releases();
    });
    (end, context, pool)
}

fn free(pool: &CachingManager, block: Block, order: Order<'_>) {
    // SAFETY: the block belongs to the pool, and only work in that order uses it.
    unsafe { pool.free(block, order) };
}

fn busy(stream: &Stream, block: &Block) {
    // SAFETY: the block is allocated, and belongs to the order of the stream.
    let memory = unsafe { DeviceBuffer::<u32>::borrow_raw(block.address, 4, stream) };
    memory.expect("memory").fill(7).expect("a fill");
}

#[test]
fn a_request_extends_the_free_memory_at_the_end() {
    let (_end, context, pool) = in_child!(with_pool(CachingOptions::default()));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let mut addresses = Vec::new();
    for pages in 1..=8 {
        let mapped = count("cuMemMap", || {
            let block = pool.allocate(pages * PAGE, order).expect("memory");
            addresses.push(block.address);
            busy(&stream, &block);
            free(&pool, block, order);
        });
        assert_eq!(mapped, 1);
        assert_eq!(pool.stats().reserved, pages * PAGE);
    }
    addresses.dedup();
    assert_eq!(addresses.len(), 1);
    assert_eq!(pool.stats().slabs, 8);
    assert_eq!(alive().device_allocations, 0);
}

#[test]
fn a_trim_waits_for_the_work_and_unmaps_around_memory_in_use() {
    let (_end, context, pool) = in_child!(with_pool(CachingOptions::default()));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let blocks: Vec<Block> = (0..5).map(|_| pool.allocate(PAGE, order).expect("memory")).collect();
    for block in &blocks {
        busy(&stream, block);
    }
    for place in [0, 1, 3] {
        free(&pool, blocks[place], order);
    }
    assert_eq!(pool.trim(PAGE).expect("a trim"), 2 * PAGE);
    assert_eq!(pool.stats().host_waits, 1);
    assert_eq!((pool.stats().reserved, pool.stats().in_heap), (3 * PAGE, PAGE));
    assert_eq!(pool.trim(0).expect("a trim"), PAGE);
    assert_eq!(alive().physical_allocations, 2);
    // The two pages before the block in use are mapped again.
    let again = pool.allocate(2 * PAGE, order).expect("memory");
    assert_eq!(again.address, blocks[0].address);
    for block in [again, blocks[2], blocks[4]] {
        busy(&stream, &block);
        free(&pool, block, order);
    }
    pool.reset();
    assert_eq!((pool.stats().reserved, alive().physical_allocations), (0, 0));
}

#[test]
fn memory_is_unmapped_when_there_is_not_enough() {
    let (_end, context, pool) = in_child!(with_pool(CachingOptions::default()));
    let _limit = limit_memory(8 * PAGE as u64);
    let (one, other) = (context.stream().expect("a"), context.stream().expect("a"));
    let (one, other) = (persistent(one.as_raw()), persistent(other.as_raw()));
    let kept = pool.allocate(PAGE, one).expect("memory");
    let large = pool.allocate(4 * PAGE, one).expect("memory");
    let end = pool.allocate(PAGE, one).expect("memory");
    free(&pool, large, one);
    // The four free pages in the middle are too few.
    let larger = pool.allocate(6 * PAGE, other).expect("memory");
    assert_eq!(pool.stats().reserved, 8 * PAGE);
    let error = pool.allocate(PAGE, other).map(drop).expect_err("no memory");
    assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    for (block, order) in [(kept, one), (end, one), (larger, other)] {
        free(&pool, block, order);
    }
}

#[test]
fn a_limit_applies_to_the_mapped_memory() {
    let options = CachingOptions { max_bytes: 3 * PAGE, ..Default::default() };
    let (_end, _rest0, pool) = in_child!(with_pool(options));
    let block = pool.allocate(2 * PAGE, Order::NONE).expect("memory");
    let error = pool.allocate(2 * PAGE, Order::NONE).expect_err("a limit");
    assert!(matches!(&error, Error::Invalid(what)
        if matches!(**what, Invalid::MemoryLimit { .. })));
    free(&pool, block, Order::NONE);
    let block = pool.allocate(3 * PAGE, Order::NONE).expect("memory");
    free(&pool, block, Order::NONE);
}

#[test]
fn a_dropped_pool_waits_for_the_work_of_every_context() {
    let (_end, context, pool) = in_child!(with_pool(CachingOptions::default()));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let block = pool.allocate(PAGE, order).expect("memory");
    // Not merged with the next block, whose work is that of another context.
    let between = pool.allocate(PAGE, order).expect("memory");
    let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let foreign = other.stream().expect("a stream");
    let its = pool.allocate(PAGE, Order::NONE).expect("memory");
    busy(&foreign, &its);
    free(&pool, its, Order::of(&foreign));
    busy(&stream, &block);
    free(&pool, block, order);
    // A wait for the context of the pool does not cover that work, so this page stays mapped.
    pool.trim(0).expect("a trim");
    assert_eq!(pool.stats().reserved, 2 * PAGE);
    free(&pool, between, order);
    drop(pool);
    assert_eq!(alive().physical_allocations, 0);
}

#[test]
fn a_failed_step_of_a_growth_unwinds() {
    const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;
    let (_end, _rest0, pool) = in_child!(with_pool(CachingOptions::default()));
    for function in ["cuMemCreate", "cuMemMap", "cuMemSetAccess"] {
        let fault = fail(function, 1, UNKNOWN);
        let error = pool.allocate(PAGE, Order::NONE).expect_err("a fault");
        assert_eq!(error.code(), Some(UNKNOWN), "{function}");
        drop(fault);
        assert_eq!(alive().physical_allocations, 0, "{function}");
    }
    let block = pool.allocate(PAGE, Order::NONE).expect("memory");
    free(&pool, block, Order::NONE);
    assert_eq!(pool.stats().slabs_added, 1);
}

#[test]
fn virtual_memory_has_no_ipc_handle() {
    let (_end, _rest0, pool) = in_child!(with_pool(CachingOptions::default()));
    let block = pool.allocate(PAGE, Order::NONE).expect("memory");
    let error = pool.ipc_handle(&block).map(drop).expect_err("virtual");
    assert!(matches!(&error, Error::Invalid(what)
        if matches!(**what, Invalid::NotShareable { memory: "virtual" })));
    free(&pool, block, Order::NONE);
}

/// A trace in memory.
#[derive(Clone, Default)]
struct Record(Arc<Mutex<Vec<u8>>>);

impl Write for Record {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Records the allocations of a program.
fn record(program: impl FnOnce(&[Stream; 2]) -> Result<()>) -> Trace {
    let log = Record::default();
    let its = log.clone();
    set_memory_manager(move |context| {
        Ok(LoggingManager::new(CachingManager::new(context)?, its.clone()))
    })
    .expect("a matching version");
    let context = crate::context();
    clear_memory_manager();
    let streams = [context.stream(), context.stream()].map(|its| its.expect("a stream"));
    program(&streams).expect("memory");
    drop((streams, context));
    let text = log.0.lock().expect("no panic").clone();
    let text = String::from_utf8(text).expect("text");
    text.parse().expect("a trace")
}

type Buffer = DeviceBuffer<u8>;

/// Steps of a training loop: activations that grow and shrink, gradients, and a batch of another size
/// now and then.
fn train([compute, copies]: &[Stream; 2]) -> Result<()> {
    let weights = (0..12).map(|layer| Buffer::uninit(compute, (layer % 4 + 1) << 20));
    let weights: Vec<Buffer> = weights.collect::<Result<_>>()?;
    for step in 0..21 {
        let batch = if step % 20 == 19 { 3 } else { 8 };
        let mut input = Buffer::uninit(copies, batch << 17)?;
        input.rebind(compute)?;
        let mut activations = Vec::new();
        for layer in 0..12 {
            activations.push(Buffer::uninit(compute, (batch * (layer % 3 + 1)) << 18)?);
            drop(Buffer::uninit(compute, batch << 15)?);
        }
        for activation in activations.into_iter().rev() {
            drop((Buffer::uninit(compute, activation.len())?, activation));
        }
    }
    drop(weights);
    Ok(())
}

/// Decoding with lists of keys and values that grow by copies to larger buffers, for sequences that begin
/// and end at different times.
fn decode([compute, _]: &[Stream; 2]) -> Result<()> {
    let mut sequences: Vec<Vec<Buffer>> = Vec::new();
    let mut random = crate::common::random::Random(5);
    for step in 0..250 {
        if sequences.len() < 6 && step % 9 == 0 {
            sequences
                .push((0..4).map(|_| Buffer::uninit(compute, 1 << 18)).collect::<Result<_>>()?);
        }
        for sequence in &mut sequences {
            let place = random.below(sequence.len());
            let larger = sequence[place].len() / 16 * 19;
            sequence[place] = Buffer::uninit(compute, larger.min(48 << 20))?;
            drop(Buffer::uninit(compute, 300_000)?);
        }
        if step % 31 == 30 {
            sequences.swap_remove(random.below(sequences.len()));
        }
    }
    drop(sequences);
    Ok(())
}

/// Buffers of random sizes up to 64 MiB.
fn shuffle([stream, _]: &[Stream; 2]) -> Result<()> {
    let mut random = crate::common::random::Random(11);
    let mut live = Vec::new();
    for _ in 0..2000 {
        if live.len() < 16 && random.below(2) == 0 {
            let size = 1 + random.next() as usize % (1 << (8 + random.below(19)));
            live.push(Buffer::uninit(stream, size)?);
        } else if !live.is_empty() {
            drop(live.swap_remove(random.below(live.len())));
        }
    }
    drop(live);
    Ok(())
}

/// Returns the most memory that a pool reserves in a replay on its own streams.
fn peak(trace: &Trace, make: fn(&Context, CachingOptions) -> Result<CachingManager>) -> usize {
    set_memory_manager(move |context| make(context, CachingOptions::default()))
        .expect("a matching version");
    let context = crate::context();
    clear_memory_manager();
    let streams = [context.stream(), context.stream()].map(|its| its.expect("a stream"));
    let pool = context.memory_manager_as::<CachingManager>();
    let pool = pool.expect("made").expect("it is the manager");
    // SAFETY: the pool is the manager of the streams' context.
    unsafe { trace.replay(pool, &streams) }.expect("memory");
    pool.stats().reserved_peak
}

/// The high-water marks of replays of recorded traces. The test prints the numbers.
#[test]
fn an_expandable_pool_reserves_at_most_as_much_as_one_with_slabs() {
    in_child!();
    start(Profile::h200());
    for (name, program) in [
        ("training", train as fn(&[Stream; 2]) -> Result<()>),
        ("decoding", decode),
        ("random sizes", shuffle),
    ] {
        let trace = record(program);
        let slabs = peak(&trace, CachingManager::with);
        let expandable = peak(&trace, CachingManager::expandable);
        let share = |bytes: usize| bytes as f64 / trace.high() as f64;
        let numbers = format!(
            "{name}: {} events, live {:.1} MiB; reserved by slabs {:.2}, expandable {:.2}",
            trace.events().len(),
            trace.high() as f64 / f64::from(1 << 20),
            share(slabs),
            share(expandable)
        );
        eprintln!("note: {numbers}");
        assert!(expandable <= slabs, "{numbers}");
    }
    crate::check();
}
