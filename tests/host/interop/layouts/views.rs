//! Views of layouts: parts, reshaped and broadcast arrays.

use super::{each_list, offsets, offsets_of};
use cuda_safe::interop::{Index, Layout};

/// Returns the indices that Python's `range(extent)[start:end:step]` has.
fn slice(start: Option<isize>, end: Option<isize>, step: isize, extent: usize) -> Vec<usize> {
    let extent = extent as isize;
    let from_start = |index: isize| if index < 0 { index.saturating_add(extent) } else { index };
    if step > 0 {
        let (start, end) = (start.map_or(0, from_start).max(0), end.map_or(extent, from_start));
        let within = (start..extent).filter(|index| *index < end && (index - start) % step == 0);
        return within.map(|index| index as usize).collect();
    }
    let start = start.map_or(extent - 1, from_start).min(extent - 1);
    let end = end.map_or(-1, from_start);
    let distance = step.unsigned_abs();
    let within = (0..=start)
        .rev()
        .filter(|index| *index > end && (start - index).unsigned_abs() % distance == 0);
    within.map(|index| index as usize).collect()
}

#[test]
fn every_range_of_an_index_selects_the_elements_that_python_selects() {
    let limits = [isize::MIN, isize::MIN + 1, isize::MAX - 1, isize::MAX];
    let bounds = (-7..=7).chain(limits).map(Some).chain([None]);
    let bounds: Vec<Option<isize>> = bounds.collect();
    let steps = (-4..=4).chain(limits).filter(|step| *step != 0);
    let steps: Vec<isize> = steps.collect();
    let mut cases = 0;
    for (extent, stride) in (0..=6).flat_map(|extent| [(extent, 4), (extent, -4), (extent, 0)]) {
        let layout = Layout::strided(&[extent], &[stride], 4).expect("a layout");
        for (start, end) in
            bounds.iter().flat_map(|start| bounds.iter().map(move |end| (*start, *end)))
        {
            for step in &steps {
                let index = Index::Range { start, end, step: *step };
                let (offset, part) = layout.index(&[index]).expect("a part");
                let found: Vec<isize> = offsets_of(&part).iter().map(|its| its + offset).collect();
                let expected = slice(start, end, *step, extent).into_iter();
                let expected: Vec<isize> = expected.map(|at| at as isize * stride).collect();
                assert_eq!(found, expected, "{index:?} of {extent}");
                cases += 1;
            }
        }
    }
    println!("{cases} cases");
}

/// Returns the offsets and the shape that indices select, or `None` if they are wrong: each dimension is
/// replaced by the list of its selected indices.
fn selected(layout: &Layout, indices: &[Index]) -> Option<(Vec<isize>, Vec<usize>)> {
    let taken = indices.iter().filter(|its| matches!(its, Index::At(_) | Index::Range { .. }));
    let rest = layout.shape().len().checked_sub(taken.count())?;
    let mut indices = indices.to_vec();
    if !indices.contains(&Index::Rest) {
        indices.push(Index::Rest);
    }
    let position = indices.iter().position(|index| *index == Index::Rest)?;
    indices.splice(position..=position, vec![Index::ALL; rest]);
    let mut dimensions = layout.shape().iter().zip(layout.strides());
    let (mut found, mut shape) = (vec![0], Vec::new());
    for index in indices {
        let (list, stride) = match index {
            Index::Rest => return None,
            Index::NewAxis => {
                shape.push(1);
                continue;
            }
            Index::At(at) => {
                let (extent, stride) = dimensions.next()?;
                let at = if at < 0 { at + *extent as isize } else { at };
                let at = usize::try_from(at).ok().filter(|at| at < extent)?;
                (vec![at], *stride)
            }
            Index::Range { start, end, step } => {
                let (extent, stride) = dimensions.next()?;
                let list = slice(start, end, step, *extent);
                shape.push(list.len());
                (list, *stride)
            }
        };
        let along = |start: isize| list.iter().map(move |at| start + *at as isize * stride);
        found = found.into_iter().flat_map(along).collect();
    }
    Some((found, shape))
}

