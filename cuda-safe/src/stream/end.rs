//! How a stream ends: what a manager has in its order, and the driver's handle.

use super::{Home, Inner, OrderedOn, Stream};
use crate::context::Context;
use crate::fork;
use crate::hold::Hold;
use crate::manager::StreamEnd;
use crate::release::{self, Parent, Resource, release_at_once};
use std::sync::Arc;

impl Drop for Inner {
    fn drop(&mut self) {
        if self.context.made_manager().is_some() && self.end_for_manager() {
            return;
        }
        if self.hold.is_owned() {
            self.state.unpublish();
            release_at_once(|| Resource::Stream(self.raw), &self.home);
        }
    }
}

impl Inner {
    /// A manager may have memory in the order of the stream; whether that ends later.
    #[cold]
    #[inline(never)]
    fn end_for_manager(&mut self) -> bool {
        // In the order of one that is lent it keeps nothing.
        if fork::in_child() || self.is_lent {
            return false;
        }
        if !release::may_wait() {
            self.end_later();
            return true;
        }
        if let Some(manager) = self.context.made_manager() {
            StreamEnd::of(&self.raw).tell(manager);
        }
        false
    }

    /// In a callback of the driver a manager may have to wait for somebody who waits for that: another object
    /// of the stream stands in the queue of releases, and ends elsewhere.
    fn end_later(&mut self) {
        let again = Stream {
            inner: Arc::new(Self {
                raw: self.raw,
                hold: std::mem::replace(&mut self.hold, Hold::Borrowed),
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
