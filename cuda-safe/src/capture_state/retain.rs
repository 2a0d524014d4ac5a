//! Objects that a capture keeps alive.

use std::any::Any;
use std::fmt::Debug;

/// An object that a capture or its graph keeps alive, because the nodes of the graph contain its handle.
pub(crate) trait Retain: Debug + Send + Sync {
    fn as_any(&self) -> &dyn Any;

    /// Returns whether both keep the same object alive.
    fn is_same(&self, other: &dyn Retain) -> bool;

    /// Returns whether the object depends on a borrowed one, so that a release of the graph must not be
    /// deferred.
    fn is_borrowed(&self) -> bool;

    /// Notes that other code can find the handle of the object in the graph.
    fn publish(&self);
}
