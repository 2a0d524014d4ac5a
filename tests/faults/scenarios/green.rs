//! Partitions: resources, splits, green contexts and their streams.

use super::{SMID, expect, if_there_is, invalid, refused, scale};
use crate::trace::Trace;
use cuda_safe::green::{
    Descriptor, ExactSplit, GreenContext, GreenPool, GreenPoolOptions, GroupRequest, Overlap,
    PartitionRequest, PartitionSize, SmOverlapCause, SmProbe, SmProbing, SmResource, SplitByCount,
    SplitFlags, WorkqueueScope, Workqueues,
};
use cuda_safe::{
    CUresult, Context, Device, DeviceBuffer, Error, Invalid, LaunchConfig, Module, Result,
    StreamOptions,
};
use std::collections::BTreeSet;

/// Creates three partitions of one group each, with work on all of them.
pub(super) fn one_group_each(trace: &mut Trace) -> Result<()> {
    let resource = SmResource::of_device(&Device::get(0)?)?;
    let possible = resource.count_groups(32, SplitFlags::empty())?;
    let split = resource.split_by_count(SplitByCount {
        min: 32,
        max_groups: Some(possible.min(3)),
        label: "the sweep".to_owned(),
        ..Default::default()
    })?;
    let mut running = Vec::new();
    let mut seen = BTreeSet::new();
    for group in split.groups {
        let given = group.sm_count();
        let partition = GreenContext::new([group])?;
        assert_eq!(partition.sm_count(), given);
        if_there_is(partition.id())?;
        let stream = partition.stream()?;
        let high = partition.stream_with(StreamOptions { priority: -1, ..Default::default() })?;
        assert_eq!(high.priority()?, -1);
        let blocking =
            partition.stream_with(StreamOptions { blocking: true, ..Default::default() });
        expect(blocking, invalid(|why| matches!(why, Invalid::BlockingGreenStream)))?;
        let module = Module::from_ptx(partition.context(), SMID)?;
        let record = module.kernel("record_smid")?.typed::<(&mut [u32], u32)>()?;
        let mut smids = DeviceBuffer::<u32>::zeroed(&stream, given as usize)?;
        let config = LaunchConfig::linear(given, 32);
        // SAFETY: the kernel writes one element for each block, and the buffer has that many.
        unsafe { record.launch(&stream, config, (&mut smids, 1)) }?;
        let event = partition.context().event()?;
        event.record(&stream)?;
        high.wait_event(&event)?;
        // Now only the buffer keeps the partition alive.
        trace.drop((stream, partition, module, record));
        running.push((smids, high));
    }
    for (smids, high) in &running {
        high.synchronize()?;
        for sm in smids.to_vec()? {
            assert!(seen.insert(sm), "SM {sm} is in two partitions");
        }
    }
    trace.drops_from_here()
}

/// Uses partitions of several groups, smaller groups, and a second split of the device.
pub(super) fn several_groups(trace: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let split = SmResource::of_device(&device)?.split_by_count(SplitByCount {
        flags: SplitFlags::IGNORE_SM_COSCHEDULING,
        min: 4,
        label: "the sweep".to_owned(),
        ..Default::default()
    })?;
    let second = SmResource::of_device(&device)?.split_by_count(SplitByCount::default());
    expect(second, invalid(|why| matches!(why, Invalid::SplitInUse { .. })))?;
    let overlapping = SmResource::of_device(&device)?
        .split_by_count(SplitByCount { overlap: Overlap::Allow, ..Default::default() })?;
    let mut groups = split.groups.into_iter();
    let first = GreenContext::new(groups.by_ref().take(3))?;
    let second = GreenContext::new(groups.take(2).chain(split.remainder))?;
    assert!(first.sm_count() >= second.sm_count());
    drop(overlapping);

    let scale = scale(first.context())?;
    let streams = [first.stream()?, second.stream()?];
    trace.drop((first, second));
    let mut buffers = Vec::new();
    for stream in &streams {
        let mut x = DeviceBuffer::from_slice(stream, &[1, 2, 3])?;
        // SAFETY: the kernel accesses 3 elements, and the memory has 3.
        unsafe { scale.launch(stream, LaunchConfig::linear(1, 32), (&mut x, 2, 1, 3)) }?;
        buffers.push((x, DeviceBuffer::<i32>::zeroed_sync(stream, 3)?));
    }
    trace.drop(streams);
    for (x, plain) in &mut buffers {
        plain.copy_from(x)?;
        assert_eq!(plain.to_vec()?, [3, 5, 7]);
    }
    trace.drops_from_here()
}

