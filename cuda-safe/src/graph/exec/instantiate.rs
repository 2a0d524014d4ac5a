//! Instantiation: from a graph to an executable graph.

use crate::call::{Error, Invalid, Result, call, newest_or};
use crate::capture_state::Operation;
use crate::graph::exec::launches::Launches;
use crate::graph::nodes::allocation::KeptAllocations;
use crate::graph::rules::order::Claim;
use crate::graph::{ExecutableGraph, Graph};
use crate::release::{self, Keep};
use crate::stream::{Stream, same_context};
use cuda_sys::{
    CUDA_GRAPH_INSTANTIATE_PARAMS, CUgraphInstantiate_flags as Flags,
    CUgraphInstantiateResult as Outcome,
};

/// Options for [`Graph::instantiate_with`]. The default sets no flag.
#[derive(Clone, Copy, Debug, Default)]
pub struct InstantiateOptions<'a> {
    /// Whether a launch first frees the allocations of the previous launch that were not freed
    /// (`CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH`). See [`GraphAllocation`](crate::graph::GraphAllocation).
    pub auto_free_on_launch: bool,
    /// The stream on which the graph is uploaded to the device
    /// (`CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD`). Since CUDA 12.0. See
    /// [`ExecutableGraph::upload`].
    pub upload: Option<&'a Stream>,
    /// Whether kernels can launch the graph (`CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`). Cannot be
    /// combined with `auto_free_on_launch`. The graph contains kernels, copies, fills and child graphs.
    /// See [`DeviceGraph`](crate::graph::DeviceGraph).
    pub device_launch: bool,
    /// Whether kernels run with the priorities of their nodes instead of the priority of the stream
    /// (`CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY`). Since CUDA 11.7.
    pub use_node_priority: bool,
    #[doc(hidden)]
    pub _non_exhaustive: (),
}

impl InstantiateOptions<'_> {
    #[inline]
    fn flags(&self) -> Result<Flags> {
        let Self {
            auto_free_on_launch,
            upload,
            device_launch,
            use_node_priority,
            _non_exhaustive: (),
        } = *self;
        if auto_free_on_launch && device_launch {
            return Err(Invalid::InstantiateOptions.into());
        }
        let mut flags = Flags(0);
        if auto_free_on_launch {
            flags |= Flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        }
        if upload.is_some() {
            flags |= Flags::CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD;
        }
        if device_launch {
            flags |= Flags::CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
        }
        if use_node_priority {
            flags |= Flags::CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
        }
        Ok(flags)
    }
}

impl Graph {
    /// Creates an executable copy of the graph. Calls `cuGraphInstantiate`. This graph may then be
    /// dropped or changed.
    ///
    /// # Errors
    /// See [`instantiate_with`](Self::instantiate_with).
    ///
    /// Since CUDA 11.4 (through `cuGraphInstantiateWithParams` since 12.0). Raw:
    /// [`cuGraphInstantiateWithParams`](fn@cuda_sys::cuGraphInstantiateWithParams),
    /// [`cuGraphInstantiateWithFlags`](fn@cuda_sys::cuGraphInstantiateWithFlags).
    #[doc(alias = "cuGraphInstantiateWithParams")]
    #[doc(alias = "cuGraphInstantiateWithFlags")]
    #[inline]
    pub fn instantiate(&self) -> Result<ExecutableGraph> {
        self.instantiate_with(&InstantiateOptions::default())
    }

