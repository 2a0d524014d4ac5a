//! What devices can do with each other's memory, and with the host's.

use super::Device;
use crate::call::call;
use crate::error::Result;
use bitflags::bitflags;
use cuda_sys::{CUatomicOperation, CUatomicOperationCapability, CUdevice_P2PAttribute};

/// `CUdevice_P2PAttribute`: something that two devices can do with each other, or how well.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PeerAttribute {
    /// How good the link is, from 0 for the best.
    PerformanceRank,
    /// Whether kernels of one reach the memory of the other: 0 or 1.
    AccessSupported,
    /// Whether atomics over the link are the device's own: 0 or 1.
    NativeAtomicSupported,
    /// Whether arrays are reached over the link: 0 or 1.
    ArrayAccessSupported,
    /// Whether only some atomics over the link are the device's own: 0 or 1. Since CUDA 13.0.
    OnlyPartialNativeAtomicSupported,
}

impl PeerAttribute {
    fn raw(self) -> CUdevice_P2PAttribute {
        match self {
            Self::PerformanceRank => {
                CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK
            }
            Self::AccessSupported => {
                CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED
            }
            Self::NativeAtomicSupported => {
                CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED
            }
            Self::ArrayAccessSupported => {
                CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED
            }
            Self::OnlyPartialNativeAtomicSupported => {
                CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED
            }
        }
    }
}

/// `CUatomicOperation`: a kind of atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AtomicOperation {
    /// Of integers: adds.
    IntegerAdd = 0,
    /// Of integers: the smaller one.
    IntegerMin = 1,
    /// Of integers: the larger one.
    IntegerMax = 2,
    /// Of integers: adds 1, and wraps at a limit.
    IntegerIncrement = 3,
    /// Of integers: takes 1 away, and wraps at a limit.
    IntegerDecrement = 4,
    /// Of bits: both.
    And = 5,
    /// Of bits: any.
    Or = 6,
    /// Of bits: one of the two.
    Xor = 7,
    /// Puts a new value in the place of the old one.
    Exchange = 8,
    /// As the exchange, if the old value is as expected.
    CompareAndSwap = 9,
    /// Of floating-point numbers: adds.
    FloatAdd = 10,
    /// Of floating-point numbers: the smaller one.
    FloatMin = 11,
    /// Of floating-point numbers: the larger one.
    FloatMax = 12,
}

bitflags! {
    /// `CUatomicOperationCapability`: in which forms an atomic operation is done; none if it is not.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AtomicCapabilities: u32 {
        /// Of signed numbers.
        const SIGNED = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SIGNED.0;
        /// Of unsigned numbers.
        const UNSIGNED = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_UNSIGNED.0;
        /// As a reduction, without the value before.
        const REDUCTION = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_REDUCTION.0;
        /// Of 32 bits.
        const SCALAR_32 = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SCALAR_32.0;
        /// Of 64 bits.
        const SCALAR_64 = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SCALAR_64.0;
        /// Of 128 bits.
        const SCALAR_128 = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_SCALAR_128.0;
        /// Of four times 32 bits.
        const VECTOR_32X4 = CUatomicOperationCapability::CU_ATOMIC_CAPABILITY_VECTOR_32x4.0;
        // Flags that newer drivers know are kept.
        const _ = !0;
    }
}

impl Device {
    /// `cuDeviceCanAccessPeer(&can, device, peer)`: whether kernels of this device can reach memory
    /// of `peer`, once [`Context::enable_peer_access`](crate::Context::enable_peer_access) allows it.
    /// Of a device and itself the driver says no.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 4.0. Raw: [`cuDeviceCanAccessPeer`](fn@cuda_sys::cuDeviceCanAccessPeer).
    #[doc(alias = "cuDeviceCanAccessPeer")]
    pub fn can_access_peer(&self, peer: &Self) -> Result<bool> {
        let mut can = 0;
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuDeviceCanAccessPeer(&raw mut can, self.raw, peer.raw)) }?;
        Ok(can != 0)
    }

    /// `cuDeviceGetP2PAttribute(&value, attribute, device, peer)`: an attribute of the link from
    /// this device to `peer`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` for a device and itself; `CUDA_ERROR_INVALID_VALUE` if the driver
    /// does not know the attribute.
    ///
    /// Since CUDA 8.0. Raw: [`cuDeviceGetP2PAttribute`](fn@cuda_sys::cuDeviceGetP2PAttribute).
    #[doc(alias = "cuDeviceGetP2PAttribute")]
    pub fn peer_attribute(&self, attribute: PeerAttribute, peer: &Self) -> Result<u32> {
        let mut value = 0;
        let (place, attribute) = (&raw mut value, attribute.raw());
        // SAFETY: the pointer is to a local.
        unsafe {
            call!(cuDeviceGetP2PAttribute(
                place, attribute, self.raw, peer.raw
            ))
        }?;
        Ok(u32::try_from(value).unwrap_or(0))
    }

    /// `cuDeviceGetP2PAtomicCapabilities(&capabilities, &operation, 1, device, peer)`: in which forms
    /// this device does an atomic operation in the memory of `peer` by itself.
    ///
    /// # Errors
    /// The driver is older; `CUDA_ERROR_INVALID_DEVICE` for a device and itself.
    ///
    /// Since CUDA 13.0. Raw:
    /// [`cuDeviceGetP2PAtomicCapabilities`](fn@cuda_sys::cuDeviceGetP2PAtomicCapabilities).
    #[doc(alias = "cuDeviceGetP2PAtomicCapabilities")]
    pub fn peer_atomics(
        &self,
        operation: AtomicOperation,
        peer: &Self,
    ) -> Result<AtomicCapabilities> {
        let (mut capabilities, operation) = (0, CUatomicOperation(operation as u32));
        let (place, which) = (&raw mut capabilities, &raw const operation);
        // SAFETY: the pointers are to locals, one of each.
        unsafe {
            call!(cuDeviceGetP2PAtomicCapabilities(
                place, which, 1, self.raw, peer.raw
            ))
        }?;
        Ok(AtomicCapabilities::from_bits_retain(capabilities))
    }

    /// `cuDeviceGetHostAtomicCapabilities(&capabilities, &operation, 1, device)`: in which forms this
    /// device does an atomic operation in the memory of the host by itself.
    ///
    /// # Errors
    /// The driver is older.
    ///
    /// Since CUDA 13.0. Raw:
    /// [`cuDeviceGetHostAtomicCapabilities`](fn@cuda_sys::cuDeviceGetHostAtomicCapabilities).
    #[doc(alias = "cuDeviceGetHostAtomicCapabilities")]
    pub fn host_atomics(&self, operation: AtomicOperation) -> Result<AtomicCapabilities> {
        let (mut capabilities, operation) = (0, CUatomicOperation(operation as u32));
        let (place, which) = (&raw mut capabilities, &raw const operation);
        // SAFETY: the pointers are to locals, one of each.
        unsafe { call!(cuDeviceGetHostAtomicCapabilities(place, which, 1, self.raw)) }?;
        Ok(AtomicCapabilities::from_bits_retain(capabilities))
    }
}
