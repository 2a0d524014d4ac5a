//! Stream progress: how far the GPU has executed the work of each stream.
//!
//! Each stream has an entry (`Book`). A block that was freed on a stream has a sync point, which
//! consists of the stream's entry and a number that grows with each sync point. An event that was
//! recorded after the call that created a number proves, when it is complete, that all work up to the
//! number is done. A stream that waits for the event is ordered after that work.
//!
//! The entries are protected by the lock of the pool, so no function here calls the driver. An event
//! that has to be recorded is returned as a [`Record`], whose outcome is
//! [entered](StreamProgress::enter) afterwards. Events that must be destroyed are collected until the
//! lock is released.

use cuda_safe::Context;
use cuda_safe::manager::OrderEvent;
use cuda_safe::stream::WeakStream;
use std::collections::VecDeque;
use std::sync::Arc;

/// The [key](cuda_safe::manager::Order::key) of a stream.
pub(super) type StreamKey = usize;

/// The key of the legacy default stream.
pub(super) const LEGACY: StreamKey = 1;

/// A position in the work of a stream: the stream's entry, and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SyncPoint {
    pub(super) entry: u32,
    pub(super) number: u64,
}

/// Positions in the work of streams, at most one for each stream.
pub(super) type SyncPoints = Vec<SyncPoint>;

/// Adds the sync points of `other` to `marks`.
#[inline]
pub(super) fn unite(points: &mut SyncPoints, other: &[SyncPoint]) {
    for point in other {
        match points.iter_mut().find(|its| its.entry == point.entry) {
            Some(its) => its.number = its.number.max(point.number),
            None => points.push(*point),
        }
    }
}

/// The entry of unordered memory, which was freed without a stream. A sync point in it is done when all
/// work of the context is.
pub(super) const UNORDERED: u32 = 0;

/// When an event can be recorded in the stream of an entry.
#[derive(Clone)]
pub(super) enum Reach {
    /// At any time: the legacy default stream lives as long as its context.
    Always,
    /// While a handle is held: the stream is one of this crate.
    Held(WeakStream),
    /// In a call that receives the stream, because other code keeps it alive only then.
    Named,
}

struct Entry<E> {
    /// The key. `None` for unordered memory, and after the stream has ended.
    stream: Option<(StreamKey, Reach)>,
    /// The number of the latest sync point.
    last: u64,
    /// All work up to this number is done.
    done: u64,
    /// Recorded events and the numbers that they cover, in increasing order of the numbers.
    events: VecDeque<(u64, Arc<E>)>,
    /// Whether a thread is recording an event.
    is_recording: bool,
    /// Whether another stream could use memory of this one, but no event covers it.
    is_wanted: bool,
}

impl<E> Entry<E> {
    /// Returns the number up to which events have been recorded.
    fn covered(&self) -> u64 {
        self.events.back().map_or(self.done, |(number, _)| *number)
    }
}

/// The events of [`StreamProgress`], which tests replace by values without a driver.
pub(super) trait SyncEvent {
    type Context: Clone + PartialEq;

    fn context(&self) -> &Self::Context;
}

impl SyncEvent for OrderEvent {
    type Context = Context;

    #[inline]
    fn context(&self) -> &Context {
        self.context()
    }
}

/// An event that a thread records for an entry, without the lock.
pub(super) struct Record<E = OrderEvent> {
    pub(super) entry: u32,
    pub(super) number: u64,
    pub(super) reach: Reach,
    /// An event to reuse before the recording; afterwards, the recorded event.
    pub(super) event: Option<Arc<E>>,
}

/// The events of one entry, with the numbers that they cover.
pub(super) struct Queries<E = OrderEvent> {
    pub(super) entry: u32,
    pub(super) events: Vec<(u64, Arc<E>)>,
}

/// The events that cover sync points, and those to record to cover others.
type Cover<E> = (Vec<Arc<E>>, Vec<Record<E>>);

/// The progress of all streams of a context.
pub(super) struct StreamProgress<E: SyncEvent = OrderEvent> {
    progress: Vec<Entry<E>>,
    /// Events that are not in use, for reuse.
    spare: Vec<Arc<E>>,
    /// Events that must be destroyed without the lock.
    pub(super) discarded: Vec<Arc<E>>,
    context: E::Context,
}

/// The maximum number of incomplete events in an entry. More events would give little more information.
const MAX_EVENTS: usize = 16;
/// The maximum number of events that are cached for reuse.
const MAX_SPARE: usize = 64;

