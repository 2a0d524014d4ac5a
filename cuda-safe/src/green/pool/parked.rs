//! What a pool keeps: partitionings with their green contexts, streams and events; and what parts of
//! them were split into.

use super::super::GreenContext;
use super::super::claim::Overlap;
use super::super::partition::{Partitioning, Wish};
use super::super::plan::Plan;
use super::super::resource::SmResource;
use super::super::split::SplitFlags;
use crate::device::Device;
use crate::error::Result;
use crate::event::Event;
use crate::stream::{Stream, StreamOptions};
use crate::sync::{Mutex, MutexGuard};
use std::sync::{Arc, PoisonError};

/// All partitionings of a pool, or splits of a part, the one that was used last at the end.
pub(super) struct Parked {
    kept: Vec<Kept>,
    max: Option<usize>,
}

/// What is partitioned.
#[derive(Clone, Copy)]
enum Whole<'a> {
    Device(Device),
    Part(&'a GreenContext),
}

/// A partitioning.
struct Kept {
    /// What it was asked for by; others may come to the same plan.
    asked: Vec<(Vec<Wish>, SplitFlags)>,
    flags: SplitFlags,
    plan: Plan,
    sets: Vec<Arc<PartSet>>,
}

/// A partition with what was made of it.
pub(super) struct PartSet {
    pub(super) green: GreenContext,
    streams: Mutex<Streams>,
    /// Locked before streams.
    splits: Mutex<Splits>,
}

/// What a part was split into.
struct Splits {
    parked: Parked,
    /// The part was used last as one of them, and not as a whole.
    are_last: bool,
}

#[derive(Default)]
struct Streams {
    kits: Vec<Kit>,
    /// What a new stream has to come behind: the work of the partitioning used before this.
    behind: Vec<Event>,
}

/// A stream, and the event that tells the end of its work.
struct Kit {
    stream: Stream,
    options: StreamOptions,
    end: Event,
}

/// What came of a request, also of one that failed half way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Did {
    pub(super) switched: bool,
    pub(super) made: bool,
    pub(super) destroyed: u64,
}

/// What is handed out.
pub(super) type Handed = (Plan, Vec<Arc<PartSet>>);

impl Whole<'_> {
    fn resource(self) -> Result<SmResource> {
        match self {
            Self::Device(device) => SmResource::of_device(&device),
            Self::Part(green) => SmResource::of_green_context(green),
        }
    }
}

impl Parked {
    pub(super) fn new(max: Option<usize>) -> Self {
        Self {
            kept: Vec::new(),
            max,
        }
    }

    /// The partitioning that is asked for, its streams behind the work of the one used last.
    pub(super) fn hand_out(
        &mut self,
        device: Device,
        label: &str,
        partitioning: &Partitioning,
        did: &mut Did,
    ) -> Result<Handed> {
        let before = self.kept.len().checked_sub(1);
        let (at, made) = self.find_or_make(Whole::Device(device), label, partitioning)?;
        did.made = made;
        let before = before.map(|last| last + usize::from(made));
        let switched = before.is_some_and(|before| before != at);
        if let (true, Some(before)) = (switched, before) {
            let before = &self.kept[before].sets;
            let mut ends = Vec::new();
            for set in before {
                set.mark_ends(&mut ends)?;
            }
            if let (true, Some(set)) = (ends.is_empty(), before.first()) {
                // One without a stream passes on what it had to come behind itself.
                ends.clone_from(&set.streams().behind);
            }
            follow(&self.kept[at].sets, &ends)?;
        }
        did.switched = switched;
        Ok(self.use_now(at, did))
    }

    /// Hands out the one there: now it is the one used last.
    fn use_now(&mut self, at: usize, did: &mut Did) -> Handed {
        let used = self.kept.remove(at);
        let (plan, sets) = (used.plan.clone(), used.sets.clone());
        self.kept.push(used);
        did.destroyed = self.max.map_or(0, |max| self.trim(max));
        (plan, sets)
    }

    /// Where the partitioning is that is asked for, and whether it was made for that.
    fn find_or_make(
        &mut self,
        whole: Whole<'_>,
        label: &str,
        partitioning: &Partitioning,
    ) -> Result<(usize, bool)> {
        if let Some(at) = self.find(whole, partitioning)? {
            return Ok((at, false));
        }
        let new = Kept::make(whole, label, partitioning, self.max)?;
        // Not at the end, where the one used last is, until it is used.
        self.kept.insert(0, new);
        Ok((0, true))
    }

    /// Where the partitioning is that is asked for.
    fn find(&mut self, whole: Whole<'_>, partitioning: &Partitioning) -> Result<Option<usize>> {
        let Partitioning { wishes, flags, .. } = partitioning;
        let is_asked = |kept: &Kept| {
            kept.asked
                .iter()
                .any(|(its, of)| its == wishes && of == flags)
        };
        if let Some(at) = self.kept.iter().position(is_asked) {
            return Ok(Some(at));
        }
        let plan = whole.resource()?.plan(partitioning)?;
        let same = |kept: &Kept| kept.flags == *flags && kept.plan.gives_the_same(&plan);
        let found = self.kept.iter().position(same);
        if let Some(at) = found {
            self.kept[at].asked.push((wishes.clone(), *flags));
        }
        Ok(found)
    }

