//! Kernel nodes.

use super::memory::aligned;
use super::{Made, Place, set};
use crate::api::launch::arguments::copy_arguments;
use crate::api::launch::attribute::bytes as attribute_bytes;
use crate::api::launch::{Shape, prepare};
use crate::api::module::function::required_cluster;
use crate::api::prelude::*;
use crate::state::graph::node::{KernelNode, Kind, Node};
use crate::state::objects::ContextKind;
use core::sync::atomic::AtomicPtr;
use cuda_sys::{
    CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END,
    CUDA_KERNEL_NODE_PARAMS_v1, CUDA_KERNEL_NODE_PARAMS_v2, CUDA_KERNEL_NODE_PARAMS_v3,
    CUkernelNodeAttrID, CUkernelNodeAttrValue, CUlaunchAttribute, CUlaunchAttributeID,
};
use std::collections::BTreeMap;

type Attributes = BTreeMap<u32, [c_char; 64]>;

/// Returns the newest parameters for those of the first version, which name neither a library's kernel
/// nor a context.
pub(super) fn newest_of(params: &CUDA_KERNEL_NODE_PARAMS_v1) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: core::ptr::null_mut(),
        ctx: core::ptr::null_mut(),
    }
}

/// Returns the parameters of `cuGraphAddNode`, whose fields are the same.
pub(super) fn of_generic(params: &CUDA_KERNEL_NODE_PARAMS_v3) -> CUDA_KERNEL_NODE_PARAMS_v2 {
    CUDA_KERNEL_NODE_PARAMS_v2 {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
        kern: params.kern,
        ctx: params.ctx,
    }
}

