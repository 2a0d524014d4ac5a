//! Graphs: captured work that can be launched repeatedly.
//!
//! A [`Graph`] is created by a [capture](crate::Stream::capture). Instantiating it creates an
//! [`ExecutableGraph`], which a stream runs as one unit of work. There is no safe API yet to access or
//! modify the nodes of a graph; use [`Graph::as_raw`] with the functions in [`sys`](crate::sys).
//!
//! A graph keeps the contexts of its streams alive, but not the buffers and modules that it uses, so
//! launching it is `unsafe`.

use crate::base::call::{Answer, answer, call, without_current};
use crate::base::capture::Operation;
use crate::base::capture::Retain;
use crate::base::current::ContextHandle;
use crate::base::error::Result;
use crate::base::ownership::{Ownership, expect_handle};
use crate::base::release::{self, Destroy, Handle, KeepAlive, release};
use crate::driver::context::Context;
use crate::driver::stream::{ExecutionContext, Retained, Stream, same_context};
use cuda_sys::{CUgraph, CUgraph_st, CUgraphExec, CUgraphExec_st};
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A CUDA graph (`CUgraph`): captured work, created by [`Stream::capture`].
///
/// A graph cannot be launched itself; [`instantiate`](Self::instantiate) creates an executable graph.
///
/// The graph, and each executable graph created from it, keeps these objects alive: the contexts and
/// green contexts of all streams that took part in the capture, and the events of
/// [external](crate::Event::record_external) records and waits. For streams with a foreign owner and
/// streams of a [pool](crate::green::GreenPool), it keeps the streams themselves alive.
///
/// Destroying it (`cuGraphDestroy`) waits for nothing. It is not `Sync`, because the driver does not
/// lock graphs.
///
/// Raw: [`cuGraphDestroy`](fn@cuda_sys::cuGraphDestroy).
#[doc(alias = "cuGraphDestroy")]
pub struct Graph {
    owned: Owned<CUgraph_st>,
}

/// An executable graph (`CUgraphExec`), which streams can launch. Created by [`Graph::instantiate`].
///
/// Destroying it waits for nothing (driver 580), and running launches continue. But if foreign code
/// added conditional nodes to the graph, the driver waits for *all* running work. It is not `Sync`,
/// because the driver does not lock graphs.
///
/// ```no_run
/// use cuda_safe::{CaptureMode, Context, Device, DeviceBuffer};
///
/// let stream = Context::primary(&Device::get(0)?)?.stream()?;
/// let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 1000)?;
/// let graph = stream.capture(CaptureMode::ThreadLocal, |_| buffer.fill(7))?.instantiate()?;
/// for _ in 0..10 {
///     // SAFETY: the buffer is alive until the work is done, and used on this stream only.
///     unsafe { graph.launch(&stream) }?;
/// }
/// stream.synchronize()?;
/// # Ok::<_, cuda_safe::Error>(())
/// ```
pub struct ExecutableGraph {
    owned: Owned<CUgraphExec_st>,
}

impl Graph {
    /// Takes ownership of a new graph of work on a stream with this retained object.
    pub(crate) fn new_owned(raw: CUgraph, own: Retained) -> Self {
        let retained = RetainedObjects::of(own);
        let owned = Owned {
            raw,
            ownership: Ownership::Owned,
            retained,
        };
        Self { owned }
    }

    /// Adds retained objects.
    pub(crate) fn with_retained(mut self, others: Vec<Arc<dyn Retain>>) -> Self {
        self.owned.retained.others = others.into();
        self
    }

