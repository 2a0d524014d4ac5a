//! What the engine needs of the device whose kernels it runs: memory, textures and services.

use crate::check::{Finding, SiteId};
use crate::texture::{Texels, Texture};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// The purpose of an access to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store.
    Write,
    /// An atomic operation or a reduction.
    Atomic,
}

/// Bytes that a kernel may access, in words of 64 bits.
///
/// Several host threads run blocks at once, and kernels may race. All accesses are relaxed atomic operations on
/// words, so a race in a kernel is no data race on the host.
#[derive(Clone, Copy, Debug)]
pub struct Region<'a> {
    /// The address of the first byte of `words`, a multiple of 8, or of `edge`.
    pub base: u64,
    /// The words. The bytes of a word are in little-endian order.
    pub words: &'a [AtomicU64],
    /// The bytes of a region without words.
    pub edge: Option<Edge<'a>>,
    /// The address of the first byte that may be accessed.
    pub start: u64,
    /// The address after the last byte that may be accessed.
    pub end: u64,
    /// Whether the bytes may be written.
    pub is_writable: bool,
}

/// Bytes of memory that are not part of a whole word of it, since the memory starts or ends within the word. Their
/// address is a multiple of their count. A byte must be part of the same edge in all accesses: otherwise accesses of
/// different sizes would race on the host.
#[derive(Clone, Copy, Debug)]
pub enum Edge<'a> {
    /// One byte.
    One(&'a AtomicU8),
    /// Two bytes in little-endian order.
    Two(&'a AtomicU16),
    /// Four bytes in little-endian order.
    Four(&'a AtomicU32),
}

impl<'a> Region<'a> {
    /// Returns a region of all bytes of `words`, which may be written. The first byte is at [`base`](Self::base).
    #[must_use]
    pub const fn new(base: u64, words: &'a [AtomicU64]) -> Self {
        let end = base + 8 * words.len() as u64;
        Self { base, words, edge: None, start: base, end, is_writable: true }
    }

    /// Returns whether the region contains `len` bytes at `address`, for this purpose.
    #[inline]
    pub fn contains(&self, address: u64, len: u64, access: Access) -> bool {
        address >= self.start
            && address < self.end
            && self.end - address >= len
            && (self.is_writable || access == Access::Read)
    }

    /// Loads the word that contains the byte at `address`. The bytes around an edge are zero.
    #[inline]
    pub(crate) fn word(&self, address: u64) -> u64 {
        match self.atomic(address) {
            Some(word) => word.load(Ordering::Relaxed),
            None => self.edge_word(),
        }
    }

    /// Returns the atomic word that contains the byte at `address`. An edge has none.
    #[inline]
    pub(crate) fn atomic(&self, address: u64) -> Option<&'a AtomicU64> {
        self.words.get((address.wrapping_sub(self.base) >> 3) as usize)
    }

    /// Replaces the word that contains the byte at `address` by a function of it, and returns the old one. The bytes
    /// around an edge stay as they are.
    #[inline]
    pub(crate) fn update(&self, address: u64, f: impl Fn(u64) -> u64) -> u64 {
        loop {
            let old = self.word(address);
            let is_replaced = match self.atomic(address) {
                Some(word) => {
                    let order = Ordering::Relaxed;
                    word.compare_exchange_weak(old, f(old), order, order).is_ok()
                }
                None => self.replace_edge(old, f(old)),
            };
            if is_replaced {
                return old;
            }
        }
    }

    #[cold]
    fn edge_word(&self) -> u64 {
        let order = Ordering::Relaxed;
        let bytes = match self.edge {
            Some(Edge::One(its)) => its.load(order).into(),
            Some(Edge::Two(its)) => its.load(order).into(),
            Some(Edge::Four(its)) => its.load(order).into(),
            None => 0,
        };
        bytes << self.shift()
    }

    /// Replaces the bytes of an edge in a word, unless they have changed. Returns whether they are replaced.
    #[cold]
    fn replace_edge(&self, old: u64, new: u64) -> bool {
        let (old, new, order) = (old >> self.shift(), new >> self.shift(), Ordering::Relaxed);
        match self.edge {
            Some(Edge::One(its)) => {
                its.compare_exchange(old as u8, new as u8, order, order).is_ok()
            }
            Some(Edge::Two(its)) => {
                its.compare_exchange(old as u16, new as u16, order, order).is_ok()
            }
            Some(Edge::Four(its)) => {
                its.compare_exchange(old as u32, new as u32, order, order).is_ok()
            }
            None => true,
        }
    }

    /// Returns the number of bits in a word before an edge.
    fn shift(&self) -> u64 {
        8 * (self.base & 7)
    }
}

/// Which bits of some memory have a value, for [initcheck](crate::check).
#[derive(Clone, Copy, Debug)]
pub struct Validity<'a> {
    /// The address of the first byte.
    pub start: u64,
    /// The address after the last byte.
    pub end: u64,
    /// Words that have a bit for each bit of the memory, at the same addresses. The bit is set if the memory's bit has
    /// a value, and the engine sets and clears it. `None` if all bits have values.
    pub written: Option<Region<'a>>,
    /// Whether the host can read the memory without a copy.
    pub is_host_visible: bool,
}

