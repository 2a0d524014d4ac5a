//! The captures that run while an operation runs.

use super::{Part, Stage, keeping};
use cuda_safe::capture::CaptureMode;
use cuda_safe::{DeviceBuffer, Graph, Result};

/// How one thread captures a stream while another thread uses it.
#[derive(Clone, Copy)]
pub(super) struct Captures {
    pub(super) name: &'static str,
    pub(super) prepare: fn(&Stage) -> Part,
    /// Whether the operation begins only after the capture is open.
    pub(super) is_open_before: bool,
    /// Whether a host function of the stream may wait for the capturing thread. That thread then
    /// makes no call that completes deferred releases.
    pub(super) with_host_function: bool,
}

pub(super) const ALL: &[Captures] = &[
    Captures { name: "begin", prepare: begin, is_open_before: false, with_host_function: true },
    Captures {
        name: "begin-global",
        prepare: begin_global,
        is_open_before: false,
        with_host_function: false,
    },
    Captures { name: "end", prepare: end, is_open_before: true, with_host_function: false },
    Captures { name: "join", prepare: join, is_open_before: false, with_host_function: true },
    Captures { name: "abandon", prepare: abandon, is_open_before: true, with_host_function: false },
];

fn begin(stage: &Stage) -> Part {
    let stage = stage.clone();
    keeping(move || captured(&stage, CaptureMode::ThreadLocal).ok())
}

fn begin_global(stage: &Stage) -> Part {
    let stage = stage.clone();
    keeping(move || captured(&stage, CaptureMode::Global).ok())
}

fn captured(stage: &Stage, mode: CaptureMode) -> Result<Graph> {
    let capture = stage.stream.begin_capture(mode)?;
    stage.open.set();
    capture.end()
}

/// Captures work and instantiates the graph.
fn end(stage: &Stage) -> Part {
    let mut buffer = DeviceBuffer::<u32>::zeroed(&stage.stream, 4).expect("memory");
    stage.stream.synchronize().expect("a wait");
    let stage = stage.clone();
    keeping(move || {
        let capture = stage.stream.begin_capture(CaptureMode::ThreadLocal);
        // Set even if the capture could not begin.
        stage.open.set();
        let record = || -> Result<_> {
            let capture = capture?;
            buffer.fill(1)?;
            let graph = capture.end()?;
            let executable = graph.instantiate()?;
            Ok((graph, executable))
        };
        let graphs = record();
        (graphs.ok(), buffer)
    })
}

/// The stream joins a capture of another stream by waiting for its event.
fn join(stage: &Stage) -> Part {
    let forks = stage.context.event().expect("an event");
    let joins = stage.context.event().expect("an event");
    let stage = stage.clone();
    keeping(move || {
        let record = || -> Result<_> {
            let capture = stage.other.begin_capture(CaptureMode::ThreadLocal)?;
            forks.record(&stage.other)?;
            stage.stream.wait_event(&forks)?;
            stage.open.set();
            joins.record(&stage.stream)?;
            stage.other.wait_event(&joins)?;
            capture.end()
        };
        record().ok()
    })
}

/// The capture is dropped.
fn abandon(stage: &Stage) -> Part {
    let stage = stage.clone();
    keeping(move || {
        let capture = stage.stream.begin_capture(CaptureMode::ThreadLocal);
        stage.open.set();
        drop(capture);
    })
}