/// Returns the context and the green context that a kernel runs in. A module's kernel runs in the
/// current context if that is a green context of its own context, and otherwise in its own; a library's
/// kernel runs in the context that the caller names.
fn home(
    world: &World,
    params: &CUDA_KERNEL_NODE_PARAMS_v2,
) -> Answer<(usize, (usize, Option<usize>))> {
    let of_view = |context: usize| -> Answer<(usize, Option<usize>)> {
        let green = match world.context(context)?.kind {
            ContextKind::View(green) => Some(green),
            ContextKind::Primary | ContextKind::Created => None,
        };
        Ok((world.owner_of(context)?, green))
    };
    if params.func.is_null() {
        fail_if(params.kern.is_null(), CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        let context = match params.ctx.is_null() {
            true => world.current()?,
            false => params.ctx.addr(),
        };
        return Ok((params.kern.addr(), of_view(context)?));
    }
    let Ok(current) = world.current() else {
        misuse(
            "a kernel node with a CUfunction is added or changed while no context is current: a real \
             driver crashes",
        );
        return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
    };
    let function = params.func.addr();
    let (owner, green) = of_view(current)?;
    fail_if(world.function(function)?.is_kernel, CUresult::CUDA_ERROR_INVALID_HANDLE)?;
    match world.function(function)?.context {
        Some(own) if own != owner => Ok((function, (own, None))),
        _ => Ok((function, (owner, green))),
    }
}

fn shape(world: &World, params: &CUDA_KERNEL_NODE_PARAMS_v2, its: &Attributes) -> Answer<Shape> {
    let grid = [params.gridDimX, params.gridDimY, params.gridDimZ];
    let block = [params.blockDimX, params.blockDimY, params.blockDimZ];
    let mut shape = Shape::new(grid, block, params.sharedMemBytes);
    for (id, pad) in its {
        shape.add(world, &attribute(*id, *pad))?;
    }
    Ok(shape)
}

fn attribute(id: u32, pad: [c_char; 64]) -> CUlaunchAttribute {
    CUlaunchAttribute {
        id: CUlaunchAttributeID(id),
        pad: [0; 4],
        value: CUkernelNodeAttrValue { pad },
    }
}

/// Returns a kernel node with these parameters and attributes.
pub(super) fn make(
    world: &mut World,
    params: &CUDA_KERNEL_NODE_PARAMS_v2,
    attributes: &Attributes,
) -> Answer<Made> {
    let (function, (home, green)) = home(world, params)?;
    let shape = shape(world, params, attributes)?;
    let mut call = prepare(world, function, &shape, (home, green))?;
    // SAFETY: the caller passes the arguments in one of the two forms.
    unsafe { copy_arguments(&mut call, params.kernelParams, params.extra, INVALID) }?;
    let node = KernelNode { call, is_library: params.func.is_null(), context: params.ctx.addr() };
    let kind = Kind::Kernel(Box::new(node));
    Ok(Made::new(world, kind, (Some(home), green)))
}

/// Returns the attributes of a kernel node, which new parameters keep.
pub(super) fn attributes_of(kind: &Kind) -> Attributes {
    match kind {
        Kind::Kernel(its) => its.call.attributes.clone(),
        _ => Attributes::new(),
    }
}

fn kernel(node: &Node) -> Answer<&KernelNode> {
    match &node.kind {
        Kind::Kernel(its) => Ok(its),
        _ => Err(INVALID),
    }
}

pub(crate) fn add(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS_v2,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    let params = unsafe { params.as_ref() }.ok_or(INVALID)?;
    if graph.is_null() && world.current().is_err() {
        misuse("a kernel node of no graph without a current context: driver 580 crashes");
        return Err(INVALID);
    }
    let place = Place::plain(node, graph, nodes, count);
    // SAFETY: the caller passes null or `count` nodes.
    unsafe { place.add(world, |world| make(world, params, &Attributes::new())) }.map(drop)
}

pub(crate) fn add_v1(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    let params = newest_of(unsafe { params.as_ref() }.ok_or(INVALID)?);
    add(world, node, graph, nodes, count, &raw const params)
}

pub(crate) fn set_params(
    world: &mut World,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS_v2,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    let params = unsafe { params.as_ref() }.ok_or(INVALID)?;
    let its = kernel(world.node(node.addr())?)?;
    let attributes = its.call.attributes.clone();
    let made = make(world, params, &attributes)?;
    set(world, node.addr(), made)
}

pub(crate) fn set_params_v1(
    world: &mut World,
    node: CUgraphNode,
    params: *const CUDA_KERNEL_NODE_PARAMS_v1,
) -> Answer {
    // SAFETY: the caller passes null or a pointer to parameters.
    let params = newest_of(unsafe { params.as_ref() }.ok_or(INVALID)?);
    set_params(world, node, &raw const params)
}

/// Returns the parameters of a node. The pointers refer to memory of the driver.
pub(super) fn params_of(node: &mut Node) -> Answer<CUDA_KERNEL_NODE_PARAMS_v2> {
    let its = kernel(node)?.clone();
    let (call, null) = (&its.call, core::ptr::null_mut());
    let (mut params, mut extra) = (null, null);
    if let Some(length) = call.packed {
        let mut bytes = Vec::new();
        for ((at, _), argument) in call.kernel.info.params.iter().zip(&call.arguments) {
            bytes.resize(*at, 0);
            bytes.extend_from_slice(argument);
        }
        node.shown.bytes = bytes;
        node.shown.words = vec![length];
        // In the order of a real driver.
        let list = [
            CU_LAUNCH_PARAM_BUFFER_SIZE,
            node.shown.words.as_mut_ptr().cast(),
            CU_LAUNCH_PARAM_BUFFER_POINTER,
            node.shown.bytes.as_mut_ptr().cast(),
            CU_LAUNCH_PARAM_END,
        ];
        node.shown.pointers = Vec::from(list.map(AtomicPtr::new));
        extra = node.shown.pointers.as_mut_ptr().cast();
    } else if !call.arguments.is_empty() {
        // Words have the alignment of most parameters.
        let (mut words, mut starts) = (Vec::new(), Vec::new());
        for argument in &call.arguments {
            starts.push(words.len());
            words.extend(aligned(argument));
        }
        node.shown.words = words;
        let first = node.shown.words.as_mut_ptr();
        let place = |start| AtomicPtr::new(first.wrapping_add(start).cast());
        node.shown.pointers = starts.into_iter().map(place).collect();
        params = node.shown.pointers.as_mut_ptr().cast();
    }
    let function = call.kernel.function;
    let [grid_x, grid_y, grid_z] = call.grid;
    let [block_x, block_y, block_z] = call.block;
    Ok(CUDA_KERNEL_NODE_PARAMS_v2 {
        func: pointer(if its.is_library { 0 } else { function }),
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: call.shared,
        kernelParams: params,
        extra,
        kern: pointer(if its.is_library { function } else { 0 }),
        ctx: pointer(its.context),
    })
}

pub(crate) fn params(world: &mut World, node: CUgraphNode) -> Answer<CUDA_KERNEL_NODE_PARAMS_v2> {
    params_of(world.node_mut(node.addr())?)
}

pub(crate) fn params_v1(
    world: &mut World,
    node: CUgraphNode,
) -> Answer<CUDA_KERNEL_NODE_PARAMS_v1> {
    let params = params_of(world.node_mut(node.addr())?)?;
    Ok(CUDA_KERNEL_NODE_PARAMS_v1 {
        func: params.func,
        gridDimX: params.gridDimX,
        gridDimY: params.gridDimY,
        gridDimZ: params.gridDimZ,
        blockDimX: params.blockDimX,
        blockDimY: params.blockDimY,
        blockDimZ: params.blockDimZ,
        sharedMemBytes: params.sharedMemBytes,
        kernelParams: params.kernelParams,
        extra: params.extra,
    })
}

/// Returns the value of an attribute, zeros if it was not set. Unverified (from documentation).
pub(crate) fn get_attribute(
    world: &mut World,
    node: CUgraphNode,
    id: CUkernelNodeAttrID,
) -> Answer<CUkernelNodeAttrValue> {
    let its = kernel(world.node(node.addr())?)?;
    let pad = its.call.attributes.get(&id.0).copied();
    let unset = attribute(id.0, [0; 64]);
    if pad.is_none() {
        Shape::default().add(world, &unset)?;
    }
    let mut shown = pad.map_or(unset.value, |pad| CUkernelNodeAttrValue { pad });
    if id == DEVICE_UPDATABLE && pad.is_some() {
        shown.deviceUpdatableKernelNode.devNode = pointer(node.addr());
    }
    Ok(shown)
}

/// Device code may change a node with this attribute. The rules are unverified (from documentation).
const DEVICE_UPDATABLE: CUlaunchAttributeID =
    CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;

pub(crate) fn set_attribute(
    world: &mut World,
    node: CUgraphNode,
    id: CUkernelNodeAttrID,
    value: &CUkernelNodeAttrValue,
) -> Answer {
    let mut attributes = kernel(world.node(node.addr())?)?.call.attributes.clone();
    if id == DEVICE_UPDATABLE {
        // SAFETY: this field belongs to the attribute.
        match unsafe { value.deviceUpdatableKernelNode }.deviceUpdatable {
            0 if attributes.contains_key(&id.0) => return Err(INVALID),
            0 => return Ok(()),
            1 => {}
            _ => return Err(INVALID),
        }
    }
    attributes.insert(id.0, attribute_bytes(id, value));
    replace_attributes(world, node.addr(), &attributes)
}

pub(crate) fn copy_attributes(world: &mut World, to: CUgraphNode, from: CUgraphNode) -> Answer {
    let attributes = kernel(world.node(from.addr())?)?.call.attributes.clone();
    kernel(world.node(to.addr())?)?;
    for node in [to, from] {
        fail_if(world.node(node.addr())?.kind.is_device_updatable(), INVALID)?;
    }
    replace_attributes(world, to.addr(), &attributes)
}

fn replace_attributes(world: &mut World, node: usize, attributes: &Attributes) -> Answer {
    let its = kernel(world.node(node)?)?;
    let mut shape = Shape::new(its.call.grid, its.call.block, its.call.shared);
    for (id, pad) in attributes {
        shape.add(world, &attribute(*id, *pad))?;
    }
    shape.check(&its.call.kernel, world.settings.profile.gpu, its.call.sms.len())?;
    let Kind::Kernel(its) = &mut world.node_mut(node)?.kind else {
        return Err(INVALID);
    };
    let required = required_cluster(&its.call.kernel.info.limits, &its.call.kernel.settings);
    its.call.cluster = shape.cluster.or(required).unwrap_or([1; 3]);
    its.call.cooperative = shape.cooperative;
    its.call.attributes = shape.attributes;
    Ok(())
}
