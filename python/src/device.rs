//! Devices.

use crate::current;
use crate::error::Result;
use crate::lifetime::ending::{calling, detached};
use crate::objects::{DeviceLike, PyContext, PyDevice, PyEvent, PySmResource, PyStream};
use crate::primary::{default_stream, primary};
use cuda_safe::device::attribute;
use cuda_safe::sys::CUdevice_attribute;
use cuda_safe::{Context, Device};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::HashMap;

#[pymethods]
impl PyDevice {
    /// The device with this number. The default is the device of the current context, or else the
    /// first device.
    #[new]
    #[pyo3(signature = (ordinal = None))]
    fn new(py: Python<'_>, ordinal: Option<u32>) -> Result<Self> {
        let ordinal = DeviceLike::ordinal(py, ordinal.map(DeviceLike::Ordinal))?;
        Ok(Self(Device::get(ordinal)?))
    }

    /// Returns the number of devices.
    #[staticmethod]
    fn count(py: Python<'_>) -> Result<u32> {
        detached(py, Device::count)
    }

    /// Returns all devices.
    #[staticmethod]
    fn all(py: Python<'_>) -> Result<Vec<Self>> {
        Ok(detached(py, Device::all)?.into_iter().map(Self).collect())
    }

    /// The number of the device.
    #[getter]
    fn ordinal(&self) -> u32 {
        self.0.ordinal()
    }

    /// The name, for example "NVIDIA H200".
    #[getter]
    fn name(&self) -> Result<String> {
        Ok(self.0.name()?)
    }

    /// The UUID in the format of nvidia-smi.
    #[getter]
    fn uuid(&self) -> Result<String> {
        Ok(self.0.uuid()?.to_string())
    }

    /// The size of the device memory in bytes.
    #[getter]
    fn total_memory(&self) -> Result<usize> {
        Ok(self.0.total_memory()?)
    }

    /// The compute capability, for example (9, 0).
    #[getter]
    fn compute_capability(&self) -> Result<(u32, u32)> {
        Ok(self.0.compute_capability()?)
    }

    /// The number of multiprocessors (SMs).
    #[getter]
    fn sm_count(&self) -> Result<u32> {
        Ok(self.0.attribute(attribute::MULTIPROCESSOR_COUNT)?)
    }

    /// Returns the PCI address in the format of Numba's devices, which memory managers written for
    /// Numba use.
    fn get_device_identity(&self, py: Python<'_>) -> Result<Py<PyDict>> {
        let identity = PyDict::new(py);
        for (name, attribute) in [
            ("pci_domain_id", CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
            ("pci_bus_id", CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
            ("pci_device_id", CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID),
        ] {
            identity.set_item(name, self.0.attribute_raw(attribute)?)?;
        }
        Ok(identity.unbind())
    }

    /// Returns an attribute by its number in C (`CUdevice_attribute`).
    fn attribute(&self, number: u32) -> Result<i32> {
        Ok(self.0.attribute_raw(CUdevice_attribute(number))?)
    }

    /// Returns all attributes that the driver supports, as strings by name.
    fn attributes(&self, py: Python<'_>) -> Result<HashMap<&'static str, String>> {
        let all = detached(py, || attribute::all(&self.0))?;
        Ok(all.into_iter().collect())
    }

    /// Returns the free and the total device memory in bytes.
    fn memory_info<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let context = primary(py, self.0.ordinal())?;
        memory_info(py, &context)
    }

    /// The primary context, which CuPy, PyTorch, Numba and JAX use.
    #[getter]
    fn context(&self, py: Python<'_>) -> Result<PyContext> {
        Ok(PyContext(primary(py, self.0.ordinal())?))
    }

    /// The stream of arrays for which no stream was chosen. It synchronizes with the legacy default
    /// stream in both directions, so it is in order with libraries that work there.
    #[getter]
    fn default_stream(&self, py: Python<'_>) -> Result<PyStream> {
        Ok(PyStream::of(default_stream(py, self.0.ordinal())?))
    }

    /// Creates a stream in the primary context.
    #[pyo3(signature = (*, priority = 0, blocking = false))]
    fn stream(&self, py: Python<'_>, priority: i32, blocking: bool) -> Result<PyStream> {
        let context = primary(py, self.0.ordinal())?;
        PyStream::create(py, &context, priority, blocking)
    }

    /// Creates an event in the primary context.
    #[pyo3(signature = (*, timing = false, blocking_sync = false))]
    fn event(&self, py: Python<'_>, timing: bool, blocking_sync: bool) -> Result<PyEvent> {
        let context = primary(py, self.0.ordinal())?;
        PyEvent::create(py, &context, timing, blocking_sync)
    }

    /// Waits for all work of the primary context.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let context = primary(py, self.0.ordinal())?;
        detached(py, || context.synchronize())
    }

    /// Returns the multiprocessors, which can be split among green contexts.
    fn sm_resource(&self, py: Python<'_>) -> Result<PySmResource> {
        PySmResource::of_device(py, self.0)
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
        let context = primary(slf.py(), slf.get().0.ordinal())?;
        current::enter_context(slf.as_any(), &context)?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> Result<()> {
        current::leave(slf.as_any())
    }

    fn __int__(&self) -> u32 {
        self.0.ordinal()
    }

    fn __repr__(&self) -> String {
        format!("Device({})", self.0.ordinal())
    }
}

/// Returns the `MemoryInfo` of a context.
pub(crate) fn memory_info<'py>(py: Python<'py>, context: &Context) -> Result<Bound<'py, PyAny>> {
    let info = detached(py, || context.memory_info())?;
    calling(py, || {
        let class = py.import("cuda_safe._types")?.getattr("MemoryInfo")?;
        class.call1((info.free, info.total))
    })
}
