//! Kernel nodes.

use crate::call::{Invalid, Result, call, newest_or, refuse_if};
use crate::context::Context;
use crate::graph::nodes::Specification;
use crate::graph::rules::owners::Slots;
use crate::graph::{
    Content, ExecutableNodes, Graph, NewNode, Node, NodeArguments, NodeId, NodeUses, Retained, kind,
};
use crate::green::GreenContext;
use crate::launch::{LaunchConfig, Params, TypedKernel};
use crate::module::Kernel;
use crate::stream::{ExecutionContext, Stream, same_context};
use core::ffi::c_void;
use cuda_sys::{CUDA_KERNEL_NODE_PARAMS, CUDA_KERNEL_NODE_PARAMS_v1, CUgraphExec, CUgraphNode};
use std::borrow::Cow;
use std::marker::PhantomData;

/// A context in which a kernel node runs: a [`Context`], a
/// [`GreenContext`](crate::green::GreenContext), or that of a [`Stream`]. This trait is sealed.
///
/// The node decides where its kernel runs. The stream that the graph is launched on does not matter: a
/// node of a green context runs on its SMs wherever the graph is launched, and a node of an ordinary
/// context runs on all SMs even if the graph is launched on a stream of a green context.
///
/// A launch on a stream of a green context in which none of the kernels runs would use SMs outside of that
/// partition, so it is an error ([`Invalid::OtherPartition`]).
///
/// A stream of a [`GreenPool`](crate::green::GreenPool), or of other code that may belong to a green
/// context, cannot be the context of a node ([`Invalid::UnknownGreenContext`]).
pub trait NodeContext: sealed::Sealed {
    /// Returns the context in which the node runs.
    ///
    /// # Errors
    /// [`Invalid::UnknownGreenContext`].
    #[doc(hidden)]
    fn home(&self) -> Result<NodeExecutionContext<'_>>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// The context or green context of a node.
#[derive(Clone, Debug)]
pub struct NodeExecutionContext<'a>(Home<'a>);

#[derive(Clone, Debug)]
enum Home<'a> {
    Context(&'a Context),
    Other(Cow<'a, ExecutionContext>),
}

impl NodeExecutionContext<'_> {
    /// Returns the context of memory and kernels.
    #[inline]
    fn context(&self) -> &Context {
        match &self.0 {
            Home::Context(context) => context,
            Home::Other(home) => home.context(),
        }
    }

    #[inline]
    pub(crate) fn to_owned(&self) -> ExecutionContext {
        match &self.0 {
            Home::Context(context) => ExecutionContext::Context(Context::clone(context)),
            Home::Other(home) => ExecutionContext::clone(home),
        }
    }

    /// Returns whether this is the same object as `other`.
    #[inline]
    fn is_clone_of(&self, other: &ExecutionContext) -> bool {
        match (&self.0, other) {
            (Home::Context(context), ExecutionContext::Context(other)) => {
                context.is_clone_of(other)
            }
            (Home::Context(_), ExecutionContext::Green(_)) => false,
            (Home::Other(home), other) => home.is_clone_of(other),
        }
    }

    /// See [`ExecutionContext::with_current`].
    #[inline]
    fn with_current(&self, mut call: impl FnMut() -> Result<()>) -> Result<()> {
        match &self.0 {
            Home::Context(context) => {
                let _current = context.enter()?;
                call()
            }
            Home::Other(home) => home.with_current(call),
        }
    }
}

impl sealed::Sealed for Context {}
impl NodeContext for Context {
    #[inline]
    fn home(&self) -> Result<NodeExecutionContext<'_>> {
        Ok(NodeExecutionContext(Home::Context(self)))
    }
}

impl sealed::Sealed for Stream {}
impl NodeContext for Stream {
    #[inline]
    fn home(&self) -> Result<NodeExecutionContext<'_>> {
        refuse_if!(!self.is_own() && self.may_have_green_context(), Invalid::UnknownGreenContext);
        Ok(NodeExecutionContext(Home::Other(Cow::Borrowed(self.execution_context()))))
    }
}

