//! Events.

use crate::context::PyContext;
use crate::device::DeviceLike;
use crate::ending::detached;
use crate::error::Result;
use crate::hold::Closable;
use crate::primary::{OfContext, UntilReset, primary, refuse_gone};
use crate::stream::PyStream;
use cuda_safe::{Context, Event, EventOptions};
use pyo3::prelude::*;

/// An event in a stream. It is complete when the work submitted to the stream before the record is
/// complete.
#[pyclass(frozen, name = "Event", module = "cuda_safe", weakref)]
pub(crate) struct PyEvent(Closable<UntilReset<Event>>);

impl OfContext for Event {
    fn context(&self) -> &Context {
        // This calls the inherent method of the type.
        Self::context(self)
    }
}

impl PyEvent {
    pub(crate) fn create(
        py: Python<'_>,
        context: &Context,
        timing: bool,
        blocking_sync: bool,
    ) -> Result<Self> {
        let options = EventOptions { timing, blocking_sync, ..EventOptions::default() };
        let event = detached(py, || context.event_with(options))?;
        Ok(Self::of(event))
    }

    pub(crate) fn of(event: Event) -> Self {
        Self(Closable::new("event", UntilReset::new(event)))
    }

    /// Returns the given event, or creates one in the context.
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

    /// Returns the event, unless it was closed, or destroyed by a reset of its context.
    pub(crate) fn event(&self) -> Result<Event> {
        self.0.look(|event| {
            refuse_gone(event.context(), "event")?;
            Ok(Event::clone(event))
        })?
    }
}

#[pymethods]
impl PyEvent {
    /// Creates an event in a device's primary context. With `timing` it records the time, for
    /// `elapsed_since`. With `blocking_sync` a waiting thread sleeps instead of spinning.
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

    /// The driver's handle, a `CUevent`, which this object keeps owning.
    #[getter]
    fn handle(&self) -> Result<usize> {
        Ok(self.event()?.as_raw().addr())
    }

    /// The context in which the event was created.
    #[getter]
    fn context(&self) -> Result<PyContext> {
        Ok(PyContext(self.event()?.context().clone()))
    }

    /// Records the work submitted to the stream so far. This replaces an earlier record.
    fn record(&self, py: Python<'_>, stream: &PyStream) -> Result<()> {
        let (lane, event) = (stream.lane()?, self.event()?);
        detached(py, move || lane.record_event(&event))
    }

    /// Waits until the recorded work is complete.
    fn synchronize(&self, py: Python<'_>) -> Result<()> {
        let event = self.event()?;
        detached(py, move || event.synchronize())
    }

    /// Whether the recorded work is complete.
    #[getter]
    fn is_complete(&self) -> Result<bool> {
        Ok(self.event()?.is_complete()?)
    }

    /// Returns the seconds from `start` to this event. Both must have timing, and must be recorded
    /// and complete.
    fn elapsed_since(&self, start: &Self) -> Result<f64> {
        Ok(self.event()?.elapsed_since(&start.event()?)?.as_secs_f64())
    }

    /// Destroys the event without waiting.
    fn close(&self, py: Python<'_>) {
        self.0.close(py);
    }

    /// Whether the event was closed.
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
