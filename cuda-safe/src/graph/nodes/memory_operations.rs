//! Nodes of stream memory operations.
//!
//! The calls that change a node are made with the context current, because drivers crash in such calls
//! with kernel nodes if no context is current. Other types of nodes were not all measured.

use crate::call::{ContextHandle, Invalid, Result, call};
use crate::context::Context;
use crate::graph::nodes::specification;
use crate::graph::{ExecutableNodes, Graph, Node, NodeId, kind};
use crate::stream::MemoryOperation;
use crate::stream::memory_op::{batch, explain, from_raw};
use cuda_sys::{CUDA_BATCH_MEM_OP_NODE_PARAMS, CUstreamBatchMemOpParams};

impl Graph {
    /// Adds memory operations, which run one after the other in each launch. Calls
    /// `cuGraphAddBatchMemOpNode`.
    ///
    /// [`instantiate`](Self::instantiate) does not know the words that the operations access: order the
    /// node with other nodes that access them.
    ///
    /// # Errors
    /// - [`Invalid::EmptyNode`] if there are no operations; [`Invalid::TooManyOperations`];
    ///   [`Invalid::NeedsNewerDriver`].
    /// - The errors of [`Stream::memory_operation`](crate::Stream::memory_operation), now or when the
    ///   graph is launched.
    /// - See also [`add_empty`](Self::add_empty).
    ///
    /// # Safety
    /// For each operation, the conditions of
    /// [`Stream::memory_operation`](crate::Stream::memory_operation) must hold for each launch of the
    /// graph and of each graph that contains a copy of the node. In particular, the words stay allocated
    /// until these graphs, their executable graphs and their launches have ended. If the condition of a
    /// wait is never satisfied, the launch blocks its stream forever.
    ///
    /// Since CUDA 11.7. Raw: [`cuGraphAddBatchMemOpNode`](fn@cuda_sys::cuGraphAddBatchMemOpNode).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, Graph};
    /// use cuda_safe::stream::MemoryOperation;
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let flag = DeviceBuffer::<u32>::zeroed_sync(&stream, 1)?;
    /// let mut graph = Graph::new(&context)?;
    /// let address = flag.as_raw();
    /// let write = MemoryOperation::Write32 { address, value: 7 };
    /// // SAFETY: the buffer outlives the launch, and no other work uses it meanwhile.
    /// unsafe { graph.add_memory_operations(&[], &[write]) }?;
    /// let executable = graph.instantiate()?;
    /// executable.launch(&stream)?;
    /// assert_eq!(flag.to_vec()?, [7]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuGraphAddBatchMemOpNode")]
    #[inline]
    pub unsafe fn add_memory_operations(
        &mut self,
        dependencies: &[NodeId],
        operations: &[MemoryOperation],
    ) -> Result<Node<kind::MemoryOperations>> {
        let batch = Batch::new(self.context(), operations)?;
        let added = self.add_without_memory(dependencies, &batch);
        added.map_err(|error| explain(self.context(), error, operations))
    }

    /// Returns the operations of a node. Calls `cuGraphBatchMemOpNodeGetParams`.
    ///
    /// # Errors
    /// [`Invalid::UnknownMemoryOperation`] for an operation that this crate does not know;
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    ///
    /// Since CUDA 11.7. Raw:
    /// [`cuGraphBatchMemOpNodeGetParams`](fn@cuda_sys::cuGraphBatchMemOpNodeGetParams).
    #[doc(alias = "cuGraphBatchMemOpNodeGetParams")]
    #[inline]
    pub fn memory_operations(
        &self,
        node: Node<kind::MemoryOperations>,
    ) -> Result<Vec<MemoryOperation>> {
        let its: CUDA_BATCH_MEM_OP_NODE_PARAMS = self.query(node, |node, place| {
            // SAFETY: the node exists and has memory operations, and the pointer is valid.
            unsafe { call!(cuGraphBatchMemOpNodeGetParams(node, place)) }
        })?;
        if its.count == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the driver has returned an array of this length, which is valid until the node changes.
        let operations =
            unsafe { std::slice::from_raw_parts(its.paramArray.cast_const(), its.count as usize) };
        operations.iter().map(from_raw).collect()
    }

