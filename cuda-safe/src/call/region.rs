//! Positions and extents of 2-D and 3-D regions in linear memory, whose rows can be pitched.

use crate::call::error::Result;
use crate::call::invalid::Invalid;
use cuda_sys::CUdeviceptr;

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

/// Returns the size of `len` elements of `T` in bytes, or an error if no allocation can be that
/// large.
pub(crate) fn bytes_of<T>(len: usize) -> Result<usize> {
    // The driver aligns its allocations to 256 bytes, and pool memory and host pages to more.
    const { assert!(align_of::<T>() <= 256, "alignment above 256 is unsupported") };
    len.checked_mul(size_of::<T>())
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or_else(|| Invalid::TooLarge { len, size: size_of::<T>() }.into())
}

/// Checks the memory of other code, in the constructors `from_raw`, `borrow_raw` and `from_foreign`.
///
/// # Errors
/// [`Invalid::TooLarge`]; [`Invalid::Handle`] if the address is 0 and the elements have bytes.
pub(crate) fn expect_memory<T>(address: CUdeviceptr, len: usize) -> Result<()> {
    let bytes = bytes_of::<T>(len)?;
    if address == 0 && bytes != 0 {
        let what = "device address";
        return Err(Invalid::Handle { what, value: 0 }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Extent, Region};

    /// Returns the indices of the elements, row by row, or `None` if one exceeds 64 bits.
    fn indices(region: Region, extent: Extent) -> Option<Vec<usize>> {
        let mut elements = Vec::new();
        for z in 0..extent.depth {
            for y in 0..extent.height {
                let row = z.checked_mul(region.rows)?.checked_add(y)?;
                let start = row.checked_mul(region.pitch)?.checked_add(region.offset)?;
                for x in 0..extent.width {
                    elements.push(start.checked_add(x)?);
                }
            }
        }
        Some(elements)
    }

    /// Checks one region in memory of `len` elements. Returns whether it is accepted.
    fn compare(region: Region, extent: Extent, len: usize) -> bool {
        let Extent { width, height, depth } = extent;
        let elements = indices(region, extent);
        let is_within = elements.as_ref().is_some_and(|its| its.iter().all(|its| *its < len));
        // Rows and slices that do not count need not have a distance.
        let (has_rows, has_slices) = (height > 1 || depth > 1, depth > 1);
        let is_apart =
            (!has_rows || region.pitch >= width) && (!has_slices || region.rows >= height);
        let expected = extent.is_empty() || is_within && is_apart;
        let checked = region.checked(extent, len);
        assert_eq!(checked.is_ok(), expected, "{region:?}, {extent:?}, {len}");
        let Ok(Some(checked)) = checked else {
            assert!(extent.is_empty() || checked.is_err());
            return false;
        };
        let mut elements = elements.expect("it is within the memory");
        let found = indices(checked, extent);
        assert_eq!(found.as_ref(), Some(&elements), "{region:?}, {extent:?}");
        let range = checked.elements(extent);
        elements.sort_unstable();
        let ends = elements.first().zip(elements.last()).map(|(first, last)| *first..last + 1);
        assert_eq!(Some(range), ends, "{region:?}, {extent:?}");
        elements.dedup();
        assert_eq!(elements.len(), width * height * depth, "rows overlap: {region:?}, {extent:?}");
        true
    }

    fn each_region(numbers: &[usize], visit: &mut dyn FnMut(Region)) {
        for offset in numbers {
            for pitch in numbers {
                for rows in numbers {
                    visit(Region { offset: *offset, pitch: *pitch, rows: *rows });
                }
            }
        }
    }

    #[test]
    fn a_region_is_accepted_exactly_if_its_elements_are_apart_and_within_the_memory() {
        let (mut cases, mut accepted) = (0, 0);
        for extent in 0..64 {
            let extent = Extent::new_3d(extent % 4, extent / 4 % 4, extent / 16);
            each_region(&[0, 1, 2, 3, 4, 5], &mut |region| {
                // The end of the region, and the lengths around it, are among these.
                for len in [0, 1, 2, 3, 4, 5, 6, 8, 11, 12, 13, 17, 24, 36, 48, 90] {
                    cases += 1;
                    accepted += usize::from(compare(region, extent, len));
                }
                if let Some(last) = indices(region, extent).and_then(|its| its.into_iter().max()) {
                    compare(region, extent, last);
                    compare(region, extent, last + 1);
                }
            });
        }
        println!("{cases} cases, of which {accepted} are accepted");
        assert!(accepted > 5000 && accepted < cases / 2);
    }

    #[test]
    fn regions_at_the_limit_of_the_address_space_do_not_overflow() {
        const MAX: usize = isize::MAX as usize;
        let numbers = [0, 1, 2, 3, MAX / 2, MAX, MAX + 1, usize::MAX - 1, usize::MAX];
        let (mut cases, mut accepted) = (0, 0);
        for extent in 0..27 {
            let extent = Extent::new_3d(extent % 3, extent / 3 % 3, extent / 9);
            each_region(&numbers, &mut |region| {
                for len in [0, 1, 3, MAX, MAX + 1, usize::MAX - 1, usize::MAX] {
                    cases += 1;
                    accepted += usize::from(compare(region, extent, len));
                }
            });
        }
        // Elements of these extents cannot be enumerated. All of them exceed the memory.
        for extent in 0..27 {
            let edges = [1, MAX + 1, usize::MAX];
            let [x, y, z] = [extent % 3, extent / 3 % 3, extent / 9].map(|at: usize| edges[at]);
            let extent = Extent::new_3d(x, y, z);
            each_region(&numbers, &mut |region| {
                cases += 1;
                let is_small = (x, y, z) == (1, 1, 1);
                assert!(is_small || region.checked(extent, MAX).is_err(), "{region:?}, {extent:?}");
                let _ = region.at(x, y, z);
            });
        }
        println!("{cases} cases, of which {accepted} are accepted");
        assert!(accepted > 1000 && accepted < cases / 2);
    }
}
