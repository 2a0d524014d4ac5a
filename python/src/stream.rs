//! Streams: ours, those of others, and the default ones.

use crate::context::PyContext;
use crate::current;
use crate::device::{DeviceLike, PyDevice, primary};
use crate::ending::{calling, detached};
use crate::error::{Failure, Result};
use crate::event::PyEvent;
use crate::hold::{Closable, Owner};
use crate::lane::{Handle, Lane};
use cuda_safe::interop::ExportedStream;
use cuda_safe::{Context, Stream, StreamOptions};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// A queue of work on a device: what one stream is given runs in order.
///
/// `with stream:` has new arrays of this thread on it. Other libraries take it by its handle
/// (`__cuda_stream__`, or `cupy.cuda.ExternalStream(stream.handle)`), which is alive as long as this
/// object is not closed, or there is an array on it.
#[pyclass(frozen, name = "Stream", module = "cuda_safe", weakref)]
pub(crate) struct PyStream {
    lane: Closable<Lane>,
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
        self.lane.get()
    }
}

/// A stream that its owner keeps.
pub(crate) fn foreign(handle: Handle, context: &Context, owner: Owner) -> Result<Stream> {
    // SAFETY: whoever gave the handle promised that it is a stream of that context, or of a green
    // context of its device, and that the owner keeps it, or else they do.
    let stream = unsafe { Stream::from_foreign(handle.raw(), context, owner) };
    Ok(stream.map_err(|rejected| rejected.error)?)
}

/// A stream of somebody else's, by the number that they give it.
pub(crate) fn lane_of_number(
    number: u64,
    context: Context,
    owner: Option<Py<PyAny>>,
) -> Result<Lane> {
    match ExportedStream::from_number(number.into()) {
        Ok(ExportedStream::Legacy) => Ok(Lane::Legacy(context)),
        Ok(ExportedStream::PerThread) => Ok(Lane::PerThread(context)),
        Ok(ExportedStream::Handle(number)) => {
            let handle = Handle::new(number)?;
            let stream = match owner {
                Some(owner) => foreign(handle, &context, Owner::new(owner))?,
                // SAFETY: as for `foreign`, and whoever gives a handle without an owner keeps it.
                None => unsafe { Stream::borrow_raw(handle.raw(), &context) }?,
            };
            Ok(Lane::Stream(stream))
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

    /// A stream of other code, by its handle (a `CUstream` or `cudaStream_t`; 1 and 2 are the default
    /// streams). It is never destroyed here, and `owner` is kept alive as long as it is used; without
    /// an owner it is for the caller to keep the stream.
    #[staticmethod]
    #[pyo3(signature = (handle, owner = None, *, device = None))]
    fn from_handle(
        py: Python<'_>,
        handle: u64,
        owner: Option<Py<PyAny>>,
        device: Option<DeviceLike>,
    ) -> Result<Self> {
        let context = primary(py, DeviceLike::ordinal(py, device)?)?;
        Ok(Self::of_lane(lane_of_number(handle, context, owner)?))
    }

    /// A stream of another library: an object with `__cuda_stream__` (cuda.core, CuPy), a stream of
    /// PyTorch's or CuPy's. It is kept alive as long as it is used.
    #[staticmethod]
    #[pyo3(signature = (stream, *, device = None))]
    pub(crate) fn from_object(
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        device: Option<DeviceLike>,
    ) -> Result<Self> {
        if let Ok(own) = stream.cast::<Self>() {
            return Ok(Self::of_lane(own.get().lane()?));
        }
        let context = primary(py, DeviceLike::ordinal(py, device)?)?;
        // To those who have the default stream by this number it is the legacy one.
        let number = calling(py, || number_of(stream))?.max(1);
        let owner = Some(stream.clone().unbind());
        Ok(Self::of_lane(lane_of_number(number, context, owner)?))
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
        Ok(self.lane()?.number())
    }

    /// For libraries that know the protocol: version 0, and the handle.
    fn __cuda_stream__(&self) -> Result<(u32, u64)> {
        Ok((0, self.lane()?.number()))
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
            return lane.wait(&event.get().event()?);
        }
        let device = DeviceLike::Ordinal(lane.context().device().ordinal());
        let other = Self::from_object(py, other, Some(device))?.lane()?;
        detached(py, move || lane.follow(&other))
    }

    /// Records an event in the stream, a new one if none is given, and returns it.
    #[pyo3(signature = (event = None))]
    fn record(&self, py: Python<'_>, event: Option<Py<PyEvent>>) -> Result<Py<PyEvent>> {
        let lane = self.lane()?;
        let event = match event {
            Some(event) => event,
            None => Py::new(py, PyEvent::create(py, lane.context(), false, false)?)?,
        };
        lane.record(&event.get().event()?)?;
        Ok(event)
    }

    /// Lets go of the stream: it is destroyed, which waits for nothing, when the last array on it is
    /// gone as well. With it may go the green context that it was made in, which waits for all work.
    fn close(&self, py: Python<'_>) {
        self.lane.close(py);
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lane.is_closed()
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
