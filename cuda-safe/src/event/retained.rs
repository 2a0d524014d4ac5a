//! Events that a graph retains.

use super::Event;
use crate::capture_state::Retain;
use std::any::Any;

impl Retain for Event {
    #[inline]
    fn as_any(&self) -> &dyn Any {
        self
    }

    #[inline]
    fn is_same(&self, other: &dyn Retain) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self.handle() == other.handle())
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        Self::is_borrowed(self)
    }

    #[inline]
    fn publish(&self) {
        self.as_raw();
    }
}
