//! Ranges of managed memory: advice, prefetches, and queries.

use crate::call::{Invalid, Result, answer, call, init, newest_or, without_current};
use crate::device::Device;
use crate::memory::MemoryLocation;
use crate::stream::{Stream, same_stream};
use core::ffi::c_void;
use cuda_sys::{
    CU_DEVICE_INVALID, CUdeviceptr, CUmem_advise, CUmem_range_attribute as Attribute,
    CUmemLocation, CUstream, CudaVersion,
};

/// A borrowed range of bytes of a [`ManagedBuffer`](crate::memory::ManagedBuffer), for advice and
/// prefetches.
///
/// [`ManagedBuffer::range`](crate::memory::ManagedBuffer::range) returns one. Operations on the range
/// migrate the memory but do not change its contents, except for the discards, which are unsafe.
#[derive(Clone, Copy, Debug)]
pub struct ManagedRange<'a> {
    address: CUdeviceptr,
    bytes: usize,
    stream: &'a Stream,
}

/// Advice to the driver on how memory is used (`CUmem_advise`). It affects only when memory
/// migrates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// The memory is read often and written rarely, so each reader may get its own copy.
    ReadMostly,
    /// Reverts [`ReadMostly`](Self::ReadMostly).
    NotReadMostly,
    /// The memory is migrated away from this location only if necessary.
    PreferredLocation(MemoryLocation),
    /// Reverts [`PreferredLocation`](Self::PreferredLocation).
    NoPreferredLocation,
    /// This location accesses the memory, so the memory must always be mapped there.
    AccessedBy(MemoryLocation),
    /// Reverts [`AccessedBy`](Self::AccessedBy) for this location.
    NotAccessedBy(MemoryLocation),
}

/// The advice and the prefetches that apply to all pages of a range. Returned by
/// [`ManagedRange::info`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeInfo {
    /// Whether [`Advice::ReadMostly`] was given.
    pub read_mostly: bool,
    /// The location of [`Advice::PreferredLocation`], if it was given.
    pub preferred_location: Option<MemoryLocation>,
    /// The locations of [`Advice::AccessedBy`].
    pub accessed_by: Vec<MemoryLocation>,
    /// The location of the last prefetch, which may not have completed yet.
    pub last_prefetch: Option<MemoryLocation>,
}

impl Advice {
    #[inline]
    fn raw(self) -> (CUmem_advise, MemoryLocation) {
        // This location is ignored for advice that needs none.
        let none = MemoryLocation::Host;
        match self {
            Self::ReadMostly => (CUmem_advise::CU_MEM_ADVISE_SET_READ_MOSTLY, none),
            Self::NotReadMostly => (CUmem_advise::CU_MEM_ADVISE_UNSET_READ_MOSTLY, none),
            Self::PreferredLocation(location) => {
                (CUmem_advise::CU_MEM_ADVISE_SET_PREFERRED_LOCATION, location)
            }
            Self::NoPreferredLocation => {
                (CUmem_advise::CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, none)
            }
            Self::AccessedBy(location) => (CUmem_advise::CU_MEM_ADVISE_SET_ACCESSED_BY, location),
            Self::NotAccessedBy(location) => {
                (CUmem_advise::CU_MEM_ADVISE_UNSET_ACCESSED_BY, location)
            }
        }
    }
}

impl<'a> ManagedRange<'a> {
    #[inline]
    pub(super) fn new(address: CUdeviceptr, bytes: usize, stream: &'a Stream) -> Self {
        Self { address, bytes, stream }
    }

