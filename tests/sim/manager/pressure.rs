//! Memory managers that run out of memory, whose driver calls fail, or whose streams end.
#![cfg(unix)]

use crate::manager::inside::{SMALL, bytes, small, with};
use crate::prelude::*;
use crate::software::call_log::called;
use cuda_safe::stream::WaitCondition;

const UNKNOWN: CUresult = CUresult::CUDA_ERROR_UNKNOWN;
const RECORD: &str = "cuEventRecord";
const CREATE: &str = "cuEventCreate";
const ALLOCATE: &str = "cuMemAlloc_v2";
const WAIT_FOR_ALL: &str = "cuCtxSynchronize_v2";

fn slabs_of(slab_bytes: usize) -> CachingOptions {
    CachingOptions { slab_bytes, ..Default::default() }
}

/// Creates a pool that is not the manager of its context.
fn with_pool(options: CachingOptions) -> (AtEnd, Context, Arc<CachingManager>) {
    let (end, context) = on(Profile::h200());
    let pool = Arc::new(CachingManager::with(&context, options).expect("a pool"));
    let its = Arc::clone(&pool);
    let end = end.after(move || {
        assert_eq!(its.stats().in_use, 0);
        drop(its);
        crate::context().synchronize().expect("a wait");
    });
    (end, context, pool)
}

/// Returns the pool that is the manager of the context.
fn pool(context: &Context) -> &CachingManager {
    let pool = context.memory_manager_as::<CachingManager>();
    pool.expect("made").expect("it is the manager")
}

/// Returns a function that creates a pool with a limit.
fn limited(max_bytes: usize) -> impl Fn(&Context) -> Result<CachingManager> + Send + Sync {
    move |context| CachingManager::with(context, CachingOptions { max_bytes, ..slabs_of(SMALL) })
}

fn free(manager: &impl MemoryManager, block: Block, order: Order<'_>) {
    // SAFETY: the block is of the manager, and nothing uses it.
    unsafe { manager.free(block, order) };
}

/// The event is for the end of the stream, which may occur where no event can be created.
#[test]
fn the_first_allocation_on_a_stream_creates_an_event() {
    let (_end, context, pool) = in_child!(with_pool(slabs_of(SMALL)));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let mut blocks = Vec::new();
    let mut allocate = || blocks.push(pool.allocate(1000, order).expect("memory"));
    assert_eq!(count(CREATE, &mut allocate), 1);
    assert_eq!(count(CREATE, &mut allocate), 0);
    for block in blocks {
        free(&*pool, block, order);
    }
    cuda_sim::clear_calls();
    // SAFETY: the stream is alive and not captured, and no other thread uses it.
    pool.stream_ends(&unsafe { StreamEnd::of_raw(stream.as_raw()) });
    assert_eq!((called(CREATE), called(RECORD)), (0, 1));
}

#[test]
fn the_end_of_the_legacy_stream_is_announced_by_either_handle() {
    let (_end, _rest0, pool) = in_child!(with_pool(slabs_of(SMALL)));
    let null = std::ptr::null_mut();
    for raw in [null, CU_STREAM_LEGACY] {
        let block = pool.allocate(1000, persistent(null)).expect("memory");
        free(&*pool, block, persistent(null));
        assert_eq!(pool.stats().in_thread_caches, 1024);
        // SAFETY: the default stream is alive and not captured.
        pool.stream_ends(&unsafe { StreamEnd::of_raw(raw) });
        assert_eq!(pool.stats().in_thread_caches, 0);
    }
}

#[test]
fn the_hits_of_a_stream_are_counted_after_its_end() {
    let (_end, context) = in_child!(with(small));
    let stream = context.stream().expect("a stream");
    for _ in 0..11 {
        drop(bytes(&stream, 1000));
    }
    assert_eq!(pool(&context).stats().hits, 10);
    drop(stream);
    assert_eq!(pool(&context).stats().hits, 10);
    let stream = context.stream().expect("a stream");
    for _ in 0..3 {
        drop(bytes(&stream, 1000));
    }
    drop(stream);
    assert_eq!(pool(&context).stats().hits, 12);
}

