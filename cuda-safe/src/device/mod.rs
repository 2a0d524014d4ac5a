//! Devices, their attributes, and peer-to-peer capabilities.
//!
//! ```no_run
//! use cuda_safe::Device;
//!
//! for device in Device::all()? {
//!     for peer in Device::all()? {
//!         println!("{device:?} {peer:?} {}", device.can_access_peer(&peer)?);
//!     }
//! }
//! # Ok::<_, cuda_safe::Error>(())
//! ```

pub mod attribute;
mod peer;

pub use attribute::{Attribute, AttributeValue};
pub use peer::{
    AtomicCapabilities, AtomicOperation, FabricClique, FabricCliqueKind, PeerAttribute,
};

use crate::call::{Invalid, Result, c_text, call, debug, init, newest_or, out, refuse_if};
use cuda_sys::{CUdevice, CUdevice_attribute, CUuuid};
use std::fmt;

/// A GPU that this process can use (`CUdevice`). The value is a plain integer and is cheap to copy.
///
/// Get one with [`Device::get`] or [`Device::all`].
///
/// ```no_run
/// use cuda_safe::Device;
/// use cuda_safe::device::attribute;
///
/// for device in Device::all()? {
///     let sms = device.attribute(attribute::MULTIPROCESSOR_COUNT)?;
///     println!("{}: {} with {sms} SMs", device.ordinal(), device.name()?);
/// }
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    raw: CUdevice,
}

