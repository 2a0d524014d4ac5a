//! Multicast objects: memory of several devices behind one address.

use super::binding::{Bindable, Binding, Target};
use super::mapping::{Reservation, set_access};
use super::physical::{PhysicalMemory, Shareable, check_size};
use crate::call::{
    DriverError, Invalid, Rejected, Result, answer, call, debug_struct, newest_or, out,
};
use crate::device::Device;
use crate::memory::MemoryLocation;
use crate::memory::pool::MemoryAccess;
use crate::release::{self, Keep, Owned, create, destroy};
use cuda_sys::{
    CUdevice, CUdeviceptr, CUmemGenericAllocationHandle,
    CUmulticastGranularity_flags as Granularity, CUmulticastObjectProp, CUresult,
};
use std::sync::Arc;

/// Options of a multicast object, for [`MulticastTeam::new`].
///
/// Unverified (from documentation), as everything about multicast objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct MulticastOptions {
    /// The number of devices, in all processes.
    pub devices: u32,
    /// The size in bytes of the memory of each device.
    pub size: usize,
    /// How the object can be shared with other processes.
    pub shareable: Shareable,
}

impl MulticastOptions {
    /// Returns the options of an object that is not shareable.
    #[inline]
    pub fn new(devices: u32, size: usize) -> Self {
        Self { devices, size, shareable: Shareable::No }
    }

    /// Sets how the object can be shared.
    #[must_use]
    #[inline]
    pub fn shareable(self, shareable: Shareable) -> Self {
        Self { shareable, ..self }
    }

    /// Returns the unit of the size, and of the offsets and sizes of bound memory, in bytes. It may differ
    /// from the granularity of physical memory. Calls
    /// `cuMulticastGetGranularity(&bytes, properties, MINIMUM)`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` if the devices have no multicast
    /// ([`MULTICAST_SUPPORTED`](crate::device::attribute::MULTICAST_SUPPORTED)).
    ///
    /// Since CUDA 12.1. Raw: [`cuMulticastGetGranularity`](fn@cuda_sys::cuMulticastGetGranularity).
    #[doc(alias = "cuMulticastGetGranularity")]
    #[inline]
    pub fn granularity(&self) -> Result<usize> {
        self.query(Granularity::CU_MULTICAST_GRANULARITY_MINIMUM)
    }

    /// Returns the unit with the best performance, in bytes. Calls
    /// `cuMulticastGetGranularity(&bytes, properties, RECOMMENDED)`.
    ///
    /// # Errors
    /// See [`granularity`](Self::granularity).
    ///
    /// Since CUDA 12.1. Raw: [`cuMulticastGetGranularity`](fn@cuda_sys::cuMulticastGetGranularity).
    #[doc(alias = "cuMulticastGetGranularity")]
    #[inline]
    pub fn recommended_granularity(&self) -> Result<usize> {
        self.query(Granularity::CU_MULTICAST_GRANULARITY_RECOMMENDED)
    }

    #[inline]
    fn query(&self, which: Granularity) -> Result<usize> {
        crate::call::init::init()?;
        let properties = self.properties();
        let properties = &raw const properties;
        // SAFETY: `out` passes a valid pointer, and the other one is to a local variable.
        out(|place| unsafe { call!(cuMulticastGetGranularity(place, properties, which)) })
    }

    #[inline]
    fn properties(&self) -> CUmulticastObjectProp {
        CUmulticastObjectProp {
            numDevices: self.devices,
            size: self.size,
            handleTypes: u64::from(self.shareable.raw().0),
            flags: 0,
        }
    }
}

/// A multicast object that does not have all of its devices yet.
///
/// All devices must be added before memory is bound. This type adds them; [`complete`](Self::complete)
/// returns the [`MulticastObject`] that binds memory.
///
/// Unverified (from documentation), and shown on the software driver only.
///
/// ```no_run
/// use cuda_safe::virtual_memory::{
///     MulticastOptions, MulticastTeam, PhysicalMemory, Reservation,
/// };
/// use cuda_safe::Device;
/// use cuda_safe::memory::MemoryAccess;
///
/// let devices = [Device::get(0)?, Device::get(1)?];
/// let size = MulticastOptions::new(2, 2 << 20).granularity()?;
/// let mut team = MulticastTeam::new(&MulticastOptions::new(2, size))?;
/// for device in &devices {
///     team.add(device)?;
/// }
/// let object = team.complete()?;
/// let mut bound = Vec::new();
/// for device in devices {
///     bound.push(object.bind(device, 0, PhysicalMemory::new(device, size)?)?);
/// }
/// // A multimem instruction of a kernel at this address reads or writes the memory of both devices.
/// let mut mapping = object.map(&Reservation::new(size)?, 0)?;
/// mapping.set_access(devices[0], MemoryAccess::ReadWrite)?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Debug)]
pub struct MulticastTeam {
    /// The handle of a multicast object is released, exported and mapped like one of physical memory.
    memory: PhysicalMemory,
    devices: u32,
    added: Vec<Device>,
}

