//! Launches with attributes.

use crate::common;
use crate::module::kernels::{HOPPER, MEET, VECTOR, kernel, nothing};
use cuda_safe::device::attribute;
use cuda_safe::launch::{AccessPolicyWindow, LaunchAttributes, MemoryDomainMap, ProgrammaticEvent};
use cuda_safe::sys::{CUaccessProperty, CUclusterSchedulingPolicy, CUlaunchMemSyncDomain};
use cuda_safe::{
    CUresult, Context, DeviceBuffer, Event, EventOptions, Invalid, LaunchConfig, Stream,
    TypedKernel,
};

const ONE: LaunchConfig = LaunchConfig::linear(1, 1);

/// Returns the context of a device with clusters and a stream, or reports a skip.
pub(crate) fn with_clusters() -> Option<(Context, Stream)> {
    let (context, stream) = common::context_and_stream()?;
    if !context.device().attribute(attribute::CLUSTER_LAUNCH).unwrap_or(false) {
        common::skip("the device has no clusters");
        return None;
    }
    Some((context, stream))
}

#[test]
fn a_launch_without_attributes_works_as_launch() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let mut x = DeviceBuffer::from_slice(&stream, &[5; 100]).expect("a copy");
    check_scaled(&context, &mut x, &LaunchAttributes::default());
}

/// Launches a kernel with attributes on 100 elements of the value 5, and checks the results.
#[track_caller]
fn check_scaled(context: &Context, x: &mut DeviceBuffer<i32>, attributes: &LaunchAttributes<'_>) {
    let scale: TypedKernel<(&mut [i32], i32, i32, u32)> = kernel(context, VECTOR, "scale");
    let (stream, config) = (x.stream().clone(), LaunchConfig::for_elements(100, 32));
    let config = config.expect("a shape");
    // SAFETY: the kernel accesses 100 elements, and the memory has 100.
    unsafe { scale.launch_with(&stream, config, attributes, (&mut *x, 3, 2, 100)) }
        .expect("a launch");
    assert_eq!(x.to_vec().expect("a copy"), [17; 100]);
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let meet = kernel::<(&mut [u32],)>(&context, MEET, "meet");
    let sms = context.device().attribute(attribute::MULTIPROCESSOR_COUNT);
    let fit = meet.kernel().max_active_blocks(1, Default::default());
    let most = sms.expect("known") * fit.expect("an answer");
    let blocks = if cfg!(miri) { 3 } else { most };
    let attributes = LaunchAttributes { cooperative: true, ..Default::default() };
    let mut arrived = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
    let config = LaunchConfig::linear(blocks, 1);
    // SAFETY: the kernel adds to one element, and all of its blocks run at the same time.
    unsafe { meet.launch_with(&stream, config, &attributes, (&mut arrived,)) }
        .expect("this many blocks fit");
    assert_eq!(arrived.to_vec().expect("a copy"), [blocks]);
}

#[test]
fn blocks_read_their_cluster_rank() {
    let (context, stream) = or_skip!(with_clusters());
    let ranks = kernel::<(&mut [u32],)>(&context, HOPPER, "cluster_ranks");
    let mut out = DeviceBuffer::<u32>::zeroed(&stream, 8).expect("memory");
    let attributes = LaunchAttributes {
        cluster: Some([4, 1, 1]),
        cluster_scheduling: Some(CUclusterSchedulingPolicy::CU_CLUSTER_SCHEDULING_POLICY_SPREAD),
        ..Default::default()
    };
    // SAFETY: the kernel writes one element for each of its 8 blocks.
    unsafe { ranks.launch_with(&stream, LaunchConfig::linear(8, 32), &attributes, (&mut out,)) }
        .expect("a launch");
    let right: Vec<u32> = (0..8).map(|block| (4 << 16) | (block % 4)).collect();
    assert_eq!(out.to_vec().expect("a copy"), right);
}

#[test]
fn a_dependent_launch_sees_the_results_it_waited_for() {
    let (context, stream) = or_skip!(with_clusters());
    let first = kernel::<(&mut [u32], u32)>(&context, HOPPER, "pdl_first");
    let second = kernel::<(&mut [u32],)>(&context, HOPPER, "pdl_second");
    let mut x = DeviceBuffer::<u32>::zeroed(&stream, 1).expect("memory");
    let attributes = LaunchAttributes { programmatic_serialization: true, ..Default::default() };
    for _ in 0..10 {
        // SAFETY: the kernel writes one element.
        unsafe { first.launch(&stream, ONE, (&mut x, 100_000)) }.expect("a launch");
        // SAFETY: the kernel waits for the previous one, and then modifies one element.
        unsafe { second.launch_with(&stream, ONE, &attributes, (&mut x,)) }.expect("a launch");
        assert_eq!(x.to_vec().expect("a copy"), [42]);
    }
}

fn recording(event: &Event, at_block_start: bool) -> LaunchAttributes<'_> {
    let programmatic_event = Some(ProgrammaticEvent { event, at_block_start });
    LaunchAttributes { programmatic_event, ..Default::default() }
}

