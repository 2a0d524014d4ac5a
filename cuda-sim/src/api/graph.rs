//! Captured graphs.

use super::Out;
use super::context::pointer;
use crate::account::misuse;
use crate::exec::Work;
use crate::state::handles::State;
use crate::state::objects::Executable;
use crate::state::{Answer, World};
use core::ffi::c_ulonglong;
use cuda_sys::{CUgraph, CUgraphExec, CUresult, CUstream};

pub(super) fn destroy(world: &mut World, graph: CUgraph) -> Answer {
    if world.graphs.remove(graph.addr()).is_some() {
        return Ok(());
    }
    if world.graphs.state(graph.addr()) == State::Dead {
        misuse("a graph is destroyed twice");
    }
    Err(CUresult::CUDA_ERROR_INVALID_VALUE)
}

pub(super) fn instantiate(
    world: &mut World,
    executable: &mut Out<CUgraphExec>,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Answer {
    executable.required()?;
    world.current()?;
    if flags != 0 {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    let nodes = world.graphs.get(graph.addr()).cloned();
    let nodes = nodes.ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    world.check_nodes(&nodes, "instantiated")?;
    let made = world.executables.insert(Executable { nodes, last: None });
    executable.set(pointer(made));
    Ok(())
}

/// Enqueues each node as a separate operation that is ordered only after the nodes it depends on.
pub(super) fn launch(world: &mut World, executable: CUgraphExec, stream: CUstream) -> Answer {
    let stream = world.stream(stream.addr())?;
    let Some(its) = world.executables.get(executable.addr()) else {
        if world.executables.state(executable.addr()) == State::Dead {
            misuse("an executable graph is launched after it was destroyed");
        }
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    };
    let (nodes, last) = (its.nodes.clone(), its.last);
    if let Some(capture) = world.recording(stream)? {
        // Measured: the launch does not become a node of the other graph.
        world.break_capture(capture);
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    world.check_nodes(&nodes, "launched")?;
    // Launches of one executable graph do not overlap.
    let start = world.give(stream, Work::Nothing, last.into_iter().collect());
    let mut given: Vec<u64> = Vec::new();
    for node in nodes {
        let mut after = vec![start];
        after.extend(node.after.iter().filter_map(|place| given.get(*place)));
        let (work, records) = match node.work {
            Work::WaitFor { event } => {
                after.extend(world.event(event)?.recorded);
                (Work::Nothing, None)
            }
            Work::Record { event } => (Work::Record { event }, Some(event)),
            work => (work, None),
        };
        let operation = world.executor.give_aside(work, after);
        if let Some(event) = records.and_then(|event| world.events.get_mut(event)) {
            event.recorded = Some(operation);
            event.captured = None;
            event.time = None;
        }
        given.push(operation);
    }
    let end = world.give(stream, Work::Nothing, given);
    if let Some(its) = world.executables.get_mut(executable.addr()) {
        its.last = Some(end);
    }
    Ok(())
}

/// Does not wait, not even for launches of the graph (measured).
pub(super) fn destroy_executable(world: &mut World, executable: CUgraphExec) -> Answer {
    world.forbidden_in_capture()?;
    if let Some(its) = world.executables.get(executable.addr()) {
        world.check_destruction(its)?;
    }
    match world.executables.state(executable.addr()) {
        State::Alive => {}
        State::Dead => {
            misuse("an executable graph is destroyed twice");
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        State::Unknown => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
    }
    world.executables.remove(executable.addr());
    Ok(())
}
