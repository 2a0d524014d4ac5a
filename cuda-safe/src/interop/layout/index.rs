//! Views of arrays: parts, and other arrangements of the same elements, as in NumPy.

use super::Layout;
use crate::call::Invalid;
use std::ops::{Range, RangeFrom, RangeFull, RangeTo};

/// An index for a dimension, as in Python's brackets. Used by [`Layout::index`].
///
/// Negative numbers count from the end. Ranges are limited to the extent.
///
/// ```
/// use cuda_safe::interop::{Index, Layout};
///
/// // a[1:, ::-2] of an array of 4 by 10.
/// let array = Layout::c_contiguous(&[4, 10], 4)?;
/// let (offset, part) = array.index(&[(1..).into(), Index::reversed(2)])?;
/// assert_eq!((part.shape(), part.strides()), (&[3, 5][..], &[40, -8][..]));
/// assert_eq!(offset, 40 + 36);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Index {
    /// A single element, which removes the dimension.
    At(isize),
    /// The range `start:end:step`. `None` means from the beginning or to the end, in the direction
    /// of the step.
    Range {
        /// The index of the first element.
        start: Option<isize>,
        /// The index after the last element.
        end: Option<isize>,
        /// The step to the next element, which must not be 0.
        step: isize,
    },
    /// A new dimension of extent 1 (`newaxis`).
    NewAxis,
    /// All dimensions that the other indices leave (`...`).
    Rest,
}

impl Index {
    /// The whole dimension (`:`).
    pub const ALL: Self = Self::Range { start: None, end: None, step: 1 };

    /// Every element with this distance, from the beginning (`::step`).
    #[inline]
    pub const fn step_by(step: isize) -> Self {
        Self::Range { start: None, end: None, step }
    }

    /// Every element with this distance, from the end (`::-step`).
    #[inline]
    pub const fn reversed(step: isize) -> Self {
        Self::step_by(step.saturating_neg())
    }
}

impl From<isize> for Index {
    #[inline]
    fn from(at: isize) -> Self {
        Self::At(at)
    }
}

impl From<Range<isize>> for Index {
    #[inline]
    fn from(range: Range<isize>) -> Self {
        Self::Range { start: Some(range.start), end: Some(range.end), step: 1 }
    }
}

impl From<RangeFrom<isize>> for Index {
    #[inline]
    fn from(range: RangeFrom<isize>) -> Self {
        Self::Range { start: Some(range.start), end: None, step: 1 }
    }
}

impl From<RangeTo<isize>> for Index {
    #[inline]
    fn from(range: RangeTo<isize>) -> Self {
        Self::Range { start: None, end: Some(range.end), step: 1 }
    }
}

impl From<RangeFull> for Index {
    #[inline]
    fn from(_: RangeFull) -> Self {
        Self::ALL
    }
}

pub(crate) fn refused(what: &'static str, problem: impl Into<String>) -> Invalid {
    Invalid::View { what, problem: problem.into() }
}

