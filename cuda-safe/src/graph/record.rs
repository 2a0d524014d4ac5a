//! Recording a graph in the order of calls.

use super::memory::{CopySource, CopyTarget, GraphBuffer, GraphPinned, GraphSliceMut};
use super::nodes::arguments::NodeArguments;
use super::{Graph, Node, NodeId, kind};
use crate::call::{Error, Invalid, Rejected, Result};
use crate::event::Event;
use crate::launch::{LaunchConfig, Params, TypedKernel};
use crate::memory::{DeviceBuffer, PinnedBuffer};
use crate::stream::{CaptureMode, Stream, same_context};
use bytemuck::NoUninit;

/// Records a graph in the order of calls, like work in a stream: each call adds a node that comes after
/// the node of the call before. Returned by [`Graph::into_recorder`].
///
/// This is the safe way from a sequence of calls to a graph that is launched again and again. In
/// contrast to a [capture](Stream::capture), the graph owns everything that its nodes use:
///
/// - [`zeroed`](Self::zeroed), [`uninit`](Self::uninit) and [`own`](Self::own) return device memory, and
///   [`own_pinned`](Self::own_pinned) pinned memory, with addresses that stay the same in all launches.
/// - [`fill`](Self::fill), [`copy`](Self::copy), [`launch`](Self::launch),
///   [`host_function`](Self::host_function) and others add nodes, which declare the memory that they
///   use. [`add`](Self::add) adds a node of any other kind.
/// - [`capture`](Self::capture) adds the work of a library that enqueues it in a stream, such as cuBLAS.
/// - [`into_graph`](Self::into_graph) returns the graph. Launching it is safe.
///
/// # Branches
/// [`dependencies`](Self::dependencies) returns the nodes that the next call comes after, and
/// [`set_dependencies`](Self::set_dependencies) replaces them. A branch starts where the dependencies
/// are set back to earlier ones, and [`add_dependencies`](Self::add_dependencies) joins it again.
/// [`Graph::instantiate`] refuses branches that use the same memory, if one of them writes.
///
/// ```no_run
/// use cuda_safe::{Context, Device, Graph, PinnedBuffer};
///
/// let context = Context::primary(&Device::get(0)?)?;
/// let stream = context.stream()?;
/// let mut recorder = Graph::new(&context)?.into_recorder(&stream)?;
/// let mut input = recorder.own_pinned(PinnedBuffer::<f32>::zeroed(&context, 1000)?)?;
/// let mut data = recorder.zeroed::<f32>(1000)?;
/// let mut other = recorder.zeroed::<f32>(1000)?;
/// recorder.copy(&mut data, &input)?;
///
/// // Two branches, which may run at the same time.
/// let fork = recorder.dependencies().to_vec();
/// recorder.copy(&mut other, &data)?;
/// let one = recorder.dependencies().to_vec();
/// recorder.set_dependencies(&fork)?;
/// recorder.host_function(|| println!("the copy may be running"))?;
/// recorder.add_dependencies(&one)?;
///
/// recorder.fill(&mut data, 0.0)?;
/// let mut executable = recorder.into_graph()?.instantiate()?;
/// for value in [1.0, 2.0] {
///     executable.host(&mut input)?.fill(value);
///     executable.launch(&stream)?;
/// }
/// stream.synchronize()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
#[derive(Debug)]
pub struct GraphRecorder {
    /// `None` after a failed capture.
    graph: Option<Graph>,
    stream: Stream,
    dependencies: Vec<NodeId>,
}

impl Graph {
    /// Returns a recorder that adds nodes to this graph. The first call comes after all nodes of the
    /// graph.
    ///
    /// Kernels run in the context or green context of `stream`, memory is allocated on `stream`, and
    /// [`capture`](GraphRecorder::capture) uses it. The graph can be launched on any stream of its
    /// context.
    ///
    /// # Errors
    /// [`Invalid::OtherContext`] if the stream does not belong to the context of the graph.
    /// [`try_into_recorder`](Self::try_into_recorder) returns the graph with the error.
    #[inline]
    pub fn into_recorder(self, stream: &Stream) -> Result<GraphRecorder> {
        Ok(self.try_into_recorder(stream)?)
    }

