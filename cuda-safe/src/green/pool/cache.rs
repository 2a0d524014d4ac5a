//! The cached partitionings of a pool, with their green contexts, streams and events, and the splits of
//! their parts.

use crate::call::Result;
use crate::device::Device;
use crate::event::Event;
use crate::green::GreenContext;
use crate::green::plan::{PartitionRequest, PartitionSize, Plan};
use crate::green::resource::SmResource;
use crate::green::split::SplitFlags;
use crate::green::split_guard::Overlap;
use crate::stream::{Stream, StreamOptions};
use crate::sync::{Mutex, MutexGuard, lock};
use std::sync::Arc;

/// All partitionings of a pool, or all splits of a part. The most recently used one is the last.
pub(super) struct PartitionCache {
    entries: Vec<CachedPartitioning>,
    max: Option<usize>,
}

/// The object that is partitioned.
#[derive(Clone, Copy)]
enum PartitionedObject<'a> {
    Device(Device),
    Part(&'a GreenContext),
}

/// A cached partitioning.
struct CachedPartitioning {
    /// The requests that led to this partitioning. Several requests may have the same plan.
    requests: Vec<(Vec<PartitionSize>, SplitFlags)>,
    flags: SplitFlags,
    plan: Plan,
    partitions: Vec<Arc<CachedPartition>>,
}

/// A partition with its streams and splits.
pub(super) struct CachedPartition {
    pub(super) green: GreenContext,
    streams: Mutex<Streams>,
    /// Locked before `streams`.
    splits: Mutex<Splits>,
}

/// The splits of a part.
struct Splits {
    cache: PartitionCache,
    /// Whether the part was last used as a split, and not as a whole.
    were_used_last: bool,
}

#[derive(Default)]
struct Streams {
    streams: Vec<PooledStream>,
    /// The events that a new stream must wait for: the work of the partitioning used before this one.
    pending_events: Vec<Event>,
}

/// A stream, and the event for the end of its work.
struct PooledStream {
    stream: Stream,
    options: StreamOptions,
    end_event: Event,
}

/// The effects of a request, including those of a request that failed halfway.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    pub(super) switched: bool,
    pub(super) created: bool,
    pub(super) destroyed: u64,
}

/// A leased partitioning.
pub(super) type Leased = (Plan, Vec<Arc<CachedPartition>>);

impl PartitionedObject<'_> {
    #[inline]
    fn resource(self) -> Result<SmResource> {
        match self {
            Self::Device(device) => SmResource::of_device(&device),
            Self::Part(green) => SmResource::of_green_context(green),
        }
    }
}

impl PartitionCache {
    #[inline]
    pub(super) fn new(max: Option<usize>) -> Self {
        Self { entries: Vec::new(), max }
    }

    /// Returns the requested partitioning. Its streams wait for the work of the one used last.
    #[inline]
    pub(super) fn lease(
        &mut self,
        device: Device,
        label: &str,
        partitioning: &PartitionRequest,
        changes: &mut Changes,
    ) -> Result<Leased> {
        let previous = self.entries.len().checked_sub(1);
        let (index, created) =
            self.find_or_create(PartitionedObject::Device(device), label, partitioning)?;
        changes.created = created;
        let previous = previous.map(|last| last + usize::from(created));
        let switched = previous.is_some_and(|previous| previous != index);
        if let (true, Some(previous)) = (switched, previous) {
            let previous = &self.entries[previous].partitions;
            let mut end_events = Vec::new();
            for partition in previous {
                partition.record_end_events(&mut end_events)?;
            }
            if let (true, Some(partition)) = (end_events.is_empty(), previous.first()) {
                // A partitioning without a stream passes on the events that it had to wait for itself.
                end_events.clone_from(&partition.streams().pending_events);
            }
            wait_for_events(&self.entries[index].partitions, &end_events)?;
        }
        changes.switched = switched;
        Ok(self.mark_used(index, changes))
    }

    /// Returns the partitioning at this index and makes it the most recently used one.
    #[inline]
    fn mark_used(&mut self, index: usize, changes: &mut Changes) -> Leased {
        let entry = self.entries.remove(index);
        let (plan, partitions) = (entry.plan.clone(), entry.partitions.clone());
        self.entries.push(entry);
        changes.destroyed = self.max.map_or(0, |max| self.trim(max));
        (plan, partitions)
    }

