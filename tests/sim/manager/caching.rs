//! The decisions of a caching pool, observed through its interface.

use crate::prelude::*;
use crate::software::call_log::transient;
use cuda_memory::CacheStats;

const SLAB: usize = 4 << 20;

fn options() -> CachingOptions {
    CachingOptions { slab_bytes: SLAB, ..Default::default() }
}

/// Creates a pool that is not the manager of its context, so it knows only the streams in the orders.
fn with_pool(options: CachingOptions) -> (AtEnd, Context, CachingManager) {
    let (end, context) = on(Profile::h200());
    let pool = CachingManager::with(&context, options).expect("a pool");
    let end = end.after(|| {
        crate::context().synchronize().expect("a wait");
        assert_eq!(alive().device_allocations, 0);
    });
    (end, context, pool)
}

fn free(pool: &CachingManager, block: Block, order: Order<'_>) {
    // SAFETY: the block belongs to the pool, and only work in that order uses it.
    unsafe { pool.free(block, order) };
}

/// Checks that each byte of a pool is counted exactly once.
#[track_caller]
fn sums_up(stats: &CacheStats) {
    assert_eq!(stats.reserved, stats.in_use + stats.in_thread_caches + stats.in_heap, "{stats:?}");
    assert!(stats.largest_free <= stats.in_heap, "{stats:?}");
    assert_eq!(stats.cached(), stats.in_thread_caches + stats.in_heap);
}

#[test]
fn a_reset_releases_all_idle_memory() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let kept = pool.allocate(1000, order).expect("memory");
    let block = pool.allocate(2 * SLAB, order).expect("memory");
    free(&pool, block, order);
    assert_eq!(pool.stats().slabs, 2);
    pool.reset();
    // The other slab has a block in use.
    assert_eq!(pool.stats().slabs, 1);
    free(&pool, kept, order);
    pool.reset();
    assert_eq!((pool.stats().slabs, pool.stats().reserved), (0, 0));
}

#[test]
fn a_dropped_pool_releases_its_slabs() {
    let (_end, _rest0, pool) = in_child!(with_pool(options()));
    let block = pool.allocate(1000, Order::NONE).expect("memory");
    free(&pool, block, Order::NONE);
    assert_eq!(alive().device_allocations, 1);
}

#[test]
fn a_pool_returns_its_upstream_manager() {
    let (_end, context) = in_child!(on(Profile::h200()));
    let upstream = OrderedManager::new(&context).expect("a manager");
    let pool = CachingManager::with_upstream(&context, upstream, options()).expect("a pool");
    assert!(pool.wrapped().expect("a manager").downcast_ref::<OrderedManager>().is_some());
}

#[test]
fn an_allocation_of_zero_bytes_is_refused() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let block = pool.allocate(1, order).expect("memory");
    free(&pool, block, order);
    let error = pool.allocate(0, order).expect_err("no bytes");
    assert_eq!(error.code(), Some(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert_eq!(pool.stats().in_use, 0);
}

#[test]
fn a_block_from_the_cache_of_another_thread_counts_once() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    let stream = context.stream().expect("a stream");
    let raw = stream.as_raw().addr();
    std::thread::scope(|scope| {
        let freed = scope.spawn(|| {
            let order = persistent(std::ptr::without_provenance_mut(raw));
            let block = pool.allocate(1000, order).expect("memory");
            free(&pool, block, order);
        });
        freed.join().expect("no panic");
    });
    let before = pool.stats();
    assert_eq!((before.hits, before.misses), (0, 1));
    assert_eq!(before.in_thread_caches, 1024);
    let order = persistent(stream.as_raw());
    let block = pool.allocate(1000, order).expect("memory");
    let found = pool.stats();
    assert_eq!(found.in_thread_caches, 0, "it came from that cache");
    assert_eq!((found.hits, found.misses), (0, 2));
    free(&pool, block, order);
}

