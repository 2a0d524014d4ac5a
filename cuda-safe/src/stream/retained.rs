//! What the graph of a capture retains of a stream.

use super::{ExecutionContext, Stream};
use crate::capture_state::Retain;
use crate::release::Keep;
use std::any::Any;

/// The object that a graph of a stream's work retains.
#[derive(Clone, Debug)]
pub(crate) enum RetainedStream {
    /// The context or green context of the stream.
    Home(ExecutionContext),
    /// A stream that this crate does not own. The stream keeps its context alive.
    Stream(Stream),
}

impl Retain for RetainedStream {
    #[inline]
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[inline]
    fn is_same(&self, other: &dyn Retain) -> bool {
        match (self, other.as_any().downcast_ref()) {
            (Self::Home(own), Some(Self::Home(other))) => own.is_same(other),
            (Self::Stream(own), Some(Self::Stream(other))) => own == other,
            _ => false,
        }
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        match self {
            Self::Home(home) => home.is_borrowed(),
            Self::Stream(stream) => stream.is_borrowed(),
        }
    }

    #[inline]
    fn publish(&self) {}
}

impl ExecutionContext {
    /// Returns whether both are the same context or green context.
    #[inline]
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Context(own), Self::Context(other)) => own == other,
            (Self::Green(own), Self::Green(other)) => own.is_same(&**other),
            _ => false,
        }
    }
}

impl Stream {
    /// Returns the object that a graph of this stream's work retains.
    #[inline]
    pub(crate) fn retained(&self) -> RetainedStream {
        if self.inner.ownership.is_owned() {
            RetainedStream::Home(self.inner.execution_context.clone())
        } else {
            RetainedStream::Stream(self.clone())
        }
    }
}