impl Layout {
    /// Returns the layout of a part, with one index per dimension, and the offset in bytes of its
    /// first element. Dimensions without an index are taken whole.
    ///
    /// # Errors
    /// [`Invalid::View`] if there are more indices than dimensions, more than one [`Index::Rest`],
    /// an index out of range, or a step of 0.
    #[inline]
    pub fn index(&self, indices: &[Index]) -> Result<(isize, Self), Invalid> {
        let index_count = indices
            .iter()
            .filter(|index| matches!(index, Index::At(_) | Index::Range { .. }))
            .count();
        let dimensions = self.shape.len();
        let rest = dimensions.checked_sub(index_count).ok_or_else(|| {
            let problem = format!("{index_count} indices for {dimensions} dimensions");
            refused("index", problem)
        })?;
        let rest_count = indices.iter().filter(|index| **index == Index::Rest).count();
        if rest_count > 1 {
            return Err(refused("index", format!("Index::Rest occurs {rest_count} times")));
        }
        let mut dimensions_left = self.shape.iter().copied().zip(self.strides.iter().copied());
        let mut offset = 0i128;
        let mut builder = LayoutBuilder::default();
        // The remaining dimensions come last.
        let last = (rest_count == 0).then_some(Index::Rest);
        for (position, index) in indices.iter().copied().chain(last).enumerate() {
            match index {
                Index::NewAxis => builder.push(1, 0),
                Index::Rest => {
                    dimensions_left.by_ref().take(rest).for_each(|(n, s)| builder.push(n, s))
                }
                Index::At(at) => {
                    let Some((extent, stride)) = dimensions_left.next() else {
                        continue;
                    };
                    let at = resolve_index(at, extent).ok_or_else(|| {
                        let problem = format!(
                            "index {at} is out of range for an extent of {extent} (argument {position})"
                        );
                        refused("index", problem)
                    })?;
                    offset = offset.saturating_add((at as i128).saturating_mul(stride as i128));
                }
                Index::Range { start, end, step } => {
                    let Some((extent, stride)) = dimensions_left.next() else {
                        continue;
                    };
                    if step == 0 {
                        return Err(refused("index", format!("a step of 0 (argument {position})")));
                    }
                    let (first, len) = resolve_range(start, end, step, extent);
                    // If the part is empty, the offset is not used.
                    offset = offset.saturating_add(first.saturating_mul(stride as i128));
                    // With one element, the stride is not used.
                    builder.push(len, stride.checked_mul(step).unwrap_or(stride));
                }
            }
        }
        let layout = builder.layout(self.item_size, "index")?;
        // An empty part has no first element.
        let offset = if layout.is_empty() { 0 } else { offset };
        let offset = isize::try_from(offset)
            .map_err(|_| refused("index", "the offset exceeds the address space"))?;
        Ok((offset, layout))
    }

    /// Permutes the dimensions. Dimension `i` of the result is dimension `order[i]` of this layout.
    ///
    /// # Errors
    /// [`Invalid::View`] if `order` does not contain each dimension once.
    #[inline]
    pub fn permuted(&self, order: &[usize]) -> Result<Self, Invalid> {
        let dimensions = self.shape.len();
        let mut sorted = order.to_vec();
        sorted.sort_unstable();
        if !sorted.into_iter().eq(0..dimensions) {
            let problem =
                format!("{order:?} does not contain each of {dimensions} dimensions once");
            return Err(refused("order", problem));
        }
        let mut builder = LayoutBuilder::default();
        for dimension in order {
            builder.push(self.shape[*dimension], self.strides[*dimension]);
        }
        builder.layout(self.item_size, "order")
    }

    /// Reverses the dimensions.
    #[must_use]
    #[inline]
    pub fn transposed(mut self) -> Self {
        self.shape.reverse();
        self.strides.reverse();
        self
    }

    /// Repeats the array to another shape. Dimensions of extent 1, and new dimensions before the
    /// first one, are repeated with strides of 0.
    ///
    /// # Errors
    /// [`Invalid::View`] if an extent other than 1 would have to change, or if the shape has fewer
    /// dimensions.
    #[inline]
    pub fn broadcast_to(&self, shape: &[usize]) -> Result<Self, Invalid> {
        let mismatch = || {
            let problem = format!("{:?} cannot be broadcast to {shape:?}", self.shape);
            refused("shape", problem)
        };
        let added = shape.len().checked_sub(self.shape.len()).ok_or_else(mismatch)?;
        let mut builder = LayoutBuilder::default();
        for (position, extent) in shape.iter().enumerate() {
            let own_dimension = position.checked_sub(added);
            match own_dimension
                .map(|own_dimension| (self.shape[own_dimension], self.strides[own_dimension]))
            {
                Some((own_extent, stride)) if own_extent == *extent => {
                    builder.push(own_extent, stride)
                }
                None | Some((1, _)) => builder.push(*extent, 0),
                Some(_) => return Err(mismatch()),
            }
        }
        builder.layout(self.item_size, "shape")
    }

