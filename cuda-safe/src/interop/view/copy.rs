//! Copies of arrays of several dimensions, and setting them.
//!
//! An array whose elements lie one behind the other is copied as a slice is, others as boxes, by one
//! call of the driver; what is no box is refused.

use super::{ArrayView, ArrayViewMut};
use crate::error::Result;
use crate::interop::layout::{Layout, boxes, no_view};
use crate::memory::{DeviceSlice, DeviceSliceMut};
use bytemuck::{AnyBitPattern, NoUninit};

/// The layout of an array on the host, without gaps.
fn of_host(layout: &Layout, len: usize) -> Result<Layout> {
    if layout.len() != Some(len) {
        let problem = format!("{len} elements on the host for {:?}", layout.shape());
        return Err(no_view("copy", problem).into());
    }
    Ok(Layout::c_contiguous(layout.shape(), layout.item_size())?)
}

impl<'a, T> ArrayView<'a, T> {
    /// From the first element to the last, with what lies between them, which may be others': for boxes,
    /// which leave that alone. They have no negative stride.
    fn span(&self) -> DeviceSlice<'a, T> {
        let end = usize::try_from(self.layout().byte_range().end).unwrap_or(0);
        let len = end.checked_div(size_of::<T>()).unwrap_or(0);
        DeviceSlice::new(self.as_raw(), len, self.stream())
    }
}

impl<T: AnyBitPattern> ArrayView<'_, T> {
    /// Copies the elements, in the order of the array (the last dimension varies fastest), into `slice`:
    /// [`DeviceSlice::copy_to_slice`], or [`DeviceSlice::copy_box_to_slice`].
    ///
    /// # Errors
    /// As there; [`Invalid::View`](crate::Invalid::View) if there is another number of elements, or they are no box.
    pub fn copy_to_slice(&self, slice: &mut [T]) -> Result<()> {
        let host = of_host(self.layout(), slice.len())?;
        if let Some(elements) = self.as_slice() {
            return elements.copy_to_slice(slice);
        }
        let (extent, [from, to]) = boxes([self.layout(), &host])?;
        self.span().copy_box_to_slice(extent, from, slice, to)
    }

    /// A copy of the elements in the order of the array, after a wait.
    ///
    /// # Errors
    /// As for [`copy_to_slice`](Self::copy_to_slice); [`Invalid::View`](crate::Invalid::View) if they are more than can be
    /// addressed.
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
    /// As for [`ArrayView`].
    fn span(&mut self) -> DeviceSliceMut<'_, T> {
        let span = self.whole().span();
        DeviceSliceMut::new(span.as_raw(), span.len(), self.stream())
    }

    /// Copies `slice`, whose elements are in the order of the array, here, and waits:
    /// [`DeviceSliceMut::copy_from_slice`], or [`DeviceSliceMut::copy_box_from_slice`].
    ///
    /// # Errors
    /// As there; [`Invalid::View`](crate::Invalid::View) if there is another number of elements, or they are no box.
    pub fn copy_from_slice(&mut self, slice: &[T]) -> Result<()>
    where
        T: NoUninit,
    {
        let host = of_host(self.layout(), slice.len())?;
        if let Some(mut elements) = self.as_mut_slice() {
            return elements.copy_from_slice(slice);
        }
        let (extent, [to, from]) = boxes([self.layout(), &host])?;
        self.span().copy_box_from_slice(extent, to, slice, from)
    }

    /// Copies an array of the same shape here, in the order of the stream of both:
    /// [`DeviceSliceMut::copy_from`], or [`DeviceSliceMut::copy_box_from`].
    ///
    /// # Errors
    /// As there; [`Invalid::View`](crate::Invalid::View) if the shapes differ, or they are no boxes.
    pub fn copy_from<'a>(&mut self, source: impl Into<ArrayView<'a, T>>) -> Result<()>
    where
        T: 'a,
    {
        let source = source.into();
        let (its, whole) = (source.layout().shape(), self.layout().shape());
        if its != whole {
            let problem = format!("of {its:?} to {whole:?}");
            return Err(no_view("copy", problem).into());
        }
        if let (Some(mut to), Some(from)) = (self.as_mut_slice(), source.as_slice()) {
            return to.copy_from(from);
        }
        let (extent, [to, from]) = boxes([self.layout(), source.layout()])?;
        self.span().copy_box_from(extent, to, source.span(), from)
    }

    /// Sets all elements to one value, in the order of the stream: [`DeviceSliceMut::fill`], or
    /// [`DeviceSliceMut::fill_box`].
    ///
    /// # Errors
    /// As there; [`Invalid::View`](crate::Invalid::View) if they are no box.
    pub fn fill(&mut self, value: T) -> Result<()>
    where
        T: NoUninit,
    {
        if let Some(mut elements) = self.as_mut_slice() {
            return elements.fill(value);
        }
        let (extent, [region]) = boxes([self.layout()])?;
        self.span().fill_box(extent, region, value)
    }
}
