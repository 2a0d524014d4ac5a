//! Queries of graphs: nodes, edges, types and ids. Ids are unverified (from documentation).

use super::edge_data;
use crate::api::prelude::*;
use crate::state::graph::node::Edge;
use cuda_sys::{CUgraphEdgeData, CUgraphNodeType};
use std::collections::BTreeMap;

/// The number of elements of arrays: on entry that of the caller, afterwards that of the answer.
type Count<'a, 'b> = &'a mut Option<&'b mut usize>;

/// Writes an answer to an array with room for `room` elements. Spare elements become `spare`.
///
/// # Safety
/// `array` is null or has room for `room` elements.
unsafe fn write<T: Copy>(array: *mut T, room: usize, values: &[T], spare: T) {
    if array.is_null() {
        return;
    }
    for index in 0..room {
        let value = values.get(index).copied().unwrap_or(spare);
        // SAFETY: the caller guarantees room for this element.
        let place = unsafe { array.add(index) };
        // SAFETY: the caller guarantees room for this element.
        unsafe { place.write(value) };
    }
}

fn answer_nodes<'a>(
    nodes: impl ExactSizeIterator<Item = &'a usize>,
    array: *mut CUgraphNode,
    count: Count<'_, '_>,
) -> Answer {
    let count = count.as_mut().ok_or(INVALID)?;
    if array.is_null() {
        **count = nodes.len();
        return Ok(());
    }
    if **count == 0 {
        // Measured: an array must have room.
        return Err(INVALID);
    }
    let nodes: Vec<CUgraphNode> = nodes.map(|node| pointer(*node)).collect();
    // SAFETY: the caller passes an array with room for `count` nodes.
    unsafe { write(array, **count, &nodes, core::ptr::null_mut()) };
    **count = nodes.len().min(**count);
    Ok(())
}

pub(crate) fn nodes(
    world: &mut World,
    graph: CUgraph,
    array: *mut CUgraphNode,
    count: Count<'_, '_>,
) -> Answer {
    answer_nodes(world.graph(graph.addr())?.nodes.iter(), array, count)
}

pub(crate) fn roots(
    world: &mut World,
    graph: CUgraph,
    array: *mut CUgraphNode,
    count: Count<'_, '_>,
) -> Answer {
    answer_nodes(world.graph(graph.addr())?.roots.iter(), array, count)
}

/// Fails if edges have data that the caller has no array for. That a query of the number alone succeeds
/// is unverified.
fn check_lossless(edges: &[Edge], array: bool, data: *mut CUgraphEdgeData) -> Answer {
    if array && data.is_null() && edges.iter().any(|edge| edge.is_special()) {
        return Err(CUresult::CUDA_ERROR_LOSSY_QUERY);
    }
    Ok(())
}

pub(crate) fn edges(
    world: &mut World,
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: Count<'_, '_>,
) -> Answer {
    let known = world.graph(graph.addr())?.edges;
    let count = count.as_mut().ok_or(INVALID)?;
    let is_query = from.is_null() && to.is_null();
    if !is_query && (from.is_null() || to.is_null()) || (is_query && !data.is_null()) {
        return Err(INVALID);
    }
    if is_query {
        **count = known;
        return Ok(());
    }
    let all = world.edges_of(graph.addr())?;
    let edges: Vec<Edge> = all.iter().map(|its| its.2).collect();
    check_lossless(&edges, true, data)?;
    let (null, room) = (core::ptr::null_mut(), **count);
    fail_if(room == 0, INVALID)?;
    let starts: Vec<CUgraphNode> = all.iter().map(|its| pointer(its.0)).collect();
    let ends: Vec<CUgraphNode> = all.iter().map(|its| pointer(its.1)).collect();
    // SAFETY: the caller passes an array with room for `count` nodes.
    unsafe { write(from, room, &starts, null) };
    // SAFETY: the caller passes an array with room for `count` nodes.
    unsafe { write(to, room, &ends, null) };
    let edges: Vec<CUgraphEdgeData> = edges.into_iter().map(edge_data).collect();
    // SAFETY: the caller passes null or an array with room for `count` elements.
    unsafe { write(data, room, &edges, edge_data(Edge::default())) };
    **count = all.len().min(room);
    Ok(())
}

pub(crate) fn edges_plain(
    world: &mut World,
    graph: CUgraph,
    from: *mut CUgraphNode,
    to: *mut CUgraphNode,
    count: Count<'_, '_>,
) -> Answer {
    edges(world, graph, from, to, core::ptr::null_mut(), count)
}

/// Answers with the neighbors of a node and the data of the edges.
fn answer_neighbors(
    neighbors: &BTreeMap<usize, Edge>,
    array: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: Count<'_, '_>,
) -> Answer {
    if array.is_null() {
        fail_if(!data.is_null(), INVALID)?;
        **count.as_mut().ok_or(INVALID)? = neighbors.len();
        return Ok(());
    }
    let edges: Vec<Edge> = neighbors.values().copied().collect();
    check_lossless(&edges, true, data)?;
    let room = count.as_ref().map_or(0, |count| **count);
    let edges: Vec<CUgraphEdgeData> = edges.into_iter().map(edge_data).collect();
    // SAFETY: the caller passes null or an array with room for `count` elements.
    unsafe { write(data, room, &edges, edge_data(Edge::default())) };
    answer_nodes(neighbors.keys(), array, count)
}

pub(crate) fn dependencies(
    world: &mut World,
    node: CUgraphNode,
    array: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: Count<'_, '_>,
) -> Answer {
    answer_neighbors(&world.node(node.addr())?.after, array, data, count)
}

pub(crate) fn dependencies_plain(
    world: &mut World,
    node: CUgraphNode,
    array: *mut CUgraphNode,
    count: Count<'_, '_>,
) -> Answer {
    dependencies(world, node, array, core::ptr::null_mut(), count)
}

pub(crate) fn dependents(
    world: &mut World,
    node: CUgraphNode,
    array: *mut CUgraphNode,
    data: *mut CUgraphEdgeData,
    count: Count<'_, '_>,
) -> Answer {
    answer_neighbors(&world.node(node.addr())?.before, array, data, count)
}

pub(crate) fn dependents_plain(
    world: &mut World,
    node: CUgraphNode,
    array: *mut CUgraphNode,
    count: Count<'_, '_>,
) -> Answer {
    dependents(world, node, array, core::ptr::null_mut(), count)
}

pub(crate) fn kind(world: &mut World, node: CUgraphNode) -> Answer<CUgraphNodeType> {
    Ok(world.node(node.addr())?.kind.number())
}

pub(crate) fn containing(world: &mut World, node: CUgraphNode) -> Answer<CUgraph> {
    Ok(pointer(world.node(node.addr())?.graph))
}

pub(crate) fn local_id(world: &mut World, node: CUgraphNode) -> Answer<c_uint> {
    Ok(world.node(node.addr())?.local)
}

/// Returns an id that is unique in the process.
pub(crate) fn tools_id(world: &mut World, node: CUgraphNode) -> Answer<c_ulonglong> {
    let its = world.node(node.addr())?;
    let graph = world.graph(its.graph)?.id;
    Ok(u64::from(graph) << 32 | u64::from(its.local))
}

pub(crate) fn graph_id(world: &mut World, graph: CUgraph) -> Answer<c_uint> {
    Ok(world.graph(graph.addr())?.id)
}

pub(crate) fn executable_id(world: &mut World, executable: CUgraphExec) -> Answer<c_uint> {
    Ok(world.executable(executable.addr())?.id)
}