/// Checks the counts of hits and misses, with memory in each place.
#[test]
fn stats_count_where_memory_is_and_how_it_was_found() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    assert_eq!(pool.stats(), CacheStats::default());
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let block = pool.allocate(1000, order).expect("memory");
    let first = pool.stats();
    sums_up(&first);
    assert_eq!((first.reserved, first.in_use, first.slabs), (SLAB, 1024, 1));
    assert_eq!((first.in_thread_caches, first.in_heap), (0, SLAB - 1024));
    assert_eq!(first.largest_free, SLAB - 1024);
    assert_eq!((first.hits, first.misses, first.slabs_added), (0, 1, 1));
    free(&pool, block, order);
    let idle = pool.stats();
    sums_up(&idle);
    assert_eq!((idle.in_use, idle.in_thread_caches), (0, 1024));
    for _ in 0..10 {
        let block = pool.allocate(900, order).expect("memory");
        free(&pool, block, order);
    }
    let used = pool.stats();
    assert_eq!((used.hits, used.misses, used.slabs_added), (10, 1, 1));
    let large = pool.allocate(2 * SLAB, order).expect("memory");
    let stats = pool.stats();
    assert_eq!((stats.slabs, stats.slabs_added), (2, 2));
    assert_eq!((stats.reserved, stats.reserved_peak), (3 * SLAB, 3 * SLAB));
    free(&pool, large, order);
    assert_eq!(pool.trim(0).expect("a trim"), 3 * SLAB);
    let trimmed = pool.stats();
    assert_eq!((trimmed.reserved, trimmed.reserved_peak), (0, 3 * SLAB));
}

#[test]
fn memory_info_counts_cached_memory_as_free() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    let free_bytes = || pool.memory_info().expect("known").free;
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let before = free_bytes();
    let block = pool.allocate(1 << 20, order).expect("memory");
    assert_eq!(before - free_bytes(), 1 << 20);
    free(&pool, block, order);
    assert_eq!(free_bytes(), before);
}

/// The pool is not told when such a stream ends, and the per-thread default stream is a different
/// one on each thread.
#[test]
fn memory_is_cached_for_a_stream_only_if_its_order_is_persistent() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    let _current = context.make_current().expect("current");
    let stream = context.stream().expect("a stream");
    let records = |order: Order<'_>| {
        let block = pool.allocate(1000, order).expect("memory");
        count("cuEventRecord", || free(&pool, block, order))
    };
    // The first use of a stream creates the caches that later uses find.
    for order in [persistent(stream.as_raw()), persistent(CU_STREAM_LEGACY)] {
        records(order);
        assert_eq!(records(order), 0, "{order:?}");
    }
    let null = persistent(std::ptr::null_mut());
    assert_eq!(records(null), 0, "the legacy default stream by its other handle");
    for order in [
        transient(stream.as_raw()),
        persistent(CU_STREAM_PER_THREAD),
        transient(CU_STREAM_PER_THREAD),
    ] {
        records(order);
        assert_eq!(records(order), 1, "{order:?}");
    }
}

/// Without a stream, memory is reused after a wait for all work of the context, once the number of
/// frees or bytes exceeds a limit.
#[test]
fn memory_without_a_stream_is_waited_for_at_the_limits_of_the_options() {
    let mut options = options();
    options.unordered.count = 3;
    let (_end, _rest0, pool) = in_child!(with_pool(options));
    let waits = || pool.stats().host_waits;
    let blocks: Vec<_> =
        (0..4).map(|_| pool.allocate(SLAB, Order::NONE).expect("memory")).collect();
    let mut blocks = blocks.into_iter();
    for block in blocks.by_ref().take(3) {
        free(&pool, block, Order::NONE);
    }
    let block = pool.allocate(SLAB, Order::NONE).expect("memory");
    assert_eq!((waits(), pool.stats().slabs), (0, 5), "3 frees are not over 3");
    free(&pool, block, Order::NONE);
    let block = pool.allocate(SLAB, Order::NONE).expect("memory");
    assert_eq!((waits(), pool.stats().slabs), (1, 5), "4 are");
    sums_up(&pool.stats());
    let other = pool.allocate(SLAB / 4, Order::NONE).expect("memory");
    assert_eq!(waits(), 1, "nothing is pending");
    free(&pool, other, Order::NONE);
    for block in blocks.chain([block]) {
        free(&pool, block, Order::NONE);
    }
}

