//! Borrowed arrays, levels, and parts of them.

use super::array_error;
use super::owned::Array;
use super::owned::MipmappedArray;
use super::shape::{ArrayOptions, ArrayShape};
use crate::call::{Extent, Result, debug_struct};
use crate::memory::copy::volume::Side;
use crate::release::Handle;
use crate::stream::Stream;
use cuda_sys::CUarray;
use std::fmt;
use std::marker::PhantomData;

/// A borrowed [`Array`], a level of a [`MipmappedArray`], or a part of one, for reading.
///
/// It is bound to the stream of the array. Functions that take `impl Into<ArrayRef>` also accept
/// `&Array`.
pub struct ArrayRef<'a, T> {
    raw: Handle<CUarray>,
    /// The first texel.
    at: [usize; 3],
    extent: Extent,
    /// The shape of the whole array or level.
    shape: ArrayShape,
    options: ArrayOptions,
    stream: &'a Stream,
    texels: PhantomData<&'a T>,
}

/// A mutably borrowed [`Array`], a level of a [`MipmappedArray`], or a part of one.
///
/// It is bound to the stream of the array.
pub struct ArrayMut<'a, T> {
    whole: ArrayRef<'a, T>,
    texels: PhantomData<&'a mut T>,
}

impl<'a, T> ArrayRef<'a, T> {
    pub(super) fn new(
        raw: Handle<CUarray>,
        shape: ArrayShape,
        options: ArrayOptions,
        stream: &'a Stream,
    ) -> Self {
        Self {
            raw,
            at: [0; 3],
            extent: shape.extent(),
            shape,
            options,
            stream,
            texels: PhantomData,
        }
    }

    /// Returns a part of this: the texels from `[x, y, z]` on. Layers and faces are slices, which `z`
    /// counts.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array) if the part is not within this.
    pub fn part(mut self, [x, y, z]: [usize; 3], extent: Extent) -> Result<Self> {
        let whole = self.extent;
        let fits = |at: usize, len: usize, all| at.checked_add(len).is_some_and(|end| end <= all);
        if !fits(x, extent.width, whole.width)
            || !fits(y, extent.height, whole.height)
            || !fits(z, extent.depth, whole.depth)
        {
            let problem = format!("{extent:?} at {:?} is not within {whole:?}", [x, y, z]);
            return Err(array_error("the part", problem));
        }
        self.at = [self.at[0] + x, self.at[1] + y, self.at[2] + z];
        self.extent = extent;
        Ok(self)
    }

    /// Returns the number of texels along each dimension.
    pub fn extent(&self) -> Extent {
        self.extent
    }

    /// Returns the shape of the whole array or level.
    pub fn shape(&self) -> ArrayShape {
        self.shape
    }

    /// Returns the options that the array was created with.
    pub fn options(&self) -> ArrayOptions {
        self.options
    }

    /// Returns the number of texels.
    pub fn len(&self) -> usize {
        self.extent.width * self.extent.height * self.extent.depth
    }

    /// Returns whether there are no texels.
    pub fn is_empty(&self) -> bool {
        self.extent.is_empty()
    }

    /// Returns the stream that the array is bound to.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Returns the raw handle of the array or level. Do not destroy it.
    pub fn as_raw(&self) -> CUarray {
        self.raw.0
    }

    /// Returns the position of the first texel in the array or level.
    pub(super) fn side(&self) -> Side {
        Side::of_array(self.raw.0, self.at)
    }

    /// Checks the extent of the source of a copy to texels with the extent `target`.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array).
    pub(crate) fn expect_extent(&self, target: Extent) -> Result<()> {
        if self.extent == target {
            return Ok(());
        }
        let problem = format!("{:?} is copied to {target:?}", self.extent);
        Err(array_error("the extent of the source", problem))
    }

    /// Checks that this is the whole array or level, as the objects of kernels require.
    ///
    /// # Errors
    /// [`Invalid::Array`](crate::Invalid::Array).
    pub(super) fn expect_whole(&self) -> Result<()> {
        if self.extent == self.shape.extent() {
            return Ok(());
        }
        let problem = "a texture or surface object accesses a whole array or level";
        Err(array_error("the part", problem))
    }
}

impl<'a, T> ArrayMut<'a, T> {
    pub(super) fn new(whole: ArrayRef<'a, T>) -> Self {
        Self { whole, texels: PhantomData }
    }

    /// Borrows the same texels for reading.
    pub fn as_ref(&self) -> ArrayRef<'_, T> {
        self.whole
    }

    /// Borrows the same texels for reading and writing, with a shorter lifetime.
    pub fn reborrow(&mut self) -> ArrayMut<'_, T> {
        ArrayMut::new(self.whole)
    }

    /// Returns a part of this. See [`ArrayRef::part`].
    ///
    /// # Errors
    /// See [`ArrayRef::part`].
    pub fn part(self, at: [usize; 3], extent: Extent) -> Result<Self> {
        Ok(Self::new(self.whole.part(at, extent)?))
    }

    /// Returns the number of texels along each dimension.
    pub fn extent(&self) -> Extent {
        self.whole.extent
    }

    /// Returns the shape of the whole array or level.
    pub fn shape(&self) -> ArrayShape {
        self.whole.shape
    }

    /// Returns the options that the array was created with.
    pub fn options(&self) -> ArrayOptions {
        self.whole.options
    }

    /// Returns the number of texels.
    pub fn len(&self) -> usize {
        self.whole.len()
    }

    /// Returns whether there are no texels.
    pub fn is_empty(&self) -> bool {
        self.whole.is_empty()
    }

    /// Returns the stream that the array is bound to.
    pub fn stream(&self) -> &'a Stream {
        self.whole.stream
    }

    /// Returns the raw handle of the array or level. Do not destroy it.
    pub fn as_raw(&self) -> CUarray {
        self.whole.raw.0
    }
}

impl<T> Clone for ArrayRef<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for ArrayRef<'_, T> {}

impl<'a, T> From<&'a Array<T>> for ArrayRef<'a, T> {
    fn from(array: &'a Array<T>) -> Self {
        array.as_ref()
    }
}

impl<'a, T> From<ArrayMut<'a, T>> for ArrayRef<'a, T> {
    fn from(array: ArrayMut<'a, T>) -> Self {
        array.whole
    }
}

impl<'a, T> From<&'a mut Array<T>> for ArrayMut<'a, T> {
    fn from(array: &'a mut Array<T>) -> Self {
        array.as_mut()
    }
}

debug_struct! {
    [T] ArrayRef<'_, T> |its| {
        raw: its.raw.0, texel: std::any::type_name::<T>(), shape: its.shape, at: its.at, extent: its.extent,
        stream: its.stream, ..
    }
}

impl<T> fmt::Debug for ArrayMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ArrayMut").field(&self.whole).finish()
    }
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Array").field(&self.as_ref()).finish()
    }
}

debug_struct! {
    [T] MipmappedArray<T> |its| {
        raw: its.as_raw(), texel: std::any::type_name::<T>(), shape: its.shape(), levels: its.levels(),
        stream: its.stream(), ..
    }
}
