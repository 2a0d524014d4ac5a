//! Mappings of physical memory to reserved addresses.

pub(crate) use crate::memory::buffer::allocation::Release;

use super::physical::{PhysicalMemory, check_multiple, check_within};
use crate::call::{
    Answer, Entered, Invalid, Rejected, Result, answer, call, count_leak, debug_struct, out,
};
use crate::context::Context;
use crate::event::{Event, LastUse};
use crate::memory::pool::MemoryAccess;
use crate::memory::{Backing, DeviceBuffer, MemoryLocation};
use crate::release::{self, Keep, Root, create, destroy, release};
use crate::stream::Stream;
use crate::sync::{Mutex, lock};
use cuda_sys::{CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUresult};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// The access of several locations to mapped memory. A location without an entry has no access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AccessList(Vec<(MemoryLocation, MemoryAccess)>);

impl AccessList {
    #[inline]
    pub(super) fn set(&mut self, location: MemoryLocation, access: MemoryAccess) {
        // A location has one entry, also if the caller names a device by its numbers.
        let location = MemoryLocation::from_raw(location.raw()).unwrap_or(location);
        match self.0.iter_mut().find(|(its, _)| *its == location) {
            Some((_, its)) => *its = access,
            None => self.0.push((location, access)),
        }
    }

    #[inline]
    pub(super) fn get(&self, location: MemoryLocation) -> MemoryAccess {
        let found = self.0.iter().find(|(its, _)| *its == location);
        found.map_or(MemoryAccess::None, |(_, access)| *access)
    }

    /// Applies the whole list to a range that consists of whole mappings.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// # Safety
    /// No work uses the range, unless all entries permit at least what they permitted before.
    #[inline]
    pub(super) unsafe fn apply(&self, address: CUdeviceptr, size: usize) -> Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let descriptions = self.0.iter().map(|(location, access)| access.at(*location));
        let descriptions: Vec<_> = descriptions.collect();
        // SAFETY: the caller keeps the promise for all entries.
        unsafe { set_access(address, size, &descriptions) }
    }
}

/// Sets the access of locations to a range that consists of whole mappings.
///
/// # Errors
/// Errors from the driver.
///
/// # Safety
/// No work uses the range, unless each access is at least what it was before.
#[inline]
pub(super) unsafe fn set_access(
    address: CUdeviceptr,
    size: usize,
    access: &[CUmemAccessDesc],
) -> Result<()> {
    let (first, count) = (access.as_ptr(), access.len());
    // SAFETY: the array has `count` elements. The caller promises that no work loses its access.
    unsafe { call!(cuMemSetAccess(address, size, first, count)) }
}

/// Unmaps memory after all work of `contexts`. A [manager](crate::manager) of virtual memory calls it when it
/// is dropped.
///
/// Waits for the work (`cuCtxSynchronize`) and then drops the mappings (`cuMemUnmap`). In a host function and
/// in other callbacks of the driver, where that is not possible, this is
/// [deferred](crate::reference::releases). If the driver does not say that the work is complete, the mappings
/// are leaked and reported.
///
/// Since CUDA 10.2. Raw: [`cuMemUnmap`](fn@cuda_sys::cuMemUnmap).
#[doc(alias = "cuMemUnmap")]
#[inline]
pub fn unmap_after_work(mut contexts: Vec<Context>, mappings: Vec<Mapping>) {
    contexts.dedup();
    match contexts.pop() {
        Some(first) if !mappings.is_empty() => {
            let mappings = Mutex::new(mappings);
            release(AfterContexts { contexts, mappings }, &first);
        }
        _ => drop(mappings),
    }
}

/// Mappings that are dropped after the work of the owner and of further contexts.
struct AfterContexts {
    /// The contexts whose work is waited for next.
    contexts: Vec<Context>,
    mappings: Mutex<Vec<Mapping>>,
}

impl AfterContexts {
    #[inline]
    fn take(&self) -> Vec<Mapping> {
        let mut mappings = lock(&self.mappings);
        std::mem::take(&mut *mappings)
    }
}