#[test]
fn all_bytes_of_a_limit_can_be_allocated_and_no_more() {
    let options = CachingOptions { max_bytes: 2 * SLAB, ..options() };
    let (_end, _rest0, pool) = in_child!(with_pool(options));
    let first = pool.allocate(SLAB, Order::NONE).expect("memory");
    let second = pool.allocate(SLAB, Order::NONE).expect("all of the limit");
    let text = pool.allocate(1, Order::NONE).expect_err("over the limit").to_string();
    assert!(text.contains(&(2 * SLAB).to_string()), "{text}");
    free(&pool, first, Order::NONE);
    let again = pool.allocate(SLAB, Order::NONE).expect("within the limit");
    assert_eq!(pool.stats().slabs, 2);
    free(&pool, second, Order::NONE);
    free(&pool, again, Order::NONE);
}

#[test]
fn a_request_of_more_than_half_a_slab_gets_its_own_slab() {
    let (_end, _rest0, pool) = in_child!(with_pool(options()));
    let half = pool.allocate(SLAB / 2, Order::NONE).expect("memory");
    assert_eq!(pool.stats().reserved, SLAB);
    let large = pool.allocate(SLAB / 2 + 1, Order::NONE).expect("memory");
    assert_eq!(pool.stats().reserved, 2 * SLAB);
    let other = pool.allocate(SLAB / 2, Order::NONE).expect("memory");
    assert_eq!(pool.stats().reserved, 2 * SLAB, "the rest of the first slab");
    for block in [half, large, other] {
        free(&pool, block, Order::NONE);
    }
}

#[test]
fn a_trim_keeps_the_requested_number_of_bytes() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let blocks = [SLAB, 2 * SLAB, 3 * SLAB].map(|size| pool.allocate(size, order).expect("memory"));
    for block in blocks {
        free(&pool, block, order);
    }
    // The largest slab is released first.
    assert_eq!(pool.trim(6 * SLAB).expect("a trim"), 0);
    assert_eq!(pool.trim(6 * SLAB - 1).expect("a trim"), 3 * SLAB);
    assert_eq!(pool.trim(3 * SLAB - 1).expect("a trim"), 2 * SLAB);
    assert_eq!(pool.stats().reserved, SLAB);
    let guard = pool.defer_cleanup();
    assert_eq!(pool.trim(0).expect("nothing to trim"), 0);
    drop(guard);
    assert_eq!(pool.trim(0).expect("a trim"), SLAB);
}

/// Adjacent free blocks are merged, in any order of the frees.
#[test]
fn blocks_are_merged_with_their_neighbors() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    // Too large for the per-thread caches.
    let size = SLAB / 2;
    for places in [[0, 1], [1, 0]] {
        let blocks = [(); 2].map(|()| pool.allocate(size, order).expect("memory"));
        assert_eq!(pool.stats().largest_free, 0);
        for place in places {
            free(&pool, blocks[place], order);
        }
        let stats = pool.stats();
        sums_up(&stats);
        assert_eq!((stats.slabs, stats.largest_free), (1, SLAB));
        assert!(stats.fragmentation() == 0.0);
    }
    // Three blocks, of which the middle one is freed last.
    let third = (1 << 20) + 1;
    let blocks = [(); 3].map(|()| pool.allocate(third, order).expect("memory"));
    free(&pool, blocks[0], order);
    free(&pool, blocks[2], order);
    let apart = pool.stats();
    sums_up(&apart);
    assert!(apart.largest_free < apart.in_heap && apart.fragmentation() > 0.0);
    free(&pool, blocks[1], order);
    assert_eq!(pool.stats().largest_free, SLAB);
}