impl MulticastTeam {
    /// Creates a multicast object. Calls `cuMulticastCreate`.
    ///
    /// # Errors
    /// - `CUDA_ERROR_NOT_SUPPORTED` if the devices have no multicast.
    /// - [`Invalid::Granularity`] if the size is 0 or not a multiple of the
    ///   [granularity](MulticastOptions::granularity).
    ///
    /// Since CUDA 12.1. Raw: [`cuMulticastCreate`](fn@cuda_sys::cuMulticastCreate).
    #[doc(alias = "cuMulticastCreate")]
    #[inline]
    pub fn new(options: &MulticastOptions) -> Result<Self> {
        let granularity = options.granularity()?;
        let size = options.size;
        check_size(size, granularity)?;
        let properties = options.properties();
        let from = &raw const properties;
        // SAFETY: the pointers refer to variables, of which `create` passes one.
        let handle = create(|place| unsafe { call!(cuMulticastCreate(place, from)) })
            .map_err(|error| error.with_requested_bytes(size))?;
        Ok(Self {
            memory: PhysicalMemory::own(handle, size, granularity, MemoryLocation::Host),
            devices: options.devices,
            added: Vec::new(),
        })
    }

    /// Takes ownership of the handle of a multicast object, which another process may have exported.
    ///
    /// # Errors
    /// [`Invalid::Handle`] if `raw` is 0; [`Invalid::Granularity`].
    ///
    /// # Safety
    /// `raw` must be a live handle of a multicast object with these options, and no other code may release
    /// it.
    #[inline]
    pub unsafe fn from_raw(
        raw: CUmemGenericAllocationHandle,
        options: &MulticastOptions,
    ) -> Result<Self> {
        if raw == 0 {
            let what = "a multicast object";
            return Err(Invalid::Handle { what, value: 0 }.into());
        }
        let granularity = options.granularity()?;
        check_size(options.size, granularity)?;
        Ok(Self {
            memory: PhysicalMemory::own(raw, options.size, granularity, MemoryLocation::Host),
            devices: options.devices,
            added: Vec::new(),
        })
    }

    /// Adds a device. Calls `cuMulticastAddDevice`.
    ///
    /// # Errors
    /// - `CUDA_ERROR_INVALID_VALUE` if the object has all of its devices, or this one.
    /// - `CUDA_ERROR_NOT_SUPPORTED`, `CUDA_ERROR_NOT_PERMITTED` or a similar code if the device cannot be
    ///   in a team with the others.
    ///
    /// Since CUDA 12.1. Raw: [`cuMulticastAddDevice`](fn@cuda_sys::cuMulticastAddDevice).
    #[doc(alias = "cuMulticastAddDevice")]
    #[inline]
    pub fn add(&mut self, device: &Device) -> Result<()> {
        // SAFETY: the handle is alive. A device is only a number.
        unsafe { call!(cuMulticastAddDevice(self.memory.as_raw(), device.as_raw())) }?;
        self.added.push(*device);
        Ok(())
    }

    /// Returns the devices that were added here.
    #[inline]
    pub fn devices(&self) -> &[Device] {
        &self.added
    }

    /// Exports the object as a file descriptor for another process, which adds its devices. See
    /// [`PhysicalMemory::export`].
    ///
    /// # Errors
    /// See [`PhysicalMemory::export`].
    #[cfg(unix)]
    #[inline]
    pub fn export(&self) -> Result<std::os::fd::OwnedFd> {
        self.memory.export()
    }

    /// Returns the object, to which memory can be bound, if all devices were added here.
    ///
    /// # Errors
    /// [`Invalid::MissingDevices`]. The team is then dropped; [`try_complete`](Self::try_complete) returns it.
    #[inline]
    pub fn complete(self) -> Result<MulticastObject> {
        Ok(self.try_complete()?)
    }

    /// Does the same as [`complete`](Self::complete), but returns the team with the error.
    ///
    /// # Errors
    /// See [`complete`](Self::complete).
    #[inline]
    pub fn try_complete(self) -> Result<MulticastObject, Rejected<Self>> {
        let (devices, added) = (self.devices, self.added.len());
        if u32::try_from(added) != Ok(devices) {
            let error = Invalid::MissingDevices { devices, added };
            return Err(Rejected::new(error, self));
        }
        Ok(self.complete_elsewhere())
    }