/// The pool is not notified when such a stream ends.
#[test]
fn memory_of_a_stream_of_a_context_with_another_manager_gets_an_event() {
    let (_end, context, pool) = in_child!(with_pool(slabs_of(SMALL)));
    let stream = context.stream().expect("a stream");
    for _ in 0..2 {
        let block = pool.allocate(1000, Order::of(&stream)).expect("memory");
        assert_eq!(count(RECORD, || free(&*pool, block, Order::of(&stream))), 1);
        assert_eq!(pool.stats().in_thread_caches, 0);
    }
}

/// The event belongs to the other context, and keeps it alive until it is complete.
#[test]
fn memory_of_a_stream_of_another_context_gets_an_event_of_that_context() {
    let (_end, context, pool) = in_child!(with_pool(slabs_of(SMALL)));
    let own = context.stream().expect("a stream");
    let order = persistent(own.as_raw());
    let other = Context::new(&context.device(), ContextFlags::empty()).expect("a context");
    let stream = other.stream().expect("a stream");
    let block = pool.allocate(SMALL, Order::of(&stream)).expect("memory");
    free(&*pool, block, Order::of(&stream));
    assert_eq!(cuda_safe::leaked(), 0);
    stream.synchronize().expect("a wait");
    let again = pool.allocate(SMALL, order).expect("memory");
    assert_eq!(pool.stats().slabs, 1, "its work is known to be complete");
    drop((stream, other));
    assert_eq!(alive().contexts, 0, "the pool has destroyed the event");
    free(&*pool, again, order);
}

/// One stream is blocked, and another one is idle. An event of the idle stream proves nothing about the
/// blocked one.
#[test]
fn an_event_shows_the_progress_of_its_own_stream_only() {
    let (_end, context) = in_child!(with(small));
    let [words, idle, blocked, third] = [(); 4].map(|()| context.stream().expect("a stream"));
    let mut word = DeviceBuffer::<u32>::zeroed_sync(&words, 1).expect("memory");
    words.synchronize().expect("a wait");
    let operation = MemoryOperation::Wait32 {
        address: word.as_raw(),
        value: 1,
        condition: WaitCondition::Equal,
        flush: false,
    };
    // More frees than on the other stream, of blocks that are too small for the request below.
    let others = [bytes(&idle, 3 << 20), bytes(&idle, 3 << 20)];
    let memory = bytes(&blocked, SMALL);
    let address = memory.as_raw();
    // SAFETY: the word is alive until the stream is idle, and only the copy below writes it.
    unsafe { blocked.memory_operation(operation) }.expect("a wait");
    drop((others, memory));
    let other = bytes(&third, SMALL);
    assert_ne!(other.as_raw(), address, "the stream still uses the memory");
    word.copy_from_slice(&[1]).expect("a copy");
    blocked.synchronize().expect("a wait");
    let again = bytes(&third, SMALL);
    assert_eq!(again.as_raw(), address);
    drop((again, other, word));
    drop([words, idle, blocked, third]);
}

/// Frees memory whose work is still pending after several queries, and allocates it on another stream.
fn allocate_behind(context: &Context) -> DeviceBuffer<u8> {
    let (first, second) = (context.stream().expect("a"), context.stream().expect("b"));
    let mut memory = bytes(&first, SMALL);
    for _ in 0..8 {
        memory.fill(1).expect("a fill");
    }
    drop(memory);
    bytes(&second, SMALL)
}

