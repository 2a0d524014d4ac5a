//! Graphs: work that was recorded once and is launched as often as one likes.
//!
//! A [`Graph`] comes out of a [capture](crate::Stream::capture), and is made into an
//! [`ExecutableGraph`], which a stream runs as one piece of work. Its nodes, and changing them, have
//! no safe form yet; with [`Graph::as_raw`] the functions in [`sys`](crate::sys) can do that.
//!
//! A graph holds where its work runs, and not the buffers and modules that it uses: launching one is
//! `unsafe`.

use crate::call::{answer, call, without_current};
use crate::capture::Operation;
use crate::context::Context;
use crate::error::Result;
use crate::release::{self, Parent, Resource, release};
use crate::stream::{Home, Need, Stream, same_context};
use cuda_sys::{CUgraph, CUgraphExec};
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// `CUgraph`: recorded work, of [`Stream::capture`]. It cannot run itself:
/// [`instantiate`](Self::instantiate) makes it into what can.
///
/// It, and what is made of it, holds the contexts and green contexts of all streams that took part in
/// the capture (streams that others keep, and those of a [pool](crate::green::GreenPool), themselves),
/// and the events of [external](crate::Event::record_external) records and waits.
///
/// Destroying it (`cuGraphDestroy`) waits for nothing. Not `Sync`: the driver does not lock graphs.
///
/// Raw: [`cuGraphDestroy`](fn@cuda_sys::cuGraphDestroy).
#[doc(alias = "cuGraphDestroy")]
pub struct Graph {
    raw: CUgraph,
    needs: Needs,
}

/// `CUgraphExec`: a graph that streams run, of [`Graph::instantiate`].
///
/// Destroying it waits for nothing (driver 580): its launches go on. Not `Sync`, as for [`Graph`].
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
    raw: CUgraphExec,
    needs: Needs,
}

// SAFETY: the driver lets any thread use a graph, one at a time.
unsafe impl Send for Graph {}
// SAFETY: as above.
unsafe impl Send for ExecutableGraph {}

impl Graph {
    /// A graph just made, of work on a stream that has this need.
    pub(crate) fn own(raw: CUgraph, own: Need) -> Self {
        let needs = Needs::of(own);
        Self { raw, needs }
    }

    /// It needs these as well.
    pub(crate) fn with_needs(mut self, others: Vec<Need>) -> Self {
        self.needs.others = others.into();
        self
    }

    /// Takes over a graph: it is destroyed with this.
    ///
    /// # Safety
    /// `raw` is a graph that is alive, is no child of another, and nobody else destroys or uses it;
    /// its work is of `context`, or of contexts and green contexts that outlive this and what is made
    /// of it, as do the events and modules that it uses.
    pub unsafe fn from_raw(raw: CUgraph, context: &Context) -> Self {
        Self::own(raw, Need::Home(Home::Context(context.clone())))
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    ///
    /// Its nodes tell the handles of events: see [`Event::as_raw`](crate::Event::as_raw).
    pub fn as_raw(&self) -> CUgraph {
        self.needs.share_events();
        self.raw
    }

    /// Gives the graph out: destroying it is now the caller's, while the context is alive, and what
    /// else it [held](Graph).
    pub fn into_raw(self) -> (CUgraph, Context) {
        self.needs.share_events();
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used any more, so this is taken out once.
        let needs = unsafe { std::ptr::read(&raw mut this.needs) };
        (this.raw, needs.own.context().clone())
    }

    /// The context that it was recorded in.
    pub fn context(&self) -> &Context {
        self.needs.own.context()
    }

    /// `cuGraphInstantiate(&executable, graph, 0)`: a copy of the graph that can be launched; this
    /// one may be dropped.
    ///
    /// # Errors
    /// `CUDA_ERROR_OUT_OF_MEMORY`; what is wrong with the graph.
    ///
    /// Since CUDA 11.4 (`cuGraphInstantiateWithFlags`). Raw:
    /// [`cuGraphInstantiateWithFlags`](fn@cuda_sys::cuGraphInstantiateWithFlags),
    /// [`cuGraphExecDestroy`](fn@cuda_sys::cuGraphExecDestroy).
    #[doc(alias = "cuGraphInstantiateWithFlags")]
    #[doc(alias = "cuGraphExecDestroy")]
    pub fn instantiate(&self) -> Result<ExecutableGraph> {
        release::drain();
        let mut raw = std::ptr::null_mut();
        let _current = self.context().enter()?;
        // SAFETY: the graph is alive and used by this thread alone, and the pointer is to a local.
        unsafe { call!(cuGraphInstantiateWithFlags(&raw mut raw, self.raw, 0)) }?;
        Ok(ExecutableGraph {
            raw,
            needs: self.needs.clone(),
        })
    }
}

impl ExecutableGraph {
    /// Takes over an executable graph: it is destroyed with this.
    ///
    /// # Safety
    /// `raw` is an executable graph that is alive, and nobody else destroys or uses it; its work is
    /// of `context`, or of contexts and green contexts that outlive this, as do the events and modules
    /// that it uses.
    pub unsafe fn from_raw(raw: CUgraphExec, context: &Context) -> Self {
        Self {
            raw,
            needs: Needs::of(Need::Home(Home::Context(context.clone()))),
        }
    }

