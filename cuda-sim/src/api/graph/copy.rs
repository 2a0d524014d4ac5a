//! Memcpy nodes.

use super::{Made, Place, home, set};
use crate::api::memory::check_access_of;
use crate::api::prelude::*;
use crate::memory::{Kind as MemoryKind, Use};
use crate::state::graph::copy::{CopyNode, Side};
use crate::state::graph::node::{Kind, Node};
use cuda_sys::{CUDA_MEMCPY_NODE_PARAMS, CUDA_MEMCPY3D, CUmemorytype as Type};

/// Fails unless `len` bytes are in live memory that devices can access, or in the memory of an
/// allocation node. Unlike a stream-ordered operation, a node is refused by a real driver.
pub(crate) fn check_device(world: &World, address: u64, len: u64) -> Answer {
    let memory = &world.objects.memory;
    let len_on_host = usize::try_from(len).unwrap_or(usize::MAX);
    if memory.is_reserved(address, len) || memory.host_reached(address, len_on_host).is_some() {
        return Ok(());
    }
    if memory.is_virtual(address) {
        // Which rights are needed is checked when the node runs. Unverified.
        return crate::api::virtual_memory::check_mapped(
            world,
            None,
            address,
            len_on_host,
            Use::Read,
        );
    }
    let (start, its) = memory.containing(address).ok_or(INVALID)?;
    let is_freed = matches!(its.kind, MemoryKind::Ordered { freed: true, .. });
    let room = start + its.bytes.len() as u64 - address;
    fail_if(is_freed || room < len, INVALID)
}

/// Checks a copy. Host memory is not checked (measured).
fn check(world: &World, copy: &CopyNode) -> Answer {
    fail_if(copy.is_empty(), INVALID)?;
    for side in [&copy.from, &copy.to] {
        match side.kind {
            Type::CU_MEMORYTYPE_HOST | Type::CU_MEMORYTYPE_DEVICE | Type::CU_MEMORYTYPE_UNIFIED => {
            }
            // Arrays are not simulated.
            Type::CU_MEMORYTYPE_ARRAY => return Err(CUresult::CUDA_ERROR_NOT_SUPPORTED),
            _ => return Err(INVALID),
        }
    }
    let hosts = copy.hosts(&world.objects.memory);
    for (from, to) in copy.rows() {
        for (address, is_host) in [from, to].into_iter().zip(hosts) {
            if !is_host {
                check_device(world, address, copy.extent[0] as u64)?;
            }
        }
    }
    Ok(())
}

/// Fails if the context's device has no access to the memory.
fn check_access(world: &World, copy: &CopyNode, context: Option<usize>) -> Answer {
    let Some(context) = context else {
        return Ok(());
    };
    let hosts = copy.hosts(&world.objects.memory);
    for (from, to) in copy.rows() {
        for (address, is_host, wanted) in [(from, hosts[0], Use::Read), (to, hosts[1], Use::Write)]
        {
            if !is_host {
                check_access_of(world, context, address, copy.extent[0], wanted)?;
            }
        }
    }
    Ok(())
}

/// Returns the checked node of a copy in a context.
pub(crate) fn node(world: &World, copy: CopyNode, context: Option<usize>) -> Answer<Kind> {
    check(world, &copy)?;
    check_access(world, &copy, context)?;
    Ok(copy.added(&world.objects.memory))
}

/// Returns the node of a copy in a context.
pub(super) fn make(world: &World, copy: &CUDA_MEMCPY3D, context: CUcontext) -> Answer<Made> {
    let reserved = !copy.reserved0.is_null() || !copy.reserved1.is_null();
    fail_if(reserved || copy.srcLOD != 0 || copy.dstLOD != 0, INVALID)?;
    let home = home(world, context)?;
    let extent = [copy.WidthInBytes, copy.Height, copy.Depth];
    let node = CopyNode {
        from: Side::new(
            &world.objects.memory,
            copy.srcMemoryType,
            [copy.srcHost.expose_provenance() as u64, copy.srcDevice],
            [copy.srcXInBytes, copy.srcY, copy.srcZ],
            [copy.srcPitch, copy.srcHeight],
            extent,
        )?,
        to: Side::new(
            &world.objects.memory,
            copy.dstMemoryType,
            [copy.dstHost.expose_provenance() as u64, copy.dstDevice],
            [copy.dstXInBytes, copy.dstY, copy.dstZ],
            [copy.dstPitch, copy.dstHeight],
            extent,
        )?,
        extent,
        is_pinned: false,
        context: context.addr(),
    };
    Ok(Made::new(world, self::node(world, node, home.0)?, home))
}

pub(super) fn make_generic(world: &World, params: &CUDA_MEMCPY_NODE_PARAMS) -> Answer<Made> {
    fail_if(params.flags != 0 || params.reserved != 0, INVALID)?;
    make(world, &params.copyParams, params.copyCtx)
}

pub(crate) fn add(
    world: &mut World,
    node: Out<CUgraphNode>,
    graph: CUgraph,
    nodes: *const CUgraphNode,
    count: usize,
    copy: &CUDA_MEMCPY3D,
    context: CUcontext,
) -> Answer {
    let place = Place::plain(node, graph, nodes, count);
    // SAFETY: the caller passes null or `count` nodes.
    unsafe { place.add(world, |world| make(world, copy, context)) }.map(drop)
}

/// Keeps the context of the node.
pub(crate) fn set_params(world: &mut World, node: CUgraphNode, copy: &CUDA_MEMCPY3D) -> Answer {
    let context = pointer(copy_of(world.node(node.addr())?)?.context);
    let made = make(world, copy, context)?;
    set(world, node.addr(), made)
}

pub(super) fn copy_of(node: &Node) -> Answer<&CopyNode> {
    match &node.kind {
        Kind::Copy(copy) => Ok(copy),
        _ => Err(INVALID),
    }
}

pub(super) fn params_of(copy: &CopyNode) -> CUDA_MEMCPY3D {
    let (from, to, null) = (&copy.from, &copy.to, core::ptr::null_mut());
    CUDA_MEMCPY3D {
        srcXInBytes: from.at[0],
        srcY: from.at[1],
        srcZ: from.at[2],
        srcLOD: 0,
        srcMemoryType: from.kind,
        srcHost: core::ptr::with_exposed_provenance(from.host),
        srcDevice: from.device,
        srcArray: core::ptr::null_mut(),
        reserved0: null,
        srcPitch: from.given[0],
        srcHeight: from.given[1],
        dstXInBytes: to.at[0],
        dstY: to.at[1],
        dstZ: to.at[2],
        dstLOD: 0,
        dstMemoryType: to.kind,
        dstHost: core::ptr::with_exposed_provenance_mut(to.host),
        dstDevice: to.device,
        dstArray: core::ptr::null_mut(),
        reserved1: null,
        dstPitch: to.given[0],
        dstHeight: to.given[1],
        WidthInBytes: copy.extent[0],
        Height: copy.extent[1],
        Depth: copy.extent[2],
    }
}

pub(crate) fn params(world: &mut World, node: CUgraphNode) -> Answer<CUDA_MEMCPY3D> {
    Ok(params_of(copy_of(world.node(node.addr())?)?))
}