#[test]
fn memory_of_another_stream_is_in_use_after_a_wait_of_the_stream() {
    let (_end, context) = in_child!(with(limited(SMALL)));
    let memory = allocate_behind(&context);
    let stats = pool(&context).stats();
    assert_eq!((stats.stream_waits, stats.host_waits), (1, 0));
    assert_eq!((stats.in_use, stats.in_heap), (SMALL, 0));
    drop(memory);
}

#[test]
fn memory_that_a_stream_cannot_wait_for_returns_to_the_pool() {
    let (_end, context) = in_child!(with(limited(SMALL)));
    let fails = fail("cuStreamWaitEvent", 1, UNKNOWN);
    let memory = allocate_behind(&context);
    assert_eq!(fails.hits(), 1);
    let stats = pool(&context).stats();
    assert_eq!((stats.stream_waits, stats.host_waits), (0, 1));
    assert_eq!((stats.in_use, stats.in_heap), (SMALL, 0));
    drop(memory);
}

/// Returns the share of the device memory that is `bytes`.
#[allow(clippy::cast_precision_loss, reason = "a share need not be exact")]
fn share_of(context: &Context, bytes: usize) -> f64 {
    let total = context.device().total_memory().expect("known");
    (bytes as f64 + 0.5) / total as f64
}

#[test]
fn unordered_memory_is_no_longer_pending_after_a_wait() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let unordered =
        DeferOptions { count: 100, share: share_of(&context, SMALL * 3 / 2), ..Default::default() };
    let options = CachingOptions { unordered, ..slabs_of(SMALL) };
    let pool = CachingManager::with(&context, options).expect("a pool");
    let allocate = |size| pool.allocate(size, Order::NONE).expect("memory");
    for block in [allocate(SMALL), allocate(SMALL)] {
        free(&pool, block, Order::NONE);
    }
    let block = allocate(SMALL);
    assert_eq!((pool.stats().host_waits, pool.stats().slabs), (1, 2));
    free(&pool, block, Order::NONE);
    let block = allocate(2 * SMALL);
    assert_eq!((pool.stats().host_waits, pool.stats().slabs), (1, 3));
    free(&pool, block, Order::NONE);
}

#[test]
fn a_pool_without_pending_memory_does_not_wait() {
    let unordered = DeferOptions { count: 0, share: 0.0, ..Default::default() };
    let options = CachingOptions { unordered, ..slabs_of(SMALL) };
    let (_end, _rest0, pool) = in_child!(with_pool(options));
    let block = pool.allocate(SMALL, Order::NONE).expect("memory");
    assert_eq!(pool.stats().host_waits, 0);
    free(&*pool, block, Order::NONE);
}

/// More memory would not help.
#[test]
fn an_error_other_than_out_of_memory_is_returned_at_once() {
    let (_end, _rest0, pool) = in_child!(with_pool(slabs_of(SMALL)));
    let fails = fail(ALLOCATE, 1, UNKNOWN);
    cuda_sim::clear_calls();
    let error = pool.allocate(1000, Order::NONE).expect_err("the fault");
    assert_eq!((error.code(), fails.hits()), (Some(UNKNOWN), 1));
    assert_eq!((called(ALLOCATE), called(WAIT_FOR_ALL)), (1, 0));
}

#[test]
fn a_pool_reserves_a_smaller_slab_if_there_is_no_memory_for_a_whole_one() {
    let (_end, _rest0, pool) = in_child!(with_pool(slabs_of(SMALL)));
    let _limit = limit_memory(SMALL as u64 / 2);
    let block = pool.allocate(1000, Order::NONE).expect("memory");
    let stats = pool.stats();
    assert!(stats.slabs == 1 && stats.reserved <= SMALL / 2, "{stats:?}");
    free(&*pool, block, Order::NONE);
}

#[test]
fn an_allocation_is_not_repeated_if_no_slab_was_returned() {
    let (_end, _rest0, pool) = in_child!(with_pool(slabs_of(SMALL)));
    let _limit = limit_memory(SMALL as u64 / 2);
    cuda_sim::clear_calls();
    pool.allocate(SMALL, Order::NONE).expect_err("out of memory");
    assert_eq!((called(ALLOCATE), called(WAIT_FOR_ALL)), (1, 1));
}

