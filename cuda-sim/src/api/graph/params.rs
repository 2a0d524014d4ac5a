//! Functions about nodes of any type, whose parameters are a `CUgraphNodeParams`.

use super::{
    Made, Place, Specification, conditional, copy, fill, kernel, memory, operations, semaphores,
    set, simple,
};
use crate::api::prelude::*;
use crate::state::graph::node::{HostNode, Kind};
use cuda_sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v2, CUDA_CHILD_GRAPH_NODE_PARAMS, CUDA_CONDITIONAL_NODE_PARAMS,
    CUDA_EVENT_WAIT_NODE_PARAMS, CUDA_EXT_SEM_SIGNAL_NODE_PARAMS, CUDA_EXT_SEM_WAIT_NODE_PARAMS,
    CUDA_KERNEL_NODE_PARAMS_v3, CUDA_MEM_FREE_NODE_PARAMS, CUDA_MEMCPY_NODE_PARAMS,
    CUDA_MEMSET_NODE_PARAMS_v2, CUgraphChildGraphNodeOwnership as Ownership,
    CUgraphConditionalNodeType, CUgraphEdgeData, CUgraphNodeParams, CUgraphNodeType as Type,
    CudaVersion, Zeroable,
};
use std::collections::BTreeMap;

/// Checks what is common to all types of nodes.
fn check(world: &World, params: &CUgraphNodeParams) -> Answer {
    let most = match world.settings.profile.driver >= CudaVersion::new(12, 3) {
        true => Type::CU_GRAPH_NODE_TYPE_CONDITIONAL,
        false => Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP,
    };
    let is_zero = params.reserved0 == [0; 3] && params.reserved2 == 0;
    fail_if(!is_zero || params.type_.0 > most.0, INVALID)
}

/// Returns a node of a type whose parameters can be replaced. A kernel gets these attributes.
fn make(
    world: &mut World,
    params: &CUgraphNodeParams,
    attributes: &BTreeMap<u32, [core::ffi::c_char; 64]>,
) -> Answer<Made> {
    let union = &params.__bindgen_anon_1;
    match params.type_ {
        Type::CU_GRAPH_NODE_TYPE_KERNEL => {
            // SAFETY: the type selects this field.
            let its = kernel::of_generic(unsafe { &union.kernel });
            kernel::make(world, &its, attributes)
        }
        Type::CU_GRAPH_NODE_TYPE_MEMCPY => {
            // SAFETY: the type selects this field.
            copy::make_generic(world, unsafe { &union.memcpy })
        }
        Type::CU_GRAPH_NODE_TYPE_MEMSET => {
            // SAFETY: the type selects this field.
            fill::make_generic(world, unsafe { &union.memset })
        }
        Type::CU_GRAPH_NODE_TYPE_HOST => {
            // SAFETY: the type selects this field.
            let its = unsafe { &union.host };
            // Older drivers do not read the mode.
            let has_mode = world.settings.profile.driver >= CudaVersion::new(13, 2);
            let mode = if has_mode { its.syncMode } else { 0 };
            simple::make_host(world, HostNode::new(its.fn_, its.userData, mode))
        }
        Type::CU_GRAPH_NODE_TYPE_EMPTY => Ok(Made::anywhere(world, Kind::Empty)),
        Type::CU_GRAPH_NODE_TYPE_WAIT_EVENT => {
            // SAFETY: the type selects this field.
            simple::Wait::make(world, unsafe { union.eventWait }.event)
        }
        Type::CU_GRAPH_NODE_TYPE_EVENT_RECORD => {
            // SAFETY: the type selects this field.
            simple::Record::make(world, unsafe { union.eventRecord }.event)
        }
        Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL => {
            // SAFETY: the type selects this field.
            let its = unsafe { union.extSemSignal };
            semaphores::Signal::make(
                world,
                &CUDA_EXT_SEM_SIGNAL_NODE_PARAMS {
                    extSemArray: its.extSemArray,
                    paramsArray: its.paramsArray,
                    numExtSems: its.numExtSems,
                },
            )
        }
        Type::CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT => {
            // SAFETY: the type selects this field.
            let its = unsafe { union.extSemWait };
            semaphores::Await::make(
                world,
                &CUDA_EXT_SEM_WAIT_NODE_PARAMS {
                    extSemArray: its.extSemArray,
                    paramsArray: its.paramsArray,
                    numExtSems: its.numExtSems,
                },
            )
        }
        Type::CU_GRAPH_NODE_TYPE_BATCH_MEM_OP => {
            // SAFETY: the type selects this field.
            let its = operations::of_generic(unsafe { &union.memOp });
            operations::Operations::make(world, &its)
        }
        // The graphs and the memory of a node cannot be replaced. Unverified.
        _ => Err(INVALID),
    }
}

