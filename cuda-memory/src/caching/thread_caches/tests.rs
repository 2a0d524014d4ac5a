use super::*;
use std::collections::BTreeSet;
use std::thread::spawn;

/// A key with the shape of an address that a driver returns.
#[inline]
fn stream(number: usize) -> StreamKey {
    0x7f12_3456_0000 + 0x100 * number
}

#[inline]
fn idle(id: Id) -> Idle {
    let address = 0x1000 * u64::from(id);
    Idle { address, id }
}

/// Pushes blocks 1 to `count` of a class into this thread's cache of a stream.
#[inline]
fn fill(caches: &ThreadCaches, stream: StreamKey, class: u8, count: u32) {
    let mut cache = caches.open(stream).expect("a place");
    for id in 1..=count {
        assert!(cache.push(class, idle(id), u64::MAX).is_ok());
    }
}

#[test]
#[inline]
fn a_cache_counts_its_bytes_and_the_hits_of_its_thread() {
    let caches = ThreadCaches::new();
    fill(&caches, stream(0), 3, 5);
    let mut cache = caches.find(stream(0)).expect("it was opened");
    assert_eq!(cache.bytes, 5 * size_of_class(3));
    assert_eq!(cache.pop(3).map(|its| its.id), Some(5));
    assert!(cache.pop(4).is_none());
    assert_eq!(cache.bytes, 4 * size_of_class(3));
    assert_eq!(cache.hits, 1);
    assert_eq!(cache.take(3).map(|its| its.id), Some(4));
    assert_eq!(cache.hits, 1, "another thread's allocation is no hit");
    assert_eq!(cache.bytes, 3 * size_of_class(3));
    let oldest: Vec<Id> = cache.take_half(3).iter().map(|its| its.id).collect();
    assert_eq!(oldest, [1, 2]);
    assert_eq!(cache.bytes, size_of_class(3));
    assert_eq!(cache.take_all().len(), 1);
    assert_eq!(cache.bytes, 0);
}

#[test]
#[inline]
fn a_full_cache_returns_the_block() {
    let caches = ThreadCaches::new();
    let mut cache = caches.open(stream(0)).expect("a place");
    let limit = 2 * size_of_class(1);
    assert!(cache.push(1, idle(1), limit).is_ok());
    assert!(cache.push(1, idle(2), limit).is_ok(), "exactly the limit");
    let refused = cache.push(1, idle(3), limit);
    assert_eq!(refused.expect_err("beyond the limit").id, 3);
    for id in 0..DEPTH as u32 {
        assert!(cache.push(0, idle(id), u64::MAX).is_ok());
    }
    assert!(cache.push(0, idle(9), u64::MAX).is_err(), "beyond the depth");
}

#[test]
#[inline]
fn a_thread_finds_only_its_own_caches() {
    let caches = ThreadCaches::new();
    assert!(caches.find(stream(0)).is_none());
    fill(&caches, stream(0), 0, 1);
    assert!(caches.find(stream(0)).is_some());
    assert!(caches.find(stream(1)).is_none());
    std::thread::scope(|scope| {
        let other = scope.spawn(|| caches.find(stream(0)).is_none());
        assert!(other.join().expect("no panic"));
    });
}

#[test]
#[inline]
fn a_place_that_was_taken_for_another_key_is_not_found() {
    let caches = ThreadCaches::new();
    let mut cache = caches.open(stream(0)).expect("a place");
    assert_eq!(cache.stream(), Some(stream(0)));
    // Another thread took the place between the look at its key and the lock.
    cache.key = (stream(1), thread());
    drop(cache);
    assert!(caches.find(stream(0)).is_none());
}

#[test]
#[inline]
fn each_visits_the_caches_of_all_streams_or_of_one() {
    let caches = ThreadCaches::new();
    fill(&caches, stream(0), 0, 1);
    fill(&caches, stream(1), 0, 2);
    let visited = |stream| {
        let mut bytes = Vec::new();
        caches.each(stream, |cache| bytes.push(cache.bytes / size_of_class(0)));
        bytes.sort_unstable();
        bytes
    };
    assert_eq!(visited(None), [1, 2]);
    assert_eq!(visited(Some(stream(1))), [2]);
    assert_eq!(visited(Some(stream(2))), [0; 0]);
}

#[test]
#[inline]
fn closing_a_stream_hands_out_its_blocks_and_frees_its_places() {
    let caches = ThreadCaches::new();
    fill(&caches, stream(0), 0, 3);
    fill(&caches, stream(1), 0, 1);
    let popped = caches.find(stream(0)).and_then(|mut cache| cache.pop(0));
    assert!(popped.is_some());
    let mut closed = Vec::new();
    caches.close(stream(0), |blocks, hits| closed.push((blocks.len(), hits)));
    assert_eq!(closed, [(2, 1)]);
    assert!(caches.find(stream(0)).is_none());
    assert!(caches.find(stream(1)).is_some());
    // The places can be used again: many more streams than places come and go.
    for number in 2..2 * PLACES {
        let mut cache = caches.open(stream(number)).expect("a place");
        assert_eq!((cache.bytes, cache.hits), (0, 0));
        assert!(cache.push(0, idle(1), u64::MAX).is_ok());
        assert!(cache.pop(0).is_some() && cache.push(0, idle(1), u64::MAX).is_ok());
        drop(cache);
        caches.close(stream(number), |_, _| {});
    }
    assert_eq!(ThreadCache::default().stream(), None);
}

#[test]
#[inline]
fn thread_numbers_are_stable_and_distinct_up_to_their_limit() {
    let numbers: Vec<usize> = (0..THREADS - 1)
        .map(|_| {
            let numbers = spawn(|| (thread(), thread())).join().expect("no panic");
            assert_eq!(numbers.0, numbers.1);
            numbers.0
        })
        .collect();
    assert!(numbers.iter().all(|number| (1..=THREADS).contains(number)));
    // Other tests take numbers at the same time, so that these may wrap around once.
    let distinct = numbers.iter().collect::<BTreeSet<_>>().len();
    assert!(distinct > THREADS / 2, "{distinct} of {}", numbers.len());
}

#[test]
#[inline]
fn streams_and_threads_are_spread_over_the_places() {
    let places = |key| ThreadCaches::probes(key).collect::<Vec<_>>();
    let first = |key| places(key)[0];
    for key in [(0, 1), (stream(0), 1), (usize::MAX, THREADS)] {
        let its = places(key);
        let consecutive: Vec<usize> = (0..PROBES).map(|step| (its[0] + step) % PLACES).collect();
        assert_eq!(its, consecutive);
    }
    let of_threads: BTreeSet<_> = (1..=THREADS).map(|it| first((stream(0), it))).collect();
    assert!(of_threads.len() > THREADS / 2, "{of_threads:?}");
    let of_streams: BTreeSet<_> = (0..256).map(|it| first((stream(it), 1))).collect();
    assert!(of_streams.len() > 128, "{}", of_streams.len());
}
