//! Operations on several ranges of managed memory in one call.

use super::ManagedRange;
use crate::call::{Result, call, without_current};
use crate::memory::MemoryLocation;
use crate::stream::{Stream, same_stream};
use cuda_sys::{CUdeviceptr, CUmemLocation, CUstream};

/// The argument lists of a batched driver call. Empty ranges are left out.
#[derive(Default)]
struct Batch {
    addresses: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    locations: Vec<CUmemLocation>,
    /// The index of the first range for each location. Every range has its own location.
    firsts: Vec<usize>,
}

impl Batch {
    #[inline]
    fn push(&mut self, range: &ManagedRange<'_>) -> bool {
        if range.size_bytes() == 0 {
            return false;
        }
        self.firsts.push(self.addresses.len());
        self.addresses.push(range.as_raw());
        self.sizes.push(range.size_bytes());
        true
    }
}

impl Stream {
    /// Enqueues migrations of several managed ranges, each to its own location.
    ///
    /// Calls `cuMemPrefetchBatchAsync(…)`. All ranges must be bound to this stream.
    ///
    /// # Errors
    /// - [`Invalid::OtherStream`](crate::Invalid::OtherStream) if a range is bound to another
    ///   stream.
    /// - `CUDA_ERROR_INVALID_DEVICE` for a device without concurrent managed access.
    /// - `CUDA_ERROR_INVALID_VALUE` on the legacy default stream.
    /// - [`Error::Missing`](crate::Error::Missing) on a driver before CUDA 13.0.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemPrefetchBatchAsync`](fn@cuda_sys::cuMemPrefetchBatchAsync).
    #[doc(alias = "cuMemPrefetchBatchAsync")]
    #[inline]
    pub fn prefetch_batch(&self, ranges: &[(ManagedRange<'_>, MemoryLocation)]) -> Result<()> {
        self.enqueue_batch(with_locations(ranges), |batch, stream| {
            let Batch { addresses, sizes, locations, firsts } = batch;
            // SAFETY: the lists have the same length. The ranges are managed memory, which stays
            // allocated until this stream has run the prefetch. Migration does not change the
            // contents.
            unsafe {
                call!(cuMemPrefetchBatchAsync(
                    addresses.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    sizes.len(),
                    locations.as_mut_ptr(),
                    firsts.as_mut_ptr(),
                    locations.len(),
                    0,
                    stream
                ))
            }
        })
    }

    /// Enqueues a discard of the contents of several managed ranges, so that the contents need not
    /// be migrated.
    ///
    /// Calls `cuMemDiscardBatchAsync(…)`. All ranges must be bound to this stream.
    ///
    /// # Errors
    /// See [`prefetch_batch`](Self::prefetch_batch).
    ///
    /// # Safety
    /// After a discard, the contents of a range are undefined and may change at any time until the
    /// range is written again. Until then, no device or host code may read the range. Creating a
    /// slice over the range with [`ManagedBuffer::host`](crate::memory::ManagedBuffer::host) counts as a
    /// read.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemDiscardBatchAsync`](fn@cuda_sys::cuMemDiscardBatchAsync).
    #[doc(alias = "cuMemDiscardBatchAsync")]
    #[inline]
    pub unsafe fn discard_batch(&self, ranges: &[ManagedRange<'_>]) -> Result<()> {
        let ranges = ranges.iter().map(|range| (range, None));
        self.enqueue_batch(ranges, |batch, stream| {
            let Batch { addresses, sizes, .. } = batch;
            // SAFETY: the lists have the same length. The ranges are managed memory, which stays
            // allocated until this stream has run the discard. The caller guarantees that discarded
            // contents are not read.
            unsafe {
                call!(cuMemDiscardBatchAsync(
                    addresses.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    sizes.len(),
                    0,
                    stream
                ))
            }
        })
    }

    /// Enqueues a discard of the contents of several managed ranges and their migration, each to
    /// its own location.
    ///
    /// Calls `cuMemDiscardAndPrefetchBatchAsync(…)`, which costs less than a discard followed by a
    /// prefetch. All ranges must be bound to this stream.
    ///
    /// # Errors
    /// See [`prefetch_batch`](Self::prefetch_batch).
    ///
    /// # Safety
    /// See [`discard_batch`](Self::discard_batch).
    ///
    /// Since CUDA 13.0. Raw:
    /// [`cuMemDiscardAndPrefetchBatchAsync`](fn@cuda_sys::cuMemDiscardAndPrefetchBatchAsync).
    #[doc(alias = "cuMemDiscardAndPrefetchBatchAsync")]
    #[inline]
    pub unsafe fn discard_and_prefetch_batch(
        &self,
        ranges: &[(ManagedRange<'_>, MemoryLocation)],
    ) -> Result<()> {
        self.enqueue_batch(with_locations(ranges), |batch, stream| {
            let Batch { addresses, sizes, locations, firsts } = batch;
            // SAFETY: the lists have the same length. The ranges are managed memory, which stays
            // allocated until this stream has run the call. The caller guarantees that discarded
            // contents are not read.
            unsafe {
                call!(cuMemDiscardAndPrefetchBatchAsync(
                    addresses.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    sizes.len(),
                    locations.as_mut_ptr(),
                    firsts.as_mut_ptr(),
                    locations.len(),
                    0,
                    stream
                ))
            }
        })
    }

    /// Enqueues an operation on ranges that are bound to this stream, in one call. Makes no call if
    /// all ranges are empty.
    fn enqueue_batch<'a, 'b: 'a>(
        &self,
        ranges: impl Iterator<Item = (&'a ManagedRange<'b>, Option<MemoryLocation>)>,
        mut enqueue: impl FnMut(&mut Batch, CUstream) -> Result<()>,
    ) -> Result<()> {
        let mut batch = Batch::default();
        for (index, (range, location)) in ranges.enumerate() {
            same_stream(format_args!("range {index}"), range.stream(), self)?;
            if batch.push(range) {
                batch.locations.extend(location.map(MemoryLocation::raw));
            }
        }
        if batch.sizes.is_empty() {
            return Ok(());
        }
        without_current(self.context(), || enqueue(&mut batch, self.raw()))
    }
}

/// Pairs each range with its location.
#[inline]
fn with_locations<'a, 'b: 'a>(
    ranges: &'a [(ManagedRange<'b>, MemoryLocation)],
) -> impl Iterator<Item = (&'a ManagedRange<'b>, Option<MemoryLocation>)> {
    ranges.iter().map(|(range, place)| (range, Some(*place)))
}
