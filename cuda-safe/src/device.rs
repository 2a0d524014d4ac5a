//! Devices: which there are, and what they can do, alone and with each other.
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
pub use peer::{AtomicCapabilities, AtomicOperation, PeerAttribute};

use crate::call::{call, newest_or};
use crate::driver;
use crate::error::Result;
use crate::invalid::Invalid;
use cuda_sys::{CUdevice, CUdevice_attribute, CUuuid};
use std::ffi::CString;
use std::fmt;

/// `CUdevice`: a GPU that this process may use. A number; copies cost nothing.
///
/// ```no_run
/// use cuda_safe::{Device, attribute};
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
    /// `cuDeviceGetCount(&count)`: how many devices there are. Starts the driver.
    ///
    /// # Errors
    /// No driver, or a driver without a GPU.
    ///
    /// Since CUDA 2.0. Raw: [`cuDeviceGetCount`](fn@cuda_sys::cuDeviceGetCount).
    #[doc(alias = "cuDeviceGetCount")]
    pub fn count() -> Result<u32> {
        driver::init()?;
        let mut count = 0;
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuDeviceGetCount(&raw mut count)) }?;
        Ok(u32::try_from(count).unwrap_or(0))
    }

    /// `cuDeviceGet(&device, ordinal)`: the device of that number, from 0.
    ///
    /// # Errors
    /// [`Invalid::DeviceOrdinal`]; no driver, or a driver without a GPU.
    ///
    /// Since CUDA 2.0. Raw: [`cuDeviceGet`](fn@cuda_sys::cuDeviceGet).
    #[doc(alias = "cuDeviceGet")]
    pub fn get(ordinal: u32) -> Result<Self> {
        let count = Self::count()?;
        let refused = Invalid::DeviceOrdinal { ordinal, count };
        let Ok(number) = i32::try_from(ordinal) else {
            return Err(refused.into());
        };
        if ordinal >= count {
            return Err(refused.into());
        }
        let mut raw = 0;
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuDeviceGet(&raw mut raw, number)) }?;
        Ok(Self { raw })
    }

    /// All devices, in the driver's order.
    ///
    /// # Errors
    /// As for [`count`](Self::count).
    pub fn all() -> Result<Vec<Self>> {
        (0..Self::count()?).map(Self::get).collect()
    }

    /// `cuDeviceGetByPCIBusId(&device, bus_id)`: the device at a place on the PCI bus, as
    /// `0000:65:00.0`.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_DEVICE` if there is none, `CUDA_ERROR_INVALID_VALUE` if that is no place;
    /// a NUL inside the text.
    ///
    /// Since CUDA 4.1. Raw: [`cuDeviceGetByPCIBusId`](fn@cuda_sys::cuDeviceGetByPCIBusId).
    #[doc(alias = "cuDeviceGetByPCIBusId")]
    pub fn by_pci_bus_id(bus_id: &str) -> Result<Self> {
        driver::init()?;
        let text = CString::new(bus_id).map_err(|error| Invalid::NulInText {
            position: error.nul_position(),
        })?;
        let mut raw = 0;
        // SAFETY: the text ends with a NUL, and the other pointer is to a local.
        unsafe { call!(cuDeviceGetByPCIBusId(&raw mut raw, text.as_ptr())) }?;
        Ok(Self { raw })
    }

    /// A device number that the driver has answered.
    pub(crate) fn unchecked(raw: CUdevice) -> Self {
        Self { raw }
    }

    /// The driver's handle.
    pub fn as_raw(&self) -> CUdevice {
        self.raw
    }

    /// The device's number. (The driver's handle is that number.)
    pub fn ordinal(&self) -> u32 {
        u32::try_from(self.raw).unwrap_or(0)
    }

    /// `cuDeviceGetName(name, len, device)`: what it is called, `NVIDIA H200`.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 2.0. Raw: [`cuDeviceGetName`](fn@cuda_sys::cuDeviceGetName).
    #[doc(alias = "cuDeviceGetName")]
    pub fn name(&self) -> Result<String> {
        let mut name = [0u8; 256];
        let (start, length) = (name.as_mut_ptr().cast(), 256);
        // SAFETY: the driver writes at most `length` bytes, the size of the array.
        unsafe { call!(cuDeviceGetName(start, length, self.raw)) }?;
        let end = name
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(name.len());
        Ok(String::from_utf8_lossy(&name[..end]).into_owned())
    }

    /// `cuDeviceGetUuid(&uuid, device)`: the identity of the GPU, or of its MIG instance.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 9.2 (from 11.4 on through `cuDeviceGetUuid_v2`). Raw:
    /// [`cuDeviceGetUuid_v2`](fn@cuda_sys::cuDeviceGetUuid_v2).
    #[doc(alias = "cuDeviceGetUuid")]
    pub fn uuid(&self) -> Result<Uuid> {
        let mut uuid = CUuuid::default();
        newest_or(
            // SAFETY: the pointer is to a local.
            unsafe { call!(cuDeviceGetUuid_v2(&raw mut uuid, self.raw)) },
            // SAFETY: the pointer is to a local.
            || unsafe { call!(abi::cuDeviceGetUuid(&raw mut uuid, self.raw)) },
        )?;
        Ok(Uuid(uuid.bytes.map(|byte| byte.to_ne_bytes()[0])))
    }

    /// `cuDeviceTotalMem(&bytes, device)`: its memory, in bytes.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    ///
    /// Since CUDA 3.2. Raw: [`cuDeviceTotalMem_v2`](fn@cuda_sys::cuDeviceTotalMem_v2).
    #[doc(alias = "cuDeviceTotalMem")]
    pub fn total_memory(&self) -> Result<usize> {
        let mut bytes = 0;
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuDeviceTotalMem_v2(&raw mut bytes, self.raw)) }?;
        Ok(bytes)
    }

    /// The compute capability, (9, 0) for an H200.
    ///
    /// # Errors
    /// Only those that any call may have: see [`Error`](crate::Error).
    pub fn compute_capability(&self) -> Result<(u32, u32)> {
        Ok((
            self.attribute(attribute::COMPUTE_CAPABILITY_MAJOR)?,
            self.attribute(attribute::COMPUTE_CAPABILITY_MINOR)?,
        ))
    }

    /// `cuDeviceGetAttribute(&value, attribute, device)`: one of the [attributes](attribute), as
    /// the type that it has.
    ///
    /// # Errors
    /// [`Invalid::UnknownAttribute`] if the attribute is newer than the driver.
    ///
    /// Since CUDA 2.0; each attribute says since when it is known. Raw:
    /// [`cuDeviceGetAttribute`](fn@cuda_sys::cuDeviceGetAttribute).
    #[doc(alias = "cuDeviceGetAttribute")]
    pub fn attribute<T: AttributeValue>(&self, attribute: Attribute<T>) -> Result<T> {
        self.attribute_raw(attribute.raw())
            .map(T::from_raw)
            .map_err(|error| attribute.explain(error))
    }

    /// `cuDeviceGetAttribute` by the C name of the attribute, as the number that it is.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` if the driver does not know it.
    ///
    /// Since CUDA 2.0.
    pub fn attribute_raw(&self, attribute: CUdevice_attribute) -> Result<i32> {
        let mut value = 0;
        // SAFETY: the pointer is to a local.
        unsafe { call!(cuDeviceGetAttribute(&raw mut value, attribute, self.raw)) }?;
        Ok(value)
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({})", self.raw)
    }
}

/// The identity of a GPU or a MIG instance; printed in the form that `nvidia-smi` has for GPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
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

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
