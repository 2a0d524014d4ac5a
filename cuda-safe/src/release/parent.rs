//! What resources need until they are released.

use crate::context::Context;
use crate::event::Event;
use crate::stream::OrderedOn;

/// What has to outlive a resource, and the context that its release may want.
pub(crate) trait Parent {
    /// A context to make current should a driver want one.
    fn context(&self) -> Option<&Context>;
    /// Keeps the parent alive while the release waits in the queue.
    fn keep(&self) -> Box<dyn Parent + Send>;
    /// Whether what it keeps alive hangs on something that was only lent, so that nothing may wait
    /// in the queue for it.
    fn is_borrowed(&self) -> bool;

    /// What a release waits for.
    fn waited_for(&self) -> &[Event] {
        &[]
    }

    /// Hears that memory was given back to the pool that it is a parent of, in the order of its stream.
    fn has_been_freed(&self) {}

    /// Hears that what it is the parent of could not be released.
    fn has_leaked(&self) {}

    /// The streams on which the release enqueues work. While one of them is captured, it is deferred.
    fn ordered_on(&self) -> [Option<OrderedOn<'_>>; 2] {
        [None, None]
    }
}

impl Parent for Context {
    fn context(&self) -> Option<&Context> {
        Some(self)
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.hangs_on_borrowed()
    }
}

/// For what has no parent: contexts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) is_borrowed: bool,
}

impl Parent for Root {
    fn context(&self) -> Option<&Context> {
        None
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(*self)
    }

    fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }
}
