//! Where managed memory is to be: advice, prefetches, and what the driver knows.

use crate::call::{answer, call, newest_or, without_current};
use crate::device::Device;
use crate::driver;
use crate::error::Result;
use crate::invalid::Invalid;
use crate::memory::MemoryLocation;
use crate::stream::Stream;
use core::ffi::c_void;
use cuda_sys::{
    CU_DEVICE_INVALID, CUdeviceptr, CUmem_advise, CUmem_range_attribute as Attribute, CudaVersion,
};

/// A part of a [`ManagedBuffer`](crate::ManagedBuffer), of any type. What is done with it moves the
/// memory and does not change it, but for the discards, which are unsafe.
#[derive(Clone, Copy, Debug)]
pub struct ManagedRange<'a> {
    address: CUdeviceptr,
    bytes: usize,
    stream: &'a Stream,
}

/// `CUmem_advise`: what the driver is told of how memory is used. It changes when memory moves, and
/// nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Advice {
    /// It is read a lot and written rarely: each reader may have a copy.
    ReadMostly,
    /// No longer.
    NotReadMostly,
    /// It belongs there, and is moved away only if it has to be.
    PreferredLocation(MemoryLocation),
    /// It belongs nowhere.
    NoPreferredLocation,
    /// It is used from there, which is to have it mapped at all times.
    AccessedBy(MemoryLocation),
    /// No longer.
    NotAccessedBy(MemoryLocation),
}

/// What the driver knows of a range of managed memory: what holds for all of its pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeInfo {
    /// [`Advice::ReadMostly`] was given.
    pub read_mostly: bool,
    /// Of [`Advice::PreferredLocation`].
    pub preferred_location: Option<MemoryLocation>,
    /// Of [`Advice::AccessedBy`].
    pub accessed_by: Vec<MemoryLocation>,
    /// Where it was prefetched to last, and need not have arrived.
    pub last_prefetch: Option<MemoryLocation>,
}

impl Advice {
    fn raw(self) -> (CUmem_advise, MemoryLocation) {
        // Where no location is asked for, any will do.
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
    pub(super) fn new(address: CUdeviceptr, bytes: usize, stream: &'a Stream) -> Self {
        Self {
            address,
            bytes,
            stream,
        }
    }

    /// The address of the first byte.
    pub fn as_raw(&self) -> CUdeviceptr {
        self.address
    }

    /// How many bytes it has.
    pub fn size_bytes(&self) -> usize {
        self.bytes
    }

    /// The stream that the memory is bound to.
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// `cuMemAdvise(address, bytes, advice, location)`: tells how the memory is used. Takes effect
    /// at once, not in the order of the stream.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` for a device without concurrent managed access;
    /// [`Invalid::NeedsNewerDriver`] for a NUMA node.
    ///
    /// Since CUDA 8.0 (from 12.2 on through `cuMemAdvise_v2`). Raw:
    /// [`cuMemAdvise_v2`](fn@cuda_sys::cuMemAdvise_v2).
    #[doc(alias = "cuMemAdvise")]
    pub fn advise(&self, advice: Advice) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let (advice, location) = advice.raw();
        let (address, bytes) = (self.address, self.bytes);
        without_current(self.stream.context(), || {
            newest_or(
                // SAFETY: the range is managed memory, which is borrowed; advice does not change it.
                unsafe { call!(cuMemAdvise_v2(address, bytes, advice, location.raw())) },
                || {
                    let device = known_to_older(location)?;
                    // SAFETY: as above.
                    unsafe { call!(abi::cuMemAdvise(address, bytes, advice, device)) }
                },
            )
        })
    }

