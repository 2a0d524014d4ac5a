//! Mappings of physical memory to reserved addresses.

use super::access::{AccessList, set_access};
use super::physical::PhysicalMemory;
use super::range::MappedRange;
use super::reservation::Reservation;
use crate::call::{Invalid, Rejected, Result, call, debug_struct, out};
use crate::event::{Event, LastUse};
use crate::memory::Backing;
pub(crate) use crate::memory::buffer::allocation::Release;
use crate::memory::pool::MemoryAccess;
use crate::memory::{DeviceBuffer, MemoryLocation};
use crate::release;
use crate::stream::Stream;
use cuda_sys::{CUdeviceptr, CUmemAccess_flags};
use std::any::Any;

/// Physical memory that is mapped to addresses of a [`Reservation`]. Created by [`Reservation::map`].
///
/// A mapping owns its memory and its reservation. It is not bound to a stream, so no work of safe code uses
/// it: [`into_buffer`](Self::into_buffer) binds it to one, and
/// [`DeviceBuffer::into_mapping`](crate::DeviceBuffer::into_mapping) ends that. It belongs to no context.
///
/// Dropping it unmaps the memory at once (`cuMemUnmap`).
///
/// ```no_run
/// use cuda_safe::virtual_memory::{PhysicalMemory, Reservation};
/// use cuda_safe::{Context, Device};
///
/// let device = Device::get(0)?;
/// let stream = Context::primary(&device)?.stream()?;
/// let mapping = Reservation::new(2 << 20)?.map(0, PhysicalMemory::new(device, 2 << 20)?)?;
/// let mut buffer = mapping.into_buffer::<f32>(&stream)?;
/// buffer.fill(1.5)?;
/// assert_eq!(buffer.slice(..2)?.to_vec()?, [1.5; 2]);
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct Mapping {
    /// Its memory has a handle until this value is taken apart.
    range: MappedRange,
    access: AccessList,
}

impl Mapping {
    #[inline]
    pub(super) fn new(range: MappedRange) -> Self {
        Self { range, access: AccessList::default() }
    }

    /// Returns the first address.
    #[inline]
    pub fn address(&self) -> CUdeviceptr {
        self.range.address()
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.range.size()
    }

    /// Returns the reservation.
    #[inline]
    pub fn reservation(&self) -> &Reservation {
        &self.range.reservation
    }

    /// Returns the physical memory.
    #[inline]
    pub fn memory(&self) -> &PhysicalMemory {
        &self.range.memory
    }

    /// Sets the access of a device or of the host. Calls `cuMemSetAccess`.
    ///
    /// [`remap`](Self::remap) keeps the access.
    ///
    /// # Errors
    /// - `CUDA_ERROR_NOT_SUPPORTED` for access of the host to memory of a device, and for a device that
    ///   cannot access the memory.
    /// - `CUDA_ERROR_INVALID_DEVICE` or a similar code if the device does not exist.
    ///
    /// Since CUDA 10.2. Raw: [`cuMemSetAccess`](fn@cuda_sys::cuMemSetAccess).
    #[doc(alias = "cuMemSetAccess")]
    pub fn set_access(
        &mut self,
        location: impl Into<MemoryLocation>,
        access: MemoryAccess,
    ) -> Result<()> {
        let location = location.into();
        // SAFETY: no work uses a mapping that is not bound to a stream.
        unsafe { set_access(self.address(), self.size(), &[access.at(location)]) }?;
        self.access.set(location, access);
        Ok(())
    }

    /// Allows the device of the memory to read and write it.
    ///
    /// # Errors
    /// Errors from the driver.
    #[inline]
    pub(super) fn grant_own_device(&mut self) -> Result<()> {
        match self.memory().device() {
            Some(device) => self.set_access(device, MemoryAccess::ReadWrite),
            None => Ok(()),
        }
    }

    /// Returns the access of a device or of the host. Calls `cuMemGetAccess`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` or a similar code if the device does not exist.
    ///
    /// Since CUDA 10.2. Raw: [`cuMemGetAccess`](fn@cuda_sys::cuMemGetAccess).
    #[doc(alias = "cuMemGetAccess")]
    pub fn access(&self, location: impl Into<MemoryLocation>) -> Result<MemoryAccess> {
        let (location, address) = (location.into().raw(), self.address());
        let from = &raw const location;
        // SAFETY: `out` passes a valid pointer, the other one is to a local, and the address is mapped.
        let flags = out(|place| unsafe { call!(cuMemGetAccess(place, from, address)) })?;
        // The driver returns one of the values of an enumeration of 32 bits.
        Ok(MemoryAccess::from_raw(CUmemAccess_flags(flags as u32)))
    }

