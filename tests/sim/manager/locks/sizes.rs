//! The largest and smallest sizes, in options and in requests.

use crate::manager::inside::with;
use crate::prelude::*;
use cuda_safe::manager::is_out_of_memory;

const SIZES: [usize; 13] = [
    0,
    1,
    511,
    513,
    (1 << 20) + 1,
    5 << 20,
    1 << 40,
    isize::MAX as usize - 1,
    isize::MAX as usize,
    isize::MAX as usize + 1,
    usize::MAX - (2 << 20),
    usize::MAX - 1,
    usize::MAX,
];

/// Requests all sizes: each request gets memory or an error.
fn request_all<M: MemoryManager>(
    make: impl Fn(&Context) -> Result<M> + Send + Sync + 'static,
    options: &str,
) {
    let (_end, context) = in_child!(with(make));
    let stream = context.stream().expect("a stream");
    let pool = context.memory_manager().expect("made").expect("chosen");
    for size in SIZES {
        let ordered = MemoryPointer::allocate_on(&stream, size);
        let loose = MemoryPointer::allocate(&context, size);
        for memory in [&ordered, &loose] {
            assert!(!memory.is_ok() || (1..1 << 37).contains(&size), "{options}: {size}");
        }
        drop((ordered, loose));
    }
    // The per-thread cache now contains a block.
    MemoryPointer::allocate_on(&stream, 0).expect_err("no byte");
    drop(MemoryPointer::allocate_on(&stream, 1000).expect("memory"));
    pool.trim(usize::MAX).expect("a trim");
    pool.trim(0).expect("a trim");
    drop(stream);
}

/// Requests all sizes with each value of an option.
fn with_options(change: impl Fn(&mut CachingOptions, usize) + Copy + Send + Sync + 'static) {
    // All in one process: each primary context is a new one, with the manager chosen before.
    in_child!();
    crate::start(Profile::h200());
    let values = if cfg!(miri) { &SIZES[10..] } else { &SIZES[..] };
    for &value in values {
        let mut options = CachingOptions::default();
        change(&mut options, value);
        cuda_safe::manager::set_memory_manager(move |context| {
            CachingManager::with(context, options)
        })
        .expect("a matching version");
        let context = crate::context();
        let stream = context.stream().expect("a stream");
        let sizes = if cfg!(miri) { &SIZES[1..3] } else { &SIZES[..] };
        for &size in sizes {
            let _ = MemoryPointer::allocate_on(&stream, size);
            let _ = MemoryPointer::allocate(&context, size);
        }
        match DeviceBuffer::<u8>::uninit(&stream, 1000) {
            Err(error) => assert!(is_out_of_memory(&error), "{options:?}: {error}"),
            Ok(memory) => drop(memory),
        }
        let pool = context.memory_manager().expect("made").expect("chosen");
        pool.trim(0).expect("a trim");
    }
    crate::check();
}

#[test]
fn slabs_of_any_size_are_accepted_or_refused() {
    with_options(|options, value| options.slab_bytes = value);
}

#[test]
fn limits_of_any_size_are_accepted_or_refused() {
    with_options(|options, value| options.max_bytes = value);
}

#[test]
fn thread_caches_of_any_size_are_accepted_or_refused() {
    with_options(|options, value| options.thread_cache_bytes = value);
}

#[test]
fn counts_of_any_size_are_accepted_or_refused() {
    with_options(|options, value| options.unordered.count = value);
}

#[test]
fn shares_of_any_size_are_accepted_or_refused() {
    with_options(|options, value| {
        options.unordered.share = match value {
            0 => f64::NAN,
            1 => f64::NEG_INFINITY,
            511 => f64::INFINITY,
            513 => -1.0,
            _ => value as f64,
        };
    });
}

#[test]
fn a_caching_pool_handles_requests_of_any_size() {
    request_all(CachingManager::new, "a pool");
}

#[test]
fn a_manager_with_deferred_frees_handles_requests_of_any_size() {
    request_all(
        |context| {
            let options = DeferOptions { count: usize::MAX, share: f64::MAX, ..Default::default() };
            DriverManager::with(context, options)
        },
        "deferred frees",
    );
}

#[test]
fn a_limited_manager_handles_requests_of_any_size() {
    request_all(
        |context| {
            Ok(StatisticsManager::new(LimitManager::new(CachingManager::new(context)?, usize::MAX)))
        },
        "a limit",
    );
}

/// Two threads each request half of all addresses: the sum of the requests must not overflow.
#[test]
fn the_largest_requests_of_two_threads_do_not_overflow() {
    let make = |context: &Context| {
        let options = CachingOptions { max_bytes: usize::MAX, ..Default::default() };
        CachingManager::with(context, options)
    };
    let (_end, context) = in_child!(with(make));
    let stream = context.stream().expect("a stream");
    // This slab stays in use.
    let held = MemoryPointer::allocate_on(&stream, 1000).expect("memory");
    // The largest size that is not refused on its own.
    let size = isize::MAX as usize + 1 - (2 << 20);
    let largest = || {
        let error = MemoryPointer::allocate(&context, size).expect_err("too much");
        assert!(is_out_of_memory(&error), "{error}");
    };
    // Creates the objects of the first use.
    largest();
    assert_eq!(super::interrupted(largest, largest), [""; 0]);
    drop(MemoryPointer::allocate_on(&stream, 1000).expect("memory"));
    drop((held, stream));
}
