//! What is released behind events.

use super::Parent;
use crate::context::Context;
use crate::event::Event;
use std::any::Any;
use std::sync::Arc;

/// What a resource needs until it is released, or given back to its owner, behind events.
#[derive(Clone)]
pub(crate) struct Behind {
    pub(crate) ends: Vec<Event>,
    #[allow(dead_code, reason = "held, not read")]
    pub(crate) owner: Option<Arc<dyn Any + Send + Sync>>,
    pub(crate) context: Context,
}

impl Parent for Behind {
    fn context(&self) -> Option<&Context> {
        Some(&self.context)
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.context.hangs_on_borrowed()
    }

    fn waited_for(&self) -> &[Event] {
        &self.ends
    }
}
