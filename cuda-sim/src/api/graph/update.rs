//! Changes of executable graphs. They affect later launches only.

use super::{Made, Specification, copy, fill, kernel, params};
use crate::api::prelude::*;
use crate::state::graph::node::Kind;
use cuda_sys::{
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_MEMCPY3D, CUDA_MEMSET_NODE_PARAMS,
    CUgraphExecUpdateResult as Outcome, CUgraphExecUpdateResultInfo, CUgraphNodeParams,
};

/// Returns the node of an executable graph that was created from a node of a graph. That node must be
/// alive.
fn kind(world: &World, executable: CUgraphExec, node: CUgraphNode) -> Answer<&Kind> {
    let its = world.executable(executable.addr())?;
    fail_if(world.objects.nodes.get(node.addr()).is_none(), INVALID)?;
    its.nodes.get(&node.addr()).map(|its| &its.kind).ok_or(INVALID)
}

fn set(world: &mut World, executable: CUgraphExec, node: CUgraphNode, made: Made) -> Answer {
    let old = kind(world, executable, node)?;
    fail_if(old.number() != made.kind.number(), INVALID)?;
    world.check_change(old, &made.kind).map_err(|_| INVALID)?;
    world.change_node(executable.addr(), node.addr(), made.kind, made.needs)
}

/// Changes a node of a kind.
pub(crate) fn set_node<S: Specification>(
    world: &mut World,
    executable: CUgraphExec,
    node: CUgraphNode,
    params: S::Params<'_>,
) -> Answer {
    kind(world, executable, node)?;
    let made = S::make(world, params)?;
    set(world, executable, node, made)
}

pub(crate) fn set_kernel(
    world: &mut World,
    executable: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS_v2,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    let params = unsafe { params.as_ref() }.ok_or(INVALID)?;
    let attributes = kernel::attributes_of(kind(world, executable, node)?);
    let made = kernel::make(world, params, &attributes)?;
    set(world, executable, node, made)
}

pub(crate) fn set_kernel_v1(
    world: &mut World,
    executable: CUgraphExec,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    let params = kernel::newest_of(unsafe { params.as_ref() }.ok_or(INVALID)?);
    set_kernel(world, executable, node, &raw const params)
}

/// Unlike the other functions, fails for a null context if none is current (measured).
pub(crate) fn set_copy(
    world: &mut World,
    executable: CUgraphExec,
    node: CUgraphNode,
    copy: &CUDA_MEMCPY3D,
    context: CUcontext,
) -> Answer {
    kind(world, executable, node)?;
    if context.is_null() {
        world.current().map_err(|_| INVALID)?;
    }
    let made = copy::make(world, copy, context)?;
    set(world, executable, node, made)
}

pub(crate) fn set_fill(
    world: &mut World,
    executable: CUgraphExec,
    node: CUgraphNode,
    params: &CUDA_MEMSET_NODE_PARAMS,
    context: CUcontext,
) -> Answer {
    kind(world, executable, node)?;
    let made = fill::make(world, params, context)?;
    set(world, executable, node, made)
}

/// Gives the nodes of a child graph the parameters of a graph with the same nodes and edges.
pub(crate) fn set_child(
    world: &mut World,
    executable: CUgraphExec,
    node: CUgraphNode,
    graph: CUgraph,
) -> Answer {
    world.graph(graph.addr())?;
    let Kind::Child(place) = *kind(world, executable, node)? else {
        return Err(INVALID);
    };
    let mut pairs = Vec::new();
    let its = world.executable(executable.addr())?;
    world.pair_nodes(its, place, graph.addr(), &mut pairs).map_err(|_| INVALID)?;
    for (old, new) in pairs {
        let new = world.node(new)?;
        let (kind, needs) = (new.kind.clone(), new.needs.clone());
        world.change_node(executable.addr(), old, kind, needs)?;
    }
    let objects = world.objects_of(graph.addr());
    world.retain_objects(&objects);
    let its = world.executable_mut(executable.addr())?;
    for (object, count) in objects {
        let held = its.objects.entry(object).or_default();
        *held = held.saturating_add(count);
    }
    Ok(())
}

pub(crate) fn set_params(
    world: &mut World,
    executable: CUgraphExec,
    node: CUgraphNode,
    place: *mut CUgraphNodeParams,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    let its = unsafe { place.as_ref() }.ok_or(INVALID)?;
    let old = kind(world, executable, node)?.clone();
    if let Kind::Child(_) = old {
        fail_if(its.type_ != old.number(), INVALID)?;
        // SAFETY: the type selects this field.
        let graph = unsafe { its.__bindgen_anon_1.graph }.graph;
        return set_child(world, executable, node, graph);
    }
    let made = params::for_executable(world, its, &old)?;
    set(world, executable, node, made)
}

pub(crate) fn set_enabled(
    world: &mut World,
    executable: CUgraphExec,
    node: CUgraphNode,
    is_enabled: c_uint,
) -> Answer {
    let kind = kind(world, executable, node)?;
    fail_if(!kind.can_be_disabled(), INVALID)?;
    if is_enabled != 0 {
        // Measured: driver 580 crashes if the module of a kernel was unloaded.
        world.check_kind(kind, "changed")?;
    }
    let its = world.executable_mut(executable.addr())?;
    let its = its.nodes.get_mut(&node.addr()).ok_or(INVALID)?;
    its.is_enabled = is_enabled != 0;
    Ok(())
}

pub(crate) fn enabled(
    world: &mut World,
    executable: CUgraphExec,
    node: CUgraphNode,
) -> Answer<c_uint> {
    fail_if(!kind(world, executable, node)?.can_be_disabled(), INVALID)?;
    let its = world.executable(executable.addr())?.nodes.get(&node.addr());
    Ok(c_uint::from(its.ok_or(INVALID)?.is_enabled))
}

pub(crate) fn update(
    world: &mut World,
    executable: CUgraphExec,
    graph: CUgraph,
    info: Out<CUgraphExecUpdateResultInfo>,
) -> Answer {
    world.executable(executable.addr())?;
    world.graph(graph.addr())?;
    let updated = world.update_executable(executable.addr(), graph.addr());
    let (outcome, node, from) = match &updated {
        Ok(()) => (Outcome::CU_GRAPH_EXEC_UPDATE_SUCCESS, 0, 0),
        Err((_, its)) => (its.outcome, its.node, its.from),
    };
    info.set(CUgraphExecUpdateResultInfo {
        result: outcome,
        errorNode: pointer(node),
        errorFromNode: pointer(from),
    });
    updated.map_err(|(code, _)| code)
}

pub(crate) fn update_telling(
    world: &mut World,
    executable: CUgraphExec,
    graph: CUgraph,
    node: Out<CUgraphNode>,
    outcome: Out<Outcome>,
) -> Answer {
    world.executable(executable.addr())?;
    world.graph(graph.addr())?;
    let updated = world.update_executable(executable.addr(), graph.addr());
    let its = match &updated {
        Ok(()) => (Outcome::CU_GRAPH_EXEC_UPDATE_SUCCESS, 0),
        Err((_, its)) => (its.outcome, its.node),
    };
    outcome.set(its.0);
    node.set(pointer(its.1));
    updated.map_err(|(code, _)| code)
}