#[test]
fn a_launch_records_events() {
    let (context, stream) = or_skip!(common::context_and_stream());
    let nothing = nothing(&context);
    let [triggered, begun] = common::events(&context);
    let mut launches = vec![recording(&triggered, true)];
    if common::offers(12, 3) {
        launches.push(LaunchAttributes { completion_event: Some(&begun), ..Default::default() });
    }
    for attributes in launches {
        // SAFETY: the kernel does nothing.
        unsafe { nothing.launch_with(&stream, ONE, &attributes, ()) }.expect("a launch");
    }
    stream.synchronize().expect("a wait");
    for event in [triggered, begun] {
        event.synchronize().expect("a wait");
        assert!(event.is_complete().expect("an answer"));
    }
}

#[test]
fn hints_do_not_change_the_result_of_a_kernel() {
    let (context, stream) = or_skip!(common::context_and_stream());
    or_skip!(common::since(12, 5));
    let mut x = DeviceBuffer::from_slice(&stream, &[5; 100]).expect("a copy");
    let priorities = context.stream_priorities().expect("known");
    let attributes = LaunchAttributes {
        priority: Some(*priorities.start()),
        memory_domain: Some(CUlaunchMemSyncDomain::CU_LAUNCH_MEM_SYNC_DOMAIN_DEFAULT),
        memory_domain_map: Some(MemoryDomainMap { default: 0, remote: 0 }),
        access_policy: Some(AccessPolicyWindow {
            address: x.as_raw(),
            bytes: x.size_bytes(),
            hit_ratio: 0.5,
            hit: CUaccessProperty::CU_ACCESS_PROPERTY_STREAMING,
            miss: CUaccessProperty::CU_ACCESS_PROPERTY_NORMAL,
        }),
        carveout: Some(100),
        nvlink_centric: common::offers(13, 0),
        portable_cluster_mode: common::offers(13, 2).then(Default::default),
        shared_memory_mode: common::offers(13, 2).then(Default::default),
        ..Default::default()
    };
    check_scaled(&context, &mut x, &attributes);
}

fn refusal(context: &Context, attributes: &LaunchAttributes<'_>) -> Invalid {
    let stream = context.stream().expect("a stream");
    let nothing = nothing(context);
    // SAFETY: the kernel does nothing.
    let launched = unsafe { nothing.launch_with(&stream, ONE, attributes, ()) };
    common::invalid(launched)
}

#[test]
fn invalid_launch_attribute_values_are_refused() {
    let context = or_skip!(common::context());
    let [hit, miss] = [CUaccessProperty::CU_ACCESS_PROPERTY_NORMAL; 2];
    let window = AccessPolicyWindow { address: 0, bytes: 0, hit_ratio: f32::NAN, hit, miss };
    let cases = [
        ("cluster", LaunchAttributes { cluster: Some([2, 0, 1]), ..Default::default() }),
        ("carveout", LaunchAttributes { carveout: Some(101), ..Default::default() }),
        ("access_policy", LaunchAttributes { access_policy: Some(window), ..Default::default() }),
    ];
    for (name, attributes) in cases {
        match refusal(&context, &attributes) {
            Invalid::LaunchAttribute { attribute, .. } => assert_eq!(attribute, name),
            why => panic!("{why}"),
        }
    }
}

#[test]
fn an_event_of_another_context_is_refused() {
    let (context, other) = or_skip!(common::two_contexts());
    let event = other.event().expect("an event");
    let why = refusal(&context, &recording(&event, false));
    assert!(matches!(why, Invalid::OtherContext { .. }), "{why}");
}

#[test]
fn an_attribute_newer_than_the_driver_is_refused_rather_than_ignored() {
    let context = or_skip!(common::context());
    if common::offers(13, 2) {
        return common::skip("the driver has all attributes");
    }
    let attributes = LaunchAttributes {
        shared_memory_mode: Some(cuda_safe::sys::CUsharedMemoryMode::default()),
        ..Default::default()
    };
    let text = refusal(&context, &attributes).to_string();
    for part in ["shared_memory_mode", "13.2"] {
        assert!(text.contains(part), "{text}");
    }
}

mod provoked {
    use super::*;

    fn code(
        context: &Context,
        config: LaunchConfig,
        attributes: &LaunchAttributes<'_>,
    ) -> CUresult {
        let stream = context.stream().expect("a stream");
        let nothing = nothing(context);
        // SAFETY: the kernel does nothing.
        let launched = unsafe { nothing.launch_with(&stream, config, attributes, ()) };
        let error = launched.expect_err("refused");
        assert!(error.to_string().starts_with("cuLaunchKernelEx"), "{error}");
        stream.synchronize().expect("no error");
        error.code().expect("a driver error")
    }

    #[test]
    fn a_cooperative_grid_that_does_not_fit_is_refused() {
        let context = or_skip!(common::context());
        let attributes = LaunchAttributes { cooperative: true, ..Default::default() };
        let code = code(&context, LaunchConfig::linear(1 << 20, 1024), &attributes);
        assert_eq!(code, CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
    }

    #[test]
    fn a_grid_that_is_not_a_multiple_of_the_cluster_is_refused() {
        let (context, _) = or_skip!(with_clusters());
        let attributes = LaunchAttributes { cluster: Some([4, 1, 1]), ..Default::default() };
        let _ = code(&context, LaunchConfig::linear(6, 32), &attributes);
    }

    #[test]
    fn an_event_with_timing_is_refused() {
        let context = or_skip!(common::context());
        let timing = EventOptions { timing: true, ..Default::default() };
        let event = context.event_with(timing).expect("an event");
        let code = code(&context, ONE, &recording(&event, false));
        assert_eq!(code, CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
}