    /// Returns the layout with another shape and the same elements in the same order (the last
    /// dimension varies fastest), if this is possible without a copy.
    ///
    /// # Errors
    /// [`Invalid::View`] if the number of elements differs, or if the strides would require a copy.
    #[inline]
    pub fn reshaped(&self, shape: &[usize]) -> Result<Self, Invalid> {
        let mut len = Some(1usize);
        for extent in shape {
            len = len.and_then(|len| len.checked_mul(*extent));
        }
        if shape.contains(&0) {
            len = Some(0);
        }
        if len.is_none() || len != self.len() {
            let problem = format!("{:?} does not have as many elements as {shape:?}", self.shape);
            return Err(refused("shape", problem));
        }
        if len == Some(0) {
            return Self::c_contiguous(shape, self.item_size).map_err(|_| {
                let problem = format!("{shape:?} is more than can be addressed");
                refused("shape", problem)
            });
        }
        let needs_copy = || {
            let problem = format!(
                "reshaping {:?} with strides {:?} to {shape:?} requires a copy",
                self.shape, self.strides
            );
            refused("shape", problem)
        };
        // Match runs of old and new dimensions with the same number of elements. The old dimensions
        // of a run must be contiguous.
        let is_not_one = |(extent, _): &(&usize, &isize)| **extent != 1;
        let mut old = self.dimensions().rev().filter(is_not_one);
        let mut strides = vec![0; shape.len()];
        let mut run: Option<(usize, isize)> = None;
        for (extent, stride) in shape.iter().zip(&mut strides).rev() {
            if *extent == 1 {
                continue;
            }
            let (mut left, step) = match run.take() {
                Some(run) => run,
                None => old.next().map(|(n, step)| (*n, *step)).ok_or_else(needs_copy)?,
            };
            *stride = step;
            while left % extent != 0 || left < *extent {
                let (old_extent, stride) = old.next().ok_or_else(needs_copy)?;
                let expected = scaled_stride(step, left);
                if expected != Some(*stride) {
                    return Err(needs_copy());
                }
                left = left.checked_mul(*old_extent).ok_or_else(needs_copy)?;
            }
            if left > *extent {
                let step = scaled_stride(step, *extent).ok_or_else(needs_copy)?;
                run = Some((left / extent, step));
            }
        }
        Self::strided(shape, &strides, self.item_size).map_err(|_| needs_copy())
    }
}

/// The dimensions of a new layout.
#[derive(Default)]
struct LayoutBuilder {
    shape: Vec<usize>,
    strides: Vec<isize>,
}

impl LayoutBuilder {
    #[inline]
    fn push(&mut self, extent: usize, stride: isize) {
        self.shape.push(extent);
        self.strides.push(stride);
    }

    #[inline]
    fn layout(self, item_size: usize, what: &'static str) -> Result<Layout, Invalid> {
        Layout::strided(&self.shape, &self.strides, item_size).map_err(|invalid| match invalid {
            Invalid::ArrayInterface { problem, .. } => refused(what, problem),
            other => other,
        })
    }
}

#[inline]
fn scaled_stride(step: isize, count: usize) -> Option<isize> {
    step.checked_mul(isize::try_from(count).ok()?)
}

/// Converts an index, which may count from the end, to one from the beginning.
#[inline]
fn resolve_index(at: isize, extent: usize) -> Option<usize> {
    let at = match usize::try_from(at) {
        Ok(at) => at,
        Err(_) => extent.checked_sub(at.unsigned_abs())?,
    };
    (at < extent).then_some(at)
}

/// Returns the first index and the length of a Python range.
#[inline]
fn resolve_range(
    start: Option<isize>,
    end: Option<isize>,
    step: isize,
    extent: usize,
) -> (i128, usize) {
    let extent = extent as i128;
    // The limits to which the bounds are clamped.
    let (lowest, highest) = if step > 0 { (0, extent) } else { (-1, extent - 1) };
    let clamp = |end: isize| match end as i128 {
        end if end < 0 => (end + extent).max(lowest),
        end => end.min(highest),
    };
    let (from, to) = match step > 0 {
        true => (start.map_or(lowest, clamp), end.map_or(highest, clamp)),
        false => (start.map_or(highest, clamp), end.map_or(lowest, clamp)),
    };
    let distance = if step > 0 { to - from } else { from - to };
    if distance <= 0 {
        return (0, 0);
    }
    let step_size = step.unsigned_abs() as i128;
    // The length is at most the extent.
    let len = usize::try_from((distance - 1) / step_size + 1).unwrap_or(0);
    (from, len)
}
