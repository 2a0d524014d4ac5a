//! Positions and extents of 2-D and 3-D regions in linear memory, whose rows can be pitched.

use crate::call::error::Result;
use crate::call::invalid::Invalid;

/// The number of elements of a 2-D or 3-D region along x, y and z. A 2-D region has depth 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// The number of elements in a row.
    pub width: usize,
    /// The number of rows in a slice.
    pub height: usize,
    /// The number of slices.
    pub depth: usize,
}

/// The position and the layout of a 2-D or 3-D region in linear memory, in elements.
///
/// Element (x, y, z) of the region is at index `offset + (z * rows + y) * pitch + x`.
///
/// ```
/// use cuda_safe::memory::{Extent, Region};
///
/// // The lower right quarter of an image of 100 x 80 elements.
/// let image = Extent::new_2d(100, 80);
/// let quarter = Region::new(image).at(50, 40, 0);
/// assert_eq!((quarter.offset, quarter.pitch, quarter.rows), (4050, 100, 80));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Region {
    /// The index of the first element.
    pub offset: usize,
    /// The distance between the starts of consecutive rows, in elements.
    pub pitch: usize,
    /// The distance between the starts of consecutive slices, in rows.
    pub rows: usize,
}

impl Extent {
    /// Returns a 2-D extent, with depth 1.
    #[inline]
    pub const fn new_2d(width: usize, height: usize) -> Self {
        Self::new_3d(width, height, 1)
    }

    /// Returns a 3-D extent.
    #[inline]
    pub const fn new_3d(width: usize, height: usize, depth: usize) -> Self {
        Self { width, height, depth }
    }

    /// Returns whether the extent has no elements.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.width == 0 || self.height == 0 || self.depth == 0
    }
}

impl Region {
    /// Returns the region of a whole array of the extent `whole`, without gaps.
    #[inline]
    pub const fn new(whole: Extent) -> Self {
        Self { offset: 0, pitch: whole.width, rows: whole.height }
    }

    /// Returns a region of the same array that starts at element (x, y, z).
    #[must_use]
    #[inline]
    pub const fn at(self, x: usize, y: usize, z: usize) -> Self {
        let rows = z.saturating_mul(self.rows).saturating_add(y);
        let begin = rows.saturating_mul(self.pitch).saturating_add(x);
        Self { offset: self.offset.saturating_add(begin), ..self }
    }

    /// Returns the region for an extent, or `None` if the extent has no elements. Returns an error
    /// if the region is not within `len` elements, or if its rows or slices overlap.
    #[inline]
    pub(crate) fn checked(self, extent: Extent, len: usize) -> Result<Option<Self>> {
        let Extent { width, height, depth } = extent;
        if extent.is_empty() {
            return Ok(None);
        }
        // The pitch is irrelevant for a single row, and the number of rows for a single slice.
        let region = Self {
            pitch: if (height, depth) == (1, 1) { width } else { self.pitch },
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
        Err(Invalid::Region { region: self, extent, len }.into())
    }

    /// Returns the range of the elements from the first to the last one of a checked region.
    #[inline]
    pub(crate) fn elements(&self, extent: Extent) -> std::ops::Range<usize> {
        let rows = (extent.depth - 1) * self.rows + extent.height - 1;
        self.offset..self.offset + rows * self.pitch + extent.width
    }
}