    /// Takes ownership of `raw`. The graph is destroyed when the returned object is dropped.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live graph that is not a child of another graph, and no other code may destroy
    /// or use it. Its work must belong to `context`, or to contexts and green contexts that outlive the
    /// returned object and the executable graphs created from it. The events and modules that it uses
    /// must outlive them too.
    pub unsafe fn from_raw(raw: CUgraph, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Owned)
    }

    /// Wraps a graph that foreign code owns, or a child graph, which belongs to its parent. It is never
    /// destroyed here.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live graph that stays alive until the returned object is dropped, and that no
    /// other thread uses at the same time as the returned object. Its contexts, events and modules must
    /// be alive as for [`from_raw`](Self::from_raw).
    pub unsafe fn borrow_raw(raw: CUgraph, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Borrowed)
    }

    /// Wraps a graph that `owner` keeps alive. It is never destroyed here. `owner` is dropped after the
    /// returned object.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if `raw` is null. `owner` is then dropped.
    ///
    /// # Safety
    /// The conditions of [`borrow_raw`](Self::borrow_raw), but `owner` keeps the graph alive.
    pub unsafe fn from_foreign(
        raw: CUgraph,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Foreign(Box::new(owner)))
    }

    /// Wraps a graph that foreign code created.
    fn wrap(raw: CUgraph, context: &Context, ownership: Ownership) -> Result<Self> {
        let owned = Owned::wrap("graph", raw, context, ownership)?;
        Ok(Self { owned })
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    ///
    /// Its nodes expose the handles of events. See [`Event::as_raw`](crate::Event::as_raw).
    pub fn as_raw(&self) -> CUgraph {
        self.owned.as_raw()
    }

    /// Releases ownership. The caller must destroy the graph while its context, and everything else
    /// that the graph [kept alive](Graph), is still alive.
    pub fn into_raw(self) -> (CUgraph, Context) {
        self.owned.into_raw()
    }

    /// Returns the context in which the graph was captured.
    pub fn context(&self) -> &Context {
        self.owned.context()
    }

    /// Creates an executable copy of the graph. Calls `cuGraphInstantiateWithFlags`. This graph may
    /// then be dropped.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; errors of the driver about the graph.
    ///
    /// Since CUDA 11.4. Raw: [`cuGraphInstantiateWithFlags`](fn@cuda_sys::cuGraphInstantiateWithFlags),
    /// [`cuGraphExecDestroy`](fn@cuda_sys::cuGraphExecDestroy).
    #[doc(alias = "cuGraphInstantiateWithFlags")]
    #[doc(alias = "cuGraphExecDestroy")]
    pub fn instantiate(&self) -> Result<ExecutableGraph> {
        release::drain();
        let mut raw = std::ptr::null_mut();
        let _current = self.context().enter()?;
        // SAFETY: the graph is alive and used only by this thread, and the pointer refers to a local
        // variable.
        unsafe { call!(cuGraphInstantiateWithFlags(&raw mut raw, self.owned.raw, 0)) }?;
        let owned = Owned {
            raw,
            ownership: Ownership::Owned,
            retained: self.owned.retained.clone(),
        };
        Ok(ExecutableGraph { owned })
    }
}

impl ExecutableGraph {
    /// Takes ownership of `raw`. The executable graph is destroyed when the returned object is dropped.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live executable graph, and no other code may destroy or use it. Its work must
    /// belong to `context`, or to contexts and green contexts that outlive the returned object. The
    /// events and modules that it uses must outlive the returned object too.
    pub unsafe fn from_raw(raw: CUgraphExec, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Owned)
    }

    /// Wraps an executable graph that foreign code owns, such as PyTorch. It is never destroyed here.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if `raw` is null.
    ///
    /// # Safety
    /// `raw` must be a live executable graph that stays alive until the returned object is dropped, and
    /// that no other thread uses at the same time as the returned object. Its contexts, events and
    /// modules must be alive as for [`from_raw`](Self::from_raw).
    pub unsafe fn borrow_raw(raw: CUgraphExec, context: &Context) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Borrowed)
    }

    /// Wraps an executable graph that `owner` keeps alive. It is never destroyed here. `owner` is
    /// dropped after the returned object.
    ///
    /// # Errors
    /// [`Invalid::Handle`](crate::Invalid::Handle) if `raw` is null. `owner` is then dropped.
    ///
    /// # Safety
    /// The conditions of [`borrow_raw`](Self::borrow_raw), but `owner` keeps the executable graph alive.
    pub unsafe fn from_foreign(
        raw: CUgraphExec,
        context: &Context,
        owner: impl Any + Send + Sync,
    ) -> Result<Self> {
        Self::wrap(raw, context, Ownership::Foreign(Box::new(owner)))
    }

    /// Wraps an executable graph that foreign code created.
    fn wrap(raw: CUgraphExec, context: &Context, ownership: Ownership) -> Result<Self> {
        let owned = Owned::wrap("executable graph", raw, context, ownership)?;
        Ok(Self { owned })
    }

    /// Returns the raw handle without giving up ownership. Do not destroy it.
    pub fn as_raw(&self) -> CUgraphExec {
        self.owned.as_raw()
    }

    /// Releases ownership. The caller must destroy the executable graph while its context, and
    /// everything else that the graph [kept alive](Graph), is still alive.
    pub fn into_raw(self) -> (CUgraphExec, Context) {
        self.owned.into_raw()
    }

    /// Returns the context in which the work of the graph was captured.
    pub fn context(&self) -> &Context {
        self.owned.context()
    }

    /// Enqueues all work of the graph as one unit on a stream. Calls `cuGraphLaunch`.
    ///
    /// Launches of one executable graph run one after another, even on different streams.
    ///
    /// # Errors
    /// The stream belongs to another context;
    /// [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), because a driver (580) refuses
    /// such a launch and invalidates the capture; errors of earlier work.
    ///
    /// # Safety
    /// A launch is equivalent to enqueuing all captured work on `stream` now, with the addresses,
    /// values and handles of the capture. Until the launch is complete:
    /// - the buffers, and the modules of the kernels, must be alive;
    /// - no other work, and no host code, may use these buffers in a way that races with the launch:
    ///   either the buffers are bound to `stream`, or the caller orders the accesses;
    /// - the safety conditions of the captured kernel launches must hold for each run, including the
    ///   bits that the kernels leave in buffers;
    /// - host memory and host functions, which only code outside this crate can have captured, must be
    ///   usable again.
    ///
    /// The SMs are those of the capture too: each kernel runs on the SMs of the stream on which it was
    /// captured, in that stream's [green context](crate::green) if it has one. Launching into a stream
    /// of a green context does not confine a graph to it; capturing on such a stream does.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphLaunch`](fn@cuda_sys::cuGraphLaunch).
    #[doc(alias = "cuGraphLaunch")]
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        same_context("the graph", self.context(), stream.context())?;
        let _call = stream.uncaptured(Operation::Launch)?;
        without_current(stream.context(), || {
            // SAFETY: the graph and the stream are alive. The caller guarantees the rest.
            unsafe { answer!(cuGraphLaunch(self.owned.raw, stream.raw())) }
        })
    }
}

