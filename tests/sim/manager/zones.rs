//! Accesses to memory of a caching pool that belongs to no block.

use super::{bytes, small, stats};
use crate::prelude::*;

/// Starts the driver with a caching pool in each context. A misuse does not end the context.
fn pool(is_expandable: bool) -> Context {
    let make = move |context: &Context| match is_expandable {
        true => CachingManager::expandable(context, small()),
        false => CachingManager::with(context, small()),
    };
    set_memory_manager(make).expect("a matching version");
    start(Profile::h200().with_lenient_misuse());
    context()
}

/// Returns the new misuses that work on a stream causes.
fn misuses_of(stream: &Stream, work: impl FnOnce()) -> usize {
    let before = cuda_sim::misuses().len();
    work();
    stream.synchronize().expect("a misuse does not end the context");
    let new = cuda_sim::misuses().split_off(before);
    assert!(new.iter().all(|its| its.contains("poisoned from the byte")), "{new:?}");
    new.len()
}

/// Tests blocks of several classes and beyond them.
fn blocks_have_red_zones(is_expandable: bool) {
    let context = pool(is_expandable);
    let stream = context.stream().expect("a stream");
    let module = Module::from_ptx(&context, VECTOR).expect("the test kernels");
    let scale = module.kernel("scale").expect("exists").typed::<(u64, u32, u32, u32)>();
    let scale = scale.expect("matching types");
    let sizes = [4, 100, 508, 700, 5000, 1 << 20, (1 << 20) + 4, 3 << 20];
    // Miri fills no large memory.
    for len in sizes.into_iter().take(if cfg!(miri) { 4 } else { 8 }) {
        // The second time, the block is reused.
        for _ in 0..2 {
            let buffer = bytes(&stream, len);
            let at = buffer.as_raw();
            let end = at + len as u64;
            let fill = |from: u64, len: usize| {
                succeeds!(cuMemsetD8Async(from, 1, len, stream.as_raw()));
            };
            let read = |from: u64| {
                // SAFETY: the driver checks the address.
                let launched =
                    unsafe { scale.launch(&stream, LaunchConfig::linear(1, 1), (from, 1, 0, 1)) };
                launched.expect("a launch");
            };
            assert_eq!(misuses_of(&stream, || fill(at, len)), 0, "{len}");
            assert_eq!(misuses_of(&stream, || read(end - 4)), 0, "{len}");
            assert_eq!(misuses_of(&stream, || fill(at, len + 1)), 1, "{len}");
            assert_eq!(misuses_of(&stream, || fill(end, 1)), 1, "{len}");
            assert_eq!(misuses_of(&stream, || read(end)), 1, "{len}");
        }
    }
    assert_eq!(stats(&context).stream_waits, 0);
}

#[test]
fn accesses_behind_a_block_of_a_caching_pool_are_found() {
    in_child!();
    blocks_have_red_zones(false);
}

#[cfg(target_os = "linux")]
#[test]
fn accesses_behind_a_block_of_an_expandable_pool_are_found() {
    in_child!();
    blocks_have_red_zones(true);
}

#[test]
fn a_freed_block_is_inaccessible_from_its_free_on_in_stream_order() {
    let context = in_child!(pool(false));
    let stream = context.stream().expect("a stream");
    for len in [300, 3 << 20] {
        let buffer = bytes(&stream, len);
        let at = buffer.as_raw();
        let fill = || succeeds!(cuMemsetD8Async(at, 1, 300, stream.as_raw()));
        // The fill is enqueued before the free and runs after the call.
        fill();
        drop(buffer);
        assert_eq!(misuses_of(&stream, || ()), 0);
        assert_eq!(misuses_of(&stream, fill), 1);
        let buffer = bytes(&stream, len);
        assert_eq!(buffer.as_raw(), at);
        assert_eq!(misuses_of(&stream, fill), 0);
        drop(buffer);
    }
}

#[test]
fn a_block_that_was_freed_without_a_stream_has_a_red_zone_when_it_is_reused() {
    let context = in_child!(pool(false));
    let stream = context.stream().expect("a stream");
    // Keeps the slab.
    let _other = bytes(&stream, 8);
    let memory = MemoryPointer::allocate(&context, 500).expect("memory");
    let at = memory.as_raw();
    succeeds!(cuMemsetD8Async(at, 1, 500, stream.as_raw()));
    drop(memory);
    // Waits for the work.
    let manager = context.memory_manager().expect("made").expect("the chosen manager");
    manager.trim(0).expect("a wait");
    let buffer = bytes(&stream, 100);
    assert_eq!(buffer.as_raw(), at);
    let fill = |len| succeeds!(cuMemsetD8Async(at, 1, len, stream.as_raw()));
    assert_eq!(misuses_of(&stream, || fill(100)), 0);
    assert_eq!(misuses_of(&stream, || fill(101)), 1);
}

#[test]
fn correct_programs_have_no_finding() {
    const SIZES: u64 = if cfg!(miri) { 5 } else { 14 };
    let context = in_child!(pool(false));
    let streams: Vec<Stream> = (0..3).map(|_| context.stream().expect("a stream")).collect();
    let mut buffers = Vec::new();
    let mut random = 1_u64;
    for round in 0..if cfg!(miri) { 60 } else { 600 } {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
        let stream = &streams[(random >> 40) as usize % 3];
        let len = 1 + (random >> 20) as usize % (1 << (8 + random % SIZES));
        let mut buffer = bytes(stream, len);
        buffer.fill(round as u8).expect("a fill");
        buffers.push((buffer, round as u8));
        if buffers.len() > 20 {
            let (buffer, value) = buffers.swap_remove((random >> 50) as usize % 20);
            if round % 3 == 0 {
                let found = buffer.to_vec().expect("a copy");
                assert_eq!(found, vec![value; found.len()]);
            }
        }
        if round % 100 == 0 {
            // Memory without a stream.
            let memory = MemoryPointer::allocate(&context, len).expect("memory");
            succeeds!(cuMemsetD8Async(memory.as_raw(), 1, len, stream.as_raw()));
            drop(memory);
            let manager = context.memory_manager().expect("made").expect("the chosen manager");
            manager.trim(0).expect("a wait");
        }
    }
    drop(buffers);
    context.synchronize().expect("the work");
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}
