//! Locations of memory: devices, the host, and NUMA nodes.

use crate::device::Device;
use cuda_sys::{
    CU_DEVICE_CPU, CU_DEVICE_INVALID, CUdevice, CUmemLocation, CUmemLocation_st__bindgen_ty_1,
    CUmemLocationType,
};
use std::fmt;

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

impl From<Device> for MemoryLocation {
    #[inline]
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}
