//! The destruction of a stream: the notification of the memory manager, and the release of the handle.

use super::{Home, Inner, Stream};
use crate::base::capture::StreamRef;
use crate::base::current::ContextHandle;
use crate::base::fork;
use crate::base::ownership::Ownership;
use crate::base::release::{self, Parent, Resource, release_now};
use crate::base::zone;
use crate::driver::context::Extension;
use std::sync::Arc;

impl Drop for Inner {
    fn drop(&mut self) {
        let extension = self.context.any_extension();
        if extension.is_some_and(Extension::refers_to_streams) && self.end_for_extension() {
            return;
        }
        if self.ownership.is_owned() {
            self.state.unpublish();
            release_now(|| Resource::Stream(self.raw), &self.home);
        }
    }
}

impl Inner {
    /// Notifies the memory manager, which may have stream-ordered memory of this stream. Returns
    /// whether the destruction was deferred.
    #[cold]
    #[inline(never)]
    fn end_for_extension(&mut self) -> bool {
        // The manager caches no memory for a borrowed stream.
        if fork::in_child() || self.is_lent {
            return false;
        }
        if !zone::may_block() {
            self.end_later();
            return true;
        }
        if let Some(extension) = self.context.any_extension() {
            extension.stream_ends(&self.raw);
        }
        false
    }

    /// Defers the destruction: puts another object of the stream into the release queue. In a driver
    /// callback the manager might have to wait for a thread that waits for the callback.
    fn end_later(&mut self) {
        let again = Stream {
            inner: Arc::new(Self {
                raw: self.raw,
                ownership: std::mem::replace(&mut self.ownership, Ownership::Borrowed),
                is_lent: false,
                home: self.home.clone(),
                context: self.context.clone(),
                state: Arc::clone(&self.state),
                panicked: Arc::clone(&self.panicked),
            }),
        };
        release::later(Resource::LastClone, &again);
    }
}

impl Parent for Home {
    fn context(&self) -> Option<&dyn ContextHandle> {
        Some(self.context())
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        match self {
            Self::Context(context) => context.is_borrowed(),
            Self::Green(green) => green.is_borrowed(),
        }
    }
}

impl Parent for Stream {
    fn context(&self) -> Option<&dyn ContextHandle> {
        Some(self.context())
    }

    fn ordered_on(&self) -> [Option<StreamRef<'_>>; 2] {
        [Some(self.by_ref()), None]
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.inner.is_lent
    }
}
