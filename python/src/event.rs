//! Events.

use crate::context::PyContext;
use crate::device::{DeviceLike, primary};
use crate::ending::detached;
use crate::error::Result;
use crate::hold::Closable;
use crate::stream::PyStream;
use cuda_safe::{Context, Event, EventOptions};
use pyo3::prelude::*;

/// A mark in a stream: recorded, it is reached when the work given to the stream before is done.
#[pyclass(frozen, name = "Event", module = "cuda_safe", weakref)]
pub(crate) struct PyEvent(Closable<Event>);

impl PyEvent {
    pub(crate) fn create(
        py: Python<'_>,
        context: &Context,
        timing: bool,
        blocking_sync: bool,
    ) -> Result<Self> {
        let options = EventOptions {
            timing,
            blocking_sync,
            ..EventOptions::default()
        };
        let event = detached(py, || context.event_with(options))?;
        Ok(Self::of(event))
    }

    pub(crate) fn of(event: Event) -> Self {
        Self(Closable::new("event", event))
    }

    /// The event that a caller gave, or a new one of the context.
    pub(crate) fn given(
        py: Python<'_>,
        given: Option<Py<Self>>,
        context: &Context,
    ) -> Result<Py<Self>> {
        match given {
            Some(event) => Ok(event),
            None => Ok(Py::new(py, Self::create(py, context, false, false)?)?),
        }
    }

    pub(crate) fn event(&self) -> Result<Event> {
        self.0.get()
    }
}

#[pymethods]
impl PyEvent {
    /// An event in a device's primary context. With `timing` it takes the time, for `elapsed_since`;
    /// with `blocking_sync` waiting for it sleeps instead of spinning.
    #[new]
    #[pyo3(signature = (device = None, *, timing = false, blocking_sync = false))]
    fn new(
        py: Python<'_>,
        device: Option<DeviceLike>,
        timing: bool,
        blocking_sync: bool,
    ) -> Result<Self> {
        let ordinal = DeviceLike::ordinal(py, device)?;
        Self::create(py, &primary(py, ordinal)?, timing, blocking_sync)
    }

    /// The driver's handle, a `CUevent`. It stays this object's.
    #[getter]
    fn handle(&self) -> Result<usize> {
        Ok(self.event()?.as_raw().addr())
    }

    /// The context that it was made in.
    #[getter]
    fn context(&self) -> Result<PyContext> {
        Ok(PyContext(self.event()?.context().clone()))
    }

    /// Marks what the stream has been given up to now; a mark from before is forgotten.
    fn record(&self, py: Python<'_>, stream: &PyStream) -> Result<()> {
        let (lane, event) = (stream.lane()?, self.event()?);
        detached(py, move || lane.record(&event))
    }

    /// Waits until the work that was recorded last is done.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let event = self.event()?;
        detached(py, move || event.synchronize())
    }

    /// Whether the work that was recorded last is done.
    #[getter]
    fn is_done(&self) -> Result<bool> {
        Ok(self.event()?.is_done()?)
    }

    /// The seconds from `start` to this event, both with timing, recorded and done.
    fn elapsed_since(&self, start: &Self) -> Result<f64> {
        Ok(self.event()?.elapsed_since(&start.event()?)?.as_secs_f64())
    }

    /// Destroys the event, which waits for nothing.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.0.is_closed()
    }

    fn __repr__(&self) -> String {
        match self.event() {
            Ok(event) => format!("<Event {:p}>", event.as_raw()),
            Err(_) => "<Event, closed>".to_owned(),
        }
    }
}