/// The objects that must outlive a graph and the executable graphs created from it.
#[derive(Clone)]
struct RetainedObjects {
    /// The object retained for the captured stream.
    own: Retained,
    others: Arc<[Arc<dyn Retain>]>,
}

impl RetainedObjects {
    fn of(own: Retained) -> Self {
        let others = Arc::new([]);
        Self { own, others }
    }

    fn of_context(context: &Context) -> Self {
        Self::of(Retained::ExecutionContext(ExecutionContext::Context(
            context.clone(),
        )))
    }

    /// Marks the handles of retained events as known to foreign code, which can find them in the graph.
    fn share_events(&self) {
        self.others.iter().for_each(|object| object.publish());
    }
}

impl KeepAlive for RetainedObjects {
    fn context(&self) -> Option<&dyn ContextHandle> {
        Some(self.own.context())
    }

    fn is_borrowed(&self) -> bool {
        self.own.is_borrowed() || self.others.iter().any(|object| object.is_borrowed())
    }

    fn keep(&self) -> Box<dyn KeepAlive + Send> {
        Box::new(self.clone())
    }
}

impl Destroy for Handle<CUgraph> {
    fn name(&self) -> &'static str {
        "a graph"
    }

    unsafe fn destroy(&self) -> Answer {
        // SAFETY: the handle stands for the graph, and the caller promises that this is the first call.
        // Executable graphs are copies.
        unsafe { answer!(cuGraphDestroy(self.0)) }
    }
}

impl Destroy for Handle<CUgraphExec> {
    fn name(&self) -> &'static str {
        "an executable graph"
    }

    unsafe fn destroy(&self) -> Answer {
        // SAFETY: the handle stands for the executable graph, and the caller promises that this is the
        // first call. Its launches continue with the objects that they require.
        unsafe { answer!(cuGraphExecDestroy(self.0)) }
    }
}

/// The handle of a graph or an executable graph, and the objects that must outlive it. Dropping it
/// destroys the graph.
struct Owned<T>
where
    Handle<*mut T>: Destroy,
{
    /// Null if ownership was released.
    raw: *mut T,
    ownership: Ownership,
    retained: RetainedObjects,
}

// SAFETY: the driver allows any thread to use a graph, one thread at a time.
unsafe impl<T> Send for Owned<T> where Handle<*mut T>: Destroy {}

impl<T> Owned<T>
where
    Handle<*mut T>: Destroy,
{
    /// Wraps a handle that foreign code created.
    fn wrap(
        what: &'static str,
        raw: *mut T,
        context: &Context,
        ownership: Ownership,
    ) -> Result<Self> {
        expect_handle(what, raw)?;
        Ok(Self {
            raw,
            ownership,
            retained: RetainedObjects::of_context(context),
        })
    }

    fn as_raw(&self) -> *mut T {
        self.retained.share_events();
        self.raw
    }

    fn into_raw(mut self) -> (*mut T, Context) {
        self.retained.share_events();
        let raw = std::mem::replace(&mut self.raw, std::ptr::null_mut());
        // A foreign owner keeps the handle alive until the process exits.
        std::mem::forget(std::mem::replace(&mut self.ownership, Ownership::Owned));
        (raw, self.context().clone())
    }

    fn context(&self) -> &Context {
        self.retained.own.context()
    }
}

impl<T> Drop for Owned<T>
where
    Handle<*mut T>: Destroy,
{
    fn drop(&mut self) {
        if !self.raw.is_null() && self.ownership.is_owned() {
            release(Handle(self.raw), &self.retained);
        }
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("raw", &self.owned.raw)
            .field("context", self.context())
            .finish()
    }
}

impl fmt::Debug for ExecutableGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutableGraph")
            .field("raw", &self.owned.raw)
            .field("context", self.context())
            .finish()
    }
}
