//! Peer-to-peer capabilities of devices, and atomic operations on the memory of peers and of the host.

use super::{Device, Uuid};
use crate::call::{Result, c_enum, call, out};
use bitflags::bitflags;
use cuda_sys::{
    CUatomicOperation, CUatomicOperationCapability, CUcliqueInfo, CUcliqueType,
    CUdevice_P2PAttribute,
};

c_enum! {
    /// A capability or property of the link between two devices (`CUdevice_P2PAttribute`).
    #[non_exhaustive]
    pub enum PeerAttribute = CUdevice_P2PAttribute {
        /// The relative performance of the link. 0 is the best.
        PerformanceRank = CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK,
        /// Whether kernels of one device can access the memory of the other: 0 or 1.
        AccessSupported = CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED,
        /// Whether the link supports all native atomic operations: 0 or 1.
        NativeAtomicSupported = CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED,
        /// Whether CUDA arrays can be accessed over the link: 0 or 1.
        ArrayAccessSupported = CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED,
        /// Whether the link supports only some native atomic operations: 0 or 1. Since CUDA 13.0.
        OnlyPartialNativeAtomicSupported = CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED,
    }
}

c_enum! {
    /// An atomic operation (`CUatomicOperation`).
    #[non_exhaustive]
    pub enum AtomicOperation = CUatomicOperation {
        /// Integer addition.
        IntegerAdd = CU_ATOMIC_OPERATION_INTEGER_ADD,
        /// Integer minimum.
        IntegerMin = CU_ATOMIC_OPERATION_INTEGER_MIN,
        /// Integer maximum.
        IntegerMax = CU_ATOMIC_OPERATION_INTEGER_MAX,
        /// Integer increment by 1, which wraps at a limit.
        IntegerIncrement = CU_ATOMIC_OPERATION_INTEGER_INCREMENT,
        /// Integer decrement by 1, which wraps at a limit.
        IntegerDecrement = CU_ATOMIC_OPERATION_INTEGER_DECREMENT,
        /// Bitwise AND.
        And = CU_ATOMIC_OPERATION_AND,
        /// Bitwise OR.
        Or = CU_ATOMIC_OPERATION_OR,
        /// Bitwise XOR.
        Xor = CU_ATOMIC_OPERATION_XOR,
        /// Exchange of the value.
        Exchange = CU_ATOMIC_OPERATION_EXCHANGE,
        /// Exchange of the value if it equals an expected value.
        CompareAndSwap = CU_ATOMIC_OPERATION_CAS,
        /// Floating-point addition.
        FloatAdd = CU_ATOMIC_OPERATION_FLOAT_ADD,
        /// Floating-point minimum.
        FloatMin = CU_ATOMIC_OPERATION_FLOAT_MIN,
        /// Floating-point maximum.
        FloatMax = CU_ATOMIC_OPERATION_FLOAT_MAX,
    }
}

bitflags! {
    /// The supported forms of an atomic operation (`CUatomicOperationCapability`). Empty if the
    /// operation is not supported.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AtomicCapabilities: u32 {
        /// Signed numbers.
        const SIGNED = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SIGNED.0;
        /// Unsigned numbers.
        const UNSIGNED = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_UNSIGNED.0;
        /// Reduction: the operation does not return the old value.
        const REDUCTION = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_REDUCTION.0;
        /// 32 bits.
        const SCALAR_32 = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SCALAR_32.0;
        /// 64 bits.
        const SCALAR_64 = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SCALAR_64.0;
        /// 128 bits.
        const SCALAR_128 = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SCALAR_128.0;
        /// Vectors of four 32-bit elements.
        const VECTOR_32X4 = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_VECTOR_32x4.0;
        // Unknown flags of newer drivers are preserved.
        const _ = !0;
    }
}

impl Device {
    /// Returns whether kernels of this device can access memory of `peer`. Calls
    /// `cuDeviceCanAccessPeer`.
    ///
    /// [`Context::enable_peer_access`](crate::Context::enable_peer_access) enables the access. For a
    /// device and itself the driver returns false.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 4.0. Raw: [`cuDeviceCanAccessPeer`](fn@cuda_sys::cuDeviceCanAccessPeer).
    #[doc(alias = "cuDeviceCanAccessPeer")]
    #[inline]
    pub fn can_access_peer(&self, peer: &Self) -> Result<bool> {
        // SAFETY: `out` passes a valid pointer.
        let is_supported =
            out(|place| unsafe { call!(cuDeviceCanAccessPeer(place, self.raw, peer.raw)) })?;
        Ok(is_supported != 0)
    }

    /// Returns an attribute of the link from this device to `peer`. Calls `cuDeviceGetP2PAttribute`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` if both devices are the same; `CUDA_ERROR_INVALID_VALUE` if the
    /// driver does not know the attribute.
    ///
    /// Since CUDA 8.0. Raw: [`cuDeviceGetP2PAttribute`](fn@cuda_sys::cuDeviceGetP2PAttribute).
    #[doc(alias = "cuDeviceGetP2PAttribute")]
    #[inline]
    pub fn peer_attribute(&self, attribute: PeerAttribute, peer: &Self) -> Result<u32> {
        let attribute = attribute.raw();
        // SAFETY: `out` passes a valid pointer.
        let value = out(|place| unsafe {
            call!(cuDeviceGetP2PAttribute(place, attribute, self.raw, peer.raw))
        })?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// Returns the forms of an atomic operation that this device supports natively on memory of `peer`.
    /// Calls `cuDeviceGetP2PAtomicCapabilities`.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing); `CUDA_ERROR_INVALID_DEVICE` if both devices are the
    /// same.
    ///
    /// Since CUDA 13.0. Raw:
    /// [`cuDeviceGetP2PAtomicCapabilities`](fn@cuda_sys::cuDeviceGetP2PAtomicCapabilities).
    #[doc(alias = "cuDeviceGetP2PAtomicCapabilities")]
    #[inline]
    pub fn peer_atomics(
        &self,
        operation: AtomicOperation,
        peer: &Self,
    ) -> Result<AtomicCapabilities> {
        let operation = operation.raw();
        let from = &raw const operation;
        // SAFETY: `out` passes a valid pointer, and the other one is to a local: one of each.
        let capabilities = out(|place| unsafe {
            call!(cuDeviceGetP2PAtomicCapabilities(place, from, 1, self.raw, peer.raw))
        })?;
        Ok(AtomicCapabilities::from_bits_retain(capabilities))
    }

    /// Returns the forms of an atomic operation that this device supports natively on host memory. Calls
    /// `cuDeviceGetHostAtomicCapabilities`.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing).
    ///
    /// Since CUDA 13.0. Raw:
    /// [`cuDeviceGetHostAtomicCapabilities`](fn@cuda_sys::cuDeviceGetHostAtomicCapabilities).
    #[doc(alias = "cuDeviceGetHostAtomicCapabilities")]
    #[inline]
    pub fn host_atomics(&self, operation: AtomicOperation) -> Result<AtomicCapabilities> {
        let operation = operation.raw();
        let from = &raw const operation;
        // SAFETY: `out` passes a valid pointer, and the other one is to a local: one of each.
        let capabilities = out(|place| unsafe {
            call!(cuDeviceGetHostAtomicCapabilities(place, from, 1, self.raw))
        })?;
        Ok(AtomicCapabilities::from_bits_retain(capabilities))
    }
}

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
    #[doc(alias = "cuDeviceGetCliqueCount", alias = "cuDeviceGetCliqueInfo")]
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
