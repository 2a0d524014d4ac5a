//! Contexts.

use crate::current;
use crate::device::memory_info;
use crate::error::Result;
use crate::lifetime::ending::detached;
use crate::objects::{DeviceLike, PyContext, PyDevice, PyEvent, PySmResource, PyStream};
use crate::primary::primary;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

#[pymethods]
impl PyContext {
    /// Returns the primary context of a device, by default of the current device.
    #[staticmethod]
    #[pyo3(signature = (device = None))]
    fn primary(py: Python<'_>, device: Option<DeviceLike>) -> Result<Self> {
        let ordinal = DeviceLike::ordinal(py, device)?;
        Ok(Self(primary(py, ordinal)?))
    }

    /// The device of the context.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.0.device())
    }

    /// The driver's handle, a `CUcontext`, which this object keeps owning.
    #[getter]
    fn handle(&self) -> usize {
        self.0.as_raw().addr()
    }

    /// A number that is unique among all contexts of the process, past and future; None on old
    /// drivers.
    #[getter]
    fn id(&self) -> Option<u64> {
        self.0.id()
    }

    /// Returns the free and the total device memory in bytes.
    fn memory_info<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        memory_info(py, &self.0)
    }

    /// Creates a stream in this context.
    #[pyo3(signature = (*, priority = 0, blocking = false))]
    fn stream(&self, py: Python<'_>, priority: i32, blocking: bool) -> Result<PyStream> {
        PyStream::create(py, &self.0, priority, blocking)
    }

    /// Creates an event in this context.
    #[pyo3(signature = (*, timing = false, blocking_sync = false))]
    fn event(&self, py: Python<'_>, timing: bool, blocking_sync: bool) -> Result<PyEvent> {
        PyEvent::create(py, &self.0, timing, blocking_sync)
    }

    /// Returns the multiprocessors that the context may use: those of the device, or fewer under
    /// MPS. They are split like those of `Device.sm_resource`. Calls `cuCtxGetDevResource` (since
    /// CUDA 12.4).
    fn sm_resource(&self, py: Python<'_>) -> Result<PySmResource> {
        PySmResource::of_context(py, self.0.clone())
    }

    /// Records in an event all work submitted so far to all streams of the context and of its green
    /// contexts, and returns the event. Without an event, creates one. An event must belong to this
    /// context.
    ///
    /// Raises an exception if one of the streams is capturing, and invalidates that capture. Calls
    /// `cuCtxRecordEvent` (since CUDA 12.5).
    #[pyo3(signature = (event = None))]
    fn record_event(&self, py: Python<'_>, event: Option<Py<PyEvent>>) -> Result<Py<PyEvent>> {
        let event = PyEvent::given(py, event, &self.0)?;
        let its = event.get().event()?;
        detached(py, || self.0.record_event(&its))?;
        Ok(event)
    }

    /// Makes all later work of the context and its green contexts wait for the work that the event
    /// recorded. The host does not wait. The event may belong to another context or device.
    ///
    /// Raises an exception if one of the streams, or the event, is captured, and invalidates that
    /// capture. Calls `cuCtxWaitEvent` (since CUDA 12.5).
    fn wait_event(&self, py: Python<'_>, event: &PyEvent) -> Result<()> {
        let event = event.event()?;
        detached(py, || self.0.wait_event(&event))
    }

    /// Waits for all work of the context, including its green contexts.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        detached(py, || self.0.synchronize())
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
        current::enter_context(slf.as_any(), &slf.get().0)?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> Result<()> {
        current::leave(slf.as_any())
    }

    fn __repr__(&self) -> String {
        format!("<Context: {}>", self.0)
    }
}