    /// Returns the address of the first byte.
    #[inline]
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// Returns the size of the range in bytes.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the stream that the memory is bound to.
    #[inline]
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Advises the driver on how the memory is used.
    ///
    /// Calls `cuMemAdvise(address, bytes, advice, location)`. The advice takes effect immediately;
    /// it is not stream-ordered.
    ///
    /// # Errors
    /// - `CUDA_ERROR_INVALID_DEVICE` for a device without concurrent managed access.
    /// - [`Invalid::NeedsNewerDriver`] for a NUMA node, on a driver before CUDA 12.2.
    ///
    /// Since CUDA 8.0 (from 12.2 on through `cuMemAdvise_v2`). Raw:
    /// [`cuMemAdvise_v2`](fn@cuda_sys::cuMemAdvise_v2).
    #[doc(alias = "cuMemAdvise")]
    #[inline]
    pub fn advise(&self, advice: Advice) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let (advice, location) = advice.raw();
        let (address, bytes) = (self.address, self.bytes);
        without_current(self.stream.context(), || {
            newest_or(
                // SAFETY: the range is borrowed managed memory, and advice does not change its
                // contents.
                unsafe { call!(cuMemAdvise_v2(address, bytes, advice, location.raw())) },
                || {
                    let device = as_older_location(location)?;
                    // SAFETY: as above.
                    unsafe { call!(abi::cuMemAdvise(address, bytes, advice, device)) }
                },
            )
        })
    }

    /// Enqueues a migration of the memory to a location, without blocking.
    ///
    /// Calls `cuMemPrefetchAsync(address, bytes, location, 0, stream)` on the stream that the
    /// memory is bound to.
    ///
    /// # Errors
    /// See [`advise`](Self::advise).
    ///
    /// Since CUDA 8.0 (from 12.2 on through `cuMemPrefetchAsync_v2`). Raw:
    /// [`cuMemPrefetchAsync_v2`](fn@cuda_sys::cuMemPrefetchAsync_v2).
    #[doc(alias = "cuMemPrefetchAsync")]
    #[inline]
    pub fn prefetch(&self, to: MemoryLocation) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let (address, bytes, stream) = (self.address, self.bytes, self.stream.raw());
        without_current(self.stream.context(), || {
            newest_or(
                // SAFETY: the range is managed memory, which stays allocated until its stream has
                // run the prefetch. Migration does not change the contents.
                unsafe { call!(cuMemPrefetchAsync_v2(address, bytes, to.raw(), 0, stream)) },
                || {
                    let device = as_older_location(to)?;
                    // SAFETY: as above.
                    unsafe { call!(abi::cuMemPrefetchAsync(address, bytes, device, stream)) }
                },
            )
        })
    }

    /// Returns the advice and the prefetches that apply to the range.
    ///
    /// Calls `cuMemRangeGetAttributes(…)`.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// Since CUDA 8.0. (NUMA nodes are distinguished since CUDA 12.2.) Raw:
    /// [`cuMemRangeGetAttributes`](fn@cuda_sys::cuMemRangeGetAttributes).
    #[doc(alias = "cuMemRangeGetAttributes")]
    #[inline]
    pub fn info(&self) -> Result<RangeInfo> {
        if self.bytes == 0 {
            return Ok(RangeInfo::default());
        }
        // One entry for each device and one for the host.
        let mut accessed_by = vec![CU_DEVICE_INVALID; Device::count()? as usize + 1];
        let (mut read_mostly, mut preferred, mut prefetched) = (0i32, [0i32; 2], [0i32; 2]);
        let has_location_kind = init::version()? >= CudaVersion::new(12, 2);
        let [preferred_kind, preferred_id] = &mut preferred;
        let [prefetched_kind, prefetched_id] = &mut prefetched;
        let mut asked: Vec<(Attribute, &mut [i32])> = vec![
            (Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, std::slice::from_mut(&mut read_mostly)),
            (Attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, &mut accessed_by),
        ];
        for (device, kind, id, outputs) in [
            (
                Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION,
                Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_TYPE,
                Attribute::CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION_ID,
                (preferred_kind, preferred_id),
            ),
            (
                Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION,
                Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_TYPE,
                Attribute::CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION_ID,
                (prefetched_kind, prefetched_id),
            ),
        ] {
            if has_location_kind {
                asked.push((kind, std::slice::from_mut(outputs.0)));
                asked.push((id, std::slice::from_mut(outputs.1)));
            } else {
                asked.push((device, std::slice::from_mut(outputs.1)));
            }
        }
        self.ask(&mut asked)?;
        let location = |[kind, id]: [i32; 2]| match has_location_kind {
            true => MemoryLocation::from_numbers(u32::try_from(kind).unwrap_or(0), id),
            false => MemoryLocation::from_device(id),
        };
        Ok(RangeInfo {
            read_mostly: read_mostly != 0,
            preferred_location: location(preferred),
            accessed_by: accessed_by.into_iter().filter_map(MemoryLocation::from_device).collect(),
            last_prefetch: location(prefetched),
        })
    }

    #[inline]
    fn ask(&self, asked: &mut [(Attribute, &mut [i32])]) -> Result<()> {
        let mut attributes: Vec<Attribute> =
            asked.iter().map(|(attribute, _)| *attribute).collect();
        let mut sizes: Vec<usize> = asked.iter().map(|(_, values)| 4 * values.len()).collect();
        let outputs = asked.iter_mut().map(|(_, values)| values.as_mut_ptr());
        let mut outputs: Vec<*mut c_void> = outputs.map(<*mut i32>::cast).collect();
        without_current(self.stream.context(), || {
            // SAFETY: the lists have the same length, each destination is an array of integers with
            // as many bytes as its size says, and the range is borrowed managed memory.
            unsafe {
                answer!(cuMemRangeGetAttributes(
                    outputs.as_mut_ptr(),
                    sizes.as_mut_ptr(),
                    attributes.as_mut_ptr(),
                    attributes.len(),
                    self.address,
                    self.bytes
                ))
            }
        })
    }
}

