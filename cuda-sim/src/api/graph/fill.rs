//! Memset nodes.

use super::copy::check_device;
use super::{Made, Place, home, set};
use crate::api::memory::check_access_of;
use crate::api::prelude::*;
use crate::memory::Use;
use crate::state::graph::fill::FillNode;
use crate::state::graph::node::{Kind, Node};
use cuda_sys::{CUDA_MEMSET_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS_v2};

fn check(world: &World, fill: &FillNode) -> Answer {
    let is_known = matches!(fill.element, 1 | 2 | 4);
    fail_if(!is_known || fill.width == 0 || fill.height == 0, INVALID)?;
    let len = fill.width.checked_mul(fill.element).ok_or(INVALID)?;
    fail_if(fill.at % fill.element as u64 != 0 || (fill.is_plane() && fill.pitch < len), INVALID)?;
    fill.rows().try_for_each(|(at, len)| check_device(world, at, len as u64))
}

/// Returns the node of a fill in a context.
pub(super) fn make(
    world: &World,
    params: &CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Answer<Made> {
    let home = home(world, context)?;
    let fill = FillNode {
        at: params.dst,
        pitch: params.pitch,
        value: params.value,
        element: params.elementSize as usize,
        width: params.width,
        height: params.height,
        context: context.addr(),
    };
    check(world, &fill)?;
    if let Some(context) = home.0 {
        for (at, len) in fill.rows() {
            check_access_of(world, context, at, len, Use::Write)?;
        }
    }
    Ok(Made::new(world, Kind::Fill(Box::new(fill)), home))
}

pub(super) fn make_generic(world: &World, params: &CUDA_MEMSET_NODE_PARAMS_v2) -> Answer<Made> {
    let plain = CUDA_MEMSET_NODE_PARAMS {
        dst: params.dst,
        pitch: params.pitch,
        value: params.value,
        elementSize: params.elementSize,
        width: params.width,
        height: params.height,
    };
    make(world, &plain, params.ctx)
}

pub(crate) fn add(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: &CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Answer {
    let place = Place::plain(node, graph, nodes, count);
    // SAFETY: the caller passes null or `count` nodes.
    unsafe { place.add(world, |world| make(world, params, context)) }.map(drop)
}

/// Keeps the context of the node.
pub(crate) fn set_params(
    world: &mut World,
    node: CUgraphNode,
    params: &CUDA_MEMSET_NODE_PARAMS,
) -> Answer {
    world.none_or_alive()?;
    let context = pointer(fill_of(world.node(node.addr())?)?.context);
    let made = make(world, params, context)?;
    set(world, node.addr(), made)
}

pub(super) fn fill_of(node: &Node) -> Answer<&FillNode> {
    match &node.kind {
        Kind::Fill(fill) => Ok(fill),
        _ => Err(INVALID),
    }
}

pub(super) fn params_of(fill: &FillNode) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst: fill.at,
        pitch: fill.pitch,
        value: fill.value,
        elementSize: u32::try_from(fill.element).unwrap_or(0),
        width: fill.width,
        height: fill.height,
    }
}

pub(crate) fn params(world: &mut World, node: CUgraphNode) -> Answer<CUDA_MEMSET_NODE_PARAMS> {
    Ok(params_of(fill_of(world.node(node.addr())?)?))
}