    /// Changes the operations of a node. Calls `cuGraphBatchMemOpNodeSetParams`.
    ///
    /// Executable graphs are not affected.
    ///
    /// # Errors
    /// See [`add_memory_operations`](Self::add_memory_operations).
    ///
    /// # Safety
    /// See [`add_memory_operations`](Self::add_memory_operations).
    ///
    /// Since CUDA 11.7. Raw:
    /// [`cuGraphBatchMemOpNodeSetParams`](fn@cuda_sys::cuGraphBatchMemOpNodeSetParams).
    #[doc(alias = "cuGraphBatchMemOpNodeSetParams")]
    #[inline]
    pub unsafe fn set_memory_operations(
        &mut self,
        node: Node<kind::MemoryOperations>,
        operations: &[MemoryOperation],
    ) -> Result<()> {
        let batch = Batch::new(self.context(), operations)?;
        let set = self.set_without_memory(node, &batch);
        set.map_err(|error| explain(self.context(), error, operations))
    }
}

impl ExecutableNodes<'_> {
    /// Changes the operations of a node: addresses, values and conditions. Calls
    /// `cuGraphExecBatchMemOpNodeSetParams`.
    ///
    /// The number of operations, their types, and `flush` cannot change.
    ///
    /// # Errors
    /// See [`Graph::add_memory_operations`]. `CUDA_ERROR_INVALID_VALUE` for a change that the driver does
    /// not support.
    ///
    /// # Safety
    /// See [`Graph::add_memory_operations`].
    ///
    /// Since CUDA 11.7. Raw:
    /// [`cuGraphExecBatchMemOpNodeSetParams`](fn@cuda_sys::cuGraphExecBatchMemOpNodeSetParams).
    #[doc(alias = "cuGraphExecBatchMemOpNodeSetParams")]
    #[inline]
    pub unsafe fn set_memory_operations(
        &mut self,
        node: Node<kind::MemoryOperations>,
        operations: &[MemoryOperation],
    ) -> Result<()> {
        let batch = Batch::new(self.graph.context(), operations)?;
        let set = self.set_without_memory(node, &batch);
        set.map_err(|error| explain(self.graph.context(), error, operations))
    }
}

/// The specification of a node with memory operations.
struct Batch {
    context: Context,
    parameters: CUDA_BATCH_MEM_OP_NODE_PARAMS,
    /// The parameters point to it.
    #[allow(dead_code, reason = "held, not read")]
    operations: Vec<CUstreamBatchMemOpParams>,
}

// SAFETY: the driver copies the operations. The callers of the unsafe functions that create such nodes promise that
// the addresses are valid in each launch. The context is alive.
specification!(Batch: kind::MemoryOperations, in context, |its| {
    cuGraphAddBatchMemOpNode(&raw const its.parameters),
    cuGraphBatchMemOpNodeSetParams(&raw const its.parameters),
    cuGraphExecBatchMemOpNodeSetParams(&raw const its.parameters),
});

impl Batch {
    /// # Errors
    /// [`Invalid::EmptyNode`]; [`Invalid::TooManyOperations`]; [`Invalid::NeedsNewerDriver`].
    #[inline]
    fn new(context: &Context, operations: &[MemoryOperation]) -> Result<Self> {
        if operations.is_empty() {
            let what = "a batch of memory operations";
            return Err(Invalid::EmptyNode { what }.into());
        }
        let (mut operations, count) = batch(operations)?;
        let parameters = CUDA_BATCH_MEM_OP_NODE_PARAMS {
            ctx: context.raw(),
            count,
            paramArray: operations.as_mut_ptr(),
            flags: 0,
        };
        Ok(Self { context: context.clone(), parameters, operations })
    }
}
