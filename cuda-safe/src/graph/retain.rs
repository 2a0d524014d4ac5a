//! Objects of the user that a graph keeps alive.

use super::{ExecutableGraph, Graph};
use crate::call::debug_struct;
use crate::capture_state::Retain;
use crate::graph::Retained;
use std::any::Any;
use std::sync::Arc;

/// An object of the user.
pub(crate) struct UserObject(Arc<dyn Any + Send + Sync>);

impl UserObject {
    #[inline]
    pub(crate) fn retained(object: Arc<dyn Any + Send + Sync>) -> Arc<dyn Retain> {
        Arc::new(Self(object))
    }

    /// Returns whether a graph retains an object only because of [`Graph::retain`] or
    /// [`Stream::enqueue_retaining`](crate::Stream::enqueue_retaining).
    #[inline]
    pub(super) fn is_in(retained: &Retained) -> bool {
        matches!(retained, Retained::Object(object) if object.as_any().is::<Self>())
    }
}

impl Retain for UserObject {
    #[inline]
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[inline]
    fn is_same(&self, other: &dyn Retain) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| Arc::ptr_eq(&self.0, &other.0))
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        false
    }

    #[inline]
    fn publish(&self) {}
}

debug_struct! { UserObject |_its| { .. } }

impl Graph {
    /// Keeps an object alive as long as the graph, and until the launches of its executable graphs are
    /// complete.
    ///
    /// The executable graphs that are instantiated or updated from this graph from now on share the
    /// object. After [`ExecutableGraph::update`] from another graph, only the earlier launches use it.
    /// The last owner drops it. This can happen on any thread, in a later call that creates, copies or
    /// synchronizes.
    ///
    /// A graph with everything that its nodes use can be launched by safe code: see
    /// [`assume_owned`](Self::assume_owned).
    ///
    /// ```no_run
    /// use cuda_safe::{Context, Device, DeviceBuffer};
    /// use cuda_safe::capture::CaptureMode;
    /// use std::sync::{Arc, Mutex};
    ///
    /// let stream = Context::primary(&Device::get(0)?)?.stream()?;
    /// let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 1000)?;
    /// let mut graph = stream.capture(CaptureMode::default(), |_| buffer.fill(7))?;
    /// graph.retain(Arc::new(Mutex::new(buffer)));
    /// // SAFETY: the graph retains the buffer, which only its launches use from now on.
    /// unsafe { graph.assume_owned() };
    /// let executable = graph.instantiate()?;
    /// executable.launch(&stream)?;
    /// stream.synchronize()?;
    /// # Ok::<_, cuda_safe::Error>(())
    /// ```
    #[inline]
    pub fn retain(&mut self, object: Arc<dyn Any + Send + Sync>) {
        let object = UserObject::retained(object);
        self.slots_mut().common.push(Retained::Object(object));
    }
}

impl ExecutableGraph {
    /// Releases the objects that later launches do not use after the launches so far are complete.
    ///
    /// Each update replaces objects. They are released in batches, because a release records an event
    /// on each stream that the graph was launched on. Call this function after an update that replaces
    /// much memory.
    #[inline]
    pub fn release_replaced(&mut self) {
        self.release_retired();
    }
}