/// Half of the blocks leave the cache to make room.
#[test]
fn a_thread_cache_holds_64_blocks_of_a_size() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let blocks: Vec<_> = (0..65).map(|_| pool.allocate(512, order).expect("memory")).collect();
    for (place, block) in blocks.into_iter().enumerate() {
        free(&pool, block, order);
        let expected = match place {
            64 => 33,
            place => place + 1,
        };
        assert_eq!(pool.stats().in_thread_caches, expected * 512, "after {place}");
    }
    sums_up(&pool.stats());
}

#[test]
fn a_thread_cache_holds_no_more_bytes_than_the_options_allow() {
    let options = CachingOptions { thread_cache_bytes: 3000, ..options() };
    let (_end, context, pool) = in_child!(with_pool(options));
    let stream = context.stream().expect("a stream");
    let order = persistent(stream.as_raw());
    let blocks = [(); 4].map(|()| pool.allocate(1000, order).expect("memory"));
    let lanes = blocks.map(|block| {
        free(&pool, block, order);
        pool.stats().in_thread_caches
    });
    assert_eq!(lanes, [1024, 2048, 2048, 2048]);
    sums_up(&pool.stats());
}

/// Memory that several threads freed on a stream is found by each of them.
#[test]
fn a_thread_finds_memory_that_another_thread_freed_on_the_stream() {
    let (_end, context, pool) = in_child!(with_pool(options()));
    let stream = context.stream().expect("a stream");
    let raw = stream.as_raw().addr();
    let order = || persistent(std::ptr::without_provenance_mut(raw));
    let block = pool.allocate(1000, order()).expect("memory");
    let address = block.address;
    free(&pool, block, order());
    let calls = count("cuMemAlloc_v2", || {
        std::thread::scope(|scope| {
            let other = || {
                let block = pool.allocate(1000, order()).expect("memory");
                assert_eq!(block.address, address);
                free(&pool, block, order());
            };
            scope.spawn(other).join().expect("no panic");
        });
        let again = pool.allocate(1000, order()).expect("memory");
        assert_eq!(again.address, address);
        free(&pool, again, order());
    });
    assert_eq!(calls, 0);
}

/// Returns a pool, two streams of other code, and memory of each for pending work. The software
/// driver runs the work only during a wait.
fn with_two_streams(
    options: CachingOptions,
    body: impl FnOnce(&CachingManager, [&Stream; 2], &dyn Fn(&Stream)),
) {
    let (_end, context, pool) = in_child!(with_pool(options));
    let [one, two] = [(); 2].map(|()| context.stream().expect("a stream"));
    let work = {
        let buffers = [&one, &two].map(|its| DeviceBuffer::<u8>::zeroed(its, 64).expect("memory"));
        let buffers = buffers.map(RefCell::new);
        let (first, second) = (one.clone(), two.clone());
        move |stream: &Stream| {
            let place = usize::from(*stream == second);
            assert!(place == 1 || *stream == first);
            buffers[place].borrow_mut().fill(1).expect("a fill");
        }
    };
    body(&pool, [&one, &two], &work);
    drop((pool, work));
}

/// A merged block that two streams used is idle when both have completed.
#[test]
fn a_merged_block_waits_for_each_stream_that_used_a_part_of_it() {
    with_two_streams(options(), |pool, [one, two], work| {
        for (first, last) in [(one, two), (two, one)] {
            pool.reset();
            let half = |stream: &Stream| {
                pool.allocate(SLAB / 2, persistent(stream.as_raw())).expect("memory")
            };
            let (a, b) = (half(first), half(last));
            assert_eq!(pool.stats().slabs, 1);
            let start = a.address.min(b.address);
            for (stream, block) in [(first, a), (last, b)] {
                work(stream);
                free(pool, block, persistent(stream.as_raw()));
            }
            assert_eq!(pool.stats().largest_free, SLAB);
            // One of the two streams has completed and asks for the whole block.
            first.synchronize().expect("a wait");
            let order = persistent(first.as_raw());
            let whole = pool.allocate(SLAB, order).expect("memory");
            assert_ne!(whole.address, start, "the other stream uses a half of it");
            last.synchronize().expect("a wait");
            free(pool, whole, order);
        }
    });
}

