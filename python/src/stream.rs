//! Streams: ours, those of others, and the default ones.

use crate::context::PyContext;
use crate::current;
use crate::device::{DeviceLike, PyDevice, primary};
use crate::ending::{calling, detached};
use crate::error::{Failure, Result};
use crate::event::PyEvent;
use crate::hold::{Closable, Owner};
use crate::lane::{Handle, Lane};
use crate::once::intern;
use cuda_safe::interop::ExportedStream;
use cuda_safe::{Context, Stream, StreamOptions};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::atomic::{AtomicBool, Ordering};

/// A queue of work on a device: what one stream is given runs in order.
///
/// `with stream:` has new arrays of this thread on it. Other libraries take it by its handle
/// (`__cuda_stream__`, or `cupy.cuda.ExternalStream(stream.handle)`), which is alive as long as this
/// object is there, or an array on it.
#[pyclass(frozen, name = "Stream", module = "cuda_safe", weakref)]
pub(crate) struct PyStream {
    lane: Closable<Lane>,
    is_closed: AtomicBool,
    /// Whether somebody has the handle.
    is_exported: AtomicBool,
    /// The handle, which stays the object's hash when it is closed.
    number: u64,
}

impl PyStream {
    pub(crate) fn of(stream: Stream) -> Self {
        Self::of_lane(Lane::Stream(stream))
    }

    pub(crate) fn of_lane(lane: Lane) -> Self {
        Self {
            number: lane.number(),
            lane: Closable::new("stream", lane),
            is_closed: AtomicBool::new(false),
            is_exported: AtomicBool::new(false),
        }
    }

    pub(crate) fn create(
        py: Python<'_>,
        context: &Context,
        priority: i32,
        blocking: bool,
    ) -> Result<Self> {
        let options = StreamOptions {
            blocking,
            priority,
            ..StreamOptions::default()
        };
        Ok(Self::of(detached(py, || context.stream_with(options))?))
    }

    pub(crate) fn lane(&self) -> Result<Lane> {
        match self.is_closed.load(Ordering::SeqCst) {
            false => self.lane.get(),
            true => Err(Failure::closed("stream")),
        }
    }

    /// The number for somebody else.
    fn export(&self) -> Result<u64> {
        // First: whoever closes it at the same time sees this, or is seen.
        self.is_exported.store(true, Ordering::SeqCst);
        Ok(self.lane()?.number())
    }
}

/// A stream that its owner keeps.
pub(crate) fn foreign(handle: Handle, context: &Context, owner: Owner) -> Result<Stream> {
    // SAFETY: whoever gave the handle promised that it is a stream of that context, or of a green
    // context of its device, and that the owner keeps it, or else they do.
    let stream = unsafe { Stream::from_foreign(handle.raw(), context, owner) };
    Ok(stream.map_err(|rejected| rejected.error)?)
}

/// A stream of somebody else's that is no default stream: of the device that they say, or of its own.
pub(crate) fn lane_of_handle(
    py: Python<'_>,
    handle: Handle,
    device: Option<u32>,
    owner: Option<Py<PyAny>>,
) -> Result<Lane> {
    let ordinal = match device {
        Some(ordinal) => ordinal,
        None => detached(py, || {
            // SAFETY: whoever gave the handle promised that it is a stream that is alive.
            unsafe { Stream::device_of_raw(handle.raw()) }
        })?
        .ordinal(),
    };
    let context = primary(py, ordinal)?;
    let checked = check_context(handle, &context)?;
    Ok(Lane::Stream(match owner {
        Some(owner) => foreign(handle, &context, Owner::new(owner))?,
        None => checked,
    }))
}

/// A stream of others, if it is one of that context, or of a green context of its device; whoever gave
/// the handle keeps it.
pub(crate) fn check_context(handle: Handle, context: &Context) -> Result<Stream> {
    // SAFETY: as for `foreign`, and whoever gives a handle without an owner keeps it.
    Ok(unsafe { Stream::borrow_checked(handle.raw(), context) }?)
}

/// A stream of somebody else's, by the number that they give it: a default stream is that of the device,
/// which is asked for if it is one.
fn lane_of_number(
    py: Python<'_>,
    number: u64,
    device: Option<u32>,
    default_of: impl FnOnce() -> Result<u32>,
    owner: Option<Py<PyAny>>,
) -> Result<Lane> {
    let default = || {
        let ordinal = device.map_or_else(default_of, Ok)?;
        primary(py, ordinal)
    };
    match ExportedStream::from_number(number.into()) {
        Ok(ExportedStream::Legacy) => Ok(Lane::Legacy(default()?)),
        Ok(ExportedStream::PerThread) => Ok(Lane::PerThread(default()?)),
        Ok(ExportedStream::Handle(number)) => {
            lane_of_handle(py, Handle::new(number)?, device, owner)
        }
        Err(_) => Err(Failure::invalid(
            "the stream 0 is not clear: 1 is the legacy default stream, 2 that of the thread",
        )),
    }
}

