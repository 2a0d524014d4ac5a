//! Logical endpoints: numbers under which kernels and copies reach memory of one device or of several.

use super::binding::{Bindable, Binding, Target};
use super::physical::{PhysicalMemory, check_size};
use crate::call::{Invalid, Rejected, Result, answer, call, out, refuse_if};
use crate::device::Device;
use crate::release::{self, Keep, Owned, create, destroy};
use cuda_sys::{
    CUdevice, CUdeviceptr, CUlogicalEndpointFabricHandle, CUlogicalEndpointFlag,
    CUlogicalEndpointId, CUlogicalEndpointIpcHandleType as HandleType, CUlogicalEndpointProp,
    CUlogicalEndpointType, CUresult, Zeroable,
};
use std::sync::Arc;

/// Consecutive ids for [`LogicalEndpoint`]s. Clones share them.
///
/// The ids are released when all clones, and all endpoints with one of them, are dropped.
///
/// Unverified (from documentation), as everything about logical endpoints.
#[derive(Clone, Debug)]
pub struct EndpointIds {
    ids: Arc<Owned<Ids>>,
}

#[derive(Debug)]
struct Ids {
    first: CUlogicalEndpointId,
    count: u32,
}

impl EndpointIds {
    /// Reserves ids. Calls `cuLogicalEndpointIdReserve`.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing) before CUDA 13.3; `CUDA_ERROR_NOT_SUPPORTED` if no device
    /// has logical endpoints
    /// ([`LOGICAL_ENDPOINT_UNICAST_SUPPORTED`](crate::device::attribute::LOGICAL_ENDPOINT_UNICAST_SUPPORTED));
    /// `CUDA_ERROR_INVALID_VALUE` if `count` is 0.
    ///
    /// Since CUDA 13.3. Raw: [`cuLogicalEndpointIdReserve`](fn@cuda_sys::cuLogicalEndpointIdReserve),
    /// [`cuLogicalEndpointIdRelease`](fn@cuda_sys::cuLogicalEndpointIdRelease).
    #[doc(alias = "cuLogicalEndpointIdReserve", alias = "cuLogicalEndpointIdRelease")]
    #[inline]
    pub fn reserve(count: u32) -> Result<Self> {
        crate::call::init::init()?;
        // SAFETY: `create` passes a valid pointer.
        let first = create(|place| unsafe { call!(cuLogicalEndpointIdReserve(place, count)) })?;
        Ok(Self { ids: Arc::new(Owned::new(Ids { first, count })) })
    }

    /// Returns the first id. The others follow.
    #[inline]
    pub fn first(&self) -> CUlogicalEndpointId {
        self.ids.first
    }

    /// Returns the number of ids.
    #[inline]
    pub fn count(&self) -> u32 {
        self.ids.count
    }

    /// Creates an endpoint with the id at `index`, counted from 0. Calls `cuLogicalEndpointCreate`.
    ///
    /// # Errors
    /// - [`Invalid::Range`] for an index beyond the ids.
    /// - [`Invalid::Granularity`] and [`Invalid::TooLarge`] for the size, which the
    ///   [limits](EndpointOptions::limits) of the devices restrict.
    /// - `CUDA_ERROR_INVALID_VALUE` if the id has an endpoint; `CUDA_ERROR_NOT_SUPPORTED`.
    ///
    /// Since CUDA 13.3. Raw: [`cuLogicalEndpointCreate`](fn@cuda_sys::cuLogicalEndpointCreate),
    /// [`cuLogicalEndpointDestroy`](fn@cuda_sys::cuLogicalEndpointDestroy).
    #[doc(alias = "cuLogicalEndpointCreate", alias = "cuLogicalEndpointDestroy")]
    #[inline]
    pub fn create(&self, index: u32, options: &EndpointOptions) -> Result<PendingEndpoint> {
        release::drain();
        let id = self.id(index)?;
        let limits = options.limits()?;
        let size = options.size;
        check_size(size, limits.alignment)?;
        refuse_if!(size > limits.size, Invalid::TooLarge { len: size, size: 1 });
        let properties = options.properties();
        // SAFETY: the pointer refers to a local variable.
        unsafe { call!(cuLogicalEndpointCreate(id, &raw const properties)) }?;
        Ok(self.pending(id, size, limits.alignment))
    }

