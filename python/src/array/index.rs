//! Views: which elements an index, a transposition or another shape means, by NumPy's rules.

use crate::error::{Failure, Result};
use cuda_safe::interop::Layout;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PySlice, PyString, PyTuple};

/// Some elements of an array: where the first is, in bytes from the array's first, and where they lie.
pub(crate) struct View {
    pub(crate) offset: isize,
    pub(crate) layout: Layout,
}

fn index_error(message: String) -> Failure {
    pyo3::exceptions::PyIndexError::new_err(message).into()
}

/// The elements that a basic index means: numbers, slices, `...` and `None`, or a tuple of them.
pub(crate) fn index(layout: &Layout, key: &Bound<'_, PyAny>) -> Result<View> {
    let keys: Vec<Bound<'_, PyAny>> = match key.cast::<PyTuple>() {
        Ok(keys) => keys.iter().collect(),
        Err(_) => vec![key.clone()],
    };
    let is_ellipsis = |key: &Bound<'_, PyAny>| key.is_instance_of::<PyEllipsis>();
    let taken = keys
        .iter()
        .filter(|key| !key.is_none() && !is_ellipsis(key))
        .count();
    let dimensions = layout.shape().len();
    let Some(left) = dimensions.checked_sub(taken) else {
        return Err(index_error(format!(
            "{taken} indices for an array of {dimensions} dimensions"
        )));
    };
    let ellipses = keys.iter().filter(|key| is_ellipsis(key)).count();
    if ellipses > 1 {
        return Err(index_error(
            "an index has one ellipsis (...) at most".to_owned(),
        ));
    }

    let mut all = layout
        .shape()
        .iter()
        .copied()
        .zip(layout.strides().iter().copied());
    let (mut offset, mut shape, mut strides) = (0isize, Vec::new(), Vec::new());
    let mut is_empty = false;
    let mut keep = |(extent, stride): (usize, isize)| {
        shape.push(extent);
        strides.push(stride);
    };
    for key in &keys {
        if key.is_none() {
            keep((1, 0));
        } else if is_ellipsis(key) {
            all.by_ref().take(left).for_each(&mut keep);
        } else if let Some((extent, stride)) = all.next() {
            if let Ok(slice) = key.cast::<PySlice>() {
                let length = isize::try_from(extent).unwrap_or(isize::MAX);
                let indices = slice.indices(length)?;
                let count = indices.slicelength;
                is_empty |= count == 0;
                if count > 0 {
                    offset += indices.start * stride;
                }
                keep((count, stride.saturating_mul(indices.step)));
            } else {
                offset += number(key, extent)? * stride;
            }
        }
    }
    all.for_each(&mut keep);
    // Of no element the first is nowhere.
    let offset = if is_empty || layout.is_empty() {
        0
    } else {
        offset
    };
    let layout = written(&shape, &strides, layout.item_size())?;
    Ok(View { offset, layout })
}

/// A layout; without an element, one whose strides are those of any.
fn written(shape: &[usize], strides: &[isize], item_size: usize) -> Result<Layout> {
    Ok(Layout::strided(shape, strides, item_size)?)
}

/// A number as an index, from the end if it is negative.
fn number(key: &Bound<'_, PyAny>, extent: usize) -> Result<isize> {
    let refused = || {
        Failure::from(pyo3::exceptions::PyTypeError::new_err(
            "an index is a number, a slice, ... or None, or a tuple of them, or the name of a field: \
             others would not be views",
        ))
    };
    if key.is_instance_of::<PyBool>() {
        return Err(refused());
    }
    let given: isize = key.extract().map_err(|_| refused())?;
    let length = isize::try_from(extent).unwrap_or(isize::MAX);
    let index = if given < 0 { given + length } else { given };
    if !(0..length).contains(&index) {
        return Err(index_error(format!(
            "index {given} is out of bounds for an extent of {extent}"
        )));
    }
    Ok(index)
}

/// Whether an index is the name of a field.
pub(crate) fn field_name<'a>(key: &'a Bound<'_, PyAny>) -> Option<&'a Bound<'a, PyString>> {
    key.cast::<PyString>().ok()
}