/// The number of a stream of another library.
fn number_of(object: &Bound<'_, PyAny>) -> Result<u64> {
    let py = object.py();
    if let Some(protocol) = object.getattr_opt(intern!(py, "__cuda_stream__"))? {
        // A method; in the first release of the protocol it was an attribute.
        let answer = match protocol.is_callable() {
            true => protocol.call0()?,
            false => protocol,
        };
        let (version, number): (u64, u64) = answer.extract()?;
        if version != 0 {
            return Err(Failure::invalid(format!(
                "version {version} of __cuda_stream__; known is 0"
            )));
        }
        return Ok(number);
    }
    // PyTorch, CuPy.
    for name in [intern!(py, "cuda_stream"), intern!(py, "ptr")] {
        if let Some(number) = object.getattr_opt(name)? {
            return Ok(number.extract()?);
        }
    }
    Err(Failure::invalid(format!(
        "{} is no stream: it has no __cuda_stream__",
        object.get_type().name()?
    )))
}

/// The device of another library's stream, where the object tells: PyTorch's, CuPy's, cuda.core's.
fn device_of_object(object: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let py = object.py();
    let mut numbers = vec![
        object.getattr_opt(intern!(py, "device_index"))?,
        object.getattr_opt(intern!(py, "device_id"))?,
    ];
    if let Some(device) = object.getattr_opt(intern!(py, "device"))? {
        numbers.push(device.getattr_opt(intern!(py, "device_id"))?);
    }
    // CuPy has -1 for one that is of no device in particular.
    let number = |number: Bound<'_, PyAny>| number.extract::<u32>().ok();
    Ok(numbers.into_iter().flatten().find_map(number))
}

/// Refuses a stream of another device than the one that is wanted.
fn refuse_other(its: Option<u32>, wanted: Option<u32>) -> Result<()> {
    match (its, wanted) {
        (Some(its), Some(wanted)) if its != wanted => Err(Failure::invalid(format!(
            "a stream of device {its}, and not of device {wanted}"
        ))),
        _ => Ok(()),
    }
}

impl PyStream {
    /// A stream of ours or of another library. Of a default stream whose object does not tell, `near` is
    /// the device, or else the current one.
    pub(crate) fn lane_of_object(
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        device: Option<u32>,
        near: Option<u32>,
    ) -> Result<Lane> {
        if let Ok(own) = stream.cast::<Self>() {
            return own.get().lane();
        }
        // To those who have the default stream by this number it is the legacy one.
        let number = calling(py, || number_of(stream))?.max(1);
        let device = match number {
            // Of any other the driver knows.
            1 | 2 => {
                let said = calling(py, || device_of_object(stream))?;
                refuse_other(said, device)?;
                said.or(device).or(near)
            }
            _ => device,
        };
        let owner = Some(stream.clone().unbind());
        lane_of_number(py, number, device, || current::device(py), owner)
    }
}

#[pymethods]
impl PyStream {
    /// A stream in a device's primary context. Lower numbers of priority go first; a blocking stream
    /// waits for the legacy default stream, and that for it.
    #[new]
    #[pyo3(signature = (device = None, *, priority = 0, blocking = false))]
    fn new(
        py: Python<'_>,
        device: Option<DeviceLike>,
        priority: i32,
        blocking: bool,
    ) -> Result<Self> {
        let ordinal = DeviceLike::ordinal(py, device)?;
        Self::create(py, &primary(py, ordinal)?, priority, blocking)
    }

    /// A stream of other code, by its handle (a `CUstream` or `cudaStream_t`), of the device that it works
    /// on; 1 and 2 are the default streams of `device`, or of the current one. It is never destroyed here,
    /// and `owner` is kept alive as long as it is used; without an owner it is for the caller to keep the
    /// stream. One of another device than `device`, or of another context than the primary one and its
    /// green contexts, is refused.
    #[staticmethod]
    #[pyo3(signature = (handle, owner = None, *, device = None))]
    fn from_handle(
        py: Python<'_>,
        handle: u64,
        owner: Option<Py<PyAny>>,
        device: Option<DeviceLike>,
    ) -> Result<Self> {
        let device = DeviceLike::given(py, device)?;
        let default_of = || current::device(py);
        let lane = lane_of_number(py, handle, device, default_of, owner)?;
        Ok(Self::of_lane(lane))
    }

    /// A stream of another library: an object with `__cuda_stream__` (cuda.core, CuPy), a stream of
    /// PyTorch's or CuPy's; of the device that it works on, or of a default stream the one that the object
    /// says. It is kept alive as long as it is used. One of another device than `device`, or of another
    /// context than the primary one, is refused.
    #[staticmethod]
    #[pyo3(signature = (stream, *, device = None))]
    fn from_object(
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        device: Option<DeviceLike>,
    ) -> Result<Self> {
        let device = DeviceLike::given(py, device)?;
        let lane = Self::lane_of_object(py, stream, device, None)?;
        refuse_other(Some(lane.context().device().ordinal()), device)?;
        Ok(Self::of_lane(lane))
    }

