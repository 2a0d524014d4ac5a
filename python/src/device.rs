//! Devices, and what there is one of for each.

use crate::context::PyContext;
use crate::ending::{calling, detached};
use crate::error::{Failure, Result};
use crate::green::PySmResource;
use crate::manager::choose_from_environment;
use crate::stream::PyStream;
use crate::{current, event};
use cuda_safe::sys::CUdevice_attribute;
use cuda_safe::{Context, Device, Stream, StreamOptions, attribute};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::HashMap;
use std::sync::OnceLock;

/// More than any machine has.
const DEVICES: usize = 64;

/// What there is one of for each device, from its first use to the end of the process, as in every library
/// that others' arrays come from.
static FIRST: [OnceLock<Box<Life>>; DEVICES] = [const { OnceLock::new() }; DEVICES];

/// A device's primary context, until other code of the process resets it (as `numba.cuda.close()` does).
/// What was made in it is gone then, and nothing of that is given back; so a life is kept for ever, and
/// that after the reset comes behind it.
struct Life {
    context: Context,
    stream: OnceLock<Stream>,
    next: OnceLock<Box<Self>>,
}

impl Life {
    fn of(context: Context) -> Box<Self> {
        Box::new(Self {
            context,
            stream: OnceLock::new(),
            next: OnceLock::new(),
        })
    }
}

fn slot(ordinal: u32) -> Result<&'static OnceLock<Box<Life>>> {
    let slot = FIRST.get(ordinal as usize);
    slot.ok_or_else(|| Failure::invalid(format!("there is no device {ordinal}")))
}

/// The last.
#[inline]
fn life(ordinal: u32) -> Option<&'static Life> {
    let mut life = FIRST.get(ordinal as usize)?.get()?;
    while let Some(next) = life.next.get() {
        life = next;
    }
    Some(life)
}

/// The primary context of a device. The first time may take a while.
#[inline]
pub(crate) fn primary(py: Python<'_>, ordinal: u32) -> Result<Context> {
    match life(ordinal) {
        Some(life) => Ok(life.context.clone()),
        None => detached(py, || primary_now(ordinal)),
    }
}

/// The same for calls that may wait: without the GIL, or where nobody knows whether there is one.
pub(crate) fn primary_now(ordinal: u32) -> Result<Context> {
    if let Some(life) = life(ordinal) {
        return Ok(life.context.clone());
    }
    let slot = slot(ordinal)?;
    choose_from_environment()?;
    let context = Context::primary(&Device::get(ordinal)?)?;
    Ok(slot.get_or_init(|| Life::of(context)).context.clone())
}

/// The same, having asked the driver whether it has been reset since: then it is another one from now on.
/// Drivers before CUDA 12.0 do not tell.
pub(crate) fn primary_asked(ordinal: u32) -> Result<Context> {
    let Some(life) = life(ordinal) else {
        return primary_now(ordinal);
    };
    let Some(id) = life.context.id() else {
        return Ok(life.context.clone());
    };
    let now = Context::primary(&life.context.device())?;
    match now.id() == Some(id) {
        true => Ok(life.context.clone()),
        false => Ok(life.next.get_or_init(|| Life::of(now)).context.clone()),
    }
}

/// Whether a primary context of ours was found to have been reset: what was made in it is gone.
#[inline]
pub(crate) fn is_gone(context: &Context) -> bool {
    life(context.device().ordinal()).is_some_and(|life| life.context != *context)
}

/// The devices that have been used: those whose primary context is there, each with that.
pub(crate) fn used() -> impl Iterator<Item = (usize, &'static Context)> {
    (0..DEVICES).filter_map(|ordinal| Some((ordinal, &life(ordinal as u32)?.context)))
}

/// The stream of arrays that nobody has given another: a blocking one, so that it is in order with the
/// legacy default stream, where others work who do not look at streams.
pub(crate) fn default_stream(py: Python<'_>, ordinal: u32) -> Result<Stream> {
    if let Some(stream) = life(ordinal).and_then(|life| life.stream.get()) {
        return Ok(stream.clone());
    }
    let context = primary(py, ordinal)?;
    let options = StreamOptions {
        blocking: true,
        ..StreamOptions::default()
    };
    let stream = detached(py, || context.stream_with(options))?;
    match life(ordinal).filter(|life| life.context == context) {
        Some(life) => Ok(life.stream.get_or_init(|| stream).clone()),
        // It was reset meanwhile.
        None => Ok(stream),
    }
}

/// Whether it is a stream of [`default_stream`].
pub(crate) fn is_default_stream(stream: &Stream) -> bool {
    let life = life(stream.context().device().ordinal());
    life.and_then(|life| life.stream.get()) == Some(stream)
}

/// What callers may say for a device: a `Device`, its number, or nothing for the current one.
#[derive(FromPyObject)]
pub(crate) enum DeviceLike {
    Device(Py<PyDevice>),
    Ordinal(u32),
}

impl DeviceLike {
    /// The number of the device, if one is given, which is there.
    pub(crate) fn given(py: Python<'_>, device: Option<Self>) -> Result<Option<u32>> {
        let given = device.map(|device| Self::ordinal(py, Some(device)));
        given.transpose()
    }

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
        detached(py, Device::count)
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

    /// Returns the PCI address, as devices of Numba do. Memory managers that are written for Numba ask for it.
    fn get_device_identity(&self, py: Python<'_>) -> Result<Py<PyDict>> {
        let identity = PyDict::new(py);
        for (name, attribute) in [
            (
                "pci_domain_id",
                CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
            ),
            (
                "pci_bus_id",
                CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
            ),
            (
                "pci_device_id",
                CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
            ),
        ] {
            identity.set_item(name, self.0.attribute_raw(attribute)?)?;
        }
        Ok(identity.unbind())
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
        detached(py, || context.synchronize())
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
    calling(py, || {
        let class = py.import("cuda_safe._types")?.getattr("MemoryInfo")?;
        class.call1((info.free, info.total))
    })
}
