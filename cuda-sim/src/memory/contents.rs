//! The contents of an allocation.

use super::UNINIT;
use super::space::Space;
use std::alloc::{Layout, alloc_zeroed};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Allocations of this size or more are not filled with [`UNINIT`], because that would make the system
/// commit all of the memory at once.
const LARGE: usize = 1 << 30;

/// Allocates zeros, which most systems commit when they are written. Returns `None` if there is not enough
/// memory.
fn zeros(len: usize) -> Option<Vec<u8>> {
    let layout = Layout::array::<u8>(len)
        .ok()
        .filter(|its| its.size() != 0)?;
    // SAFETY: the size is not zero.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
    // SAFETY: the memory was allocated by the global allocator with the layout of a vector of `len`
    // bytes, all bytes are initialized to zero, and nothing else refers to the memory.
    Some(unsafe { Vec::from_raw_parts(start.as_ptr(), len, len) })
}

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
            let place = match Space::of_zeros(len) {
                Some(space) => Place::Large(space),
                None => Place::Small(zeros(len)?),
            };
            return Some(Self { len, place });
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
