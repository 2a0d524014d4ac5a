//! Changes of the nodes of a graph: kernels, host functions, and events.

use crate::call::error::Result;
use crate::call::function::call;
use crate::event::Event;
use crate::graph::Retained;
use crate::graph::kind;
use crate::graph::kind::Kind;
use crate::graph::nodes::arguments::{NodeArguments, NodeUses};
use crate::graph::nodes::kernel::{KernelLaunch, Parameters};
use crate::graph::rules::owners::Content;
use crate::graph::{Graph, HostFunction, Node, NodeContext};
use crate::launch::{LaunchConfig, Params, TypedKernel};
use cuda_sys::CUgraphNode;

impl Graph {
    /// Changes a kernel node: the kernel, where it runs, the configuration and the arguments. Calls
    /// `cuGraphKernelNodeSetParams`.
    ///
    /// Executable graphs are not affected: see
    /// [`ExecutableNodes::set_kernel`](crate::graph::ExecutableNodes::set_kernel). The
    /// [attributes](crate::graph::nodes::node_attribute) of the node stay. The graph drops the objects that the node
    /// used before, unless an executable graph shares them. If the change fails, the node is as before.
    ///
    /// # Errors
    /// See [`add_kernel`](Self::add_kernel).
    ///
    /// # Safety
    /// See [`add_kernel`](Self::add_kernel).
    ///
    /// Since CUDA 10.0 (through `cuGraphKernelNodeSetParams_v2` since 12.0). Raw:
    /// [`cuGraphKernelNodeSetParams_v2`](fn@cuda_sys::cuGraphKernelNodeSetParams_v2).
    #[doc(alias = "cuGraphKernelNodeSetParams")]
    pub unsafe fn set_kernel<P: Params>(
        &mut self,
        node: Node<kind::Kernel>,
        context: &impl NodeContext,
        kernel: &TypedKernel<P>,
        config: LaunchConfig,
        arguments: impl NodeArguments<P>,
    ) -> Result<()> {
        let launch = KernelLaunch::new(kernel.kernel(), context.home()?.0, config)?;
        let uses = NodeUses::new(kernel.kernel().context());
        arguments.with_pointers(uses, |pointers, uses| {
            let content = launch.content(self.slots(), uses)?;
            self.change(node, content, |node| {
                launch.call(pointers, |parameters| match parameters {
                    // SAFETY: the node exists and is a kernel. The context of the node is current. The
                    // kernel is alive, and there are as many arguments, of as many bytes, as it has
                    // parameters. The driver copies them.
                    Parameters::Newest(its) => unsafe {
                        call!(cuGraphKernelNodeSetParams_v2(node, its))
                    },
                    // SAFETY: as above.
                    Parameters::Older(its) => unsafe {
                        call!(abi::cuGraphKernelNodeSetParams(node, its))
                    },
                })
            })
        })
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
        let function = HostFunction::new(function);
        let parameters = function.parameters();
        let content = Content::new::<kind::HostFunction>(vec![Retained::HostFunction(function)]);
        self.change(node, content, |node| {
            let parameters = &raw const parameters;
            // SAFETY: the node exists and is a host function. The graph and its executable graphs own
            // the new function until their launches are complete.
            unsafe { call!(cuGraphHostNodeSetParams(node, parameters)) }
        })
    }

    /// Changes the event that a node records. Calls `cuGraphEventRecordNodeSetEvent`.
    ///
    /// Executable graphs are not affected.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
    ///
    /// Since CUDA 11.1. Raw:
    /// [`cuGraphEventRecordNodeSetEvent`](fn@cuda_sys::cuGraphEventRecordNodeSetEvent).
    #[doc(alias = "cuGraphEventRecordNodeSetEvent")]
    #[inline]
    pub fn set_event_record(&mut self, node: Node<kind::EventRecord>, event: &Event) -> Result<()> {
        let raw = event.raw();
        let content = Content::new::<kind::EventRecord>(vec![Retained::Event(event.clone())]);
        self.change(node, content, |node| {
            // SAFETY: the node and the event exist, and the node records an event.
            unsafe { call!(cuGraphEventRecordNodeSetEvent(node, raw)) }
        })
    }

    /// Changes the event that a node waits for. Calls `cuGraphEventWaitNodeSetEvent`.
    ///
    /// Executable graphs are not affected.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`](crate::Invalid::OtherGraphNode);
    /// [`Invalid::NoSuchNode`](crate::Invalid::NoSuchNode).
    ///
    /// Since CUDA 11.1. Raw:
    /// [`cuGraphEventWaitNodeSetEvent`](fn@cuda_sys::cuGraphEventWaitNodeSetEvent).
    #[doc(alias = "cuGraphEventWaitNodeSetEvent")]
    #[inline]
    pub fn set_event_wait(&mut self, node: Node<kind::EventWait>, event: &Event) -> Result<()> {
        let raw = event.raw();
        let content = Content::new::<kind::EventWait>(vec![Retained::Event(event.clone())]);
        self.change(node, content, |node| {
            // SAFETY: the node and the event exist, and the node waits for an event.
            unsafe { call!(cuGraphEventWaitNodeSetEvent(node, raw)) }
        })
    }

    /// Changes a node. `set` calls the driver.
    ///
    /// # Errors
    /// See [`Slots::get`](crate::graph::rules::owners::Slots::get); errors of `set`.
    pub(crate) fn change<K: Kind>(
        &mut self,
        node: Node<K>,
        content: Content,
        set: impl FnOnce(CUgraphNode) -> Result<()>,
    ) -> Result<()> {
        let id = node.id();
        set(self.raw_node(id)?)?;
        let before = self.slots_mut().replace(id, content);
        drop(before);
        Ok(())
    }
}
