//! The place of a device in the fabric: its cluster and its cliques.

use super::{Device, Uuid};
use crate::call::{Result, c_enum, call, out};
use cuda_sys::{CUcliqueInfo, CUcliqueType};

/// A fabric clique: devices that reach each other's memory in one way (`CUcliqueInfo`). Returned by
/// [`Device::fabric_cliques`].
///
/// Unverified (from documentation).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FabricClique {
    /// What the devices of the clique can share.
    pub kind: FabricCliqueKind,
    /// The number of the clique. Devices of the same [cluster](Device::fabric_cluster) with the same number
    /// and kind are in one clique.
    pub id: u32,
}

c_enum! {
    /// What the devices of a fabric clique can share (`CUcliqueType`).
    pub enum FabricCliqueKind = CUcliqueType or Other {
        /// Memory of one device, by its address.
        UnicastPointer = CU_CLIQUE_TYPE_UNICAST_POINTER,
        /// Memory of several devices, by the address of a
        /// [multicast object](crate::virtual_memory::MulticastObject).
        MulticastPointer = CU_CLIQUE_TYPE_MULTICAST_POINTER,
        /// Memory of one device, by a [logical endpoint](crate::virtual_memory::LogicalEndpoint).
        UnicastEndpoint = CU_CLIQUE_TYPE_UNICAST_LOGICAL_ENDPOINT,
        /// Memory of several devices, by a [logical endpoint](crate::virtual_memory::LogicalEndpoint).
        MulticastEndpoint = CU_CLIQUE_TYPE_MULTICAST_LOGICAL_ENDPOINT,
    }
}

impl Device {
    /// Returns the UUID of the fabric cluster of the device. Calls `cuDeviceGetFabricClusterUuid`.
    ///
    /// Unverified (from documentation).
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` without a fabric; `CUDA_ERROR_FABRIC_NOT_READY`;
    /// [`Error::Missing`](crate::Error::Missing) before CUDA 13.4.
    ///
    /// Since CUDA 13.4. Raw:
    /// [`cuDeviceGetFabricClusterUuid`](fn@cuda_sys::cuDeviceGetFabricClusterUuid).
    #[doc(alias = "cuDeviceGetFabricClusterUuid")]
    #[inline]
    pub fn fabric_cluster(&self) -> Result<Uuid> {
        // SAFETY: `out` passes a valid pointer.
        let uuid = out(|place| unsafe { call!(cuDeviceGetFabricClusterUuid(place, self.raw)) })?;
        Ok(Uuid(uuid.bytes.map(|byte| byte.to_ne_bytes()[0])))
    }

    /// Returns the fabric cliques of the device. Calls `cuDeviceGetCliqueCount` and
    /// `cuDeviceGetCliqueInfo`.
    ///
    /// Unverified (from documentation).
    ///
    /// # Errors
    /// `CUDA_ERROR_FABRIC_NOT_READY`; [`Error::Missing`](crate::Error::Missing) before CUDA 13.4.
    ///
    /// Since CUDA 13.4. Raw: [`cuDeviceGetCliqueCount`](fn@cuda_sys::cuDeviceGetCliqueCount),
    /// [`cuDeviceGetCliqueInfo`](fn@cuda_sys::cuDeviceGetCliqueInfo).
    #[doc(alias = "cuDeviceGetCliqueCount")]
    #[doc(alias = "cuDeviceGetCliqueInfo")]
    #[inline]
    pub fn fabric_cliques(&self) -> Result<Vec<FabricClique>> {
        // SAFETY: `out` passes a valid pointer.
        let mut count = out(|place| unsafe { call!(cuDeviceGetCliqueCount(place, self.raw)) })?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let mut cliques = vec![CUcliqueInfo { type_: CUcliqueType::default(), id: 0 }; count];
        let (first, room) = (cliques.as_mut_ptr(), &raw mut count);
        // SAFETY: the array has `count` entries, and the other pointer is to a local.
        unsafe { call!(cuDeviceGetCliqueInfo(first, room, self.raw)) }?;
        let cliques = cliques.into_iter().take(count);
        let clique = |raw: CUcliqueInfo| FabricClique {
            kind: FabricCliqueKind::from_raw(raw.type_),
            id: raw.id,
        };
        Ok(cliques.map(clique).collect())
    }
}
