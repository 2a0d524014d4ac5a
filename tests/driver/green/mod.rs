//! Green contexts: splits of the SMs of a device, partitions, and the SMs that their work runs on.

pub(crate) mod current;
pub(crate) mod graph;
pub(crate) mod partition;
pub(crate) mod pool;
pub(crate) mod rules;
pub(crate) mod sms_of_work;

use crate::common::{self, child};
use crate::module::kernels::{Busy, RecordSmid, Scale};
use cuda_safe::green::{
    Granularity, GreenContext, Overlap, SmGroup, SmResource, Split, SplitByCount, SplitFlags,
};
use cuda_safe::{Context, Device, DeviceBuffer, Error, Invalid, StreamOptions};
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Returns a lock that lets one test at a time split the device.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the SM resource of a device with green contexts, or reports a skip.
pub(crate) fn resource() -> Option<SmResource> {
    let device = common::gpu()?;
    match SmResource::of_device(&device) {
        Ok(resource) => Some(resource),
        Err(why) => {
            common::skip(&why.to_string());
            None
        }
    }
}

/// Returns the SM resource of a device with green contexts and a lock as that of [`alone`], or reports
/// a skip.
pub(crate) fn resource_alone() -> Option<(MutexGuard<'static, ()>, SmResource)> {
    let lock = alone();
    Some((lock, resource()?))
}

/// Like [`resource_alone`], also with the primary context of the device.
pub(crate) fn context_alone() -> Option<(MutexGuard<'static, ()>, SmResource, Context)> {
    let (lock, resource) = resource_alone()?;
    let context = Context::primary(&resource.device()).expect("a primary context");
    Some((lock, resource, context))
}

/// Returns a partition of the first of the smallest groups.
pub(crate) fn partition(resource: SmResource) -> GreenContext {
    GreenContext::new([smallest(resource).groups.remove(0)]).expect("a partition")
}

/// Returns two partitions of one group each, from one split, and a lock as that of [`alone`].
pub(crate) fn two() -> Option<(MutexGuard<'static, ()>, [GreenContext; 2])> {
    let (lock, resource) = resource_alone()?;
    let mut groups = smallest(resource).groups.into_iter();
    let two = std::array::from_fn(|_| {
        let group = groups.next().expect("a group");
        GreenContext::new([group]).expect("a partition")
    });
    Some((lock, two))
}

pub(crate) fn again(device: &Device) -> SmResource {
    SmResource::of_device(device).expect("it worked before")
}

pub(crate) fn refusal(error: Error) -> Invalid {
    match error {
        Error::Invalid(invalid) => *invalid,
        other => panic!("{other}"),
    }
}

pub(crate) fn smallest(resource: SmResource) -> Split {
    resource.split_by_count(SplitByCount::default()).expect("a split")
}

#[test]
fn the_resource_holds_all_sms_of_the_device() {
    let resource = or_skip!(resource());
    let sms = resource.device().attribute(cuda_safe::device::attribute::MULTIPROCESSOR_COUNT);
    assert_eq!(resource.sm_count(), sms.expect("known"));
    if cuda_safe::version().expect("a driver") >= cuda_safe::CudaVersion::new(13, 0) {
        assert!(resource.properties().min_partition_size.expect("available since CUDA 13.0") >= 1);
        assert!(
            resource.properties().coscheduled_alignment.expect("available since CUDA 13.0") >= 1
        );
    }
}

#[test]
fn parts_of_a_remainder_may_be_smaller_than_parts_of_a_group() {
    let (_alone, resource) = or_skip!(resource_alone());
    or_skip!(common::since(13, 0));
    let whole = resource.granularity().expect("known");
    if whole.multiple <= 2 {
        common::skip("groups of this device have the alignment of a remainder");
        return;
    }
    let mut split = smallest(resource);
    let group = GreenContext::new([split.groups.remove(0)]).expect("a partition");
    let remainder = or_skip!(split.remainder);
    let remainder = GreenContext::new([remainder]).expect("a partition");
    let of = |green: &GreenContext| {
        SmResource::of_green_context(green).expect("a resource").granularity().expect("known")
    };
    assert_eq!(of(&group), whole);
    assert_eq!(of(&remainder), Granularity { min: 2, multiple: 2 });
}

#[test]
fn a_split_gives_equal_groups_and_a_remainder() {
    let (_alone, resource) = or_skip!(resource_alone());
    let sms = resource.sm_count();
    for min in [0, 1, 7, 8, 9, sms / 3, sms / 2, sms - 1, sms] {
        let resource = again(&resource.device());
        let possible = resource.count_groups(min, SplitFlags::empty()).expect("a count");
        let split = resource.split_by_count(SplitByCount { min, ..Default::default() });
        let Split { groups, remainder } = split.expect("a split");
        assert_eq!(groups.len(), possible as usize, "min {min}");
        let size = groups[0].sm_count();
        assert!(size >= min, "min {min}: {size}");
        assert!(groups.iter().all(|group| group.sm_count() == size));
        let rest = remainder.as_ref().map_or(0, SmGroup::sm_count);
        assert_eq!(size * possible + rest, sms, "min {min}");
    }
}

