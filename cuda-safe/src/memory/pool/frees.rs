//! When a pool may go: behind the frees of its memory, which its memory sees to.

use super::MemoryPool;
use crate::context::Context;
use crate::error::Result;
use crate::event::Event;
use crate::hold::Hold;
use crate::release::{Parent, relaxed};
use crate::stream::{OrderedOn, Stream};
use crate::sync::Mutex;
use std::sync::PoisonError;

/// Events behind the frees of a pool's memory. (Not their streams: those may be lent, and leased.)
#[derive(Default)]
pub(super) struct Ends {
    events: Mutex<Vec<Event>>,
}

/// With more events than this it is looked which of them are over, each time that there are twice as
/// many.
const MANY: usize = 64;

impl Ends {
    /// Puts an event behind what the stream was given, the free.
    fn mark(&self, stream: &Stream) -> Result<()> {
        // A manager may have the pool, and its context has the manager.
        let event = stream.context().without_manager().event_now()?;
        // The release has counted itself on the stream: no capture takes the record.
        event.enqueue_record(stream)?;
        let mut left = {
            let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
            events.push(event);
            if events.len() < MANY || !events.len().is_power_of_two() {
                return Ok(());
            }
            std::mem::take(&mut *events)
        };
        // Not under the lock: this calls the driver.
        let is_over = |event: &Event| event.is_done().is_ok_and(|done| done);
        let _ = relaxed(|| {
            left.retain(|event| !is_over(event));
            Ok(())
        });
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        events.extend(left);
        Ok(())
    }

    pub(super) fn take(&mut self) -> Vec<Event> {
        let events = self.events.get_mut();
        std::mem::take(events.unwrap_or_else(PoisonError::into_inner))
    }
}

/// What memory of a pool needs until it is freed.
#[derive(Clone)]
pub(in crate::memory) struct OfPool {
    stream: Stream,
    pool: MemoryPool,
}

impl OfPool {
    pub(in crate::memory) fn new(stream: &Stream, pool: &MemoryPool) -> Self {
        Self {
            stream: stream.clone(),
            pool: pool.clone(),
        }
    }
}

impl Parent for OfPool {
    fn context(&self) -> Option<&Context> {
        Some(self.stream.context())
    }

    fn keep(&self) -> Box<dyn Parent + Send> {
        Box::new(self.clone())
    }

    fn is_borrowed(&self) -> bool {
        self.pool.is_borrowed() || self.stream.is_borrowed()
    }

    fn ordered_on(&self) -> [Option<OrderedOn<'_>>; 2] {
        [Some(OrderedOn::Stream(&self.stream)), None]
    }

    fn has_leaked(&self) {
        self.pool.stay();
    }

    fn has_been_freed(&self) {
        if matches!(self.pool.inner.hold, Hold::Borrowed) {
            // Whoever lent it waits.
            return;
        }
        // An event is not to outlive a context that somebody else may destroy.
        let is_lent = self.stream.context().hangs_on_borrowed();
        if is_lent || self.pool.inner.ends.mark(&self.stream).is_err() {
            self.pool.stay();
        }
    }
}