    /// Gives the id at `index`, counted from 0, to an endpoint that another process has
    /// [exported](LogicalEndpoint::export). Calls `cuLogicalEndpointImport`.
    ///
    /// # Errors
    /// [`Invalid::Range`] for an index beyond the ids; `CUDA_ERROR_INVALID_VALUE` if the id has an
    /// endpoint; `CUDA_ERROR_NOT_SUPPORTED` if the handle is not valid here.
    ///
    /// # Safety
    /// The handle was exported from an endpoint with these options, and other processes use the memory in
    /// ways that do not race with this one.
    ///
    /// Since CUDA 13.3. Raw: [`cuLogicalEndpointImport`](fn@cuda_sys::cuLogicalEndpointImport).
    #[doc(alias = "cuLogicalEndpointImport")]
    #[inline]
    pub unsafe fn import(
        &self,
        index: u32,
        handle: &EndpointHandle,
        options: &EndpointOptions,
    ) -> Result<PendingEndpoint> {
        release::drain();
        let id = self.id(index)?;
        let limits = options.limits()?;
        let raw = CUlogicalEndpointFabricHandle { data: handle.0 };
        let kind = HandleType::CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_FABRIC;
        // SAFETY: the pointer refers to a local variable of the type that this handle type requires.
        unsafe { call!(cuLogicalEndpointImport(id, (&raw const raw).cast(), kind)) }?;
        Ok(self.pending(id, options.size, limits.alignment))
    }

    #[inline]
    fn id(&self, index: u32) -> Result<CUlogicalEndpointId> {
        if index < self.ids.count {
            return Ok(self.ids.first + index);
        }
        let (start, len) = (index as usize, self.ids.count as usize);
        let end = start + 1;
        Err(Invalid::Range { start, end, len }.into())
    }

    #[inline]
    fn pending(&self, id: CUlogicalEndpointId, size: usize, alignment: usize) -> PendingEndpoint {
        PendingEndpoint {
            endpoint: LogicalEndpoint {
                inner: Arc::new(Inner {
                    endpoint: Owned::new(Endpoint { id, ids: Arc::clone(&self.ids) }),
                    size,
                    alignment,
                }),
            },
        }
    }
}

/// Options of a logical endpoint, for [`EndpointIds::create`].
///
/// Unverified (from documentation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct EndpointOptions {
    /// The devices of the endpoint.
    pub devices: EndpointDevices,
    /// The size in bytes.
    pub size: usize,
    /// Whether the endpoint can be [exported](LogicalEndpoint::export) over the fabric.
    pub shareable: bool,
    /// Whether the endpoint counts operations
    /// ([`LOGICAL_ENDPOINT_COUNTED_OPS_SUPPORTED`](crate::device::attribute::LOGICAL_ENDPOINT_COUNTED_OPS_SUPPORTED)).
    pub counted: bool,
}

/// The devices of a logical endpoint (`CUlogicalEndpointType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndpointDevices {
    /// Memory of one device.
    Unicast(Device),
    /// Memory of this number of devices, which are [added](PendingEndpoint::add) one by one.
    Multicast(u32),
}

/// The limits of logical endpoints. Returned by [`EndpointOptions::limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndpointLimits {
    /// The unit of the offsets and sizes of bound memory, in bytes.
    pub alignment: usize,
    /// The largest size in bytes.
    pub size: usize,
}

impl EndpointOptions {
    /// Returns the options of an endpoint that is not shareable.
    #[inline]
    pub fn new(devices: EndpointDevices, size: usize) -> Self {
        Self { devices, size, shareable: false, counted: false }
    }

    /// Returns the limits of such endpoints. Calls `cuLogicalEndpointGetLimits`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED`; [`Error::Missing`](crate::Error::Missing) before CUDA 13.3.
    ///
    /// Since CUDA 13.3. Raw: [`cuLogicalEndpointGetLimits`](fn@cuda_sys::cuLogicalEndpointGetLimits).
    #[doc(alias = "cuLogicalEndpointGetLimits")]
    #[inline]
    pub fn limits(&self) -> Result<EndpointLimits> {
        crate::call::init::init()?;
        let (mut alignment, mut size, properties) = (0, 0, self.properties());
        let places = (&raw mut alignment, &raw mut size, &raw const properties);
        // SAFETY: the pointers refer to local variables.
        unsafe { call!(cuLogicalEndpointGetLimits(places.0, places.1, places.2)) }?;
        let bytes = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        Ok(EndpointLimits { alignment: bytes(alignment), size: bytes(size) })
    }

