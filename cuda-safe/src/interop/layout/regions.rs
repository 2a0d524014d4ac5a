//! Arrays as regions for the driver's copies.

use super::Layout;
use super::index::refused;
use crate::call::{Extent, Invalid, Region};

/// A dimension of several arrays of the same shape: its extent, and the stride in each array, in
/// elements.
type Dimension<const N: usize> = (usize, [usize; N]);

/// Describes several arrays of the same shape as regions with a common extent, with the elements in
/// the order of the arrays. Offsets are relative to the first element.
///
/// Contiguous dimensions are merged. Afterwards, at most three dimensions may be left, or two if
/// the last one has gaps between its elements.
pub(crate) fn regions<const N: usize>(
    layouts: [&Layout; N],
) -> Result<(Extent, [Region; N]), Invalid> {
    let problem = || {
        let shape = layouts.first().map_or(&[][..], |layout| layout.shape());
        let strides = layouts.map(Layout::strides);
        let problem = format!(
            "the driver cannot copy the shape {shape:?} with strides {:?} in one call: make it \
             contiguous with a kernel first",
            strides.as_slice()
        );
        refused("copy", problem)
    };
    let dimensions = dimensions(layouts).ok_or_else(problem)?;
    let (mut rest, width) = match dimensions.split_first() {
        Some((first, rest)) if first.1 == [1; N] => (rest, first.0),
        _ => (&dimensions[..], 1),
    };
    let mut take_dimension = || {
        let (first, others) = rest.split_first()?;
        rest = others;
        Some(*first)
    };
    // With one row or one slice, the pitch does not matter.
    let (height, pitches) = take_dimension().unwrap_or((1, [width; N]));
    let (depth, slices) = take_dimension().unwrap_or((1, pitches.map(|pitch| pitch * height)));
    if !rest.is_empty() {
        return Err(problem());
    }
    let mut regions = [Region { offset: 0, pitch: 0, rows: 0 }; N];
    for (index, region) in regions.iter_mut().enumerate() {
        let (pitch, slice) = (pitches[index], slices[index]);
        let rows = slice / pitch.max(1);
        if pitch < width || slice % pitch.max(1) != 0 || rows < height {
            return Err(problem());
        }
        (region.pitch, region.rows) = (pitch, rows);
    }
    Ok((Extent::new_3d(width, height, depth), regions))
}

/// Returns the dimensions from the last to the first, merged as far as possible. Returns `None` if
/// a stride is negative or not a whole number of elements.
fn dimensions<const N: usize>(layouts: [&Layout; N]) -> Option<Vec<Dimension<N>>> {
    let mut dimensions: Vec<Dimension<N>> = Vec::new();
    let shape = layouts.first()?.shape();
    for (index, extent) in shape.iter().enumerate().rev() {
        if *extent == 1 {
            continue;
        }
        let mut strides = [0; N];
        for (stride, layout) in strides.iter_mut().zip(layouts) {
            let bytes = usize::try_from(layout.strides()[index]).ok()?;
            let item_size = layout.item_size();
            if item_size == 0 || bytes % item_size != 0 {
                return None;
            }
            *stride = bytes / item_size;
        }
        match dimensions.last_mut() {
            Some((inner, inner_strides))
                if inner_strides.map(|stride| stride.checked_mul(*inner)) == strides.map(Some) =>
            {
                *inner *= extent;
            }
            _ => dimensions.push((*extent, strides)),
        }
    }
    Some(dimensions)
}
