//! Events.

use super::worker::{Item, Worker};
use cuda_safe::{Event, EventOptions, Result};

pub(super) fn make(worker: &mut Worker<'_>) -> Result<()> {
    let home = worker.home();
    let options = EventOptions {
        timing: worker.below(2) == 0,
        blocking_sync: worker.below(2) == 0,
        ..EventOptions::default()
    };
    worker.keep(Item::Event(home.context.event_with(options)?));
    Ok(())
}

/// Returns an event of this thread, which keeps it.
fn event(worker: &mut Worker<'_>) -> Option<Event> {
    let event = worker.take(|item| match item {
        Item::Event(event) => Ok(event),
        other => Err(other),
    })?;
    worker.keep(Item::Event(event.clone()));
    Some(event)
}

pub(super) fn record(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    match event(worker) {
        Some(event) if event.context() == stream.context() => event.record(&stream),
        _ => Ok(()),
    }
}

pub(super) fn wait(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    match event(worker) {
        Some(event) => stream.wait_event(&event),
        None => Ok(()),
    }
}

pub(super) fn ask(worker: &mut Worker<'_>) -> Result<()> {
    let Some(event) = event(worker) else {
        return Ok(());
    };
    if worker.below(2) == 0 { event.is_complete().map(|_| ()) } else { event.synchronize() }
}

/// Measures the time between two points of a stream.
pub(super) fn measure(worker: &mut Worker<'_>) -> Result<()> {
    let stream = worker.stream()?;
    let options = EventOptions { timing: true, ..EventOptions::default() };
    let start = stream.context().event_with(options)?;
    let end = stream.context().event_with(options)?;
    start.record(&stream)?;
    end.record(&stream)?;
    end.synchronize()?;
    end.elapsed_since(&start)?;
    worker.keep(Item::Event(start));
    Ok(())
}