/// Returns a location in the form that functions before CUDA 12.2 take: a device ordinal or the
/// CPU.
#[inline]
fn as_older_location(location: MemoryLocation) -> Result<i32> {
    match location.as_device() {
        Some(device) => Ok(device),
        None => Err(Invalid::NeedsNewerDriver {
            what: "a location that is neither a device nor the host",
            since: CudaVersion::new(12, 2),
            driver: init::version()?,
        }
        .into()),
    }
}

impl ManagedRange<'_> {
    /// Returns where the pages of the range are now: the most common location of each part of
    /// `part_bytes`, or `None` for a part without pages. The last part may be shorter.
    ///
    /// Calls `cuMemGetLocationInfo(address, size, part_bytes, sample_bytes, &locations)`. The driver looks
    /// at one page in every `sample_bytes`; 0 lets the driver choose. If locations are equally common, the
    /// driver returns any of them. (Unverified, from documentation.)
    ///
    /// # Errors
    /// - [`Invalid::Residency`] if `part_bytes` is 0 or greater than the range, or if `sample_bytes` is
    ///   greater than `part_bytes`.
    /// - `CUDA_ERROR_NOT_SUPPORTED` unless all devices have
    ///   [`CONCURRENT_MANAGED_ACCESS`](crate::device::attribute::CONCURRENT_MANAGED_ACCESS).
    ///
    /// Since CUDA 13.4. Raw: [`cuMemGetLocationInfo`](fn@cuda_sys::cuMemGetLocationInfo).
    #[doc(alias = "cuMemGetLocationInfo")]
    #[inline]
    pub fn residency(
        &self,
        part_bytes: usize,
        sample_bytes: usize,
    ) -> Result<Vec<Option<MemoryLocation>>> {
        if self.bytes == 0 {
            return Ok(Vec::new());
        }
        if part_bytes == 0 || part_bytes > self.bytes || sample_bytes > part_bytes {
            return Err(Invalid::Residency {
                part: part_bytes,
                sample: sample_bytes,
                bytes: self.bytes,
            }
            .into());
        }
        let mut locations = vec![CUmemLocation::default(); self.bytes.div_ceil(part_bytes)];
        let (address, bytes) = (self.address, self.bytes);
        without_current(self.stream.context(), || {
            // SAFETY: the list has an entry for each part, and the range is borrowed managed memory.
            unsafe {
                answer!(cuMemGetLocationInfo(
                    address,
                    bytes,
                    part_bytes,
                    sample_bytes,
                    locations.as_mut_ptr()
                ))
            }
        })?;
        let locations = locations.into_iter().map(MemoryLocation::from_raw);
        Ok(locations.collect())
    }
}

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
    /// - [`Invalid::OtherStream`] if a range is bound to another
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