destroy! {
    AfterContexts as "virtual memory", after AllWork, leaves Object;
    // The work of the owner is complete.
    |_its| Answer { call: "cuMemUnmap", code: CUresult::CUDA_SUCCESS };

    #[inline]
    fn has_been_destroyed(&mut self) {
        unmap_after_work(std::mem::take(&mut self.contexts), self.take());
    }

    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        let mappings = self.take();
        // The release itself is counted for one mapping: the others, the memory, and the addresses.
        (0..2 * mappings.len()).for_each(|_| count_leak());
        std::mem::forget(mappings);
    }
}

/// A range of addresses that is mapped to physical memory. Dropping it unmaps nothing.
///
/// The driver unmaps at once, whether work uses the range or not, and such work then fails and ends all
/// contexts of the process (measured, driver 580). So a range that work may use is unmapped after an event.
pub(super) struct MappedRange {
    pub(super) reservation: Reservation,
    pub(super) offset: usize,
    pub(super) memory: PhysicalMemory,
}

impl MappedRange {
    #[inline]
    pub(super) fn address(&self) -> CUdeviceptr {
        self.reservation.address() + self.offset as u64
    }

    #[inline]
    pub(super) fn size(&self) -> usize {
        self.memory.size()
    }

    /// Returns the first offset after the range.
    #[inline]
    pub(super) fn end(&self) -> usize {
        self.offset + self.size()
    }

    /// Takes the range, and leaves one whose memory has no handle.
    #[inline]
    pub(super) fn take(&mut self) -> Self {
        Self {
            reservation: self.reservation.clone(),
            offset: self.offset,
            memory: self.memory.take(),
        }
    }

    /// Unmaps the range.
    ///
    /// # Errors
    /// Errors from the driver. The range is then still mapped.
    ///
    /// # Safety
    /// No work uses the range, and it has not been unmapped.
    #[inline]
    pub(super) unsafe fn unmap(&self) -> Result<()> {
        // SAFETY: the range is exactly one mapping, which no work uses, as the caller promises.
        unsafe { call!(cuMemUnmap(self.address(), self.size())) }
    }

    /// Unmaps a range that no work uses, now or as soon as possible.
    #[inline]
    pub(super) fn unmap_idle(self) {
        release(Unmap { range: self, last_use: None }, &Root { is_borrowed: false });
    }

    /// Unmaps a range that work on a stream uses, after that work.
    #[inline]
    pub(super) fn unmap_after(self, last_use: LastUse) {
        let stream = last_use.stream().clone();
        let last_use = Some(last_use);
        release(Unmap { range: self, last_use }, &stream);
    }
}

/// Returns `None` if the work that used virtual memory is complete, and otherwise the answer of a release.
///
/// The memory outlives the context. So if the context was destroyed, which ends its work, the memory is
/// released. A single answer does not prove that: the driver may mean the current context of the thread,
/// and memory that is unmapped under running work ends the process. So the second answer must be the
/// same, with the context of the work current, or the driver must refuse to make it current.
#[inline]
pub(super) fn obstacle(last_use: &LastUse) -> Option<Answer> {
    let is_destroyed = |code| code == CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED;
    let first = last_use.obstacle()?;
    if !is_destroyed(first.code) {
        return Some(first);
    }
    match Entered::new(last_use.stream().context()) {
        Ok(_current) => last_use.obstacle().filter(|second| !is_destroyed(second.code)),
        Err(error) if error.code().is_some_and(is_destroyed) => None,
        Err(_) => Some(first),
    }
}

/// A range that is unmapped after its last use. The reservation and the memory are released with it.
struct Unmap {
    range: MappedRange,
    last_use: Option<LastUse>,
}

destroy! {
    Unmap as "a mapping of virtual memory", leaves Object;
    |its| {
        if let Some(obstacle) = its.last_use.as_ref().and_then(obstacle) {
            return obstacle;
        }
        // SAFETY: this value stands for the mapping, and the caller promises that this is the first call
        // that succeeds. The last use is complete.
        unsafe { answer!(cuMemUnmap(its.range.address(), its.range.size())) }
    };
    #[inline]
    fn is_quiet(&self) -> bool {
        // Unmapping disturbs no capture, but the queries about the last use do.
        self.last_use.is_none()
    }

    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        // The release is counted for the mapping, which keeps the memory and the addresses.
        count_leak();
        self.range.reservation.leak();
    }
}

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
    #[doc(alias = "cuMemAddressReserve", alias = "cuMemAddressFree")]
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
    #[doc(alias = "cuMemMap", alias = "cuMemUnmap")]
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
