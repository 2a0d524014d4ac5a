//! Arrays as regions for the driver's copies.

use super::{Layout, no_view};
use crate::call::{Extent, Invalid, Region, refuse_if};

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
        no_view("copy", problem)
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
    refuse_if!(!rest.is_empty(), problem());
    let mut regions = [Region { offset: 0, pitch: 0, rows: 0 }; N];
    for (index, region) in regions.iter_mut().enumerate() {
        let (pitch, slice) = (pitches[index], slices[index]);
        let rows = slice / pitch.max(1);
        refuse_if!(pitch < width || slice % pitch.max(1) != 0 || rows < height, problem());
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

#[cfg(test)]
mod tests {
    use super::{Extent, Layout, Region, regions};

    const SIZE: usize = 2;

    /// Returns the index of each element, with the last dimension varying fastest, or `None` if one is
    /// negative or not a whole number.
    fn elements(layout: &Layout) -> Option<Vec<usize>> {
        let mut offsets = vec![0];
        for (extent, stride) in layout.shape().iter().zip(layout.strides()) {
            let along = |start: isize| (0..*extent as isize).map(move |at| start + at * stride);
            offsets = offsets.into_iter().flat_map(along).collect();
        }
        let index = |offset: isize| {
            let offset = usize::try_from(offset).ok()?;
            (offset % SIZE == 0).then_some(offset / SIZE)
        };
        offsets.into_iter().map(index).collect()
    }

    /// Returns the index of each element of a region, in the order of copies.
    fn elements_of(region: Region, extent: Extent) -> Vec<usize> {
        let mut elements = Vec::new();
        for z in 0..extent.depth {
            for y in 0..extent.height {
                let row = region.offset + (z * region.rows + y) * region.pitch;
                elements.extend(row..row + extent.width);
            }
        }
        elements
    }

    /// Returns whether a region without overlapping rows and slices has these elements in this order.
    fn is_region(elements: &[usize]) -> bool {
        let len = elements.len();
        let divisors = |number: usize| (1..=number).filter(move |its| number % its == 0);
        divisors(len).any(|width| {
            divisors(len / width).any(|height| {
                let extent = Extent::new_3d(width, height, len / width / height);
                let at = |row: usize| elements.get(row * width).copied();
                let Some(pitch) = at(1).map_or(Some(width), |row| row.checked_sub(elements[0]))
                else {
                    return false;
                };
                // With one row in a slice, any number of rows with the same distance will do.
                let (pitch, rows) = match (height, at(height).filter(|_| extent.depth > 1)) {
                    (_, None) => (pitch, height),
                    (1, Some(_)) => (pitch, 1),
                    (_, Some(slice)) if pitch != 0 && slice % pitch == 0 => (pitch, slice / pitch),
                    _ => return false,
                };
                let region = Region { offset: 0, pitch, rows };
                pitch >= width && rows >= height && elements_of(region, extent) == elements
            })
        })
    }

    /// Returns all layouts of up to `most` dimensions with small extents and these strides.
    fn layouts(most: usize, strides: &[isize]) -> Vec<Layout> {
        let along = |extent| strides.iter().map(move |stride| (extent, *stride));
        // The stride of a single element does not matter.
        let dimensions: Vec<(usize, isize)> =
            [(1, -2)].into_iter().chain([2, 3].into_iter().flat_map(along)).collect();
        let mut lists = vec![Vec::new()];
        let mut layouts = Vec::new();
        for _ in 0..=most {
            layouts.extend(lists.iter().map(|list: &Vec<(usize, isize)>| {
                let (shape, strides): (Vec<_>, Vec<_>) = list.iter().copied().unzip();
                Layout::strided(&shape, &strides, SIZE).expect("a small layout")
            }));
            let longer = |list: &Vec<_>| {
                let list = list.clone();
                dimensions.iter().map(move |next| [&list[..], &[*next]].concat())
            };
            lists = lists.iter().flat_map(longer).collect();
        }
        layouts
    }

    #[test]
    fn an_array_is_copied_as_a_region_exactly_if_a_region_has_its_elements() {
        let (mut cases, mut accepted) = (0, 0);
        for layout in layouts(4, &[-2, 0, 1, 2, 4, 6, 8, 12, 24]) {
            let elements = elements(&layout);
            let expected = elements.as_ref().is_some_and(|elements| is_region(elements));
            match regions([&layout]) {
                Ok((extent, [region])) => {
                    assert_eq!(Some(elements_of(region, extent)), elements, "{layout:?}");
                    assert!(region.pitch >= extent.width && region.rows >= extent.height);
                    accepted += 1;
                }
                Err(error) => assert!(!expected, "{error}"),
            }
            cases += 1;
        }
        println!("{cases} cases, of which {accepted} are accepted");
        assert!(accepted > 500 && accepted < cases / 2);
    }

    #[test]
    fn two_arrays_of_all_strides_are_copied_in_the_same_order() {
        let layouts = layouts(3, &[0, 2, 4, 6, 8, 12, 18]);
        let (mut cases, mut accepted) = (0, 0);
        for one in &layouts {
            for other in layouts.iter().filter(|its| its.shape() == one.shape()) {
                cases += 1;
                let Ok((extent, regions)) = regions([one, other]) else { continue };
                accepted += 1;
                for (region, layout) in regions.into_iter().zip([one, other]) {
                    let found = Some(elements_of(region, extent));
                    assert_eq!(found, elements(layout), "{one:?} and {other:?}");
                    assert!(region.pitch >= extent.width && region.rows >= extent.height);
                }
            }
        }
        println!("{cases} cases, of which {accepted} are accepted");
        assert!(accepted > 1000 && accepted < cases / 2);
    }
}