    #[inline]
    fn properties(&self) -> CUlogicalEndpointProp {
        let mut raw = CUlogicalEndpointProp::zeroed();
        match self.devices {
            EndpointDevices::Unicast(device) => {
                raw.type_ = CUlogicalEndpointType::CU_LOGICAL_ENDPOINT_TYPE_UNICAST;
                raw.__bindgen_anon_1.unicast.device = device.as_raw();
            }
            EndpointDevices::Multicast(count) => {
                raw.type_ = CUlogicalEndpointType::CU_LOGICAL_ENDPOINT_TYPE_MULTICAST;
                raw.__bindgen_anon_1.multicast.numDevices = count;
            }
        }
        raw.size = self.size as u64;
        if self.shareable {
            raw.ipcHandleTypes = HandleType::CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_FABRIC.0;
        }
        if self.counted {
            raw.flags = CUlogicalEndpointFlag::CU_LOGICAL_ENDPOINT_FLAG_COUNTED_OPS.0;
        }
        raw
    }
}

/// A logical endpoint under construction: devices may be missing, and the driver constructs it in the
/// background. [`finish`](Self::finish) returns the endpoint, to which memory can be bound.
///
/// Unverified (from documentation).
#[derive(Debug)]
pub struct PendingEndpoint {
    endpoint: LogicalEndpoint,
}

impl PendingEndpoint {
    /// Adds a device to an endpoint of several devices. Calls `cuLogicalEndpointAddDevice`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the endpoint has all of its devices, or this one.
    ///
    /// Since CUDA 13.3. Raw: [`cuLogicalEndpointAddDevice`](fn@cuda_sys::cuLogicalEndpointAddDevice).
    #[doc(alias = "cuLogicalEndpointAddDevice")]
    #[inline]
    pub fn add(&mut self, device: &Device) -> Result<()> {
        // SAFETY: the endpoint exists. A device is only a number.
        unsafe { call!(cuLogicalEndpointAddDevice(self.id(), device.as_raw())) }
    }

    /// Returns the id.
    #[inline]
    pub fn id(&self) -> CUlogicalEndpointId {
        self.endpoint.id()
    }

    /// Returns the endpoint if it is constructed, and otherwise this value, to try again. Does not block.
    /// Calls `cuLogicalEndpointQuery`.
    ///
    /// # Errors
    /// Errors from the driver. The endpoint is then dropped.
    ///
    /// Since CUDA 13.3. Raw: [`cuLogicalEndpointQuery`](fn@cuda_sys::cuLogicalEndpointQuery).
    #[doc(alias = "cuLogicalEndpointQuery")]
    #[inline]
    pub fn finish(self) -> Result<Result<LogicalEndpoint, Self>> {
        // SAFETY: the endpoint exists, and `out` passes a valid pointer.
        let is_constructed =
            out(|place| unsafe { call!(cuLogicalEndpointQuery(self.id(), 1, place)) })?;
        Ok(match is_constructed {
            0 => Err(self),
            _ => Ok(self.endpoint),
        })
    }
}

/// A logical endpoint: a number under which kernels and copies over the fabric reach memory of one device,
/// or of several. Clones share it.
///
/// It is destroyed when all clones and bindings are dropped. Kernels and copies use the number without the
/// knowledge of this crate, so their callers keep the endpoint, and what is bound to it, until they have
/// ended.
///
/// Unverified (from documentation), and shown on the software driver only.
///
/// ```no_run
/// use cuda_safe::Device;
/// use cuda_safe::virtual_memory::{
///     EndpointDevices, EndpointIds, EndpointOptions, PhysicalMemory,
/// };
///
/// let device = Device::get(0)?;
/// let options = EndpointOptions::new(EndpointDevices::Unicast(device), 2 << 20);
/// let mut pending = EndpointIds::reserve(1)?.create(0, &options)?;
/// let endpoint = loop {
///     match pending.finish()? {
///         Ok(endpoint) => break endpoint,
///         Err(again) => pending = again,
///     }
/// };
/// let bound = endpoint.bind(device, 0, PhysicalMemory::new(device, 2 << 20)?)?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LogicalEndpoint {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    endpoint: Owned<Endpoint>,
    size: usize,
    alignment: usize,
}

