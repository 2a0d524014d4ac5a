//! The contents of an allocation.

use super::UNINIT;
use super::host::Allocated;
use super::space::{self, Space};
use std::alloc::{Layout, alloc_zeroed};
use std::fs::File;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// Allocations of this size or more take no memory of the host until they are written.
const LARGE: usize = 4 << 20;
/// On systems where these would have to be filled with [`UNINIT`], allocations of this size or more are
/// zero, because a fill would make the system commit all of the memory.
const TOO_LARGE_TO_FILL: usize = 1 << 30;
/// The size of the file of [`never_written`]. A mapping of the system has at most this size, and a process
/// has 65,530 mappings.
const PERIOD: usize = 16 << 20;

/// Allocations for the host have at most this size. Larger ones would need too many mappings.
const MOST_FOR_HOST: usize = 1 << 39;

/// Returns a file of [`PERIOD`] bytes that are [`UNINIT`]. Large allocations are private mappings of it, so
/// they need no memory for pages that were never written.
fn never_written() -> Option<&'static File> {
    static FILE: OnceLock<Option<File>> = OnceLock::new();
    let make = || {
        let file = space::create_file(c"cuda-sim uninitialized")?;
        let part = vec![UNINIT; 1 << 20];
        let mut parts = (0..PERIOD).step_by(part.len());
        let is_written = parts.all(|at| space::write(&file, at as u64, &part).is_ok());
        is_written.then_some(file)
    };
    FILE.get_or_init(make).as_ref()
}

/// Allocates zeros, which most systems commit when they are written. Returns `None` if there is not enough
/// memory.
fn zeros(len: usize) -> Option<Vec<u64>> {
    let layout = Layout::array::<u64>(len).ok()?;
    if layout.size() == 0 {
        return Some(Vec::new());
    }
    // SAFETY: the size is not zero.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) })?.cast();
    // SAFETY: the memory was allocated by the global allocator with the layout of a vector of `len`
    // words, all bytes are initialized to zero, and nothing else refers to the memory.
    Some(unsafe { Vec::from_raw_parts(start.as_ptr(), len, len) })
}

/// The bytes of an allocation, in memory of the host.
#[derive(Debug)]
pub(crate) struct Contents {
    len: usize,
    place: Place,
    /// A word for each 8 bytes, in which the bits are set that were written. `None` if all of them count as written.
    written: Option<Vec<u64>>,
}

#[derive(Debug)]
enum Place {
    /// Whole words, which kernels access. The last one may have more bytes than the allocation.
    Small(Vec<u64>),
    /// Pages take memory when they are written. The size may exceed the host's memory.
    Large(Space),
    /// Memory for the host on systems without [`Space`].
    Pages(Allocated),
    /// A part of a file that other mappings share, and where it begins.
    Shared(Space, usize),
}

impl Contents {
    /// Allocates memory that the host may access too, at `hint` if that is free. Its address is a multiple of
    /// the page size. Returns `None` if the host has not enough.
    pub(super) fn for_host(size: u64, hint: usize) -> Option<Self> {
        let len = usize::try_from(size).ok().filter(|len| *len <= MOST_FOR_HOST)?;
        let space = match never_written() {
            Some(file) => Space::of_copies(hint, len, file, PERIOD),
            None => Space::of_zeros(hint, len),
        };
        let place = match space {
            Some(space) => Place::Large(space),
            None => Place::Pages(Allocated::zeroed(len)?),
        };
        Some(Self { len, place, written: None })
    }

    /// Shares a part of a file. Returns `None` if the system cannot map it.
    pub(super) fn of_file(file: &File, offset: u64, len: usize) -> Option<Self> {
        let (space, at) = Space::of_file(file, offset, len)?;
        Some(Self { len, place: Place::Shared(space, at), written: None })
    }

    /// Returns the address of the first byte on the host.
    pub(super) fn address(&self) -> usize {
        match &self.place {
            Place::Small(words) => words.as_ptr().expose_provenance(),
            Place::Large(space) => space.start(),
            Place::Pages(its) => its.address(),
            Place::Shared(space, at) => space.start() + at,
        }
    }