#[test]
fn a_split_gives_no_more_groups_than_requested() {
    let (_alone, resource) = or_skip!(resource_alone());
    let sms = resource.sm_count();
    let split = resource.split_by_count(SplitByCount { max_groups: Some(2), ..Default::default() });
    let Split { groups, remainder } = split.expect("a split");
    assert_eq!(groups.len(), 2);
    let given: u32 = groups.iter().map(SmGroup::sm_count).sum();
    assert_eq!(given + remainder.expect("the rest").sm_count(), sms);
}

#[test]
fn invalid_splits_are_refused() {
    let (_alone, resource) = or_skip!(resource_alone());
    let sm_count = resource.sm_count();
    let both = SplitFlags::IGNORE_SM_COSCHEDULING | SplitFlags::MAX_POTENTIAL_CLUSTER_SIZE;
    let unknown = SplitFlags::from_bits_retain(4);
    let cases = [
        (
            SplitByCount { min: sm_count + 1, ..Default::default() },
            Invalid::SplitAboveResource { min: sm_count + 1, sm_count },
        ),
        (SplitByCount { max_groups: Some(0), ..Default::default() }, Invalid::NoGroups),
        (SplitByCount { flags: both, ..Default::default() }, Invalid::SplitFlags { flags: 3 }),
        (SplitByCount { flags: unknown, ..Default::default() }, Invalid::SplitFlags { flags: 4 }),
    ];
    for (split, expected) in cases {
        assert_eq!(refusal(resource.split_by_count(split).expect_err("refused")), expected);
    }
    smallest(resource);
}

#[test]
fn partitions_run_on_disjoint_sms() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let device = resource.device();
    let record = RecordSmid::new(&context);
    let Split { groups, remainder } = smallest(resource);
    let mut seen = BTreeSet::new();
    for group in groups.into_iter().chain(remainder) {
        let given = group.sm_count();
        let partition = GreenContext::new([group]).expect("a green context");
        assert_eq!(partition.sm_count(), given);
        assert_eq!(partition.context(), &context);
        let stream = partition.stream().expect("a stream");
        assert_eq!(stream.green_context().as_ref(), Some(&partition));
        assert_eq!(stream.context(), &context);
        let sms = record.sms(&stream);
        assert_eq!(sms.len(), given as usize, "the SM count of the partition");
        assert!(seen.is_disjoint(&sms), "an SM of another partition: {sms:?}");
        seen.extend(sms);
    }
    let all = device.attribute(cuda_safe::device::attribute::MULTIPROCESSOR_COUNT);
    assert_eq!(seen.len(), all.expect("known") as usize, "together they are the device");
}

#[test]
fn several_groups_of_one_split_form_one_partition() {
    let (_alone, resource, context) = or_skip!(context_alone());
    or_skip!(common::since(12, 5));
    let record = RecordSmid::new(&context);
    let mut groups = smallest(resource).groups.into_iter();
    let (three, two): (Vec<_>, Vec<_>) =
        (groups.by_ref().take(3).collect(), groups.take(2).collect());
    let sizes: Vec<u32> =
        [&three, &two].map(|groups| groups.iter().map(SmGroup::sm_count).sum()).to_vec();
    let partitions = [three, two].map(|groups| GreenContext::new(groups).expect("a green context"));
    let sms = [&partitions[0], &partitions[1]]
        .map(|partition| record.sms(&partition.stream().expect("a stream")));
    for (index, size) in sizes.iter().enumerate() {
        assert_eq!(partitions[index].sm_count(), *size);
        assert_eq!(sms[index].len(), *size as usize);
    }
    assert!(sms[0].is_disjoint(&sms[1]));
}

#[test]
fn empty_and_mixed_sets_of_groups_are_refused_and_returned() {
    let (_alone, resource) = or_skip!(resource_alone());
    let device = resource.device();
    assert_eq!(refusal(GreenContext::new([]).expect_err("no groups")), Invalid::NoGroups);

    let first = smallest(resource);
    let second = again(&device)
        .split_by_count(SplitByCount { overlap: Overlap::Allow, ..Default::default() });
    let second = second.expect("asked for by name");
    let mixed: Vec<SmGroup> = first.groups.into_iter().take(1).chain(second.groups).collect();
    let count = mixed.len();
    let rejected = GreenContext::try_new(mixed).expect_err("two splits");
    assert_eq!(refusal(rejected.error), Invalid::GroupsOfDifferentSplits);
    assert_eq!(rejected.value.len(), count, "all groups are returned");
}

