//! Copies and fills of multidimensional arrays.
//!
//! A contiguous array is copied like a slice. Another array is copied as a two- or
//! three-dimensional region with one driver call; an array that cannot be described as such a
//! region is refused.

use super::{ArrayView, ArrayViewMut};
use crate::call::Result;
use crate::interop::Layout;
use crate::interop::layout::{no_view, regions};
use crate::memory::{DeviceSlice, DeviceSliceMut};
use bytemuck::{AnyBitPattern, NoUninit};

/// Returns the contiguous layout of an array on the host.
#[inline]
fn host_layout(layout: &Layout, len: usize) -> Result<Layout> {
    if layout.len() != Some(len) {
        let problem = format!("{len} elements on the host for {:?}", layout.shape());
        return Err(no_view("copy", problem).into());
    }
    Ok(Layout::c_contiguous(layout.shape(), layout.item_size())?)
}

impl<'a, T> ArrayView<'a, T> {
    /// Returns the memory from the first element to the last, including gaps, which may belong to
    /// others. It is only used for strided copies, which skip the gaps. No stride is negative here.
    fn span(&self) -> DeviceSlice<'a, T> {
        let end = usize::try_from(self.layout().byte_range().end).unwrap_or(0);
        let len = end.checked_div(size_of::<T>()).unwrap_or(0);
        DeviceSlice::new(self.as_raw(), len, self.stream())
    }
}

impl<T: AnyBitPattern> ArrayView<'_, T> {
    /// Copies the elements to `slice`. Blocks the host until the copy and all earlier work on the
    /// stream have completed.
    ///
    /// The elements are in the order of the array, in which the last dimension varies fastest.
    /// Calls [`DeviceSlice::copy_to_slice`] or [`DeviceSlice::copy_3d_to_slice`].
    ///
    /// # Errors
    /// See these functions. Also [`Invalid::View`](crate::Invalid::View) if the numbers of elements
    /// differ, or if the driver cannot copy these strides with one call.
    pub fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        let host = host_layout(self.layout(), slice.len())?;
        if let Some(elements) = self.as_slice() {
            return elements.copy_to_slice(slice);
        }
        let (extent, [from, to]) = regions([self.layout(), &host])?;
        self.span().copy_3d_to_slice(extent, from, slice, to)
    }

    /// Copies the elements to a vector, in the order of the array. Blocks the host until the copy
    /// and all earlier work on the stream have completed.
    ///
    /// # Errors
    /// See [`copy_to_slice`](Self::copy_to_slice). Also [`Invalid::View`](crate::Invalid::View) if
    /// the elements exceed the address space.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let len = self.layout().len().filter(|len| {
            let bytes = len.checked_mul(size_of::<T>());
            bytes.is_some_and(|bytes| isize::try_from(bytes).is_ok())
        });
        let len = len.ok_or_else(|| {
            let problem = format!("{:?} is more than can be addressed", self.layout().shape());
            no_view("copy", problem)
        })?;
        let mut elements = vec![T::zeroed(); len];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }
}

impl<T> ArrayViewMut<'_, T> {
    /// Returns the memory from the first element to the last, including gaps.
    fn span(&mut self) -> DeviceSliceMut<'_, T> {
        let span = self.view().span();
        DeviceSliceMut::new(span.as_raw(), span.len(), self.stream())
    }

    /// Copies `slice` to the array. Blocks the host until the copy and all earlier work on the
    /// stream have completed.
    ///
    /// The elements of `slice` are in the order of the array. Calls
    /// [`DeviceSliceMut::copy_from_slice`] or [`DeviceSliceMut::copy_3d_from_slice`].
    ///
    /// # Errors
    /// See these functions. Also [`Invalid::View`](crate::Invalid::View) if the numbers of elements
    /// differ, or if the driver cannot copy these strides with one call.
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        let host = host_layout(self.layout(), slice.len())?;
        if let Some(mut elements) = self.as_mut_slice() {
            return elements.copy_from_slice(slice);
        }
        let (extent, [to, from]) = regions([self.layout(), &host])?;
        self.span().copy_3d_from_slice(extent, to, slice, from)
    }

    /// Enqueues a copy of an array of the same shape to this array. Does not block the host.
    ///
    /// Calls
    /// [`DeviceSliceMut::copy_from`] or [`DeviceSliceMut::copy_3d_from`].
    ///
    /// # Errors
    /// See these functions. Also [`Invalid::View`](crate::Invalid::View) if the shapes differ, or
    /// if the driver cannot copy these strides with one call.
    pub fn copy_from<'a>(&mut self, source: impl Into<ArrayView<'a, T>>) -> Result<()>
    where
        T: 'a,
    {
        let source = source.into();
        let (source_shape, shape) = (source.layout().shape(), self.layout().shape());
        if source_shape != shape {
            let problem = format!("of {source_shape:?} to {shape:?}");
            return Err(no_view("copy", problem).into());
        }
        if let (Some(mut to), Some(from)) = (self.as_mut_slice(), source.as_slice()) {
            return to.copy_from(from);
        }
        let (extent, [to, from]) = regions([self.layout(), source.layout()])?;
        self.span().copy_3d_from(extent, to, source.span(), from)
    }

    /// Sets all elements to `value` in stream order. Calls [`DeviceSliceMut::fill`] or
    /// [`DeviceSliceMut::fill_3d`].
    ///
    /// # Errors
    /// See these functions. Also [`Invalid::View`](crate::Invalid::View) if the driver cannot fill
    /// these strides.
    pub fn fill(&mut self, value: T) -> Result<()>
    where
        T: NoUninit,
    {
        if let Some(mut elements) = self.as_mut_slice() {
            return elements.fill(value);
        }
        let (extent, [region]) = regions([self.layout()])?;
        self.span().fill_3d(extent, region, value)
    }
}
