//! A thread of the stress test: its decisions and its items.

use super::actions::Action;
use super::graphs::Recorded;
use super::{Arena, Home};
use crate::common::random::Random;
use cuda_safe::memory::SharedReader;
use cuda_safe::memory::{ManagedBuffer, MappedBuffer, Pending};
use cuda_safe::{DeviceBuffer, Event};
use cuda_safe::{Result, SharedBuffer, Stream};

/// An object with its expected contents.
pub(super) enum Item {
    Buffer(Known),
    Shared(SharedBuffer<i32>, Vec<i32>),
    Reader(SharedReader<i32>, Vec<i32>),
    /// A pending copy, and the contents of its memory once it completes.
    Pending(Pending<i32>, Vec<i32>),
    Event(Event),
    Mapped(MappedBuffer<i32>, Vec<i32>),
    Managed(ManagedBuffer<i32>, Vec<i32>),
    Graph(Box<Recorded>),
}

/// A buffer and its contents.
pub(super) struct Known {
    pub(super) buffer: DeviceBuffer<i32>,
    pub(super) elements: Vec<i32>,
}

impl Known {
    pub(super) fn check(&self) -> Result<()> {
        assert_eq!(self.buffer.to_vec()?, self.elements);
        Ok(())
    }
}

pub(super) struct Worker<'a> {
    pub(super) arena: &'a Arena,
    pub(super) items: Vec<Item>,
    random: Random,
}

impl<'a> Worker<'a> {
    pub(super) fn new(arena: &'a Arena, seed: u64, thread: u64) -> Self {
        Self {
            arena,
            items: Vec::new(),
            random: Random(seed.wrapping_mul(0xd134_2543_de82_ef95) ^ thread),
        }
    }

    pub(super) fn below(&mut self, end: usize) -> usize {
        self.random.below(end)
    }

    pub(super) fn choose<'b>(&mut self, actions: &[&'b Action]) -> &'b Action {
        actions[self.below(actions.len())]
    }

    /// Returns one of the contexts, with the objects for work in it.
    pub(super) fn home(&mut self) -> &'a Home {
        &self.arena.homes[self.below(self.arena.homes.len())]
    }

    /// Returns one of the existing streams, or a new one if there is none.
    pub(super) fn stream(&mut self) -> Result<Stream> {
        let number = self.below(1 << 20);
        let streams = self.arena.streams.lock().expect("no thread panicked");
        match streams.len() {
            0 => self.arena.homes[0].context.stream(),
            len => Ok(streams[number % len].clone()),
        }
    }

    /// Like [`stream`](Self::stream), in the context of another stream.
    pub(super) fn stream_beside(&mut self, other: &Stream) -> Result<Stream> {
        let stream = self.stream()?;
        if stream.context() == other.context() {
            return Ok(stream);
        }
        other.context().stream()
    }

    /// Returns numbers of a small length, and rarely of a larger one.
    pub(super) fn numbers(&mut self) -> Vec<i32> {
        let most = if self.below(16) == 0 { 1 << 14 } else { 64 };
        let len = self.below(most);
        let start = self.below(1 << 16) as i32;
        (start..).take(len).collect()
    }

    /// Takes an item for which `is_right` holds from those of this thread, if there is one.
    pub(super) fn take<T>(&mut self, is_right: impl Fn(Item) -> Result<T, Item>) -> Option<T> {
        let count = self.items.len();
        if count == 0 {
            return None;
        }
        let start = self.below(count);
        for at in (0..count).map(|step| (start + step) % count) {
            match is_right(self.items.remove(at)) {
                Ok(found) => return Some(found),
                Err(other) => self.items.insert(at, other),
            }
        }
        None
    }

    pub(super) fn take_buffer(&mut self) -> Option<Known> {
        self.take(|item| match item {
            Item::Buffer(known) => Ok(known),
            other => Err(other),
        })
    }

    /// Keeps an item, and drops one if there are too many.
    pub(super) fn keep(&mut self, item: Item) {
        self.items.push(item);
        if self.items.len() > 12 {
            let place = self.below(self.items.len());
            drop(self.items.swap_remove(place));
        }
    }
}
