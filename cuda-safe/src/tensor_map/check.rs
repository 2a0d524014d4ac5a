//! The rules for tensor maps: those that a driver checks, so that errors name the parameter, and those
//! that it does not check.

use super::options::{Swizzle, TensorDataType, TensorFill, TensorLayout, TensorMapOptions};
use crate::call::{Error, Invalid, Result, refuse_if};
use std::fmt::Debug;
use std::ops::RangeInclusive;

/// The greatest number of dimensions.
pub(super) const MAX_RANK: usize = 5;
/// The greatest extent of a dimension.
const MAX_DIM: u64 = 1 << 32;
/// All strides are below this.
const STRIDE_END: u64 = 1 << 40;
/// The alignment of addresses, strides and boxes.
const ALIGNMENT: u64 = 16;

pub(super) fn refused(parameter: &'static str, given: impl Debug, rule: &'static str) -> Error {
    Invalid::TensorMap { parameter, given: format!("{given:?}"), rule }.into()
}

#[inline]
pub(super) fn address(address: u64) -> Result<()> {
    refuse_if!(address == 0, refused("memory", address, "must not be empty"));
    if address % ALIGNMENT != 0 {
        let rule = "must start at a multiple of 16 bytes";
        return Err(refused("memory", format_args!("{address:#x}"), rule));
    }
    Ok(())
}

/// Checks that a tensor of `needed` bytes is in its memory.
#[inline]
pub(super) fn extent(needed: usize, bytes: usize) -> Result<()> {
    if needed <= bytes {
        return Ok(());
    }
    Err(refused(
        "memory",
        format_args!("{bytes} bytes, of which the tensor needs {needed}"),
        "must hold the whole tensor",
    ))
}

