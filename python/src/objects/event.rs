//! Events.

use crate::error::Result;
use crate::lifetime::ending::detached;
use crate::lifetime::hold::Closable;
use crate::primary::{OfContext, UntilReset, refuse_gone};
use cuda_safe::{Context, Event, EventOptions};
use pyo3::prelude::*;

/// An event in a stream. It is complete when the work submitted to the stream before the record is
/// complete.
#[pyclass(frozen, name = "Event", module = "cuda_safe", weakref)]
pub(crate) struct PyEvent(pub(crate) Closable<UntilReset<Event>>);

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