impl Device {
    /// Returns the number of devices. Initializes the driver, and calls `cuDeviceGetCount`.
    ///
    /// # Errors
    /// See [`init`](crate::init).
    ///
    /// Since CUDA 2.0. Raw: [`cuDeviceGetCount`](fn@cuda_sys::cuDeviceGetCount).
    #[doc(alias = "cuDeviceGetCount")]
    #[inline]
    pub fn count() -> Result<u32> {
        init::init()?;
        // SAFETY: `out` passes a valid pointer.
        let count = out(|place| unsafe { call!(cuDeviceGetCount(place)) })?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// Returns the device with this ordinal, starting at 0. Calls `cuDeviceGet`.
    ///
    /// # Errors
    /// [`Invalid::DeviceOrdinal`]; the errors of [`init`](crate::init).
    ///
    /// Since CUDA 2.0. Raw: [`cuDeviceGet`](fn@cuda_sys::cuDeviceGet).
    #[doc(alias = "cuDeviceGet")]
    #[inline]
    pub fn get(ordinal: u32) -> Result<Self> {
        let count = Self::count()?;
        let refused = Invalid::DeviceOrdinal { ordinal, count };
        let Ok(number) = i32::try_from(ordinal) else { return Err(refused.into()) };
        refuse_if!(ordinal >= count, refused);
        // SAFETY: `out` passes a valid pointer.
        let raw = out(|place| unsafe { call!(cuDeviceGet(place, number)) })?;
        Ok(Self { raw })
    }

    /// Returns all devices, in the order of their ordinals.
    ///
    /// # Errors
    /// See [`init`](crate::init).
    #[inline]
    pub fn all() -> Result<Vec<Self>> {
        (0..Self::count()?).map(Self::get).collect()
    }

    /// Returns the device with this PCI bus ID, for example `0000:65:00.0`. Calls
    /// `cuDeviceGetByPCIBusId`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` if no device has this ID; `CUDA_ERROR_INVALID_VALUE` if the text is
    /// not a bus ID; [`Invalid::NulInText`].
    ///
    /// Since CUDA 4.1. Raw: [`cuDeviceGetByPCIBusId`](fn@cuda_sys::cuDeviceGetByPCIBusId).
    #[doc(alias = "cuDeviceGetByPCIBusId")]
    #[inline]
    pub fn by_pci_bus_id(bus_id: &str) -> Result<Self> {
        init::init()?;
        let text = c_text(bus_id)?;
        // SAFETY: the text ends with a NUL, and `out` passes a valid pointer.
        let raw = out(|place| unsafe { call!(cuDeviceGetByPCIBusId(place, text.as_ptr())) })?;
        Ok(Self { raw })
    }

    /// Returns the device with this UUID, for example that of a device of Vulkan
    /// (`VkPhysicalDeviceIDProperties::deviceUUID`). Returns `None` if CUDA has no such device: it may be hidden by
    /// `CUDA_VISIBLE_DEVICES`, or not be one of NVIDIA. Calls `cuDeviceGetUuid` for each device.
    ///
    /// A MIG instance has a UUID of its own.
    ///
    /// # Errors
    /// See [`init`](crate::init).
    ///
    /// Since CUDA 9.2 (from 11.4 on through `cuDeviceGetUuid_v2`). Raw:
    /// [`cuDeviceGetUuid_v2`](fn@cuda_sys::cuDeviceGetUuid_v2).
    ///
    /// ```no_run
    /// use cuda_safe::Device;
    /// use cuda_safe::device::Uuid;
    ///
    /// /// The devices of Vulkan that CUDA has.
    /// fn common(uuids: &[[u8; 16]]) -> cuda_safe::Result<Vec<Device>> {
    ///     let found = uuids.iter().map(|uuid| Device::by_uuid(Uuid(*uuid)));
    ///     found.filter_map(Result::transpose).collect()
    /// }
    /// # assert_eq!(common(&[Device::get(0)?.uuid()?.0, [0; 16]])?.len(), 1);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuDeviceGetUuid")]
    #[inline]
    pub fn by_uuid(uuid: Uuid) -> Result<Option<Self>> {
        for device in Self::all()? {
            if device.uuid()? == uuid {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// Returns the device with this LUID, for example that of a device of Vulkan
    /// (`VkPhysicalDeviceIDProperties::deviceLUID`) or of Direct3D. Returns `None` if CUDA has no such device. Calls
    /// `cuDeviceGetLuid` for each device. Unverified (from documentation).
    ///
    /// # Errors
    /// See [`init`](crate::init).
    ///
    /// Since CUDA 10.0. Raw: [`cuDeviceGetLuid`](fn@cuda_sys::cuDeviceGetLuid).
    // Without an alias, because the pages that are generated from aliases are for all systems.
    #[cfg(windows)]
    #[inline]
    pub fn by_luid(bytes: [u8; 8]) -> Result<Option<Self>> {
        for device in Self::all()? {
            // A device in TCC mode has none.
            if device.luid().is_ok_and(|its| its.bytes == bytes) {
                return Ok(Some(device));
            }
        }
        Ok(None)
    }

    /// Wraps a device handle that the driver returned.
    #[inline]
    pub(crate) fn unchecked(raw: CUdevice) -> Self {
        Self { raw }
    }

    /// Returns the driver handle.
    #[inline]
    pub fn as_raw(&self) -> CUdevice {
        self.raw
    }

    /// Returns the ordinal of the device. (The driver handle has the same value.)
    #[inline]
    pub fn ordinal(&self) -> u32 {
        u32::try_from(self.raw).unwrap_or(0)
    }

    /// Returns the name of the device, for example `NVIDIA H200`. Calls `cuDeviceGetName`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 2.0. Raw: [`cuDeviceGetName`](fn@cuda_sys::cuDeviceGetName).
    #[doc(alias = "cuDeviceGetName")]
    #[inline]
    pub fn name(&self) -> Result<String> {
        let mut name = [0u8; 256];
        let (start, length) = (name.as_mut_ptr().cast(), 256);
        // SAFETY: the driver writes at most `length` bytes, the size of the array.
        unsafe { call!(cuDeviceGetName(start, length, self.raw)) }?;
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// Returns the UUID of the GPU or of the MIG instance. Calls `cuDeviceGetUuid`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 9.2 (from 11.4 on through `cuDeviceGetUuid_v2`). Raw:
    /// [`cuDeviceGetUuid_v2`](fn@cuda_sys::cuDeviceGetUuid_v2).
    #[doc(alias = "cuDeviceGetUuid")]
    #[inline]
    pub fn uuid(&self) -> Result<Uuid> {
        let uuid: CUuuid = out(|place| {
            newest_or(
                // SAFETY: `out` passes a valid pointer.
                unsafe { call!(cuDeviceGetUuid_v2(place, self.raw)) },
                // SAFETY: `out` passes a valid pointer.
                || unsafe { call!(abi::cuDeviceGetUuid(place, self.raw)) },
            )
        })?;
        Ok(Uuid(uuid.bytes.map(|byte| byte.to_ne_bytes()[0])))
    }

    /// Returns the total memory of the device, in bytes. Calls `cuDeviceTotalMem`.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2. Raw: [`cuDeviceTotalMem_v2`](fn@cuda_sys::cuDeviceTotalMem_v2).
    #[doc(alias = "cuDeviceTotalMem")]
    #[inline]
    pub fn total_memory(&self) -> Result<usize> {
        // SAFETY: `out` passes a valid pointer.
        out(|place| unsafe { call!(cuDeviceTotalMem_v2(place, self.raw)) })
    }

    /// Returns the compute capability, for example (9, 0) for an H200.
    ///
    /// # Errors
    /// Only the errors that every call can return. See [`Error`](crate::Error).
    #[inline]
    pub fn compute_capability(&self) -> Result<(u32, u32)> {
        Ok((
            self.attribute(attribute::COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(attribute::COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// Returns the value of an [attribute], in the type of the attribute. Calls `cuDeviceGetAttribute`.
    ///
    /// # Errors
    /// [`Invalid::UnknownAttribute`] if the attribute is newer than the driver.
    ///
    /// Since CUDA 2.0; the documentation of an attribute names its first CUDA version. Raw:
    /// [`cuDeviceGetAttribute`](fn@cuda_sys::cuDeviceGetAttribute).
    #[doc(alias = "cuDeviceGetAttribute")]
    pub fn attribute<T: AttributeValue>(&self, attribute: Attribute<T>) -> Result<T> {
        self.attribute_raw(attribute.as_raw())
            .map(T::from_raw)
            .map_err(|error| attribute.explain(error))
    }

    /// Returns the locally unique identifier of the device, which Direct3D and Vulkan use. Calls
    /// `cuDeviceGetLuid`. Only on Windows, without TCC mode.
    ///
    /// # Errors
    /// The error of the driver on other systems.
    ///
    /// Since CUDA 10.0. Raw: [`cuDeviceGetLuid`](fn@cuda_sys::cuDeviceGetLuid).
    #[doc(alias = "cuDeviceGetLuid")]
    #[inline]
    pub fn luid(&self) -> Result<Luid> {
        let (mut bytes, mut node_mask) = ([0_u8; 8], 0);
        let place = bytes.as_mut_ptr().cast();
        // SAFETY: the pointers refer to 8 bytes, which is the size of a LUID, and to a local.
        unsafe { call!(cuDeviceGetLuid(place, &raw mut node_mask, self.raw)) }?;
        Ok(Luid { bytes, node_mask })
    }

    /// Returns the value of an attribute that is named by its C constant, as an integer. Calls
    /// `cuDeviceGetAttribute`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the driver does not know the attribute.
    ///
    /// Since CUDA 2.0.
    #[inline]
    pub fn attribute_raw(&self, attribute: CUdevice_attribute) -> Result<i32> {
        // SAFETY: `out` passes a valid pointer.
        out(|place| unsafe { call!(cuDeviceGetAttribute(place, attribute, self.raw)) })
    }
}

debug! { Device |its, f| write!(f, "Device({})", its.raw) }

/// The locally unique identifier of a device on Windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Luid {
    /// The bytes of the `LUID`.
    pub bytes: [u8; 8],
    /// The mask of the node, for adapters with several nodes.
    pub node_mask: u32,
}

/// The UUID of a GPU or a MIG instance. `Display` prints it in the form that `nvidia-smi` uses for GPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    #[inline]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU-")?;
        for (index, byte) in self.0.iter().enumerate() {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

debug! { Uuid |its, f| fmt::Display::fmt(its, f) }
