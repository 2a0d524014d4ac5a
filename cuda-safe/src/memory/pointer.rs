//! Queries about addresses: pointer attributes and address ranges.

use super::{DeviceBuffer, MemoryAccess};
use crate::call::{Error, Result, c_enum, call, convert, init};
use crate::context::Context;
use crate::device::Device;
use core::ffi::c_void;
use cuda_sys::{
    CU_DEVICE_CPU, CU_DEVICE_INVALID, CUcontext, CUdevice, CUdeviceptr, CUmemAccess_flags,
    CUmemAllocationHandleType, CUmemLocation, CUmemLocation_st__bindgen_ty_1, CUmemLocationType,
    CUmemoryPool, CUmemorytype, CUpointer_attribute as Attribute, CUresult, CudaVersion,
};
use std::fmt;
use std::ops::Range;

/// The attributes of the memory at an address. Returned by [`Context::pointer_info`].
///
/// The raw handles in this struct are not owned. The objects may have been destroyed when the
/// handles are used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PointerInfo {
    /// The kind of memory.
    pub memory_type: MemoryType,
    /// The context in which the memory was allocated or registered. Null for pool memory and for
    /// virtual memory management, because this memory belongs to the device.
    pub context: CUcontext,
    /// The ordinal of the device on which the memory was allocated or registered.
    pub device: Option<u32>,
    /// The address at which kernels of the queried context access the memory, if they can.
    pub device_address: Option<CUdeviceptr>,
    /// The address at which the host accesses the memory, if it can.
    pub host_address: Option<u64>,
    /// The address range of the whole allocation, or of the reservation that contains it.
    pub range: Range<CUdeviceptr>,
    /// An identifier of the allocation, unique within the process and never reused.
    pub buffer_id: u64,
    /// Whether this is managed memory.
    pub managed: bool,
    /// Whether memory is mapped at the address, as opposed to only reserved.
    pub mapped: bool,
    /// Whether synchronous copies and fills of the memory always block until they are complete. See
    /// [`DeviceBuffer::set_sync_memops`].
    pub sync_memops: bool,
    /// Whether `cuIpcGetMemHandle` can share the memory.
    pub legacy_ipc: bool,
    /// Whether other PCI devices can access the memory (`GPUDirect` RDMA).
    pub gpu_direct_rdma: bool,
    /// The handle types that can share the memory with other processes.
    pub handle_types: CUmemAllocationHandleType,
    /// How the device of the queried context can access the memory.
    pub access: MemoryAccess,
    /// The memory pool that the memory was allocated from, or null.
    pub pool: CUmemoryPool,
    /// The address range of the mapping that contains the address. A reservation of virtual memory can
    /// have several mappings.
    pub mapping: Option<Range<CUdeviceptr>>,
    /// An identifier of the physical memory, unique within the process. It is the same at each address
    /// at which the memory is mapped.
    pub memory_block: Option<u64>,
    /// Whether the decompression engine can read the memory. `None` on drivers before CUDA 12.8.
    pub hw_decompress: Option<bool>,
    /// The locality domain of the device that the memory was allocated in. `None` if the memory is not
    /// limited to a domain, and on drivers before CUDA 13.4. (Unverified, from documentation.)
    pub locality_domain: Option<u32>,
}

// SAFETY: this is plain data. The handles in it are only numbers, and nothing is accessed through
// them.
unsafe impl Send for PointerInfo {}
// SAFETY: as for `Send`.
unsafe impl Sync for PointerInfo {}

c_enum! {
    /// A kind of memory (`CUmemorytype`).
    pub enum MemoryType = CUmemorytype or Other {
        /// Pinned or registered host memory.
        Host = CU_MEMORYTYPE_HOST,
        /// Device memory, including managed memory.
        Device = CU_MEMORYTYPE_DEVICE,
        /// A CUDA array.
        Array = CU_MEMORYTYPE_ARRAY,
        /// Memory of a unified address space of host and device.
        Unified = CU_MEMORYTYPE_UNIFIED,
    }
}