    /// Does the same as [`into_recorder`](Self::into_recorder), but returns the unchanged graph with the
    /// error.
    ///
    /// # Errors
    /// See [`into_recorder`](Self::into_recorder).
    #[inline]
    pub fn try_into_recorder(mut self, stream: &Stream) -> Result<GraphRecorder, Rejected<Self>> {
        let leaves = same_context("the stream", stream.context(), self.context());
        match leaves.and_then(|()| self.leaves()) {
            Ok(dependencies) => {
                Ok(GraphRecorder { graph: Some(self), stream: stream.clone(), dependencies })
            }
            Err(error) => Err(Rejected::new(error, self)),
        }
    }
}

impl GraphRecorder {
    /// Returns the graph.
    ///
    /// # Errors
    /// [`Invalid::RecorderWithoutGraph`] after a failed [`capture`](Self::capture).
    #[inline]
    pub fn into_graph(self) -> Result<Graph> {
        self.graph.ok_or_else(without_graph)
    }

    /// Returns the graph, to query it or to add nodes and edges that are not part of the order of the
    /// calls.
    ///
    /// # Errors
    /// [`Invalid::RecorderWithoutGraph`].
    #[inline]
    pub fn graph(&mut self) -> Result<&mut Graph> {
        self.graph.as_mut().ok_or_else(without_graph)
    }

    /// Returns the stream that memory is allocated on, and in whose context kernels run.
    #[inline]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Returns the nodes that the next call comes after.
    #[inline]
    pub fn dependencies(&self) -> &[NodeId] {
        &self.dependencies
    }

    /// Replaces the nodes that the next call comes after.
    ///
    /// # Errors
    /// [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`]; [`Invalid::RecorderWithoutGraph`]. The
    /// dependencies are then as before.
    #[inline]
    pub fn set_dependencies(&mut self, nodes: &[NodeId]) -> Result<()> {
        self.change_dependencies(Vec::with_capacity(nodes.len()), nodes)
    }

    /// Adds nodes that the next call comes after.
    ///
    /// # Errors
    /// See [`set_dependencies`](Self::set_dependencies).
    #[inline]
    pub fn add_dependencies(&mut self, nodes: &[NodeId]) -> Result<()> {
        self.change_dependencies(self.dependencies.clone(), nodes)
    }

    #[inline]
    fn change_dependencies(&mut self, mut all: Vec<NodeId>, nodes: &[NodeId]) -> Result<()> {
        let slots = self.graph()?.slots();
        for node in nodes {
            slots.get(*node)?;
            if !all.contains(node) {
                all.push(*node);
            }
        }
        self.dependencies = all;
        Ok(())
    }