    /// Allocates the memory. Returns `None` if the host has not enough.
    pub(super) fn new(size: u64) -> Option<Self> {
        let len = usize::try_from(size).ok()?;
        if len >= LARGE {
            let file = never_written();
            if let Some(space) = file.and_then(|file| Space::of_copies(0, len, file, PERIOD)) {
                let place = Place::Large(space);
                return Some(Self { len, place, written: None });
            }
        }
        let place = Place::Small(zeros(len.div_ceil(8))?);
        let mut contents = Self { len, place, written: None };
        if len < TOO_LARGE_TO_FILL {
            // One operation of the compiler, which Miri executes as fast as the machine. `Vec::resize` is a loop.
            contents.fill(UNINIT);
        }
        Some(contents)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Makes the contents those of memory that was never written.
    pub(super) fn reset(&mut self) {
        let is_done = match (&mut self.place, never_written()) {
            (Place::Large(space), Some(file)) => space.copy_from(file, PERIOD),
            _ => false,
        };
        if !is_done {
            self.fill(UNINIT);
        }
        if self.written.is_some() {
            self.track_writes();
        }
    }

    /// Notes from now on which bits are written. None were so far. Without enough memory on the host for that, all of
    /// them count as written.
    pub(super) fn track_writes(&mut self) {
        self.written = zeros(self.len.div_ceil(8));
    }

    /// Regards all bits as written from now on.
    pub(super) fn ignore_writes(&mut self) {
        self.written = None;
    }

    /// Returns the address on the host of the words that have the written bits, which kernels change.
    pub(super) fn written(&self) -> Option<usize> {
        self.written.as_ref().map(|words| words.as_ptr().expose_provenance())
    }

    /// Notes that bytes were written.
    pub(super) fn mark_written(&mut self, bytes: Range<usize>) {
        let Some(words) = self.written.as_mut().filter(|_| !bytes.is_empty()) else { return };
        let (first, last) = (bytes.start / 8, (bytes.end - 1) / 8);
        let from_start = u64::MAX << (8 * (bytes.start % 8));
        let to_end = u64::MAX >> (8 * (7 - (bytes.end - 1) % 8));
        if first == last {
            words[first] |= from_start & to_end;
            return;
        }
        words[first] |= from_start;
        words[first + 1..last].fill(u64::MAX);
        words[last] |= to_end;
    }

    /// Returns the written bits of `len` bytes from an offset on, a byte for each.
    pub(super) fn written_bits(&self, offset: usize, len: usize) -> Option<Vec<u8>> {
        let words = self.written.as_ref()?;
        let byte = |at: usize| words.get(at / 8).map_or(0, |word| word.to_le_bytes()[at % 8]);
        Some((offset..offset.saturating_add(len)).map(byte).collect())
    }

    /// Sets the written bits of bytes from an offset on.
    pub(super) fn set_written_bits(&mut self, offset: usize, bits: &[u8]) {
        let Some(words) = &mut self.written else { return };
        for (at, bits) in (offset..).zip(bits) {
            let shift = 8 * (at % 8);
            if let Some(word) = words.get_mut(at / 8) {
                *word = *word & !(0xff << shift) | u64::from(*bits) << shift;
            }
        }
    }
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.place {
            // SAFETY: the words have at least this many bytes, which have no invalid values.
            Place::Small(words) => unsafe {
                core::slice::from_raw_parts(words.as_ptr().cast(), self.len)
            },
            // SAFETY: the memory has this length, and is readable and writable. The program can access it only if it
            // is memory for the host, and must not do so while work of a device accesses it.
            Place::Large(space) => unsafe { space.bytes_to_read(0, self.len) },
            // SAFETY: as for `Large`. Other processes and APIs share the file, as a GPU shares its memory with them.
            Place::Shared(space, at) => unsafe { space.bytes_to_read(*at, self.len) },
            Place::Pages(its) => {
                let start = core::ptr::with_exposed_provenance(its.address());
                // SAFETY: the memory has this length, and is initialized. The program must not access it while work of
                // a device does.
                unsafe { core::slice::from_raw_parts(start, self.len) }
            }
        }
    }
}

impl DerefMut for Contents {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.place {
            // SAFETY: as for `deref`.
            Place::Small(words) => unsafe {
                core::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), self.len)
            },
            // SAFETY: as for `deref`.
            Place::Large(space) => unsafe { space.bytes(0, self.len) },
            // SAFETY: as for `deref`.
            Place::Shared(space, at) => unsafe { space.bytes(*at, self.len) },
            Place::Pages(its) => {
                let start = core::ptr::with_exposed_provenance_mut(its.address());
                // SAFETY: as for `deref`.
                unsafe { core::slice::from_raw_parts_mut(start, self.len) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MANAGED, PAGE};
    use super::{Contents, LARGE, PERIOD, UNINIT};

    #[test]
    fn memory_for_the_host_is_that_of_its_address() {
        for len in [1, 5000, LARGE + 1] {
            let mut contents = Contents::for_host(len as u64, MANAGED).expect("memory");
            let start = contents.address();
            assert_eq!(start, contents.as_ptr().addr());
            assert_eq!(start % PAGE, 0);
            contents[len - 1] = 7;
            contents.reset();
            assert!(contents.iter().all(|byte| *byte == UNINIT));
            let other = Contents::for_host(len as u64, MANAGED).expect("memory");
            assert_ne!(other.address(), start);
        }
    }

    #[test]
    fn writes_are_noted_by_byte() {
        let mut contents = Contents::new(40).expect("memory");
        assert_eq!(contents.written_bits(0, 40), None);
        contents.track_writes();
        let mut expected = vec![0; 40];
        for range in [3..5, 0..0, 7..9, 17..32, 30..40, 8..8] {
            contents.mark_written(range.clone());
            expected[range].fill(0xff);
            assert_eq!(contents.written_bits(0, 40).as_ref(), Some(&expected));
        }
        contents.set_written_bits(6, &[1, 2, 0]);
        expected[6..9].copy_from_slice(&[1, 2, 0]);
        assert_eq!(contents.written_bits(5, 30).as_deref(), Some(&expected[5..35]));
        contents.reset();
        assert_eq!(contents.written_bits(0, 40), Some(vec![0; 40]));
    }

    #[test]
    fn memory_that_was_never_written_has_one_value_in_allocations_of_all_sizes() {
        for len in [1, LARGE - 1, LARGE, LARGE + 1, 2 * PERIOD + 5000] {
            let mut contents = Contents::new(len as u64).expect("memory");
            assert_eq!(contents.len(), len);
            assert!(contents.iter().all(|byte| *byte == UNINIT));
            contents[len - 1] = 7;
            let other = Contents::new(len as u64).expect("memory");
            assert_eq!((contents[len - 1], other[len - 1]), (7, UNINIT));
            contents.reset();
            assert!(contents.iter().all(|byte| *byte == UNINIT));
        }
    }
}
