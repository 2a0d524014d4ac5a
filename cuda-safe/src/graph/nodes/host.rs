//! Nodes that call a host function.

use crate::call::{HostPanic, Result, count_leak, debug_struct, fork};
use crate::graph::nodes::specification;
use crate::graph::{ExecutableNodes, Graph, Node, NodeId, Retained, kind};
use crate::stream::run_inside;
use core::ffi::c_void;
use cuda_sys::CUDA_HOST_NODE_PARAMS;
use std::sync::Arc;

/// A function that each launch of a graph runs.
pub(crate) struct HostFunction {
    /// `None` only while this value is dropped.
    function: Option<Box<dyn Fn() + Send + Sync>>,
    panicked: HostPanic,
}

/// The parameters of a node that calls a host function.
struct HostCall {
    function: Arc<HostFunction>,
    parameters: CUDA_HOST_NODE_PARAMS,
}

// SAFETY: the content of the node owns the function, and the driver copies the parameters.
specification!(HostCall: kind::HostFunction, |its| keeps Retained::HostFunction(Arc::clone(&its.function)), {
    cuGraphAddHostNode(&raw const its.parameters),
    cuGraphHostNodeSetParams(&raw const its.parameters),
    cuGraphExecHostNodeSetParams(&raw const its.parameters),
});

impl HostCall {
    fn new(function: impl Fn() + Send + Sync + 'static) -> Self {
        let function = HostFunction::new(function);
        Self { parameters: function.parameters(), function }
    }
}

impl Graph {
    /// Adds a host function, which a driver thread runs once in each launch. Calls
    /// `cuGraphAddHostNode`.
    ///
    /// The graph owns the function. Executable graphs that differ can run it at the same time.
    ///
    /// If the function panics, [`ExecutableGraph::take_panic`](crate::graph::ExecutableGraph::take_panic)
    /// returns the panic, and the launch continues. Inside the function the driver rejects most calls,
    /// and this crate rejects blocking calls. See
    /// [`Stream::launch_host_function`](crate::Stream::launch_host_function).
    ///
    /// # Errors
    /// See [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphAddHostNode`](fn@cuda_sys::cuGraphAddHostNode).
    #[doc(alias = "cuGraphAddHostNode")]
    pub fn add_host_function(
        &mut self,
        dependencies: &[NodeId],
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<Node<kind::HostFunction>> {
        self.add_without_memory(dependencies, &HostCall::new(function))
    }

    /// Changes the function of a host node. Calls `cuGraphHostNodeSetParams`.
    ///
    /// Executable graphs are not affected. The graph drops the function that the node had before, unless
    /// an executable graph shares it.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphHostNodeSetParams`](fn@cuda_sys::cuGraphHostNodeSetParams).
    #[doc(alias = "cuGraphHostNodeSetParams")]
    pub fn set_host_function(
        &mut self,
        node: Node<kind::HostFunction>,
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<()> {
        self.set_without_memory(node, &HostCall::new(function))
    }
}

impl ExecutableNodes<'_> {
    /// Changes the function of a host node. Calls `cuGraphExecHostNodeSetParams`.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
    ///
    /// Since CUDA 10.2. Raw:
    /// [`cuGraphExecHostNodeSetParams`](fn@cuda_sys::cuGraphExecHostNodeSetParams).
    #[doc(alias = "cuGraphExecHostNodeSetParams")]
    pub fn set_host_function(
        &mut self,
        node: Node<kind::HostFunction>,
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<()> {
        self.set_without_memory(node, &HostCall::new(function))
    }
}

impl HostFunction {
    pub(crate) fn new(function: impl Fn() + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self { function: Some(Box::new(function)), panicked: HostPanic::default() })
    }

    /// Returns the parameters of a node that runs the function. They are valid as long as `self` is
    /// alive.
    #[inline]
    pub(crate) fn parameters(self: &Arc<Self>) -> CUDA_HOST_NODE_PARAMS {
        CUDA_HOST_NODE_PARAMS { fn_: Some(run), userData: Arc::as_ptr(self).cast_mut().cast() }
    }

    /// Returns the first panic that was not returned yet.
    #[inline]
    pub(crate) fn take_panic(&self) -> Result<()> {
        self.panicked.take()
    }
}

/// The function that the driver calls.
///
/// # Safety
/// `data` points to a [`HostFunction`], which lives until this function returns.
#[inline]
unsafe extern "C" fn run(data: *mut c_void) {
    // SAFETY: the caller guarantees that the function is alive. It is only shared.
    let host = unsafe { &*data.cast_const().cast::<HostFunction>() };
    run_inside(&host.panicked, || {
        if let Some(function) = &host.function {
            function();
        }
    });
}

impl Drop for HostFunction {
    #[inline]
    fn drop(&mut self) {
        #[cfg(feature = "freed-hook")]
        if !fork::in_child() {
            crate::call::report::freed(core::ptr::from_ref(self).cast());
        }
        // In a forked child, what the function owns might call the driver.
        if fork::in_child() {
            count_leak();
            std::mem::forget(self.function.take());
        }
    }
}

debug_struct! { HostFunction |_its| { .. } }