    /// Adds a node with a function of the graph. `add` gets the graph and the nodes that the new node
    /// must come after, and returns the node. The next call comes after that node.
    ///
    /// # Errors
    /// [`Invalid::RecorderWithoutGraph`]; errors of `add`.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, Graph};
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let mut recorder = Graph::new(&context)?.into_recorder(&context.stream()?)?;
    /// let node = recorder.add(|graph, dependencies| graph.add_empty(dependencies))?;
    /// assert_eq!(recorder.dependencies(), [node.id()]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    pub fn add<K>(
        &mut self,
        add: impl FnOnce(&mut Graph, &[NodeId]) -> Result<Node<K>>,
    ) -> Result<Node<K>> {
        let graph = self.graph.as_mut().ok_or_else(without_graph)?;
        let node = add(graph, &self.dependencies)?;
        self.dependencies.clear();
        self.dependencies.push(node.id());
        Ok(node)
    }

    /// Adds a kernel, which runs in the context or green context of the recorder's stream. See
    /// [`Graph::add_kernel`].
    ///
    /// # Errors
    /// See [`Graph::add_kernel`]; [`Invalid::RecorderWithoutGraph`].
    ///
    /// # Safety
    /// The conditions of [`Graph::add_kernel`].
    pub unsafe fn launch<P: Params>(
        &mut self,
        kernel: &TypedKernel<P>,
        config: LaunchConfig,
        arguments: impl NodeArguments<P>,
    ) -> Result<Node<kind::Kernel>> {
        let stream = self.stream.clone();
        self.add(|graph, dependencies| {
            // SAFETY: the caller's promise.
            unsafe { graph.add_kernel(dependencies, &stream, kernel, config, arguments) }
        })
    }

    /// Adds a host function. See [`Graph::add_host_function`].
    ///
    /// # Errors
    /// See [`Graph::add_host_function`]; [`Invalid::RecorderWithoutGraph`].
    pub fn host_function(
        &mut self,
        function: impl Fn() + Send + Sync + 'static,
    ) -> Result<Node<kind::HostFunction>> {
        self.add(|graph, dependencies| graph.add_host_function(dependencies, function))
    }

    /// Adds a record of an event. See [`Graph::add_event_record`].
    ///
    /// # Errors
    /// See [`Graph::add_event_record`]; [`Invalid::RecorderWithoutGraph`].
    #[inline]
    pub fn record_event(&mut self, event: &Event) -> Result<Node<kind::EventRecord>> {
        self.add(|graph, dependencies| graph.add_event_record(dependencies, event))
    }

    /// Adds a wait for an event. See [`Graph::add_event_wait`].
    ///
    /// # Errors
    /// See [`Graph::add_event_wait`]; [`Invalid::RecorderWithoutGraph`].
    #[inline]
    pub fn wait_event(&mut self, event: &Event) -> Result<Node<kind::EventWait>> {
        self.add(|graph, dependencies| graph.add_event_wait(dependencies, event))
    }

    /// Adds a copy of a graph. See [`Graph::add_child`].
    ///
    /// # Errors
    /// See [`Graph::add_child`]; [`Invalid::RecorderWithoutGraph`].
    #[inline]
    pub fn child(&mut self, child: &mut Graph) -> Result<Node<kind::Child>> {
        self.add(|graph, dependencies| graph.add_child(dependencies, child))
    }

    /// Adds the work that `record` enqueues in the recorder's stream, for libraries that enqueue work in
    /// a stream themselves. Calls [`Stream::capture_into`].
    ///
    /// `record` gets the stream, which is capturing. [`GraphBuffer::as_raw`](crate::graph::GraphBuffer::as_raw)
    /// returns the addresses to pass to the library.
    ///
    /// From then on the graph keeps all memory that it owns, also that whose handle is dropped.
    ///
    /// In contrast to [`Graph::assume_owned`], which is a promise about the whole graph, the promise of
    /// this function is about the captured work only. The graph is launched by safe code afterwards, if
    /// it could be before.
    ///
    /// If a capture was begun and anything fails from then on, the graph is dropped: the driver destroys
    /// a graph when a capture into it fails. All later calls of the recorder return
    /// [`Invalid::RecorderWithoutGraph`].
    ///
    /// # Errors
    /// The error of `record`; the errors of [`Stream::capture_into`]; [`Invalid::RecorderWithoutGraph`].
    ///
    /// # Safety
    /// For each launch of the graph, and of each graph that contains a copy of its nodes, whatever safe
    /// code does:
    /// - The captured work uses only memory that the graph owns, or memory that is alive and that no
    ///   other work and no host code uses in a way that races with the launch.
    /// - Nodes of this graph that use the same memory, if one of them writes, come before or after the
    ///   captured work in the order of this recorder, also after
    ///   [`set_dependencies`](Self::set_dependencies). The recorder does not know which memory the
    ///   captured work uses.
    /// - The safety conditions of the captured launches hold, including the bits that kernels leave in
    ///   buffers. Modules, and host memory and functions that other code captured, are alive.
    ///
    /// While this function runs, no other thread may enqueue work in the stream.
    ///
    /// Since CUDA 12.3.
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, Error, Graph};
    /// use cuda_safe::capture::CaptureMode;
    /// # unsafe fn library_sort(stream: cuda_safe::sys::CUstream, data: u64, len: usize) {}
    ///
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let mut recorder = Graph::new(&context)?.into_recorder(&stream)?;
    /// let mut data = recorder.zeroed::<u32>(1000)?;
    /// recorder.fill(&mut data, 7)?;
    /// // SAFETY: the library sorts these elements, which the graph owns, and uses nothing else.
    /// unsafe {
    ///     recorder.capture::<Error>(CaptureMode::default(), |stream| {
    ///         library_sort(stream.as_raw(), data.as_raw(), data.len());
    ///         Ok(())
    ///     })
    /// }?;
    /// let executable = recorder.into_graph()?.instantiate()?;
    /// executable.launch(&stream)?;
    /// stream.synchronize()?;
    /// # Ok::<_, Error>(())
    /// ```
    pub unsafe fn capture<E: From<Error>>(
        &mut self,
        mode: CaptureMode,
        record: impl FnOnce(&Stream) -> Result<(), E>,
    ) -> Result<(), E> {
        let graph = self.graph.take().ok_or_else(without_graph)?;
        let borrowed_memory = graph.borrows_memory();
        let begun = self.stream.try_begin_capture_into(graph, &self.dependencies, mode);
        let capture = begun.map_err(|Rejected { error, value }| {
            self.graph = value;
            error
        })?;
        record(capture.stream())?;
        let (mut graph, last) = capture.end_with_nodes()?;
        // It is not known which of it the captured work uses.
        graph.keep_memory();
        if !borrowed_memory {
            // SAFETY: the caller promises this for the captured work, and the rest of the graph did not
            // use memory that it does not own.
            unsafe { graph.assume_owned() };
        }
        self.graph = Some(graph);
        self.dependencies = last;
        Ok(())
    }
}

