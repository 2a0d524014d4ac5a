//! Streams of this package, foreign streams and default streams.

use crate::context::PyContext;
use crate::current;
use crate::device::{DeviceLike, PyDevice};
use crate::ending::{calling, detached};
use crate::error::{Failure, Result};
use crate::event::PyEvent;
use crate::graph::PyCapture;
use crate::hold::{Closable, Owner};
use crate::once::intern;
use crate::primary::{UntilReset, primary, refuse_gone};
use crate::stream_handle::{Handle, StreamHandle};
use cuda_safe::interop::ExportedStream;
use cuda_safe::{Context, Stream, StreamOptions};
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::any::Any;
use std::sync::atomic::{AtomicBool, Ordering};

/// A queue of work on a device. Work in one stream runs in order.
///
/// Within `with stream:`, new arrays of this thread use the stream. Other libraries use it through
/// its handle (`__cuda_stream__`, or `cupy.cuda.ExternalStream(stream.handle)`), which is valid as
/// long as this object or an array on it exists.
#[pyclass(frozen, name = "Stream", module = "cuda_safe", weakref)]
pub(crate) struct PyStream {
    lane: Closable<UntilReset<StreamHandle>>,
    is_closed: AtomicBool,
    /// Whether the handle was exported.
    is_exported: AtomicBool,
    /// The handle. It remains the hash of the object after `close`.
    number: u64,
}

impl PyStream {
    pub(crate) fn of(stream: Stream) -> Self {
        Self::of_lane(StreamHandle::Stream(stream))
    }

    pub(crate) fn of_lane(lane: StreamHandle) -> Self {
        Self {
            number: lane.number(),
            lane: Closable::new("stream", UntilReset::new(lane)),
            is_closed: AtomicBool::new(false),
            is_exported: AtomicBool::new(false),
        }
    }

    /// Wraps a foreign stream that `owner` keeps alive.
    pub(crate) fn foreign(handle: Handle, context: &Context, owner: Py<PyAny>) -> Result<Self> {
        Ok(Self::of(foreign(handle, context, Owner::new(owner))?))
    }

    pub(crate) fn create(
        py: Python<'_>,
        context: &Context,
        priority: i32,
        blocking: bool,
    ) -> Result<Self> {
        refuse_gone(context, "context")?;
        let options = StreamOptions { blocking, priority, ..StreamOptions::default() };
        Ok(Self::of(detached(py, || context.stream_with(options))?))
    }

    /// Returns the stream, unless it was closed, or destroyed by a reset of its context.
    pub(crate) fn lane(&self) -> Result<StreamHandle> {
        let lane = self.open()?;
        refuse_gone(lane.context(), "stream").map(|()| lane)
    }

    /// Returns the stream, unless it was closed.
    fn open(&self) -> Result<StreamHandle> {
        match self.is_closed.load(Ordering::SeqCst) {
            false => self.lane.look(|lane| StreamHandle::clone(lane)),
            true => Err(Failure::closed("stream")),
        }
    }

    /// Returns the handle for other code.
    fn export(&self) -> Result<u64> {
        // This store comes first, so that a concurrent `close` sees it or this call sees the
        // `close`.
        self.is_exported.store(true, Ordering::SeqCst);
        Ok(self.lane()?.number())
    }
}

/// Wraps a stream that `owner` keeps alive.
///
/// The garbage collector does not see this reference. If it found a cycle through the owner, it would finalize the
/// owner first, which may destroy the stream, while memory is still to be freed on it.
pub(crate) fn foreign(
    handle: Handle,
    context: &Context,
    owner: impl Any + Send + Sync,
) -> Result<Stream> {
    // SAFETY: the code that provided the handle promised that it is a stream of this context, or of
    // a green context of its device, and that the owner (or else that code itself) keeps the stream
    // alive.
    Ok(unsafe { Stream::from_foreign(handle.raw(), context, owner) }?)
}

