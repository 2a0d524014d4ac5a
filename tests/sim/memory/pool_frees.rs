//! The events that a memory pool keeps for the frees of its memory.

use crate::prelude::*;

/// The pool is destroyed after its events. Those that are complete are removed when there are 64.
#[test]
fn a_pool_removes_the_complete_events_of_frees_when_it_has_64_of_them() {
    let (_end, context, stream) = in_child!(on_stream());
    cuda_safe::event::set_reuse(false);
    let pool = MemoryPool::new(&context, MemoryPoolOptions::default()).expect("a pool");
    let free = || {
        let buffer = DeviceBuffer::<u8>::uninit_from_pool(&pool, &stream, 64);
        // The events of earlier frees are complete afterwards, that of this one is not.
        stream.synchronize().expect("a wait");
        drop(buffer.expect("memory"));
        alive().events
    };
    for count in 1..64 {
        assert_eq!(free(), count);
    }
    assert_eq!(free(), 1, "the last one is not complete");
    if !cfg!(miri) {
        for count in 2..64 {
            assert_eq!(free(), count);
        }
        assert_eq!(free(), 1);
    }
    cuda_sim::clear_calls();
    drop(pool);
    let calls: Vec<_> = cuda_sim::calls().iter().map(|call| call.function).collect();
    let place = |name| calls.iter().position(|its| *its == name);
    let (waits, destroys) = (place("cuEventSynchronize"), place("cuMemPoolDestroy"));
    assert!(waits.is_some() && waits < destroys, "{calls:?}");
    assert_eq!(alive().events, 0);
}

#[test]
fn a_trim_attempts_deferred_releases() {
    let (_end, context, stream) = in_child!(on_stream());
    let pool = MemoryPool::new(&context, MemoryPoolOptions::default()).expect("a pool");
    let buffer = DeviceBuffer::<u8>::uninit_from_pool(&pool, &stream, 64).expect("memory");
    let refused = fail_from("cuMemFreeAsync", 1, CUresult::CUDA_ERROR_NOT_PERMITTED);
    drop(buffer);
    drop(refused);
    assert_eq!(deferred_releases(), 1);
    pool.trim_to(0).expect("a trim");
    assert_eq!(deferred_releases(), 0);
}