impl sealed::Sealed for GreenContext {}
impl NodeContext for GreenContext {
    #[inline]
    fn home(&self) -> Result<NodeExecutionContext<'_>> {
        Ok(NodeExecutionContext(Home::Other(Cow::Owned(self.execution_context()))))
    }
}

impl<T: NodeContext> sealed::Sealed for &T {}
impl<T: NodeContext> NodeContext for &T {
    fn home(&self) -> Result<NodeExecutionContext<'_>> {
        T::home(self)
    }
}

impl Graph {
    /// Adds a kernel with typed arguments, which runs in `context`. Calls `cuGraphAddKernelNode`.
    ///
    /// Values are copied now. A parameter `&[T]` takes a `&GraphBuffer<T>` or a
    /// [`GraphSlice`](crate::graph::GraphSlice) of this graph, or a `&SharedBuffer<T>`; a parameter
    /// `&mut [T]` takes a `&mut GraphBuffer<T>` or a [`GraphSliceMut`](crate::graph::GraphSliceMut). The
    /// borrow ends with this call: the node declares the access, and
    /// [`instantiate`](Self::instantiate) checks that conflicting accesses are ordered. The graph
    /// retains the kernel with its module, and `context`.
    ///
    /// The kernel runs in `context`, whatever stream the graph is launched on. See [`NodeContext`].
    ///
    /// # Errors
    /// - [`Invalid::OtherContext`] if the kernel or a buffer does not belong to `context`.
    /// - [`Invalid::BufferOfOtherGraph`]; [`Invalid::ConditionalHandleOfOtherGraph`];
    ///   [`Invalid::UnknownGreenContext`].
    /// - [`Invalid::LaunchConfig`] if a dimension is zero;
    ///   `CUDA_ERROR_INVALID_VALUE` if the dimensions exceed the limits of the device.
    /// - See also [`add_empty`](Self::add_empty).
    ///
    /// # Safety
    /// The conditions of [`TypedKernel::launch`] must hold for each launch of the graph and of each graph
    /// that contains a copy of the node, with these arguments. In particular, the kernel must access
    /// only memory that it is passed as a buffer, and write only to buffers passed as `&mut`. Variables
    /// of its module, and addresses inside values, are the caller's responsibility: no other work may
    /// race with the kernel there.
    ///
    /// The kernel sets a [`ConditionalHandle`](crate::graph::ConditionalHandle) only if it gets it as an
    /// argument, in each launch. Setting the handle of another graph is an illegal address, which is fatal
    /// to the process. The kernel launches a [`DeviceGraph`](crate::graph::DeviceGraph) under the conditions of
    /// that type.
    ///
    /// Since CUDA 10.0 (through `cuGraphAddKernelNode_v2` since 12.0). Raw:
    /// [`cuGraphAddKernelNode_v2`](fn@cuda_sys::cuGraphAddKernelNode_v2).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, Graph, LaunchConfig, Module};
    ///
    /// # let ptx = "";
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let scale = Module::from_ptx(&context, ptx)?
    ///     .kernel("scale")?
    ///     .typed::<(&mut [f32], f32, u32)>()?;
    ///
    /// let mut graph = Graph::new(&context)?;
    /// let mut data = graph.own(DeviceBuffer::from_slice(&stream, &[1.0f32; 1000])?)?;
    /// let config = LaunchConfig::for_elements(1000, 256)?;
    /// // SAFETY: `scale` multiplies the first 1000 elements of the buffer by a factor.
    /// let first = unsafe { graph.add_kernel(&[], &context, &scale, config, (&mut data, 2.0, 1000)) }?;
    /// // SAFETY: as above.
    /// unsafe { graph.add_kernel(&[first.id()], &context, &scale, config, (&mut data, 3.0, 1000)) }?;
    ///
    /// let mut executable = graph.instantiate()?;
    /// executable.launch(&stream)?;
    /// let access = executable.access(&mut data, &stream)?;
    /// assert_eq!(access.as_slice().to_vec()?, [6.0; 1000]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuGraphAddKernelNode")]
    pub unsafe fn add_kernel<P: Params>(
        &mut self,
        dependencies: &[NodeId],
        context: &impl NodeContext,
        kernel: &TypedKernel<P>,
        config: LaunchConfig,
        arguments: impl NodeArguments<P>,
    ) -> Result<Node<kind::Kernel>> {
        let launch = KernelLaunch::new(kernel.kernel(), context.home()?, config)?;
        let mut content = self.room.take().unwrap_or_default();
        let mut uses = NodeUses::new(kernel.kernel().context(), &mut content);
        let added = arguments.with_pointers(&mut uses, |pointers, uses| {
            let content = launch.complete(self.slots(), uses)?;
            self.add(dependencies, content, &launch.with(pointers))
        });
        content.clear();
        self.room = Some(content);
        added
    }

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
        let launch = KernelLaunch::new(kernel.kernel(), context.home()?, config)?;
        let mut content = Content::default();
        let mut uses = NodeUses::new(kernel.kernel().context(), &mut content);
        arguments.with_pointers(&mut uses, |pointers, uses| {
            let content = launch.complete(self.slots(), uses)?;
            self.set(node, std::mem::take(content), &launch.with(pointers))
        })
    }
}