#[test]
fn every_list_of_indices_selects_its_elements_or_is_refused() {
    let indices = [
        Index::At(0),
        Index::At(2),
        Index::At(-2),
        Index::ALL,
        Index::reversed(1),
        Index::Range { start: Some(1), end: None, step: 2 },
        Index::Range { start: Some(2), end: Some(1), step: 1 },
        Index::NewAxis,
        Index::Rest,
    ];
    let (mut cases, mut accepted) = (0, 0);
    for dimensions in 0..=3 {
        each_list(&[0, 1, 2, 3], dimensions, &mut |shape| {
            let mut strides = [40, -12, 3];
            strides[dimensions..].fill(0);
            let strides = &strides[..dimensions];
            let layout = Layout::strided(shape, strides, 2).expect("a layout");
            for count in 0..=4 {
                each_list(&indices, count, &mut |indices| {
                    cases += 1;
                    let expected = selected(&layout, indices);
                    let Ok((offset, part)) = layout.index(indices) else {
                        return assert_eq!(expected, None, "{indices:?} of {layout:?}");
                    };
                    let found = offsets_of(&part).iter().map(|its| its + offset).collect();
                    let found = (found, part.shape().to_vec());
                    assert_eq!(Some(found), expected, "{indices:?} of {layout:?}");
                    accepted += 1;
                });
            }
        });
    }
    println!("{cases} cases, of which {accepted} are accepted");
    assert!(accepted > 10_000 && accepted < cases);
}

/// Returns whether some strides of a shape have elements at these offsets. The stride of a dimension is
/// the distance from the first element to the next one along the dimension.
fn have_strides(found: &[isize], shape: &[usize]) -> bool {
    let mut strides = vec![0; shape.len()];
    let mut next = 1;
    for (stride, extent) in strides.iter_mut().zip(shape).rev() {
        if *extent > 1 {
            *stride = found[next];
        }
        next *= extent;
    }
    offsets(shape, &strides) == found
}

#[test]
fn an_array_is_reshaped_exactly_if_some_strides_have_its_elements() {
    let mut shapes = Vec::new();
    for dimensions in 0..=4 {
        each_list(&[0, 1, 2, 3, 4, 6], dimensions, &mut |shape| {
            // All shapes without elements are alike.
            let (len, is_short) = (shape.iter().product::<usize>(), shape.len() <= 1);
            if (1..=12).contains(&len) || len == 0 && is_short {
                shapes.push(shape.to_vec());
            }
        });
    }
    let (mut cases, mut accepted) = (0, 0);
    for shape in shapes.iter().filter(|shape| shape.len() <= 3) {
        let len: usize = shape.iter().product();
        let (same, others): (Vec<_>, Vec<_>) =
            shapes.iter().partition(|target| target.iter().product::<usize>() == len);
        let others: Vec<_> = others.into_iter().filter(|target| target.len() <= 1).collect();
        each_list(&[-2, 0, 1, 2, 3, 4, 6], shape.len(), &mut |strides| {
            let layout = Layout::strided(shape, strides, 1).expect("a layout");
            let elements = offsets_of(&layout);
            for target in &same {
                cases += 1;
                let expected = elements.is_empty() || have_strides(&elements, target);
                match layout.reshaped(target) {
                    Ok(view) => {
                        assert!(expected, "{layout:?} to {target:?}");
                        assert_eq!(view.shape(), &target[..]);
                        assert_eq!(offsets_of(&view), elements, "{layout:?} to {target:?}");
                        accepted += 1;
                    }
                    Err(error) => assert!(!expected, "{layout:?}: {error}"),
                }
            }
            for target in &others {
                cases += 1;
                layout.reshaped(target).expect_err("another number of elements");
            }
        });
    }
    println!("{cases} cases, of which {accepted} are accepted");
    assert!(accepted > 10_000 && accepted < cases);
}