#[test]
fn a_second_split_is_refused_while_parts_of_the_first_are_alive() {
    let (_alone, resource) = or_skip!(resource_alone());
    let device = resource.device();
    let split = resource
        .split_by_count(SplitByCount { label: "the first".to_owned(), ..Default::default() });
    let Split { mut groups, .. } = split.expect("a split");
    let kept = groups.pop().expect("a group");
    drop(groups);
    let partition = GreenContext::new([kept]).expect("a green context");
    let stream = partition.stream().expect("a stream");
    drop(partition);
    let error = resource.split_by_count(SplitByCount::default()).expect_err("in use");
    assert_eq!(
        refusal(error),
        Invalid::SplitInUse { device: device.as_raw(), holder: "the first".to_owned() },
        "only a stream of the partition is left"
    );
    drop(stream);
    resource.split_by_count(SplitByCount::default()).expect("free again");
}

#[test]
fn memory_and_kernels_of_the_primary_context_work_on_green_streams() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let scale = Scale::new(&context);
    let partition = partition(resource);
    let stream = partition.stream().expect("a stream");
    drop(partition);
    let mut x = DeviceBuffer::from_slice(&stream, &[1, 2, 3]).expect("a copy");
    scale.run(&stream, &mut x, 2, 1).expect("a launch");
    let event = context.event().expect("an event");
    event.record(&stream).expect("a record");
    event.synchronize().expect("a wait");
    assert_eq!(x.to_vec().expect("a copy"), [3, 5, 7]);
}

#[test]
fn green_streams_have_priorities_and_are_nonblocking() {
    let (_alone, resource) = or_skip!(resource_alone());
    let partition = partition(resource);
    let blocking = partition.stream_with(StreamOptions { blocking: true, ..Default::default() });
    assert_eq!(refusal(blocking.expect_err("blocking")), Invalid::BlockingGreenStream);
    let high = partition.stream_with(StreamOptions { priority: -1, ..Default::default() });
    assert_eq!(high.expect("a stream").priority().expect("known"), -1);
}

#[test]
fn green_contexts_have_ids() {
    let (_alone, resource) = or_skip!(resource_alone());
    let mut groups = smallest(resource).groups.into_iter();
    let mut partition = || {
        let group = groups.next().expect("a group");
        GreenContext::new([group]).expect("a green context")
    };
    let (a, b) = (partition(), partition());
    match (a.id(), b.id()) {
        (Ok(a), Ok(b)) => assert_ne!(a, b),
        (Err(Error::Missing(missing)), _) => assert!(missing.needs_newer_driver()),
        other => panic!("{other:?}"),
    }
    assert_ne!(a, b);
    assert_eq!(a, a.clone());
}

#[test]
fn green_contexts_can_be_used_and_dropped_on_many_threads() {
    let (_alone, resource, context) = or_skip!(context_alone());
    let scale = &Scale::new(&context);
    let groups = smallest(resource).groups;
    let rounds = if cfg!(miri) { 1 } else { 20 };
    std::thread::scope(|scope| {
        for group in groups.into_iter().take(4) {
            scope.spawn(move || {
                let partition = GreenContext::new([group]).expect("a green context");
                for round in 1..=rounds {
                    let stream = partition.stream().expect("a stream");
                    let mut x = DeviceBuffer::from_slice(&stream, &[round; 100]).expect("a copy");
                    scale.run(&stream, &mut x, 3, 0).expect("a launch");
                    assert_eq!(x.to_vec().expect("a copy"), [3 * round; 100]);
                }
            });
        }
    });
}

/// In the primary context, another test measures what these releases wait for. This test measures
/// it on a stream of a green context.
#[test]
fn synchronous_memory_and_code_in_use_on_a_green_stream_are_released_after_the_work() {
    child::in_child(&[], || {
        let resource = or_skip!(resource());
        let context = Context::primary(&resource.device()).expect("a primary context");
        let group = smallest(resource).groups.pop().expect("a group");
        let stream = GreenContext::new([group])
            .and_then(|green| green.stream().map_err(|error| panic!("{error}")))
            .expect("a stream of a green context");
        let event = context.event().expect("an event");

        let mut plain = DeviceBuffer::<i32>::zeroed_sync(&stream, 1000).expect("memory");
        let scale = Scale::new(&context);
        let busy = Busy::new(&context, &stream);
        scale.run(&stream, &mut plain, 1, 1).expect("a launch");
        event.record(&stream).expect("a record");
        assert!(!event.is_complete().expect("a query"), "the work is still running");
        drop(plain);
        assert!(event.is_complete().expect("a query"), "the free waited for the work");

        let again = Busy::new(&context, &stream);
        event.record(&stream).expect("a record");
        assert!(!event.is_complete().expect("a query"), "the work is still running");
        drop(again);
        assert!(event.is_complete().expect("a query"), "the unload waited for the work");
        drop((busy, scale));
        stream.synchronize().expect("no error");
    });
}