impl ExecutableNodes<'_> {
    /// Changes a kernel node: the kernel, where it runs, the configuration and the arguments. Calls
    /// `cuGraphExecKernelNodeSetParams`.
    ///
    /// The context of the node cannot change.
    ///
    /// # Errors
    /// See [`Graph::add_kernel`]. In addition: [`Invalid::UnorderedAccess`] if the node now uses memory
    /// that another node uses without order; [`Invalid::UpdatedFromOtherGraph`]; `CUDA_ERROR_INVALID_VALUE`
    /// if the context differs.
    ///
    /// # Safety
    /// See [`Graph::add_kernel`].
    ///
    /// Since CUDA 10.1 (through `cuGraphExecKernelNodeSetParams_v2` since 12.0). Raw:
    /// [`cuGraphExecKernelNodeSetParams_v2`](fn@cuda_sys::cuGraphExecKernelNodeSetParams_v2).
    #[doc(alias = "cuGraphExecKernelNodeSetParams")]
    pub unsafe fn set_kernel<P: Params>(
        &mut self,
        node: Node<kind::Kernel>,
        context: &impl NodeContext,
        kernel: &TypedKernel<P>,
        config: LaunchConfig,
        arguments: impl NodeArguments<P>,
    ) -> Result<()> {
        let launch = KernelLaunch::new(kernel.kernel(), context.home()?, config)?;
        let id = node.id();
        let before = self.executable.slots().get_in_bodies(id)?.content;
        let mut content = Content::default();
        let mut uses = NodeUses::of_change(kernel.kernel().context(), before, &mut content);
        let claims = arguments.with_pointers(&mut uses, |pointers, uses| {
            let content = launch.changed_content(self.graph.slots(), uses)?;
            let specification = launch.with(pointers);
            let claims = self.check_and_call(id, content, |executable, node| {
                // SAFETY: the executable graph and the node exist, and the node is a kernel.
                unsafe { specification.set_in(executable, node) }
            })?;
            Ok(content.is_some().then_some(claims))
        })?;
        if let Some(claims) = claims {
            self.executable.replace(id, content, claims);
        }
        Ok(())
    }
}

/// A kernel, where it runs, and its launch configuration.
pub(crate) struct KernelLaunch<'a> {
    kernel: &'a Kernel,
    home: NodeExecutionContext<'a>,
    config: LaunchConfig,
}

impl<'a> KernelLaunch<'a> {
    /// # Errors
    /// [`Invalid::OtherContext`](crate::Invalid::OtherContext);
    /// [`Invalid::LaunchConfig`](crate::Invalid::LaunchConfig).
    #[inline(always)]
    pub(crate) fn new(
        kernel: &'a Kernel,
        home: NodeExecutionContext<'a>,
        config: LaunchConfig,
    ) -> Result<Self> {
        config.check()?;
        same_context("the kernel", kernel.context(), home.context())?;
        Ok(Self { kernel, home, config })
    }

    /// Returns the content of the node with these uses of memory.
    ///
    /// # Errors
    /// See [`NodeUses::complete`].
    #[inline]
    fn complete<'b>(&self, slots: &Slots, uses: &'b mut NodeUses<'_>) -> Result<&'b mut Content> {
        let kernel = Retained::Kernel(self.kernel.clone());
        let home = Retained::ExecutionContext(self.home.to_owned());
        uses.complete::<kind::Kernel>(slots, [kernel, home])
    }

