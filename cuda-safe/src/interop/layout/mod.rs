//! The arrangement of an array's elements in memory.

mod index;
mod regions;

pub use index::Index;
pub(super) use index::refused as no_view;
pub(super) use regions::regions;

use super::refused;
use crate::call::Invalid;
use std::fmt;

/// The shape and strides of an array. A stride is the distance in bytes to the next element along a
/// dimension; it may be negative or 0.
///
/// Every element is within 2^63 bytes of the first one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "super::serial::LayoutFields"))]
pub struct Layout {
    shape: Vec<usize>,
    strides: Vec<isize>,
    item_size: usize,
}

/// The range of bytes of an array, relative to its first element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ByteRange {
    /// The start of the range, 0 or negative.
    pub start: isize,
    /// The end of the range, after the last byte.
    pub end: isize,
}

impl Layout {
    /// Creates the layout of a C-contiguous array, in which the last dimension varies fastest.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the array exceeds the address space.
    #[inline]
    pub fn c_contiguous(shape: &[usize], item_size: usize) -> Result<Self, Invalid> {
        let too_large = || refused("shape", format!("{shape:?} is more than can be addressed"));
        let mut strides = vec![0; shape.len()];
        let mut next = isize::try_from(item_size).map_err(|_| too_large())?;
        for (stride, extent) in strides.iter_mut().zip(shape).rev() {
            *stride = next;
            // The strides of an empty array are those for extents of 1 instead of 0.
            let extent = isize::try_from((*extent).max(1)).map_err(|_| too_large())?;
            next = next.checked_mul(extent).ok_or_else(too_large)?;
        }
        Ok(Self { shape: shape.to_vec(), strides, item_size })
    }

    /// Creates the layout of an array with strides.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`] if the numbers of strides and dimensions differ, or if the array
    /// exceeds the address space. The latter also applies to the other extents of an empty array.
    #[inline]
    pub fn strided(shape: &[usize], strides: &[isize], item_size: usize) -> Result<Self, Invalid> {
        if shape.len() != strides.len() {
            return Err(refused(
                "strides",
                format!("{strides:?}: {} strides for {} dimensions", strides.len(), shape.len()),
            ));
        }
        let layout = Self { shape: shape.to_vec(), strides: strides.to_vec(), item_size };
        if layout.checked_range().is_none() {
            let problem = format!(
                "the strides {strides:?} with the shape {shape:?} exceed the address space"
            );
            return Err(refused("strides", problem));
        }
        if layout.is_empty() {
            // An empty array is written without strides, so it must be valid without them.
            Self::c_contiguous(shape, item_size)?;
        }
        Ok(layout)
    }

    /// Returns the layout that other code describes by signed numbers, with strides in units of `unit` bytes,
    /// or without strides if it is C-contiguous.
    pub(super) fn from_signed<N: Copy + fmt::Debug>(
        shape: &[N],
        strides: Option<&[N]>,
        unit: usize,
        item_size: usize,
    ) -> Result<Self, Invalid>
    where
        usize: TryFrom<N>,
        isize: TryFrom<N>,
    {
        let extents: Option<Vec<usize>> =
            shape.iter().map(|extent| usize::try_from(*extent).ok()).collect();
        let extents = extents
            .ok_or_else(|| refused("shape", format!("{shape:?} is not a shape of an array")))?;
        let Some(strides) = strides else {
            return Self::c_contiguous(&extents, item_size);
        };
        let in_bytes = |stride: &N| {
            isize::try_from(*stride)
                .ok()?
                .checked_mul(<isize as TryFrom<usize>>::try_from(unit).ok()?)
        };
        let bytes: Option<Vec<isize>> = strides.iter().map(in_bytes).collect();
        let bytes = bytes.ok_or_else(|| {
            refused("strides", format!("the strides {strides:?} exceed the address space"))
        })?;
        Self::strided(&extents, &bytes, item_size)
    }

    /// Returns whether an array at `address` is within the address space.
    #[inline]
    pub(super) fn fits_at(&self, address: u64) -> bool {
        let ByteRange { start, end } = self.byte_range();
        address.checked_add_signed(start as i64).is_some()
            && address.checked_add_signed(end as i64).is_some()
    }

    /// Returns the extents of the dimensions.
    #[inline]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Returns the strides in bytes.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// Returns the size of an element in bytes.
    #[inline]
    pub fn item_size(&self) -> usize {
        self.item_size
    }