pub(super) fn partitions(trace: &mut Trace) -> Result<()> {
    let device = Device::get(0)?;
    let context = Context::primary(&device)?;
    let resource = SmResource::of_context(&context)?;
    assert!(!resource.equal_splits(SplitFlags::empty())?.is_empty());
    if_there_is(resource.discover(&[GroupRequest::default()]))?;
    let asked = PartitionRequest {
        sizes: vec![PartitionSize::Sms(32), PartitionSize::Sms(16)],
        ..PartitionRequest::default()
    };
    let plan = resource.plan(&asked)?;
    let partitions = resource.partition(&asked)?;
    assert_eq!(partitions.method, plan.method);
    let mut greens = Vec::new();
    for part in partitions.parts {
        greens.push(part.create()?);
    }
    assert!(SmResource::of_green_context(&greens[0])?.sm_count() >= 32);
    let stream = greens[1].stream()?;
    if_there_is(SmResource::of_stream(&stream))?;
    trace.drop((greens, partitions.remaining));
    stream.synchronize()?;
    trace.drop(stream);

    // Splits a group again.
    let groups = SmResource::of_device(&device)?
        .split_by_count(SplitByCount { min: 32, max_groups: Some(1), ..SplitByCount::default() })?
        .groups;
    for group in groups {
        let split = group.split_by_count(SplitByCount::default())?;
        let mut parts = Vec::new();
        for part in split.groups {
            parts.push(GreenContext::new([part])?);
        }
        trace.drop(parts);
        trace.drop(split.remainder);
    }
    exactly(trace, &device)?;
    trace.drops_from_here()
}

/// Uses exact splits: of the device, of a group and of the remainder.
fn exactly(trace: &mut Trace, device: &Device) -> Result<()> {
    let of = |sizes: &[u32]| ExactSplit {
        groups: sizes.iter().copied().map(GroupRequest::new).collect(),
        ..ExactSplit::default()
    };
    let split = match SmResource::of_device(device)?.split(of(&[64, 16])) {
        Ok(split) => split,
        Err(error) => return if_there_is::<()>(Err(error)),
    };
    let mut groups = split.groups;
    // The split uses a temporary green context, which is destroyed.
    let found =
        trace.drops_after_last("cuDevSmResourceSplit", || groups[0].discover(&of(&[32]).groups))?;
    assert_eq!(found[0].sm_count, 32);
    let smaller = groups.remove(0).split(of(&[32, 16]))?;
    let mut greens = Vec::new();
    for group in smaller.groups {
        greens.push(GreenContext::new([group])?);
    }
    let streams = [greens[0].stream()?, greens[1].stream()?];
    trace.drop((greens, smaller.remainder));
    if let Some(remainder) = split.remainder {
        let split = remainder.split(of(&[8]))?;
        trace.drop(GreenContext::new(split.groups)?);
    }
    trace.drop((streams, groups));
    Ok(())
}

pub(super) fn pool(trace: &mut Trace) -> Result<()> {
    let pool = GreenPool::new(&Device::get(0)?, GreenPoolOptions::default())?;
    let sizes = [16, 32].map(|size| PartitionRequest {
        sizes: vec![PartitionSize::Sms(size), PartitionSize::Sms(8)],
        ..PartitionRequest::default()
    });
    for asked in [0, 1, 0, 1] {
        // `lease` would wait for partitions that could not be returned, so this uses `try_lease`.
        let lease = pool.try_lease(&sizes[asked])?;
        let stream = lease[0].stream()?;
        let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 4)?;
        buffer.fill(7)?;
        assert_eq!(buffer.to_vec()?, [7; 4]);
        trace.drop((lease, stream));
        refused(pool.try_lease(&sizes[asked]), |why| matches!(why, Invalid::PoolInUse { .. }))?;
        trace.drop(buffer);
    }
    // Splits a part twice in the same way.
    let halves = PartitionRequest {
        sizes: vec![PartitionSize::Percent(50); 2],
        ..PartitionRequest::default()
    };
    for _ in 0..2 {
        let part = pool.try_lease(&sizes[1])?.into_partitions().remove(0);
        let stream = part.stream()?;
        expect(
            part.try_split(&halves).map_err(|rejected| {
                let (error, part) = (rejected.error, rejected.value);
                trace.drop(part);
                error
            }),
            invalid(|why| matches!(why, Invalid::PartitionInUse { .. })),
        )?;
        trace.drop(stream);
        let part = pool.try_lease(&sizes[1])?.into_partitions().remove(0);
        let smaller = part.split(&halves)?;
        for part in smaller.iter() {
            part.stream()?;
        }
        trace.drop(smaller);
    }
    let stats = pool.stats()?;
    assert_eq!((stats.leases, stats.created, stats.splits), (8, 3, 2));
    trace.drops(|| drop(pool.trim(1)));
    trace.drops_from_here()
}