    /// Returns the object if other processes add the remaining devices.
    ///
    /// Wait until they have done so, with a barrier of your own, before you bind memory: until then the
    /// driver refuses to bind.
    #[inline]
    pub fn complete_elsewhere(self) -> MulticastObject {
        MulticastObject { memory: Arc::new(self.memory) }
    }
}

/// A multicast object with all of its devices: memory of each device behind one address. Clones share the
/// object.
///
/// [`MulticastTeam`] creates one. Memory of each device is [bound](Self::bind) to it, and then it is
/// [mapped](Self::map). Only multimem instructions of kernels access the mapping. The object is released
/// when all clones, bindings and mappings are dropped.
///
/// Unverified (from documentation), and shown on the software driver only.
#[derive(Clone, Debug)]
pub struct MulticastObject {
    memory: Arc<PhysicalMemory>,
}

impl MulticastObject {
    /// Returns the size in bytes of the memory of each device.
    #[inline]
    pub fn size(&self) -> usize {
        self.memory.size()
    }

    /// Returns the unit of the offsets and sizes of bound memory, in bytes.
    #[inline]
    pub fn granularity(&self) -> usize {
        self.memory.granularity()
    }

    /// Returns the raw handle without giving up ownership. Do not release it.
    #[inline]
    pub fn as_raw(&self) -> CUmemGenericAllocationHandle {
        self.memory.as_raw()
    }

    /// Binds memory of a device at `offset` bytes from the start. The binding owns the memory, either
    /// [`PhysicalMemory`] or a [`Mapping`](super::Mapping). Calls `cuMulticastBindMem` or
    /// `cuMulticastBindAddr`.
    ///
    /// # Errors
    /// - [`Invalid::Granularity`] and [`Invalid::Range`] for the offset and the size of the memory.
    /// - `CUDA_ERROR_INVALID_VALUE` if the memory is on another device, or memory of the device is bound
    ///   there already.
    /// - `CUDA_ERROR_SYSTEM_NOT_READY` and `CUDA_ERROR_NOT_PERMITTED`, if the fabric is not ready.
    ///
    /// The memory is then dropped; [`try_bind`](Self::try_bind) returns it.
    ///
    /// Since CUDA 12.1; before CUDA 13.1 the driver takes the device from the memory. Raw:
    /// [`cuMulticastBindMem_v2`](fn@cuda_sys::cuMulticastBindMem_v2),
    /// [`cuMulticastBindMem`](fn@cuda_sys::cuMulticastBindMem),
    /// [`cuMulticastBindAddr_v2`](fn@cuda_sys::cuMulticastBindAddr_v2),
    /// [`cuMulticastBindAddr`](fn@cuda_sys::cuMulticastBindAddr).
    #[doc(alias = "cuMulticastBindMem", alias = "cuMulticastBindAddr")]
    #[inline]
    pub fn bind<M: Bindable>(
        &self,
        device: Device,
        offset: usize,
        memory: M,
    ) -> Result<Binding<Self, M>> {
        Ok(self.try_bind(device, offset, memory)?)
    }

    /// Does the same as [`bind`](Self::bind), but returns the memory with the error.
    ///
    /// # Errors
    /// See [`bind`](Self::bind).
    #[inline]
    pub fn try_bind<M: Bindable>(
        &self,
        device: Device,
        offset: usize,
        memory: M,
    ) -> Result<Binding<Self, M>, Rejected<M>> {
        Binding::new(self, device, offset, memory)
    }

    /// Maps the object at `offset` bytes from the start of a reservation. No device has access yet. Calls
    /// `cuMemMap`.
    ///
    /// # Errors
    /// See [`Reservation::map`].
    ///
    /// Since CUDA 12.1. Raw: [`cuMemMap`](fn@cuda_sys::cuMemMap).
    #[doc(alias = "cuMemMap")]
    #[inline]
    pub fn map(&self, reservation: &Reservation, offset: usize) -> Result<MulticastMapping> {
        release::drain();
        reservation.call_map(offset, &self.memory)?;
        Ok(MulticastMapping(Owned::new(Mapped {
            address: reservation.address() + offset as u64,
            object: Arc::clone(&self.memory),
            reservation: reservation.clone(),
        })))
    }
}

impl Target for MulticastObject {
    const BINDING: &'static str = "a binding of a multicast object";
    const UNBIND: &'static str = "cuMulticastUnbind";

