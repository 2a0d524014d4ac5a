//! Where the elements of an array lie.

mod boxes;
mod index;

pub(super) use boxes::boxes;
pub use index::Index;
pub(super) use index::refused as no_view;

use super::refused;
use crate::invalid::Invalid;

/// The shape of an array and its strides: how many bytes it is from an element to the next along each
/// dimension, which may be negative, or 0.
///
/// Every element is within 2^63 bytes of the first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "super::serial::LayoutFields"))]
pub struct Layout {
    shape: Vec<usize>,
    strides: Vec<isize>,
    item_size: usize,
}

/// The bytes that an array lies in, relative to its first element: from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct ByteRange {
    /// 0, or negative.
    pub start: isize,
    /// Behind the last byte.
    pub end: isize,
}

impl Layout {
    /// A C-contiguous array: the last dimension varies fastest.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`]: more bytes than can be addressed.
    pub fn c_contiguous(shape: &[usize], item_size: usize) -> Result<Self, Invalid> {
        let too_large = || refused("shape", format!("{shape:?} is more than can be addressed"));
        let mut strides = vec![0; shape.len()];
        let mut next = isize::try_from(item_size).map_err(|_| too_large())?;
        for (stride, extent) in strides.iter_mut().zip(shape).rev() {
            *stride = next;
            // An array without an element has the strides that it would have with one.
            let extent = isize::try_from((*extent).max(1)).map_err(|_| too_large())?;
            next = next.checked_mul(extent).ok_or_else(too_large)?;
        }
        Ok(Self {
            shape: shape.to_vec(),
            strides,
            item_size,
        })
    }

    /// An array with strides.
    ///
    /// # Errors
    /// [`Invalid::ArrayInterface`]: another number of strides than dimensions; elements too far
    /// away; none, but other extents that could not be addressed.
    pub fn strided(shape: &[usize], strides: &[isize], item_size: usize) -> Result<Self, Invalid> {
        if shape.len() != strides.len() {
            return Err(refused(
                "strides",
                format!(
                    "{strides:?}: {} for {} dimensions",
                    strides.len(),
                    shape.len()
                ),
            ));
        }
        let layout = Self {
            shape: shape.to_vec(),
            strides: strides.to_vec(),
            item_size,
        };
        if layout.checked_range().is_none() {
            let far =
                format!("{strides:?} of the shape {shape:?} go further than can be addressed");
            return Err(refused("strides", far));
        }
        if layout.is_empty() {
            // It is written without strides, so it has to be one that is read without them.
            Self::c_contiguous(shape, item_size)?;
        }
        Ok(layout)
    }

    /// The extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// In bytes.
    pub fn strides(&self) -> &[isize] {
        &self.strides
    }

    /// The bytes of an element.
    pub fn item_size(&self) -> usize {
        self.item_size
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// How many elements there are; 1 of an array without dimensions. None if that is more than a
    /// number holds, as broadcasting allows.
    pub fn len(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        self.shape
            .iter()
            .try_fold(1usize, |all, extent| all.checked_mul(*extent))
    }

    /// Whether it lies without gaps, the last dimension varying fastest. As NumPy says it: dimensions
    /// of one element have any stride, and an array without an element is.
    pub fn is_c_contiguous(&self) -> bool {
        self.is_contiguous(self.shape.iter().zip(&self.strides).rev())
    }

    /// Whether it lies without gaps, the first dimension varying fastest; as
    /// [`is_c_contiguous`](Self::is_c_contiguous).
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

    /// Whether one element stands for several: a stride of 0.
    pub fn is_broadcast(&self) -> bool {
        let repeats = |(extent, stride): (&usize, &isize)| *extent > 1 && *stride == 0;
        !self.is_empty() && self.item_size != 0 && self.dimensions().any(repeats)
    }

    /// Whether a stride is negative.
    pub fn is_reversed(&self) -> bool {
        self.dimensions()
            .any(|(extent, stride)| *extent > 1 && *stride < 0)
    }

    fn dimensions(&self) -> impl DoubleEndedIterator<Item = (&usize, &isize)> + ExactSizeIterator {
        self.shape.iter().zip(&self.strides)
    }

    /// The bytes that its elements lie in; without an element, none.
    pub fn byte_range(&self) -> ByteRange {
        // It was computed when this was made.
        self.checked_range()
            .unwrap_or(ByteRange { start: 0, end: 0 })
    }

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
        // So that the whole of it can be counted.
        range.end.checked_sub(range.start)?;
        Some(range)
    }

    /// Whether two elements may have a byte in common. "No" is sure; "yes" may be said of strides that
    /// interleave without touching.
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
        // What lies within one step has to be over before the next.
        let mut within = self.item_size;
        for (stride, extent) in dimensions {
            if stride < within {
                return true;
            }
            // In range, as the byte range is.
            within = within.saturating_add(stride.saturating_mul(extent - 1));
        }
        false
    }

    /// Whether the bytes that this lies in at one address, and another at its, have one in common.
    pub fn ranges_overlap(&self, address: u64, other: &Self, others: u64) -> bool {
        let of = |layout: &Self, address: u64| {
            let ByteRange { start, end } = layout.byte_range();
            let at = |offset: isize| i128::from(address) + offset as i128;
            at(start)..at(end)
        };
        let (its, others) = (of(self, address), of(other, others));
        !its.is_empty() && !others.is_empty() && its.start < others.end && others.start < its.end
    }
}