/// Returns a new node of any type.
fn make_new(world: &mut World, graph: CUgraph, params: &CUgraphNodeParams) -> Answer<Made> {
    let union = &params.__bindgen_anon_1;
    match params.type_ {
        Type::CU_GRAPH_NODE_TYPE_GRAPH => {
            // SAFETY: the type selects this field.
            let mut its = unsafe { union.graph };
            if world.settings.profile.driver < CudaVersion::new(12, 9) {
                // Older drivers do not read the ownership.
                its.ownership = Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
            }
            simple::make_child(world, graph, &its)
        }
        Type::CU_GRAPH_NODE_TYPE_MEM_ALLOC => {
            // SAFETY: the type selects this field.
            let its = unsafe { union.alloc };
            // SAFETY: the caller passes the number of descriptions that the parameters state.
            unsafe { memory::make_generic(world, &its) }
        }
        Type::CU_GRAPH_NODE_TYPE_MEM_FREE => {
            // SAFETY: the type selects this field.
            memory::make_free(world, graph, unsafe { union.free }.dptr)
        }
        Type::CU_GRAPH_NODE_TYPE_CONDITIONAL => {
            // SAFETY: the type selects this field.
            let its = unsafe { union.conditional };
            conditional::make(world, graph, &its)
        }
        _ => make(world, params, &BTreeMap::new()),
    }
}

pub(crate) fn add(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    params: &mut Option<&mut CUgraphNodeParams>,
) -> Answer {
    let params = params.as_mut().ok_or(INVALID)?;
    check(world, params)?;
    let place = Place {
        node,
        graph,
        nodes,
        data,
        count,
        is_kernel: params.type_ == Type::CU_GRAPH_NODE_TYPE_KERNEL,
    };
    // SAFETY: the caller passes null or `count` elements.
    let made = unsafe { place.add(world, |world| make_new(world, graph, params)) }?;
    match &world.node(made)?.kind {
        Kind::Allocate(_) => {
            let mut alloc = memory::params_of(world, made)?;
            // SAFETY: the type of the node selects this field.
            let theirs = unsafe { params.__bindgen_anon_1.alloc };
            alloc.poolProps = theirs.poolProps;
            alloc.accessDescs = theirs.accessDescs;
            params.__bindgen_anon_1.alloc = alloc;
        }
        Kind::Conditional(_) => {
            let bodies = conditional::bodies(world, made)?;
            // SAFETY: the type of the node selects this field.
            let mut its = unsafe { params.__bindgen_anon_1.conditional };
            its.phGraph_out = bodies;
            params.__bindgen_anon_1.conditional = its;
        }
        _ => {}
    }
    Ok(())
}

pub(crate) fn add_plain(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: &mut Option<&mut CUgraphNodeParams>,
) -> Answer {
    add(world, node, graph, nodes, core::ptr::null(), count, params)
}

/// The same for drivers that check that a kernel belongs to the context that the caller names
/// (unverified, from documentation).
pub(crate) fn add_checked(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    data: *const CUgraphEdgeData,
    count: usize,
    params: &mut Option<&mut CUgraphNodeParams>,
) -> Answer {
    check_function(world, params.as_deref())?;
    add(world, node, graph, nodes, data, count, params)
}

fn check_function(world: &World, params: Option<&CUgraphNodeParams>) -> Answer {
    let params = params.ok_or(INVALID)?;
    if params.type_ != Type::CU_GRAPH_NODE_TYPE_KERNEL {
        return Ok(());
    }
    // SAFETY: the type selects this field.
    let its = unsafe { params.__bindgen_anon_1.kernel };
    if its.func.is_null() || its.ctx.is_null() {
        return Ok(());
    }
    let own = world.function(its.func.addr())?.context;
    let owner = world.owner_of(its.ctx.addr())?;
    match own {
        Some(own) if own != owner => Err(CUresult::CUDA_ERROR_INVALID_CONTEXT),
        _ => Ok(()),
    }
}

pub(crate) fn set_params(
    world: &mut World,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    let params = unsafe { params.as_ref() }.ok_or(INVALID)?;
    check(world, params)?;
    let its = world.node(node.addr())?;
    fail_if(its.kind.number() != params.type_, INVALID)?;
    let attributes = kernel::attributes_of(&its.kind);
    let made = make(world, params, &attributes)?;
    set(world, node.addr(), made)
}

pub(crate) fn set_params_checked(
    world: &mut World,
    node: CUgraphNode,
    params: *mut CUgraphNodeParams,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    check_function(world, unsafe { params.as_ref() })?;
    set_params(world, node, params)
}