/// The device whose kernels the engine runs.
pub trait Device: Sync {
    /// Returns the memory around an address: at least the `len` bytes there, if the kernel may access them.
    /// Otherwise returns a text that says what is at the address.
    ///
    /// The engine asks for accesses that are not inside of the last regions, and says which thread makes the access. A
    /// device that returns only the `len` bytes therefore learns of each access, except for repeated ones.
    ///
    /// # Errors
    /// The bytes are not part of one live allocation, or the access is not allowed.
    fn region(
        &self,
        address: u64,
        len: u64,
        access: Access,
        by: SiteId,
    ) -> Result<Region<'_>, String>;

    /// Returns which bits have a value, of at least the `len` bytes at an address, or of as many as the device knows.
    /// By default all bits have values.
    fn validity(&self, _address: u64, _len: u64) -> Validity<'_> {
        Validity { start: 0, end: u64::MAX, written: None, is_host_visible: false }
    }

    /// Returns the memory of each device that `len` bytes at a multicast address reach, in the order in which
    /// `multimem.ld_reduce` combines the values. Each region has these bytes alone. Its addresses are those at which
    /// other instructions access the memory, if there are any: the checks compare accesses by these addresses.
    ///
    /// # Errors
    /// The address is not a multicast address, or the access is not allowed.
    fn multicast(
        &self,
        _address: u64,
        _len: u64,
        _access: Access,
        _by: SiteId,
    ) -> Result<Vec<Region<'_>>, String> {
        Err("there are no multicast addresses".to_owned())
    }

    /// Prints the output of `vprintf`.
    fn print(&self, text: &str);

    /// Allocates memory of the device's heap for `malloc`. Returns `None` if the heap is full.
    fn allocate(&self, size: u64) -> Option<u64>;

    /// Frees memory of the device's heap.
    ///
    /// # Errors
    /// The address is not that of an allocation of the heap.
    fn free(&self, address: u64) -> Result<(), String>;

    /// Sets the value of a conditional node of the graph that is running.
    ///
    /// # Errors
    /// The handle is not that of a conditional node.
    fn set_conditional(&self, handle: u64, value: u32) -> Result<(), String>;

    /// Launches a graph: `cudaGraphLaunch`. The stream is one of the constants that say how, such as
    /// `cudaStreamGraphFireAndForget`.
    ///
    /// # Errors
    /// The graph cannot be launched so.
    fn launch_graph(&self, _graph: u64, _stream: u64) -> Result<(), String> {
        Err("there are no graphs".to_owned())
    }

    /// Reports what a check of [`Launch::checks`](crate::Launch::checks) found.
    fn finding(&self, _finding: Finding) {}

    /// Reports that a check reached one of its limits, and may miss errors from there on. The text names the check and
    /// the limit.
    fn limit(&self, _text: &str) {}

    /// Returns the texture of a handle. It does not change while the kernel runs.
    ///
    /// # Errors
    /// The handle is not that of a texture. The text says so, as a fault reports it.
    fn texture(&self, _handle: u64) -> Result<Arc<Texture>, String> {
        Err("there are no textures".to_owned())
    }

    /// Returns the texels of the surface of a handle.
    ///
    /// # Errors
    /// The handle is not that of a surface.
    fn surface(&self, _handle: u64) -> Result<Arc<Texels>, String> {
        Err("there are no surfaces".to_owned())
    }
}
