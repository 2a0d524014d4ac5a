//! What a pool keeps: partitionings with their green contexts, streams and events.

use super::super::GreenContext;
use super::super::claim::Overlap;
use super::super::partition::{Partitioning, Plan, Wish};
use super::super::resource::SmResource;
use super::super::split::SplitFlags;
use crate::device::Device;
use crate::error::Result;
use crate::event::Event;
use crate::stream::{Stream, StreamOptions};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All partitionings of a pool, the one that was used last at the end.
pub(super) struct Parked {
    kept: Vec<Kept>,
    max: Option<usize>,
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

/// What came of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Did {
    pub(super) switched: bool,
    pub(super) made: bool,
    pub(super) destroyed: u64,
    pub(super) kept: usize,
}

impl Parked {
    pub(super) fn new(max: Option<usize>) -> Self {
        Self {
            kept: Vec::new(),
            max,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The partitioning that is asked for, its streams behind the work of the one used last.
    pub(super) fn hand_out(
        &mut self,
        device: Device,
        label: &str,
        partitioning: &Partitioning,
    ) -> Result<(Plan, Vec<Arc<PartSet>>, Did)> {
        let before = self.kept.len().checked_sub(1);
        let (at, made) = match self.find(device, partitioning)? {
            Some(at) => (at, false),
            None => {
                let new = Kept::make(device, label, partitioning)?;
                // Not at the end, where the one used last is, until it is used.
                self.kept.insert(0, new);
                (0, true)
            }
        };
        let before = before.map(|last| last + usize::from(made));
        let switched = before.is_some_and(|before| before != at);
        if let (true, Some(before)) = (switched, before) {
            follow(&self.kept[before].sets, &self.kept[at].sets)?;
        }
        let used = self.kept.remove(at);
        self.kept.push(used);
        let destroyed = self.max.map_or(0, |max| self.trim(max.max(1)));
        let used = &self.kept[self.kept.len() - 1];
        let did = Did {
            switched,
            made,
            destroyed,
            kept: self.kept.len(),
        };
        Ok((used.plan.clone(), used.sets.clone(), did))
    }

    /// Where the partitioning is that is asked for.
    fn find(&mut self, device: Device, partitioning: &Partitioning) -> Result<Option<usize>> {
        let Partitioning { wishes, flags, .. } = partitioning;
        let is_asked = |kept: &Kept| {
            kept.asked
                .iter()
                .any(|(its, of)| its == wishes && of == flags)
        };
        if let Some(at) = self.kept.iter().position(is_asked) {
            return Ok(Some(at));
        }
        let plan = SmResource::of_device(&device)?.plan(partitioning)?;
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
        self.kept.drain(..surplus).count() as u64
    }
}

impl Kept {
    fn make(device: Device, label: &str, partitioning: &Partitioning) -> Result<Self> {
        let resource = SmResource::of_device(&device)?;
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
            }));
        }
        Ok(Self {
            asked: vec![(partitioning.wishes.clone(), partitioning.flags)],
            flags: partitioning.flags,
            plan,
            sets,
        })
    }
}

impl PartSet {
    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream that is not taken, or a new one; it is taken then.
    pub(super) fn stream(
        &self,
        options: StreamOptions,
        taken: &Mutex<Vec<bool>>,
    ) -> Result<Stream> {
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

/// Puts the streams of one partitioning, those that there are and those to come, behind the work of
/// another's.
fn follow(before: &[Arc<PartSet>], next: &[Arc<PartSet>]) -> Result<()> {
    let mut ends = Vec::new();
    for set in before {
        for Kit { stream, end, .. } in &set.streams().kits {
            stream.outside_captures(|| end.record(stream))?;
            ends.push(end.clone());
        }
    }
    if let (true, Some(set)) = (ends.is_empty(), before.first()) {
        // One without a stream passes on what it had to come behind itself.
        ends.clone_from(&set.streams().behind);
    }
    for set in next {
        let mut streams = set.streams();
        for kit in &streams.kits {
            for end in &ends {
                kit.stream.wait(end)?;
            }
        }
        streams.behind.clone_from(&ends);
    }
    Ok(())
}
