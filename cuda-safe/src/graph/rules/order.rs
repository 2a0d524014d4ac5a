//! The order of work on the memory that graphs own.
//!
//! The driver orders the launches of one executable graph, and nothing else. So memory that a graph owns
//! is used by one executable graph at a time, and everything else that uses it is ordered by events: the
//! work on a buffer before the graph owned it, the work of a stream that accesses it from outside, and
//! the launches of an earlier executable graph.

use crate::call::{Invalid, Result};
use crate::graph::Earlier;
use crate::graph::rules::earlier::EarlierWork;
use crate::stream::Stream;
use crate::sync::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

/// The order of the work on the memory of one graph.
pub(crate) struct MemoryOrder {
    /// The number of the graph that owns the memory.
    graph: u64,
    is_claimed: AtomicBool,
    /// The work that launches must come after.
    earlier: Mutex<EarlierWork>,
}

/// The right to launch work on the memory of a graph. One executable graph has it at a time.
pub(crate) struct Claim {
    order: Arc<MemoryOrder>,
    /// The executable graph knows all earlier work below this number.
    known: u64,
    /// Whether the right never ends.
    is_kept: bool,
}

impl MemoryOrder {
    #[inline]
    pub(crate) fn new(graph: u64) -> Arc<Self> {
        Arc::new(Self { graph, is_claimed: AtomicBool::new(false), earlier: Mutex::default() })
    }

    #[inline]
    pub(crate) fn graph(&self) -> u64 {
        self.graph
    }

    /// Adds work that the launches of later executable graphs come after.
    #[inline]
    pub(crate) fn add(&self, earlier: Earlier) {
        // Dropped without the lock, because it may be the last clone, whose owner may use the graph.
        let replaced = self.lock().add(earlier);
        drop(replaced);
    }

    /// Claims the memory for an executable graph.
    ///
    /// # Errors
    /// [`Invalid::SecondExecutable`].
    #[inline]
    pub(crate) fn claim(self: &Arc<Self>) -> Result<Claim> {
        match self.is_claimed.swap(true, Ordering::AcqRel) {
            false => Ok(Claim { order: Arc::clone(self), known: 0, is_kept: false }),
            true => Err(Invalid::SecondExecutable { graph: self.graph }.into()),
        }
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, EarlierWork> {
        self.earlier.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Claim {
    #[inline]
    pub(crate) fn order(&self) -> &Arc<MemoryOrder> {
        &self.order
    }

    /// Never gives the right back, because other code may launch the executable graph.
    #[inline]
    pub(crate) fn keep(mut self) {
        self.is_kept = true;
    }

    /// Appends the work that launches must come after, and that was not found before. The caller passes it
    /// to the launches.
    #[inline]
    pub(crate) fn find_earlier(&mut self, found: &mut Vec<Earlier>) {
        self.known = self.order.lock().since(self.known, found);
    }

    /// Appends the work that was not found before, as [`find_earlier`](Self::find_earlier) does, and adds the
    /// work of a stream that the caller passes to the launches too.
    #[inline]
    pub(crate) fn exchange(&mut self, stream: &Stream, found: &mut Vec<Earlier>) {
        let replaced = {
            let mut earlier = self.order.lock();
            earlier.since(self.known, found);
            let replaced = earlier.add(Earlier::Stream(stream.clone()));
            self.known = earlier.next();
            replaced
        };
        // Dropped without the lock, because it may be the last clone.
        drop(replaced);
    }

    /// Replaces the earlier work that the executable graph knows by launches that came after all of it.
    #[inline]
    pub(crate) fn supersede(&self, launched: &[Earlier]) {
        let finished = self.order.lock().remove_below(self.known);
        drop(finished);
        launched.iter().for_each(|its| self.order.add(its.clone()));
    }
}

impl Drop for Claim {
    #[inline]
    fn drop(&mut self) {
        if !self.is_kept {
            self.order.is_claimed.store(false, Ordering::Release);
        }
    }
}

/// Returns a number for a buffer of a graph, which is never used again in this process.
#[inline]
pub(crate) fn new_buffer_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
