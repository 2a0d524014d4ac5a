//! Handles: numbers that look like pointers. Each handle identifies one object and is never reused for
//! another object. An access to memory at a handle's address faults.

use std::collections::{BTreeMap, BTreeSet};

/// Start of the range of handles. Linux maps no memory in this range unless a program requests it.
const BASE: usize = 0x00c0_0000_0000_0000;

/// Objects of one kind, by handle. A handle is never reused for another object, so the use of a dead
/// handle can be detected.
#[derive(Debug)]
pub(crate) struct Handles<T> {
    /// Distinguishes the handles of this kind from those of other kinds.
    kind: usize,
    next: usize,
    alive: BTreeMap<usize, T>,
    /// Handles that were reserved and have not had an object. The others that were returned and are not
    /// alive are dead.
    reserved: BTreeSet<usize>,
}

/// The state of a handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Alive,
    Dead,
    Unknown,
}

impl<T> Handles<T> {
    pub(crate) const fn new(kind: u8) -> Self {
        Self { kind: kind as usize, next: 1, alive: BTreeMap::new(), reserved: BTreeSet::new() }
    }

    fn new_handle(&mut self) -> usize {
        let handle = BASE | self.kind << 40 | self.next << 4;
        self.next += 1;
        handle
    }

    /// Returns a new handle that has no object yet.
    pub(crate) fn reserve(&mut self) -> usize {
        let handle = self.new_handle();
        self.reserved.insert(handle);
        handle
    }

    pub(crate) fn insert(&mut self, object: T) -> usize {
        let handle = self.new_handle();
        self.alive.insert(handle, object);
        handle
    }

    /// Assigns an object to a reserved or dead handle. A primary context that is retained again has the
    /// same handle.
    pub(crate) fn revive(&mut self, handle: usize, object: T) {
        self.reserved.remove(&handle);
        self.alive.insert(handle, object);
    }

    pub(crate) fn state(&self, handle: usize) -> State {
        if self.alive.contains_key(&handle) {
            State::Alive
        } else if self.was_returned(handle) && !self.reserved.contains(&handle) {
            State::Dead
        } else {
            State::Unknown
        }
    }

    /// Returns whether a number is one of the handles so far.
    fn was_returned(&self, handle: usize) -> bool {
        let first = BASE | self.kind << 40;
        let number = handle.wrapping_sub(first);
        number % 16 == 0 && (1..self.next).contains(&(number >> 4))
    }

    pub(crate) fn get(&self, handle: usize) -> Option<&T> {
        self.alive.get(&handle)
    }

    pub(crate) fn get_mut(&mut self, handle: usize) -> Option<&mut T> {
        self.alive.get_mut(&handle)
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Option<T> {
        self.alive.remove(&handle)
    }

    /// Returns the objects in the order of their handles.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &T)> {
        self.alive.iter().map(|(handle, object)| (*handle, object))
    }

    pub(crate) fn len(&self) -> usize {
        self.alive.len()
    }
}

#[cfg(test)]
mod tests {
    use super::{Handles, State};

    #[test]
    fn a_handle_is_dead_after_it_had_an_object() {
        let mut handles = Handles::new(3);
        let (reserved, other) = (handles.reserve(), handles.insert("other"));
        assert_eq!(handles.state(reserved), State::Unknown);
        assert_eq!(handles.state(other), State::Alive);
        handles.revive(reserved, "reserved");
        assert_eq!(handles.state(reserved), State::Alive);
        for handle in [reserved, other] {
            assert!(handles.remove(handle).is_some());
            assert_eq!(handles.state(handle), State::Dead);
            assert!(handles.remove(handle).is_none());
        }
        let of_another_kind = Handles::new(4).insert(());
        for unknown in [0, 16, other + 1, other + 16, of_another_kind, usize::MAX] {
            assert_eq!(handles.state(unknown), State::Unknown);
        }
        handles.revive(reserved, "again");
        assert_eq!(handles.state(reserved), State::Alive);
    }
}
