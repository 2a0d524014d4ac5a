//! Work that launches must come after.

use crate::call::Result;
use crate::capture_state::Operation;
use crate::event::Event;
use crate::stream::Stream;
use std::collections::BTreeSet;

/// Work that a launch must come after.
#[derive(Clone)]
pub(crate) enum Earlier {
    /// The work before the record of an event that nothing records again.
    Event(Event),
    /// The work on a stream.
    Stream(Stream),
}

/// A list of earlier work. Each entry has a number, and later entries have greater numbers.
#[derive(Default)]
pub(crate) struct EarlierWork {
    events: Vec<(u64, Event)>,
    streams: Vec<(u64, Stream)>,
    /// The handles of the events, so that an event is added once. They are few, and a small tree is cheaper than
    /// a hash table.
    handles: BTreeSet<usize>,
    /// The number of the next entry.
    next: u64,
}

impl Earlier {
    /// Makes a stream wait for this work.
    ///
    /// # Errors
    /// Errors of the driver; one of the streams is capturing.
    #[inline]
    pub(crate) fn precede(&self, stream: &Stream) -> Result<()> {
        match self {
            Self::Event(event) => stream.wait_private(event),
            Self::Stream(its) if its == stream => Ok(()),
            Self::Stream(its) => {
                let reached = its.context().event()?;
                reached.record_uncaptured(its)?;
                stream.wait_private(&reached)
            }
        }
    }

    /// Blocks until this work is complete.
    ///
    /// # Errors
    /// Errors of the work; the stream is capturing.
    #[inline]
    pub(crate) fn wait(&self) -> Result<()> {
        match self {
            Self::Event(event) => event.wait_for_record(),
            Self::Stream(stream) => {
                // A wait for a captured stream would invalidate the capture.
                let _call = stream.uncaptured(Operation::HostCopy)?;
                stream.wait_for_work()
            }
        }
    }
}

impl EarlierWork {
    /// Adds work. Returns the entry for the same stream that the new one replaces. The caller drops it
    /// without a lock, because it may be the last clone.
    #[must_use]
    #[inline]
    pub(crate) fn add(&mut self, earlier: Earlier) -> Option<Stream> {
        let number = self.next;
        self.next += 1;
        match earlier {
            Earlier::Event(event) => {
                if self.handles.insert(event.handle().addr()) {
                    self.events.push((number, event));
                }
                None
            }
            Earlier::Stream(stream) => {
                let mut others = self.streams.iter();
                let same = others.position(|(_, its)| *its == stream);
                let replaced = same.map(|index| self.streams.remove(index).1);
                self.streams.push((number, stream));
                replaced
            }
        }
    }

    /// Returns all entries, and a number that is greater than those of the entries.
    #[inline]
    pub(crate) fn all(&self) -> (Vec<Earlier>, u64) {
        let mut all = Vec::new();
        let next = self.since(0, &mut all);
        (all, next)
    }

    /// Appends the entries from a number on. Returns a number that is greater than those of all entries.
    #[inline]
    pub(crate) fn since(&self, number: u64, found: &mut Vec<Earlier>) -> u64 {
        // The usual case in updates.
        if number == self.next {
            return self.next;
        }
        let events = self.events.partition_point(|(its, _)| *its < number);
        let streams = self.streams.partition_point(|(its, _)| *its < number);
        let events = self.events[events..].iter();
        let events = events.map(|(_, event)| Earlier::Event(event.clone()));
        let streams = self.streams[streams..].iter();
        let streams = streams.map(|(_, stream)| Earlier::Stream(stream.clone()));
        found.extend(events.chain(streams));
        self.next
    }

    /// Removes the entries below a number. The caller drops them without a lock, because they may be the
    /// last clones.
    #[must_use]
    #[inline]
    pub(crate) fn remove_below(&mut self, number: u64) -> Vec<Earlier> {
        let events = self.events.partition_point(|(its, _)| *its < number);
        let streams = self.streams.partition_point(|(its, _)| *its < number);
        let events = self.events.drain(..events).map(|(_, event)| event);
        let streams = self.streams.drain(..streams).map(|(_, stream)| stream);
        let removed: Vec<_> =
            events.map(Earlier::Event).chain(streams.map(Earlier::Stream)).collect();
        for earlier in &removed {
            if let Earlier::Event(event) = earlier {
                self.handles.remove(&event.handle().addr());
            }
        }
        removed
    }

    /// Returns the number of the next entry.
    #[inline]
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty() && self.streams.is_empty()
    }
}
