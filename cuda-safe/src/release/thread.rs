//! The thread that alone can destroy an object.

use std::sync::{Arc, Weak};
use std::thread::ThreadId;

thread_local! {
    /// Dropped when the thread ends.
    static TOKEN: Arc<()> = Arc::new(());
}

/// A thread that alone can make the driver calls of an object.
#[derive(Clone, Debug)]
pub(crate) struct OwnThread {
    id: ThreadId,
    token: Weak<()>,
}

impl OwnThread {
    /// Returns the calling thread.
    #[inline]
    pub(crate) fn current() -> Self {
        // A thread that destroys its thread-local variables counts as one that has ended.
        let token = TOKEN.try_with(Arc::downgrade).unwrap_or_default();
        Self { id: std::thread::current().id(), token }
    }

    /// Returns whether this is the calling thread, which may be about to end.
    #[inline]
    pub(crate) fn is_current(&self) -> bool {
        self.id == std::thread::current().id()
    }

    /// Returns whether the thread has ended, or destroys its thread-local variables.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        self.token.strong_count() == 0
    }
}
