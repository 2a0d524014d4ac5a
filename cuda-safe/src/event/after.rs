//! Objects that are released after events.

use super::Event;
use crate::call::ContextHandle;
use crate::context::Context;
use crate::release::KeepAlive;
use cuda_sys::CUevent;
use std::any::Any;
use std::sync::Arc;

/// The owners of an object that is destroyed, or returned to its foreign owner, after events.
#[derive(Clone)]
pub(crate) struct AfterEvents {
    pub(crate) events: Vec<Event>,
    #[allow(dead_code, reason = "held, not read")]
    pub(crate) owner: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) context: Context,
}

impl KeepAlive for AfterEvents {
    #[inline]
    fn context(&self) -> Option<&dyn ContextHandle> {
        Some(&self.context)
    }

    #[inline]
    fn is_borrowed(&self) -> bool {
        self.context.depends_on_borrowed()
    }

    #[inline]
    fn keep(&self) -> Box<dyn KeepAlive + Send> {
        Box::new(self.clone())
    }

    #[inline]
    fn events(&self) -> Vec<CUevent> {
        self.events.iter().map(Event::raw).collect()
    }
}
