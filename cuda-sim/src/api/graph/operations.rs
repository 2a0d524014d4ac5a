//! Nodes of stream memory operations.

use super::{Made, Specification, home};
use crate::api::prelude::*;
use crate::api::stream::memory_op::{BATCH, initialized, work};
use crate::state::graph::node::{Kind, OperationsNode};
use cuda_sys::{
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v1, CUDA_BATCH_MEM_OP_NODE_PARAMS_v2, CUstreamBatchMemOpParams,
};

/// Stream memory operations.
pub(crate) enum Operations {}

impl Specification for Operations {
    type Params<'a> = &'a CUDA_BATCH_MEM_OP_NODE_PARAMS_v1;

    fn make(world: &mut World, params: &CUDA_BATCH_MEM_OP_NODE_PARAMS_v1) -> Answer<Made> {
        fail_if(params.flags != 0 || params.count > BATCH || params.paramArray.is_null(), INVALID)?;
        // SAFETY: the caller passes the number of operations that the parameters state.
        let operations =
            unsafe { super::list(params.paramArray.cast_const(), params.count as usize) }?;
        let (mut works, mut described) = (Vec::new(), Vec::new());
        for operation in &operations {
            let operation = initialized(operation);
            works.push(work(world, &operation)?);
            // SAFETY: all bytes are initialized, and all bits are valid for numbers.
            described.push(unsafe { operation.pad });
        }
        let home = home(world, params.ctx)?;
        let node =
            OperationsNode { context: params.ctx.addr(), flags: params.flags, works, described };
        Ok(Made::new(world, Kind::Operations(Box::new(node)), home))
    }
}

pub(super) fn of_generic(
    params: &CUDA_BATCH_MEM_OP_NODE_PARAMS_v2,
) -> CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 {
    CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 {
        ctx: params.ctx,
        count: params.count,
        paramArray: params.paramArray,
        flags: params.flags,
    }
}

/// Returns the parameters of a node. The pointer refers to memory of the driver.
pub(super) fn params_of(
    world: &mut World,
    node: usize,
) -> Answer<CUDA_BATCH_MEM_OP_NODE_PARAMS_v1> {
    let node = world.node_mut(node)?;
    let Kind::Operations(its) = &node.kind else {
        return Err(INVALID);
    };
    let words = its.described.iter().flatten();
    node.shown.words = words.map(|word| usize::try_from(*word).unwrap_or(usize::MAX)).collect();
    let count = u32::try_from(its.works.len()).unwrap_or(0);
    let array: *mut CUstreamBatchMemOpParams = node.shown.words.as_mut_ptr().cast();
    Ok(CUDA_BATCH_MEM_OP_NODE_PARAMS_v1 {
        ctx: pointer(its.context),
        count,
        paramArray: array,
        flags: its.flags,
    })
}

pub(crate) fn params(
    world: &mut World,
    node: CUgraphNode,
) -> Answer<CUDA_BATCH_MEM_OP_NODE_PARAMS_v1> {
    params_of(world, node.addr())
}
