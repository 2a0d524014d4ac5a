//! Conditional nodes: handles, and the nodes whose bodies they control.

use crate::call::{Invalid, Ownership, Result, call, count_leak, current, init, out, refuse_if};
use crate::capture_state::Retain;
use crate::graph::kind::Kind;
use crate::graph::rules::owners::{ContentRef, Slots};
use crate::graph::{
    Content, Graph, GraphOwners, Node, NodeArgument, NodeContext, NodeId, NodeUses, Retained, kind,
};
use crate::launch::{Param, sealed};
use crate::stream::ExecutionContext;
use crate::sync::{Mutex, lock};
use cuda_sys::{
    CU_GRAPH_COND_ASSIGN_DEFAULT, CUDA_CONDITIONAL_NODE_PARAMS, CUgraph, CUgraphConditionalHandle,
    CUgraphConditionalNodeType as Form, CUgraphNodeParams, CUgraphNodeType as Type, CudaVersion,
};
use std::sync::Arc;

/// The version with `else` bodies and switches.
const BRANCHES_SINCE: CudaVersion = CudaVersion::new(12, 8);

/// A handle (`CUgraphConditionalHandle`) whose value decides which body of a conditional node runs.
/// Created by [`Graph::conditional_handle`].
///
/// A kernel of the graph takes the handle as an argument, and sets its value with
/// `cudaGraphSetConditional(handle, value)`. In CUDA C++ the parameter is a
/// `cudaGraphConditionalHandle`, which is an `unsigned long long`:
///
/// ```cuda
/// extern "C" __global__ void count_down(
///     cudaGraphConditionalHandle handle, unsigned int *left
/// ) {
///     *left -= 1;
///     cudaGraphSetConditional(handle, *left != 0);
/// }
/// ```
///
/// No library is needed: the driver resolves the function when it loads the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConditionalHandle {
    raw: CUgraphConditionalHandle,
    /// The number of the graph that the handle belongs to, which is not a body.
    graph: u64,
}

/// The conditional handles of a graph, and the conditional nodes of the graph or of one body in it.
#[derive(Clone)]
pub(crate) struct Conditional {
    /// The number of the graph that is not a body.
    root: u64,
    /// Shared by the graph and its bodies.
    handles: Arc<Handles>,
    /// What distinguishes a body from a graph.
    body: Option<Body>,
    nodes: Vec<NodeId>,
}

/// The handles of a graph, in the order in which they were created.
#[derive(Default)]
struct Handles(Mutex<Vec<Handle>>);

struct Handle {
    raw: CUgraphConditionalHandle,
    /// The context of the node.
    home: ExecutionContext,
    /// The description of the node that uses the handle.
    node: Option<String>,
}

/// The body of a conditional node.
#[derive(Clone)]
struct Body {
    raw: RawGraph,
    /// The context of the conditional node, in which the kernels of the body must run.
    home: Retained,
}

/// The handle of a body, which exists as long as its graph.
#[derive(Clone, Copy)]
struct RawGraph(CUgraph);

// SAFETY: another thread can only pass the handle to the driver, with the graph that it belongs to.
unsafe impl Send for RawGraph {}
// SAFETY: see `Send`.
unsafe impl Sync for RawGraph {}

impl sealed::Sealed for ConditionalHandle {}
impl Param for ConditionalHandle {
    type Bytes = CUgraphConditionalHandle;
}

impl NodeArgument<Self> for ConditionalHandle {
    #[inline]
    fn bytes(self, _: usize, uses: &mut NodeUses<'_>) -> Result<CUgraphConditionalHandle> {
        uses.add_handle(self.graph)?;
        Ok(self.raw)
    }
}

impl ConditionalHandle {
    /// Returns the raw handle.
    #[inline]
    pub fn as_raw(self) -> CUgraphConditionalHandle {
        self.raw
    }
}

