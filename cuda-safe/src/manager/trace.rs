//! Traces of allocations, as text: what [`LoggingManager`](super::LoggingManager) writes, and what can be
//! replayed.
//!
//! A line is `a TIME NUMBER SIZE STREAM` for an allocation and `f TIME NUMBER STREAM` for its free: the time in
//! nanoseconds since the beginning, a number for each allocation, its bytes, and any number for each
//! stream ([`Trace::NO_STREAM`] for none). Empty lines and those that begin with `#` say nothing. So
//! traces of other allocators are written by a few lines of any language.

use super::{Block, MemoryManager, Order, current};
use crate::error::Result;
use crate::stream::{Stream, same_context};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Something that happened to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the head of this file says what they are")]
pub enum Event {
    /// It was handed out.
    Allocate {
        time: Duration,
        number: u64,
        size: u64,
        stream: u64,
    },
    /// It was given back.
    Free {
        time: Duration,
        number: u64,
        stream: u64,
    },
}

impl Event {
    /// When, since the beginning.
    pub fn time(&self) -> Duration {
        match self {
            Self::Allocate { time, .. } | Self::Free { time, .. } => *time,
        }
    }

    fn stream(&self) -> u64 {
        match self {
            Self::Allocate { stream, .. } | Self::Free { stream, .. } => *stream,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Allocate {
                time,
                number,
                size,
                stream,
            } => write!(f, "a {} {number} {size} {stream}", time.as_nanos()),
            Self::Free {
                time,
                number,
                stream,
            } => write!(f, "f {} {number} {stream}", time.as_nanos()),
        }
    }
}

/// A line that is none of a trace, or says what cannot be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceError {
    /// Which, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {} of the trace: {}", self.line, self.problem)
    }
}

impl std::error::Error for TraceError {}

/// What happened, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    events: Vec<Event>,
}

impl FromStr for Trace {
    type Err = TraceError;

    /// # Errors
    /// A line is not as it should be, a number is handed out twice, or given back without that.
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
                Event::Allocate { size: 0, .. } => return Err(at("an allocation of no byte")),
                Event::Allocate { number, size, .. } => {
                    if live.insert(number, size).is_some() {
                        return Err(at("the number is handed out already"));
                    }
                }
                Event::Free { number, .. } => {
                    if live.remove(&number).is_none() {
                        return Err(at("the number is not handed out"));
                    }
                }
            }
            events.push(event);
        }
        Ok(Self { events })
    }
}

fn parse(line: &str) -> Option<Event> {
    let mut words = line.split_ascii_whitespace();
    let kind = words.next()?;
    let numbers: Option<Vec<u64>> = words.map(|word| word.parse().ok()).collect();
    match (kind, &numbers?[..]) {
        ("a", &[time, number, size, stream]) => Some(Event::Allocate {
            time: Duration::from_nanos(time),
            number,
            size,
            stream,
        }),
        ("f", &[time, number, stream]) => Some(Event::Free {
            time: Duration::from_nanos(time),
            number,
            stream,
        }),
        _ => None,
    }
}

/// What a replay took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Replayed {
    /// Allocations.
    pub allocated: u64,
    /// The most bytes that were handed out at a time, as asked for.
    pub high: u64,
}

impl Trace {
    /// The number of no stream.
    pub const NO_STREAM: u64 = u64::MAX;

    /// What happened.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The most bytes that are handed out at a time.
    pub fn high(&self) -> u64 {
        let (mut used, mut high, mut sizes) = (0, 0, HashMap::new());
        for event in &self.events {
            match event {
                Event::Allocate { number, size, .. } => {
                    sizes.insert(number, size);
                    used = u64::saturating_add(used, *size);
                    high = high.max(used);
                }
                Event::Free { number, .. } => used -= sizes.remove(number).copied().unwrap_or(0),
            }
        }
        high
    }

    /// Does the same with a manager, as fast as that goes: each stream of the trace is one of `streams`. Memory
    /// is freed in the order that it was allocated in, whatever the trace says; what is left at the end is
    /// given back.
    ///
    /// # Errors
    /// A stream of another context than the manager's; those of the manager. What was handed out is given
    /// back.
    ///
    /// # Safety
    /// The manager [hears of the ends](MemoryManager::stream_ends) of the streams: it is that of their
    /// context, or a part of that; or the streams stay longer than the manager.
    pub unsafe fn replay(
        &self,
        manager: &dyn MemoryManager,
        streams: &[Stream],
    ) -> Result<Replayed> {
        for stream in streams {
            same_context("the stream", stream.context(), manager.base().context())?;
        }
        // Before what has the memory, so that it is current while that is freed.
        let _current = current::enter(manager)?;
        let mut places = HashMap::new();
        let mut live = Live {
            blocks: HashMap::new(),
            manager,
        };
        let mut replayed = Replayed::default();
        let mut used = 0;
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
                    used += size as u64;
                    replayed.allocated += 1;
                    replayed.high = replayed.high.max(used);
                }
                Event::Free { number, .. } => {
                    if let Some((block, order)) = live.blocks.remove(&number) {
                        used -= block.size as u64;
                        // SAFETY: it is of this manager, given back here, once, in the order in which it was
                        // allocated, and nobody has used it.
                        unsafe { manager.free(block, order) };
                    }
                }
            }
        }
        Ok(replayed)
    }
}

/// What a replay has.
struct Live<'a> {
    blocks: HashMap<u64, (Block, Order<'a>)>,
    manager: &'a dyn MemoryManager,
}

impl Drop for Live<'_> {
    fn drop(&mut self) {
        for (_, (block, order)) in self.blocks.drain() {
            // SAFETY: as in `replay`.
            unsafe { self.manager.free(block, order) };
        }
    }
}