impl Context {
    /// Returns the attributes of the memory at an address of the device or the host, or `None` if
    /// the driver does not know the address.
    ///
    /// Calls `cuPointerGetAttributes(…)` with this context current, because some attributes depend
    /// on the context. Any number is a valid argument.
    ///
    /// # Errors
    /// Errors from the driver.
    ///
    /// Since CUDA 7.0. Raw: [`cuPointerGetAttributes`](fn@cuda_sys::cuPointerGetAttributes).
    #[doc(alias = "cuPointerGetAttributes")]
    #[inline]
    pub fn pointer_info(&self, address: CUdeviceptr) -> Result<Option<PointerInfo>> {
        let mut known = known_attributes(init::version()?);
        let _current = self.enter()?;
        loop {
            let values = Values::of_first(known, address);
            match &values {
                // The version of an installed source may be unknown, and then counts as the newest.
                Err(error) if is_of_unknown_attribute(error) && known > OLDEST => known -= 1,
                _ => return Ok(values?.info()),
            }
        }
    }

    /// Returns the address range of the allocation that contains a device address.
    ///
    /// Calls `cuMemGetAddressRange(&start, &size, address)`.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_FOUND` or `CUDA_ERROR_INVALID_VALUE` if no allocation contains the address.
    ///
    /// Since CUDA 3.2. Raw: [`cuMemGetAddressRange_v2`](fn@cuda_sys::cuMemGetAddressRange_v2).
    #[doc(alias = "cuMemGetAddressRange")]
    #[inline]
    pub fn address_range(&self, address: CUdeviceptr) -> Result<Range<CUdeviceptr>> {
        let (mut start, mut size) = (0, 0);
        let _current = self.enter()?;
        // SAFETY: the pointers point to local variables. The driver only looks up the address and
        // does not access it.
        unsafe { call!(cuMemGetAddressRange_v2(&raw mut start, &raw mut size, address)) }?;
        Ok(start..start.saturating_add(size as u64))
    }
}

/// The queried attributes, the newest last.
const QUERIED: [Attribute; 21] = [
    Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
    Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
    Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
    Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER,
    Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS,
    Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
    Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
    Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
    Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
    Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
    Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
    Attribute::CU_POINTER_ATTRIBUTE_MAPPED,
    Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
    Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE,
    Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
    Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
    Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
    Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR,
    Attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID,
    Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE,
    Attribute::CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL,
];

/// The versions that the last of the attributes need.
const NEWER: [CudaVersion; 2] = [CudaVersion::new(12, 8), CudaVersion::new(13, 4)];

/// The number of attributes that all supported drivers know.
const OLDEST: usize = QUERIED.len() - NEWER.len();

/// Returns the number of queried attributes that a driver knows. It rejects a query of other ones.
#[inline]
fn known_attributes(driver: CudaVersion) -> usize {
    QUERIED.len() - NEWER.iter().filter(|since| driver < **since).count()
}

#[inline]
fn is_of_unknown_attribute(error: &Error) -> bool {
    error.code() == Some(CUresult::CUDA_ERROR_INVALID_VALUE)
}

/// The values of the queried attributes. The driver writes 1, 4 or 8 bytes of each, into the low
/// bytes of a number that was zero.
struct Values {
    values: [u64; QUERIED.len()],
    /// How many attributes were queried.
    count: usize,
}

impl Values {
    /// Queries the first `count` attributes, in the current context.
    #[inline]
    fn of_first(count: usize, address: CUdeviceptr) -> Result<Self> {
        let mut values = [0_u64; QUERIED.len()];
        let mut queried = QUERIED;
        let places = values.iter_mut();
        let mut places: Vec<*mut c_void> = places.map(|place| (&raw mut *place).cast()).collect();
        // SAFETY: both lists have at least `count` entries, and each destination is a number as
        // large as the largest attribute. The driver only looks up the address and does not access
        // it.
        unsafe {
            call!(cuPointerGetAttributes(
                u32::try_from(count).unwrap_or(0),
                queried.as_mut_ptr(),
                places.as_mut_ptr(),
                address
            ))
        }?;
        Ok(Self { values, count })
    }

    /// Returns the value of an attribute, or 0 if it was not queried.
    #[inline]
    fn of(&self, attribute: Attribute) -> u64 {
        let place = QUERIED.iter().position(|queried| *queried == attribute);
        place.map_or(0, |place| self.values[place])
    }

