//! Reserved ranges of addresses.

use super::mapping::MappedRange;
use super::mapping::Mapping;
use super::options::{check_multiple, check_within};
use super::physical::PhysicalMemory;
use crate::call::{Rejected, Result, answer, call, count_leak, debug_struct};
use crate::release::{self, Root, create, destroy, release};
use cuda_sys::CUdeviceptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A range of device addresses that nothing else uses, and to which physical memory can be mapped. Clones
/// share the range.
///
/// A reservation takes no memory: 1 TiB is reserved in microseconds. It belongs to no context. The range is
/// freed when all clones and all mappings in it are dropped, unless a mapping could not be unmapped.
#[derive(Clone)]
pub struct Reservation {
    range: Arc<Range>,
}

struct Range {
    address: CUdeviceptr,
    size: usize,
    /// Whether a mapping in the range has leaked, so that the driver would refuse to free the range.
    has_leaked: AtomicBool,
}

/// Options for [`Reservation::with`].
///
/// Later versions may add fields: end each value with `..Default::default()`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ReservationOptions {
    /// The alignment of the address in bytes, a power of two. 0 means that of the driver (2 MiB).
    pub alignment: usize,
    /// The wished address, or 0. The driver may choose another one.
    pub address: CUdeviceptr,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl Reservation {
    /// Reserves `size` bytes of addresses. Calls `cuMemAddressReserve`.
    ///
    /// # Errors
    /// - `CUDA_ERROR_INVALID_VALUE` if `size` is 0 or not a multiple of the
    ///   [granularity](super::PhysicalOptions::granularity), which is 2 MiB on current devices.
    /// - [`Error::OutOfMemory`](crate::Error::OutOfMemory) if there is no such range (above 64 TiB on a
    ///   driver 580).
    ///
    /// Since CUDA 10.2. Raw: [`cuMemAddressReserve`](fn@cuda_sys::cuMemAddressReserve),
    /// [`cuMemAddressFree`](fn@cuda_sys::cuMemAddressFree).
    #[doc(alias = "cuMemAddressReserve")]
    #[doc(alias = "cuMemAddressFree")]
    #[inline]
    pub fn new(size: usize) -> Result<Self> {
        Self::with(size, &ReservationOptions::default())
    }

    /// Reserves addresses with options. Calls `cuMemAddressReserve`.
    ///
    /// # Errors
    /// See [`new`](Self::new). `CUDA_ERROR_INVALID_VALUE` also if the alignment is not a power of two, or
    /// the wished address is not a multiple of the granularity.
    ///
    /// Since CUDA 10.2. Raw: [`cuMemAddressReserve`](fn@cuda_sys::cuMemAddressReserve).
    #[doc(alias = "cuMemAddressReserve")]
    #[inline]
    pub fn with(size: usize, options: &ReservationOptions) -> Result<Self> {
        crate::call::init::init()?;
        let ReservationOptions { alignment, address: wished, _non_exhaustive: () } = *options;
        // SAFETY: `create` passes a valid pointer.
        let address = create(|place| unsafe {
            call!(cuMemAddressReserve(place, size, alignment, wished, 0))
        })
        .map_err(|error| error.with_requested_bytes(size))?;
        Ok(Self { range: Arc::new(Range { address, size, has_leaked: AtomicBool::new(false) }) })
    }

    /// Leaks the range, because a mapping in it was not unmapped.
    #[inline]
    pub(super) fn leak(&self) {
        if !self.range.has_leaked.swap(true, Ordering::Relaxed) {
            count_leak();
        }
    }

    /// Returns the first address.
    #[inline]
    pub fn address(&self) -> CUdeviceptr {
        self.range.address
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.range.size
    }

    /// Maps physical memory at `offset` bytes from the start of the range. Calls `cuMemMap`, and
    /// `cuMemSetAccess`: the device of the memory has read and write access.
    ///
    /// The whole memory is mapped. Memory on the host needs [access](Mapping::set_access) for each device.
    ///
    /// # Errors
    /// - [`Invalid::Range`](crate::Invalid::Range) if the memory does not fit in the range; the driver would accept a mapping
    ///   that extends beyond the end.
    /// - [`Invalid::Granularity`](crate::Invalid::Granularity) if `offset` is not a multiple of the granularity of the memory.
    /// - `CUDA_ERROR_INVALID_VALUE` if a part of the range is mapped already.
    ///
    /// The memory is then dropped. [`try_map`](Self::try_map) returns it.
    ///
    /// Since CUDA 10.2. Raw: [`cuMemMap`](fn@cuda_sys::cuMemMap),
    /// [`cuMemSetAccess`](fn@cuda_sys::cuMemSetAccess), [`cuMemUnmap`](fn@cuda_sys::cuMemUnmap).
    #[doc(alias = "cuMemMap")]
    #[doc(alias = "cuMemUnmap")]
    #[inline]
    pub fn map(&self, offset: usize, memory: PhysicalMemory) -> Result<Mapping> {
        let mut mapping = self.try_map(offset, memory)?;
        mapping.grant_own_device()?;
        Ok(mapping)
    }

    /// Maps physical memory without access for any device, and returns the memory with an error. Calls
    /// `cuMemMap`.
    ///
    /// # Errors
    /// See [`map`](Self::map).
    ///
    /// Since CUDA 10.2. Raw: [`cuMemMap`](fn@cuda_sys::cuMemMap).
    #[doc(alias = "cuMemMap")]
    #[inline]
    pub fn try_map(
        &self,
        offset: usize,
        memory: PhysicalMemory,
    ) -> Result<Mapping, Rejected<PhysicalMemory>> {
        Ok(Mapping::new(self.map_range(offset, memory)?))
    }

    /// Maps physical memory, without access for any device.
    ///
    /// # Errors
    /// See [`map`](Self::map).
    #[inline]
    pub(super) fn map_range(
        &self,
        offset: usize,
        memory: PhysicalMemory,
    ) -> Result<MappedRange, Rejected<PhysicalMemory>> {
        release::drain();
        let ((), memory) = Rejected::unless(self.call_map(offset, &memory), memory)?;
        Ok(MappedRange { reservation: self.clone(), offset, memory })
    }

    /// # Errors
    /// See [`map`](Self::map).
    #[inline]
    pub(super) fn call_map(&self, offset: usize, memory: &PhysicalMemory) -> Result<()> {
        let size = memory.size();
        check_multiple("the offset", offset, memory.granularity())?;
        check_within(offset, size, self.size())?;
        let address = self.address() + offset as u64;
        // SAFETY: the handle is alive, and the range belongs to this reservation. No safe code uses
        // addresses that are not mapped.
        unsafe { call!(cuMemMap(address, size, 0, memory.as_raw(), 0)) }
    }
}

struct ReservedRange {
    address: CUdeviceptr,
    size: usize,
}

destroy! {
    ReservedRange as "a reservation of addresses", leaves Object, quiet true;
    // SAFETY: this value stands for the reservation, and the caller promises that this is the first
    // call. Each mapping keeps the reservation alive.
    |its| unsafe { answer!(cuMemAddressFree(its.address, its.size)) }
}

impl Drop for Range {
    #[inline]
    fn drop(&mut self) {
        let (address, size) = (self.address, self.size);
        if *self.has_leaked.get_mut() {
            return;
        }
        release(ReservedRange { address, size }, &Root { is_borrowed: false });
    }
}

debug_struct! {
    Reservation |its| { address: format_args!("{:#x}", its.address()), size: its.size() }
}
