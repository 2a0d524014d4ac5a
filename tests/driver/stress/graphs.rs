//! Captures, and launches of captured graphs.

use super::Arena;
use super::worker::{Item, Known, Worker};
use cuda_safe::capture::CaptureMode;
use cuda_safe::{DeviceBuffer, Event, ExecutableGraph, Result, Stream};
use std::sync::PoisonError;

/// A graph with all objects that it uses, which nothing else uses.
pub(super) struct Recorded {
    graph: ExecutableGraph,
    /// The buffer that the graph scales and then copies.
    source: Known,
    copy: DeviceBuffer<i32>,
    launched: bool,
    /// The buffer that a second stream scales, between a fork and a join.
    aside: Option<(Known, Event)>,
}

/// Returns a buffer on a stream that no other thread knows, because work of other threads must not
/// become part of a capture.
fn buffer(worker: &mut Worker<'_>, stream: &Stream) -> Result<Known> {
    let mut elements = worker.numbers();
    elements.push(7);
    let buffer = DeviceBuffer::from_slice(stream, &elements)?;
    Ok(Known { buffer, elements })
}

fn scale(arena: &Arena, known: &mut Known) -> Result<()> {
    let stream = known.buffer.stream().clone();
    let scale = &arena.home(stream.context()).scale;
    scale.run(&stream, &mut known.buffer, 7, 3)
}

/// Returns the elements after a launch.
fn scaled(known: &mut Known) {
    let new = |element: &mut i32| *element = element.wrapping_mul(7).wrapping_add(3);
    known.elements.iter_mut().for_each(new);
}

pub(super) fn capture(worker: &mut Worker<'_>) -> Result<()> {
    let arena = worker.arena;
    let context = &worker.home().context;
    let stream = context.stream()?;
    let mut source = buffer(worker, &stream)?;
    let mut copy = DeviceBuffer::uninit(&stream, source.elements.len())?;
    let mut aside = match worker.below(2) {
        0 => Some((buffer(worker, &context.stream()?)?, context.event()?)),
        _ => None,
    };
    let graph = {
        let captures = &arena.captures;
        let _begun = captures.read().unwrap_or_else(PoisonError::into_inner);
        stream.capture(CaptureMode::ThreadLocal, |stream| {
            if let Some((known, event)) = &mut aside {
                let other = known.buffer.stream().clone();
                event.record(stream)?;
                other.wait_event(event)?;
                scale(arena, known)?;
                event.record(&other)?;
            }
            scale(arena, &mut source)?;
            copy.copy_from(&source.buffer)?;
            match &aside {
                Some((_, event)) => stream.wait_event(event),
                None => Ok(()),
            }
        })?
    };
    let graph = graph.instantiate()?;
    let aside = match aside {
        // The buffer and the event stay part of the captured graph.
        Some((known, _)) => Some((known, context.event()?)),
        None => None,
    };
    worker.keep(Item::Graph(Box::new(Recorded { graph, source, copy, launched: false, aside })));
    Ok(())
}

pub(super) fn launch(worker: &mut Worker<'_>) -> Result<()> {
    let recorded = worker.take(|item| match item {
        Item::Graph(recorded) => Ok(recorded),
        other => Err(other),
    });
    let Some(mut recorded) = recorded else {
        return Ok(());
    };
    recorded.launch()?;
    if worker.below(2) == 0 {
        recorded.check()?;
    }
    worker.keep(Item::Graph(recorded));
    Ok(())
}

impl Recorded {
    fn launch(&mut self) -> Result<()> {
        let stream = self.source.buffer.stream();
        if let Some((known, event)) = &self.aside {
            event.record(known.buffer.stream())?;
            stream.wait_event(event)?;
        }
        // SAFETY: the buffers are alive, the kernel belongs to the arena, and only the captured
        // graph uses the events. Other work on the buffers is on this stream, or runs before or
        // after this launch because of the waits.
        unsafe { self.graph.launch_unchecked(stream) }?;
        if let Some((known, event)) = &self.aside {
            event.record(stream)?;
            known.buffer.stream().wait_event(event)?;
        }
        self.launched = true;
        scaled(&mut self.source);
        if let Some((known, _)) = &mut self.aside {
            scaled(known);
        }
        Ok(())
    }

    pub(super) fn check(&self) -> Result<()> {
        self.source.check()?;
        if self.launched {
            assert_eq!(self.copy.to_vec()?, self.source.elements);
        }
        match &self.aside {
            Some((known, _)) => known.check(),
            None => Ok(()),
        }
    }
}

/// Abandons a capture, which its drop ends.
pub(super) fn give_up(worker: &mut Worker<'_>) -> Result<()> {
    let arena = worker.arena;
    let stream = worker.home().context.stream()?;
    let mut source = buffer(worker, &stream)?;
    let captures = &arena.captures;
    let _begun = captures.read().unwrap_or_else(PoisonError::into_inner);
    let capture = stream.begin_capture(CaptureMode::ThreadLocal)?;
    scale(arena, &mut source)?;
    drop(capture);
    source.check()
}