/// Returns new parameters for a node of an executable graph, which keeps its attributes.
pub(super) fn for_executable(
    world: &mut World,
    params: &CUgraphNodeParams,
    old: &Kind,
) -> Answer<Made> {
    check(world, params)?;
    fail_if(old.number() != params.type_, INVALID)?;
    make(world, params, &kernel::attributes_of(old))
}

/// Returns the parameters of a node. Pointers refer to memory of the driver. Unverified (from
/// documentation).
pub(crate) fn params(world: &mut World, node: CUgraphNode) -> Answer<CUgraphNodeParams> {
    let handle = node.addr();
    let mut params = CUgraphNodeParams::zeroed();
    params.type_ = world.node(handle)?.kind.number();
    let union = &mut params.__bindgen_anon_1;
    match world.node(handle)?.kind.clone() {
        Kind::Kernel(_) => {
            let its = kernel::params_of(world.node_mut(handle)?)?;
            union.kernel = CUDA_KERNEL_NODE_PARAMS_v3 {
                func: its.func,
                gridDimX: its.gridDimX,
                gridDimY: its.gridDimY,
                gridDimZ: its.gridDimZ,
                blockDimX: its.blockDimX,
                blockDimY: its.blockDimY,
                blockDimZ: its.blockDimZ,
                sharedMemBytes: its.sharedMemBytes,
                kernelParams: its.kernelParams,
                extra: its.extra,
                kern: its.kern,
                ctx: its.ctx,
            };
        }
        Kind::Copy(its) => {
            union.memcpy = CUDA_MEMCPY_NODE_PARAMS {
                flags: 0,
                reserved: 0,
                copyCtx: pointer(its.context),
                copyParams: copy::params_of(&its),
            };
        }
        Kind::Fill(its) => {
            let plain = fill::params_of(&its);
            union.memset = CUDA_MEMSET_NODE_PARAMS_v2 {
                dst: plain.dst,
                pitch: plain.pitch,
                value: plain.value,
                elementSize: plain.elementSize,
                width: plain.width,
                height: plain.height,
                ctx: pointer(its.context),
            };
        }
        Kind::Host(its) => {
            // SAFETY: the union is zero, which is valid for every field.
            let mut host = unsafe { union.host };
            host.fn_ = its.function;
            host.userData = its.data();
            host.syncMode = its.mode;
            union.host = host;
        }
        Kind::Child(graph) => {
            union.graph = CUDA_CHILD_GRAPH_NODE_PARAMS {
                graph: pointer(graph),
                ownership: Ownership::CU_GRAPH_CHILD_GRAPH_OWNERSHIP_INVALID,
            };
        }
        Kind::Wait(event) => {
            union.eventWait = CUDA_EVENT_WAIT_NODE_PARAMS { event: pointer(event) };
        }
        Kind::Record(event) => {
            // SAFETY: the union is zero, which is valid for every field.
            let mut record = unsafe { union.eventRecord };
            record.event = pointer(event);
            union.eventRecord = record;
        }
        Kind::Empty => {}
        Kind::Signal(_) => {
            let its = semaphores::signal_of(world, handle)?;
            // SAFETY: the union is zero, which is valid for every field.
            let mut place = unsafe { union.extSemSignal };
            place.extSemArray = its.extSemArray;
            place.paramsArray = its.paramsArray;
            place.numExtSems = its.numExtSems;
            union.extSemSignal = place;
        }
        Kind::Await(_) => {
            let its = semaphores::await_of(world, handle)?;
            // SAFETY: the union is zero, which is valid for every field.
            let mut place = unsafe { union.extSemWait };
            place.extSemArray = its.extSemArray;
            place.paramsArray = its.paramsArray;
            place.numExtSems = its.numExtSems;
            union.extSemWait = place;
        }
        Kind::Allocate(_) => union.alloc = memory::params_of(world, handle)?,
        Kind::Free(address) => union.free = CUDA_MEM_FREE_NODE_PARAMS { dptr: address },
        Kind::Operations(_) => {
            let its = operations::params_of(world, handle)?;
            union.memOp = CUDA_BATCH_MEM_OP_NODE_PARAMS_v2 {
                ctx: its.ctx,
                count: its.count,
                paramArray: its.paramArray,
                flags: its.flags,
            };
        }
        Kind::Conditional(its) => {
            use crate::exec::Form;
            union.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
                handle: its.handle,
                type_: match its.form {
                    Form::If => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_IF,
                    Form::While => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_WHILE,
                    Form::Switch => CUgraphConditionalNodeType::CU_GRAPH_COND_TYPE_SWITCH,
                },
                size: u32::try_from(its.bodies.len()).unwrap_or(0),
                phGraph_out: conditional::bodies(world, handle)?,
                ctx: pointer(its.context),
            };
        }
    }
    Ok(params)
}
