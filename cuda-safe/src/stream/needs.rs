//! What a graph retains.
//!
//! The nodes of a graph have handles of the contexts that their work runs in, and of events that are
//! recorded or waited for outside of the graph. The driver uses these handles when the graph is
//! instantiated, launched or destroyed.

use super::{Home, Stream};
use crate::context::Context;
use crate::event::Event;
use crate::release::Parent;

/// An object that a graph retains.
#[derive(Clone, Debug)]
pub(crate) enum Need {
    /// Where work of a stream runs.
    Home(Home),
    /// A stream that is not owned: it keeps alive where its work runs.
    Stream(Stream),
    /// An event of an external record or wait.
    Event(Event),
}

impl Need {
    pub(crate) fn context(&self) -> &Context {
        match self {
            Self::Home(home) => home.context(),
            Self::Stream(stream) => stream.context(),
            Self::Event(event) => event.context(),
        }
    }

    /// Returns whether retaining the other is retaining this.
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
    /// What a graph of this stream's work retains.
    pub(crate) fn need(&self) -> Need {
        if self.inner.hold.is_owned() {
            Need::Home(self.inner.home.clone())
        } else {
            Need::Stream(self.clone())
        }
    }
}
