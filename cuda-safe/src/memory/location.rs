//! Where memory can lie.

use crate::device::Device;
use cuda_sys::{
    CU_DEVICE_CPU, CU_DEVICE_INVALID, CUdevice, CUmemLocation, CUmemLocation_st__bindgen_ty_1,
    CUmemLocationType,
};
use std::fmt;

/// `CUmemLocation`: a place for memory, of a device or of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryLocation {
    /// The memory of a device.
    Device(Device),
    /// The host's memory.
    Host,
    /// A NUMA node of the host, by its number. Since CUDA 12.2.
    HostNuma(i32),
    /// The NUMA node of the thread that asks. Since CUDA 12.2.
    HostNumaCurrent,
    /// What a newer driver has, by its numbers.
    Other {
        /// The `CUmemLocationType`.
        kind: u32,
        /// The number within that kind.
        id: i32,
    },
}

impl MemoryLocation {
    pub(super) fn raw(self) -> CUmemLocation {
        let (kind, id) = match self {
            Self::Device(device) => (
                CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                device.as_raw(),
            ),
            Self::Host => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST, 0),
            Self::HostNuma(node) => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA, node),
            Self::HostNumaCurrent => (CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0),
            Self::Other { kind, id } => (CUmemLocationType(kind), id),
        };
        CUmemLocation {
            type_: kind,
            __bindgen_anon_1: CUmemLocation_st__bindgen_ty_1 { id },
        }
    }

    /// As the driver answers it in two numbers; none for no location.
    pub(super) fn from_numbers(kind: u32, id: i32) -> Option<Self> {
        Some(match CUmemLocationType(kind) {
            CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID => return None,
            CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE => Self::Device(Device::unchecked(id)),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST => Self::Host,
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA => Self::HostNuma(id),
            CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT => Self::HostNumaCurrent,
            CUmemLocationType(kind) => Self::Other { kind, id },
        })
    }

    /// As functions from before CUDA 12.2 have it, which know devices and the host.
    pub(super) fn as_device(self) -> Option<CUdevice> {
        match self {
            Self::Device(device) => Some(device.as_raw()),
            Self::Host => Some(CU_DEVICE_CPU),
            _ => None,
        }
    }

    /// The other way round; none for no location.
    pub(super) fn from_device(device: CUdevice) -> Option<Self> {
        match device {
            CU_DEVICE_CPU => Some(Self::Host),
            CU_DEVICE_INVALID => None,
            device => Some(Self::Device(Device::unchecked(device))),
        }
    }
}

/// For error texts.
impl fmt::Display for MemoryLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(device) => write!(f, "device {}", device.ordinal()),
            Self::Host | Self::HostNumaCurrent => f.write_str("the host"),
            Self::HostNuma(node) => write!(f, "NUMA node {node} of the host"),
            Self::Other { kind, id } => write!(f, "location {id} of kind {kind}"),
        }
    }
}

impl From<Device> for MemoryLocation {
    fn from(device: Device) -> Self {
        Self::Device(device)
    }
}
