//! The order of work on the memory that graphs own.
//!
//! The driver orders the launches of one executable graph, and nothing else. So memory that a graph owns
//! is used by one executable graph at a time, and everything else that uses it is ordered by events: the
//! work on a buffer before the graph owned it, the work of a stream that accesses it from outside, and
//! the launches of an earlier executable graph.

use crate::base::error::Result;
use crate::base::invalid::Invalid;
use crate::base::sync::{Mutex, MutexGuard};
use crate::driver::event::Event;
use crate::driver::stream::Stream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// The order of the work on the memory of one graph.
pub(crate) struct MemoryOrder {
    /// The number of the graph that owns the memory.
    graph: u64,
    is_claimed: AtomicBool,
    before: Mutex<Before>,
}

/// The work that launches must come after, with increasing numbers.
#[derive(Default)]
struct Before {
    work: Vec<(u64, Earlier)>,
    /// The number of the next entry.
    next: u64,
}

/// Work that a launch must come after.
#[derive(Clone)]
pub(crate) enum Earlier {
    /// The work before the record of an event that nothing records again.
    Event(Event),
    /// The work on a stream.
    Stream(Stream),
}

/// The right to launch work on the memory of a graph. One executable graph has it at a time.
pub(crate) struct Claim {
    order: Arc<MemoryOrder>,
    /// The executable graph knows all earlier work below this number.
    known: u64,
}

impl MemoryOrder {
    pub(crate) fn new(graph: u64) -> Arc<Self> {
        Arc::new(Self {
            graph,
            is_claimed: AtomicBool::new(false),
            before: Mutex::default(),
        })
    }

    pub(crate) fn graph(&self) -> u64 {
        self.graph
    }

    /// Adds work that the launches of later executable graphs come after.
    pub(crate) fn add(&self, earlier: Earlier) {
        let mut before = self.lock();
        if let Earlier::Stream(stream) = &earlier {
            let is_same = |its: &Earlier| matches!(its, Earlier::Stream(other) if other == stream);
            before.work.retain(|(_, its)| !is_same(its));
        }
        let number = before.next;
        before.next += 1;
        before.work.push((number, earlier));
    }

    /// Claims the memory for an executable graph.
    ///
    /// # Errors
    /// [`Invalid::SecondExecutable`].
    pub(crate) fn claim(self: &Arc<Self>) -> Result<Claim> {
        match self.is_claimed.swap(true, Ordering::AcqRel) {
            false => Ok(Claim {
                order: Arc::clone(self),
                known: 0,
            }),
            true => Err(Invalid::SecondExecutable { graph: self.graph }.into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Before> {
        self.before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    pub(crate) fn order(&self) -> &Arc<MemoryOrder> {
        &self.order
    }

    /// Returns the work that launches must come after.
    pub(crate) fn earlier(&mut self) -> Vec<Earlier> {
        let before = self.order.lock();
        self.known = before.next;
        before.work.iter().map(|(_, its)| its.clone()).collect()
    }

    /// Replaces the earlier work by launches that came after all of it.
    pub(crate) fn supersede(&self, launched: &[Earlier]) {
        let finished = {
            let mut before = self.order.lock();
            let work = std::mem::take(&mut before.work);
            let (finished, rest): (Vec<_>, Vec<_>) = work
                .into_iter()
                .partition(|(number, _)| *number < self.known);
            before.work = rest;
            finished
        };
        // Dropped without the lock, because these may be the last clones.
        drop(finished);
        launched.iter().for_each(|its| self.order.add(its.clone()));
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.order.is_claimed.store(false, Ordering::Release);
    }
}

/// Returns a number for a buffer of a graph, which is never used again in this process.
pub(crate) fn new_buffer_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