/// Each free by a transient stream has its own event.
#[test]
fn an_event_of_one_transient_stream_does_not_release_memory_of_another() {
    with_two_streams(options(), |pool, [one, two], work| {
        let size = SLAB;
        let blocks =
            [one, two].map(|its| pool.allocate(size, transient(its.as_raw())).expect("memory"));
        let ((tell, told), (finish, finished)) = (channel(), channel::<()>());
        let wait = move || {
            tell.send(()).expect("the test receives it");
            finished.recv().expect("the test goes on");
        };
        one.launch_host_function(wait).expect("enqueued");
        work(two);
        std::thread::scope(|scope| {
            scope.spawn(|| one.synchronize().expect("a wait"));
            told.recv().expect("the other thread runs it");
            free(pool, blocks[0], transient(one.as_raw()));
            free(pool, blocks[1], transient(two.as_raw()));
            two.synchronize().expect("a wait");
            let order = persistent(two.as_raw());
            let first = pool.allocate(size, order).expect("memory");
            assert_eq!(first.address, blocks[1].address, "its work has completed");
            let second = pool.allocate(size, order).expect("memory");
            assert_ne!(second.address, blocks[0].address, "its work has not");
            finish.send(()).expect("it waits");
            for block in [first, second] {
                free(pool, block, order);
            }
        });
    });
}

/// The record fails, so nothing shows that the work has completed.
#[test]
fn an_event_that_failed_to_record_shows_no_progress() {
    with_two_streams(options(), |pool, [one, two], work| {
        // The pool may use the legacy default stream at any time.
        let legacy = persistent(CU_STREAM_LEGACY);
        let block = pool.allocate(SLAB, legacy).expect("memory");
        work(one);
        free(pool, block, legacy);
        let order = persistent(two.as_raw());
        let failed = fail("cuEventRecord", 1, CUresult::CUDA_ERROR_UNKNOWN);
        let other = pool.allocate(SLAB, order).expect("memory");
        assert_eq!(failed.hits(), 1);
        assert_ne!(other.address, block.address);
        free(pool, other, order);
    });
}

/// Other code keeps such a stream alive only during the calls that name it.
#[test]
fn an_event_that_another_stream_needs_is_recorded_by_the_next_free_that_names_the_stream() {
    with_two_streams(options(), |pool, [one, two], _| {
        let (first, second) = (persistent(one.as_raw()), persistent(two.as_raw()));
        let blocks = [(); 4].map(|()| pool.allocate(SLAB, first).expect("memory"));
        let records = |block| count("cuEventRecord", || free(pool, block, first));
        assert_eq!(records(blocks[0]), 0, "no stream needs it");
        let other = pool.allocate(SLAB, second).expect("memory");
        assert_eq!(pool.stats().slabs, 5, "there was no event for the first");
        assert_eq!(records(blocks[1]), 1);
        assert_eq!(records(blocks[2]), 0, "no stream needs it any more");
        one.synchronize().expect("a wait");
        let again = pool.allocate(SLAB, second).expect("memory");
        assert_eq!(pool.stats().slabs, 5, "the event has completed");
        for block in [other, again] {
            free(pool, block, second);
        }
        free(pool, blocks[3], first);
    });
}

/// Events are reused, and are recorded only when needed.
#[test]
fn events_are_reused() {
    with_two_streams(options(), |pool, [_, two], _| {
        let legacy = persistent(CU_STREAM_LEGACY);
        let order = persistent(two.as_raw());
        let round = || {
            let block = pool.allocate(SLAB, legacy).expect("memory");
            free(pool, block, legacy);
            let block = pool.allocate(SLAB, order).expect("memory");
            free(pool, block, order);
        };
        round();
        round();
        assert_eq!(count("cuEventCreate", || (0..20).for_each(|_| round())), 0);
        pool.trim(0).expect("a trim");
    });
}

