//! Traces of allocations in a text format, which [`LoggingManager`](crate::LoggingManager) writes and
//! [`Trace::replay`] replays.
//!
//! A line is `a TIME NUMBER SIZE STREAM` for an allocation and `f TIME NUMBER STREAM` for its free.
//! `TIME` is in nanoseconds since the start, `NUMBER` identifies the allocation, `SIZE` is in bytes,
//! and `STREAM` is any number that identifies the stream ([`Trace::NO_STREAM`] for none). Empty lines
//! and lines that begin with `#` are ignored. The format is simple enough that traces of other
//! allocators can be written with a few lines of code in any language.

use crate::check::same_context;
use cuda_safe::context::CurrentContext;
use cuda_safe::manager::{Block, MemoryManager, Order, in_host_function};
use cuda_safe::{Error, Result, Stream};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// An event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the module documentation describes the fields")]
pub enum Event {
    /// Memory was allocated.
    Allocate { time: Duration, number: u64, size: u64, stream: u64 },
    /// Memory was freed.
    Free { time: Duration, number: u64, stream: u64 },
}

impl Event {
    /// Returns the time of the event since the start of the trace.
    #[inline]
    pub fn time(&self) -> Duration {
        match self {
            Self::Allocate { time, .. } | Self::Free { time, .. } => *time,
        }
    }

    #[inline]
    fn stream(&self) -> u64 {
        match self {
            Self::Allocate { stream, .. } | Self::Free { stream, .. } => *stream,
        }
    }
}

impl fmt::Display for Event {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate { time, number, size, stream } => {
                write!(f, "a {} {number} {size} {stream}", time.as_nanos())
            }
            Self::Free { time, number, stream } => {
                write!(f, "f {} {number} {stream}", time.as_nanos())
            }
        }
    }
}

/// The error for a line that is not valid in a trace.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceError {
    /// The line number, one-based.
    pub line: usize,
    /// A description of the problem.
    pub problem: &'static str,
}

impl fmt::Display for TraceError {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the trace: {}", self.line, self.problem)
    }
}

cuda_safe::sys::debug_text! { struct TraceError { line, problem } }

impl std::error::Error for TraceError {}

/// A list of allocations and frees in chronological order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    events: Vec<Event>,
}

impl FromStr for Trace {
    type Err = TraceError;

    /// # Errors
    /// A line cannot be parsed, an allocation has no bytes or the number of a live allocation, or a
    /// free has a number that is not allocated.
    #[inline]
    fn from_str(text: &str) -> Result<Self, TraceError> {
        let mut events = Vec::new();
        let mut live = HashMap::new();
        for (text, line) in text.lines().zip(1..) {
            let at = |problem: &'static str| TraceError { line, problem };
            let line = text.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let event = parse(line).ok_or_else(|| at("neither an allocation nor a free"))?;
            match event {
                Event::Allocate { size: 0, .. } => return Err(at("an allocation of zero bytes")),
                Event::Allocate { number, size, .. } => {
                    if live.insert(number, size).is_some() {
                        return Err(at("the number is already allocated"));
                    }
                }
                Event::Free { number, .. } => {
                    if live.remove(&number).is_none() {
                        return Err(at("the number is not allocated"));
                    }
                }
            }
            events.push(event);
        }
        Ok(Self { events })
    }
}

#[inline]
fn parse(line: &str) -> Option<Event> {
    let mut words = line.split_ascii_whitespace();
    let kind = words.next()?;
    let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
    match (kind, &numbers?[..]) {
        ("a", &[time, number, size, stream]) => {
            Some(Event::Allocate { time: Duration::from_nanos(time), number, size, stream })
        }
        ("f", &[time, number, stream]) => {
            Some(Event::Free { time: Duration::from_nanos(time), number, stream })
        }
        _ => None,
    }
}

/// The result of [`Trace::replay`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// The number of allocations.
    pub allocated: u64,
    /// The high-water mark of the requested bytes.
    pub high: u64,
}

impl Trace {
    /// The stream number of an event without a stream.
    pub const NO_STREAM: u64 = u64::MAX;

