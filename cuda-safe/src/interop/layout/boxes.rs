//! Arrays as boxes, which the driver copies.

use super::Layout;
use super::index::refused;
use crate::invalid::Invalid;
use crate::memory::{Extent, Region};

/// A dimension of several arrays of one shape: its extent, and the stride in each, in elements.
type Dimension<const N: usize> = (usize, [usize; N]);

/// Several arrays of one shape as boxes with the same extent, whose elements are in the order of the
/// arrays; offsets are from the first element.
///
/// Dimensions that lie as one are one; of what is left there may be three, or two if the last one has
/// gaps between its elements.
pub(in crate::interop) fn boxes<const N: usize>(
    layouts: [&Layout; N],
) -> Result<(Extent, [Region; N]), Invalid> {
    let problem = || {
        let shape = layouts.first().map_or(&[][..], |layout| layout.shape());
        let strides = layouts.map(Layout::strides);
        let problem = format!(
            "{shape:?} with strides {:?} is no box, which is what the driver copies: make it \
             contiguous by a kernel",
            strides.as_slice()
        );
        refused("copy", problem)
    };
    let dimensions = dimensions(layouts).ok_or_else(problem)?;
    let (mut rest, width) = match dimensions.split_first() {
        Some((first, rest)) if first.1 == [1; N] => (rest, first.0),
        _ => (&dimensions[..], 1),
    };
    let mut next = || {
        let (first, others) = rest.split_first()?;
        rest = others;
        Some(*first)
    };
    // Of a box with one row, or one slice, the distance of the next does not matter.
    let (height, pitches) = next().unwrap_or((1, [width; N]));
    let (depth, slices) = next().unwrap_or((1, pitches.map(|pitch| pitch * height)));
    if !rest.is_empty() {
        return Err(problem());
    }
    let mut regions = [Region {
        offset: 0,
        pitch: 0,
        rows: 0,
    }; N];
    for (place, region) in regions.iter_mut().enumerate() {
        let (pitch, slice) = (pitches[place], slices[place]);
        let rows = slice / pitch.max(1);
        if pitch < width || slice % pitch.max(1) != 0 || rows < height {
            return Err(problem());
        }
        (region.pitch, region.rows) = (pitch, rows);
    }
    Ok((Extent::volume(width, height, depth), regions))
}

/// The dimensions from the last to the first, as few as there can be; none if a stride is negative or
/// no whole elements.
fn dimensions<const N: usize>(layouts: [&Layout; N]) -> Option<Vec<Dimension<N>>> {
    let mut dimensions: Vec<Dimension<N>> = Vec::new();
    let shape = layouts.first()?.shape();
    for (place, extent) in shape.iter().enumerate().rev() {
        if *extent == 1 {
            continue;
        }
        let mut strides = [0; N];
        for (stride, layout) in strides.iter_mut().zip(layouts) {
            let bytes = usize::try_from(layout.strides()[place]).ok()?;
            let items = layout.item_size();
            if items == 0 || bytes % items != 0 {
                return None;
            }
            *stride = bytes / items;
        }
        match dimensions.last_mut() {
            Some((inner, its))
                if its.map(|stride| stride.checked_mul(*inner)) == strides.map(Some) =>
            {
                *inner *= extent;
            }
            _ => dimensions.push((*extent, strides)),
        }
    }
    Some(dimensions)
}
