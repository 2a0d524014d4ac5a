//! Work that several streams do together, such as a collective operation.
//!
//! Each stream has two operations: one that arrives at the work, and one that leaves it when all streams that take part
//! have arrived.

use crate::memory::Memory;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;

/// The part of one stream in work that several streams do together.
pub(crate) trait Joint: Debug + Send + Sync {
    /// Arrives at the work, and reads its input.
    fn arrive(&self, memory: &mut Memory) -> Result<(), String>;

    /// Returns whether the stream can leave the work.
    fn is_complete(&self) -> bool;

    /// Leaves the work, and writes its output.
    fn leave(&self, memory: &mut Memory) -> Result<(), String>;
}

/// The streams whose first operation leaves joint work.
#[derive(Default)]
pub(super) struct Waiting(BTreeMap<usize, Arc<dyn Joint>>);

impl Waiting {
    pub(super) fn insert(&mut self, stream: usize, joint: &Arc<dyn Joint>) {
        self.0.insert(stream, Arc::clone(joint));
    }

    pub(super) fn remove(&mut self, stream: usize) {
        self.0.remove(&stream);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the streams that can leave.
    pub(super) fn complete(&self) -> BTreeSet<usize> {
        let complete = self.0.iter().filter(|(_, joint)| joint.is_complete());
        complete.map(|(stream, _)| *stream).collect()
    }
}