    #[inline]
    fn limits(&self) -> (usize, usize) {
        (self.granularity(), self.size())
    }

    #[inline]
    unsafe fn bind(
        &self,
        device: Device,
        offset: usize,
        memory: &PhysicalMemory,
        address: Option<CUdeviceptr>,
    ) -> Result<()> {
        let (object, number, size) = (self.as_raw(), device.as_raw(), memory.size());
        let check = |call| check_device(device, memory, call);
        let Some(address) = address else {
            let handle = memory.as_raw();
            // SAFETY: both handles are alive. The rest is as the caller promises.
            let bound =
                unsafe { call!(cuMulticastBindMem_v2(object, number, offset, handle, 0, size, 0)) };
            return newest_or(bound, || {
                check("cuMulticastBindMem")?;
                // SAFETY: as above.
                unsafe { call!(cuMulticastBindMem(object, offset, handle, 0, size, 0)) }
            });
        };
        // SAFETY: the handle is alive, and the mapping has this size. The rest is as the caller promises.
        let bound =
            unsafe { call!(cuMulticastBindAddr_v2(object, number, offset, address, size, 0)) };
        newest_or(bound, || {
            check("cuMulticastBindAddr")?;
            // SAFETY: as above.
            unsafe { call!(cuMulticastBindAddr(object, offset, address, size, 0)) }
        })
    }

    #[inline]
    unsafe fn unbind(&self, device: CUdevice, offset: usize, size: usize) -> CUresult {
        // SAFETY: as the caller promises.
        unsafe { cuda_sys::cuMulticastUnbind(self.as_raw(), device, offset, size) }
    }
}

/// A [`MulticastObject`] that is mapped to addresses of a [`Reservation`]. Owns both.
///
/// Dropping it unmaps the object at once (`cuMemUnmap`). Only kernels use its address, so their callers keep
/// the mapping until the kernels have ended.
///
/// Unverified (from documentation).
pub struct MulticastMapping(Owned<Mapped>);

impl MulticastMapping {
    /// Returns the first address, for multimem instructions.
    #[inline]
    pub fn address(&self) -> CUdeviceptr {
        self.0.address
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.0.object.size()
    }

    /// Returns the reservation.
    #[inline]
    pub fn reservation(&self) -> &Reservation {
        &self.0.reservation
    }

    /// Sets the access of a device. Calls `cuMemSetAccess`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` or a similar code if the device is not one of the object's.
    ///
    /// Since CUDA 12.1. Raw: [`cuMemSetAccess`](fn@cuda_sys::cuMemSetAccess).
    #[doc(alias = "cuMemSetAccess")]
    #[inline]
    pub fn set_access(&mut self, device: Device, access: MemoryAccess) -> Result<()> {
        // SAFETY: no work of safe code uses the mapping. Callers of kernels promise that their access
        // remains.
        unsafe { set_access(self.address(), self.size(), &[access.at(device.into())]) }
    }

    /// Unmaps the object. Calls `cuMemUnmap`.
    ///
    /// # Errors
    /// Errors from the driver. The mapping is then dropped.
    ///
    /// Since CUDA 12.1. Raw: [`cuMemUnmap`](fn@cuda_sys::cuMemUnmap).
    #[doc(alias = "cuMemUnmap")]
    #[inline]
    pub fn unmap(self) -> Result<()> {
        // SAFETY: the range is exactly this mapping. Kernels that used the address have ended, as their
        // callers promised.
        unsafe { self.0.destroy() }
    }
}

debug_struct! {
    MulticastMapping |its| { address: format_args!("{:#x}", its.address()), size: its.size(), .. }
}

/// A mapping, with its owners, which are dropped after it is unmapped.
struct Mapped {
    address: CUdeviceptr,
    object: Arc<PhysicalMemory>,
    reservation: Reservation,
}

destroy! {
    Mapped as "a mapping of a multicast object", leaves Object, quiet true;
    // SAFETY: this value stands for the mapping, and the caller promises that this is the first call
    // that succeeds. Kernels that used the address have ended, as their callers promised.
    |its| unsafe { answer!(cuMemUnmap(its.address, its.object.size())) };

    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        self.reservation.leak();
    }
}

/// Checks that memory is on a device, for a driver that takes the device from the memory. Returns the error
/// of newer drivers.
#[inline]
fn check_device(device: Device, memory: &PhysicalMemory, call: &'static str) -> Result<()> {
    if memory.device() == Some(device) {
        return Ok(());
    }
    Err(DriverError::new(CUresult::CUDA_ERROR_INVALID_VALUE, call).into())
}