    #[inline]
    fn has(&self, attribute: Attribute) -> bool {
        QUERIED[..self.count].contains(&attribute)
    }

    /// Returns the value of an attribute that the driver writes as an `int`.
    #[inline]
    fn small(&self, attribute: Attribute) -> u32 {
        u32::try_from(self.of(attribute) & u64::from(u32::MAX)).unwrap_or(0)
    }

    /// Converts the values, or returns `None` if they are those of an unknown address.
    #[inline]
    fn info(&self) -> Option<PointerInfo> {
        let memory_type = CUmemorytype(self.small(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE));
        if memory_type == CUmemorytype::default() {
            return None;
        }
        let is = |attribute| self.of(attribute) != 0;
        let address = |attribute| Some(self.of(attribute)).filter(|address| *address != 0);
        #[allow(clippy::cast_possible_truncation, reason = "64-bit targets only")]
        let pointer = |attribute| self.of(attribute) as usize;
        let start = self.of(Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
        let size = self.of(Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE);
        let device = self.small(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
        let mapping = self.of(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
        let mapping_size = self.of(Attribute::CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
        let decompress = Attribute::CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE;
        let domain = Attribute::CU_POINTER_ATTRIBUTE_LOCALITY_DOMAIN_ORDINAL;
        // A negative number means that there is none.
        let ordinal = |number: u32| i32::try_from(number).ok().map(|_| number);
        Some(PointerInfo {
            memory_type: MemoryType::from_raw(memory_type),
            context: std::ptr::without_provenance_mut(pointer(
                Attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
            )),
            device: ordinal(device),
            device_address: address(Attribute::CU_POINTER_ATTRIBUTE_DEVICE_POINTER),
            host_address: address(Attribute::CU_POINTER_ATTRIBUTE_HOST_POINTER),
            range: start..start.saturating_add(size),
            buffer_id: self.of(Attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID),
            managed: is(Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED),
            mapped: is(Attribute::CU_POINTER_ATTRIBUTE_MAPPED),
            sync_memops: is(Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS),
            legacy_ipc: is(Attribute::CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE),
            gpu_direct_rdma: is(Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE),
            handle_types: CUmemAllocationHandleType(
                self.small(Attribute::CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES),
            ),
            access: MemoryAccess::from_raw(CUmemAccess_flags(
                self.small(Attribute::CU_POINTER_ATTRIBUTE_ACCESS_FLAGS),
            )),
            pool: std::ptr::without_provenance_mut(pointer(
                Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
            )),
            mapping: (mapping_size != 0).then(|| mapping..mapping.saturating_add(mapping_size)),
            memory_block: address(Attribute::CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID),
            hw_decompress: self.has(decompress).then(|| is(decompress)),
            locality_domain: ordinal(self.small(domain)).filter(|_| self.has(domain)),
        })
    }
}

impl<T> DeviceBuffer<T> {
    /// Sets whether synchronous copies and fills of the whole allocation always block until they
    /// are complete.
    ///
    /// Calls `cuPointerSetAttribute(&on, SYNC_MEMOPS, address)`. The setting applies to all users
    /// of the allocation. It is required when code on other PCI devices shares the memory.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` or `CUDA_ERROR_NOT_SUPPORTED` if the memory does not support this
    /// setting. Pool memory does not.
    ///
    /// Since CUDA 6.0. Raw: [`cuPointerSetAttribute`](fn@cuda_sys::cuPointerSetAttribute).
    #[doc(alias = "cuPointerSetAttribute")]
    pub fn set_sync_memops(&mut self, on: bool) -> Result<()> {
        if self.size_bytes() == 0 {
            return Ok(());
        }
        let on = u32::from(on);
        let (value, attribute) =
            ((&raw const on).cast(), Attribute::CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
        let _current = self.stream().context().enter()?;
        // SAFETY: the pointer is to a local number, and the address is that of borrowed memory.
        unsafe { call!(cuPointerSetAttribute(value, attribute, self.as_raw())) }
    }
}

/// A location of memory, on a device or on the host (`CUmemLocation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryLocation {
    /// The memory of a device.
    Device(Device),
    /// The part of a device's memory that is close to some of its SMs, by the number of the locality
    /// domain ([`LOCALITY_DOMAIN_COUNT`](crate::device::attribute::LOCALITY_DOMAIN_COUNT)). Since CUDA 13.4.
    /// Unverified (from documentation).
    LocalityDomain {
        /// The device.
        device: Device,
        /// The number of the domain.
        domain: u8,
    },
    /// The memory of the host.
    Host,
    /// A NUMA node of the host, by its number. Since CUDA 12.2.
    HostNuma(i32),
    /// The NUMA node of the calling thread. Since CUDA 12.2.
    HostNumaCurrent,
    /// A kind of location that this crate does not know, returned by a newer driver.
    Other {
        /// The value of `CUmemLocationType`.
        kind: u32,
        /// The number of the location within its kind.
        id: i32,
    },
}

impl MemoryLocation {
    #[inline]
    pub(crate) fn raw(self) -> CUmemLocation {
        let (kind, id) = match self {
            Self::Device(device) => {
                (CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, device.as_raw())
            }
            Self::LocalityDomain { device, domain } => (
                CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN,
                domain_id(device.as_raw(), domain),
            ),
            Self::Host => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, 0),
            Self::HostNuma(node) => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, node),
            Self::HostNumaCurrent => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0),
            Self::Other { kind, id } => (CUmemLocationType(kind), id),
        };
        CUmemLocation { type_: kind, __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id } }
    }