    /// Returns the index of the requested partitioning, and whether it was created for this request.
    #[inline]
    fn find_or_create(
        &mut self,
        partitioned: PartitionedObject<'_>,
        label: &str,
        partitioning: &PartitionRequest,
    ) -> Result<(usize, bool)> {
        if let Some(index) = self.find(partitioned, partitioning)? {
            return Ok((index, false));
        }
        let new = CachedPartitioning::create(partitioned, label, partitioning, self.max)?;
        // The last entry must stay the most recently used one until this one is used.
        self.entries.insert(0, new);
        Ok((0, true))
    }

    /// Returns the index of the requested partitioning, if it is cached.
    #[inline]
    fn find(
        &mut self,
        partitioned: PartitionedObject<'_>,
        partitioning: &PartitionRequest,
    ) -> Result<Option<usize>> {
        let PartitionRequest { sizes, flags, .. } = partitioning;
        let is_requested = |entry: &CachedPartitioning| {
            entry
                .requests
                .iter()
                .any(|(entry_sizes, entry_flags)| entry_sizes == sizes && entry_flags == flags)
        };
        if let Some(index) = self.entries.iter().position(is_requested) {
            return Ok(Some(index));
        }
        let plan = partitioned.resource()?.plan(partitioning)?;
        let has_same_plan = |entry: &CachedPartitioning| {
            entry.flags == *flags && entry.plan.has_same_partitions(&plan)
        };
        let found = self.entries.iter().position(has_same_plan);
        if let Some(index) = found {
            self.entries[index].requests.push((sizes.clone(), *flags));
        }
        Ok(found)
    }

    /// Destroys the least recently used partitionings. Returns how many were destroyed.
    #[inline]
    pub(super) fn trim(&mut self, keep: usize) -> u64 {
        // The last one may be leased.
        let excess = self.entries.len().saturating_sub(keep.max(1));
        let removed = self.entries.drain(..excess);
        removed.map(|entry| entry.count_partitionings()).sum()
    }

    /// Records events after the work enqueued on all partitionings except one.
    #[inline]
    fn record_end_events(&self, except: Option<usize>, end_events: &mut Vec<Event>) -> Result<()> {
        for (_, entry) in (0..).zip(&self.entries).filter(|(index, _)| Some(*index) != except) {
            for partition in &entry.partitions {
                partition.record_end_events(end_events)?;
            }
        }
        Ok(())
    }
}

impl CachedPartitioning {
    #[inline]
    fn create(
        partitioned: PartitionedObject<'_>,
        label: &str,
        partitioning: &PartitionRequest,
        max: Option<usize>,
    ) -> Result<Self> {
        let resource = partitioned.resource()?;
        let plan = resource.plan(partitioning)?;
        // The partitionings of a pool share the same SMs; the pool leases one at a time.
        let split = resource.partition(&PartitionRequest {
            overlap: Overlap::Allow,
            label: label.to_owned(),
            ..partitioning.clone()
        })?;
        let mut partitions = Vec::new();
        for part in split.parts {
            partitions.push(Arc::new(CachedPartition {
                green: part.create()?,
                streams: Mutex::default(),
                splits: Mutex::new(Splits {
                    cache: PartitionCache::new(max),
                    were_used_last: false,
                }),
            }));
        }
        Ok(Self {
            requests: vec![(partitioning.sizes.clone(), partitioning.flags)],
            flags: partitioning.flags,
            plan,
            partitions,
        })
    }

    /// Returns the number of partitionings: this one and the splits of its parts.
    #[inline]
    fn count_partitionings(&self) -> u64 {
        let splits = |partition: &Arc<CachedPartition>| {
            let splits = partition.splits();
            splits.cache.entries.iter().map(Self::count_partitionings).sum::<u64>()
        };
        1 + self.partitions.iter().map(splits).sum::<u64>()
    }
}