    /// `cuMemPrefetchAsync(address, bytes, location, 0, stream)`: moves the memory there, in the
    /// order of its stream. The thread does not wait.
    ///
    /// # Errors
    /// As for [`advise`](Self::advise).
    ///
    /// Since CUDA 8.0 (from 12.2 on through `cuMemPrefetchAsync_v2`). Raw:
    /// [`cuMemPrefetchAsync_v2`](fn@cuda_sys::cuMemPrefetchAsync_v2).
    #[doc(alias = "cuMemPrefetchAsync")]
    pub fn prefetch(&self, to: MemoryLocation) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let (address, bytes, stream) = (self.address, self.bytes, self.stream.raw());
        without_current(self.stream.context(), || {
            newest_or(
                // SAFETY: the range is managed memory, which its stream keeps until it comes to
                // this; moving does not change it.
                unsafe { call!(cuMemPrefetchAsync_v2(address, bytes, to.raw(), 0, stream)) },
                || {
                    let device = known_to_older(to)?;
                    // SAFETY: as above.
                    unsafe { call!(abi::cuMemPrefetchAsync(address, bytes, device, stream)) }
                },
            )
        })
    }

    /// `cuMemRangeGetAttributes(…)`: what the driver was told of the memory.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// Since CUDA 8.0. (NUMA nodes are told apart from 12.2 on.) Raw:
    /// [`cuMemRangeGetAttributes`](fn@cuda_sys::cuMemRangeGetAttributes).
    #[doc(alias = "cuMemRangeGetAttributes")]
    pub fn info(&self) -> Result<RangeInfo> {
        if self.bytes == 0 {
            return Ok(RangeInfo::default());
        }
        // For all devices and the host.
        let mut accessed_by = vec![CU_DEVICE_INVALID; Device::count()? as usize + 1];
        let (mut read_mostly, mut preferred, mut prefetched) = (0i32, [0i32; 2], [0i32; 2]);
        let in_two = driver::version()? >= CudaVersion::new(12, 2);
        let [preferred_kind, preferred_id] = &mut preferred;
        let [prefetched_kind, prefetched_id] = &mut prefetched;
        let mut asked: Vec<(Attribute, &mut [i32])> = vec![
            (
                Attribute::CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY,
                std::slice::from_mut(&mut read_mostly),
            ),
            (
                Attribute::CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY,
                &mut accessed_by,
            ),
        ];
        for (device, kind, id, places) in [
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
            if in_two {
                asked.push((kind, std::slice::from_mut(places.0)));
                asked.push((id, std::slice::from_mut(places.1)));
            } else {
                asked.push((device, std::slice::from_mut(places.1)));
            }
        }
        self.ask(&mut asked)?;
        let location = |[kind, id]: [i32; 2]| match in_two {
            true => MemoryLocation::from_numbers(u32::try_from(kind).unwrap_or(0), id),
            false => MemoryLocation::from_device(id),
        };
        Ok(RangeInfo {
            read_mostly: read_mostly != 0,
            preferred_location: location(preferred),
            accessed_by: accessed_by
                .into_iter()
                .filter_map(MemoryLocation::from_device)
                .collect(),
            last_prefetch: location(prefetched),
        })
    }

    fn ask(&self, asked: &mut [(Attribute, &mut [i32])]) -> Result<()> {
        let mut attributes: Vec<Attribute> =
            asked.iter().map(|(attribute, _)| *attribute).collect();
        let mut sizes: Vec<usize> = asked.iter().map(|(_, values)| 4 * values.len()).collect();
        let places = asked.iter_mut().map(|(_, values)| values.as_mut_ptr());
        let mut places: Vec<*mut c_void> = places.map(<*mut i32>::cast).collect();
        without_current(self.stream.context(), || {
            // SAFETY: the lists are of the same length, each place has as many bytes as its size
            // says, of integers, and the range is managed memory, which is borrowed.
            unsafe {
                answer!(cuMemRangeGetAttributes(
                    places.as_mut_ptr(),
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

/// A location as functions from before CUDA 12.2 have it.
fn known_to_older(location: MemoryLocation) -> Result<i32> {
    match location.as_device() {
        Some(device) => Ok(device),
        None => Err(Invalid::NeedsNewerDriver {
            what: "a location that is neither a device nor the host",
            since: CudaVersion::new(12, 2),
            driver: driver::version()?,
        }
        .into()),
    }
}
