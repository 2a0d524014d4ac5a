//! Stream capture.

use crate::api::graph::dependencies;
use crate::api::prelude::*;
use crate::state::capture::Capture;
use crate::state::graph::Owner;
use crate::state::graph::node::Dependencies;
use crate::thread;
use cuda_sys::{
    CUgraphEdgeData, CUgraphRecaptureCallback, CUstreamCaptureMode as Mode,
    CUstreamCaptureStatus as Status, CUstreamCigCaptureParams,
    CUstreamUpdateCaptureDependencies_flags as Update,
};
use std::collections::BTreeSet;

pub(super) fn is_capturing(world: &mut World, stream: CUstream) -> Answer<Status> {
    let stream = world.stream_of_query(stream.addr())?;
    Ok(world.capture_status(stream))
}

/// Returns the state of a capture, with the graph and the nodes that the next node depends on. Outputs of
/// a stream that is not capturing are not written (measured). The arrays are memory of the driver.
pub(super) fn info_with_edges(
    world: &mut World,
    stream: CUstream,
    status: Out<Status>,
    id: Out<c_ulonglong>,
    graph: Out<CUgraph>,
    nodes: Out<*const CUgraphNode>,
    edges: Out<*const CUgraphEdgeData>,
    count: Out<usize>,
) -> Answer {
    status.required()?;
    let stream = world.stream_of_query(stream.addr())?;
    status.set(world.capture_status(stream));
    let its = world.objects.streams.get(stream);
    let Some(branch) = its.and_then(|its| its.capture.clone()) else {
        return Ok(());
    };
    id.set(branch.capture);
    if let Some(capture) = world.objects.captures.get(branch.capture) {
        graph.set(pointer(capture.graph));
    }
    // Measured.
    if world.capture_status(stream) == Status::CU_STREAM_CAPTURE_STATUS_INVALIDATED {
        return count.put(0);
    }
    let is_special = branch.last.iter().any(|(_, edge)| edge.is_special());
    if is_special && edges.required().is_err() && nodes.required().is_ok() {
        return Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
    }
    let Some(its) = world.objects.streams.get_mut(stream) else {
        return Ok(());
    };
    its.shown.words = branch.last.iter().map(|(node, _)| *node).collect();
    let data = branch.last.iter().flat_map(|(_, edge)| {
        let ports = [edge.from_port, edge.to_port, edge.kind];
        [ports[0], ports[1], ports[2], 0, 0, 0, 0, 0]
    });
    its.shown.bytes = data.collect();
    nodes.set(its.shown.words.as_ptr().cast());
    edges.set(its.shown.bytes.as_ptr().cast());
    count.put(branch.last.len())
}

pub(super) fn info(
    world: &mut World,
    stream: CUstream,
    status: Out<Status>,
    id: Out<c_ulonglong>,
    graph: Out<CUgraph>,
    nodes: Out<*const CUgraphNode>,
    count: Out<usize>,
) -> Answer {
    let edges = Out::none();
    info_with_edges(world, stream, status, id, graph, nodes, edges, count)
}

pub(super) fn info_short(
    world: &mut World,
    stream: CUstream,
    status: Out<Status>,
    id: Out<c_ulonglong>,
) -> Answer {
    let (graph, nodes, count) = (Out::none(), Out::none(), Out::none());
    info(world, stream, status, id, graph, nodes, count)
}

/// Adds to, or replaces, the nodes that the next node of a capture depends on.
pub(super) fn update_dependencies(
    world: &mut World,
    stream: CUstream,
    nodes: *mut CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    flags: c_uint,
) -> Answer {
    let stream = world.stream(stream.addr())?;
    let capture = world.recording(stream)?;
    let capture = capture.ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    // SAFETY: the caller passes null or `count` elements.
    let given = unsafe { dependencies(nodes, data, count) }?;
    let known = world.objects.captures.get(capture);
    let graph = known.ok_or(CUresult::CUDA_ERROR_ILLEGAL_STATE)?.graph;
    for (node, _) in &given {
        world.check_node_of(graph, *node)?;
    }
    let its = world.objects.streams.get(stream);
    let mut last = match Update(flags) {
        Update::CU_STREAM_SET_CAPTURE_DEPENDENCIES => Vec::new(),
        Update::CU_STREAM_ADD_CAPTURE_DEPENDENCIES => {
            let branch = its.and_then(|its| its.capture.clone());
            branch.map(|branch| branch.last).unwrap_or_default()
        }
        _ => return Err(INVALID),
    };
    for (node, edge) in given {
        last.retain(|(its, _)| *its != node);
        last.push((node, edge));
    }
    world.set_branch(stream, last);
    Ok(())
}

