//! Contexts.

use crate::current;
use crate::device::{DeviceLike, PyDevice, memory_info, primary};
use crate::ending::detached;
use crate::error::Result;
use crate::event::PyEvent;
use crate::stream::PyStream;
use cuda_safe::Context;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A device's primary context, which all libraries of a process share.
///
/// `with context:` makes it current on this thread, and what was current before is so again at the
/// end, or at that of the last block that began inside; if other code has left another one current, that
/// is an exception, and nothing is taken away.
#[pyclass(frozen, eq, hash, name = "Context", module = "cuda_safe")]
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
