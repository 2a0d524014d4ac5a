//! Captures of streams.

use super::graphs::Drawn;
use super::{Done, Held, Operations, Skip, Step};
use cuda_safe::Stream;
use cuda_safe::capture::{Capture, CaptureMode};

/// Draws the mode of a capture.
pub(super) fn mode(s: &mut Step<'_>) -> CaptureMode {
    s.choose(&[CaptureMode::ThreadLocal, CaptureMode::Relaxed, CaptureMode::Global])
}

pub(super) const CAPTURES: Operations = &[
    ("begin a capture", begin),
    ("begin a capture again", begin),
    ("end a capture", end),
    ("end a capture again", end),
    ("abandon a capture", |s| Ok(drop(s.take_own::<Capture>()?))),
    ("join a capture", |s| {
        let capture = s.take_own::<Capture>()?;
        let event = s.context().event()?;
        let joined = event
            .record(capture.stream())
            .and_then(|()| s.get::<Stream>().map_or(Ok(()), |its| its.wait_event(&event)));
        s.put(event);
        s.put_own(capture);
        Ok(joined?)
    }),
    ("fill in a capture", |s| {
        let capture = s.take_own::<Capture>()?;
        let stream = capture.stream().clone();
        s.put_own(capture);
        s.with(|s, held: &mut Held| {
            held.buffer.rebind(&stream)?;
            let value = held.may_be(s.fresh());
            Ok(held.buffer.fill(value)?)
        })
    }),
    ("capture a host function", |s| Ok(s.get::<Stream>()?.capture_host_function(|| ())?)),
    ("capture in a scope", |s| {
        let (stream, mode) = (s.get::<Stream>()?, mode(s));
        s.with(|s, held: &mut Held| {
            let value = held.may_be(s.fresh());
            let graph = stream.capture(mode, |_| held.buffer.fill(value))?;
            Ok(s.put(Drawn::of(graph)))
        })
    }),
    ("begin a capture into a graph", |s| {
        let (stream, mode) = (s.get::<Stream>()?, mode(s));
        s.with(|s, drawn: &mut Drawn| {
            let graph = drawn.graph.take().ok_or(Skip)?;
            match stream.try_begin_capture_into(graph, drawn.last(), mode) {
                Ok(capture) => s.put_own(capture),
                Err(rejected) => drawn.graph = rejected.value,
            }
            Ok(())
        })
    }),
    ("end a capture with its nodes", |s| {
        let (graph, nodes) = s.take_own::<Capture>()?.end_with_nodes()?;
        let mut drawn = Drawn::of(graph);
        drawn.nodes = nodes;
        Ok(s.put(drawn))
    }),
    ("capture into a graph", |s| {
        let mode = mode(s);
        s.with(|s, drawn: &mut Drawn| {
            s.with(|s, held: &mut Held| {
                let (graph, value) = (drawn.graph.take().ok_or(Skip)?, held.may_be(s.fresh()));
                let stream = held.buffer.stream().clone();
                let fill = |_: &Stream| held.buffer.fill(value);
                let (graph, nodes) = stream.capture_into(graph, drawn.last(), mode, fill)?;
                drawn.graph = Some(graph);
                drawn.nodes.extend(nodes);
                Ok(())
            })
        })
    }),
    ("recapture", |s| {
        let mode = mode(s);
        s.with(|s, drawn: &mut Drawn| {
            s.with(|s, held: &mut Held| {
                let (graph, value) = (drawn.graph.take().ok_or(Skip)?, held.may_be(s.fresh()));
                let stream = held.buffer.stream().clone();
                let fill = |_: &Stream| held.buffer.fill(value);
                drawn.graph = Some(stream.recapture(graph, mode, fill)?.0);
                Ok(())
            })
        })
    }),
    ("set the dependencies of a capture", |s| {
        let mut capture = s.take_own::<Capture>()?;
        let set = match s.one_in(2) {
            true => capture.set_dependencies(&[]),
            false => capture.add_dependencies(&[]),
        };
        s.put_own(capture);
        Ok(set?)
    }),
];

fn begin(s: &mut Step<'_>) -> Done {
    let (stream, mode) = (s.get::<Stream>()?, mode(s));
    Ok(s.put_own(stream.begin_capture(mode)?))
}

fn end(s: &mut Step<'_>) -> Done {
    let graph = s.take_own::<Capture>()?.end()?;
    Ok(s.put(Drawn::of(graph)))
}
