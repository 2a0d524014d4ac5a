//! The cached partitionings of a pool, with their green contexts, streams and events, and the splits of
//! their parts.

use super::super::GreenContext;
use super::super::partition::{PartitionRequest, PartitionSize};
use super::super::plan::Plan;
use super::super::resource::SmResource;
use super::super::split::SplitFlags;
use super::super::split_guard::Overlap;
use crate::base::error::Result;
use crate::base::sync::{Mutex, MutexGuard};
use crate::driver::device::Device;
use crate::driver::event::Event;
use crate::driver::stream::{Stream, StreamOptions};
use std::sync::{Arc, PoisonError};

/// All partitionings of a pool, or all splits of a part. The most recently used one is the last.
pub(super) struct PartitionCache {
    kept: Vec<CachedPartitioning>,
    max: Option<usize>,
}

/// The object that is partitioned.
#[derive(Clone, Copy)]
enum KeepAlive<'a> {
    Device(Device),
    Part(&'a GreenContext),
}

/// A cached partitioning.
struct CachedPartitioning {
    /// The requests that led to this partitioning. Several requests may have the same plan.
    asked: Vec<(Vec<PartitionSize>, SplitFlags)>,
    flags: SplitFlags,
    plan: Plan,
    sets: Vec<Arc<PartSet>>,
}

/// A partition with its streams and splits.
pub(super) struct PartSet {
    pub(super) green: GreenContext,
    streams: Mutex<Streams>,
    /// Locked before `streams`.
    splits: Mutex<Splits>,
}

/// The splits of a part.
struct Splits {
    parked: PartitionCache,
    /// Whether the part was last used as a split, and not as a whole.
    are_last: bool,
}

#[derive(Default)]
struct Streams {
    streams: Vec<PooledStream>,
    /// The events that a new stream must wait for: the work of the partitioning used before this one.
    behind: Vec<Event>,
}

/// A stream, and the event for the end of its work.
struct PooledStream {
    stream: Stream,
    options: StreamOptions,
    end: Event,
}

/// The effects of a request, including those of a request that failed halfway.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Changes {
    pub(super) switched: bool,
    pub(super) made: bool,
    pub(super) destroyed: u64,
}

/// A leased partitioning.
pub(super) type Leased = (Plan, Vec<Arc<PartSet>>);

impl KeepAlive<'_> {
    fn resource(self) -> Result<SmResource> {
        match self {
            Self::Device(device) => SmResource::of_device(&device),
            Self::Part(green) => SmResource::of_green_context(green),
        }
    }
}

impl PartitionCache {
    pub(super) fn new(max: Option<usize>) -> Self {
        Self {
            kept: Vec::new(),
            max,
        }
    }

    /// Returns the requested partitioning. Its streams wait for the work of the one used last.
    pub(super) fn hand_out(
        &mut self,
        device: Device,
        label: &str,
        partitioning: &PartitionRequest,
        changes: &mut Changes,
    ) -> Result<Leased> {
        let before = self.kept.len().checked_sub(1);
        let (at, made) = self.find_or_make(KeepAlive::Device(device), label, partitioning)?;
        changes.made = made;
        let before = before.map(|last| last + usize::from(made));
        let switched = before.is_some_and(|before| before != at);
        if let (true, Some(before)) = (switched, before) {
            let before = &self.kept[before].sets;
            let mut ends = Vec::new();
            for set in before {
                set.mark_ends(&mut ends)?;
            }
            if let (true, Some(set)) = (ends.is_empty(), before.first()) {
                // A partitioning without a stream passes on the events that it had to wait for itself.
                ends.clone_from(&set.streams().behind);
            }
            follow(&self.kept[at].sets, &ends)?;
        }
        changes.switched = switched;
        Ok(self.use_now(at, changes))
    }

    /// Returns the partitioning at this index and makes it the most recently used one.
    fn use_now(&mut self, at: usize, changes: &mut Changes) -> Leased {
        let used = self.kept.remove(at);
        let (plan, sets) = (used.plan.clone(), used.sets.clone());
        self.kept.push(used);
        changes.destroyed = self.max.map_or(0, |max| self.trim(max));
        (plan, sets)
    }