impl Graph {
    /// Creates a handle for one conditional node of this graph or of a body in it. Calls
    /// `cuGraphConditionalHandleCreate`.
    ///
    /// `default` is the value at the start of each launch. Without it, the value persists from launch to
    /// launch, and is not specified at first: a driver (580) begins with 0, or with the value that an
    /// earlier handle of the process has left.
    ///
    /// `context` is the context of the conditional node, and of the kernels in its bodies.
    ///
    /// A graph with a handle can be instantiated once at a time. It cannot be cloned, and cannot become a
    /// child graph.
    ///
    /// # Errors
    /// [`Error::Missing`](crate::Error::Missing).
    ///
    /// Since CUDA 12.3. Raw:
    /// [`cuGraphConditionalHandleCreate`](fn@cuda_sys::cuGraphConditionalHandleCreate).
    #[doc(alias = "cuGraphConditionalHandleCreate")]
    #[inline]
    pub fn conditional_handle(
        &mut self,
        context: &impl NodeContext,
        default: Option<u32>,
    ) -> Result<ConditionalHandle> {
        let home = context.home()?.to_owned();
        let (value, flags) = match default {
            Some(value) => (value, CU_GRAPH_COND_ASSIGN_DEFAULT),
            None => (0, 0),
        };
        let graph = self.raw;
        let raw = out(|place| {
            home.with_current(|| {
                // A driver (580) refuses a null context here, although one is current.
                let current = current()?;
                // SAFETY: the graph is alive and used only by this thread, the context is current, and
                // `out` passes a valid pointer.
                unsafe {
                    call!(cuGraphConditionalHandleCreate(place, graph, current, value, flags))
                }
            })
        })?;
        // An executable graph claims this order, so there is one at a time.
        self.memory_order();
        let slots = self.slots_mut();
        slots.is_borrowed |= Retained::ExecutionContext(home.clone()).is_borrowed();
        let root = slots.root();
        let conditional = slots.conditional.get_or_insert_with(|| {
            Box::new(Conditional { root, handles: Arc::default(), body: None, nodes: Vec::new() })
        });
        lock(&conditional.handles.0).push(Handle { raw, home, node: None });
        Ok(ConditionalHandle { raw, graph: root })
    }

