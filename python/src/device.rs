//! Devices, and what there is one of for each.

use crate::context::PyContext;
use crate::ending::{calling, detached};
use crate::error::{Failure, Result};
use crate::green::PySmResource;
use crate::stream::PyStream;
use crate::{current, event};
use cuda_safe::sys::CUdevice_attribute;
use cuda_safe::{Context, Device, Stream, StreamOptions, attribute};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::collections::HashMap;
use std::sync::OnceLock;

/// More than any machine has.
const DEVICES: usize = 64;

/// The primary contexts, each from its first use to the end of the process, as in every library that
/// others' arrays come from.
static PRIMARY: [OnceLock<Context>; DEVICES] = [const { OnceLock::new() }; DEVICES];
static STREAMS: [OnceLock<Stream>; DEVICES] = [const { OnceLock::new() }; DEVICES];

fn slot<T>(slots: &'static [OnceLock<T>; DEVICES], ordinal: u32) -> Result<&'static OnceLock<T>> {
    let slot = slots.get(ordinal as usize);
    slot.ok_or_else(|| Failure::invalid(format!("there is no device {ordinal}")))
}

/// The primary context of a device. The first time may take a while.
#[inline]
pub(crate) fn primary(py: Python<'_>, ordinal: u32) -> Result<Context> {
    let slot = slot(&PRIMARY, ordinal)?;
    if let Some(context) = slot.get() {
        return Ok(context.clone());
    }
    let context = detached(py, || Context::primary(&Device::get(ordinal)?))?;
    Ok(slot.get_or_init(|| context).clone())
}

/// The stream of arrays that nobody has given another: a blocking one, so that it is in order with the
/// legacy default stream, where others work who do not look at streams.
pub(crate) fn default_stream(py: Python<'_>, ordinal: u32) -> Result<Stream> {
    let slot = slot(&STREAMS, ordinal)?;
    if let Some(stream) = slot.get() {
        return Ok(stream.clone());
    }
    let context = primary(py, ordinal)?;
    let options = StreamOptions {
        blocking: true,
        ..StreamOptions::default()
    };
    let stream = detached(py, || context.stream_with(options))?;
    Ok(slot.get_or_init(|| stream).clone())
}

/// Whether it is a stream of [`default_stream`].
pub(crate) fn is_default_stream(stream: &Stream) -> bool {
    let ordinal = stream.context().device().ordinal() as usize;
    STREAMS.get(ordinal).and_then(OnceLock::get) == Some(stream)
}

/// What callers may say for a device: a `Device`, its number, or nothing for the current one.
#[derive(FromPyObject)]
pub(crate) enum DeviceLike {
    Device(Py<PyDevice>),
    Ordinal(u32),
}

impl DeviceLike {
    /// The number of the device, which is there.
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

#[pymethods]
impl PyDevice {
    /// The device of that number; without one the device of the current context, or the first.
    #[new]
    #[pyo3(signature = (ordinal = None))]
    fn new(py: Python<'_>, ordinal: Option<u32>) -> Result<Self> {
        let ordinal = DeviceLike::ordinal(py, ordinal.map(DeviceLike::Ordinal))?;
        Ok(Self(Device::get(ordinal)?))
    }

    /// How many devices there are.
    #[staticmethod]
    fn count(py: Python<'_>) -> Result<u32> {
        Ok(detached(py, Device::count)?)
    }

    /// All devices.
    #[staticmethod]
    fn all(py: Python<'_>) -> Result<Vec<Self>> {
        Ok(detached(py, Device::all)?.into_iter().map(Self).collect())
    }

    /// The device's number.
    #[getter]
    fn ordinal(&self) -> u32 {
        self.0.ordinal()
    }

    /// The name, as "NVIDIA H200".
    #[getter]
    fn name(&self) -> Result<String> {
        Ok(self.0.name()?)
    }

    /// The identity, in the form that nvidia-smi has.
    #[getter]
    fn uuid(&self) -> Result<String> {
        Ok(self.0.uuid()?.to_string())
    }

    /// The bytes of memory that the device has.
    #[getter]
    fn total_memory(&self) -> Result<usize> {
        Ok(self.0.total_memory()?)
    }

    /// The compute capability, as (9, 0).
    #[getter]
    fn compute_capability(&self) -> Result<(u32, u32)> {
        Ok(self.0.compute_capability()?)
    }

    /// How many multiprocessors (SMs) it has.
    #[getter]
    fn sm_count(&self) -> Result<u32> {
        Ok(self.0.attribute(attribute::MULTIPROCESSOR_COUNT)?)
    }

    /// One attribute, by its number in C (`CUdevice_attribute`).
    fn attribute(&self, number: u32) -> Result<i32> {
        Ok(self.0.attribute_raw(CUdevice_attribute(number))?)
    }

    /// All attributes that the driver knows, as text, by their names.
    fn attributes(&self, py: Python<'_>) -> Result<HashMap<&'static str, String>> {
        let all = detached(py, || attribute::all(&self.0))?;
        Ok(all.into_iter().collect())
    }

    /// The bytes of device memory that are free, and all there are.
    fn memory_info<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyAny>> {
        let context = primary(py, self.0.ordinal())?;
        memory_info(py, &context)
    }

    /// The primary context: the one that CuPy, PyTorch, Numba and JAX work in.
    #[getter]
    fn context(&self, py: Python<'_>) -> Result<PyContext> {
        Ok(PyContext(primary(py, self.0.ordinal())?))
    }

    /// The stream of arrays that are given no other. It waits for the legacy default stream, and that
    /// for it, so that libraries that work there are in order with it.
    #[getter]
    fn default_stream(&self, py: Python<'_>) -> Result<PyStream> {
        Ok(PyStream::of(default_stream(py, self.0.ordinal())?))
    }

    /// A stream in the primary context.
    #[pyo3(signature = (*, priority = 0, blocking = false))]
    fn stream(&self, py: Python<'_>, priority: i32, blocking: bool) -> Result<PyStream> {
        let context = primary(py, self.0.ordinal())?;
        PyStream::create(py, &context, priority, blocking)
    }

    /// An event in the primary context.
    #[pyo3(signature = (*, timing = false, blocking_sync = false))]
    fn event(&self, py: Python<'_>, timing: bool, blocking_sync: bool) -> Result<event::PyEvent> {
        let context = primary(py, self.0.ordinal())?;
        event::PyEvent::create(py, &context, timing, blocking_sync)
    }

    /// Waits for all work of the primary context.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let context = primary(py, self.0.ordinal())?;
        Ok(detached(py, || context.synchronize())?)
    }

    /// The multiprocessors, to be split among green contexts.
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

/// `MemoryInfo` of a context.
pub(crate) fn memory_info<'py>(py: Python<'py>, context: &Context) -> Result<Bound<'py, PyAny>> {
    let info = detached(py, || context.memory_info())?;
    Ok(calling(py, || {
        let class = py.import("cuda_safe._types")?.getattr("MemoryInfo")?;
        class.call1((info.free, info.total))
    })?)
}