    /// Converts a location that the driver returns. Returns `None` if there is no location.
    #[inline]
    pub(crate) fn from_raw(raw: CUmemLocation) -> Option<Self> {
        // SAFETY: all fields of the union are integers of the same size.
        Self::from_numbers(raw.type_.0, unsafe { raw.__bindgen_anon_1.id })
    }

    /// Converts a location that the driver returns as two numbers. Returns `None` if there is no
    /// location.
    #[inline]
    pub(crate) fn from_numbers(kind: u32, id: i32) -> Option<Self> {
        Some(match CUmemLocationType(kind) {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID => return None,
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Self::Device(Device::unchecked(id)),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE_LOCALITY_DOMAIN => {
                let [device, domain, ..] = id.to_ne_bytes();
                let device = Device::unchecked(device.into());
                Self::LocalityDomain { device, domain }
            }
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Self::Host,
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => Self::HostNuma(id),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Self::HostNumaCurrent,
            CUmemLocationType(kind) => Self::Other { kind, id },
        })
    }

    /// Converts to a device ordinal or the CPU, for functions before CUDA 12.2. Returns `None` for
    /// other kinds of location.
    #[inline]
    pub(super) fn as_device(self) -> Option<CUdevice> {
        match self {
            Self::Device(device) => Some(device.as_raw()),
            Self::Host => Some(CU_DEVICE_CPU),
            _ => None,
        }
    }

    /// Converts from a device ordinal or the CPU. Returns `None` if there is no location.
    #[inline]
    pub(super) fn from_device(device: CUdevice) -> Option<Self> {
        match device {
            CU_DEVICE_CPU => Some(Self::Host),
            CU_DEVICE_INVALID => None,
            device => Some(Self::Device(Device::unchecked(device))),
        }
    }
}

/// Returns the number that the union of a location has as an `int`: the device and the domain are its first
/// two bytes. Every device that has locality domains has a number below 256.
#[inline]
fn domain_id(device: CUdevice, domain: u8) -> i32 {
    let device = u8::try_from(device).unwrap_or(u8::MAX);
    i32::from_ne_bytes([device, domain, 0, 0])
}

/// Formats the location for error messages.
impl fmt::Display for MemoryLocation {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => write!(f, "device {}", device.ordinal()),
            Self::LocalityDomain { device, domain } => {
                write!(f, "locality domain {domain} of device {}", device.ordinal())
            }
            Self::Host | Self::HostNumaCurrent => f.write_str("the host"),
            Self::HostNuma(node) => write!(f, "NUMA node {node} of the host"),
            Self::Other { kind, id } => write!(f, "location {id} of kind {kind}"),
        }
    }
}

convert! { |device: Device| -> MemoryLocation { Self::Device(device) } }