    /// Adds a conditional node whose body runs if the value of the handle is not zero. Calls
    /// `cuGraphAddNode`.
    ///
    /// `body` adds nodes to the body. It gets the body as a graph, which belongs to this one: nodes in it
    /// depend on each other only, and memory that this graph owns can be used in it. For nodes outside,
    /// the conditional node uses what all nodes in its bodies use.
    ///
    /// # Contents of a body
    /// A body contains kernels, copies, fills, empty nodes, child graphs of these, and conditional nodes.
    /// Other nodes are an error ([`Invalid::NotInBody`]) when they are added: host functions, event
    /// records and waits, allocations and frees, batches of memory operations, and kernels that run in
    /// another context than that of the handle. A body cannot be instantiated, cloned or moved.
    ///
    /// # If the function fails
    /// If `body` returns an error or panics, the node stays in the graph, with the nodes that were added
    /// to its bodies so far. Everything remains usable: [`edit_body`](Self::edit_body) continues, and
    /// [`nodes`](Self::nodes) lists the node. A conditional node cannot be [removed](Self::remove),
    /// because its handle would be left without a node.
    ///
    /// If `body` replaces its argument by another graph (`std::mem::swap`), this graph is leaked, and all
    /// its functions fail from then on.
    ///
    /// # Errors
    /// - [`Invalid::ConditionalHandleOfOtherGraph`]; [`Invalid::ConditionalHandleUsed`].
    /// - Errors of `body`; [`Invalid::BodyReplaced`].
    /// - See also [`add_empty`](Self::add_empty).
    ///
    /// Since CUDA 12.3. Raw: [`cuGraphAddNode_v2`](fn@cuda_sys::cuGraphAddNode_v2).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer, Graph, LaunchConfig, Module};
    /// use cuda_safe::graph::ConditionalHandle;
    ///
    /// # let ptx = "";
    /// let context = Context::primary(&Device::get(0)?)?;
    /// let stream = context.stream()?;
    /// let choose = Module::from_ptx(&context, ptx)?
    ///     .kernel("choose")?
    ///     .typed::<(ConditionalHandle, u32)>()?;
    ///
    /// let mut graph = Graph::new(&context)?;
    /// let mut data = graph.own(DeviceBuffer::<u8>::zeroed(&stream, 1000)?)?;
    /// let handle = graph.conditional_handle(&context, None)?;
    /// let one = LaunchConfig::linear(1, 1);
    /// // SAFETY: the kernel sets the handle of its graph to the value.
    /// let set = unsafe { graph.add_kernel(&[], &context, &choose, one, (handle, 1)) }?;
    /// graph.add_if(&[set.id()], handle, |body| {
    ///     body.add_fill(&[], &mut data, 7)?;
    ///     Ok(())
    /// })?;
    /// let mut executable = graph.instantiate()?;
    /// executable.launch(&stream)?;
    /// assert_eq!(executable.access(&mut data, &stream)?.as_slice().to_vec()?, [7; 1000]);
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[doc(alias = "cuGraphAddNode")]
    pub fn add_if(
        &mut self,
        dependencies: &[NodeId],
        handle: ConditionalHandle,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Node<kind::Conditional>> {
        let form = Form::CU_GRAPH_COND_TYPE_IF;
        let node = self.add_conditional(dependencies, handle, form, 1)?;
        self.edit_body(node, 0, body)?;
        Ok(node)
    }

    /// Adds a conditional node with two bodies: `then` runs if the value of the handle is not zero, and
    /// `otherwise` if it is. Calls `cuGraphAddNode`.
    ///
    /// The bodies may use the same memory, because one of them runs. If `then` fails, `otherwise` is not
    /// called.
    ///
    /// # Errors
    /// See [`add_if`](Self::add_if). In addition: [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 12.8. Raw: [`cuGraphAddNode_v2`](fn@cuda_sys::cuGraphAddNode_v2).
    #[doc(alias = "cuGraphAddNode")]
    pub fn add_if_else(
        &mut self,
        dependencies: &[NodeId],
        handle: ConditionalHandle,
        then: impl FnOnce(&mut Self) -> Result<()>,
        otherwise: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Node<kind::Conditional>> {
        require_branches("an else body of a conditional node")?;
        let form = Form::CU_GRAPH_COND_TYPE_IF;
        let node = self.add_conditional(dependencies, handle, form, 2)?;
        self.edit_body(node, 0, then)?;
        self.edit_body(node, 1, otherwise)?;
        Ok(node)
    }

    /// Adds a conditional node whose body runs repeatedly, as long as the value of the handle is not
    /// zero. Calls `cuGraphAddNode`.
    ///
    /// The value is read before each run. So it must not be zero before the first one, and a kernel in
    /// the body should set it to zero in the end. Each run starts when the one before is complete.
    ///
    /// A loop that never ends keeps the GPU busy until the process exits. Dropping its executable graph
    /// returns nevertheless, and its objects are then never released.
    ///
    /// # Errors
    /// See [`add_if`](Self::add_if).
    ///
    /// Since CUDA 12.3. Raw: [`cuGraphAddNode_v2`](fn@cuda_sys::cuGraphAddNode_v2).
    #[doc(alias = "cuGraphAddNode")]
    pub fn add_while(
        &mut self,
        dependencies: &[NodeId],
        handle: ConditionalHandle,
        body: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<Node<kind::Conditional>> {
        let form = Form::CU_GRAPH_COND_TYPE_WHILE;
        let node = self.add_conditional(dependencies, handle, form, 1)?;
        self.edit_body(node, 0, body)?;
        Ok(node)
    }

    /// Adds a conditional node with `count` bodies: the value of the handle is the index of the body that
    /// runs. No body runs if the value is `count` or more. Calls `cuGraphAddNode`.
    ///
    /// `body` is called for each index. It gets the index and the body. The bodies may use the same
    /// memory, because at most one of them runs.
    ///
    /// # Errors
    /// See [`add_if`](Self::add_if). In addition: [`Invalid::NoBodies`] if `count` is zero;
    /// [`Invalid::NeedsNewerDriver`].
    ///
    /// Since CUDA 12.8. Raw: [`cuGraphAddNode_v2`](fn@cuda_sys::cuGraphAddNode_v2).
    #[doc(alias = "cuGraphAddNode")]
    pub fn add_switch(
        &mut self,
        dependencies: &[NodeId],
        handle: ConditionalHandle,
        count: u32,
        mut body: impl FnMut(u32, &mut Self) -> Result<()>,
    ) -> Result<Node<kind::Conditional>> {
        refuse_if!(count == 0, Invalid::NoBodies);
        require_branches("a switch")?;
        let form = Form::CU_GRAPH_COND_TYPE_SWITCH;
        let node = self.add_conditional(dependencies, handle, form, count)?;
        for index in 0..count {
            self.edit_body(node, index, |graph| body(index, graph))?;
        }
        Ok(node)
    }

    /// Adds a conditional node with empty bodies.
    #[inline]
    fn add_conditional(
        &mut self,
        dependencies: &[NodeId],
        handle: ConditionalHandle,
        form: Form,
        count: u32,
    ) -> Result<Node<kind::Conditional>> {
        let slots = self.slots();
        let conditional = slots.conditional();
        let conditional = conditional.filter(|its| its.root == handle.graph);
        let Some(conditional) = conditional else {
            return Err(Invalid::ConditionalHandleOfOtherGraph {
                handle: handle.graph,
                graph: slots.root(),
            }
            .into());
        };
        let handles = Arc::clone(&conditional.handles);
        let home = handles.unused(handle.raw)?;
        let retained = Retained::ExecutionContext(home.clone());
        let mut content = Content::new::<kind::Conditional>(vec![retained.clone()]);
        let mut parameters = CUgraphNodeParams {
            type_: Type::CU_GRAPH_NODE_TYPE_CONDITIONAL,
            ..CUgraphNodeParams::default()
        };
        parameters.__bindgen_anon_1.conditional = CUDA_CONDITIONAL_NODE_PARAMS {
            handle: handle.raw,
            type_: form,
            size: count,
            phGraph_out: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let none = std::ptr::null();
        let node =
            self.add_node(dependencies, &mut content, |(node, graph, dependencies, count)| {
                home.with_current(|| {
                    // SAFETY: the type of the parameters selects this field.
                    unsafe { &mut parameters.__bindgen_anon_1.conditional }.ctx = current()?;
                    let parameters = &raw mut parameters;
                    // SAFETY: the graph and the nodes are alive, `dependencies` has `count` of them without
                    // edge data, and the node is a local variable. The handle belongs to the graph, and a
                    // context is current.
                    unsafe {
                        call!(cuGraphAddNode_v2(node, graph, dependencies, none, count, parameters))
                    }
                })
            })?;
        // SAFETY: the type of the parameters selects this field.
        let bodies = unsafe { parameters.__bindgen_anon_1.conditional }.phGraph_out;
        // SAFETY: the driver returned an array with as many graphs as were requested, which belongs to the
        // node.
        let bodies = unsafe { std::slice::from_raw_parts(bodies, count as usize) };
        self.note_bodies(node.id(), &retained, bodies);
        handles.note_node(handle.raw, self.slots().describe(node.id()));
        Ok(node)
    }
}

/// Returns an error if the driver has neither `else` bodies nor switches.
#[inline]
fn require_branches(what: &'static str) -> Result<()> {
    let driver = init::version()?;
    match driver < BRANCHES_SINCE {
        true => Err(Invalid::NeedsNewerDriver { what, since: BRANCHES_SINCE, driver }.into()),
        false => Ok(()),
    }
}

impl Handles {
    /// Returns the context of a handle that no node uses.
    ///
    /// # Errors
    /// [`Invalid::ConditionalHandleUsed`].
    #[inline]
    fn unused(&self, raw: CUgraphConditionalHandle) -> Result<ExecutionContext> {
        let handles = lock(&self.0);
        let found = handles.iter().find(|its| its.raw == raw);
        // The handle belongs to the graph, so it is listed.
        let node = found.map(|its| its.node.clone()).unwrap_or_default();
        match (found, node) {
            (Some(its), None) => Ok(its.home.clone()),
            (_, node) => {
                Err(Invalid::ConditionalHandleUsed { node: node.unwrap_or_default() }.into())
            }
        }
    }

    #[inline]
    fn note_node(&self, raw: CUgraphConditionalHandle, node: String) {
        if let Some(its) = lock(&self.0).iter_mut().find(|its| its.raw == raw) {
            its.node = Some(node);
        }
    }
}

impl Conditional {
    #[inline]
    pub(crate) fn root(&self) -> u64 {
        self.root
    }

    #[inline]
    pub(crate) fn is_body(&self) -> bool {
        self.body.is_some()
    }

    /// Returns the conditional nodes of this graph or body.
    #[inline]
    pub(crate) fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// Returns an error if a node of the kind `K` with this content cannot be in this graph.
    ///
    /// # Errors
    /// [`Invalid::NotInBody`].
    pub(crate) fn check_node<K: Kind>(&self, content: ContentRef<'_>) -> Result<()> {
        let Some(body) = &self.body else { return Ok(()) };
        let reason = match refused_in_body(content) {
            Some(reason) => reason,
            None if K::TYPE == kind::Kernel::TYPE => {
                let is_home = |its: &Retained| its.is_same(&body.home);
                let mut owners = content.owners.iter();
                let is_elsewhere = |its: &Retained| match its {
                    Retained::ExecutionContext(_) => !is_home(its),
                    _ => false,
                };
                match owners.any(is_elsewhere) {
                    true => "it runs in another context than the conditional node",
                    false => return Ok(()),
                }
            }
            None => return Ok(()),
        };
        Err(Invalid::NotInBody { node: K::TYPE.to_string(), reason }.into())
    }
}

/// Returns why a node cannot be in a body, whatever its context.
#[inline]
fn refused_in_body(content: ContentRef<'_>) -> Option<&'static str> {
    match content.node_type.0 {
        Type::CU_GRAPH_NODE_TYPE_KERNEL
        | Type::CU_GRAPH_NODE_TYPE_MEMCPY
        | Type::CU_GRAPH_NODE_TYPE_MEMSET
        | Type::CU_GRAPH_NODE_TYPE_EMPTY
        | Type::CU_GRAPH_NODE_TYPE_CONDITIONAL => None,
        Type::CU_GRAPH_NODE_TYPE_GRAPH => {
            let mut nodes = content.child?.iter();
            let is_refused = nodes.any(|(_, node)| refused_in_body(node.content).is_some());
            is_refused.then_some("it contains nodes of such a kind")
        }
        _ => Some("the driver does not support nodes of this kind there"),
    }
}

impl Slots {
    /// Returns an error if the graph has conditional handles.
    ///
    /// # Errors
    /// [`Invalid::GraphHasConditionals`].
    #[inline]
    pub(crate) fn refuse_conditionals(&self, what: &'static str) -> Result<()> {
        match &self.conditional {
            None => Ok(()),
            Some(_) => Err(Invalid::GraphHasConditionals { what }.into()),
        }
    }

    /// Returns an error if this is a body, or if a handle has no node.
    ///
    /// # Errors
    /// [`Invalid::GraphHasConditionals`]; [`Invalid::ConditionalHandleWithoutNode`].
    #[inline]
    pub(crate) fn check_conditionals(&self) -> Result<()> {
        let Some(conditional) = &self.conditional else { return Ok(()) };
        if conditional.body.is_some() {
            return self.refuse_conditionals("be instantiated, because it is a body");
        }
        let handles = lock(&conditional.handles.0);
        let unused = handles.iter().filter(|its| its.node.is_none()).count();
        drop(handles);
        match unused {
            0 => Ok(()),
            count => Err(Invalid::ConditionalHandleWithoutNode { count }.into()),
        }
    }
}

impl Graph {
    /// Returns an error if the graph has conditional handles.
    ///
    /// # Errors
    /// [`Invalid::GraphHasConditionals`].
    #[inline]
    pub(crate) fn refuse_conditionals(&self, what: &'static str) -> Result<()> {
        self.slots().refuse_conditionals(what)
    }
}

impl Graph {
    /// Changes a body of a conditional node: `edit` gets the body as a graph. See
    /// [`add_if`](Self::add_if) for what it can contain, and for errors of `edit`.
    ///
    /// The node may be in a body of this graph itself.
    /// [`Stream::capture_into_body`](crate::Stream::capture_into_body) adds captured work.
    ///
    /// Executable graphs are not affected.
    ///
    /// # Errors
    /// - [`Invalid::NoSuchBody`]; [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    /// - Errors of `edit`; [`Invalid::BodyReplaced`].
    pub fn edit_body<R>(
        &mut self,
        node: Node<kind::Conditional>,
        index: u32,
        edit: impl FnOnce(&mut Self) -> Result<R>,
    ) -> Result<R> {
        let (place, body) = self.open_body(node, index)?;
        let mut open = OpenBody { graph: self, place, body };
        let edited = edit(&mut open.body);
        drop(open);
        refuse_if!(self.raw.is_null(), Invalid::BodyReplaced);
        edited
    }

    /// Returns a body of a conditional node as a graph, with its place for
    /// [`close_body`](Self::close_body). This graph must not be used before.
    ///
    /// # Errors
    /// [`Invalid::NoSuchBody`]; [`Invalid::OtherGraphNode`]; [`Invalid::NoSuchNode`].
    #[inline]
    pub(crate) fn open_body(
        &self,
        node: Node<kind::Conditional>,
        index: u32,
    ) -> Result<(BodyPlace, Self)> {
        let id = node.id();
        let slots = self.slots().level_of(id);
        slots.get(id)?;
        let opened = slots.body(id, index as usize).and_then(|body| {
            let raw = body.conditional()?.body.as_ref()?.raw.0;
            Some((raw, Arc::clone(body)))
        });
        let Some((raw, mut body)) = opened else {
            return Err(Invalid::NoSuchBody {
                node: slots.describe(id),
                index,
                count: slots.body_count(id),
            }
            .into());
        };
        let place = BodyPlace { node, index, raw, number: body.number() };
        let changed = Arc::make_mut(&mut body);
        // The memory of the graph can be used in the body.
        changed.orders.clone_from(&self.slots().orders);
        // `assume_owned` may have covered what was captured before.
        changed.borrows_memory = false;
        let body = Self {
            raw,
            ownership: Ownership::Borrowed,
            owners: GraphOwners { slots: body, context: self.context().clone() },
            room: None,
        };
        Ok((place, body))
    }

    /// Makes the nodes of a body a part of this graph. If `body` is not the graph that
    /// [`open_body`](Self::open_body) returned, this graph is leaked.
    #[inline]
    pub(crate) fn close_body(&mut self, place: &BodyPlace, body: &Self) {
        let slots = &body.owners.slots;
        if body.raw != place.raw || slots.number() != place.number {
            // The body was moved out. The value may be used on any thread from now on, so the graph
            // around it must neither be used nor destroyed.
            self.leak();
            return;
        }
        let slots = Arc::clone(slots);
        let (node, index) = (place.node.id(), place.index as usize);
        self.slots_mut().set_body(node, index, slots);
    }

    /// Notes the empty bodies of a new conditional node.
    #[inline]
    fn note_bodies(&mut self, node: NodeId, home: &Retained, bodies: &[CUgraph]) {
        let slots = self.slots_mut();
        let Some(conditional) = slots.conditional.as_deref_mut() else { return };
        conditional.nodes.push(node);
        let (root, handles) = (conditional.root, Arc::clone(&conditional.handles));
        let bodies = bodies.iter().map(|raw| {
            let mut body = Slots::new(vec![home.clone()]);
            body.conditional = Some(Box::new(Conditional {
                root,
                handles: Arc::clone(&handles),
                body: Some(Body { raw: RawGraph(*raw), home: home.clone() }),
                nodes: Vec::new(),
            }));
            Arc::new(body)
        });
        let chain = Arc::new(Slots::chain(bodies));
        if let Some(child) = slots.child_mut(node) {
            *child = Some(chain);
        }
    }

    /// Leaks the graph and all objects that its nodes use. From then on it has a null handle and no
    /// nodes, so all calls fail.
    #[cold]
    #[inline]
    fn leak(&mut self) {
        count_leak();
        self.raw = std::ptr::null_mut();
        std::mem::forget(std::mem::replace(&mut self.ownership, Ownership::Owned));
        let none = Arc::new(Slots::new(Vec::new()));
        std::mem::forget(std::mem::replace(&mut self.owners.slots, none));
    }
}

/// The place of an open body in the graph around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BodyPlace {
    pub(crate) node: Node<kind::Conditional>,
    pub(crate) index: u32,
    raw: CUgraph,
    /// The number of the body.
    number: u64,
}

/// A body while a function changes it.
struct OpenBody<'a> {
    /// The graph that contains the body.
    graph: &'a mut Graph,
    place: BodyPlace,
    body: Graph,
}

impl Drop for OpenBody<'_> {
    /// Makes the nodes of the body a part of the graph around it, also if the function failed or panicked.
    #[inline]
    fn drop(&mut self) {
        self.graph.close_body(&self.place, &self.body);
    }
}