/// Checks the shape of a tensor, and returns its size from the first to the last element.
#[inline]
pub(super) fn layout(
    layout: TensorLayout<'_>,
    (ranks, rule): (RangeInclusive<usize>, &'static str),
) -> Result<usize> {
    let TensorLayout { data_type, dims, strides } = layout;
    refuse_if!(!ranks.contains(&dims.len()), refused("dims", dims, rule));
    if !dims.iter().all(|dim| (1..=MAX_DIM).contains(dim)) {
        let rule = "must have from 1 to 4294967296 elements in each dimension";
        return Err(refused("dims", dims, rule));
    }
    if strides.len() + 1 != dims.len() {
        let rule = "must have a value for each dimension but the innermost";
        return Err(refused("strides", strides, rule));
    }
    let is_stride = |stride: &u64| stride % ALIGNMENT == 0 && *stride < STRIDE_END;
    if !strides.iter().all(is_stride) {
        let rule = "must be multiples of 16 bytes, and below 1099511627776";
        return Err(refused("strides", strides, rule));
    }
    let (bytes, is_apart) = span(data_type, dims, strides);
    if !is_apart {
        let rule = "must not make elements overlap";
        return Err(refused("strides", strides, rule));
    }
    usize::try_from(bytes).map_err(|_| refused("dims", dims, "must fit into the address space"))
}

/// Returns the size from the first to the last element, and whether no two elements overlap. A row takes
/// the place from its first to its last byte, a plane that of its rows, and so on.
#[inline]
fn span(data_type: TensorDataType, dims: &[u64], strides: &[u64]) -> (u128, bool) {
    let row = u128::from(dims[0]) * u128::from(data_type.size_bytes());
    // The stride of a dimension with one index is irrelevant.
    let outer = strides.iter().copied().zip(dims[1..].iter().copied());
    let outer = outer.filter(|(_, dim)| *dim > 1);
    match fold(row, outer.clone()) {
        (span, true) => (span, true),
        // The strides may be in another order than the dimensions.
        (_, false) => in_order(row, outer),
    }
}

/// Adds up the places of dimensions whose strides are in order.
#[inline]
fn fold(row: u128, outer: impl Iterator<Item = (u64, u64)>) -> (u128, bool) {
    outer.fold((row, true), |(span, is_apart), (stride, dim)| {
        let stride = u128::from(stride);
        (span + stride * u128::from(dim - 1), is_apart & (stride >= span))
    })
}

#[cold]
#[inline(never)]
fn in_order(row: u128, outer: impl Iterator<Item = (u64, u64)>) -> (u128, bool) {
    let mut outer: Vec<_> = outer.collect();
    outer.sort_unstable();
    fold(row, outer.into_iter())
}

#[inline]
pub(super) fn options(options: TensorMapOptions, data_type: TensorDataType) -> Result<()> {
    if options.fill != TensorFill::Zero && data_type.is_integer() {
        let rule = "must be zero for integers";
        return Err(refused("fill", options.fill, rule));
    }
    Ok(())
}

#[inline]
pub(super) fn element_strides(given: &[u32], rank: usize) -> Result<()> {
    let is_complete = given.is_empty() || given.len() == rank;
    if is_complete && given.iter().all(|stride| (1..=8).contains(stride)) {
        return Ok(());
    }
    let rule = "must be empty, or have a value from 1 to 8 for each dimension";
    Err(refused("element_strides", given, rule))
}

/// Checks the innermost dimension of a box.
#[inline]
pub(super) fn inner(
    parameter: &'static str,
    elements: u32,
    data_type: TensorDataType,
    swizzle: Swizzle,
) -> Result<()> {
    let size = data_type.size_bytes();
    let bytes = u64::from(elements) * size;
    let rule = if bytes % ALIGNMENT != 0 {
        "must have a multiple of 16 bytes in the innermost dimension"
    } else if swizzle.span().is_some_and(|span| bytes > span) {
        "must not exceed the span of the swizzle in the innermost dimension"
    } else {
        return Ok(());
    };
    Err(refused(parameter, format_args!("{elements} elements of {size} bytes"), rule))
}

#[inline]
pub(super) fn tiled_box(dims: &[u32], rank: usize) -> Result<()> {
    if dims.len() == rank && dims.iter().all(|dim| (1..=256).contains(dim)) {
        return Ok(());
    }
    let rule = "must have a value from 1 to 256 for each dimension of the tensor";
    Err(refused("box dims", dims, rule))
}

/// Checks a corner of a bounding box.
#[inline]
pub(super) fn corner(parameter: &'static str, corner: &[i32], rank: usize) -> Result<()> {
    if corner.len() + 2 != rank {
        let rule = "must have a value for each spatial dimension";
        return Err(refused(parameter, corner, rule));
    }
    let (end, rule) = match corner.len() {
        1 => (1 << 15, "must be from -32768 to 32767"),
        2 => (1 << 7, "must be from -128 to 127"),
        _ => (1 << 4, "must be from -16 to 15"),
    };
    if corner.iter().all(|offset| (-end..end).contains(offset)) {
        return Ok(());
    }
    Err(refused(parameter, corner, rule))
}

/// Checks the numbers of channels and pixels of an im2col copy.
#[inline]
pub(super) fn column(
    (channels, pixels): (u32, u32),
    data_type: TensorDataType,
    swizzle: Swizzle,
) -> Result<()> {
    if !(1..=256).contains(&channels) {
        let rule = "must be from 1 to 256";
        return Err(refused("channels_per_pixel", channels, rule));
    }
    if !(1..=1024).contains(&pixels) {
        let rule = "must be from 1 to 1024";
        return Err(refused("pixels_per_column", pixels, rule));
    }
    inner("channels_per_pixel", channels, data_type, swizzle)
}

#[cfg(test)]
mod tests {
    use super::{TensorDataType, span};

    #[test]
    fn elements_overlap_if_a_stride_is_shorter_than_what_it_spans() {
        let of = |dims: &[u64], strides: &[u64]| span(TensorDataType::F32, dims, strides);
        assert_eq!(of(&[4, 3], &[16]), (48, true));
        assert!(!of(&[4, 3], &[0]).1);
        assert!(!of(&[5, 3], &[16]).1);
        // The last row of a plane need not be complete.
        assert_eq!(of(&[4, 3, 2], &[32, 80]), (160, true));
        assert!(!of(&[4, 3, 2], &[32, 64]).1);
        // Dimensions in another order.
        assert_eq!(of(&[4, 3, 2], &[32, 16]), (96, true));
        assert_eq!(of(&[4, 1, 2], &[0, 16]), (32, true));
        let largest = of(&[1 << 32; 5], &[(1 << 40) - 16; 4]);
        assert!(largest.0 > 1 << 72);
    }

    /// Returns whether each dimension steps over what the inner ones span, in some order of the outer
    /// dimensions, with the size of the tensor: the last byte of its last element.
    fn nested(size: u64, dims: &[u64], strides: &[u64]) -> (u128, bool) {
        fn is_nested(span: u128, outer: &[(u128, u128)]) -> bool {
            outer.is_empty()
                || (0..outer.len()).any(|index| {
                    let (dim, stride) = outer[index];
                    let rest = [&outer[..index], &outer[index + 1..]].concat();
                    stride >= span && is_nested(span + (dim - 1) * stride, &rest)
                })
        }
        let row = u128::from(dims[0]) * u128::from(size);
        let outer = dims[1..].iter().zip(strides);
        let outer = outer.map(|(dim, stride)| (u128::from(*dim), u128::from(*stride)));
        let end = outer.clone().fold(row, |end, (dim, stride)| end + (dim - 1) * stride);
        let outer: Vec<_> = outer.filter(|(dim, _)| *dim > 1).collect();
        (end, is_nested(row, &outer))
    }

    /// Returns the first bytes of all elements.
    fn elements(size: u64, dims: &[u64], strides: &[u64]) -> Vec<u64> {
        let strides = [&[size], strides].concat();
        dims.iter().zip(strides).fold(vec![0], |elements, (dim, stride)| {
            let along = |start: u64| (0..*dim).map(move |index| start + index * stride);
            elements.into_iter().flat_map(along).collect()
        })
    }

    /// Calls `visit` with every list of `len` values.
    fn each_list(values: &[u64], len: usize, visit: &mut dyn FnMut(&[u64])) {
        let count = values.len().pow(len as u32);
        for number in 0..count {
            let digit = |place| number / values.len().pow(place as u32) % values.len();
            let list: Vec<u64> = (0..len).map(|place| values[digit(place)]).collect();
            visit(&list);
        }
    }

    #[test]
    fn tensors_of_all_strides_are_accepted_only_without_common_bytes() {
        let (mut cases, mut apart) = (0, 0);
        let mut compare = |dims: &[u64], strides: &[u64]| {
            for data_type in [TensorDataType::U8, TensorDataType::U16] {
                let size = data_type.size_bytes();
                let found = span(data_type, dims, strides);
                assert_eq!(found, nested(size, dims, strides), "{dims:?} {strides:?}");
                cases += 1;
                if !found.1 {
                    continue;
                }
                let mut elements = elements(size, dims, strides);
                elements.sort_unstable();
                let is_apart = elements.windows(2).all(|pair| pair[1] - pair[0] >= size);
                assert!(is_apart, "{dims:?} {strides:?}");
                let last = elements.last().map(|last| u128::from(last + size));
                assert_eq!(Some(found.0), last, "{dims:?} {strides:?}");
                apart += 1;
            }
        };
        for (rank, strides) in [
            (1, &[][..]),
            (2, &[0, 1, 2, 3, 4, 5, 6, 8]),
            (3, &[0, 1, 2, 3, 4, 5, 6, 8, 12]),
            (4, &[0, 2, 3, 4, 6, 8, 12, 18]),
        ] {
            each_list(&[1, 2, 3], rank, &mut |dims| {
                each_list(strides, rank - 1, &mut |strides| compare(dims, strides));
            });
        }
        println!("{cases} cases, of which {apart} are apart");
        assert!(apart > 5000 && apart < cases / 2);
    }

    #[test]
    fn sizes_of_the_largest_tensors_are_exact() {
        let (mut cases, mut apart) = (0, 0);
        for rank in 1..=4 {
            each_list(&[1, 2, (1 << 32) - 1, 1 << 32], rank, &mut |dims| {
                let strides = [0, 16, 1 << 32, 1 << 36, (1 << 40) - 16];
                each_list(&strides, rank - 1, &mut |strides| {
                    for data_type in [TensorDataType::U8, TensorDataType::U64] {
                        let found = span(data_type, dims, strides);
                        let expected = nested(data_type.size_bytes(), dims, strides);
                        assert_eq!(found, expected, "{dims:?} {strides:?}");
                        cases += 1;
                        apart += usize::from(found.1);
                    }
                });
            });
        }
        println!("{cases} cases, of which {apart} are apart");
        assert!(apart > 1000 && apart < cases / 2);
    }
}