/// The dimensions in another order: all of them once, reversed if none is given.
pub(crate) fn transpose(layout: &Layout, axes: Option<Vec<isize>>) -> Result<Layout> {
    let dimensions = layout.shape().len();
    let axes: Vec<usize> = match axes {
        None => (0..dimensions).rev().collect(),
        Some(axes) => {
            let length = dimensions as isize;
            let resolve = |axis: &isize| {
                let axis = if *axis < 0 { *axis + length } else { *axis };
                (0..length).contains(&axis).then_some(axis.unsigned_abs())
            };
            let resolved: Option<Vec<usize>> = axes.iter().map(resolve).collect();
            let resolved = resolved.filter(|resolved| {
                let mut sorted = resolved.clone();
                sorted.sort_unstable();
                sorted.into_iter().eq(0..dimensions)
            });
            resolved.ok_or_else(|| {
                Failure::invalid(format!("{axes:?} are not the {dimensions} axes, each once"))
            })?
        }
    };
    let shape: Vec<usize> = axes.iter().map(|axis| layout.shape()[*axis]).collect();
    let strides: Vec<isize> = axes.iter().map(|axis| layout.strides()[*axis]).collect();
    Ok(Layout::strided(&shape, &strides, layout.item_size())?)
}

/// The same elements in C order with another shape, one extent of which may be -1.
pub(crate) fn reshape(layout: &Layout, shape: &[isize]) -> Result<Layout> {
    let len = layout.len().unwrap_or(0);
    let refused = || {
        Failure::invalid(format!(
            "{shape:?} is no shape for the {len} elements of {:?}",
            layout.shape()
        ))
    };
    let known: Option<usize> = shape
        .iter()
        .filter(|extent| **extent != -1)
        .try_fold(1usize, |product, extent| {
            product.checked_mul(usize::try_from(*extent).ok()?)
        });
    let known = known.ok_or_else(refused)?;
    let unknown = shape.iter().filter(|extent| **extent == -1).count();
    let rest = match unknown {
        0 if known == len => 1,
        1 if known != 0 && len % known == 0 => len / known,
        _ => return Err(refused()),
    };
    let shape: Vec<usize> = shape
        .iter()
        .map(|extent| usize::try_from(*extent).unwrap_or(rest))
        .collect();
    if layout.is_empty() || layout.is_c_contiguous() {
        return Ok(Layout::c_contiguous(&shape, layout.item_size())?);
    }
    let strides = strides_without_copy(layout, &shape).ok_or_else(|| {
        Failure::invalid(format!(
            "the elements of {:?} with the strides {:?} have no view of the shape {shape:?}: copy() first",
            layout.shape(),
            layout.strides()
        ))
    })?;
    Ok(Layout::strided(&shape, &strides, layout.item_size())?)
}

/// The strides of another shape on the same memory. Runs of dimensions with as many elements on both
/// sides are matched; the old ones of a run have to follow each other.
fn strides_without_copy(layout: &Layout, shape: &[usize]) -> Option<Vec<isize>> {
    let old: Vec<(usize, isize)> = layout
        .shape()
        .iter()
        .copied()
        .zip(layout.strides().iter().copied())
        .filter(|(extent, _)| *extent != 1)
        .collect();
    let mut strides = vec![0isize; shape.len()];
    let (mut next_old, mut next_new) = (0, 0);
    while next_old < old.len() && next_new < shape.len() {
        let (begin_old, begin_new) = (next_old, next_new);
        let (mut of_old, mut of_new) = (old[next_old].0, shape[next_new]);
        while of_old != of_new {
            if of_new < of_old {
                next_new += 1;
                of_new *= *shape.get(next_new)?;
            } else {
                next_old += 1;
                of_old *= old.get(next_old)?.0;
            }
        }
        for pair in old[begin_old..=next_old].windows(2) {
            if pair[0].1 != pair[1].1.checked_mul(isize::try_from(pair[1].0).ok()?)? {
                return None;
            }
        }
        let mut stride = old[next_old].1;
        for index in (begin_new..=next_new).rev() {
            strides[index] = stride;
            stride = stride.checked_mul(isize::try_from(shape[index]).ok()?)?;
        }
        next_old += 1;
        next_new += 1;
    }
    // What is left has an extent of 1.
    let item = isize::try_from(layout.item_size()).ok()?;
    for index in next_new..shape.len() {
        strides[index] = match index.checked_sub(1) {
            Some(before) => strides[before],
            None => item,
        };
    }
    Some(strides)
}

/// The layout with each extent of 1 repeated as often as another shape says; none if it cannot be.
pub(crate) fn broadcast(layout: &Layout, shape: &[usize]) -> Option<Layout> {
    let added = shape.len().checked_sub(layout.shape().len())?;
    let mut strides = vec![0; added];
    for ((extent, stride), wanted) in layout
        .shape()
        .iter()
        .zip(layout.strides())
        .zip(&shape[added..])
    {
        strides.push(match (*extent, *wanted) {
            (extent, wanted) if extent == wanted => *stride,
            (1, _) => 0,
            _ => return None,
        });
    }
    Layout::strided(shape, &strides, layout.item_size()).ok()
}
