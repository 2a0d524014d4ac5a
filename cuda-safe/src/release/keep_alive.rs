//! The owners of objects that are released.

use crate::call::ContextHandle;
use crate::capture_state::StreamRef;
use cuda_sys::CUevent;

/// What an object needs until it is destroyed: its context, and every value that must outlive it.
pub(crate) trait KeepAlive {
    /// Returns the context to make current if the driver requires one.
    fn context(&self) -> Option<&dyn ContextHandle>;

    /// Returns whether one of the owners is borrowed, so that a release must not be deferred.
    fn is_borrowed(&self) -> bool;

    /// Returns a clone, which keeps the owners alive while the release is deferred.
    fn keep(&self) -> Box<dyn KeepAlive + Send>;

    /// Returns the streams on which the object was used. A release is deferred while one of them is
    /// capturing.
    fn streams(&self) -> [Option<StreamRef<'_>>; 2] {
        [None, None]
    }

    /// Returns events that were recorded after uses of the object.
    fn events(&self) -> Vec<CUevent> {
        Vec::new()
    }

    /// Leaks the owners.
    fn leak(&self) {
        std::mem::forget(self.keep());
    }
}

/// The owners of a context: none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) is_borrowed: bool,
}

impl KeepAlive for Root {
    #[inline]
    fn context(&self) -> Option<&dyn ContextHandle> {
        None
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        self.is_borrowed
    }

    #[inline]
    fn keep(&self) -> Box<dyn KeepAlive + Send> {
        Box::new(*self)
    }
}
