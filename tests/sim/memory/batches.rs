//! Batches of copies of the safe layer.

use crate::prelude::*;

#[test]
fn pinned_memory_is_stranded_if_the_end_of_a_batch_is_unknown() {
    in_child!();
    start(Profile::h200());
    let context = context();
    let stream = context.stream().expect("a stream");
    let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    let host = || PinnedBuffer::<u8>::zeroed(&context, 64).expect("memory");
    let (mut there, mut back, mut kept) = (host(), host(), host());
    let from = DeviceBuffer::<u8>::zeroed(&stream, 64).expect("memory");
    {
        let _fails = Fault::of_function("cuStreamSynchronize")
            .with(CUresult::CUDA_ERROR_UNKNOWN)
            .from_then_on()
            .inject(Scope::Thread);
        let mut batch = CopyBatch::new(&stream);
        batch.push_from_pinned(&mut buffer, &mut there).expect("a copy");
        batch.push_to_pinned(&from, &mut back).expect("a copy");
        batch.enqueue().expect_err("unknown state");
    }
    assert!(there.is_empty() && back.is_empty(), "stranded");
    assert_eq!(cuda_safe::leaked(), 2);
    {
        // The copies are waited for if the call fails.
        let _fails = Fault::of_function("cuMemcpyBatchAsync_v2")
            .with(CUresult::CUDA_ERROR_UNKNOWN)
            .inject(Scope::Thread);
        let mut batch = CopyBatch::new(&stream);
        let mut first = DeviceBuffer::<u8>::zeroed(&stream, 1).expect("memory");
        batch.push_from_pinned(&mut buffer, &mut kept).expect("a copy");
        batch.push_from_slice(&mut first, &[1]).expect("a copy");
        batch.enqueue().expect_err("the fault");
    }
    assert_eq!(kept.len(), 64, "not stranded");
    drop((there, back, kept, buffer, from, stream, context));
    let alive = cuda_sim::alive();
    assert_eq!((alive.pinned_allocations, alive.streams), (2, 1), "{alive}");
    assert_eq!(cuda_sim::misuses(), [""; 0]);
}

/// Checks how many waits a batch with a slice makes.
#[track_caller]
fn check_waits(profile: &str, bytes: usize, expected: usize) {
    let profile: Profile = profile.parse().expect("a profile");
    let (_end, context) = in_child!(on(profile));
    let stream = context.stream().expect("a stream");
    let slice = vec![1u8; bytes];
    let mut target = DeviceBuffer::<u8>::zeroed(&stream, bytes).expect("memory");
    cuda_sim::clear_calls();
    let mut batch = CopyBatch::new(&stream);
    batch.push_from_slice(&mut target, &slice).expect("a copy");
    batch.enqueue().expect("the copy");
    let calls = cuda_sim::calls().into_iter().map(|call| call.function);
    assert_eq!(calls.filter(|its| *its == "cuStreamSynchronize").count(), expected);
}

#[test]
fn a_batch_of_small_slices_does_not_wait() {
    check_waits("h200", 64 << 10, 0);
}

#[test]
fn a_batch_of_small_slices_does_not_wait_on_the_first_driver_with_batches() {
    check_waits("h200@12.9", 1, 0);
}

#[test]
fn a_batch_with_a_large_slice_waits() {
    check_waits("h200", 64 << 10 | 1, 1);
}

#[test]
fn slices_are_waited_for_if_the_driver_has_no_batches() {
    check_waits("h200@12.6", 1, 1);
}
