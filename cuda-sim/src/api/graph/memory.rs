//! Memory nodes, and the memory that graphs use on a device.

use super::{Made, Place};
use crate::api::memory::pool;
use crate::api::prelude::*;
use crate::state::graph::node::{AllocateNode, Kind};
use cuda_sys::{
    CUDA_MEM_ALLOC_NODE_PARAMS_v1, CUDA_MEM_ALLOC_NODE_PARAMS_v2,
    CUgraphMem_attribute as Attribute, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationType,
    CUmemLocation, CUmemLocationType, CUmemPoolProps,
};

/// Allocations larger than this are refused when the node is added. Measured: 1 PiB is, 200 GiB are not.
const MOST: usize = 1 << 48;

/// A request for memory of a node.
struct Request<'a> {
    props: &'a CUmemPoolProps,
    access: Vec<CUmemAccessDesc>,
    size: usize,
}

fn location(location: &CUmemLocation) -> (u32, i32) {
    // SAFETY: both members of the union are integers.
    (location.type_.0, unsafe { location.__bindgen_anon_1.id })
}

/// Returns a node. Measured on an H200 with driver 580: a node of managed memory has memory of the device,
/// which the host cannot access and which has no advice, and only its parameters say that it is managed.
fn make(world: &mut World, request: &Request<'_>) -> Answer<Made> {
    let props = request.props;
    fail_if(request.size == 0, INVALID)?;
    let place = pool::check_props(world, props)?;
    let is_on_device = place.0 == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0;
    fail_if(!is_on_device || props.handleTypes.0 != 0, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
    let device = world.device(place.1).map_err(|_| INVALID)?;
    let is_managed = props.allocType == CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_MANAGED;
    let mut access = Vec::new();
    for its in &request.access {
        let (kind, id) = location(&its.location);
        let all = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        fail_if(is_managed && its.flags != all, CUresult::CUDA_ERROR_NOT_SUPPORTED)?;
        let is_device = kind == CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0;
        let is_host = kind == CUmemLocationType::CU_MEM_LOCATION_TYPE_HOST.0;
        let is_known = match is_device {
            true => world.device(id).is_ok(),
            false => is_managed && is_host,
        };
        fail_if(!is_known, INVALID)?;
        access.push((kind, id, its.flags.0));
    }
    fail_if(request.size > MOST, CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let context = world.objects.primaries[device].0;
    let address = world.objects.memory.reserve_for_graph(request.size, context, device);
    let node = AllocateNode {
        address,
        size: request.size,
        kind: props.allocType.0,
        location: place,
        access,
    };
    Ok(Made::anywhere(world, Kind::Allocate(Box::new(node))))
}

/// # Safety
/// `params` are valid, with as many access descriptions as they state.
pub(super) unsafe fn make_generic(
    world: &mut World,
    params: &CUDA_MEM_ALLOC_NODE_PARAMS_v2,
) -> Answer<Made> {
    // SAFETY: the caller guarantees null or this number of descriptions.
    let access = unsafe { super::list(params.accessDescs, params.accessDescCount) }?;
    let request = Request { props: &params.poolProps, access, size: params.bytesize };
    make(world, &request)
}

pub(crate) fn add(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    params: &mut Option<&mut CUDA_MEM_ALLOC_NODE_PARAMS_v1>,
) -> Answer {
    let params = params.as_mut().ok_or(INVALID)?;
    // SAFETY: the caller passes null or this number of descriptions.
    let access = unsafe { super::list(params.accessDescs, params.accessDescCount) }?;
    let request = Request { props: &params.poolProps, access, size: params.bytesize };
    let place = Place::plain(node, graph, nodes, count);
    // SAFETY: the caller passes null or `count` nodes.
    let made = unsafe { place.add(world, |world| make(world, &request)) }?;
    if let Kind::Allocate(its) = &world.node(made)?.kind {
        params.dptr = its.address;
    }
    Ok(())
}

/// Returns the parameters of a node. The pointer refers to memory of the driver.
pub(super) fn params_of(world: &mut World, node: usize) -> Answer<CUDA_MEM_ALLOC_NODE_PARAMS_v2> {
    let node = world.node_mut(node)?;
    let Kind::Allocate(its) = &node.kind else {
        return Err(INVALID);
    };
    let mut props: CUmemPoolProps = cuda_sys::Zeroable::zeroed();
    props.allocType = CUmemAllocationType(its.kind);
    props.location.type_ = CUmemLocationType(its.location.0);
    props.location.__bindgen_anon_1.id = its.location.1;
    let describe = |(kind, id, flags): &(u32, i32, u32)| {
        let mut its: CUmemAccessDesc = cuda_sys::Zeroable::zeroed();
        its.location.type_ = CUmemLocationType(*kind);
        its.location.__bindgen_anon_1.id = *id;
        its.flags = CUmemAccess_flags(*flags);
        its
    };
    // Each description is three numbers of 32 bits.
    let words = its.access.iter().map(describe).flat_map(|its| {
        // SAFETY: both members of the union are integers.
        let id = unsafe { its.location.__bindgen_anon_1.id };
        [its.location.type_.0, u32::from_ne_bytes(id.to_ne_bytes()), its.flags.0]
    });
    let words: Vec<u8> = words.flat_map(u32::to_ne_bytes).collect();
    let params = CUDA_MEM_ALLOC_NODE_PARAMS_v2 {
        poolProps: props,
        accessDescs: core::ptr::null(),
        accessDescCount: its.access.len(),
        bytesize: its.size,
        dptr: its.address,
    };
    let mut params = params;
    node.shown.words = aligned(&words);
    if params.accessDescCount != 0 {
        params.accessDescs = node.shown.words.as_ptr().cast();
    }
    Ok(params)
}

/// Returns bytes in memory that is aligned for pointers.
pub(super) fn aligned(bytes: &[u8]) -> Vec<usize> {
    let word = |chunk: &[u8]| {
        let mut word = [0; size_of::<usize>()];
        word[..chunk.len()].copy_from_slice(chunk);
        usize::from_ne_bytes(word)
    };
    bytes.chunks(size_of::<usize>()).map(word).collect()
}

pub(crate) fn params(
    world: &mut World,
    node: CUgraphNode,
) -> Answer<CUDA_MEM_ALLOC_NODE_PARAMS_v1> {
    let params = params_of(world, node.addr())?;
    Ok(CUDA_MEM_ALLOC_NODE_PARAMS_v1 {
        poolProps: params.poolProps,
        accessDescs: params.accessDescs,
        accessDescCount: params.accessDescCount,
        bytesize: params.bytesize,
        dptr: params.dptr,
    })
}

/// Returns a node that frees the memory of an allocation node, which another graph may have.
pub(super) fn make_free(world: &World, graph: CUgraph, address: CUdeviceptr) -> Answer<Made> {
    let is_freed = world.graph(graph.addr())?.frees.contains(&address);
    fail_if(is_freed || !world.objects.memory.is_freeable_in(address, graph.addr()), INVALID)?;
    Ok(Made::anywhere(world, Kind::Free(address)))
}

pub(crate) fn add_free(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    address: CUdeviceptr,
) -> Answer {
    let place = Place::plain(node, graph, nodes, count);
    // SAFETY: the caller passes null or `count` nodes.
    unsafe { place.add(world, |world| make_free(world, graph, address)) }.map(drop)
}

pub(crate) fn free_params(world: &mut World, node: CUgraphNode) -> Answer<CUdeviceptr> {
    match world.node(node.addr())?.kind {
        Kind::Free(its) => Ok(its),
        _ => Err(INVALID),
    }
}

/// Captures an allocation from a pool. The node has memory of the pool's device, also if the pool is managed.
/// An allocation from a pool of another location is refused, and the capture continues (measured).
pub(crate) fn capture_allocation(
    world: &mut World,
    address: Out<CUdeviceptr>,
    size: usize,
    pool: usize,
    (stream, capture): (usize, u64),
) -> Answer {
    // Measured: no node.
    if size == 0 {
        address.set(0);
        return Ok(());
    }
    let pool = world.objects.pools.get(pool).ok_or(INVALID)?;
    let Some(device) = pool.device else {
        let nowhere = CUmemLocationType::CU_MEM_LOCATION_TYPE_NONE.0;
        return Err(match pool.location.0 == nowhere {
            true => INVALID,
            false => CUresult::CUDA_ERROR_NOT_SUPPORTED,
        });
    };
    fail_if(size > MOST, CUresult::CUDA_ERROR_OUT_OF_MEMORY)?;
    let context = world.objects.primaries[device].0;
    let made = world.objects.memory.reserve_for_graph(size, context, device);
    let kind = CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE.0;
    let node = AllocateNode {
        address: made,
        size,
        kind: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED.0,
        location: (kind, i32::try_from(device).unwrap_or(0)),
        access: Vec::new(),
    };
    world.capture_node(capture, stream, Kind::Allocate(Box::new(node)))?;
    address.put(made)
}

/// Captures a free. Memory that no allocation node has is refused, and the capture continues.
pub(crate) fn capture_free(world: &mut World, address: CUdeviceptr, stream: usize) -> Answer {
    let Some(capture) = world.recording(stream)? else {
        return Ok(());
    };
    if address == 0 {
        return Ok(());
    }
    let its = world.objects.captures.get(capture).ok_or(INVALID)?;
    let made = make_free(world, pointer(its.graph), address)?;
    world.capture_node(capture, stream, made.kind)
}

/// Returns an attribute. What counts as used was measured only for graphs that run one after another.
pub(crate) fn attribute(
    world: &mut World,
    device: CUdevice,
    attribute: Attribute,
    value: *mut c_void,
) -> Answer {
    let device = world.device(device)?;
    let usage = world.objects.memory.graph_usage(device);
    let its = usage.get(attribute.0 as usize).ok_or(INVALID)?;
    fail_if(value.is_null(), INVALID)?;
    // SAFETY: the caller passes a place for a number of 64 bits, which all attributes are.
    unsafe { value.cast::<u64>().write(*its) };
    Ok(())
}

/// Resets a high-water mark. No other value can be set.
pub(crate) fn set_attribute(
    world: &mut World,
    device: CUdevice,
    attribute: Attribute,
    value: *mut c_void,
) -> Answer {
    let device = world.device(device)?;
    let is_reserved = match attribute {
        Attribute::CU_GRAPH_MEM_ATTR_USED_MEM_HIGH => false,
        Attribute::CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH => true,
        _ => return Err(INVALID),
    };
    // SAFETY: the caller passes null or a number of 64 bits, which all attributes are.
    let value = unsafe { value.cast::<u64>().as_ref() };
    fail_if(value != Some(&0), INVALID)?;
    world.objects.memory.reset_graph_high(device, is_reserved);
    Ok(())
}

pub(crate) fn trim(world: &mut World, device: CUdevice) -> Answer {
    let device = world.device(device)?;
    world.objects.memory.trim_graphs(device);
    Ok(())
}
