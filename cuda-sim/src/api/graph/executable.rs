//! Creates, uploads, launches and destroys executable graphs.

use crate::api::prelude::*;
use crate::call::fault;
use crate::exec::Work;
use crate::state::graph::executable::Failure;
use crate::state::handles::State;
use cuda_sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphInstantiate_flags as Flags,
    CUgraphInstantiateResult as Outcome,
};

/// Checks flags. The automatic free excludes launches from the device.
fn check_flags(flags: u64, may_upload: bool) -> Answer {
    let known = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
        | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH
        | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
    let upload = u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0);
    let known = u64::from(known.0) | if may_upload { upload } else { 0 };
    let exclusive = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH
        | Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
    let exclusive = u64::from(exclusive.0);
    fail_if(flags & !known != 0 || flags & exclusive == exclusive, INVALID)
}

/// Instantiates a graph. The outer error is that of the arguments.
fn make(world: &mut World, graph: CUgraph, flags: u64) -> Answer<Result<usize, Failure>> {
    world.graph(graph.addr())?;
    Ok(world.instantiate(graph.addr(), flags))
}

pub(crate) fn instantiate(
    world: &mut World,
    graph: CUgraph,
    flags: c_ulonglong,
) -> Answer<CUgraphExec> {
    world.current()?;
    check_flags(flags, false)?;
    world.forbidden_in_capture()?;
    let made = make(world, graph, flags)?.map_err(|(code, ..)| code)?;
    Ok(pointer(made))
}

/// The older functions, which return the node of an error and a message. No message is written.
pub(crate) fn instantiate_telling(
    world: &mut World,
    executable: Out<CUgraphExec>,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    text: *mut c_char,
    size: usize,
) -> Answer {
    world.current()?;
    node.set(core::ptr::null_mut());
    if !text.is_null() && size != 0 {
        // SAFETY: the caller passes room for `size` characters.
        unsafe { text.write(0) };
    }
    match make(world, graph, 0)? {
        Ok(made) => executable.set(pointer(made)),
        Err((code, _, failed)) => {
            node.set(pointer(failed));
            return Err(code);
        }
    }
    Ok(())
}

/// Uploads the graph to a stream with the flag for it. Then no context need be current (measured).
pub(crate) fn instantiate_with(
    world: &mut World,
    executable: Out<CUgraphExec>,
    graph: CUgraph,
    params: &mut Option<&mut CUDA_GRAPH_INSTANTIATE_PARAMS>,
) -> Answer {
    let params = params.as_mut().ok_or(INVALID)?;
    params.result_out = Outcome::CUDA_GRAPH_INSTANTIATE_ERROR;
    params.hErrNode_out = core::ptr::null_mut();
    let uploads = params.flags & u64::from(Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD.0) != 0;
    if !uploads || params.hUploadStream.is_null() {
        world.current()?;
    }
    check_flags(params.flags, true)?;
    // Measured with a capture of this thread.
    world.forbidden_in_capture()?;
    let stream = match uploads {
        true => Some(world.stream(params.hUploadStream.addr())?),
        false => None,
    };
    match make(world, graph, params.flags)? {
        Ok(made) => {
            params.result_out = Outcome::CUDA_GRAPH_INSTANTIATE_SUCCESS;
            if let Some(stream) = stream {
                world.give(stream, Work::Nothing, Vec::new());
                world.note_upload(made);
            }
            executable.set(pointer(made));
            Ok(())
        }
        Err((code, outcome, node)) => {
            params.result_out = outcome;
            params.hErrNode_out = pointer(node);
            Err(code)
        }
    }
}

/// Fails for a graph that is destroyed, and for a capturing stream, whose capture becomes invalid.
fn check_launch(world: &mut World, executable: CUgraphExec, stream: usize) -> Answer {
    world.forbidden_on_capturing(stream)?;
    if world.objects.executables.get(executable.addr()).is_none() {
        if world.objects.executables.state(executable.addr()) == State::Dead {
            misuse("an executable graph is launched after it was destroyed");
        }
        return Err(INVALID);
    }
    Ok(())
}

pub(crate) fn upload(world: &mut World, executable: CUgraphExec, stream: CUstream) -> Answer {
    let stream = world.stream(stream.addr())?;
    check_launch(world, executable, stream)?;
    world.check_executable(world.executable(executable.addr())?, "uploaded")?;
    world.give(stream, Work::Nothing, Vec::new());
    world.note_upload(executable.addr());
    Ok(())
}

/// Waits for copies to pageable memory, and for nothing else (measured).
pub(crate) fn launch(world: &mut World, executable: CUgraphExec, stream: CUstream) -> Answer {
    let limit = fault::memory_limit(world.settings.profile.gpu.memory);
    world.wait_for(|world| {
        let stream = world.stream(stream.addr())?;
        check_launch(world, executable, stream)?;
        world.launch_graph(executable.addr(), stream, limit)
    })
}

pub(crate) fn flags(world: &mut World, executable: CUgraphExec) -> Answer<c_ulonglong> {
    let its = world.executable(executable.addr())?.flags;
    // Measured: these flags are not returned.
    let hidden = Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY.0;
    Ok(its & !u64::from(hidden))
}

/// Waits for nothing, not even for launches of the graph, except for a graph with conditional nodes and
/// for a running graph that can be launched from the device (measured).
pub(crate) fn destroy(world: &mut World, executable: CUgraphExec) -> Answer {
    let handle = executable.addr();
    match world.objects.executables.state(handle) {
        State::Alive => {}
        State::Dead => {
            misuse("an executable graph is destroyed twice");
            return Err(INVALID);
        }
        State::Unknown => return Err(INVALID),
    }
    world.forbidden_in_capture()?;
    let its = world.executable(handle)?;
    let mut nodes = its.nodes.values();
    nodes.try_for_each(|node| world.check_contexts(&node.needs, "destroyed"))?;
    if world.destruction_waits(its) && world.runs.fatal.is_none() {
        world.run_all()?;
    }
    world.remove_executable(handle);
    Ok(())
}