    /// Returns the content of a node that changes, or `None` if it needs the same objects as before.
    ///
    /// # Errors
    /// See [`NodeUses::complete`].
    #[inline]
    fn changed_content<'b>(
        &self,
        slots: &Slots,
        uses: &'b mut NodeUses<'_>,
    ) -> Result<Option<&'b Content>> {
        match uses.other_owners() {
            Some([Retained::Kernel(kernel), Retained::ExecutionContext(home)])
                if kernel.is_clone_of(self.kernel) && self.home.is_clone_of(home) =>
            {
                Ok(None)
            }
            _ => Ok(Some(self.complete(slots, uses)?)),
        }
    }

    /// Returns the specification of a node with these arguments.
    #[inline]
    pub(crate) fn with<'b>(&'b self, arguments: &'b mut [*mut c_void]) -> KernelCall<'b> {
        let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) =
            (self.config.grid, self.config.block);
        let parameters = CUDA_KERNEL_NODE_PARAMS {
            func: self.kernel.as_raw(),
            gridDimX: grid_x,
            gridDimY: grid_y,
            gridDimZ: grid_z,
            blockDimX: block_x,
            blockDimY: block_y,
            blockDimZ: block_z,
            sharedMemBytes: self.config.shared_bytes,
            kernelParams: arguments.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        KernelCall { home: &self.home, parameters, arguments: PhantomData }
    }
}

/// The specification of a kernel node.
pub(crate) struct KernelCall<'a> {
    home: &'a NodeExecutionContext<'a>,
    parameters: CUDA_KERNEL_NODE_PARAMS,
    arguments: PhantomData<&'a mut [*mut c_void]>,
}

impl KernelCall<'_> {
    /// Calls the driver with the context of the node current. The driver uses the current context if it
    /// is a green context, and the one of the function otherwise (measured).
    #[inline]
    fn call(
        &self,
        newest: impl Fn(*const CUDA_KERNEL_NODE_PARAMS) -> Result<()>,
        older: impl Fn(*const CUDA_KERNEL_NODE_PARAMS_v1) -> Result<()>,
    ) -> Result<()> {
        let its = &self.parameters;
        self.home.with_current(|| {
            newest_or(newest(its), || {
                older(&CUDA_KERNEL_NODE_PARAMS_v1 {
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
                })
            })
        })
    }
}

// SAFETY: the content of the node retains the kernel and its context, which is current in the calls. There are as
// many arguments, of as many bytes, as the kernel has parameters, and the driver copies them.
unsafe impl Specification for KernelCall<'_> {
    type Kind = kind::Kernel;

    #[inline]
    unsafe fn add(&self, (node, graph, dependencies, count): NewNode) -> Result<()> {
        self.call(
            // SAFETY: the caller promises that the graph and its nodes are alive.
            |its| unsafe { call!(cuGraphAddKernelNode_v2(node, graph, dependencies, count, its)) },
            // SAFETY: as above.
            |its| unsafe {
                call!(abi::cuGraphAddKernelNode(node, graph, dependencies, count, its))
            },
        )
    }

    #[inline]
    unsafe fn set(&self, node: CUgraphNode) -> Result<()> {
        self.call(
            // SAFETY: the caller promises that the node is alive and a kernel.
            |its| unsafe { call!(cuGraphKernelNodeSetParams_v2(node, its)) },
            // SAFETY: as above.
            |its| unsafe { call!(abi::cuGraphKernelNodeSetParams(node, its)) },
        )
    }

    #[inline]
    unsafe fn set_in(&self, executable: CUgraphExec, node: CUgraphNode) -> Result<()> {
        self.call(
            // SAFETY: the caller promises that the executable graph and the node are alive, and that the node is
            // a kernel.
            |its| unsafe { call!(cuGraphExecKernelNodeSetParams_v2(executable, node, its)) },
            // SAFETY: as above.
            |its| unsafe { call!(abi::cuGraphExecKernelNodeSetParams(executable, node, its)) },
        )
    }
}