    /// The driver's handle. It stays this object's: do not destroy it.
    pub fn as_raw(&self) -> CUgraphExec {
        self.needs.share_events();
        self.raw
    }

    /// Gives the graph out: destroying it is now the caller's, while the context is alive, and what
    /// else it [held](Graph).
    pub fn into_raw(self) -> (CUgraphExec, Context) {
        self.needs.share_events();
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used any more, so this is taken out once.
        let needs = unsafe { std::ptr::read(&raw mut this.needs) };
        (this.raw, needs.own.context().clone())
    }

    /// The context that its work was recorded in.
    pub fn context(&self) -> &Context {
        self.needs.own.context()
    }

    /// `cuGraphLaunch(executable, stream)`: gives all of the graph's work to the stream, as one
    /// piece of work. Launches of one executable graph run one after the other, also on different
    /// streams.
    ///
    /// # Errors
    /// A stream of another context; [`Invalid::StreamIsCaptured`](crate::Invalid::StreamIsCaptured), as
    /// a driver (580) refuses the launch and breaks the capture; those of earlier work.
    ///
    /// # Safety
    /// It is as if all that was recorded were given to `stream` now, with the very addresses, values
    /// and handles of then. So until the launch is done,
    /// - the buffers and the modules of the kernels are alive,
    /// - no other work, nor the host, uses these buffers in a way that races with it: buffers are
    ///   bound to `stream`, or whoever launches sees to an order,
    /// - what the kernels' launches promised is true of each run, the bits that they leave in
    ///   buffers included,
    /// - host memory and host functions, which only code outside of this crate can have recorded, may
    ///   be used again.
    ///
    /// The SMs are those of then, too: each kernel runs where the stream that it was recorded on has
    /// its own, in the [green context](crate::green) of that or in none. Launching into a stream of a
    /// green context does not confine a graph to it; recording on one does.
    ///
    /// Since CUDA 10.0. Raw: [`cuGraphLaunch`](fn@cuda_sys::cuGraphLaunch).
    #[doc(alias = "cuGraphLaunch")]
    pub unsafe fn launch(&self, stream: &Stream) -> Result<()> {
        same_context("the graph", self.context(), stream.context())?;
        let _call = stream.uncaptured(Operation::Launch)?;
        without_current(stream.context(), || {
            // SAFETY: the graph and the stream are alive; the rest is the caller's promise.
            unsafe { answer!(cuGraphLaunch(self.raw, stream.raw())) }
        })
    }
}

/// What has to outlive a graph, and what is made of it.
#[derive(Clone)]
struct Needs {
    /// Of the stream that was captured.
    own: Need,
    others: Arc<[Need]>,
}

impl Needs {
    fn of(own: Need) -> Self {
        let others = Arc::default();
        Self { own, others }
    }

    /// Other code can find the handles of retained events.
    fn share_events(&self) {
        for need in &*self.others {
            if let Need::Event(event) = need {
                event.as_raw();
            }
        }
    }
}

impl Parent for Needs {
    fn context(&self) -> Option<&Context> {
        Some(self.own.context())
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.own.is_borrowed() || self.others.iter().any(Need::is_borrowed)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        release(Resource::Graph(self.raw), &self.needs);
    }
}

impl Drop for ExecutableGraph {
    fn drop(&mut self) {
        release(Resource::ExecutableGraph(self.raw), &self.needs);
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Graph")
            .field("raw", &self.raw)
            .field("context", self.context())
            .finish()
    }
}

impl fmt::Debug for ExecutableGraph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutableGraph")
            .field("raw", &self.raw)
            .field("context", self.context())
            .finish()
    }
}
