//! Handles: numbers that look like pointers, name one object for ever, and fault when followed.

use std::collections::{BTreeMap, BTreeSet};

/// Addresses of this range belong to nobody: outside what processes get mapped by default.
const BASE: usize = 0x00c0_0000_0000_0000;

/// Objects of one kind. A handle is never used again, so a dead one is known as such.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    /// Sets the handles of this kind apart from those of others.
    kind: usize,
    next: usize,
    alive: BTreeMap<usize, T>,
    dead: BTreeSet<usize>,
}

/// What a handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Alive,
    Dead,
    Unknown,
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: u8) -> Self {
        Self {
            kind: kind as usize,
            next: 1,
            alive: BTreeMap::new(),
            dead: BTreeSet::new(),
        }
    }

    /// A handle without an object yet.
    pub(crate) fn reserve(&mut self) -> usize {
        let handle = BASE | self.kind << 40 | self.next << 4;
        self.next += 1;
        handle
    }

    pub(crate) fn insert(&mut self, object: T) -> usize {
        let handle = self.reserve();
        self.alive.insert(handle, object);
        handle
    }

    /// Gives a handle its object, again if it is that of a primary context.
    pub(crate) fn revive(&mut self, handle: usize, object: T) {
        self.dead.remove(&handle);
        self.alive.insert(handle, object);
    }

    pub(crate) fn state(&self, handle: usize) -> State {
        if self.alive.contains_key(&handle) {
            State::Alive
        } else if self.dead.contains(&handle) {
            State::Dead
        } else {
            State::Unknown
        }
    }

    pub(crate) fn get(&self, handle: usize) -> Option<&T> {
        self.alive.get(&handle)
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Option<&mut T> {
        self.alive.get_mut(&handle)
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Option<T> {
        let object = self.alive.remove(&handle)?;
        self.dead.insert(handle);
        Some(object)
    }

    pub(crate) fn len(&self) -> usize {
        self.alive.len()
    }
}