    /// Creates an executable copy of the graph with options. Calls `cuGraphInstantiate`.
    ///
    /// # Errors
    /// - [`Invalid::UnorderedAccess`] if two nodes use the same memory of the graph, one of them writes,
    ///   and no path of [full](crate::graph::EdgeKind::Full) edges leads from one to the other.
    /// - [`Invalid::UnallocatedAccess`] if a node uses memory of an allocation node before that node, or
    ///   after the node that frees the memory.
    /// - [`Invalid::MemoryNodes`] if `device_launch` is set for a graph with allocation or free nodes.
    /// - [`Invalid::GraphCycle`] if the edges form a cycle.
    /// - [`Invalid::SecondExecutable`] if the graph owns memory or has conditional nodes, and another
    ///   executable graph of it exists. One with conditional nodes exists until its launches are complete.
    /// - [`Invalid::ConditionalHandleWithoutNode`]; [`Invalid::GraphHasConditionals`] for the body of a
    ///   conditional node.
    /// - [`Invalid::Instantiation`] if the driver names the node or the reason.
    /// - [`Invalid::InstantiateOptions`]; for `upload`, [`Invalid::StreamIsCaptured`],
    ///   [`Invalid::BorrowedStream`] and [`Invalid::OtherContext`], and [`Error::Missing`] before CUDA 12.0.
    /// - `CUDA_ERROR_OUT_OF_MEMORY`.
    ///
    /// Since CUDA 11.4 (through `cuGraphInstantiateWithParams` since 12.0). Raw:
    /// [`cuGraphInstantiateWithParams`](fn@cuda_sys::cuGraphInstantiateWithParams),
    /// [`cuGraphInstantiateWithFlags`](fn@cuda_sys::cuGraphInstantiateWithFlags),
    /// [`cuGraphExecDestroy`](fn@cuda_sys::cuGraphExecDestroy).
    #[doc(alias = "cuGraphInstantiateWithParams")]
    #[doc(alias = "cuGraphInstantiateWithFlags")]
    #[doc(alias = "cuGraphExecDestroy")]
    #[inline]
    pub fn instantiate_with(&self, options: &InstantiateOptions<'_>) -> Result<ExecutableGraph> {
        let flags = options.flags()?;
        release::drain();
        let slots = &self.owners.slots;
        slots.check_conditionals()?;
        slots.check_accesses(None)?;
        if options.device_launch {
            slots.refuse_memory_nodes("be launched by kernels")?;
        }
        let claims = slots.orders.iter().map(|order| order.claim());
        let mut claims = claims.collect::<Result<Vec<Claim>>>()?;
        let mut earlier = slots.all_after();
        let orders = claims.iter_mut();
        orders.for_each(|claim| claim.find_earlier(&mut earlier));
        let kept = KeptAllocations::new(slots, options.auto_free_on_launch);
        let launches = Launches::keeping(earlier, &kept);
        let mut _call = None;
        if let Some(stream) = options.upload {
            same_context("the stream", stream.context(), self.context())?;
            if stream.is_borrowed() {
                return Err(Invalid::BorrowedStream.into());
            }
            _call = Some(stream.uncaptured(Operation::Launch)?);
            // Noted before the upload, which uses the objects of the graph.
            let _ = launches.admit(stream)?;
        }
        let mut raw = std::ptr::null_mut();
        let mut parameters = CUDA_GRAPH_INSTANTIATE_PARAMS {
            flags: flags.0.into(),
            hUploadStream: options.upload.map_or(std::ptr::null_mut(), Stream::raw),
            hErrNode_out: std::ptr::null_mut(),
            result_out: Outcome::CUDA_GRAPH_INSTANTIATE_SUCCESS,
        };
        let _current = self.context().enter()?;
        let newest = {
            let (executable, parameters) = (&raw mut raw, &raw mut parameters);
            // SAFETY: the graph is alive and used only by this thread, its nodes own what they use, and
            // the pointers refer to local variables. The upload stream is alive.
            unsafe { call!(cuGraphInstantiateWithParams(executable, self.raw, parameters)) }
        };
        let made = match options.upload {
            Some(_) => newest,
            None => newest_or(newest, || {
                let flags = flags.0.into();
                // SAFETY: as above.
                unsafe { call!(cuGraphInstantiateWithFlags(&raw mut raw, self.raw, flags)) }
            }),
        };
        made.map_err(|error| self.explain_instantiation(error, &parameters))?;
        let context = self.context();
        let mut executable = ExecutableGraph::own(raw, slots, context, claims, kept, launches);
        executable.is_device_launch = options.device_launch;
        Ok(executable)
    }

    /// Returns the error of an instantiation with the node and the reason that the driver gave.
    #[cold]
    #[inline]
    fn explain_instantiation(
        &self,
        error: Error,
        parameters: &CUDA_GRAPH_INSTANTIATE_PARAMS,
    ) -> Error {
        let reason = match parameters.result_out {
            Outcome::CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE => "the edges form a cycle",
            Outcome::CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED => {
                "the driver does not support this node here"
            }
            Outcome::CUDA_GRAPH_INSTANTIATE_MULTIPLE_CTXS_NOT_SUPPORTED => {
                "the nodes belong to different contexts, which the driver does not support here"
            }
            Outcome::CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED => {
                "a conditional handle has no node"
            }
            _ => return error,
        };
        let node = self.slots().describe_raw(parameters.hErrNode_out);
        match error {
            Error::Driver(driver) => {
                Invalid::Instantiation { node, reason, code: driver.code }.into()
            }
            error => error,
        }
    }
}
