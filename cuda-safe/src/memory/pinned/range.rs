//! Parts of pinned memory that asynchronous copies own one by one.

use super::PinnedBuffer;
use crate::call::{Error, Invalid, Rejected, Result, refuse_in_host_function};
use crate::context::Context;
use crate::event::Event;
use crate::stream::Stream;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// An owned part of a [`PinnedBuffer`]. It dereferences to a slice of `T`.
///
/// [`PinnedBuffer::into_chunks`] and [`PinnedBuffer::into_range`] divide a buffer into ranges, and
/// [`join`](Self::join) returns the buffer. The ranges of a buffer are disjoint, so each can be in
/// a copy of its own at the same time, on any stream. The copy owns its range
/// ([`DeviceSliceMut::copy_from_pinned`], [`DeviceSlice::copy_to_pinned`]), and [`Pending::synchronize`]
/// waits for this copy only and returns the range.
///
/// The ranges share the memory, which is freed when the last one is dropped. A range that is
/// forgotten, or leaked because the wait for its copy failed, keeps the memory allocated.
///
/// [`DeviceSlice::copy_to_pinned`]: crate::DeviceSlice::copy_to_pinned
/// [`DeviceSliceMut::copy_from_pinned`]: crate::DeviceSliceMut::copy_from_pinned
/// [`Pending::synchronize`]: crate::memory::Pending::synchronize
///
/// ```no_run
/// use cuda_safe::{Context, Device, DeviceBuffer, PinnedBuffer};
/// use cuda_safe::memory::PinnedRange;
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let mut ranges = PinnedBuffer::<u32>::zeroed(&context, 2000)?.into_chunks(1000)?;
/// let mut buffer = DeviceBuffer::<u32>::uninit(&stream, 2000)?;
/// let mut copies = Vec::new();
/// for (mut part, mut range) in buffer.chunks_exact_mut(1000)?.zip(ranges.drain(..)) {
///     range.fill(7);
///     copies.push(part.copy_from_pinned(range)?);
/// }
/// for copy in copies {
///     ranges.push(copy.synchronize()?);
/// }
/// let host = PinnedRange::join(ranges)?;
/// assert_eq!(*host, [7; 2000]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct PinnedRange<T> {
    start: NonNull<T>,
    len: usize,
    /// The whole buffer, whose elements are accessed only through its ranges.
    whole: Arc<PinnedBuffer<T>>,
    /// Recorded after each copy, in the context of the copy's stream. Created by the first copy.
    copied: Option<Event>,
}

// SAFETY: a range owns its elements, as a `PinnedBuffer<T>` does. The buffer that the ranges share
// is only released, by the last of them; its elements need no drop.
unsafe impl<T: Send> Send for PinnedRange<T> {}
// SAFETY: as above. A shared range only borrows its elements.
unsafe impl<T: Sync> Sync for PinnedRange<T> {}

impl<T> PinnedBuffer<T> {
    /// Converts the buffer into one range with all elements, which [`PinnedRange::split_off`]
    /// divides.
    pub fn into_range(self) -> PinnedRange<T> {
        PinnedRange { start: self.start, len: self.len, whole: Arc::new(self), copied: None }
    }

    /// Divides the buffer into ranges of `len` elements. If the length of the buffer is not a
    /// multiple of `len`, the last range is shorter. An empty buffer becomes one empty range.
    ///
    /// # Errors
    /// [`Invalid::EmptyChunks`] if `len` is 0. The buffer is then dropped.
    pub fn into_chunks(self, len: usize) -> Result<Vec<PinnedRange<T>>> {
        if len == 0 {
            return Err(Invalid::EmptyChunks.into());
        }
        let mut ranges = Vec::with_capacity(self.len.div_ceil(len));
        let mut rest = self.into_range();
        while rest.len > len {
            let others = rest.divide(len);
            ranges.push(std::mem::replace(&mut rest, others));
        }
        ranges.push(rest);
        Ok(ranges)
    }
}

impl<T> PinnedRange<T> {
    /// Returns a range without elements, which needs no memory.
    pub(crate) fn empty(context: &Context) -> Self {
        PinnedBuffer::empty(context).into_range()
    }

    /// Joins the ranges of a buffer and returns the buffer. They may be given in any order, and
    /// ranges that were dropped may be missing.
    ///
    /// # Errors
    /// On an error, the ranges are dropped. [`try_join`](Self::try_join) returns them with the error.
    ///
    /// - [`Invalid::SeveralBuffers`] if the ranges are parts of different buffers.
    /// - [`Invalid::MissingRanges`] if there are other ranges of the buffer, for example in copies,
    ///   or if no range was given.
    pub fn join(ranges: impl IntoIterator<Item = Self>) -> Result<PinnedBuffer<T>> {
        Ok(Self::try_join(ranges)?)
    }

