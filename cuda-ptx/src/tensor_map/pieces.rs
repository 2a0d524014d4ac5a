//! The elements that a copy accesses, one after another as they are in shared memory.

use super::{Interleave, Mode, RANK, TensorMap, UNIT};
use std::array::from_fn;

/// Neighboring elements of a copy that are in one unit of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// The offset in shared memory from the first byte of the copy, before the swizzle.
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// The address of the first byte, or `None` if the elements are outside of the tensor.
    pub(crate) address: Option<u64>,
}

/// The elements that a copy accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// In ascending order of their offsets.
    pub(crate) list: Vec<Piece>,
    /// The bytes of all elements, which a barrier counts.
    pub(crate) bytes: u64,
    /// The bytes of shared memory from the first element to the end of the last row.
    pub(crate) covered: u64,
    /// Whether an element, or the first pixel of the bounding box, is before the first one of a dimension.
    pub(crate) is_below: bool,
    /// Whether the first pixel is outside of the bounding box.
    pub(crate) is_outside_box: bool,
}

/// Coordinates of an element, the innermost first.
type Coordinates = [i64; RANK];

impl TensorMap {
    /// Returns the elements of a copy. `None` if it has another mode than the map, or another number of dimensions.
    pub(crate) fn pieces(&self, coordinates: &[i32], offsets: Option<&[u16]>) -> Option<Pieces> {
        if coordinates.len() != self.rank {
            return None;
        }
        let start = from_fn(|axis| coordinates.get(axis).copied().unwrap_or_default().into());
        let mut pieces = Pieces::default();
        match (self.mode, offsets) {
            (Mode::Tile(extents), None) => self.tile(start, extents, &mut pieces),
            (Mode::Im2col { .. }, Some(offsets)) => self.columns(start, offsets, &mut pieces),
            _ => return None,
        }
        Some(pieces)
    }

    /// The elements of a box.
    fn tile(&self, start: Coordinates, extents: [u16; RANK], pieces: &mut Pieces) {
        let mut counts = [1; RANK];
        for axis in 1..self.rank {
            // A copy has one slice of channels.
            if self.interleave == Interleave::None || axis + 2 != self.rank {
                counts[axis] = u64::from(extents[axis].div_ceil(self.steps[axis].into()));
            }
        }
        for row in 0..counts.iter().product() {
            let mut rest = row;
            let mut at = start;
            for axis in 1..self.rank {
                let index = rest % counts[axis];
                rest /= counts[axis];
                at[axis] += index as i64 * i64::from(self.steps[axis]);
            }
            // The element stride of the innermost dimension has no effect.
            self.row(at, extents[0].into(), pieces);
        }
    }

    /// The channels of pixels, which follow each other in the bounding box.
    fn columns(&self, start: Coordinates, offsets: &[u16], pieces: &mut Pieces) {
        let Mode::Im2col { lower, upper, channels, pixels } = self.mode else { return };
        let images = self.rank - 1;
        // The slices of channels are the last dimension before the images, and a copy has one of them.
        let (first, count) = match self.interleave {
            Interleave::None => (1, channels.into()),
            _ => (0, 1),
        };
        // The bounding box, by axis.
        let lower = lower.map(i64::from);
        let upper: [i64; RANK - 2] =
            from_fn(|index| self.dims[first + index] as i64 + i64::from(upper[index]));
        let axes = || (first..first + self.rank - 2).zip(lower.into_iter().zip(upper));
        pieces.is_below = axes().any(|(_, (lower, _))| lower < 0);
        pieces.is_outside_box =
            axes().any(|(axis, (lower, upper))| !(lower..upper).contains(&start[axis]));
        // The dimensions share the 16 bits of the offsets.
        let mask = u16::MAX >> (16 - 16 / (self.rank - 2));
        let mut at = start;
        for _ in 0..pixels {
            let mut place = at;
            for (to, offset) in place[first..].iter_mut().zip(offsets) {
                *to += i64::from(offset & mask);
            }
            self.row(place, count, pieces);
            let wraps = axes().all(|(axis, (lower, upper))| {
                at[axis] += i64::from(self.steps[axis]);
                let wraps = at[axis] >= upper;
                if wraps {
                    at[axis] = lower;
                }
                wraps
            });
            if wraps {
                at[images] += i64::from(self.steps[images]);
            }
        }
    }

    /// Returns the bytes of an element, or of a slice of channels, which is accessed like an element.
    fn size(&self) -> u64 {
        self.interleave.bytes().unwrap_or(self.element.bytes())
    }

    /// A row of elements.
    fn row(&self, at: Coordinates, count: u64, pieces: &mut Pieces) {
        let size = self.size();
        let part = size.min(UNIT);
        let is_inside = |axis: usize, its: i64| its >= 0 && (its as u64) < self.dims[axis];
        let row = (1..self.rank).all(|axis| is_inside(axis, at[axis])).then(|| {
            let strides = (1..self.rank).map(|axis| (self.strides[axis - 1], at[axis]));
            strides.fold(self.address, |address, (stride, its)| {
                address.wrapping_add(stride.wrapping_mul(its as u64))
            })
        });
        let start = pieces.covered;
        pieces.is_below |= at[..self.rank].iter().any(|its| *its < 0);
        let mut piece: Option<Piece> = None;
        for offset in (0..count * size).step_by(part as usize) {
            let inner = at[0] + (offset / size) as i64;
            let address = row.filter(|_| is_inside(0, inner));
            let address = address
                .map(|row| row.wrapping_add(inner as u64 * size).wrapping_add(offset % size));
            match &mut piece {
                Some(its)
                    if (start + offset) % UNIT != 0
                        && address == its.address.map(|first| first.wrapping_add(its.bytes)) =>
                {
                    its.bytes += part;
                }
                _ => {
                    let next = Piece { offset: start + offset, bytes: part, address };
                    pieces.list.extend(piece.replace(next));
                }
            }
        }
        pieces.list.extend(piece);
        pieces.bytes += count * size;
        // With a swizzle, each row begins a span.
        let span = self.swizzle.bytes().filter(|_| self.interleave == Interleave::None);
        pieces.covered += span.unwrap_or(count * size);
    }
}
