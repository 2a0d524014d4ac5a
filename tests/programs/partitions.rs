//! Partitions: splits, green contexts and leases.

use super::{Operations, Skip};
use cuda_safe::Stream;
use cuda_safe::green::{
    Descriptor, ExactSplit, GreenContext, GroupRequest, Lease, PartitionRequest, PartitionSize,
    PooledPartition, SmGroup, SmProbing, SmResource, SplitByCount, SplitFlags, WorkqueueScope,
    Workqueues,
};

fn request(sms: u32) -> PartitionRequest {
    PartitionRequest { sizes: vec![PartitionSize::Sms(sms)], ..Default::default() }
}

/// The splits are of the second device, because the pool of the program has split the first one.
pub(super) const PARTITIONS: Operations = &[
    ("split", |s| {
        let resource = SmResource::of_device(&s.world.second.device())?;
        let _ = (resource.sm_count(), resource.device(), resource.properties());
        resource.count_groups(8, SplitFlags::empty())?;
        resource.plan(&request(16))?;
        let split =
            resource.split_by_count(SplitByCount { max_groups: Some(2), ..Default::default() })?;
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
            let stream = current.legacy_stream();
            stream.is_complete()
        })??;
        Ok(())
    }),
    ("drop a green context", |s| Ok(drop(s.take::<GreenContext>()?))),
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
    ("drop a partition", |s| Ok(drop(s.take::<PooledPartition>()?))),
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
        let queues = Workqueues::of_device(&s.world.second.device())?;
        let _ = (queues.device(), queues.concurrency_limit(), queues.scope());
        Ok(())
    }),
    ("split exactly", |s| {
        let resource = SmResource::of_device(&s.world.second.device())?;
        let groups = vec![GroupRequest::new(16)];
        let _ = resource.discover(&groups).is_ok();
        let _ = (resource.granularity()?, resource.equal_splits(SplitFlags::empty())?);
        let split = resource.split(ExactSplit { groups, ..Default::default() })?;
        split.groups.into_iter().for_each(|group| s.put(group));
        Ok(())
    }),
    ("partition", |s| {
        let resource = SmResource::of_context(&s.world.second)?;
        for part in resource.partition(&request(16))?.parts {
            let _ = part.sm_count();
            s.put(part.create()?);
        }
        Ok(())
    }),
    ("split a group", |s| {
        let group = s.take::<SmGroup>()?;
        let groups = vec![GroupRequest::new(8)];
        let exact = ExactSplit { groups: groups.clone(), ..Default::default() };
        let by_count = SplitByCount { min: 8, ..Default::default() };
        let _ = group.discover(&groups).is_ok();
        let split = match s.below(4) {
            0 => group.split(exact),
            1 => group.split_by_count(by_count),
            2 => group.try_split(exact).map_err(cuda_safe::Error::from),
            _ => group.try_split_by_count(by_count).map_err(cuda_safe::Error::from),
        };
        split?.groups.into_iter().for_each(|group| s.put(group));
        Ok(())
    }),
    ("new green context of a descriptor", |s| {
        let queues = match s.below(4) {
            0 => Workqueues::of_device(&s.world.second.device())?,
            1 => Workqueues::of_context(&s.world.second)?,
            2 => Workqueues::of_green_context(&s.get()?)?,
            _ => Workqueues::shared_with(&s.get()?)?,
        };
        let descriptor = Descriptor::new([s.take::<SmGroup>()?]).with_workqueues(queues);
        let _ = descriptor.sm_count();
        match s.below(3) {
            0 => s.put(descriptor.create()?),
            1 => match descriptor.without_default_stream().try_create() {
                Ok(green) => s.put(green),
                Err(rejected) => {
                    let groups = rejected.value.into_groups();
                    groups.into_iter().for_each(|group| s.put(group));
                }
            },
            _ => s.put(GreenContext::new(descriptor.into_groups())?),
        }
        Ok(())
    }),
    ("changed work queues", |s| {
        let queues = Workqueues::of_device(&s.world.second.device())?;
        let queues = queues.with_scope(WorkqueueScope::GreenContextBalanced);
        let queues = queues.with_concurrency_limit(4);
        let _ = (queues.device(), queues.concurrency_limit(), queues.scope());
        let shared = Workqueues::shared_with_context(&s.world.second)?;
        Ok(drop(shared.device()))
    }),
    ("more of a green context", |s| {
        let green = s.get::<GreenContext>()?;
        let kernel = s.world.kernel.kernel();
        let config = cuda_safe::LaunchConfig::linear(1, 32);
        let _ = green.max_cluster_size(kernel, config).is_ok();
        let _ = (green.as_raw(), green.as_raw_context()?);
        let options = cuda_safe::StreamOptions::default();
        let stream = green.stream_with(options)?;
        if GreenContext::of_stream(&stream)? != Some(green) {
            super::wrong("a stream reports another green context".to_owned());
        }
        Ok(s.put(stream))
    }),
    ("a current green context", |s| {
        let current = s.get::<GreenContext>()?.make_current()?;
        let _ = (current.green_context().sm_count(), current.legacy_stream().as_raw());
        let _ = current.legacy_stream().green_context().is_some();
        Ok(current.end()?)
    }),
    ("split a partition at once", |s| {
        let lease = s.take::<PooledPartition>()?.split(&request(8))?;
        Ok(s.put(lease))
    }),
    ("stream of a partition with options", |s| {
        s.with(|s, partition: &mut PooledPartition| {
            let _ = s.world.partitions.device();
            Ok(s.put(partition.stream_with(Default::default())?))
        })
    }),
    ("compare streams", |s| {
        let probe = &s.world.probe;
        let (first, second) = (s.get::<Stream>()?, s.get::<Stream>()?);
        let overlap = probe.compare(&first, &second)?;
        let _ = (overlap.is_by_hardware(), probe.context().id());
        Ok(drop(probe.sms(&first)?))
    }),
];
