//! Several ranges of managed memory in one call.

use super::ManagedRange;
use crate::call::{call, without_current};
use crate::error::Result;
use crate::memory::MemoryLocation;
use crate::stream::Stream;
use cuda_sys::{CUdeviceptr, CUmemLocation, CUstream};

/// The lists that the driver takes for a batch; what has no byte is left out.
#[derive(Default)]
struct Batch {
    addresses: Vec<CUdeviceptr>,
    sizes: Vec<usize>,
    locations: Vec<CUmemLocation>,
    /// The first range of each location: each range has a location of its own.
    firsts: Vec<usize>,
}

impl Batch {
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
    /// `cuMemPrefetchBatchAsync(…)`: moves parts of managed memory, each to its place, in the order
    /// of this stream, which all of them are bound to.
    ///
    /// # Errors
    /// [`Invalid::OtherStream`](crate::Invalid::OtherStream); `CUDA_ERROR_INVALID_DEVICE` for a device without concurrent
    /// managed access; the driver is older.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemPrefetchBatchAsync`](fn@cuda_sys::cuMemPrefetchBatchAsync).
    #[doc(alias = "cuMemPrefetchBatchAsync")]
    pub fn prefetch_batch(&self, ranges: &[(ManagedRange<'_>, MemoryLocation)]) -> Result<()> {
        self.give_batch(with_places(ranges), |batch, stream| {
            let Batch {
                addresses,
                sizes,
                locations,
                firsts,
            } = batch;
            // SAFETY: the lists are of the same length, and the ranges managed memory that this
            // stream keeps until it comes to this; moving does not change it.
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

    /// `cuMemDiscardBatchAsync(…)`: forgets what is in parts of managed memory, in the order of
    /// this stream, which all of them are bound to; so that it need not be moved.
    ///
    /// # Errors
    /// As for [`prefetch_batch`](Self::prefetch_batch).
    ///
    /// # Safety
    /// What is in a range is undefined then, and may change by itself, until it is written again.
    /// Up to that nothing reads it, on the device or the host; a slice of
    /// [`ManagedBuffer::host`](crate::ManagedBuffer::host) over it is a read.
    ///
    /// Since CUDA 13.0. Raw: [`cuMemDiscardBatchAsync`](fn@cuda_sys::cuMemDiscardBatchAsync).
    #[doc(alias = "cuMemDiscardBatchAsync")]
    pub unsafe fn discard_batch(&self, ranges: &[ManagedRange<'_>]) -> Result<()> {
        let ranges = ranges.iter().map(|range| (range, None));
        self.give_batch(ranges, |batch, stream| {
            let Batch {
                addresses, sizes, ..
            } = batch;
            // SAFETY: the lists are of the same length, and the ranges managed memory that this
            // stream keeps until it comes to this; the rest is the caller's promise.
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

    /// `cuMemDiscardAndPrefetchBatchAsync(…)`: forgets what is in parts of managed memory and moves
    /// them, each to its place, which costs less than either after the other.
    ///
    /// # Errors
    /// As for [`prefetch_batch`](Self::prefetch_batch).
    ///
    /// # Safety
    /// As for [`discard_batch`](Self::discard_batch).
    ///
    /// Since CUDA 13.0. Raw:
    /// [`cuMemDiscardAndPrefetchBatchAsync`](fn@cuda_sys::cuMemDiscardAndPrefetchBatchAsync).
    #[doc(alias = "cuMemDiscardAndPrefetchBatchAsync")]
    pub unsafe fn discard_and_prefetch_batch(
        &self,
        ranges: &[(ManagedRange<'_>, MemoryLocation)],
    ) -> Result<()> {
        self.give_batch(with_places(ranges), |batch, stream| {
            let Batch {
                addresses,
                sizes,
                locations,
                firsts,
            } = batch;
            // SAFETY: as for a discard.
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

    /// Gives ranges that are bound to this stream to it in one call; none, if there is no byte.
    fn give_batch<'a, 'b: 'a>(
        &self,
        ranges: impl Iterator<Item = (&'a ManagedRange<'b>, Option<MemoryLocation>)>,
        mut give: impl FnMut(&mut Batch, CUstream) -> Result<()>,
    ) -> Result<()> {
        let mut batch = Batch::default();
        for (index, (range, location)) in ranges.enumerate() {
            if range.stream() != self {
                let what = || format!("range {index}");
                return Err(range.stream().other_stream(what, self));
            }
            if batch.push(range) {
                batch.locations.extend(location.map(MemoryLocation::raw));
            }
        }
        if batch.sizes.is_empty() {
            return Ok(());
        }
        without_current(self.context(), || give(&mut batch, self.raw()))
    }
}

/// Ranges, each with its place.
fn with_places<'a, 'b: 'a>(
    ranges: &'a [(ManagedRange<'b>, MemoryLocation)],
) -> impl Iterator<Item = (&'a ManagedRange<'b>, Option<MemoryLocation>)> {
    ranges.iter().map(|(range, place)| (range, Some(*place)))
}