    /// Does the same as [`join`](Self::join), but returns the unchanged ranges with the error.
    ///
    /// # Errors
    /// See [`join`](Self::join).
    pub fn try_join(
        ranges: impl IntoIterator<Item = Self>,
    ) -> Result<PinnedBuffer<T>, Rejected<Vec<Self>>> {
        let ranges: Vec<Self> = ranges.into_iter().collect();
        let ((), mut ranges) = Rejected::unless(can_join(&ranges), ranges)?;
        let last = ranges.pop();
        drop(ranges);
        match last.map(|range| Arc::try_unwrap(range.whole)) {
            Some(Ok(buffer)) => Ok(buffer),
            // Not reached: these were all ranges of the buffer.
            _ => Err(Rejected::new(missing(0, 0), Vec::new())),
        }
    }

    /// Divides the range into two at `middle`: this range keeps the elements before `middle`, and the
    /// returned range has the rest, as in [`Vec::split_off`].
    ///
    /// # Errors
    /// [`Invalid::Range`] if `middle` is greater than the length. The range is then unchanged.
    pub fn split_off(&mut self, middle: usize) -> Result<Self> {
        if middle > self.len {
            return Err(Invalid::Range { start: middle, end: self.len, len: self.len }.into());
        }
        Ok(self.divide(middle))
    }

    /// [`split_off`](Self::split_off) for a `middle` that is known to be at most the length.
    fn divide(&mut self, middle: usize) -> Self {
        assert!(middle <= self.len);
        let rest = Self {
            // SAFETY: the buffer has `len` elements from `start` on, and `middle` is at most `len`.
            start: unsafe { self.start.add(middle) },
            len: self.len - middle,
            whole: Arc::clone(&self.whole),
            copied: None,
        };
        self.len = middle;
        rest
    }

    /// Returns the context in which the memory was allocated or registered.
    pub fn context(&self) -> &Context {
        self.whole.context()
    }

    /// Returns the number of elements without creating a slice, which must not exist while the
    /// device writes.
    pub(crate) fn count(&self) -> usize {
        self.len
    }

    pub(crate) fn start(&self) -> *mut T {
        self.start.as_ptr()
    }

    /// Ensures that there is an event of the stream's context, for a copy on `stream`.
    pub(crate) fn prepare_event(&mut self, stream: &Stream) -> Result<()> {
        let is_there = |event: &Event| event.context() == stream.context();
        if !self.copied.as_ref().is_some_and(is_there) {
            self.copied = Some(stream.context().event_now()?);
        }
        Ok(())
    }

    /// Waits for the last copy.
    pub(crate) fn wait_for_event(&mut self) -> Result<()> {
        let Some(event) = &self.copied else {
            return Ok(());
        };
        refuse_in_host_function()?;
        event.wait_for_record()?;
        // A range does not keep other contexts than its own alive.
        if event.context() != self.whole.context() {
            self.copied = None;
        }
        Ok(())
    }

    /// Returns the event that marks the end of the last copy, or `None` before the first copy.
    pub(crate) fn event(&self) -> Option<&Event> {
        self.copied.as_ref()
    }
}

/// Checks that these are all ranges of one buffer.
fn can_join<T>(ranges: &[PinnedRange<T>]) -> Result<(), Error> {
    let Some(first) = ranges.first() else {
        return Err(missing(0, 0));
    };
    if !ranges.iter().all(|its| Arc::ptr_eq(&its.whole, &first.whole)) {
        return Err(Invalid::SeveralBuffers.into());
    }
    // Only a range can make further ranges of its buffer, and all that are counted are here. So the
    // number can only fall, and not below the number of these ranges.
    let existing = Arc::strong_count(&first.whole);
    if existing != ranges.len() {
        return Err(missing(ranges.len(), existing));
    }
    Ok(())
}

#[inline]
fn missing(given: usize, existing: usize) -> Error {
    Invalid::MissingRanges { given, existing }.into()
}

impl<T> Deref for PinnedRange<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the buffer, which this range keeps allocated, has `len` valid elements from
        // `start` on. No other range has them, no code accesses them through the buffer while it
        // has ranges, and they are borrowed with `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for PinnedRange<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and the elements are borrowed mutably with `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl<T: fmt::Debug> fmt::Debug for PinnedRange<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