    /// Returns the events in chronological order.
    #[inline]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the high-water mark of the allocated bytes.
    #[inline]
    pub fn high(&self) -> u64 {
        let (mut usage, mut sizes) = (Usage::default(), HashMap::new());
        for event in &self.events {
            match *event {
                Event::Allocate { number, size, .. } => {
                    sizes.insert(number, size);
                    usage.add(size);
                }
                Event::Free { number, .. } => usage.remove(sizes.remove(&number).unwrap_or(0)),
            }
        }
        usage.high()
    }

    /// Repeats the allocations and frees with a manager, as fast as possible. Each stream of the trace
    /// is mapped to one of `streams`. Memory is always freed in the order of its allocation, even if
    /// the trace says otherwise. Memory that is still allocated at the end is freed.
    ///
    /// # Errors
    /// A stream belongs to another context than the manager; errors of the manager. All allocated
    /// memory is freed.
    ///
    /// # Safety
    /// The manager must be [notified when the streams end](MemoryManager::stream_ends): it is the
    /// manager of their context, or is wrapped by it; or the streams outlive the manager.
    #[inline]
    pub unsafe fn replay(
        &self,
        manager: &dyn MemoryManager,
        streams: &[Stream],
    ) -> Result<Replayed> {
        for stream in streams {
            same_context("the stream", stream.context(), manager.base().context())?;
        }
        // Declared before the owner of the memory, so that the context is still current when that frees
        // it.
        let _current = enter(manager)?;
        let mut places = HashMap::new();
        let mut live = Live { blocks: HashMap::new(), manager };
        let mut replayed = Replayed::default();
        let mut usage = Usage::default();
        for event in &self.events {
            let number = event.stream();
            let next = places.len();
            let order = match (number, streams.len()) {
                (Self::NO_STREAM, _) | (_, 0) => Order::NONE,
                (_, count) => {
                    let place = *places.entry(number).or_insert(next % count);
                    Order::of(&streams[place])
                }
            };
            match *event {
                Event::Allocate { number, size, .. } => {
                    let size = usize::try_from(size).unwrap_or(usize::MAX);
                    let block = manager.allocate(size, order)?;
                    live.blocks.insert(number, (block, order));
                    usage.add(block.size as u64);
                    replayed.allocated += 1;
                }
                Event::Free { number, .. } => {
                    if let Some((block, order)) = live.blocks.remove(&number) {
                        usage.remove(block.size as u64);
                        // SAFETY: the block is of this manager, is freed here exactly once, in the
                        // order in which it was allocated, and nothing has used it.
                        unsafe { manager.free(block, order) };
                    }
                }
            }
        }
        replayed.high = usage.high();
        Ok(replayed)
    }
}

/// The requested bytes in use. They may be more than an address space has, because a trace may come from
/// any code.
#[derive(Default)]
struct Usage {
    used: u128,
    high: u128,
}

impl Usage {
    #[inline]
    fn add(&mut self, size: u64) {
        self.used += u128::from(size);
        self.high = self.high.max(self.used);
    }

    #[inline]
    fn remove(&mut self, size: u64) {
        self.used -= u128::from(size);
    }

    /// Returns the high-water mark, or the largest number if the mark exceeds it.
    #[inline]
    fn high(&self) -> u64 {
        u64::try_from(self.high).unwrap_or(u64::MAX)
    }
}

/// Makes the context of a manager current, if the manager requires that.
#[inline]
fn enter(manager: &dyn MemoryManager) -> Result<Option<CurrentContext>> {
    match (manager.needs_current_context(), in_host_function()) {
        (false, _) => Ok(None),
        (true, false) => manager.base().context().make_current().map(Some),
        (true, true) => Err(Error::InHostFunction),
    }
}

/// The memory that a replay has allocated and not freed yet.
struct Live<'a> {
    blocks: HashMap<u64, (Block, Order<'a>)>,
    manager: &'a dyn MemoryManager,
}

impl Drop for Live<'_> {
    #[inline]
    fn drop(&mut self) {
        for (_, (block, order)) in self.blocks.drain() {
            // SAFETY: the block is of this manager, is freed here exactly once, in the order in which
            // it was allocated, and nothing has used it.
            unsafe { self.manager.free(block, order) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_both_kinds_have_a_time() {
        let time = Duration::from_micros(17);
        let allocation = Event::Allocate { time, number: 1, size: 64, stream: 0 };
        let free = Event::Free { time, number: 1, stream: 0 };
        assert_eq!((allocation.time(), free.time()), (time, time));
    }
}
