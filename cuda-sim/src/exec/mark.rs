//! Changes of the accessible bytes, which take effect when a stream reaches them.
//!
//! They are no operations: a stream without work stays without work, and the seed chooses among the same operations with
//! and without them.

use super::Executor;
use crate::memory::{Mark, Memory};
use std::collections::BTreeMap;

#[derive(Default)]
pub(super) struct Marks {
    /// By number, with the number of operations that must be complete first.
    waiting: BTreeMap<u64, (usize, Mark)>,
    /// The marks whose operations are complete, in order.
    reached: Vec<Mark>,
}

impl Executor {
    /// Applies a mark when these operations are complete.
    pub(crate) fn mark_after(&mut self, mark: Mark, after: &[u64], memory: &mut Memory) {
        let mut missing = 0;
        for id in after {
            if let Some(its) = self.operations.get_mut(id) {
                its.marks.push(mark.number);
                missing += 1;
            }
        }
        if missing == 0 {
            return memory.apply_mark(mark);
        }
        memory.defer_mark();
        self.marks.waiting.insert(mark.number, (missing, mark));
    }

    /// Called when an operation is complete that these marks follow.
    pub(super) fn reach_marks(&mut self, numbers: &[u64]) {
        for number in numbers {
            let Some((missing, _)) = self.marks.waiting.get_mut(number) else { continue };
            *missing -= 1;
            if *missing == 0 {
                let reached = self.marks.waiting.remove(number);
                self.marks.reached.extend(reached.map(|(_, mark)| mark));
            }
        }
    }

    /// Applies the marks whose operations are complete. Called after operations ran, before others do.
    pub(crate) fn apply_marks(&mut self, memory: &mut Memory) {
        self.marks.reached.drain(..).for_each(|mark| memory.apply_deferred(mark));
    }
}