impl LogicalEndpoint {
    /// Returns the id.
    #[inline]
    pub fn id(&self) -> CUlogicalEndpointId {
        self.inner.endpoint.id
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn size(&self) -> usize {
        self.inner.size
    }

    /// Binds memory of a device at `offset` bytes from the start. The binding owns the memory, either
    /// [`PhysicalMemory`](super::PhysicalMemory) or a [`Mapping`](super::Mapping). Calls
    /// `cuLogicalEndpointBindMem` or `cuLogicalEndpointBindAddr`.
    ///
    /// # Errors
    /// - [`Invalid::Granularity`] and [`Invalid::Range`] for the offset and the size of the memory.
    /// - `CUDA_ERROR_INVALID_VALUE` if the memory is on another device, or memory of the device is bound
    ///   there already.
    ///
    /// The memory is then dropped; [`try_bind`](Self::try_bind) returns it.
    ///
    /// Since CUDA 13.3. Raw: [`cuLogicalEndpointBindMem`](fn@cuda_sys::cuLogicalEndpointBindMem),
    /// [`cuLogicalEndpointBindAddr`](fn@cuda_sys::cuLogicalEndpointBindAddr).
    #[doc(alias = "cuLogicalEndpointBindMem", alias = "cuLogicalEndpointBindAddr")]
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

    /// Exports the endpoint for another process, which [imports](EndpointIds::import) it. Calls
    /// `cuLogicalEndpointExport`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` or `CUDA_ERROR_NOT_SUPPORTED` if the endpoint is not
    /// [shareable](EndpointOptions::shareable), or the system has no fabric.
    ///
    /// Since CUDA 13.3. Raw: [`cuLogicalEndpointExport`](fn@cuda_sys::cuLogicalEndpointExport).
    #[doc(alias = "cuLogicalEndpointExport")]
    #[inline]
    pub fn export(&self) -> Result<EndpointHandle> {
        let kind = HandleType::CU_LOGICAL_ENDPOINT_IPC_HANDLE_TYPE_FABRIC;
        // SAFETY: the endpoint exists, and the pointer refers to a handle of this kind.
        let raw = out(|place: *mut CUlogicalEndpointFabricHandle| unsafe {
            call!(cuLogicalEndpointExport(place.cast(), self.id(), kind))
        })?;
        Ok(EndpointHandle(raw.data))
    }
}

/// A handle of a logical endpoint for processes on machines of the same `NVLink` domain
/// (`CUlogicalEndpointFabricHandle`). It is sent as [bytes](Self::to_bytes).
///
/// Unverified (from documentation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndpointHandle([u8; Self::BYTES]);

impl EndpointHandle {
    /// The number of bytes of a handle.
    pub const BYTES: usize = size_of::<CUlogicalEndpointFabricHandle>();

    /// Returns the bytes of the handle.
    #[inline]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        self.0
    }

    /// Returns the handle with these bytes.
    #[inline]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self(*bytes)
    }
}

impl Target for LogicalEndpoint {
    const BINDING: &'static str = "a binding of a logical endpoint";
    const UNBIND: &'static str = "cuLogicalEndpointUnbind";

    #[inline]
    fn limits(&self) -> (usize, usize) {
        (self.inner.alignment, self.inner.size)
    }

    #[inline]
    unsafe fn bind(
        &self,
        device: Device,
        offset: usize,
        memory: &PhysicalMemory,
        address: Option<CUdeviceptr>,
    ) -> Result<()> {
        let (id, number) = (self.id(), device.as_raw());
        let (start, bytes) = (offset as u64, memory.size() as u64);
        match address {
            None => {
                let handle = memory.as_raw();
                // SAFETY: the endpoint exists, and the handle is alive. The rest is as the caller promises.
                unsafe { call!(cuLogicalEndpointBindMem(id, number, start, handle, 0, bytes, 0)) }
            }
            Some(address) => {
                let address = std::ptr::without_provenance_mut(address as usize);
                // SAFETY: the endpoint exists, and the mapping has this size. The rest is as the caller
                // promises.
                unsafe { call!(cuLogicalEndpointBindAddr(id, number, start, address, bytes, 0)) }
            }
        }
    }

    #[inline]
    unsafe fn unbind(&self, device: CUdevice, offset: usize, size: usize) -> CUresult {
        // SAFETY: as the caller promises.
        unsafe { cuda_sys::cuLogicalEndpointUnbind(self.id(), device, offset as u64, size as u64) }
    }
}

/// An endpoint, whose id is released after it is destroyed.
#[derive(Debug)]
struct Endpoint {
    id: CUlogicalEndpointId,
    ids: Arc<Owned<Ids>>,
}

destroy! {
    Endpoint as "a logical endpoint", leaves Object, quiet true;
    // SAFETY: this value stands for the endpoint, and the caller promises that this is the first call
    // that succeeds. No binding is left, as each keeps the endpoint.
    |its| unsafe { answer!(cuLogicalEndpointDestroy(its.id)) };

    /// Leaks the ids: the driver does not release that of an endpoint which exists.
    #[inline]
    fn has_leaked(&self, _: &dyn Keep) {
        std::mem::forget(Arc::clone(&self.ids));
    }
}

destroy! {
    Ids as "the ids of logical endpoints", leaves Object, quiet true;
    // SAFETY: this value stands for the ids, and the caller promises that this is the first call that
    // succeeds. No endpoint has one of them, as each keeps the ids.
    |its| unsafe { answer!(cuLogicalEndpointIdRelease(its.first, its.count)) }
}