    /// Returns whether the array has no elements.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Returns the number of elements, which is 1 for an array without dimensions. Returns `None`
    /// if the number exceeds `usize`, which is possible with broadcasting.
    #[inline]
    pub fn len(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        self.shape.iter().try_fold(1usize, |all, extent| all.checked_mul(*extent))
    }

    /// Returns whether the elements are contiguous with the last dimension varying fastest. As in
    /// NumPy, the strides of dimensions with one element do not matter, and empty arrays are
    /// contiguous.
    #[inline]
    pub fn is_c_contiguous(&self) -> bool {
        self.is_contiguous(self.shape.iter().zip(&self.strides).rev())
    }

    /// Returns whether the elements are contiguous with the first dimension varying fastest. See
    /// [`is_c_contiguous`](Self::is_c_contiguous) for special cases.
    #[inline]
    pub fn is_f_contiguous(&self) -> bool {
        self.is_contiguous(self.shape.iter().zip(&self.strides))
    }

    fn is_contiguous<'a>(&self, dimensions: impl Iterator<Item = (&'a usize, &'a isize)>) -> bool {
        if self.is_empty() {
            return true;
        }
        let mut expected = self.item_size;
        for (extent, stride) in dimensions.filter(|(extent, _)| **extent != 1) {
            if usize::try_from(*stride) != Ok(expected) {
                return false;
            }
            match expected.checked_mul(*extent) {
                Some(next) => expected = next,
                None => return false,
            }
        }
        true
    }

    /// Returns whether elements are repeated by a stride of 0.
    #[inline]
    pub fn is_broadcast(&self) -> bool {
        let is_repeated = |(extent, stride): (&usize, &isize)| *extent > 1 && *stride == 0;
        !self.is_empty() && self.item_size != 0 && self.dimensions().any(is_repeated)
    }

    /// Returns whether a stride is negative.
    #[inline]
    pub fn is_reversed(&self) -> bool {
        self.dimensions().any(|(extent, stride)| *extent > 1 && *stride < 0)
    }

    #[inline]
    fn dimensions(&self) -> impl DoubleEndedIterator<Item = (&usize, &isize)> + ExactSizeIterator {
        self.shape.iter().zip(&self.strides)
    }

    /// Returns the range of bytes of the elements, which is empty for an empty array.
    #[inline]
    pub fn byte_range(&self) -> ByteRange {
        // The constructors have checked the range.
        self.checked_range().unwrap_or(ByteRange { start: 0, end: 0 })
    }

    #[inline]
    fn checked_range(&self) -> Option<ByteRange> {
        let mut range = ByteRange { start: 0, end: 0 };
        if self.is_empty() {
            return Some(range);
        }
        range.end = isize::try_from(self.item_size).ok()?;
        for (extent, stride) in self.dimensions() {
            let last = isize::try_from(*extent - 1).ok()?.checked_mul(*stride)?;
            if last < 0 {
                range.start = range.start.checked_add(last)?;
            } else {
                range.end = range.end.checked_add(last)?;
            }
        }
        // The size of the range must fit too.
        range.end.checked_sub(range.start)?;
        Some(range)
    }

    /// Returns whether two elements may overlap. `false` is exact; `true` may also be returned for
    /// strides that interleave without an overlap.
    #[inline]
    pub fn may_overlap_itself(&self) -> bool {
        if self.is_empty() || self.item_size == 0 {
            return false;
        }
        let mut dimensions: Vec<(usize, usize)> = self
            .dimensions()
            .filter(|(extent, _)| **extent > 1)
            .map(|(extent, stride)| (stride.unsigned_abs(), *extent))
            .collect();
        dimensions.sort_unstable();
        // The elements within one step must end before the next step.
        let mut span = self.item_size;
        for (stride, extent) in dimensions {
            if stride < span {
                return true;
            }
            // This cannot overflow, because the byte range was checked.
            span = span.saturating_add(stride.saturating_mul(extent - 1));
        }
        false
    }

    /// Returns whether the byte ranges of this layout at `address` and of `other` at `others`
    /// overlap.
    #[inline]
    pub fn ranges_overlap(&self, address: u64, other: &Self, other_address: u64) -> bool {
        let range = |layout: &Self, address: u64| {
            let ByteRange { start, end } = layout.byte_range();
            let at = |offset: isize| i128::from(address) + offset as i128;
            at(start)..at(end)
        };
        let (own, other) = (range(self, address), range(other, other_address));
        !own.is_empty() && !other.is_empty() && own.start < other.end && other.start < own.end
    }
}
