//! Objects that are released after events.

use super::Event;

use crate::context::Context;
use crate::release::owners;
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

owners! {
    AfterEvents |its| {
        context: Some(&its.context),
        is_borrowed: its.context.depends_on_borrowed(),
        events: its.events.iter().map(Event::handle).collect(),
    }
}