/// Wraps a foreign stream that is not a default stream. If `device` is None, the driver is asked
/// for it.
pub(crate) fn lane_of_handle(
    py: Python<'_>,
    handle: Handle,
    device: Option<u32>,
    owner: Option<Py<PyAny>>,
) -> Result<StreamHandle> {
    let ordinal = match device {
        Some(ordinal) => ordinal,
        None => detached(py, || {
            // SAFETY: the code that provided the handle promised that it is a live stream.
            unsafe { Stream::device_of_raw(handle.raw()) }
        })?
        .ordinal(),
    };
    let context = primary(py, ordinal)?;
    let checked = check_context(handle, &context)?;
    Ok(StreamHandle::Stream(match owner {
        Some(owner) => foreign(handle, &context, Owner::new(owner))?,
        None => checked,
    }))
}

/// Wraps a foreign stream after checking that it belongs to this context or to a green context of
/// its device. The code that provided the handle keeps the stream alive.
pub(crate) fn check_context(handle: Handle, context: &Context) -> Result<Stream> {
    // SAFETY: see `foreign`; code that provides a handle without an owner keeps the stream alive.
    Ok(unsafe { Stream::borrow_checked(handle.raw(), context) }?)
}

/// Wraps a foreign stream by its number. For the number of a default stream, `default_of` returns
/// the device if `device` is None.
fn lane_of_number(
    py: Python<'_>,
    number: u64,
    device: Option<u32>,
    default_of: impl FnOnce() -> Result<u32>,
    owner: Option<Py<PyAny>>,
) -> Result<StreamHandle> {
    let default = || {
        let ordinal = device.map_or_else(default_of, Ok)?;
        primary(py, ordinal)
    };
    match ExportedStream::from_number(number.into()) {
        Ok(ExportedStream::Legacy) => Ok(StreamHandle::Legacy(default()?)),
        Ok(ExportedStream::PerThread) => Ok(StreamHandle::PerThread(default()?)),
        Ok(ExportedStream::Handle(number)) => {
            lane_of_handle(py, Handle::new(number)?, device, owner)
        }
        Err(_) => Err(Failure::invalid(
            "the stream 0 is ambiguous: use 1 for the legacy default stream, 2 for the per-thread one",
        )),
    }
}

/// Returns the number of a stream object of another library.
fn number_of(object: &Bound<'_, PyAny>) -> Result<u64> {
    let py = object.py();
    if let Some(protocol) = object.getattr_opt(intern!(py, "__cuda_stream__"))? {
        // In the first version of the protocol it was an attribute instead of a method.
        let answer = match protocol.is_callable() {
            true => protocol.call0()?,
            false => protocol,
        };
        let (version, number): (u64, u64) = answer.extract()?;
        if version != 0 {
            return Err(Failure::invalid(format!(
                "version {version} of __cuda_stream__ is not supported; the supported version is 0"
            )));
        }
        return Ok(number);
    }
    // These are the attributes of PyTorch and CuPy.
    for name in [intern!(py, "cuda_stream"), intern!(py, "ptr")] {
        if let Some(number) = object.getattr_opt(name)? {
            return Ok(number.extract()?);
        }
    }
    Err(Failure::invalid(format!(
        "{} is not a stream: it has no __cuda_stream__",
        object.get_type().name()?
    )))
}

/// Returns the device of another library's stream, if the object tells it (PyTorch, CuPy,
/// cuda.core).
fn device_of_object(object: &Bound<'_, PyAny>) -> PyResult<Option<u32>> {
    let py = object.py();
    let mut numbers = vec![
        object.getattr_opt(intern!(py, "device_index"))?,
        object.getattr_opt(intern!(py, "device_id"))?,
    ];
    if let Some(device) = object.getattr_opt(intern!(py, "device"))? {
        numbers.push(device.getattr_opt(intern!(py, "device_id"))?);
    }
    // CuPy uses -1 if the stream belongs to no specific device.
    let number = |number: Bound<'_, PyAny>| number.extract::<u32>().ok();
    Ok(numbers.into_iter().flatten().find_map(number))
}