/// The pool limits the number of events per stream, because more would show little more.
#[test]
fn a_stream_with_pending_work_has_a_limited_number_of_events() {
    with_two_streams(options(), |pool, [one, two], work| {
        let legacy = persistent(CU_STREAM_LEGACY);
        let order = persistent(two.as_raw());
        let blocks: Vec<_> =
            (0..20).map(|_| pool.allocate(SLAB, legacy).expect("memory")).collect();
        let mut held = Vec::new();
        work(one);
        let records = count("cuEventRecord", || {
            for block in blocks {
                // Work of a blocking stream waits for the legacy stream, and the legacy stream
                // waits for it.
                free(pool, block, legacy);
                held.push(pool.allocate(SLAB, order).expect("memory"));
            }
        });
        assert!(records <= 20, "{records} records");
        // Progress that was recorded already is not recorded again.
        let again = count("cuEventRecord", || {
            held.push(pool.allocate(2 * SLAB, order).expect("memory"));
        });
        assert_eq!(again, 0);
        for block in held {
            free(pool, block, order);
        }
    });
}

/// If no memory is left, a stream waits for the other streams that used a block, but not for
/// itself.
#[test]
fn a_stream_waits_only_for_other_streams() {
    let options = CachingOptions { max_bytes: SLAB, ..options() };
    with_two_streams(options, |pool, [one, _], work| {
        let legacy = persistent(CU_STREAM_LEGACY);
        let own = persistent(one.as_raw());
        let parts = [legacy, own].map(|order| {
            let block = pool.allocate(SLAB / 2, order).expect("memory");
            (block, order)
        });
        work(one);
        for (block, order) in parts {
            free(pool, block, order);
        }
        let mut whole = None;
        let waits = count("cuStreamWaitEvent", || {
            whole = pool.allocate(SLAB, own).ok();
        });
        let whole = whole.expect("all of the memory");
        assert!(waits <= 1, "{waits} waits");
        assert_eq!(pool.stats().host_waits, 0);
        free(pool, whole, own);
    });
}

/// The event also shows when other memory of that stream is idle.
#[test]
fn an_event_that_a_stream_waits_for_is_recorded_once() {
    let options = CachingOptions { max_bytes: 2 * SLAB, ..options() };
    with_two_streams(options, |pool, [one, two], work| {
        let legacy = persistent(CU_STREAM_LEGACY);
        let order = persistent(two.as_raw());
        let blocks = [(); 2].map(|()| pool.allocate(SLAB, legacy).expect("memory"));
        work(one);
        for block in blocks {
            free(pool, block, legacy);
        }
        let mut held = Vec::new();
        {
            // The pool first attempts twice to find idle memory.
            let _fails = [1, 2].map(|nth| fail("cuEventRecord", nth, CUresult::CUDA_ERROR_UNKNOWN));
            let records = count("cuEventRecord", || {
                held.push(pool.allocate(SLAB, order).expect("memory after a wait"));
            });
            assert_eq!((records, pool.stats().stream_waits), (3, 1));
        }
        let again = count("cuEventRecord", || {
            held.push(pool.allocate(SLAB, order).expect("memory"));
        });
        assert_eq!(again, 0);
        for block in held {
            free(pool, block, order);
        }
    });
}

/// A stream without pending work ends without a driver call.
#[test]
fn the_end_of_an_idle_stream_records_nothing() {
    with_two_streams(options(), |pool, [one, _], work| {
        let order = persistent(one.as_raw());
        let end = || {
            // SAFETY: the stream is alive, and no other thread names it.
            let end = unsafe { StreamEnd::of_raw(one.as_raw()) };
            count("cuEventRecord", || end.notify(pool))
        };
        let block = pool.allocate(SLAB, order).expect("memory");
        work(one);
        free(pool, block, order);
        assert_eq!(end(), 1, "it has freed a block");
        let block = pool.allocate(SLAB, order).expect("memory");
        assert_eq!(end(), 0, "it has freed none since");
        free(pool, block, order);
        pool.reset();
        assert_eq!(end(), 0, "the host has waited for it");
    });
}
