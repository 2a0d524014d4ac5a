//! The arrangement of an array's elements in memory.

mod regions;

pub(super) use regions::regions;

use super::refused;
use crate::call::{Invalid, convert, refuse_if};
use std::fmt;
use std::ops::{Range, RangeFrom, RangeFull, RangeTo};

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
        let Some(strides) = strides else { return Self::c_contiguous(&extents, item_size) };
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

convert! {
    |at: isize| -> Index { Self::At(at) }
    |its: Range<isize>| -> Index { Self::Range { start: Some(its.start), end: Some(its.end), step: 1 } }
    |its: RangeFrom<isize>| -> Index { Self::Range { start: Some(its.start), end: None, step: 1 } }
    |its: RangeTo<isize>| -> Index { Self::Range { start: None, end: Some(its.end), step: 1 } }
    |_its: RangeFull| -> Index { Self::ALL }
}

pub(crate) fn no_view(what: &'static str, problem: impl Into<String>) -> Invalid {
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
            no_view("index", problem)
        })?;
        let rest_count = indices.iter().filter(|index| **index == Index::Rest).count();
        if rest_count > 1 {
            return Err(no_view("index", format!("Index::Rest occurs {rest_count} times")));
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
                    let Some((extent, stride)) = dimensions_left.next() else { continue };
                    let at = resolve_index(at, extent).ok_or_else(|| {
                        let problem = format!(
                            "index {at} is out of range for an extent of {extent} (argument {position})"
                        );
                        no_view("index", problem)
                    })?;
                    offset = offset.saturating_add((at as i128).saturating_mul(stride as i128));
                }
                Index::Range { start, end, step } => {
                    let Some((extent, stride)) = dimensions_left.next() else { continue };
                    if step == 0 {
                        return Err(no_view("index", format!("a step of 0 (argument {position})")));
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
            .map_err(|_| no_view("index", "the offset exceeds the address space"))?;
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
            return Err(no_view("order", problem));
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
            no_view("shape", problem)
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
            return Err(no_view("shape", problem));
        }
        if len == Some(0) {
            return Self::c_contiguous(shape, self.item_size).map_err(|_| {
                let problem = format!("{shape:?} is more than can be addressed");
                no_view("shape", problem)
            });
        }
        let needs_copy = || {
            let problem = format!(
                "reshaping {:?} with strides {:?} to {shape:?} requires a copy",
                self.shape, self.strides
            );
            no_view("shape", problem)
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
                refuse_if!(expected != Some(*stride), needs_copy());
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
            Invalid::ArrayInterface { problem, .. } => no_view(what, problem),
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