#[cold]
#[inline]
fn without_graph() -> Error {
    Invalid::RecorderWithoutGraph.into()
}

impl GraphRecorder {
    /// Allocates device memory that the graph owns, with all bytes 0 before the first launch. Calls
    /// [`DeviceBuffer::zeroed`] and [`own`](Self::own).
    ///
    /// A launch does not set the bytes to 0 again: [`fill`](Self::fill) does.
    ///
    /// # Errors
    /// See [`DeviceBuffer::zeroed`] and [`own`](Self::own).
    pub fn zeroed<T>(&mut self, len: usize) -> Result<GraphBuffer<T>> {
        let buffer = DeviceBuffer::zeroed(self.stream(), len)?;
        self.own(buffer)
    }

    /// Allocates device memory that the graph owns, without initializing it. Calls
    /// [`DeviceBuffer::uninit`] and [`own`](Self::own).
    ///
    /// # Errors
    /// See [`DeviceBuffer::uninit`] and [`own`](Self::own).
    pub fn uninit<T>(&mut self, len: usize) -> Result<GraphBuffer<T>> {
        let buffer = DeviceBuffer::uninit(self.stream(), len)?;
        self.own(buffer)
    }

    /// Moves a buffer into the graph. See [`Graph::own`](crate::Graph::own).
    ///
    /// # Errors
    /// See [`Graph::own`](crate::Graph::own);
    /// [`Invalid::RecorderWithoutGraph`](crate::Invalid::RecorderWithoutGraph).
    /// [`try_own`](Self::try_own) returns the buffer with the error.
    pub fn own<T>(&mut self, buffer: DeviceBuffer<T>) -> Result<GraphBuffer<T>> {
        Ok(self.try_own(buffer)?)
    }

    /// Does the same as [`own`](Self::own), but returns the unchanged buffer with the error.
    ///
    /// # Errors
    /// See [`own`](Self::own).
    pub fn try_own<T>(
        &mut self,
        buffer: DeviceBuffer<T>,
    ) -> Result<GraphBuffer<T>, Rejected<DeviceBuffer<T>>> {
        match self.graph() {
            Ok(graph) => graph.try_own(buffer),
            Err(error) => Err(Rejected::new(error, buffer)),
        }
    }

    /// Moves a pinned buffer into the graph. See [`Graph::own_pinned`](crate::Graph::own_pinned).
    ///
    /// # Errors
    /// [`Invalid::RecorderWithoutGraph`](crate::Invalid::RecorderWithoutGraph). The buffer is then
    /// dropped.
    pub fn own_pinned<T: Send + 'static>(
        &mut self,
        buffer: PinnedBuffer<T>,
    ) -> Result<GraphPinned<T>> {
        Ok(self.graph()?.own_pinned(buffer))
    }

    /// Adds a fill of all elements of `target`. See [`Graph::add_fill`](crate::Graph::add_fill).
    ///
    /// # Errors
    /// See [`Graph::add_fill`](crate::Graph::add_fill);
    /// [`Invalid::RecorderWithoutGraph`](crate::Invalid::RecorderWithoutGraph).
    pub fn fill<'a, T: NoUninit>(
        &mut self,
        target: impl Into<GraphSliceMut<'a, T>>,
        value: T,
    ) -> Result<Node<kind::Fill>> {
        self.add(|graph, dependencies| graph.add_fill(dependencies, target, value))
    }

    /// Adds a copy of all elements of `source` to `target`. See
    /// [`Graph::add_copy`](crate::Graph::add_copy).
    ///
    /// # Errors
    /// See [`Graph::add_copy`](crate::Graph::add_copy);
    /// [`Invalid::RecorderWithoutGraph`](crate::Invalid::RecorderWithoutGraph).
    pub fn copy<T>(
        &mut self,
        target: impl CopyTarget<T>,
        source: impl CopySource<T>,
    ) -> Result<Node<kind::Copy>> {
        self.add(|graph, dependencies| graph.add_copy(dependencies, target, source))
    }
}
