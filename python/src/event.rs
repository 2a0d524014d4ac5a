//! Events.

use crate::error::{Failure, Result};
use crate::lifetime::ending::detached;
use crate::objects::{DeviceLike, PyContext, PyEvent, PyStream};
use crate::primary::primary;
use cuda_safe::{Error, Invalid};
use pyo3::prelude::*;

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
        let elapsed = self.event()?.elapsed_since(&start.event()?);
        Ok(elapsed.map_err(explain)?.as_secs_f64())
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

/// Names the option of this package instead of that of the Rust crate.
fn explain(error: Error) -> Failure {
    let is_without_time =
        matches!(&error, Error::Invalid(invalid) if matches!(**invalid, Invalid::NoElapsedTime));
    match is_without_time {
        true => Failure::Explained(
            error,
            "the time between two events needs events of one device that were created with timing \
             (Event(timing=True)) and have been recorded"
                .to_owned(),
        ),
        false => error.into(),
    }
}
