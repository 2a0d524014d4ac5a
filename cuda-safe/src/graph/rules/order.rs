//! The order of work on the memory that graphs own.
//!
//! The driver orders the launches of one executable graph, and nothing else. So memory that a graph owns
//! is used by one executable graph at a time, and everything else that uses it is ordered by events: the
//! work on a buffer before the graph owned it, the work of a stream that accesses it from outside, and
//! the launches of an earlier executable graph.

use crate::call::{Invalid, Result};
use crate::capture_state::{Operation, Retain};
use crate::event::Event;
use crate::stream::Stream;
use crate::sync::{Mutex, lock};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// The order of the work on the memory of one graph.
pub(crate) struct MemoryOrder {
    /// The number of the graph that owns the memory.
    graph: u64,
    is_claimed: AtomicBool,
    /// The work that launches must come after.
    earlier: Mutex<EarlierWork>,
    /// The buffers that the graph owns, until it keeps them.
    memory: Mutex<Vec<Weak<dyn Retain>>>,
}

/// The right to launch work on the memory of a graph. One executable graph has it at a time.
pub(crate) struct Claim {
    order: Arc<MemoryOrder>,
    /// The executable graph knows all earlier work below this number.
    known: u64,
    /// Whether the right never ends.
    is_kept: bool,
}

impl MemoryOrder {
    #[inline]
    pub(crate) fn new(graph: u64) -> Arc<Self> {
        Arc::new(Self {
            graph,
            is_claimed: AtomicBool::new(false),
            earlier: Mutex::default(),
            memory: Mutex::default(),
        })
    }

    #[inline]
    pub(crate) fn graph(&self) -> u64 {
        self.graph
    }

    /// Adds work that the launches of later executable graphs come after.
    #[inline]
    pub(crate) fn add(&self, earlier: Earlier) {
        // Dropped without the lock, because it may be the last clone, whose owner may use the graph.
        let replaced = lock(&self.earlier).add(earlier);
        drop(replaced);
    }

    /// Adds a buffer that the graph owns.
    #[inline]
    pub(crate) fn add_memory(&self, buffer: Weak<dyn Retain>) {
        let mut memory = lock(&self.memory);
        if memory.len() == memory.capacity() {
            memory.retain(|its| its.strong_count() > 0);
        }
        memory.push(buffer);
    }

    /// Takes the buffers that the graph owns, for a graph that keeps them.
    #[inline]
    pub(crate) fn take_memory(&self) -> Vec<Arc<dyn Retain>> {
        let memory = std::mem::take(&mut *lock(&self.memory));
        memory.iter().filter_map(Weak::upgrade).collect()
    }

    /// Claims the memory for an executable graph.
    ///
    /// # Errors
    /// [`Invalid::SecondExecutable`].
    #[inline]
    pub(crate) fn claim(self: &Arc<Self>) -> Result<Claim> {
        match self.is_claimed.swap(true, Ordering::AcqRel) {
            false => Ok(Claim { order: Arc::clone(self), known: 0, is_kept: false }),
            true => Err(Invalid::SecondExecutable { graph: self.graph }.into()),
        }
    }
}

impl Claim {
    #[inline]
    pub(crate) fn order(&self) -> &Arc<MemoryOrder> {
        &self.order
    }

    /// Never gives the right back, because other code may launch the executable graph.
    #[inline]
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }

    /// Appends the work that launches must come after, and that was not found before. The caller passes it
    /// to the launches.
    #[inline]
    pub(crate) fn find_earlier(&mut self, found: &mut Vec<Earlier>) {
        self.known = lock(&self.order.earlier).since(self.known, found);
    }

    /// Appends the work that was not found before, as [`find_earlier`](Self::find_earlier) does, and adds the
    /// work of a stream that the caller passes to the launches too.
    #[inline]
    pub(crate) fn exchange(&mut self, stream: &Stream, found: &mut Vec<Earlier>) {
        let replaced = {
            let mut earlier = lock(&self.order.earlier);
            earlier.since(self.known, found);
            let replaced = earlier.add(Earlier::Stream(stream.clone()));
            self.known = earlier.next();
            replaced
        };
        // Dropped without the lock, because it may be the last clone.
        drop(replaced);
    }

    /// Replaces the earlier work that the executable graph knows by launches that came after all of it.
    #[inline]
    pub(crate) fn supersede(&self, launched: &[Earlier]) {
        let finished = lock(&self.order.earlier).remove_below(self.known);
        drop(finished);
        launched.iter().for_each(|its| self.order.add(its.clone()));
    }
}

impl Drop for Claim {
    #[inline]
    fn drop(&mut self) {
        if !self.is_kept {
            self.order.is_claimed.store(false, Ordering::Release);
        }
    }
}

/// Returns a number for a buffer of a graph, which is never used again in this process.
#[inline]
pub(crate) fn new_buffer_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

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