pub(super) fn update_plain(
    world: &mut World,
    stream: CUstream,
    nodes: *mut CUgraphNode,
    count: usize,
    flags: c_uint,
) -> Answer {
    update_dependencies(world, stream, nodes, core::ptr::null(), count, flags)
}

pub(super) fn begin_global(world: &mut World, stream: CUstream) -> Answer {
    begin(world, stream, Mode::CU_STREAM_CAPTURE_MODE_GLOBAL)
}

pub(super) fn begin(world: &mut World, stream: CUstream, mode: Mode) -> Answer {
    begin_into(world, stream, mode, None, Vec::new())
}

/// Captures into a graph of the program. The first node depends on the given nodes.
pub(super) fn begin_to_graph(
    world: &mut World,
    stream: CUstream,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    mode: Mode,
) -> Answer {
    world.graph(graph.addr())?;
    // SAFETY: the caller passes null or `count` elements.
    let after = unsafe { dependencies(nodes, data, count) }?;
    for (node, _) in &after {
        world.check_node_of(graph.addr(), *node)?;
    }
    begin_into(world, stream, mode, Some(graph.addr()), after)
}

/// Captures over the nodes of a graph. Unverified (from documentation).
pub(super) fn begin_recapture(
    world: &mut World,
    stream: CUstream,
    mode: Mode,
    graph: CUgraph,
    callback: CUgraphRecaptureCallback,
    data: *mut c_void,
) -> Answer {
    world.graph(graph.addr())?;
    begin_into(world, stream, mode, Some(graph.addr()), Vec::new())?;
    let stream = world.stream(stream.addr())?;
    world.begin_recapture(stream, callback, data);
    Ok(())
}

/// Begins a capture into the commands of a graphics API. No context has a graphics client here, so this
/// is always refused. Unverified (from documentation).
pub(super) fn begin_to_graphics(
    world: &mut World,
    stream: CUstream,
    params: *mut CUstreamCigCaptureParams,
) -> Answer {
    world.stream(stream.addr())?;
    // SAFETY: the caller passes null or a pointer to parameters.
    let params = unsafe { params.as_ref() };
    let is_complete = params.is_some_and(|params| !params.streamCigParams.is_null());
    Err(match is_complete {
        true => CUresult::CUDA_ERROR_INVALID_CONTEXT,
        false => INVALID,
    })
}

/// Ends such a capture. Unverified (from documentation).
pub(super) fn end_to_graphics(world: &mut World, stream: CUstream) -> Answer {
    world.stream(stream.addr())?;
    Err(CUresult::CUDA_ERROR_ILLEGAL_STATE)
}

fn begin_into(
    world: &mut World,
    stream: CUstream,
    mode: Mode,
    graph: Option<usize>,
    after: Dependencies,
) -> Answer {
    // The legacy default stream cannot be captured.
    fail_if(mode.0 > Mode::CU_STREAM_CAPTURE_MODE_RELAXED.0, INVALID)?;
    if stream.addr() <= cuda_sys::CU_STREAM_LEGACY.addr() {
        world.stream(stream.addr())?;
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    let stream = world.stream(stream.addr())?;
    let id = world.new_id();
    let its = world.objects.streams.get(stream);
    let its = its.ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    fail_if(its.capture.is_some(), CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    if let Some(graph) = graph {
        fail_if(world.graph(graph)?.capture.is_some(), CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    }
    let graph = graph.unwrap_or_else(|| world.add_graph(Owner::Capture));
    world.graph_mut(graph)?.capture = Some(id);
    let capture = Capture {
        mode,
        thread: thread::id(),
        status: Status::CU_STREAM_CAPTURE_STATUS_ACTIVE,
        origin: stream,
        streams: BTreeSet::new(),
        graph,
        recapture: None,
    };
    world.objects.captures.insert(id, capture);
    world.enter_capture(stream, id);
    world.set_branch(stream, after);
    Ok(())
}

pub(super) fn end(world: &mut World, stream: CUstream, graph: Out<CUgraph>) -> Answer {
    let stream = world.stream(stream.addr())?;
    match world.end_capture(stream) {
        Ok(made) => graph.set(pointer(made)),
        Err(code) => {
            graph.set(core::ptr::null_mut());
            return Err(code);
        }
    }
    Ok(())
}

pub(super) fn exchange_mode(_: &mut World, mode: &mut Option<&mut Mode>) -> Answer {
    let mode = mode.as_mut().ok_or(INVALID)?;
    // Measured: the driver accepts other numbers.
    **mode = thread::exchange_mode(**mode);
    Ok(())
}
