//! The contents of an allocation.

use super::UNINIT;
use super::space::Space;
use std::ops::{Deref, DerefMut};

/// Allocations of this size or more are not filled with [`UNINIT`], because that would make the system
/// commit all of the memory at once.
const LARGE: usize = 1 << 30;

/// The bytes of an allocation, in memory of the host.
#[derive(Debug)]
pub(crate) struct Contents {
    len: usize,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Small(Vec<u8>),
    /// Zeros, which take no memory until they are written. The size may exceed the host's memory.
    Large(Space),
}

impl Contents {
    /// Allocates the memory. Returns `None` if the host has not enough.
    pub(super) fn new(size: u64) -> Option<Self> {
        let len = usize::try_from(size).ok()?;
        if len >= LARGE {
            if let Some(space) = Space::of_zeros(len) {
                let place = Place::Large(space);
                return Some(Self { len, place });
            }
        }
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(len).ok()?;
        bytes.resize(len, UNINIT);
        let place = Place::Small(bytes);
        Some(Self { len, place })
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes the contents those of memory that was never written.
    pub(super) fn reset(&mut self) {
        match &mut self.place {
            Place::Small(bytes) => bytes.fill(UNINIT),
            Place::Large(space) => space.reset(),
        }
    }
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            Place::Small(bytes) => bytes,
            // SAFETY: the memory is private to this value, of this length, readable and writable.
            Place::Large(space) => unsafe { space.bytes_to_read(0, self.len) },
        }
    }
}

impl DerefMut for Contents {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.place {
            Place::Small(bytes) => bytes,
            // SAFETY: the memory is private to this value, of this length, readable and writable.
            Place::Large(space) => unsafe { space.bytes(0, self.len) },
        }
    }
}
