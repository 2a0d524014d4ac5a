//! The SMs that work runs on, measured with `SmProbe`, and clusters on partitions.

use crate::common;
use crate::green::{again, context_alone, partition, refusal, resource_alone, smallest};
use crate::module::kernels::{HOPPER, kernel};
use cuda_safe::capture::CaptureMode;
use cuda_safe::device::attribute;
use cuda_safe::green::{
    GreenContext, GreenPool, GreenPoolOptions, Overlap, PartitionRequest, PartitionSize,
    SmOverlapCause, SmProbe, SplitByCount, SplitFlags,
};
use cuda_safe::{Context, Invalid, LaunchConfig};
use std::collections::BTreeSet;

#[test]
fn a_probe_finds_exactly_the_sms_of_a_partition() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let probe = SmProbe::new(&context).expect("a probe");
    assert_eq!(probe.context(), &context);
    let mut partitions = Vec::new();
    for group in smallest(resource).groups.into_iter().take(3) {
        partitions.push(GreenContext::new([group]).expect("a green context"));
    }
    let streams: Vec<_> = partitions.iter().map(|its| its.stream().expect("a stream")).collect();
    // All at the same time.
    let probing: Vec<_> =
        streams.iter().map(|stream| probe.start(stream).expect("a launch")).collect();
    let mut seen = BTreeSet::new();
    for (probing, partition) in probing.into_iter().zip(&partitions) {
        let trace = probing.synchronize().expect("a trace");
        assert_eq!(trace.given, Some(partition.sm_count()));
        assert_eq!(trace.sms.len(), partition.sm_count() as usize);
        assert_eq!(trace.added, None);
        assert!(seen.is_disjoint(&trace.sms), "{trace:?}");
        seen.extend(trace.sms);
    }
    let both = probe.compare(&streams[0], &streams[1]).expect("a trace");
    assert_eq!((both.shared.len(), both.cause), (0, None), "{both}");
}

#[test]
fn a_stream_without_a_partition_runs_on_every_sm_and_may_share_them() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let probe = SmProbe::new(&context).expect("a probe");
    let plain = context.stream().expect("a stream");
    let trace = probe.trace(&plain).expect("a trace");
    let all = context.device().attribute(attribute::MULTIPROCESSOR_COUNT);
    assert_eq!(trace.sms.len(), all.expect("known") as usize);
    assert_eq!((trace.given, trace.added), (None, None));

    let partition = partition(resource);
    let part = probe.trace(&partition.stream().expect("a stream"));
    let overlap = trace.compare(&part.expect("a trace"));
    assert_eq!(overlap.cause, Some(SmOverlapCause::NotPartitioned));
    assert_eq!(overlap.shared, overlap.second.sms);
    assert!(!overlap.is_by_hardware());
}

#[test]
fn streams_of_one_partition_or_of_two_splits_may_share_sms() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let device = resource.device();
    let probe = SmProbe::new(&context).expect("a probe");
    let first = smallest(resource).groups.remove(0);
    let first = GreenContext::new([first]).expect("a green context");
    let streams = [(); 2].map(|()| first.stream().expect("a stream"));
    let one = probe.compare(&streams[0], &streams[1]).expect("a trace");
    assert_eq!(one.cause, Some(SmOverlapCause::OnePartition), "{one}");

    let again = again(&device)
        .split_by_count(SplitByCount { overlap: Overlap::Allow, ..Default::default() });
    let second = again.expect("asked for by name").groups.remove(0);
    let second = GreenContext::new([second]).expect("a green context");
    // One after the other, because at the same time the software driver would report a misuse.
    let trace = |green: &GreenContext| {
        let stream = green.stream().expect("a stream");
        probe.trace(&stream).expect("a trace")
    };
    let twice = trace(&first).compare(&trace(&second));
    assert_eq!(twice.cause, Some(SmOverlapCause::Given), "{twice}");
    assert_eq!(twice.shared, twice.first.sms);
}

#[test]
fn a_stream_of_a_pool_is_traced_as_one_of_its_partition() {
    let (_alone, resource) = or_skip!(resource_alone());
    let device = resource.device();
    let size = resource.granularity().expect("known").min;
    let pool =
        GreenPool::new(&device, GreenPoolOptions::default()).expect("no other pool has the device");
    let lease = pool.try_lease(&PartitionRequest {
        sizes: vec![PartitionSize::Sms(size)],
        ..PartitionRequest::default()
    });
    let lease = lease.expect("a lease");
    let probe = SmProbe::new(lease[0].context()).expect("a probe");
    let trace = probe.trace(&lease[0].stream().expect("a stream"));
    let trace = trace.expect("a trace");
    assert_eq!(trace.given, Some(lease[0].sm_count()));
    assert_eq!(trace.sms.len(), lease[0].sm_count() as usize);
}

#[test]
fn a_probe_refuses_streams_of_other_contexts_and_in_captures() {
    let context = or_skip!(common::context());
    let probe = SmProbe::new(&context).expect("a probe");
    let other = Context::new(&context.device(), Default::default()).expect("a context");
    let stream = other.stream().expect("a stream");
    let refused = probe.sms(&stream).expect_err("another context's");
    assert!(matches!(refusal(refused), Invalid::OtherContext { .. }));

    let stream = context.stream().expect("a stream");
    let capture = stream.begin_capture(CaptureMode::ThreadLocal).expect("a capture");
    assert_eq!(refusal(probe.sms(&stream).expect_err("a capture")), Invalid::StreamIsCaptured);
    capture.end().expect("a valid capture");
}

#[test]
fn the_largest_cluster_of_a_partition_is_reported() {
    let (_alone, resource) = or_skip!(resource_alone());
    let device = resource.device();
    if !device.attribute(attribute::CLUSTER_LAUNCH).unwrap_or(false) {
        return common::skip("the device has no clusters");
    }
    let context = Context::primary(&device).expect("a primary context");
    let ranks = kernel::<(&mut [u32],)>(&context, HOPPER, "cluster_ranks");
    let config = LaunchConfig::linear(16, 128);
    let whole = ranks.kernel().max_cluster_size(config, &Default::default()).expect("an answer");
    for flags in [SplitFlags::empty(), SplitFlags::MAX_POTENTIAL_CLUSTER_SIZE] {
        if !flags.is_empty() && !common::offers(12, 5) {
            continue;
        }
        let split = again(&device).split_by_count(SplitByCount { flags, ..Default::default() });
        let group = split.expect("a split").groups.remove(0);
        let partition = GreenContext::new([group]).expect("a green context");
        let size = partition.max_cluster_size(ranks.kernel(), config).expect("an answer");
        assert!((1..=whole).contains(&size), "{size} of {whole}");
        let stream = partition.stream().expect("a stream");
        let same = ranks.kernel().max_cluster_size_on(&stream, config, &Default::default());
        assert_eq!(same.expect("an answer"), size);
    }
}