/// Refuses a stream of a device other than the wanted one.
fn refuse_other(its: Option<u32>, wanted: Option<u32>) -> Result<()> {
    match (its, wanted) {
        (Some(its), Some(wanted)) if its != wanted => Err(Failure::invalid(format!(
            "a stream of device {its} where a stream of device {wanted} is required"
        ))),
        _ => Ok(()),
    }
}

impl PyStream {
    /// Returns the handle of a stream of this package or of another library. For a default stream
    /// whose object does not tell the device, the device is `near`, or else the current one.
    pub(crate) fn lane_of_object(
        py: Python<'_>,
        stream: &Bound<'_, PyAny>,
        device: Option<u32>,
        near: Option<u32>,
    ) -> Result<StreamHandle> {
        if let Ok(own) = stream.cast::<Self>() {
            return own.get().lane();
        }
        // Libraries that represent the default stream as 0 mean the legacy one.
        let number = calling(py, || number_of(stream))?.max(1);
        let device = match number {
            // For any other stream, the driver knows the device.
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
    /// Creates a stream in a device's primary context. Lower numbers are higher priorities. A
    /// blocking stream synchronizes with the legacy default stream in both directions.
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

    /// Wraps a foreign stream by its handle (a `CUstream` or `cudaStream_t`), for the device on
    /// which the stream works. The handles 1 and 2 are the default streams of `device`, or of the
    /// current device. The stream is never destroyed here. `owner` is kept alive as long as the
    /// stream is used; without an owner, the caller must keep the stream alive. The garbage collector
    /// does not see this reference: an owner that refers to the new object is never released, unless
    /// the object is closed. A stream of a device other than `device`, or of a context other than the primary context and its green
    /// contexts, is refused.
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
        Ok(Self::of_lane(lane_of_number(py, handle, device, default_of, owner)?))
    }

    /// Wraps a stream of another library: an object with `__cuda_stream__` (cuda.core, CuPy), or a
    /// stream of PyTorch or CuPy. Its device is the one on which it works; for a default stream,
    /// the one that the object names. The object is kept alive as long as the stream is used. A
    /// stream of a device other than `device`, or of a context other than the primary context and
    /// its green contexts, is refused.
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

    /// Returns the legacy default stream of a device's primary context.
    #[staticmethod]
    #[pyo3(signature = (device = None))]
    fn legacy(py: Python<'_>, device: Option<DeviceLike>) -> Result<Self> {
        let context = primary(py, DeviceLike::ordinal(py, device)?)?;
        Ok(Self::of_lane(StreamHandle::Legacy(context)))
    }

    /// Returns the per-thread default stream, in a device's primary context.
    #[staticmethod]
    #[pyo3(signature = (device = None))]
    fn per_thread(py: Python<'_>, device: Option<DeviceLike>) -> Result<Self> {
        let context = primary(py, DeviceLike::ordinal(py, device)?)?;
        Ok(Self::of_lane(StreamHandle::PerThread(context)))
    }

    /// Returns the stream for new arrays of this thread: that of the innermost `with stream:`
    /// block, or else the current device's default stream.
    #[staticmethod]
    fn current(py: Python<'_>) -> Result<Self> {
        Ok(Self::of_lane(current::lane(py)?))
    }

    /// The driver's handle, a `CUstream`; 1 or 2 for a default stream.
    #[getter]
    fn handle(&self) -> Result<u64> {
        self.export()
    }

    /// Returns the protocol version 0 and the handle.
    fn __cuda_stream__(&self) -> Result<(u32, u64)> {
        Ok((0, self.export()?))
    }

    /// The device on which the stream works.
    #[getter]
    fn device(&self) -> Result<PyDevice> {
        Ok(PyDevice(self.lane()?.context().device()))
    }

    /// The context of the stream.
    #[getter]
    fn context(&self) -> Result<PyContext> {
        Ok(PyContext(self.lane()?.context().clone()))
    }

    /// The effective priority of the stream; 0 for default streams.
    #[getter]
    fn priority(&self) -> Result<i32> {
        match self.lane()? {
            StreamHandle::Stream(stream) => Ok(stream.priority()?),
            _ => Ok(0),
        }
    }

    /// Waits until all work submitted to the stream is complete.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let lane = self.lane()?;
        detached(py, move || lane.synchronize())
    }