    /// Destroys what was not used for longest; how many.
    pub(super) fn trim(&mut self, keep: usize) -> u64 {
        // The last may be out.
        let surplus = self.kept.len().saturating_sub(keep.max(1));
        let gone = self.kept.drain(..surplus);
        gone.map(|kept| kept.count()).sum()
    }

    /// Marks the ends of the work given to all of them, but for one.
    fn mark_ends(&self, but: Option<usize>, ends: &mut Vec<Event>) -> Result<()> {
        for (_, kept) in (0..).zip(&self.kept).filter(|(at, _)| Some(*at) != but) {
            for set in &kept.sets {
                set.mark_ends(ends)?;
            }
        }
        Ok(())
    }
}

impl Kept {
    fn make(
        whole: Whole<'_>,
        label: &str,
        partitioning: &Partitioning,
        max: Option<usize>,
    ) -> Result<Self> {
        let resource = whole.resource()?;
        let plan = resource.plan(partitioning)?;
        // Partitionings of a pool have the same SMs; it is the pool that hands out one at a time.
        let partitions = resource.partition(&Partitioning {
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
                    parked: Parked::new(max),
                    are_last: false,
                }),
            }));
        }
        Ok(Self {
            asked: vec![(partitioning.wishes.clone(), partitioning.flags)],
            flags: partitioning.flags,
            plan,
            sets,
        })
    }

    /// How many partitionings this is, with the splits of its parts.
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

    /// The part split again, its streams behind the work that the part had otherwise. Nobody uses the
    /// part meanwhile.
    pub(super) fn split(
        &self,
        label: &str,
        partitioning: &Partitioning,
        did: &mut Did,
    ) -> Result<Handed> {
        let mut splits = self.splits();
        let last = splits.parked.kept.len().checked_sub(1);
        let whole = Whole::Part(&self.green);
        let (at, made) = splits.parked.find_or_make(whole, label, partitioning)?;
        did.made = made;
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
        did.switched = !is_last;
        Ok(splits.parked.use_now(at, did))
    }

    /// Uses the part as a whole: behind the work of what it was split into.
    fn use_whole(&self) -> Result<()> {
        let split: Vec<Arc<Self>> = {
            let splits = self.splits();
            if !splits.are_last {
                return Ok(());
            }
            let kept = splits.parked.kept.iter();
            kept.flat_map(|kept| &kept.sets).cloned().collect()
        };
        // Without the lock, as a record may block. Two threads at once both do this.
        let mut ends = Vec::new();
        for set in &split {
            set.mark_ends(&mut ends)?;
        }
        if !ends.is_empty() {
            self.come_behind(&ends)?;
        }
        self.splits().are_last = false;
        Ok(())
    }

    /// Marks the ends of the work given to the part, and to what it was split into.
    fn mark_ends(&self, ends: &mut Vec<Event>) -> Result<()> {
        self.mark_own_ends(ends)?;
        self.splits().parked.mark_ends(None, ends)
    }

    fn mark_own_ends(&self, ends: &mut Vec<Event>) -> Result<()> {
        let of_kit = |kit: &Kit| (kit.stream.clone(), kit.end.clone());
        let kits: Vec<_> = self.streams().kits.iter().map(of_kit).collect();
        // Without the lock, as a record may block.
        for (stream, end) in kits {
            end.record_uncaptured(&stream)?;
            ends.push(end);
        }
        Ok(())
    }

    /// Puts the streams, those that there are and those to come, behind these.
    fn come_behind(&self, ends: &[Event]) -> Result<()> {
        let mut streams = self.streams();
        for kit in &streams.kits {
            for end in ends {
                kit.stream.wait(end)?;
            }
        }
        streams.behind = ends.to_vec();
        Ok(())
    }

    /// A stream that is not taken, or a new one; it is taken then.
    pub(super) fn stream(
        &self,
        options: StreamOptions,
        taken: &Mutex<Vec<bool>>,
    ) -> Result<Stream> {
        self.use_whole()?;
        if let Some(stream) = self.free_stream(options, taken) {
            return Ok(stream);
        }
        // Without a lock: what waited for its release may be released here, and its owner ask for a
        // stream as well. What to come behind stays the same while a part is out.
        let behind = self.streams().behind.clone();
        let kit = Kit {
            stream: self.green.stream_with(options)?,
            options,
            end: self.green.context().event()?,
        };
        for event in &behind {
            kit.stream.wait(event)?;
        }
        let stream = kit.stream.clone();
        let mut streams = self.streams();
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.resize(streams.kits.len(), false);
        streams.kits.push(kit);
        taken.push(true);
        Ok(stream)
    }

    fn free_stream(&self, options: StreamOptions, taken: &Mutex<Vec<bool>>) -> Option<Stream> {
        let streams = self.streams();
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.resize(streams.kits.len(), false);
        let mut kits = streams.kits.iter().zip(taken.iter_mut());
        let (kit, taken) = kits.find(|(kit, taken)| !**taken && kit.options == options)?;
        *taken = true;
        Some(kit.stream.clone())
    }
}

/// Puts the streams of a partitioning, and of what its parts were split into, behind the work of
/// another one.
fn follow(next: &[Arc<PartSet>], ends: &[Event]) -> Result<()> {
    for set in next {
        set.come_behind(ends)?;
        for split in &set.splits().parked.kept {
            follow(&split.sets, ends)?;
        }
    }
    Ok(())
}
