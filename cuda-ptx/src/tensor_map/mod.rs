//! Tensor maps: what a copy of a tensor accesses, and the 128 bytes that describe it to a kernel.
//!
//! The software driver encodes a [`TensorMap`], and the engine decodes it where a kernel uses it. The bytes are not
//! those of a GPU, except that the first eight are the address.

mod element;
mod pieces;

pub use element::Element;
pub(crate) use pieces::Pieces;

/// The most dimensions of a tensor.
pub const RANK: usize = 5;
/// The bytes that a swizzle moves as a unit.
pub(crate) const UNIT: u64 = 16;
/// The mark of encoded bytes, in the last word.
const MARK: u64 = 0x7465_6e73_6f72_6d61;

/// A tensor in global memory, and how a copy accesses it. Lists begin with the innermost dimension, and entries beyond
/// the rank have no meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorMap {
    /// The address of the first element.
    pub address: u64,
    /// The type of the elements.
    pub element: Element,
    /// The number of dimensions, from 1 to [`RANK`].
    pub rank: usize,
    /// The number of elements of each dimension, from 1 to 2³².
    pub dims: [u64; RANK],
    /// The bytes between neighbors of each dimension but the innermost.
    pub strides: [u64; RANK - 1],
    /// The element strides, from 1 to 8.
    pub steps: [u8; RANK],
    /// The elements of a copy.
    pub mode: Mode,
    /// The arrangement of channels in memory.
    pub interleave: Interleave,
    /// The arrangement in shared memory.
    pub swizzle: Swizzle,
    /// Whether elements outside of the tensor are NaN instead of zero.
    pub fills_with_nan: bool,
}

/// The elements that a copy accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A box with these extents, from 1 to 256.
    Tile([u16; RANK]),
    /// Pixels of images.
    Im2col {
        /// The first pixel of the bounding box along each dimension between the channels and the images.
        lower: [i16; RANK - 2],
        /// The last pixel of the bounding box, relative to that of the tensor.
        upper: [i16; RANK - 2],
        /// The channels of a pixel, from 1 to 256.
        channels: u16,
        /// The number of pixels, from 1 to 1024.
        pixels: u16,
    },
    /// Pixels of rows of images, which the copies of an H200 do not access.
    Im2colWide,
}

/// The arrangement of channels in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interleave {
    /// All channels of a pixel are neighbors.
    None,
    /// Slices of 16 bytes.
    Bytes16,
    /// Slices of 32 bytes.
    Bytes32,
}

/// The arrangement of units of 16 bytes in shared memory: bits of an address that are changed by higher bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Swizzle {
    /// None.
    None,
    /// Spans of 32 bytes.
    Bytes32,
    /// Spans of 64 bytes.
    Bytes64,
    /// Spans of 128 bytes.
    Bytes128,
}

impl Interleave {
    /// Returns the arrangement with this number in `CUtensorMapInterleave`.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::None, Self::Bytes16, Self::Bytes32].get(code as usize).copied()
    }

    /// Returns the bytes of a slice.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes16 => Some(16),
            Self::Bytes32 => Some(32),
        }
    }
}

impl Swizzle {
    /// Returns the arrangement with this number in `CUtensorMapSwizzle`.
    pub fn from_code(code: u32) -> Option<Self> {
        [Self::None, Self::Bytes32, Self::Bytes64, Self::Bytes128].get(code as usize).copied()
    }

    /// Returns the bytes of a span.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::None => None,
            Self::Bytes32 => Some(32),
            Self::Bytes64 => Some(64),
            Self::Bytes128 => Some(128),
        }
    }

    /// Returns the address in shared memory of a byte that would be at `address` without a swizzle.
    pub(crate) fn place(self, address: u64) -> u64 {
        let units = self.bytes().map_or(0, |bytes| bytes / UNIT - 1);
        address ^ ((address >> 7 & units) * UNIT)
    }
}

impl TensorMap {
    /// Returns the tensor of a store, which writes or combines units of 16 bytes if any of their elements is inside.
    pub(crate) fn of_units(mut self) -> Self {
        if self.interleave == Interleave::None {
            self.dims[0] = self.dims[0].next_multiple_of(UNIT / self.element.bytes());
        }
        self
    }

    /// Returns the element that a load writes for one outside of the tensor.
    pub(crate) fn fill(&self) -> u64 {
        if self.fills_with_nan { self.element.nan() } else { 0 }
    }

    /// Returns the bytes that a kernel gets, in words.
    pub fn encode(&self) -> [u64; 16] {
        let mut bytes = [0; 128];
        let mut at = 0;
        let mut put = |value: u64, size: usize| {
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
            at += size;
        };
        put(self.address, 8);
        self.strides.iter().for_each(|its| put(*its, 8));
        self.dims.iter().for_each(|its| put(its.wrapping_sub(1), 4));
        self.steps.iter().for_each(|its| put((*its).into(), 1));
        put(self.element as u64, 1);
        put(self.rank as u64, 1);
        put(self.interleave as u64, 1);
        put(self.swizzle as u64, 1);
        put(self.fills_with_nan.into(), 1);
        match self.mode {
            Mode::Tile(extents) => {
                put(0, 2);
                extents.iter().for_each(|its| put((*its).into(), 2));
            }
            Mode::Im2col { lower, upper, channels, pixels } => {
                put(1, 2);
                lower.iter().chain(&upper).for_each(|its| put(*its as u64, 2));
                put(channels.into(), 2);
                put(pixels.into(), 2);
            }
            Mode::Im2colWide => put(2, 2),
        }
        let mut words = [0; 16];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = bytes.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
        }
        words[15] = MARK;
        words
    }

    /// Returns what the bytes of a kernel describe. `None` if they are not those of a map.
    pub fn decode(words: &[u64; 16]) -> Option<Self> {
        if words[15] != MARK {
            return None;
        }
        let mut bytes = words.iter().flat_map(|word| word.to_le_bytes());
        let mut take = |size: usize| {
            let bytes = bytes.by_ref().take(size).enumerate();
            bytes.fold(0, |all, (at, byte)| all | u64::from(byte) << (8 * at))
        };
        let address = take(8);
        let strides = std::array::from_fn(|_| take(8));
        let dims = std::array::from_fn(|_| (take(4) as u32).wrapping_add(1))
            .map(|its: u32| if its == 0 { 1 << 32 } else { its.into() });
        let steps = std::array::from_fn(|_| take(1) as u8);
        let element = Element::from_code(take(1) as u32)?;
        let rank = take(1) as usize;
        let interleave = Interleave::from_code(take(1) as u32)?;
        let swizzle = Swizzle::from_code(take(1) as u32)?;
        let fills_with_nan = take(1) != 0;
        let mode = match take(2) {
            0 => Mode::Tile(std::array::from_fn(|_| take(2) as u16)),
            1 => Mode::Im2col {
                lower: std::array::from_fn(|_| take(2) as i16),
                upper: std::array::from_fn(|_| take(2) as i16),
                channels: take(2) as u16,
                pixels: take(2) as u16,
            },
            2 => Mode::Im2colWide,
            _ => return None,
        };
        let is_valid = (1..=RANK).contains(&rank) && steps[..rank].iter().all(|its| *its != 0);
        is_valid.then_some(Self {
            address,
            element,
            rank,
            dims,
            strides,
            steps,
            mode,
            interleave,
            swizzle,
            fills_with_nan,
        })
    }
}
