//! Occupancy: how many blocks of a kernel fit on the device.

use super::attributes::with_clusters;
use crate::common;
use crate::module::kernels::{HOPPER, SHARED, kernel, nothing};
use cuda_safe::device::attribute;
use cuda_safe::launch::{LaunchAttributes, OccupancyOptions};
use cuda_safe::module::attribute as of;
use cuda_safe::{Invalid, LaunchConfig};
use std::panic::{AssertUnwindSafe, catch_unwind};

fn with_shared(shared_bytes: usize) -> OccupancyOptions {
    OccupancyOptions { shared_bytes, ..Default::default() }
}

#[test]
fn blocks_of_a_multiprocessor_are_limited_by_threads_and_shared_memory() {
    let context = or_skip!(common::context());
    let nothing = nothing(&context);
    let kernel = nothing.kernel();
    let device = context.device();
    let threads = device.attribute(attribute::MAX_THREADS_PER_MULTIPROCESSOR).expect("known");
    let fit = |size, options| kernel.max_active_blocks(size, options).expect("an answer");
    assert_eq!(fit(1024, Default::default()), threads / 1024);
    let keep = OccupancyOptions { keep_caching: true, ..Default::default() };
    assert_eq!(fit(1024, keep), threads / 1024);
    let shared = device.attribute(attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    let shared = shared.expect("known") as usize;
    let with_much = fit(32, with_shared(48 * 1024)) as usize;
    assert!(with_much >= 1 && with_much <= shared / (48 * 1024), "{with_much}");
    assert!(fit(32, Default::default()) as usize > with_much);
    assert_eq!(fit(2048, Default::default()), 0, "a block larger than any device supports");
}

#[test]
fn the_suggested_block_size_fills_the_device() {
    let context = or_skip!(common::context());
    let nothing = nothing(&context);
    let kernel = nothing.kernel();
    let device = context.device();
    let threads = device.attribute(attribute::MAX_THREADS_PER_MULTIPROCESSOR);
    let sms = device.attribute(attribute::MULTIPROCESSOR_COUNT);
    let all = threads.expect("known") * sms.expect("known");
    let plain = kernel.suggested_block(Default::default()).expect("an answer");
    assert_eq!(plain.threads * plain.blocks, all);
    let small = OccupancyOptions { max_threads: Some(100), ..Default::default() };
    let small = kernel.suggested_block(small).expect("an answer");
    assert!(small.threads <= 100 && small.blocks > 0, "{small:?}");
}

#[test]
fn shared_memory_may_depend_on_the_block_size() {
    let context = or_skip!(common::context());
    let bounded = kernel::<(&mut [u32],)>(&context, SHARED, "bounded");
    let mut asked = Vec::new();
    let shared = |threads| {
        asked.push(threads);
        16 * threads as usize
    };
    let suggested = bounded.kernel().suggested_block_with(shared, Default::default());
    let suggested = suggested.expect("an answer");
    assert_eq!(asked, [32, 64], "the kernel's blocks have 64 threads at most");
    assert!([32, 64].contains(&suggested.threads), "{suggested:?}");
    // With this little shared memory per thread, only blocks of one warp fit.
    let nothing = nothing(&context);
    let greedy = |threads| if threads <= 32 { 0 } else { 1 << 20 };
    let suggested = nothing.kernel().suggested_block_with(greedy, Default::default());
    assert_eq!(suggested.expect("an answer").threads, 32);
}

#[test]
fn shared_memory_is_queried_up_to_the_limit_of_the_options() {
    let context = or_skip!(common::context());
    let nothing = nothing(&context);
    let limited = |max_threads| {
        let mut queried = Vec::new();
        let options = OccupancyOptions { max_threads, ..Default::default() };
        let shared = |threads| {
            queried.push(threads);
            0
        };
        let suggested = nothing.kernel().suggested_block_with(shared, options);
        assert!(suggested.expect("an answer").threads > 0);
        queried
    };
    assert_eq!(limited(Some(96)), [32, 64, 96]);
    // Zero is no limit, as for the driver.
    assert_eq!(limited(Some(0)), limited(None));
}

#[test]
fn a_panic_of_the_shared_memory_function_reaches_the_caller() {
    let context = or_skip!(common::context());
    let nothing = nothing(&context);
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        nothing.kernel().suggested_block_with(|_| panic!("no idea"), Default::default())
    }));
    assert!(panicked.is_err());
    let after = nothing.kernel().suggested_block(Default::default());
    assert!(after.expect("no error").threads > 0);
}

#[test]
fn shared_memory_is_divided_among_blocks() {
    let context = or_skip!(common::context());
    let nothing = nothing(&context);
    let share = |blocks| {
        let bytes = nothing.kernel().available_shared_bytes(blocks, 32);
        bytes.expect("an answer")
    };
    // The amount that a launch may request without a kernel attribute, if it is available.
    let (one, many) = (share(1), share(16));
    assert!(one == 48 * 1024 && many < one && many > 0, "{one} {many}");
    let shared = context.device().attribute(attribute::MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
    assert!(many <= shared.expect("known") as usize / 16, "{many}");
}

#[test]
fn clusters_are_counted_if_the_device_has_them() {
    let (context, _) = or_skip!(with_clusters());
    let ranks = kernel::<(&mut [u32],)>(&context, HOPPER, "cluster_ranks");
    let ranks = ranks.kernel();
    let config = LaunchConfig::linear(16, 128);
    let largest = |attributes: &LaunchAttributes<'_>| {
        let size = ranks.max_cluster_size(config, attributes);
        size.expect("an answer")
    };
    assert_eq!(largest(&Default::default()), 8);
    let pairs = LaunchAttributes { cluster: Some([2, 1, 1]), ..Default::default() };
    let active = ranks.max_active_clusters(config, &pairs).expect("an answer");
    let sms = context.device().attribute(attribute::MULTIPROCESSOR_COUNT);
    assert!(active >= sms.expect("known") / 2, "{active}");
    ranks.set_attribute(of::NON_PORTABLE_CLUSTER_SIZE_ALLOWED, true).expect("allowed");
    assert_eq!(largest(&Default::default()), 16);
}

#[test]
fn empty_blocks_are_refused_without_a_driver_call() {
    let context = or_skip!(common::context());
    let nothing = nothing(&context);
    let kernel = nothing.kernel();
    let none = LaunchConfig::linear(1, 0);
    let errors = [
        (kernel.max_active_blocks(0, Default::default()).map(drop), 1, 0),
        (kernel.available_shared_bytes(0, 32).map(drop), 0, 32),
        (kernel.available_shared_bytes(1, 0).map(drop), 1, 0),
        (kernel.max_cluster_size(none, &Default::default()).map(drop), 1, 0),
    ];
    for (refused, blocks, threads) in errors {
        let expected = Invalid::LaunchConfig { grid: [blocks, 1, 1], block: [threads, 1, 1] };
        assert_eq!(common::invalid(refused), expected);
    }
}