    /// Whether all work submitted to the stream is complete.
    #[getter]
    fn is_complete(&self) -> Result<bool> {
        self.lane()?.is_complete()
    }

    /// Makes later work in this stream wait for the work recorded in an event. The host does not
    /// wait.
    fn wait_event(&self, py: Python<'_>, event: &PyEvent) -> Result<()> {
        let (lane, event) = (self.lane()?, event.event()?);
        detached(py, move || lane.wait_event(&event))
    }

    /// Makes later work in this stream wait for all work submitted to another stream so far. The host
    /// does not wait. If one of the streams is being captured, both must belong to the same capture:
    /// another stream joins a capture with `wait_event`.
    fn wait_stream(&self, py: Python<'_>, stream: &Bound<'_, PyAny>) -> Result<()> {
        let lane = self.lane()?;
        let near = lane.context().device().ordinal();
        let other = Self::lane_of_object(py, stream, None, Some(near))?;
        detached(py, move || lane.wait_stream(&other))
    }

    /// Records an event in the stream and returns it. Without an event, creates one.
    #[pyo3(signature = (event = None))]
    fn record_event(&self, py: Python<'_>, event: Option<Py<PyEvent>>) -> Result<Py<PyEvent>> {
        let lane = self.lane()?;
        let event = PyEvent::given(py, event, lane.context())?;
        let its = event.get().event()?;
        detached(py, move || lane.record_event(&its))?;
        Ok(event)
    }

    /// Captures the work that is submitted to the stream within `with stream.capture() as graph:`. The
    /// work is not executed; after the block it is in `graph`. An exception in the block discards it.
    ///
    /// Another stream joins the capture with `other.wait_event(stream.record_event())`. Before the
    /// block ends, the stream must wait for it: `stream.wait_stream(other)`. Allocations on a captured
    /// stream, and copies from and to the host, raise an exception. `synchronize` also invalidates the
    /// capture.
    ///
    /// `mode` tells which threads cannot make calls that could wait for captured work, such as
    /// synchronous allocations, during the capture: all of them (`"global"`), the thread of the block
    /// (`"thread_local"`) or none (`"relaxed"`). Such a call fails and invalidates the capture. The
    /// block must end on the thread that began it.
    #[pyo3(signature = (mode = "thread_local"))]
    fn capture(&self, py: Python<'_>, mode: &str) -> Result<PyCapture> {
        match self.lane()? {
            StreamHandle::Stream(stream) => PyCapture::new(py, stream, mode),
            _ => Err(Failure::invalid(
                "the driver's default streams cannot be captured: use another stream",
            )),
        }
    }

    /// Whether the stream is being captured.
    #[getter]
    fn is_capturing(&self) -> Result<bool> {
        self.lane()?.is_capturing()
    }

    /// Releases the stream. It is destroyed, without waiting, when the last array on it is
    /// released. This may also release the green context in which it was created, which waits for
    /// all work. If the handle was read, the stream stays valid until this object is deleted,
    /// because code that keeps this object may use it.
    fn close(&self, py: Python<'_>) {
        self.is_closed.store(true, Ordering::SeqCst);
        if !self.is_exported.load(Ordering::SeqCst) {
            self.lane.close(py);
        }
    }

    /// Whether the stream was closed.
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
        match (self.open(), other.get().open()) {
            (Ok(its), Ok(others)) => its.is_same(&others),
            _ => std::ptr::eq(self, other.get()),
        }
    }

    fn __hash__(&self) -> u64 {
        self.number
    }

    fn __repr__(&self) -> String {
        match self.open() {
            Ok(StreamHandle::Legacy(_)) => "<Stream: the legacy default stream>".to_owned(),
            Ok(StreamHandle::PerThread(_)) => "<Stream: the per-thread default stream>".to_owned(),
            Ok(lane) => format!("<Stream {:#x}>", lane.number()),
            Err(_) => "<Stream, closed>".to_owned(),
        }
    }
}
