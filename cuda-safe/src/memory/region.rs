//! Boxes of elements in linear memory: planes and volumes whose rows lie apart.

use crate::error::Result;
use crate::invalid::Invalid;

/// How many elements a box has along x, y and z: a plane has depth 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// Elements in a row.
    pub width: usize,
    /// Rows in a slice.
    pub height: usize,
    /// Slices.
    pub depth: usize,
}

/// Where a box lies in linear memory, in elements: where it begins, how far apart its rows begin, and
/// how many rows there are from slice to slice.
///
/// Element (x, y, z) of the box is at `offset + (z * rows + y) * pitch + x`.
///
/// ```
/// use cuda_safe::{Extent, Region};
///
/// // The lower right quarter of an image of 100 x 80.
/// let image = Extent::plane(100, 80);
/// let quarter = Region::of(image).at(50, 40, 0);
/// assert_eq!((quarter.offset, quarter.pitch, quarter.rows), (4050, 100, 80));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// Where the box begins.
    pub offset: usize,
    /// From the beginning of a row to that of the next.
    pub pitch: usize,
    /// From slice to slice.
    pub rows: usize,
}

impl Extent {
    /// A box of one slice.
    pub const fn plane(width: usize, height: usize) -> Self {
        Self::volume(width, height, 1)
    }

    /// A box of several slices.
    pub const fn volume(width: usize, height: usize, depth: usize) -> Self {
        Self {
            width,
            height,
            depth,
        }
    }

    /// Whether there is no element.
    pub const fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }
}

impl Region {
    /// A whole array of that extent, without gaps.
    pub const fn of(whole: Extent) -> Self {
        Self {
            offset: 0,
            pitch: whole.width,
            rows: whole.height,
        }
    }

    /// The same array from the element (x, y, z) on.
    #[must_use]
    pub const fn at(self, x: usize, y: usize, z: usize) -> Self {
        let rows = z.saturating_mul(self.rows).saturating_add(y);
        let begin = rows.saturating_mul(self.pitch).saturating_add(x);
        Self {
            offset: self.offset.saturating_add(begin),
            ..self
        }
    }

    /// Where a box is that lies within `len` elements, and whose rows and slices do not overlap; none
    /// if it has no element.
    pub(super) fn checked(self, extent: Extent, len: usize) -> Result<Option<Self>> {
        let Extent {
            width,
            height,
            depth,
        } = extent;
        if extent.is_empty() {
            return Ok(None);
        }
        // What lies between rows and slices that are one is nothing.
        let region = Self {
            pitch: if (height, depth) == (1, 1) {
                width
            } else {
                self.pitch
            },
            rows: if depth == 1 { height } else { self.rows },
            ..self
        };
        let last = (depth - 1)
            .checked_mul(region.rows)
            .and_then(|rows| rows.checked_add(height - 1))
            .and_then(|rows| rows.checked_mul(region.pitch))
            .and_then(|elements| elements.checked_add(region.offset))
            .and_then(|elements| elements.checked_add(width));
        let is_apart = region.pitch >= width && region.rows >= height;
        if is_apart && last.is_some_and(|end| end <= len) {
            return Ok(Some(region));
        }
        Err(Invalid::Region {
            region: self,
            extent,
            len,
        }
        .into())
    }
}
