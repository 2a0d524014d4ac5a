//! Graphs: creation, destruction, clones, and what all functions about nodes share.
//!
//! The codes were measured on an H200 with driver 580, unless a comment says otherwise.

pub(crate) mod conditional;
pub(crate) mod copy;
pub(crate) mod dot;
pub(crate) mod edge;
pub(crate) mod executable;
pub(crate) mod fill;
pub(crate) mod kernel;
pub(crate) mod memory;
pub(crate) mod operations;
pub(crate) mod params;
pub(crate) mod query;
pub(crate) mod semaphores;
pub(crate) mod simple;
pub(crate) mod update;
pub(crate) mod user_object;

use crate::api::prelude::*;
use crate::state::graph::Owner;
use crate::state::graph::node::{Dependencies, Edge, Kind};
use crate::state::handles::State;
use crate::state::needs::Needs;
use cuda_sys::CUgraphEdgeData;

/// The parameters of a node, checked, with the objects that they reference.
pub(crate) struct Made {
    pub(crate) kind: Kind,
    pub(crate) needs: Needs,
}

impl Made {
    /// Returns a node that runs in a context and a green context, as far as it has them.
    fn new(world: &World, kind: Kind, (context, green): (Option<usize>, Option<usize>)) -> Self {
        let needs = world.needs_of(context, green, &kind);
        Self { kind, needs }
    }

    /// Returns a node that runs in no context.
    fn anywhere(world: &World, kind: Kind) -> Self {
        Self::new(world, kind, (None, None))
    }
}

/// Returns the context that the memory of a node belongs to, and the green context if there is one. For
/// a null context this is the current one, if there is one.
fn home(world: &World, context: CUcontext) -> Answer<(Option<usize>, Option<usize>)> {
    use crate::state::objects::ContextKind;
    let context = match context.is_null() {
        false => context.addr(),
        true => match world.current() {
            Ok(current) => current,
            Err(_) => return Ok((None, None)),
        },
    };
    let green = match world.context(context)?.kind {
        ContextKind::View(green) => Some(green),
        ContextKind::Primary | ContextKind::Created => None,
    };
    Ok((Some(world.owner_of(context)?), green))
}

/// # Safety
/// `array` is null or has `count` elements.
unsafe fn list<T: Copy>(array: *const T, count: usize) -> Answer<Vec<T>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    fail_if(array.is_null(), INVALID)?;
    // SAFETY: the array is not null, and the caller guarantees `count` elements.
    let array = unsafe { core::slice::from_raw_parts(array, count) };
    Ok(array.to_vec())
}

/// Returns the data of an edge.
fn edge(data: &CUgraphEdgeData) -> Answer<Edge> {
    fail_if(data.reserved != [0; 5], INVALID)?;
    Ok(Edge { from_port: data.from_port, to_port: data.to_port, kind: data.type_ })
}

fn edge_data(edge: Edge) -> CUgraphEdgeData {
    CUgraphEdgeData {
        from_port: edge.from_port,
        to_port: edge.to_port,
        type_: edge.kind,
        reserved: [0; 5],
    }
}

/// Reads dependencies. Without data all edges are ordinary ones.
///
/// # Safety
/// `nodes` and `data` are null or have `count` elements.
pub(super) unsafe fn dependencies(
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
) -> Answer<Dependencies> {
    // SAFETY: the caller guarantees null or `count` nodes.
    let nodes = unsafe { list(nodes, count) }?;
    let edges = match data.is_null() {
        true => vec![Edge::default(); count],
        // SAFETY: the caller guarantees `count` elements.
        false => unsafe { list(data, count) }?.iter().map(edge).collect::<Answer<_>>()?,
    };
    Ok(nodes.iter().map(|node| node.addr()).zip(edges).collect())
}

/// Where a function adds a node.
pub(super) struct Place {
    pub(super) node: Out<CUgraphNode>,
    pub(super) graph: CUgraph,
    pub(super) nodes: *const CUgraphNode,
    pub(super) data: *const CUgraphEdgeData,
    pub(super) count: usize,
    /// Whether the node is a kernel, which may have edges with data.
    pub(super) is_kernel: bool,
}