    /// Returns the index of the requested partitioning, and whether it was created for this request.
    fn find_or_make(
        &mut self,
        keep_alive: KeepAlive<'_>,
        label: &str,
        partitioning: &PartitionRequest,
    ) -> Result<(usize, bool)> {
        if let Some(at) = self.find(keep_alive, partitioning)? {
            return Ok((at, false));
        }
        let new = CachedPartitioning::make(keep_alive, label, partitioning, self.max)?;
        // The last entry must stay the most recently used one until this one is used.
        self.kept.insert(0, new);
        Ok((0, true))
    }

    /// Returns the index of the requested partitioning, if it is cached.
    fn find(
        &mut self,
        keep_alive: KeepAlive<'_>,
        partitioning: &PartitionRequest,
    ) -> Result<Option<usize>> {
        let PartitionRequest { sizes, flags, .. } = partitioning;
        let is_asked = |kept: &CachedPartitioning| {
            kept.asked
                .iter()
                .any(|(its, of)| its == sizes && of == flags)
        };
        if let Some(at) = self.kept.iter().position(is_asked) {
            return Ok(Some(at));
        }
        let plan = keep_alive.resource()?.plan(partitioning)?;
        let same =
            |kept: &CachedPartitioning| kept.flags == *flags && kept.plan.gives_the_same(&plan);
        let found = self.kept.iter().position(same);
        if let Some(at) = found {
            self.kept[at].asked.push((sizes.clone(), *flags));
        }
        Ok(found)
    }

    /// Destroys the least recently used partitionings. Returns how many were destroyed.
    pub(super) fn trim(&mut self, keep: usize) -> u64 {
        // The last one may be leased.
        let surplus = self.kept.len().saturating_sub(keep.max(1));
        let gone = self.kept.drain(..surplus);
        gone.map(|kept| kept.count()).sum()
    }

    /// Records events after the work enqueued on all partitionings except one.
    fn mark_ends(&self, but: Option<usize>, ends: &mut Vec<Event>) -> Result<()> {
        for (_, kept) in (0..).zip(&self.kept).filter(|(at, _)| Some(*at) != but) {
            for set in &kept.sets {
                set.mark_ends(ends)?;
            }
        }
        Ok(())
    }
}

impl CachedPartitioning {
    fn make(
        keep_alive: KeepAlive<'_>,
        label: &str,
        partitioning: &PartitionRequest,
        max: Option<usize>,
    ) -> Result<Self> {
        let resource = keep_alive.resource()?;
        let plan = resource.plan(partitioning)?;
        // The partitionings of a pool share the same SMs; the pool leases one at a time.
        let partitions = resource.partition(&PartitionRequest {
            overlap: Overlap::Allow,
            label: label.to_owned(),
            ..partitioning.clone()
        })?;
        let mut sets = Vec::new();
        for part in partitions.parts {
            sets.push(Arc::new(PartSet {
                green: part.create()?,
                streams: Mutex::default(),
                splits: Mutex::new(Splits {
                    parked: PartitionCache::new(max),
                    are_last: false,
                }),
            }));
        }
        Ok(Self {
            asked: vec![(partitioning.sizes.clone(), partitioning.flags)],
            flags: partitioning.flags,
            plan,
            sets,
        })
    }

    /// Returns the number of partitionings: this one and the splits of its parts.
    fn count(&self) -> u64 {
        let splits = |set: &Arc<PartSet>| {
            let splits = set.splits();
            splits.parked.kept.iter().map(Self::count).sum::<u64>()
        };
        1 + self.sets.iter().map(splits).sum::<u64>()
    }
}

