//! Stream capture.

use super::Out;
use super::context::pointer;
use crate::state::capture::Capture;
use crate::state::{Answer, World};
use crate::thread;
use core::ffi::c_ulonglong;
use cuda_sys::{
    CUgraph, CUgraphEdgeData, CUgraphNode, CUresult, CUstream, CUstreamCaptureMode as Mode,
    CUstreamCaptureStatus as Status,
};
use std::collections::BTreeSet;

pub(super) fn is_capturing(
    world: &mut World,
    stream: CUstream,
    status: &mut Out<Status>,
) -> Answer {
    status.required()?;
    let stream = world.stream(stream.addr())?;
    status.set(world.capture_status(stream));
    Ok(())
}

/// Does not return the graph under construction or its nodes.
pub(super) fn info(
    world: &mut World,
    stream: CUstream,
    status: &mut Out<Status>,
    id: &mut Out<c_ulonglong>,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    count: *mut usize,
) -> Answer {
    if !graph.is_null() || !nodes.is_null() || !count.is_null() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    is_capturing(world, stream, status)?;
    let stream = world.stream(stream.addr())?;
    let branch = world
        .streams
        .get(stream)
        .and_then(|its| its.capture.as_ref());
    if let Some(branch) = branch {
        id.set(branch.capture);
    }
    Ok(())
}

#[allow(clippy::too_many_arguments, reason = "NVIDIA's list")]
pub(super) fn info_with_edges(
    world: &mut World,
    stream: CUstream,
    status: &mut Out<Status>,
    id: &mut Out<c_ulonglong>,
    graph: *mut CUgraph,
    nodes: *mut *const CUgraphNode,
    edges: *mut *const CUgraphEdgeData,
    count: *mut usize,
) -> Answer {
    if !edges.is_null() {
        return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED);
    }
    info(world, stream, status, id, graph, nodes, count)
}

pub(super) fn begin(world: &mut World, stream: CUstream, mode: Mode) -> Answer {
    // The legacy default stream cannot be captured.
    if stream.addr() <= cuda_sys::CU_STREAM_LEGACY.addr() {
        return Err(CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    }
    if mode.0 > Mode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let stream = world.stream(stream.addr())?;
    let id = world.new_id();
    let its = world.streams.get(stream);
    if its
        .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?
        .capture
        .is_some()
    {
        return Err(CUresult::CUDA_ERROR_ILLEGAL_STATE);
    }
    let capture = Capture {
        mode,
        thread: thread::id(),
        status: Status::CU_STREAM_CAPTURE_STATUS_ACTIVE,
        origin: stream,
        streams: BTreeSet::new(),
        nodes: Vec::new(),
    };
    world.captures.insert(id, capture);
    world.enter_capture(stream, id);
    Ok(())
}

pub(super) fn end(world: &mut World, stream: CUstream, graph: &mut Out<CUgraph>) -> Answer {
    graph.required()?;
    let stream = world.stream(stream.addr())?;
    match world.end_capture(stream) {
        Ok(nodes) => graph.set(pointer(world.graphs.insert(nodes))),
        Err(code) => {
            graph.set(core::ptr::null_mut());
            return Err(code);
        }
    }
    Ok(())
}

pub(super) fn exchange_mode(_: &mut World, mode: &mut Option<&mut Mode>) -> Answer {
    let mode = mode.as_mut().ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if mode.0 > Mode::CU_STREAM_CAPTURE_MODE_RELAXED.0 {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    **mode = thread::exchange_mode(**mode);
    Ok(())
}