impl<E: SyncEvent> StreamProgress<E> {
    pub(super) fn new(context: &E::Context) -> Self {
        let mut progress = Self {
            progress: Vec::new(),
            spare: Vec::new(),
            discarded: Vec::new(),
            context: context.clone(),
        };
        progress.open(None);
        progress
    }

    fn open(&mut self, stream: Option<(StreamKey, Reach)>) -> u32 {
        // An entry whose sync points are all done can be reused; its numbers continue.
        let is_over = |entry: &Entry<E>| entry.stream.is_none() && entry.done == entry.last;
        let free = (1..self.progress.len()).find(|index| is_over(&self.progress[*index]));
        if let Some(index) = free {
            self.progress[index].stream = stream;
            return index as u32;
        }
        self.progress.push(Entry {
            stream,
            last: 0,
            done: 0,
            events: VecDeque::new(),
            is_recording: false,
            is_wanted: false,
        });
        (self.progress.len() - 1) as u32
    }

    /// Returns the entry of a stream, which remains until the stream [ends](Self::detach). Creates one
    /// if necessary.
    pub(super) fn of(&mut self, stream: StreamKey, reach: &Reach) -> u32 {
        let Some(entry) = self.find(stream) else {
            return self.open(Some((stream, reach.clone())));
        };
        if let (Some((_, its)), Reach::Held(_)) = (&mut self.progress[entry as usize].stream, reach)
        {
            if matches!(its, Reach::Named) {
                *its = reach.clone();
            }
        }
        entry
    }

    /// Returns the entry of a stream, if it has one.
    pub(super) fn find(&self, stream: StreamKey) -> Option<u32> {
        let is_its = |entry: &Entry<E>| {
            let key = entry.stream.as_ref().map(|(key, _)| *key);
            key == Some(stream)
        };
        self.progress.iter().position(is_its).map(|index| index as u32)
    }

    /// Returns a sync point after all work that the entry's stream was given up to now.
    pub(super) fn sync_point(&mut self, entry: u32) -> SyncPoint {
        let its = &mut self.progress[entry as usize];
        its.last += 1;
        SyncPoint { entry, number: its.last }
    }

    /// Returns a sync point that is done when the event is complete; without an event, when all work of
    /// the context is.
    pub(super) fn sync_point_of_event(&mut self, event: Option<Arc<E>>) -> SyncPoint {
        let entry = self.open(None);
        let point = self.sync_point(entry);
        let event = event.map(|event| (point.number, event));
        self.progress[entry as usize].events.extend(event);
        point
    }

    /// Detaches an entry from its stream, which ends. Returns the event to record, if a sync point
    /// needs one.
    pub(super) fn detach(&mut self, entry: u32) -> Option<Record<E>> {
        let (_, reach) = self.progress[entry as usize].stream.take()?;
        let its = &self.progress[entry as usize];
        (its.covered() < its.last).then(|| Record {
            entry,
            number: its.last,
            reach,
            event: self.spare.pop(),
        })
    }

    pub(super) fn is_done(&self, point: &SyncPoint) -> bool {
        self.progress[point.entry as usize].done >= point.number
    }

    /// Returns whether all sync points are done, not counting those of the entry `book`.
    pub(super) fn are_done_but_for(&self, points: &[SyncPoint], entry: Option<u32>) -> bool {
        points.iter().all(|point| Some(point.entry) == entry || self.is_done(point))
    }

    /// Returns the events to record and those to query to update the progress of the streams. `named`
    /// is the stream that the call received.
    pub(super) fn due(&mut self, named: Option<StreamKey>) -> (Vec<Record<E>>, Vec<Queries<E>>) {
        let (mut records, mut queries) = (Vec::new(), Vec::new());
        for entry in 1..self.progress.len() as u32 {
            let its = &self.progress[entry as usize];
            if its.done == its.last {
                continue;
            }
            let events = its.events.iter().cloned().collect();
            if its.events.len() < MAX_EVENTS && !its.is_recording {
                records.extend(self.record(entry, named));
            }
            queries.push(Queries { entry, events });
        }
        (records, queries)
    }

    /// Returns the event that a call which received the stream of an entry should record, because no
    /// other call can.
    pub(super) fn wanted(&mut self, entry: u32, named: StreamKey) -> Option<Record<E>> {
        let its = &mut self.progress[entry as usize];
        if !its.is_wanted || its.is_recording {
            return None;
        }
        its.is_wanted = false;
        self.record(entry, Some(named))
    }

