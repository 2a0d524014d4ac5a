//! Layouts at the limits of the address space. The exact numbers fit in 128 bits.

use super::each_list;
use cuda_safe::interop::{Index, Layout};

const MAX: usize = isize::MAX as usize;
const EXTENTS: [usize; 9] = [0, 1, 2, 3, MAX / 2, MAX - 1, MAX, MAX + 1, usize::MAX];
const STRIDES: [isize; 8] = [isize::MIN, isize::MIN + 1, -2, -1, 0, 1, 2, isize::MAX];
const SIZES: [usize; 6] = [0, 1, 2, MAX, MAX + 1, usize::MAX];

/// Returns the range of bytes, or `None` if a distance does not fit in an `isize`.
fn range(shape: &[usize], strides: &[isize], item_size: usize) -> Option<(isize, isize)> {
    let fits = |number: i128| isize::try_from(number).ok();
    if shape.contains(&0) {
        // The array must be valid without strides.
        let sizes = shape.iter().map(|extent| (*extent).max(1)).chain([item_size]);
        let mut product = 1;
        for size in sizes {
            fits(size as i128)?;
            product = fits(product * size as i128)? as i128;
        }
        return Some((0, 0));
    }
    let (mut first, mut end) = (0, item_size as i128);
    for (extent, stride) in shape.iter().zip(strides) {
        fits(*extent as i128 - 1)?;
        let last = (*extent as i128 - 1) * *stride as i128;
        first += last.min(0);
        end += last.max(0);
    }
    fits(end - first)?;
    Some((fits(first)?, fits(end)?))
}

/// Calls all functions of a layout that compute with its extents and strides.
fn use_layout(layout: &Layout) {
    let range = layout.byte_range();
    let (shape, strides) = (layout.shape(), layout.strides());
    let expected = shape.iter().try_fold(1usize, |len, extent| len.checked_mul(*extent));
    let is_empty = shape.contains(&0);
    assert_eq!(layout.len(), if is_empty { Some(0) } else { expected });
    assert!(!layout.is_c_contiguous() || is_empty || expected.is_some() || layout.item_size() == 0);
    assert_eq!(layout.clone().transposed().byte_range(), range);
    let _ = (layout.is_f_contiguous(), layout.may_overlap_itself(), layout.is_reversed());
    for address in [0, 1, u64::MAX - 1, u64::MAX] {
        let has_bytes = range.start < range.end;
        assert_eq!(layout.ranges_overlap(address, layout, address), has_bytes);
    }
    for target in [&[][..], &[0], &[1], &[MAX + 1], &[2, MAX], &[usize::MAX, usize::MAX, 0]] {
        for view in [layout.reshaped(target), layout.broadcast_to(target)].into_iter().flatten() {
            assert_eq!(view.shape(), target);
            assert!(view.is_empty() || view.byte_range() == range, "{layout:?} as {target:?}");
        }
    }
    let far = [isize::MIN, isize::MIN + 1, -1, 0, 1, isize::MAX - 1, isize::MAX];
    let at = far.iter().map(|at| Index::At(*at));
    let bounds = far.iter().map(|at| Some(*at)).chain([None]);
    let steps = far.iter().filter(|step| **step != 0);
    let ranges = bounds.flat_map(|bound| {
        steps.clone().flat_map(move |step| {
            [(bound, None), (None, bound)].map(|(start, end)| Index::Range {
                start,
                end,
                step: *step,
            })
        })
    });
    for index in at.chain(ranges) {
        let Ok((offset, part)) = layout.index(&[index]) else {
            continue;
        };
        if !part.is_empty() {
            let of_part = part.byte_range();
            let is_within = of_part.start as i128 + offset as i128 >= range.start as i128
                && of_part.end as i128 + offset as i128 <= range.end as i128;
            assert!(is_within, "{index:?} of {layout:?}, whose strides are {strides:?}");
        }
    }
}

#[test]
fn layouts_are_refused_exactly_if_a_distance_exceeds_the_address_space() {
    let (mut cases, mut accepted) = (0, 0);
    for dimensions in 0..=2 {
        each_list(&EXTENTS, dimensions, &mut |shape| {
            each_list(&STRIDES, dimensions, &mut |strides| {
                for item_size in SIZES {
                    cases += 1;
                    let layout = Layout::strided(shape, strides, item_size).ok();
                    let expected = range(shape, strides, item_size);
                    let found = layout.as_ref().map(Layout::byte_range);
                    let found = found.map(|its| (its.start, its.end));
                    assert_eq!(found, expected, "{shape:?} {strides:?} {item_size}");
                    accepted += usize::from(layout.is_some());
                    layout.iter().for_each(use_layout);
                }
            });
            for item_size in SIZES {
                let fits = |number: i128| isize::try_from(number).is_ok();
                let sizes = shape.iter().map(|extent| (*extent).max(1) as i128);
                let bytes = sizes.fold(item_size as i128, i128::saturating_mul);
                let expected = fits(item_size as i128) && fits(bytes);
                let layout = Layout::c_contiguous(shape, item_size);
                let all_fit = shape.iter().all(|extent| fits(*extent as i128));
                assert_eq!(layout.is_ok(), expected && all_fit, "{shape:?} {item_size}");
                layout.iter().for_each(use_layout);
            }
        });
    }
    println!("{cases} cases, of which {accepted} are accepted");
    assert!(accepted > 5000 && accepted < cases / 2);
}

#[test]
fn the_reverse_of_the_smallest_step_does_not_overflow() {
    let layout = Layout::c_contiguous(&[5], 4).expect("a layout");
    for step in [isize::MIN, isize::MIN + 1] {
        let (offset, part) = layout.index(&[Index::reversed(step)]).expect("a part");
        assert_eq!((offset, part.shape()), (0, &[1][..]), "{step}");
    }
}