    /// Unmaps the memory and returns it, with its contents. Calls `cuMemUnmap`.
    ///
    /// # Errors
    /// Errors from the driver. The mapping is then dropped.
    ///
    /// Since CUDA 10.2. Raw: [`cuMemUnmap`](fn@cuda_sys::cuMemUnmap).
    #[doc(alias = "cuMemUnmap")]
    #[inline]
    pub fn unmap(mut self) -> Result<PhysicalMemory> {
        // SAFETY: no work uses a mapping that is not bound to a stream.
        unsafe { self.range.unmap() }?;
        Ok(self.range.take().memory)
    }

    /// Maps the memory to another address, with the same access. The contents stay. Calls `cuMemUnmap`,
    /// `cuMemMap` and `cuMemSetAccess`.
    ///
    /// # Errors
    /// See [`Reservation::map`]. The memory is then dropped. To keep it, use [`unmap`](Self::unmap) and
    /// [`Reservation::try_map`].
    #[inline]
    pub fn remap(self, reservation: &Reservation, offset: usize) -> Result<Self> {
        let access = self.access.clone();
        let mut mapping = reservation.try_map(offset, self.unmap()?)?;
        // SAFETY: no work uses a mapping that is not bound to a stream.
        unsafe { access.apply(mapping.address(), mapping.size()) }?;
        mapping.access = access;
        Ok(mapping)
    }

    /// Binds the memory to a stream. The buffer has as many elements as fit in the memory. Their bits are
    /// those of the physical memory.
    ///
    /// Dropping the buffer does not block: the memory is unmapped after the work on the stream. If the
    /// stream is [borrowed](Stream::borrow_raw), the drop waits.
    ///
    /// # Errors
    /// [`Invalid::NoAccess`] if the device of the stream cannot read and write the memory. The mapping is
    /// then dropped; [`try_into_buffer`](Self::try_into_buffer) returns it.
    pub fn into_buffer<T>(self, stream: &Stream) -> Result<DeviceBuffer<T>> {
        Ok(self.try_into_buffer(stream)?)
    }

    /// Does the same as [`into_buffer`](Self::into_buffer), but returns the mapping with the error.
    ///
    /// # Errors
    /// See [`into_buffer`](Self::into_buffer).
    pub fn try_into_buffer<T>(self, stream: &Stream) -> Result<DeviceBuffer<T>, Rejected<Self>> {
        release::drain();
        let (end, mapping) = Rejected::unless(self.prepare::<T>(stream), self)?;
        let address = mapping.address();
        let len = mapping.size().checked_div(size_of::<T>()).unwrap_or(0);
        let release = Release::Backed(Box::new(MappedMemory { mapping, end }));
        Ok(DeviceBuffer::own(address, len, stream, release))
    }

    /// Checks that work on a stream may use the memory. Returns the event for the end of that work.
    fn prepare<T>(&self, stream: &Stream) -> Result<Event> {
        const { assert!(align_of::<T>() <= 256, "alignment above 256 is unsupported") };
        let device = stream.context().device();
        if self.access.get(device.into()) != MemoryAccess::ReadWrite {
            return Err(Invalid::NoAccess { device: device.ordinal() }.into());
        }
        stream.context().event()
    }
}

/// The mapping of a buffer that is bound to a stream.
pub(crate) struct MappedMemory {
    mapping: Mapping,
    end: Event,
}

impl Backing for MappedMemory {
    #[inline]
    fn release_after(self: Box<Self>, stream: &Stream) {
        let Self { mut mapping, end } = *self;
        mapping.range.take().unmap_after(LastUse::new(stream, end));
    }

    #[inline]
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[inline]
    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl<T> DeviceBuffer<T> {
    /// Waits for the work on the stream, and returns the mapping of virtual memory that the buffer was
    /// created from ([`Mapping::into_buffer`]).
    ///
    /// # Errors
    /// [`Invalid::NotMapping`] for other buffers; [`Error::InHostFunction`](crate::Error::InHostFunction);
    /// errors of the work. The buffer is then dropped;
    /// [`try_into_mapping`](Self::try_into_mapping) returns it.
    pub fn into_mapping(self) -> Result<Mapping> {
        Ok(self.try_into_mapping()?)
    }

    /// Does the same as [`into_mapping`](Self::into_mapping), but returns the buffer with the error.
    ///
    /// # Errors
    /// See [`into_mapping`](Self::into_mapping).
    pub fn try_into_mapping(self) -> Result<Mapping, Rejected<Self>> {
        let ((), buffer) = Rejected::unless(self.stream().synchronize(), self)?;
        let len = buffer.len();
        match buffer.into_allocation().into_backing::<MappedMemory>() {
            Ok(mapped) => Ok(mapped.mapping),
            Err(memory) => {
                let buffer = Self::of_allocation(memory, len);
                Err(Rejected::new(Invalid::NotMapping, buffer))
            }
        }
    }
}

impl Drop for Mapping {
    #[inline]
    fn drop(&mut self) {
        if self.range.memory.has_handle() {
            self.range.take().unmap_idle();
        }
    }
}

debug_struct! {
    Mapping |its| { address: format_args!("{:#x}", its.address()), memory: its.memory(), .. }
}