    /// Returns the event to record after all work of an entry's stream, if no event covers that work
    /// and one can be recorded.
    fn record(&mut self, entry: u32, named: Option<StreamKey>) -> Option<Record<E>> {
        let its = &mut self.progress[entry as usize];
        let (key, reach) = its.stream.clone()?;
        if its.covered() == its.last {
            return None;
        }
        if matches!(reach, Reach::Named) && named != Some(key) {
            its.is_wanted = true;
            return None;
        }
        its.is_recording = true;
        Some(Record { entry, number: its.last, reach, event: self.spare.pop() })
    }

    /// Enters the outcome of a recording.
    pub(super) fn enter(&mut self, record: Record<E>, was_made: bool) {
        let its = &mut self.progress[record.entry as usize];
        its.is_recording = false;
        let Some(event) = record.event else {
            return;
        };
        // The entry may have been reused meanwhile, as all of that work was done.
        if !was_made || record.number <= its.done {
            return self.keep(event);
        }
        let place = its.events.partition_point(|(its, _)| *its < record.number);
        its.events.insert(place, (record.number, event));
    }

    /// Notes that all work of an entry up to the number is done.
    pub(super) fn reached(&mut self, entry: u32, number: u64) {
        let its = &mut self.progress[entry as usize];
        its.done = its.done.max(number);
        while let Some((covered, _)) = self.progress[entry as usize].events.front() {
            if *covered > number {
                break;
            }
            if let Some((_, event)) = self.progress[entry as usize].events.pop_front() {
                self.keep(event);
            }
        }
    }

    /// Returns the events that cover the sync points that are not done, and the events to record to
    /// cover the others. Returns `None` if one of them cannot be covered. The entry `but_for` is not
    /// counted.
    pub(super) fn cover(
        &mut self,
        points: &[SyncPoint],
        but_for: Option<u32>,
        named: Option<StreamKey>,
    ) -> Option<Cover<E>> {
        let (mut events, mut records) = (Vec::new(), Vec::new());
        for point in points {
            if self.is_done(point) || Some(point.entry) == but_for {
                continue;
            }
            let its = &self.progress[point.entry as usize];
            let covers = its.events.iter().find(|(number, _)| *number >= point.number);
            if let Some((_, event)) = covers {
                events.push(Arc::clone(event));
                continue;
            }
            match self.record(point.entry, named) {
                Some(record) => records.push(record),
                None => {
                    records.into_iter().for_each(|its| self.enter(its, false));
                    self.discarded.extend(events);
                    return None;
                }
            }
        }
        Some((events, records))
    }

    /// Returns the latest number of each entry, for [`settled`](Self::settled).
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.progress.iter().map(|entry| entry.last).collect()
    }

    /// Notes that all work of the context was done at some time after these numbers were read. This says
    /// nothing about the work of another context.
    pub(super) fn settled(&mut self, numbers: &[u64]) {
        for (entry, number) in numbers.iter().enumerate() {
            let mut events = self.progress[entry].events.iter();
            if events.all(|(_, event)| *event.context() == self.context) {
                self.reached(entry as u32, *number);
            }
        }
    }

    /// Returns the contexts whose work a wait for this context does not cover, and that use memory.
    pub(super) fn others(&self) -> Vec<E::Context> {
        let events = self.progress.iter().flat_map(|entry| &entry.events);
        let contexts = events.map(|(_, event)| event.context().clone());
        contexts.filter(|its| *its != self.context).collect()
    }

    /// Returns the number of unordered blocks that are not known to be done.
    pub(super) fn unordered_pending(&self) -> u64 {
        let its = &self.progress[UNORDERED as usize];
        its.last - its.done
    }

    /// Takes an event that is not in use, if there is one.
    pub(super) fn spare(&mut self) -> Option<Arc<E>> {
        self.spare.pop()
    }

    /// Keeps an event for reuse, unless a thread still queries it or waits for it.
    pub(super) fn keep(&mut self, event: Arc<E>) {
        // Clones are made only under the lock, so a count of one means that this is the last clone.
        let is_free = Arc::strong_count(&event) == 1;
        if is_free && self.spare.len() < MAX_SPARE && *event.context() == self.context {
            self.spare.push(event);
        } else {
            self.discarded.push(event);
        }
    }
}

#[cfg(test)]
mod tests;
