//! Conditional nodes.

use super::Made;
use crate::api::prelude::*;
use crate::exec::Form;
use crate::state::graph::Owner;
use crate::state::graph::conditional::ConditionalHandle;
use crate::state::graph::node::{ConditionalNode, Kind};
use cuda_sys::{
    CU_GRAPH_COND_ASSIGN_DEFAULT, CUDA_CONDITIONAL_NODE_PARAMS, CUgraphConditionalHandle,
    CUgraphConditionalNodeType as Type, CudaVersion,
};

/// Returns the context of a conditional node, which must not be null.
fn context_of(world: &World, context: CUcontext) -> Answer<usize> {
    fail_if(context.is_null(), CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
    world.context(context.addr())?;
    Ok(context.addr())
}

pub(crate) fn create_handle(
    world: &mut World,
    graph: CUgraph,
    context: CUcontext,
    default: c_uint,
    flags: c_uint,
) -> Answer<CUgraphConditionalHandle> {
    fail_if(flags & !CU_GRAPH_COND_ASSIGN_DEFAULT != 0, INVALID)?;
    let context = context_of(world, context)?;
    let made = world.objects.last_conditional + 1;
    world.graph_mut(graph.addr())?.conditionals.push(made);
    world.objects.last_conditional = made;
    let its = ConditionalHandle {
        graph: graph.addr(),
        context,
        default: (flags != 0).then_some(default),
        node: None,
    };
    world.objects.conditional_handles.insert(made, its);
    Ok(made)
}

/// Returns a conditional node with empty bodies.
pub(super) fn make(
    world: &mut World,
    graph: CUgraph,
    params: &CUDA_CONDITIONAL_NODE_PARAMS,
) -> Answer<Made> {
    let driver = world.settings.profile.driver;
    let has_else = driver >= CudaVersion::new(12, 8);
    let (form, most) = match params.type_ {
        Type::CU_GRAPH_COND_TYPE_IF => (Form::If, if has_else { 2 } else { 1 }),
        Type::CU_GRAPH_COND_TYPE_WHILE => (Form::While, 1),
        Type::CU_GRAPH_COND_TYPE_SWITCH if has_else => (Form::Switch, u32::MAX),
        _ => return Err(INVALID),
    };
    fail_if(params.size == 0 || params.size > most, INVALID)?;
    let context = context_of(world, params.ctx)?;
    let handle = world.objects.conditional_handles.get(&params.handle).copied();
    let handle = handle.ok_or(INVALID)?;
    let is_own = world.root_of(handle.graph) == world.root_of(graph.addr());
    fail_if(!is_own || handle.node.is_some() || handle.context != context, INVALID)?;
    let bodies = (0..params.size).map(|_| world.add_graph(Owner::Capture));
    let node = ConditionalNode { handle: params.handle, form, context, bodies: bodies.collect() };
    let home = super::home(world, pointer(context))?;
    Ok(Made::new(world, Kind::Conditional(Box::new(node)), home))
}

/// Records that a node uses its handle, and returns the array of its bodies, which is memory of the
/// driver.
pub(super) fn bodies(world: &mut World, node: usize) -> Answer<*mut CUgraph> {
    let its = world.node_mut(node)?;
    let Kind::Conditional(conditional) = &its.kind else {
        return Err(INVALID);
    };
    its.shown.words = conditional.bodies.clone();
    let (handle, array) = (conditional.handle, its.shown.words.as_mut_ptr().cast());
    if let Some(handle) = world.objects.conditional_handles.get_mut(&handle) {
        handle.node = Some(node);
    }
    Ok(array)
}