impl CachedPartition {
    #[inline]
    fn streams(&self) -> MutexGuard<'_, Streams> {
        lock(&self.streams)
    }

    #[inline]
    fn splits(&self) -> MutexGuard<'_, Splits> {
        lock(&self.splits)
    }

    /// Splits the part again. The streams of the split wait for the other work of the part. No other
    /// thread uses the part meanwhile.
    #[inline]
    pub(super) fn split(
        &self,
        label: &str,
        partitioning: &PartitionRequest,
        changes: &mut Changes,
    ) -> Result<Leased> {
        let mut splits = self.splits();
        let last = splits.cache.entries.len().checked_sub(1);
        let partitioned = PartitionedObject::Part(&self.green);
        let (index, created) = splits.cache.find_or_create(partitioned, label, partitioning)?;
        changes.created = created;
        let is_used_last = splits.were_used_last && !created && last == Some(index);
        if !is_used_last {
            let mut end_events = Vec::new();
            self.record_own_end_events(&mut end_events)?;
            splits.cache.record_end_events(Some(index), &mut end_events)?;
            if end_events.is_empty() {
                end_events.clone_from(&self.streams().pending_events);
            }
            wait_for_events(&splits.cache.entries[index].partitions, &end_events)?;
        }
        splits.were_used_last = true;
        changes.switched = !is_used_last;
        Ok(splits.cache.mark_used(index, changes))
    }

    /// Switches back to the part as a whole: its streams wait for the work of its splits.
    #[inline]
    fn switch_to_whole(&self) -> Result<()> {
        let split: Vec<Arc<Self>> = {
            let splits = self.splits();
            if !splits.were_used_last {
                return Ok(());
            }
            let entries = splits.cache.entries.iter();
            entries.flat_map(|entry| &entry.partitions).cloned().collect()
        };
        // The lock is not held here, because recording an event may block. Two threads that get here at
        // the same time both record.
        let mut end_events = Vec::new();
        for partition in &split {
            partition.record_end_events(&mut end_events)?;
        }
        if !end_events.is_empty() {
            self.wait_events(&end_events)?;
        }
        self.splits().were_used_last = false;
        Ok(())
    }

    /// Records events after the work enqueued on the part and on its splits.
    #[inline]
    fn record_end_events(&self, end_events: &mut Vec<Event>) -> Result<()> {
        self.record_own_end_events(end_events)?;
        self.splits().cache.record_end_events(None, end_events)
    }

    #[inline]
    fn record_own_end_events(&self, end_events: &mut Vec<Event>) -> Result<()> {
        let stream_and_event =
            |stream: &PooledStream| (stream.stream.clone(), stream.end_event.clone());
        let streams: Vec<_> = self.streams().streams.iter().map(stream_and_event).collect();
        // The lock is not held here, because recording an event may block.
        for (stream, end_event) in streams {
            end_event.record_uncaptured(&stream)?;
            end_events.push(end_event);
        }
        Ok(())
    }

    /// Makes the existing and the future streams wait for these events.
    #[inline]
    fn wait_events(&self, end_events: &[Event]) -> Result<()> {
        let mut streams = self.streams();
        for stream in &streams.streams {
            for end_event in end_events {
                stream.stream.wait_event(end_event)?;
            }
        }
        streams.pending_events = end_events.to_vec();
        Ok(())
    }

    /// Returns a stream that is not taken, or a new one, and marks it as taken.
    #[inline]
    pub(super) fn stream(
        &self,
        options: StreamOptions,
        in_use: &Mutex<Vec<bool>>,
    ) -> Result<Stream> {
        self.switch_to_whole()?;
        if let Some(stream) = self.take_unused_stream(options, in_use) {
            return Ok(stream);
        }
        // No lock is held here: a deferred release may run now, and the released owner may request a
        // stream too. The events to wait for do not change while a part is leased.
        let pending_events = self.streams().pending_events.clone();
        let pooled = PooledStream {
            stream: self.green.stream_with(options)?,
            options,
            end_event: self.green.context().event()?,
        };
        for event in &pending_events {
            pooled.stream.wait_event(event)?;
        }
        let stream = pooled.stream.clone();
        let mut streams = self.streams();
        let mut in_use = lock(in_use);
        in_use.resize(streams.streams.len(), false);
        streams.streams.push(pooled);
        in_use.push(true);
        Ok(stream)
    }

    #[inline]
    fn take_unused_stream(
        &self,
        options: StreamOptions,
        in_use: &Mutex<Vec<bool>>,
    ) -> Option<Stream> {
        let streams = self.streams();
        let mut in_use = lock(in_use);
        in_use.resize(streams.streams.len(), false);
        let mut streams = streams.streams.iter().zip(in_use.iter_mut());
        let (stream, in_use) =
            streams.find(|(stream, in_use)| !**in_use && stream.options == options)?;
        *in_use = true;
        Some(stream.stream.clone())
    }
}

/// Makes the streams of a partitioning, and those of the splits of its parts, wait for the work of
/// another one.
#[inline]
fn wait_for_events(partitions: &[Arc<CachedPartition>], end_events: &[Event]) -> Result<()> {
    for partition in partitions {
        partition.wait_events(end_events)?;
        for split in &partition.splits().cache.entries {
            wait_for_events(&split.partitions, end_events)?;
        }
    }
    Ok(())
}
