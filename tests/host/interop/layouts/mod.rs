//! Layouts and their views, for all shapes and strides of small sets. Each result is compared with a
//! list of the offsets of all elements.

mod limits;
mod views;

use cuda_safe::interop::Layout;

/// Calls `visit` with every list of `len` values.
fn each_list<T: Copy>(values: &[T], len: usize, visit: &mut dyn FnMut(&[T])) {
    fn extend<T: Copy>(values: &[T], len: usize, list: &mut Vec<T>, visit: &mut dyn FnMut(&[T])) {
        if list.len() == len {
            return visit(list);
        }
        for value in values {
            list.push(*value);
            extend(values, len, list, visit);
            list.pop();
        }
    }
    extend(values, len, &mut Vec::new(), visit);
}

/// Calls `visit` with every shape and all strides of up to three dimensions, and with fewer of them in
/// four dimensions.
fn each_layout(visit: &mut dyn FnMut(&[usize], &[isize])) {
    let mut each = |dimensions, extents: &[usize], strides: &[isize]| {
        each_list(extents, dimensions, &mut |shape| {
            each_list(strides, dimensions, &mut |strides| visit(shape, strides));
        });
    };
    for dimensions in 0..=3 {
        each(dimensions, &[0, 1, 2, 3], &[-3, -2, -1, 0, 1, 2, 3, 4, 6]);
    }
    each(4, &[1, 2, 3], &[-2, 0, 1, 2, 3, 6]);
}

/// Returns the offset of each element in bytes. The last dimension varies fastest.
fn offsets(shape: &[usize], strides: &[isize]) -> Vec<isize> {
    let mut offsets = vec![0];
    for (extent, stride) in shape.iter().zip(strides) {
        let steps = 0..*extent as isize;
        let along = |start: isize| steps.clone().map(move |step| start + step * stride);
        offsets = offsets.into_iter().flat_map(along).collect();
    }
    offsets
}

fn offsets_of(layout: &Layout) -> Vec<isize> {
    offsets(layout.shape(), layout.strides())
}

fn reversed<T: Copy>(list: &[T]) -> Vec<T> {
    list.iter().rev().copied().collect()
}

#[test]
fn range_and_contiguity_of_all_layouts_are_those_of_their_elements() {
    let are_in_sequence = |offsets: &[isize], size: usize| {
        offsets.iter().enumerate().all(|(index, offset)| *offset == (index * size) as isize)
    };
    let (mut cases, mut contiguous) = (0, [0; 2]);
    each_layout(&mut |shape, strides| {
        let elements = offsets(shape, strides);
        let other_order = offsets(&reversed(shape), &reversed(strides));
        let first = elements.iter().min().copied().unwrap_or(0);
        let last = elements.iter().max().copied();
        for item_size in [0, 1, 2, 3] {
            let layout = Layout::strided(shape, strides, item_size).expect("a small layout");
            let range = layout.byte_range();
            let end = last.map_or(0, |last| last + item_size as isize);
            assert_eq!((range.start, range.end), (first, end), "{layout:?}");
            assert_eq!(layout.len(), Some(elements.len()), "{layout:?}");
            assert_eq!(layout.is_empty(), elements.is_empty(), "{layout:?}");
            let is_contiguous =
                [&elements, &other_order].map(|its| are_in_sequence(its, item_size));
            let found = [layout.is_c_contiguous(), layout.is_f_contiguous()];
            assert_eq!(found, is_contiguous, "{layout:?}");
            contiguous[0] += usize::from(found[0] && !elements.is_empty());
            contiguous[1] += usize::from(found[1] && !elements.is_empty());
            cases += 1;
        }
        if strides.iter().all(|stride| *stride == 1) {
            let layout = Layout::c_contiguous(shape, 3).expect("a small layout");
            assert!(layout.is_c_contiguous(), "{layout:?}");
            assert!(are_in_sequence(&offsets_of(&layout), 3), "{layout:?}");
        }
    });
    println!("{cases} cases, of which {contiguous:?} have elements and are contiguous");
    assert!(contiguous.iter().all(|count| *count > 1000));
}

/// Returns whether two elements of this size have a byte in common.
fn have_common_bytes(mut elements: Vec<isize>, item_size: usize) -> bool {
    elements.sort_unstable();
    elements.windows(2).any(|pair| pair[1] - pair[0] < item_size as isize)
}

/// Returns whether each distance between elements divides the next larger one. Then no two dimensions
/// interleave without an overlap.
fn distances_divide_each_other(shape: &[usize], strides: &[isize]) -> bool {
    let dimensions = shape.iter().zip(strides).filter(|(extent, _)| **extent > 1);
    let mut distances: Vec<isize> = dimensions.map(|(_, stride)| stride.abs()).collect();
    distances.sort_unstable();
    distances.windows(2).all(|pair| pair[0] == 0 || pair[1] % pair[0] == 0)
}

#[test]
fn elements_with_a_common_byte_are_found_in_all_layouts() {
    let (mut cases, mut exact) = (0, [0; 2]);
    each_layout(&mut |shape, strides| {
        for item_size in [0, 1, 2, 3] {
            let layout = Layout::strided(shape, strides, item_size).expect("a small layout");
            let overlap = have_common_bytes(offsets(shape, strides), item_size);
            assert!(layout.may_overlap_itself() || !overlap, "{layout:?}");
            if distances_divide_each_other(shape, strides) {
                assert_eq!(layout.may_overlap_itself(), overlap, "{layout:?}");
                exact[usize::from(overlap)] += 1;
            }
            cases += 1;
        }
    });
    println!("{cases} cases; exact answers: {} no, {} yes", exact[0], exact[1]);
    assert!(exact[0] > 1000 && exact[1] > 1000);
}

#[test]
fn ranges_overlap_exactly_if_they_have_a_common_byte() {
    let mut layouts = Vec::new();
    for dimensions in 0..=2 {
        each_list(&[0, 1, 2, 3], dimensions, &mut |shape| {
            each_list(&[-2, 0, 1, 3], dimensions, &mut |strides| {
                for item_size in [0, 1, 2] {
                    let layout = Layout::strided(shape, strides, item_size).expect("a layout");
                    let elements = offsets(shape, strides);
                    let first = elements.iter().min().copied().unwrap_or(0) as i128;
                    let end = elements.iter().max().map_or(0, |last| last + item_size as isize);
                    layouts.push((layout, first..end as i128));
                }
            });
        });
    }
    // One layout for each range.
    layouts.sort_by_key(|(_, bytes)| (bytes.start, bytes.end));
    layouts.dedup_by_key(|(_, bytes)| bytes.clone());
    let (mut cases, mut overlaps) = (0, 0);
    for (one, own_bytes) in &layouts {
        for (other, other_bytes) in &layouts {
            for (address, distance) in [0, 5, u64::MAX / 2, u64::MAX - 20]
                .into_iter()
                .flat_map(|address| (0..=20).map(move |distance| (address, distance)))
            {
                let has_common = own_bytes
                    .clone()
                    .any(|byte| other_bytes.contains(&(byte - i128::from(distance))));
                let found = one.ranges_overlap(address, other, address + distance);
                assert_eq!(found, has_common, "{one:?} and {other:?} after {distance} bytes");
                let swapped = other.ranges_overlap(address + distance, one, address);
                assert_eq!(swapped, has_common, "{one:?} and {other:?} after {distance} bytes");
                cases += 1;
                overlaps += usize::from(has_common);
            }
        }
    }
    println!("{cases} cases, of which {overlaps} overlap");
    assert!(overlaps > 1000 && overlaps < cases / 2);
}
