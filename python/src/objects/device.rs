//! Devices, and arguments that name one.

use crate::current;
use crate::error::Result;
use crate::lifetime::ending::detached;
use cuda_safe::Device;
use pyo3::prelude::*;

/// A device argument: a `Device`, its number, or None for the current device.
#[derive(FromPyObject)]
pub(crate) enum DeviceLike {
    Device(Py<PyDevice>),
    Ordinal(u32),
}

impl DeviceLike {
    /// Returns the number of the device if one is given, and checks that it exists.
    pub(crate) fn given(py: Python<'_>, device: Option<Self>) -> Result<Option<u32>> {
        let given = device.map(|device| Self::ordinal(py, Some(device)));
        given.transpose()
    }

    /// Returns the number of the device and checks that it exists.
    pub(crate) fn ordinal(py: Python<'_>, device: Option<Self>) -> Result<u32> {
        match device {
            None => current::device(py),
            Some(Self::Device(device)) => Ok(device.get().0.ordinal()),
            Some(Self::Ordinal(ordinal)) => Ok(detached(py, || Device::get(ordinal))?.ordinal()),
        }
    }
}

/// A GPU.
///
/// `with device:` makes its primary context current on this thread.
#[pyclass(frozen, eq, hash, name = "Device", module = "cuda_safe")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyDevice(pub(crate) Device);
