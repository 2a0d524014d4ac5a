//! Contexts.

use crate::current;
use crate::device::{DeviceLike, PyDevice, memory_info, primary};
use crate::ending::detached;
use crate::error::Result;
use crate::event::PyEvent;
use crate::green::PySmResource;
use crate::stream::PyStream;
use cuda_safe::Context;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A device's primary context, which all libraries of a process share.
///
/// `with context:` makes it current on this thread, and what was current before is so again at the
/// end, or at that of the last block that began inside; if other code has left another one current, that
/// is an exception, and nothing is taken away.
#[pyclass(frozen, eq, hash, name = "Context", module = "cuda_safe", weakref)]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct PyContext(pub(crate) Context);

#[pymethods]
impl PyContext {
    /// The primary context of a device, or of the current one.
    #[staticmethod]
    #[pyo3(signature = (device = None))]
    fn primary(py: Python<'_>, device: Option<DeviceLike>) -> Result<Self> {
        let ordinal = DeviceLike::ordinal(py, device)?;
        Ok(Self(primary(py, ordinal)?))
    }

    /// The device.
    #[getter]
    fn device(&self) -> PyDevice {
        PyDevice(self.0.device())
    }

    /// The driver's handle, a `CUcontext`. It stays this object's.
    #[getter]
    fn handle(&self) -> usize {
        self.0.as_raw().addr()
    }

    /// A number that no other context of this process has or will have; none on old drivers.
    #[getter]
    fn id(&self) -> Option<u64> {
        self.0.id()
    }

    /// The bytes of device memory that are free, and all there are.
    fn memory_info<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        memory_info(py, &self.0)
    }

    /// A stream of this context.
    #[pyo3(signature = (*, priority = 0, blocking = false))]
    fn stream(&self, py: Python<'_>, priority: i32, blocking: bool) -> Result<PyStream> {
        PyStream::create(py, &self.0, priority, blocking)
    }

    /// An event of this context.
    #[pyo3(signature = (*, timing = false, blocking_sync = false))]
    fn event(&self, py: Python<'_>, timing: bool, blocking_sync: bool) -> Result<PyEvent> {
        PyEvent::create(py, &self.0, timing, blocking_sync)
    }

    /// Returns the multiprocessors that work of the context may use: those of the device, or fewer under MPS.
    /// They are split like those of `Device.sm_resource`. Calls `cuCtxGetDevResource` (since CUDA 12.4).
    fn sm_resource(&self, py: Python<'_>) -> Result<PySmResource> {
        PySmResource::of_context(py, self.0.clone())
    }

    /// Records in an event the work that all streams of the context and of its green contexts have been
    /// given up to now. Without an event, creates one. Returns the event, which has to be of this context.
    ///
    /// Raises an exception if one of the streams is being captured, which invalidates that capture. Calls
    /// `cuCtxRecordEvent` (since CUDA 12.5).
    #[pyo3(signature = (event = None))]
    fn record_event(&self, py: Python<'_>, event: Option<Py<PyEvent>>) -> Result<Py<PyEvent>> {
        let event = PyEvent::given(py, event, &self.0)?;
        let its = event.get().event()?;
        detached(py, || self.0.record(&its))?;
        Ok(event)
    }

    /// Makes all work that is given to the context and its green contexts from now on wait for the work that
    /// the event recorded. The host does not wait. The event may be of another context or device.
    ///
    /// Raises an exception if one of the streams, or the event, is being captured, which invalidates that
    /// capture. Calls `cuCtxWaitEvent` (since CUDA 12.5).
    fn wait_event(&self, py: Python<'_>, event: &PyEvent) -> Result<()> {
        let event = event.event()?;
        detached(py, || self.0.wait(&event))
    }

    /// Waits for all work of the context, that of its green contexts included.
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