/// Another thread returns slabs to the driver, here in the middle of the wait for all work.
#[test]
fn an_allocation_is_repeated_if_slabs_were_returned_meanwhile() {
    let (_end, context) = in_child!(with(limited(2 * SMALL)));
    let stream = context.stream().expect("a stream");
    drop([bytes(&stream, SMALL), bytes(&stream, SMALL)]);
    assert_eq!(pool(&context).stats().slabs, 2);
    let is_first = AtomicBool::new(true);
    let its = context.clone();
    set_call_hook(move |function| {
        if function == WAIT_FOR_ALL && is_first.swap(false, Ordering::SeqCst) {
            assert_eq!(pool(&its).trim(0).expect("a trim"), 2 * SMALL);
        }
    });
    let memory = DeviceBuffer::<u8>::uninit(&stream, 2 * SMALL);
    set_call_hook(|_| {});
    assert_eq!(memory.expect("what was returned").len(), 2 * SMALL);
    drop(stream);
}

#[test]
fn an_allocation_that_fails_does_not_count_towards_the_limit() {
    let (_end, context) = in_child!(with(limited(SMALL)));
    let stream = context.stream().expect("a stream");
    {
        let _fails = fail(ALLOCATE, 1, UNKNOWN);
        DeviceBuffer::<u8>::uninit(&stream, SMALL).expect_err("the fault");
    }
    drop(bytes(&stream, SMALL));
    drop(stream);
}

/// An upstream manager that can refuse its initialization or panic after a free.
#[derive(Debug)]
struct Upstream {
    inner: DriverManager,
    initializes: bool,
    panics: AtomicBool,
}

impl Upstream {
    fn new(context: &Context) -> Result<Self> {
        let inner = DriverManager::new(context)?;
        Ok(Self { inner, initializes: false, panics: AtomicBool::new(false) })
    }
}

// SAFETY: every call is forwarded to the inner manager.
unsafe impl MemoryManager for Upstream {
    fn interface_version() -> u32 {
        1
    }

    fn base(&self) -> &DriverMemory {
        self.inner.base()
    }

    fn initialize(&self) -> Result<()> {
        match self.initializes {
            true => Ok(()),
            false => Err(Error::InHostFunction),
        }
    }

    fn allocate(&self, size: usize, order: Order<'_>) -> Result<Block> {
        self.inner.allocate(size, order)
    }

    unsafe fn free(&self, block: Block, order: Order<'_>) {
        // SAFETY: the caller upholds the same contract.
        unsafe { self.inner.free(block, order) };
        if self.panics.swap(false, Ordering::SeqCst) {
            panic!("on purpose");
        }
    }
}

#[test]
fn a_pool_initializes_its_upstream_manager() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let upstream = Upstream::new(&context).expect("a manager");
    let options = CachingOptions::default();
    let pool = CachingManager::with_upstream(&context, upstream, options).expect("a pool");
    let refused = pool.initialize().expect_err("the upstream manager fails");
    assert!(matches!(refused, Error::InHostFunction), "{refused}");
    let upstream = Upstream { initializes: true, ..Upstream::new(&context).expect("a manager") };
    let pool = CachingManager::with_upstream(&context, upstream, options).expect("a pool");
    pool.initialize().expect("the upstream manager succeeds");
}