pub(super) fn current(trace: &mut Trace) -> Result<()> {
    let resource = SmResource::of_device(&Device::get(0)?)?;
    let mut groups = resource.split_by_count(SplitByCount::default())?.groups.into_iter();
    let partition = Descriptor::new(groups.next());
    let partition = match Workqueues::of_device(&Device::get(0)?) {
        Ok(queues) => {
            let queues =
                queues.with_concurrency_limit(2).with_scope(WorkqueueScope::GreenContextBalanced);
            let own = partition.with_workqueues(queues).create()?;
            for its in [Workqueues::of_green_context(&own)?, Workqueues::shared_with(&own)?] {
                assert_eq!(its.device(), own.context().device());
            }
            Workqueues::of_context(own.context())?;
            own
        }
        // The driver is older, and possibly did not report its version.
        Err(Error::Invalid(_)) => partition.create()?,
        Err(error) if error.code() == Some(CUresult::CUDA_ERROR_INVALID_RESOURCE_TYPE) => {
            partition.create()?
        }
        Err(error) => return Err(error),
    };
    trace.drop(groups);
    let event = partition.context().event()?;
    partition.record_event(&event)?;
    partition.wait_event(&event)?;
    let context = partition.context().clone();
    partition.with_current(|_| context.with_current(|_| ()))??;
    let plain = context.stream()?;
    assert_eq!(GreenContext::of_stream(&plain)?, None);
    let raw = partition.as_raw_context()?;
    assert_eq!(partition.as_raw_context()?, raw);
    let (green, owner) = (partition.as_raw(), partition.clone());
    // SAFETY: the owner keeps the partition alive.
    let foreign = unsafe { GreenContext::from_foreign(green, &context, owner) }?;
    let stream = foreign.stream()?;
    trace.drop((foreign, plain));
    stream.synchronize()?;
    trace.drop(stream);
    trace.drops_from_here()
}

/// Traces two partitions at the same time, and uses clusters on one of them.
pub(super) fn proof(trace: &mut Trace) -> Result<()> {
    let context = super::primary()?;
    let probe = SmProbe::new(&context)?;
    let split = SmResource::of_device(&context.device())?
        .split_by_count(SplitByCount { max_groups: Some(2), ..Default::default() })?;
    let mut greens = Vec::new();
    let mut streams = Vec::new();
    for group in split.groups {
        let green = GreenContext::new([group])?;
        streams.push(green.stream()?);
        greens.push(green);
    }
    let finish = |trace: &mut Trace, probing: SmProbing| {
        trace.drops_after("cuMemcpyDtoH_v2", || probing.synchronize())
    };
    let probing = (probe.start(&streams[0])?, probe.start(&streams[1])?);
    let (first, second) = (finish(trace, probing.0)?, finish(trace, probing.1)?);
    let overlap = first.compare(&second);
    assert_eq!((overlap.first.given, overlap.cause), (Some(8), None));
    let same = trace.drops_after("cuMemcpyDtoH_v2", || probe.compare(&streams[0], &streams[0]))?;
    assert_eq!(same.cause, Some(SmOverlapCause::OnePartition));
    assert_eq!(finish(trace, probe.start(&context.stream()?)?)?.given, None);
    let probing = probe.start(&streams[1])?;
    let kernel = Module::from_ptx(&context, super::HOPPER)?.kernel("cluster_ranks")?;
    let config = LaunchConfig::linear(8, 32);
    let largest = trace.drops_after("cuOccupancyMaxPotentialClusterSize", || {
        greens[0].max_cluster_size(&kernel, config)
    });
    assert_eq!(largest?, 8);
    trace.drop((probe, kernel, greens, streams));
    assert_eq!(finish(trace, probing)?.sms.len(), 8);
    trace.drops_from_here()
}
