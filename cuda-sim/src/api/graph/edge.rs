//! Adds and removes edges of graphs.

use super::{edge, list};
use crate::api::prelude::*;
use cuda_sys::CUgraphEdgeData;

pub(crate) fn add(
    world: &mut World,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Answer {
    world.graph(graph.addr())?;
    // SAFETY: the caller passes null or `count` nodes.
    let from = unsafe { list(from, count) }?;
    // SAFETY: the caller passes null or `count` nodes.
    let to = unsafe { list(to, count) }?;
    let pairs = from.iter().zip(&to);
    let mut edges: Vec<_> =
        pairs.map(|(from, to)| (from.addr(), to.addr(), Default::default())).collect();
    if !data.is_null() {
        // SAFETY: the caller passes null or `count` elements.
        let data = unsafe { list(data, count) }?;
        for (its, data) in edges.iter_mut().zip(&data) {
            its.2 = edge(data)?;
        }
    }
    world.add_edges(graph.addr(), &edges)
}

pub(crate) fn add_plain(
    world: &mut World,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Answer {
    add(world, graph, from, to, core::ptr::null(), count)
}

pub(crate) fn remove(
    world: &mut World,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Answer {
    world.graph(graph.addr())?;
    // SAFETY: the caller passes null or `count` nodes.
    let from = unsafe { list(from, count) }?;
    // SAFETY: the caller passes null or `count` nodes.
    let to = unsafe { list(to, count) }?;
    let mut edges = Vec::new();
    for (index, (from, to)) in from.iter().zip(&to).enumerate() {
        let data = match data.is_null() {
            true => None,
            false => {
                // SAFETY: the caller passes `count` elements.
                let place = unsafe { data.add(index) };
                // SAFETY: the caller passes `count` elements.
                Some(edge(unsafe { place.as_ref() }.ok_or(INVALID)?)?)
            }
        };
        edges.push((from.addr(), to.addr(), data));
    }
    world.remove_edges(graph.addr(), &edges)
}

pub(crate) fn remove_plain(
    world: &mut World,
    graph: CUgraph,
    from: *const CUgraphNode,
    to: *const CUgraphNode,
    count: usize,
) -> Answer {
    remove(world, graph, from, to, core::ptr::null(), count)
}