#[test]
fn slabs_that_were_not_freed_because_of_a_panic_stay_cached() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let upstream = Upstream::new(&context).expect("a manager");
    let pool = CachingManager::with_upstream(&context, upstream, slabs_of(SMALL));
    let pool = pool.expect("a pool");
    let blocks = [(); 3].map(|()| pool.allocate(SMALL, Order::NONE).expect("memory"));
    for block in blocks {
        free(&pool, block, Order::NONE);
    }
    let upstream = pool.upstream().downcast_ref::<Upstream>().expect("its type");
    upstream.panics.store(true, Ordering::SeqCst);
    catch_unwind(AssertUnwindSafe(|| pool.trim(0))).expect_err("the panic");
    let stats = pool.stats();
    assert_eq!((stats.slabs, stats.in_use, stats.in_heap), (2, 0, 2 * SMALL));
    assert_eq!(pool.trim(0).expect("a trim"), 2 * SMALL);
}

/// Returns a manager that does not defer frees.
fn immediate(context: &Context) -> DriverManager {
    let options = DeferOptions { count: 0, ..Default::default() };
    DriverManager::with(context, options).expect("a manager")
}

#[test]
fn deferred_frees_wait_for_the_end_of_a_guard() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let manager = immediate(&context);
    let block = manager.allocate(64, Order::NONE).expect("memory");
    let guard = manager.defer_cleanup();
    free(&manager, block, Order::NONE);
    assert!(!manager.base().flush());
    assert_eq!(manager.base().pending(), (1, 64));
    drop(guard);
    assert!(manager.base().flush());
    assert_eq!(alive().device_allocations, 0);
}

/// They do not move to the release queue, which would not free them any earlier.
#[test]
fn deferred_frees_stay_with_the_manager_in_a_host_function() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let manager = Arc::new(immediate(&context));
    let stream = context.stream().expect("a stream");
    let block = manager.allocate(64, Order::NONE).expect("memory");
    let its = Arc::clone(&manager);
    let function = move || free(&*its, block, Order::NONE);
    stream.launch_host_function(function).expect("enqueued");
    stream.synchronize().expect("a wait");
    assert_eq!(manager.base().pending(), (1, 64));
    assert_eq!(cuda_safe::deferred_releases(), 0);
    manager.reset();
    assert_eq!(alive().device_allocations, 0);
}

#[test]
fn an_error_other_than_out_of_memory_triggers_no_deferred_frees() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let manager = DriverManager::new(&context).expect("a manager");
    let block = manager.allocate(64, Order::NONE).expect("memory");
    free(&manager, block, Order::NONE);
    let fails = fail(ALLOCATE, 1, UNKNOWN);
    let error = manager.allocate(64, Order::NONE).expect_err("the fault");
    assert_eq!((error.code(), fails.hits()), (Some(UNKNOWN), 1));
    assert_eq!(manager.base().pending(), (1, 64));
}

/// Another thread does the deferred frees, here right after the attempt that finds too little memory.
#[test]
fn an_allocation_is_repeated_if_deferred_frees_were_done_meanwhile() {
    const SIZE: usize = 600 << 10;
    let (_end, context) = in_child!(on(Profile::h200()));
    let _limit = limit_memory(1 << 20);
    let manager = Arc::new(DriverManager::new(&context).expect("a manager"));
    let block = manager.allocate(SIZE, Order::NONE).expect("memory");
    free(&*manager, block, Order::NONE);
    let is_first = AtomicBool::new(true);
    let its = Arc::clone(&manager);
    set_call_hook(move |function| {
        if function == "cuCtxPopCurrent_v2" && is_first.swap(false, Ordering::SeqCst) {
            assert!(its.base().flush(), "the free was deferred");
        }
    });
    let block = manager.allocate(SIZE, Order::NONE);
    set_call_hook(|_| {});
    free(&*manager, block.expect("what was freed"), Order::NONE);
}

#[test]
fn an_allocation_is_not_repeated_if_no_deferred_free_was_done() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let _limit = limit_memory(1 << 20);
    let manager = DriverManager::new(&context).expect("a manager");
    cuda_sim::clear_calls();
    manager.allocate(2 << 20, Order::NONE).expect_err("out of memory");
    assert_eq!(called(ALLOCATE), 1);
}
