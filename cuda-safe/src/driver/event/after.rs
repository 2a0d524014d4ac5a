//! Resources that are released after events.

use super::Event;
use crate::base::current::ContextHandle;
use crate::base::release::Parent;
use crate::driver::context::Context;
use cuda_sys::CUevent;
use std::any::Any;
use std::sync::Arc;

/// The objects that a resource requires until it is released, or returned to its owner, after events.
#[derive(Clone)]
pub(crate) struct AfterEvents {
    pub(crate) events: Vec<Event>,
    #[allow(dead_code, reason = "held, not read")]
    pub(crate) owner: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) context: Context,
}

impl Parent for AfterEvents {
    fn context(&self) -> Option<&dyn ContextHandle> {
        Some(&self.context)
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.context.depends_on_borrowed()
    }

    fn waited_for(&self) -> Vec<CUevent> {
        self.events.iter().map(Event::raw).collect()
    }
}
