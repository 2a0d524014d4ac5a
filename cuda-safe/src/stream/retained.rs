//! Objects that a graph keeps alive (retained objects).
//!
//! The nodes of a graph contain handles of the contexts of their work, and of external events. The
//! driver uses these handles when the graph is instantiated, launched or destroyed.

use super::{Home, Stream};
use crate::context::Context;
use crate::event::Event;
use crate::release::Parent;

/// An object that a graph retains.
#[derive(Clone, Debug)]
pub(crate) enum Retained {
    /// The context or green context of a stream.
    Home(Home),
    /// A stream that this crate does not own. The stream keeps its context alive.
    Stream(Stream),
    /// An event of an external record or wait.
    Event(Event),
}

impl Retained {
    pub(crate) fn context(&self) -> &Context {
        match self {
            Self::Home(home) => home.context(),
            Self::Stream(stream) => stream.context(),
            Self::Event(event) => event.context(),
        }
    }

    /// Returns whether both retain the same object.
    pub(crate) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Home(Home::Context(its)), Self::Home(Home::Context(other))) => its == other,
            (Self::Home(Home::Green(its)), Self::Home(Home::Green(other))) => its == other,
            (Self::Stream(its), Self::Stream(other)) => its == other,
            (Self::Event(its), Self::Event(other)) => its.raw() == other.raw(),
            _ => false,
        }
    }

    pub(crate) fn is_borrowed(&self) -> bool {
        match self {
            Self::Home(home) => home.is_borrowed(),
            Self::Stream(stream) => stream.is_borrowed(),
            Self::Event(event) => event.is_borrowed(),
        }
    }
}

impl Stream {
    /// Returns the object that a graph of this stream's work retains.
    pub(crate) fn retained(&self) -> Retained {
        if self.inner.ownership.is_owned() {
            Retained::Home(self.inner.home.clone())
        } else {
            Retained::Stream(self.clone())
        }
    }
}
