//! Partitions: splits, green contexts and leases.

use super::{Operations, Skip};
use cuda_safe::Stream;
use cuda_safe::green::{
    GreenContext, Lease, PartitionRequest, PartitionSize, PooledPartition, SmGroup, SmProbing,
    SmResource, SplitByCount, SplitFlags, Workqueues,
};

fn request(sms: u32) -> PartitionRequest {
    PartitionRequest {
        sizes: vec![PartitionSize::Sms(sms)],
        ..Default::default()
    }
}

pub(super) const PARTITIONS: Operations = &[
    ("split", |s| {
        let resource = SmResource::of_device(&s.context().device())?;
        let _ = (
            resource.sm_count(),
            resource.device(),
            resource.properties(),
        );
        resource.count_groups(8, SplitFlags::empty())?;
        resource.plan(&request(16))?;
        let split = resource.split_by_count(SplitByCount {
            max_groups: Some(2),
            ..Default::default()
        })?;
        split.groups.into_iter().for_each(|group| s.put(group));
        Ok(())
    }),
    ("drop a group", |s| Ok(drop(s.take::<SmGroup>()?))),
    ("new green context", |s| {
        let group = s.take::<SmGroup>()?;
        let _ = (group.sm_count(), group.device(), group.properties());
        match GreenContext::try_new([group]) {
            Ok(green) => s.put(green),
            Err(rejected) => rejected.value.into_iter().for_each(|group| s.put(group)),
        }
        Ok(())
    }),
    ("stream of a green context", |s| {
        let green = s.get::<GreenContext>()?;
        let _ = (green.sm_count(), green.device(), green.context().device());
        green.id()?;
        let stream = green.stream()?;
        if stream.green_context().is_none() {
            return Err(Skip);
        }
        SmResource::of_stream(&stream)?;
        SmResource::of_green_context(&green)?;
        Ok(s.put(stream))
    }),
    ("events of a green context", |s| {
        let (green, event) = (s.get::<GreenContext>()?, s.get()?);
        match s.one_in(2) {
            true => green.record_event(&event)?,
            false => green.wait_event(&event)?,
        }
        Ok(())
    }),
    ("green context in use", |s| {
        let green = s.get::<GreenContext>()?;
        green.with_current(|current| {
            let stream = current.per_thread_stream();
            stream.is_complete()
        })??;
        Ok(())
    }),
    ("drop a green context", |s| {
        Ok(drop(s.take::<GreenContext>()?))
    }),
    ("new lease", |s| {
        let lease = s.world.partitions.try_lease(&request(16))?;
        let _ = lease.plan();
        Ok(s.put(lease))
    }),
    ("partitions of a lease", |s| {
        for partition in s.take::<Lease>()?.into_partitions() {
            s.put(partition);
        }
        Ok(())
    }),
    ("stream of a partition", |s| {
        s.with(|s, partition: &mut PooledPartition| {
            let _ = (partition.sm_count(), partition.context().device());
            Ok(s.put(partition.stream()?))
        })
    }),
    ("split a partition", |s| {
        let partition = s.take::<PooledPartition>()?;
        match partition.try_split(&request(8)) {
            Ok(lease) => s.put(lease),
            Err(rejected) => s.put(rejected.value),
        }
        Ok(())
    }),
    ("drop a lease", |s| Ok(drop(s.take::<Lease>()?))),
    ("drop a partition", |s| {
        Ok(drop(s.take::<PooledPartition>()?))
    }),
    ("trim the pool of partitions", |s| {
        s.world.partitions.stats()?;
        Ok(s.world.partitions.trim(0)?)
    }),
    ("begin a probe", |s| {
        let probing = s.world.probe.start(&s.get::<Stream>()?)?;
        Ok(s.put(probing))
    }),
    ("end a probe", |s| {
        let first = s.take::<SmProbing>()?.synchronize()?;
        let second = s.world.probe.trace(&s.get::<Stream>()?)?;
        Ok(drop(first.compare(&second)))
    }),
    ("work queues", |s| {
        let queues = Workqueues::of_device(&s.context().device())?;
        let _ = (queues.device(), queues.concurrency_limit(), queues.scope());
        Ok(())
    }),
];
