//! Iterators over parts of device memory that have the same length.

use crate::call::{Invalid, Result};
use crate::memory::buffer::slice::{DeviceSlice, DeviceSliceMut};
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;

/// An iterator over consecutive parts of device memory that have the same length.
///
/// [`DeviceSlice::chunks_exact`] and
/// [`DeviceBuffer::chunks_exact`](crate::DeviceBuffer::chunks_exact) return one.
/// [`remainder`](Self::remainder) returns the elements after the last part.
#[must_use = "iterators do nothing unless they are consumed"]
pub struct DeviceChunksExact<'a, T> {
    /// The parts that were not returned yet: a multiple of `chunk`.
    rest: DeviceSlice<'a, T>,
    remainder: DeviceSlice<'a, T>,
    /// The length of a part, at least 1.
    chunk: usize,
}

/// An iterator over consecutive, disjoint parts of mutably borrowed device memory that have the
/// same length.
///
/// [`DeviceSliceMut::chunks_exact_mut`] and
/// [`DeviceBuffer::chunks_exact_mut`](crate::DeviceBuffer::chunks_exact_mut) return one.
/// [`into_remainder`](Self::into_remainder) returns the elements after the last part.
#[must_use = "iterators do nothing unless they are consumed"]
pub struct DeviceChunksExactMut<'a, T> {
    /// Returns each element once, so the parts are disjoint.
    chunks: DeviceChunksExact<'a, T>,
    elements: PhantomData<&'a mut T>,
}

impl<'a, T> DeviceSlice<'a, T> {
    /// Returns an iterator over parts of `len` elements, from the first element on.
    ///
    /// The elements after the last part, fewer than `len`, are the iterator's
    /// [`remainder`](DeviceChunksExact::remainder).
    ///
    /// # Errors
    /// [`Invalid::EmptyChunks`] if `len` is 0.
    pub fn chunks_exact(self, len: usize) -> Result<DeviceChunksExact<'a, T>> {
        if len == 0 {
            return Err(Invalid::EmptyChunks.into());
        }
        let (rest, remainder) = self.halves(self.len() - self.len() % len);
        Ok(DeviceChunksExact { rest, remainder, chunk: len })
    }
}

impl<'a, T> DeviceSliceMut<'a, T> {
    /// Returns an iterator over disjoint parts of `len` elements, from the first element on.
    ///
    /// The elements after the last part, fewer than `len`, are the iterator's
    /// [`into_remainder`](DeviceChunksExactMut::into_remainder).
    ///
    /// # Errors
    /// [`Invalid::EmptyChunks`] if `len` is 0.
    pub fn chunks_exact_mut(self, len: usize) -> Result<DeviceChunksExactMut<'a, T>> {
        Ok(DeviceChunksExactMut {
            chunks: self.into_whole().chunks_exact(len)?,
            elements: PhantomData,
        })
    }
}

impl<'a, T> DeviceChunksExact<'a, T> {
    /// Returns the elements after the last part, which the iterator does not return.
    pub fn remainder(&self) -> DeviceSlice<'a, T> {
        self.remainder
    }
}

impl<'a, T> DeviceChunksExactMut<'a, T> {
    /// Returns the elements after the last part, which the iterator does not return.
    pub fn into_remainder(self) -> DeviceSliceMut<'a, T> {
        DeviceSliceMut::of_whole(self.chunks.remainder)
    }
}

impl<'a, T> Iterator for DeviceChunksExact<'a, T> {
    type Item = DeviceSlice<'a, T>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (first, rest) = self.rest.halves(self.chunk);
        self.rest = rest;
        Some(first)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = self.rest.len() / self.chunk;
        (count, Some(count))
    }
}

impl<T> DoubleEndedIterator for DeviceChunksExact<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let start = self.rest.len().checked_sub(self.chunk)?;
        let (rest, last) = self.rest.halves(start);
        self.rest = rest;
        Some(last)
    }
}

impl<T> ExactSizeIterator for DeviceChunksExact<'_, T> {}

impl<T> FusedIterator for DeviceChunksExact<'_, T> {}

impl<'a, T> Iterator for DeviceChunksExactMut<'a, T> {
    type Item = DeviceSliceMut<'a, T>;

    fn next(&mut self) -> Option<Self::Item> {
        self.chunks.next().map(DeviceSliceMut::of_whole)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.chunks.size_hint()
    }
}

impl<T> DoubleEndedIterator for DeviceChunksExactMut<'_, T> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.chunks.next_back().map(DeviceSliceMut::of_whole)
    }
}

impl<T> ExactSizeIterator for DeviceChunksExactMut<'_, T> {}

impl<T> FusedIterator for DeviceChunksExactMut<'_, T> {}

impl<T> Clone for DeviceChunksExact<'_, T> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<T> DeviceChunksExact<'_, T> {
    fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("rest", &self.rest)
            .field("chunk", &self.chunk)
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for DeviceChunksExact<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("DeviceChunksExact", f)
    }
}

impl<T> fmt::Debug for DeviceChunksExactMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chunks.debug("DeviceChunksExactMut", f)
    }
}
