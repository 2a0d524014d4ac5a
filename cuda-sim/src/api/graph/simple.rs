//! Nodes with few parameters: host functions, child graphs, events and empty nodes.

use super::{Made, Place, Specification};
use crate::api::prelude::*;
use crate::state::graph::Owner;
use crate::state::graph::node::{HostNode, Kind, Node};
use cuda_sys::{
    CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_HOST_NODE_PARAMS,
    CUgraphChildGraphNodeOwnership as Ownership,
};

const UNSUPPORTED: CUresult = CUresult::CUDA_ERROR_NOT_SUPPORTED;

/// A host function.
pub(crate) enum Host {}

impl Specification for Host {
    type Params<'a> = &'a CUDA_HOST_NODE_PARAMS;

    fn make(world: &mut World, params: &CUDA_HOST_NODE_PARAMS) -> Answer<Made> {
        make_host(world, HostNode::new(params.fn_, params.userData, 0))
    }
}

pub(super) fn make_host(world: &World, host: HostNode) -> Answer<Made> {
    fail_if(host.function.is_none(), INVALID)?;
    Ok(Made::anywhere(world, Kind::Host(host)))
}

/// A record of an event, which may be of any context and device (measured). This applies to waits too.
pub(crate) enum Record {}

impl Specification for Record {
    type Params<'a> = CUevent;

    fn make(world: &mut World, event: CUevent) -> Answer<Made> {
        fail_if(event.is_null(), INVALID)?;
        world.event(event.addr())?;
        Ok(Made::anywhere(world, Kind::Record(event.addr())))
    }
}

/// A wait for an event.
pub(crate) enum Wait {}

impl Specification for Wait {
    type Params<'a> = CUevent;

    fn make(world: &mut World, event: CUevent) -> Answer<Made> {
        fail_if(event.is_null(), INVALID)?;
        world.event(event.addr())?;
        Ok(Made::anywhere(world, Kind::Wait(event.addr())))
    }
}

pub(super) fn host_of(node: &Node) -> Answer<&HostNode> {
    match &node.kind {
        Kind::Host(host) => Ok(host),
        _ => Err(INVALID),
    }
}

pub(crate) fn host(world: &mut World, node: CUgraphNode) -> Answer<CUDA_HOST_NODE_PARAMS> {
    let host = host_of(world.node(node.addr())?)?;
    Ok(CUDA_HOST_NODE_PARAMS { fn_: host.function, userData: host.data() })
}

/// Returns a child graph node, which embeds a clone of the graph, or the graph itself.
pub(super) fn make_child(
    world: &mut World,
    into: CUgraph,
    params: &CUDA_CHILD_GRAPH_NODE_PARAMS,
) -> Answer<Made> {
    let graph = params.graph.addr();
    world.graph(graph)?;
    if graph == into.addr() && params.ownership == Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE {
        world.check_clonable(graph)?;
        crate::account::misuse("a graph is added as its own child: a real driver crashes");
        return Err(INVALID);
    }
    let embedded = match params.ownership {
        Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE => {
            world.clone_graph(graph, Owner::Capture)?
        }
        Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID => return Err(INVALID),
        // Measured: other values also move the graph.
        _ => {
            world.check_free(graph, UNSUPPORTED)?;
            if world.root_of(into.addr()) == graph {
                // A real driver accepts it, and the graph can then neither be used nor destroyed.
                crate::account::misuse("a graph is moved into itself, where it is lost");
                return Err(UNSUPPORTED);
            }
            let is_conditional = |kind: &Kind| matches!(kind, Kind::Conditional(_));
            fail_if(world.has_node(graph, &is_conditional), UNSUPPORTED)?;
            graph
        }
    };
    Ok(Made::anywhere(world, Kind::Child(embedded)))
}

pub(crate) fn add_child(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    child: CUgraph,
) -> Answer {
    let params = CUDA_CHILD_GRAPH_NODE_PARAMS {
        graph: child,
        ownership: Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE,
    };
    let place = Place::plain(node, graph, nodes, count);
    // SAFETY: the caller passes null or `count` nodes.
    unsafe { place.add(world, |world| make_child(world, graph, &params)) }.map(drop)
}

pub(super) fn child_of(node: &Node) -> Answer<usize> {
    match node.kind {
        Kind::Child(graph) => Ok(graph),
        _ => Err(INVALID),
    }
}

pub(crate) fn child(world: &mut World, node: CUgraphNode) -> Answer<CUgraph> {
    Ok(pointer(child_of(world.node(node.addr())?)?))
}

pub(crate) fn add_empty(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
) -> Answer {
    let place = Place::plain(node, graph, nodes, count);
    // SAFETY: the caller passes null or `count` nodes.
    unsafe { place.add(world, |world| Ok(Made::anywhere(world, Kind::Empty))) }.map(drop)
}

pub(crate) fn record_event(world: &mut World, node: CUgraphNode) -> Answer<CUevent> {
    match world.node(node.addr())?.kind {
        Kind::Record(its) => Ok(pointer(its)),
        _ => Err(INVALID),
    }
}

pub(crate) fn wait_event(world: &mut World, node: CUgraphNode) -> Answer<CUevent> {
    match world.node(node.addr())?.kind {
        Kind::Wait(its) => Ok(pointer(its)),
        _ => Err(INVALID),
    }
}
