//! The destruction of a stream: the notification of the memory manager, and the release of the handle.

use super::{Home, Inner, OrderedOn, Stream};
use crate::context::Context;
use crate::fork;
use crate::manager::StreamEnd;
use crate::ownership::Ownership;
use crate::release::{self, Parent, Resource, release_now};
use std::sync::Arc;

impl Drop for Inner {
    fn drop(&mut self) {
        if self.context.made_manager().is_some() && self.end_for_manager() {
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
    fn end_for_manager(&mut self) -> bool {
        // The manager caches no memory for a borrowed stream.
        if fork::in_child() || self.is_lent {
            return false;
        }
        if !release::may_wait() {
            self.end_later();
            return true;
        }
        if let Some(manager) = self.context.made_manager() {
            StreamEnd::of(&self.raw).notify(manager);
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
    fn context(&self) -> Option<&Context> {
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
    fn context(&self) -> Option<&Context> {
        Some(self.context())
    }

    fn ordered_on(&self) -> [Option<OrderedOn<'_>>; 2] {
        [Some(OrderedOn::Stream(self)), None]
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.inner.is_lent
    }
}
