//! Graphs that are recorded in the order of calls, and captures that replace a graph.

use super::captures::mode;
use super::graphs::{Drawn, function};
use super::{Done, Held, LEN, Operations, Skip, Step};
use cuda_safe::capture::Recapture;
use cuda_safe::graph::GraphRecorder;
use cuda_safe::{Event, Graph, LaunchConfig, PinnedBuffer, Stream};

/// A recorder, with the memory of its graph.
type Recording = (GraphRecorder, Drawn);

/// Records with a recorder.
fn record(
    s: &mut Step<'_>,
    record: impl FnOnce(&mut Step<'_>, &mut GraphRecorder, &mut Drawn) -> Done,
) -> Done {
    s.with(|s, (recorder, drawn): &mut Recording| record(s, recorder, drawn))
}

pub(super) const RECORDINGS: Operations = &[
    ("new recording", |s| {
        let mut drawn = Drawn::of(Graph::new(s.context())?);
        let graph = drawn.graph.take().ok_or(Skip)?;
        let mut recorder = graph.into_recorder(&s.get()?)?;
        let buffer = recorder.zeroed(LEN)?;
        drawn.memory.push(buffer);
        drawn.values.push(0);
        Ok(s.put((recorder, drawn)))
    }),
    ("record into a graph", |s| {
        let stream = s.get::<Stream>()?;
        let mut drawn = s.take::<Drawn>()?;
        match drawn.graph.take().ok_or(Skip)?.try_into_recorder(&stream) {
            Ok(recorder) => s.put((recorder, drawn)),
            Err(rejected) => {
                drawn.graph = Some(rejected.value);
                s.put(drawn);
            }
        }
        Ok(())
    }),
    ("end a recording", |s| {
        let (recorder, mut drawn) = s.take::<Recording>()?;
        drawn.graph = Some(recorder.into_graph()?);
        drawn.instantiate(&Default::default())?;
        Ok(s.put(drawn))
    }),
    ("launch a recording", launch),
    ("launch a recording again", launch),
    ("record memory", |s| {
        record(s, |s, recorder, drawn| {
            let value = drawn.may_be(s.fresh());
            let mut buffer = recorder.uninit(LEN)?;
            recorder.fill(&mut buffer, value)?;
            let first = drawn.memory.first_mut().ok_or(Skip)?;
            Ok(drop(recorder.copy(first, &buffer)?))
        })
    }),
    ("record an owned buffer", |s| {
        let held = s.take::<Held>()?;
        let mut back = None;
        record(s, |s, recorder, drawn| {
            drawn.values.extend(&held.values);
            if s.one_in(2) {
                let buffer = recorder.own(held.buffer)?;
                return Ok(drawn.memory.push(buffer));
            }
            match recorder.try_own(held.buffer) {
                Ok(buffer) => drawn.memory.push(buffer),
                Err(rejected) => {
                    let (buffer, values) = (rejected.value, held.values);
                    back = Some(Held { buffer, values });
                }
            }
            Ok(())
        })?;
        Ok(back.map_or((), |back| s.put(back)))
    }),
    ("record pinned memory", |s| {
        let mut host = PinnedBuffer::zeroed(s.context(), LEN)?;
        record(s, |s, recorder, drawn| {
            host.fill(drawn.may_be(s.fresh()));
            let mut host = recorder.own_pinned(host)?;
            let buffer = drawn.memory.first_mut().ok_or(Skip)?;
            match s.one_in(2) {
                true => recorder.copy(buffer, &host)?,
                false => recorder.copy(&mut host, &*buffer)?,
            };
            Ok(drawn.pinned.push(host))
        })
    }),
    ("record a fill", |s| {
        record(s, |s, recorder, drawn| {
            let value = drawn.may_be(s.fresh());
            let buffer = drawn.memory.first_mut().ok_or(Skip)?;
            Ok(drop(recorder.fill(buffer, value)?))
        })
    }),
    ("record a copy", |s| {
        record(s, |_, recorder, drawn| match &mut drawn.memory[..] {
            [first, second, ..] => Ok(drop(recorder.copy(first, &*second)?)),
            _ => Err(Skip),
        })
    }),
    ("record a kernel", |s| {
        record(s, |s, recorder, drawn| {
            let buffer = drawn.memory.first_mut().ok_or(Skip)?;
            let (config, arguments) = (LaunchConfig::linear(1, 32), (buffer, 1, 0, LEN as u32));
            // SAFETY: the kernel reads and writes as many elements as the last argument says.
            let node = unsafe { recorder.launch(&s.world.kernel, config, arguments) }?;
            Ok(drop(node.id()))
        })
    }),
    ("record a host function", |s| {
        record(s, |_, recorder, drawn| {
            let (runs, function) = function();
            let node = recorder.host_function(function)?;
            Ok(drawn.add_function(node, runs))
        })
    }),
    ("record events", |s| {
        record(s, |s, recorder, _| {
            let event = s.get::<Event>()?;
            recorder.record_event(&event)?;
            Ok(drop(recorder.wait_event(&event)?))
        })
    }),
    ("record a child", |s| {
        record(s, |s, recorder, drawn| {
            s.with(|_, child: &mut Drawn| {
                let node = recorder.child(child.graph()?)?;
                Ok(drawn.add_functions_of(child, node.id()))
            })
        })
    }),
    ("dependencies of a recording", |s| {
        record(s, |s, recorder, _| {
            let node = recorder.add(|graph, after| graph.add_empty(after))?;
            let before = recorder.dependencies().to_vec();
            recorder.add_dependencies(&before)?;
            recorder.graph()?.nodes()?;
            match s.one_in(2) {
                true => recorder.set_dependencies(&[node.id()])?,
                false => recorder.set_dependencies(&before)?,
            }
            Ok(())
        })
    }),
    ("begin a recapture", |s| {
        let (stream, mode) = (s.get::<Stream>()?, mode(s));
        s.with(|s, drawn: &mut Drawn| {
            let graph = drawn.graph.take().ok_or(Skip)?;
            if s.one_in(2) {
                return Ok(s.put_own(stream.begin_recapture(graph, mode)?));
            }
            match stream.try_begin_recapture(graph, mode) {
                Ok(recapture) => s.put_own(recapture),
                Err(rejected) => drawn.graph = rejected.value,
            }
            Ok(())
        })
    }),
    ("end a recapture", |s| {
        let recapture = s.take_own::<Recapture>()?;
        let _ = recapture.stream().id()?;
        Ok(s.put(Drawn::of(recapture.end()?.0)))
    }),
];

fn launch(s: &mut Step<'_>) -> Done {
    s.with(|s, drawn: &mut Drawn| {
        let stream = s.get::<Stream>()?;
        drawn.executables.last().ok_or(Skip)?.launch(&stream)
    })
}
