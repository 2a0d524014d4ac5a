//! Objects that a graph keeps alive (retained objects).
//!
//! The nodes of a graph contain handles of the contexts of their work, and of external events. The
//! driver uses these handles when the graph is instantiated, launched or destroyed.

use crate::capture_state::Retain;
use crate::event::Event;
use crate::graph::HostFunction;
use crate::module::Kernel;
use crate::release::Keep;
use crate::stream::{ExecutionContext, RetainedStream, Stream};
use std::any::Any;
use std::sync::Arc;

/// An object that a graph retains.
#[derive(Clone, Debug)]
pub(crate) enum Retained {
    /// The context or green context of a stream.
    ExecutionContext(ExecutionContext),
    /// A stream that this crate does not own. The stream keeps its context alive.
    Stream(Stream),
    /// An event of an external record or wait.
    Event(Event),
    /// A kernel, with its module or library.
    Kernel(Kernel),
    /// A host function.
    HostFunction(Arc<HostFunction>),
    /// An object of a higher room.
    Object(Arc<dyn Retain>),
    /// The place of an object that was released.
    Nothing,
}

impl Retained {
    /// Returns an object that a capture retained.
    #[inline]
    pub(crate) fn of_capture(object: Arc<dyn Retain>) -> Self {
        let any = object.as_any();
        if let Some(stream) = any.downcast_ref::<RetainedStream>() {
            stream.clone().into()
        } else if let Some(event) = any.downcast_ref::<Event>() {
            Self::Event(event.clone())
        } else if let Some(its) = any.downcast_ref::<Self>() {
            its.clone()
        } else {
            Self::Object(object)
        }
    }

    #[inline]
    fn is_same_object(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::ExecutionContext(own), Self::ExecutionContext(other)) => own.is_same(other),
            (Self::Stream(own), Self::Stream(other)) => own == other,
            (Self::Event(own), Self::Event(other)) => Retain::is_same(own, other),
            (Self::HostFunction(own), Self::HostFunction(other)) => Arc::ptr_eq(own, other),
            (Self::Object(own), Self::Object(other)) => own.is_same(&**other),
            _ => false,
        }
    }
}

impl From<RetainedStream> for Retained {
    #[inline]
    fn from(stream: RetainedStream) -> Self {
        match stream {
            RetainedStream::Home(home) => Self::ExecutionContext(home),
            RetainedStream::Stream(stream) => Self::Stream(stream),
        }
    }
}

impl Retain for Retained {
    #[inline]
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[inline]
    fn is_same(&self, other: &dyn Retain) -> bool {
        other.as_any().downcast_ref().is_some_and(|other| self.is_same_object(other))
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        match self {
            Self::ExecutionContext(execution_context) => execution_context.is_borrowed(),
            Self::Stream(stream) => stream.is_borrowed(),
            Self::Event(event) => event.is_borrowed(),
            Self::Kernel(kernel) => kernel.context().depends_on_borrowed(),
            Self::HostFunction(_) | Self::Nothing => false,
            Self::Object(object) => object.is_borrowed(),
        }
    }

    #[inline]
    fn publish(&self) {
        match self {
            Self::Event(event) => event.publish(),
            Self::Object(object) => object.publish(),
            Self::ExecutionContext(_)
            | Self::Stream(_)
            | Self::Kernel(_)
            | Self::HostFunction(_)
            | Self::Nothing => {}
        }
    }
}