impl PartSet {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn splits(&self) -> MutexGuard<'_, Splits> {
        self.splits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Splits the part again. The streams of the split wait for the other work of the part. No other
    /// thread uses the part meanwhile.
    pub(super) fn split(
        &self,
        label: &str,
        partitioning: &PartitionRequest,
        changes: &mut Changes,
    ) -> Result<Leased> {
        let mut splits = self.splits();
        let last = splits.parked.kept.len().checked_sub(1);
        let keep_alive = KeepAlive::Part(&self.green);
        let (at, made) = splits
            .parked
            .find_or_make(keep_alive, label, partitioning)?;
        changes.made = made;
        let is_last = splits.are_last && !made && last == Some(at);
        if !is_last {
            let mut ends = Vec::new();
            self.mark_own_ends(&mut ends)?;
            splits.parked.mark_ends(Some(at), &mut ends)?;
            if ends.is_empty() {
                ends.clone_from(&self.streams().behind);
            }
            follow(&splits.parked.kept[at].sets, &ends)?;
        }
        splits.are_last = true;
        changes.switched = !is_last;
        Ok(splits.parked.use_now(at, changes))
    }

    /// Switches back to the part as a whole: its streams wait for the work of its splits.
    fn use_whole(&self) -> Result<()> {
        let split: Vec<Arc<Self>> = {
            let splits = self.splits();
            if !splits.are_last {
                return Ok(());
            }
            let kept = splits.parked.kept.iter();
            kept.flat_map(|kept| &kept.sets).cloned().collect()
        };
        // The lock is not held here, because recording an event may block. Two threads that get here at
        // the same time both record.
        let mut ends = Vec::new();
        for set in &split {
            set.mark_ends(&mut ends)?;
        }
        if !ends.is_empty() {
            self.wait_events(&ends)?;
        }
        self.splits().are_last = false;
        Ok(())
    }

    /// Records events after the work enqueued on the part and on its splits.
    fn mark_ends(&self, ends: &mut Vec<Event>) -> Result<()> {
        self.mark_own_ends(ends)?;
        self.splits().parked.mark_ends(None, ends)
    }

    fn mark_own_ends(&self, ends: &mut Vec<Event>) -> Result<()> {
        let of_kit = |stream: &PooledStream| (stream.stream.clone(), stream.end.clone());
        let streams: Vec<_> = self.streams().streams.iter().map(of_kit).collect();
        // The lock is not held here, because recording an event may block.
        for (stream, end) in streams {
            end.record_uncaptured(&stream)?;
            ends.push(end);
        }
        Ok(())
    }

    /// Makes the existing and the future streams wait for these events.
    fn wait_events(&self, ends: &[Event]) -> Result<()> {
        let mut streams = self.streams();
        for stream in &streams.streams {
            for end in ends {
                stream.stream.wait_event(end)?;
            }
        }
        streams.behind = ends.to_vec();
        Ok(())
    }

    /// Returns a stream that is not taken, or a new one, and marks it as taken.
    pub(super) fn stream(
        &self,
        options: StreamOptions,
        taken: &Mutex<Vec<bool>>,
    ) -> Result<Stream> {
        self.use_whole()?;
        if let Some(stream) = self.free_stream(options, taken) {
            return Ok(stream);
        }
        // No lock is held here: a deferred release may run now, and the released owner may request a
        // stream too. The events to wait for do not change while a part is leased.
        let behind = self.streams().behind.clone();
        let pooled = PooledStream {
            stream: self.green.stream_with(options)?,
            options,
            end: self.green.context().event()?,
        };
        for event in &behind {
            pooled.stream.wait_event(event)?;
        }
        let stream = pooled.stream.clone();
        let mut streams = self.streams();
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.resize(streams.streams.len(), false);
        streams.streams.push(pooled);
        taken.push(true);
        Ok(stream)
    }

    fn free_stream(&self, options: StreamOptions, taken: &Mutex<Vec<bool>>) -> Option<Stream> {
        let streams = self.streams();
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.resize(streams.streams.len(), false);
        let mut streams = streams.streams.iter().zip(taken.iter_mut());
        let (stream, taken) =
            streams.find(|(stream, taken)| !**taken && stream.options == options)?;
        *taken = true;
        Some(stream.stream.clone())
    }
}

/// Makes the streams of a partitioning, and those of the splits of its parts, wait for the work of
/// another one.
fn follow(next: &[Arc<PartSet>], ends: &[Event]) -> Result<()> {
    for set in next {
        set.wait_events(ends)?;
        for split in &set.splits().parked.kept {
            follow(&split.sets, ends)?;
        }
    }
    Ok(())
}
