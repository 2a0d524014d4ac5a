//! Streams of this package, foreign streams and default streams.

use crate::current;
use crate::error::{Failure, Result};
use crate::graph::PyCapture;
use crate::lifetime::ending::detached;
use crate::objects::{
    DeviceLike, PyContext, PyDevice, PyEvent, PyStream, lane_of_number, refuse_other,
};
use crate::primary::primary;
use crate::stream_handle::StreamHandle;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::sync::atomic::Ordering;

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
