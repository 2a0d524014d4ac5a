//! The objects that resources require until they are released.

use crate::base::capture::StreamRef;
use crate::base::current::ContextHandle;
use cuda_sys::CUevent;

/// The owner that must outlive a resource, with the context that its release may require.
pub(crate) trait Parent {
    /// Returns a context to make current if the driver requires one.
    fn context(&self) -> Option<&dyn ContextHandle>;
    /// Keeps the parent alive while the release is deferred.
    fn keep(&self) -> Box<dyn Parent + Send>;
    /// Returns whether the parent depends on a borrowed object, so that a release must not be deferred.
    fn is_borrowed(&self) -> bool;

    /// Returns the events that a release waits for.
    fn waited_for(&self) -> Vec<CUevent> {
        Vec::new()
    }

    /// Called when memory was freed on its stream to the pool that this parent keeps alive.
    fn has_been_freed(&self) {}

    /// Called when a resource of this parent could not be released.
    fn has_leaked(&self) {}

    /// Returns the streams on which the release enqueues work. The release is deferred while one of
    /// them is capturing.
    fn ordered_on(&self) -> [Option<StreamRef<'_>>; 2] {
        [None, None]
    }
}

/// The parent of resources without an owner: contexts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) is_borrowed: bool,
}

impl Parent for Root {
    fn context(&self) -> Option<&dyn ContextHandle> {
        None
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(*self)
    }

    fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }
}