impl Place {
    /// Returns a place with ordinary edges.
    fn plain(
        node: Out<CUgraphNode>,
        graph: CUgraph,
        nodes: *const CUgraphNode,
        count: usize,
    ) -> Self {
        Self { node, graph, nodes, data: core::ptr::null(), count, is_kernel: false }
    }

    /// Adds a node. Nothing is added if its parameters or its dependencies are refused.
    ///
    /// # Safety
    /// `nodes` and `data` are null or have `count` elements.
    pub(super) unsafe fn add(
        self,
        world: &mut World,
        make: impl FnOnce(&mut World) -> Answer<Made>,
    ) -> Answer<usize> {
        self.node.required()?;
        let graph = self.graph.addr();
        world.graph(graph)?;
        // SAFETY: the caller guarantees null or `count` elements.
        let after = unsafe { dependencies(self.nodes, self.data, self.count) }?;
        world.check_dependencies(graph, &after, self.is_kernel)?;
        let made = make(world)?;
        let node = world.add_node(graph, made.kind, made.needs, after);
        self.node.set(pointer(node));
        Ok(node)
    }
}

/// Replaces the parameters of a node by others of the same type.
pub(super) fn set(world: &mut World, node: usize, made: Made) -> Answer {
    let its = world.node_mut(node)?;
    fail_if(its.kind.number() != made.kind.number(), INVALID)?;
    its.kind = made.kind;
    its.needs = made.needs;
    Ok(())
}

/// A kind of node whose three functions take the same parameters: the one that adds a node, the one that changes
/// it, and the one that changes it in an executable graph ([`update::set_node`]).
pub(crate) trait Specification {
    type Params<'a>;

    /// Returns a node with these parameters.
    fn make(world: &mut World, params: Self::Params<'_>) -> Answer<Made>;
}

/// Adds a node of a kind.
pub(super) fn add_node<S: Specification>(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: S::Params<'_>,
) -> Answer {
    let place = Place::plain(node, graph, nodes, count);
    // SAFETY: the caller passes null or `count` nodes.
    unsafe { place.add(world, |world| S::make(world, params)) }.map(drop)
}

/// Changes a node of a kind.
pub(super) fn set_node<S: Specification>(
    world: &mut World,
    node: CUgraphNode,
    params: S::Params<'_>,
) -> Answer {
    let made = S::make(world, params)?;
    set(world, node.addr(), made)
}

pub(super) fn create(world: &mut World, flags: c_uint) -> Answer<CUgraph> {
    fail_if(flags != 0, INVALID)?;
    Ok(pointer(world.add_graph(Owner::Program)))
}

pub(super) fn destroy(world: &mut World, graph: CUgraph) -> Answer {
    let handle = graph.addr();
    if world.objects.graphs.state(handle) == State::Dead {
        misuse("a graph is destroyed twice");
        return Err(INVALID);
    }
    if world.objects.graphs.get(handle).is_some_and(|its| its.is_undefined) {
        world.remove_graph(handle);
        return Ok(());
    }
    world.check_free(handle, INVALID)?;
    fail_if(world.graph(handle)?.capture.is_some(), CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    world.remove_graph(handle);
    Ok(())
}

pub(super) fn clone(world: &mut World, graph: CUgraph) -> Answer<CUgraph> {
    let clone = world.clone_graph(graph.addr(), Owner::Program)?;
    Ok(pointer(clone))
}

pub(super) fn find_in_clone(
    world: &mut World,
    original: CUgraphNode,
    clone: CUgraph,
) -> Answer<CUgraphNode> {
    world.node(original.addr())?;
    let clones = &world.graph(clone.addr())?.clones;
    let node = clones.get(&original.addr()).copied();
    // Unverified: a node that was removed from the clone.
    let node = node.filter(|node| world.objects.nodes.get(*node).is_some());
    Ok(pointer(node.ok_or(INVALID)?))
}

pub(super) fn destroy_node(world: &mut World, node: CUgraphNode) -> Answer {
    let graph = world.node(node.addr())?.graph;
    let its = world.graph(graph)?;
    fail_if(its.capture.is_some(), CUresult::CUDA_ERROR_ILLEGAL_STATE)?;
    // Unverified for nodes that device code may change (from documentation).
    let is_fixed = world.node(node.addr())?.kind.is_device_updatable();
    fail_if(its.memory_nodes != 0 || is_fixed, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    world.remove_node(node.addr());
    Ok(())
}
