//! Views: indexing, transposition and reshaping with NumPy's rules.

use crate::error::{Failure, Result};
use cuda_safe::interop::Layout;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PySlice, PyString, PyTuple};

/// A view of an array: the offset in bytes of its first element, and its layout.
pub(crate) struct View {
    pub(crate) offset: isize,
    pub(crate) layout: Layout,
}

fn index_error(message: String) -> Failure {
    pyo3::exceptions::PyIndexError::new_err(message).into()
}

/// Returns the view for a basic index: integers, slices, `...` and `None`, or a tuple of them.
pub(crate) fn index(layout: &Layout, key: &Bound<'_, PyAny>) -> Result<View> {
    let keys: Vec<Bound<'_, PyAny>> = match key.cast::<PyTuple>() {
        Ok(keys) => keys.iter().collect(),
        Err(_) => vec![key.clone()],
    };
    let is_ellipsis = |key: &Bound<'_, PyAny>| key.is_instance_of::<PyEllipsis>();
    let taken = keys.iter().filter(|key| !key.is_none() && !is_ellipsis(key)).count();
    let dimensions = layout.shape().len();
    let Some(left) = dimensions.checked_sub(taken) else {
        return Err(index_error(format!(
            "{taken} indices for an array of {dimensions} dimensions"
        )));
    };
    let ellipses = keys.iter().filter(|key| is_ellipsis(key)).count();
    if ellipses > 1 {
        return Err(index_error("an index can have at most one ellipsis (...)".to_owned()));
    }

    let mut all = layout.shape().iter().copied().zip(layout.strides().iter().copied());
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
    // An empty view has no first element.
    let offset = if is_empty || layout.is_empty() { 0 } else { offset };
    let layout = written(&shape, &strides, layout.item_size())?;
    Ok(View { offset, layout })
}

/// Returns the layout of a view. The strides of an empty view may have any value.
fn written(shape: &[usize], strides: &[isize], item_size: usize) -> Result<Layout> {
    Ok(Layout::strided(shape, strides, item_size)?)
}

/// Converts an index; negative indices count from the end.
fn number(key: &Bound<'_, PyAny>, extent: usize) -> Result<isize> {
    let refused = || {
        Failure::from(pyo3::exceptions::PyTypeError::new_err(
            "an index must be an integer, a slice, ... or None, or a tuple of these, or the name of a \
             field: other indices would not return views",
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

/// Returns the name of a field if the index is a string.
pub(crate) fn field_name<'a>(key: &'a Bound<'_, PyAny>) -> Option<&'a Bound<'a, PyString>> {
    key.cast::<PyString>().ok()
}

/// Permutes the dimensions by `axes`, or reverses them if it is None.
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
                Failure::invalid(format!("{axes:?} is not a permutation of the {dimensions} axes"))
            })?
        }
    };
    let shape: Vec<usize> = axes.iter().map(|axis| layout.shape()[*axis]).collect();
    let strides: Vec<isize> = axes.iter().map(|axis| layout.strides()[*axis]).collect();
    Ok(Layout::strided(&shape, &strides, layout.item_size())?)
}

/// Returns the layout with another shape and the same elements in C order. One extent may be -1.
pub(crate) fn reshape(layout: &Layout, shape: &[isize]) -> Result<Layout> {
    let len = layout.len().unwrap_or(0);
    let refused = || {
        Failure::invalid(format!(
            "{shape:?} is not a shape for the {len} elements of {:?}",
            layout.shape()
        ))
    };
    let known: Option<usize> = shape
        .iter()
        .filter(|extent| **extent != -1)
        .try_fold(1usize, |product, extent| product.checked_mul(usize::try_from(*extent).ok()?));
    let known = known.ok_or_else(refused)?;
    let unknown = shape.iter().filter(|extent| **extent == -1).count();
    let rest = match unknown {
        0 if known == len => 1,
        1 if known != 0 && len % known == 0 => len / known,
        _ => return Err(refused()),
    };
    let shape: Vec<usize> =
        shape.iter().map(|extent| usize::try_from(*extent).unwrap_or(rest)).collect();
    if layout.is_empty() || layout.is_c_contiguous() {
        return Ok(Layout::c_contiguous(&shape, layout.item_size())?);
    }
    let strides = strides_without_copy(layout, &shape).ok_or_else(|| {
        Failure::invalid(format!(
            "an array of shape {:?} with strides {:?} has no view of the shape {shape:?}: \
             call copy() first",
            layout.shape(),
            layout.strides()
        ))
    })?;
    Ok(Layout::strided(&shape, &strides, layout.item_size())?)
}

/// Returns the strides of another shape on the same memory. It matches runs of dimensions with the
/// same number of elements in both shapes; the old dimensions of a run must be contiguous.
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
    // The remaining extents are 1.
    let item = isize::try_from(layout.item_size()).ok()?;
    for index in next_new..shape.len() {
        strides[index] = match index.checked_sub(1) {
            Some(before) => strides[before],
            None => item,
        };
    }
    Some(strides)
}

/// Broadcasts a layout to another shape by repeating extents of 1. Returns None if this is not
/// possible.
pub(crate) fn broadcast(layout: &Layout, shape: &[usize]) -> Option<Layout> {
    let added = shape.len().checked_sub(layout.shape().len())?;
    let mut strides = vec![0; added];
    for ((extent, stride), wanted) in
        layout.shape().iter().zip(layout.strides()).zip(&shape[added..])
    {
        strides.push(match (*extent, *wanted) {
            (extent, wanted) if extent == wanted => *stride,
            (1, _) => 0,
            _ => return None,
        });
    }
    Layout::strided(shape, &strides, layout.item_size()).ok()
}