    /// The legacy default stream of a device's primary context.
    #[staticmethod]
    #[pyo3(signature = (device = None))]
    fn legacy(py: Python<'_>, device: Option<DeviceLike>) -> Result<Self> {
        let context = primary(py, DeviceLike::ordinal(py, device)?)?;
        Ok(Self::of_lane(Lane::Legacy(context)))
    }

    /// The default stream of each thread that uses it, in a device's primary context.
    #[staticmethod]
    #[pyo3(signature = (device = None))]
    fn per_thread(py: Python<'_>, device: Option<DeviceLike>) -> Result<Self> {
        let context = primary(py, DeviceLike::ordinal(py, device)?)?;
        Ok(Self::of_lane(Lane::PerThread(context)))
    }

    /// The stream that new arrays of this thread are on: that of the innermost `with` block of one, or
    /// the current device's default stream.
    #[staticmethod]
    fn current(py: Python<'_>) -> Result<Self> {
        Ok(Self::of_lane(current::lane(py)?))
    }

    /// The driver's handle, a `CUstream`; 1 or 2 for a default stream.
    #[getter]
    fn handle(&self) -> Result<u64> {
        self.export()
    }

    /// For libraries that know the protocol: version 0, and the handle.
    fn __cuda_stream__(&self) -> Result<(u32, u64)> {
        Ok((0, self.export()?))
    }

    /// The device that its work runs on.
    #[getter]
    fn device(&self) -> Result<PyDevice> {
        Ok(PyDevice(self.lane()?.context().device()))
    }

    /// The context of its memory and kernels.
    #[getter]
    fn context(&self) -> Result<PyContext> {
        Ok(PyContext(self.lane()?.context().clone()))
    }

    /// The priority that the stream really has; 0 for default streams.
    #[getter]
    fn priority(&self) -> Result<i32> {
        match self.lane()? {
            Lane::Stream(stream) => Ok(stream.priority()?),
            _ => Ok(0),
        }
    }

    /// Waits until all work given to the stream is done.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let lane = self.lane()?;
        detached(py, move || lane.synchronize())
    }

    /// Whether all work given to the stream is done.
    #[getter]
    fn is_idle(&self) -> Result<bool> {
        self.lane()?.is_idle()
    }

    /// Work given to this stream from now on begins after what the event has recorded, or what the
    /// other stream, which is not captured, has been given up to now. Nobody waits here.
    fn wait(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> Result<()> {
        let lane = self.lane()?;
        if let Ok(event) = other.cast::<PyEvent>() {
            let event = event.get().event()?;
            return detached(py, move || lane.wait(&event));
        }
        let near = lane.context().device().ordinal();
        let other = Self::lane_of_object(py, other, None, Some(near))?;
        detached(py, move || lane.follow(&other))
    }

    /// Records an event in the stream, a new one if none is given, and returns it.
    #[pyo3(signature = (event = None))]
    fn record(&self, py: Python<'_>, event: Option<Py<PyEvent>>) -> Result<Py<PyEvent>> {
        let lane = self.lane()?;
        let event = PyEvent::given(py, event, lane.context())?;
        let its = event.get().event()?;
        detached(py, move || lane.record(&its))?;
        Ok(event)
    }

    /// Lets go of the stream: it is destroyed, which waits for nothing, when the last array on it is
    /// gone as well. With it may go the green context that it was made in, which waits for all work. If
    /// the handle was read, the stream stays until this object is gone, as others may use it that keep
    /// the object.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::SeqCst);
        if !self.is_exported.load(Ordering::SeqCst) {
            self.lane.close(py);
        }
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    fn __enter__<'py>(slf: &Bound<'py, Self>) -> Result<Bound<'py, Self>> {
        current::enter_stream(slf.as_any(), &slf.get().lane()?)?;
        Ok(slf.clone())
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(slf: &Bound<'_, Self>, _exception: &Bound<'_, PyTuple>) -> Result<()> {
        current::leave(slf.as_any())
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        let Ok(other) = other.cast::<Self>() else {
            return false;
        };
        match (self.lane(), other.get().lane()) {
            (Ok(its), Ok(others)) => its.is_same(&others),
            _ => std::ptr::eq(self, other.get()),
        }
    }

    fn __hash__(&self) -> u64 {
        self.number
    }

    fn __repr__(&self) -> String {
        match self.lane() {
            Ok(Lane::Legacy(_)) => "<Stream: the legacy default stream>".to_owned(),
            Ok(Lane::PerThread(_)) => "<Stream: the thread's default stream>".to_owned(),
            Ok(lane) => format!("<Stream {:#x}>", lane.number()),
            Err(_) => "<Stream, closed>".to_owned(),
        }
    }
}
