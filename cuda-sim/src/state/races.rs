//! What the host knows about complete work, for the detection of races.

use super::objects::Stream;
use super::{Answer, World};
use crate::races::Place;
use std::collections::BTreeSet;

#[cfg(test)]
mod tests;

impl Stream {
    pub(super) fn place(&self) -> Place {
        match (self.is_legacy, self.is_default) {
            (true, _) => Place::LegacyStream(self.id),
            (false, true) => Place::PerThreadStream(self.id),
            (false, false) => Place::Stream(self.id),
        }
    }
}

impl World {
    /// Adds a new stream to the detection of races.
    pub(super) fn note_stream(&mut self, handle: usize) {
        let place = self.objects.streams.get(handle).map(Stream::place);
        if let (Some(order), Some(place)) = (&mut self.runs.executor.order, place) {
            order.add_stream(handle, place);
        }
    }

    /// Called when the host knows that an operation is complete.
    pub(crate) fn host_learns(&mut self, operation: u64) {
        if let Some(order) = &mut self.runs.executor.order {
            order.host_learns(operation);
            self.forget_known_accesses();
        }
    }

    /// Called when the host knows that all work is complete.
    pub(super) fn host_learns_all(&mut self) {
        if let Some(order) = &mut self.runs.executor.order {
            order.host_learns_all();
            self.forget_known_accesses();
        }
    }

    /// Called when the host knows that a stream has no incomplete work.
    pub(crate) fn host_learns_idle(&mut self, stream: usize) {
        if let Some(order) = &mut self.runs.executor.order {
            order.host_learns_stream(stream);
            self.forget_known_accesses();
        }
    }

    /// Returns the last incomplete operation of a stream, for a call that waits for it.
    pub(crate) fn last_to_wait_for(&mut self, stream: usize) -> Option<u64> {
        let last = self.runs.executor.last(stream);
        if last.is_none() {
            self.host_learns_idle(stream);
        }
        last
    }

    pub(super) fn begin_wait(&mut self, operation: Option<u64>) {
        if let (Some(order), Some(id)) = (&mut self.runs.executor.order, operation) {
            order.begin_wait(id);
        }
    }

    /// Called once when a wait has ended.
    pub(super) fn end_wait(&mut self, operation: Option<u64>, done: Answer) {
        let Some(id) = operation else {
            return;
        };
        if done.is_ok() {
            self.host_learns(id);
        }
        if let Some(order) = &mut self.runs.executor.order {
            order.end_wait(id);
        }
    }

    /// Makes the accesses to memory that follow those of the operation that the current call has waited for.
    pub(crate) fn begin_copy_by_call(&mut self) {
        let (order, log) = (&mut self.runs.executor.order, &mut self.objects.memory.accesses);
        if let (Some(order), Some(log)) = (order, log) {
            log.current = order.take_awaited();
        }
    }

    /// Makes the accesses to memory that follow those of the current call on its thread.
    pub(crate) fn begin_host_access(&mut self) {
        let executor = &mut self.runs.executor;
        let (number, function) = (executor.next_operation(), executor.calling);
        let (order, log) = (&mut executor.order, &mut self.objects.memory.accesses);
        if let (Some(order), Some(log)) = (order, log) {
            log.current = Some(order.host_access(number, function));
        }
    }

    pub(crate) fn end_host_access(&mut self) {
        self.runs.executor.end_accesses(&mut self.objects.memory);
    }

    /// Forgets accesses that no later operation can conflict with.
    fn forget_known_accesses(&mut self) {
        let is_idle = self.runs.executor.is_all_idle();
        let (order, log) = (&mut self.runs.executor.order, &mut self.objects.memory.accesses);
        if let (Some(order), Some(log), true) = (order, log, is_idle) {
            log.forget_known(order);
            order.remove_unused_lanes();
        }
    }

    /// Removes the clocks of operations that no object refers to, if there are many.
    pub(super) fn remove_unused_clocks(&mut self) {
        let order = self.runs.executor.order.as_ref();
        if !order.is_some_and(|order| order.has_unused_clocks()) {
            return;
        }
        let mut used: BTreeSet<u64> = BTreeSet::new();
        used.extend(self.objects.streams.iter().filter_map(|(_, its)| its.last));
        used.extend(self.objects.events.iter().filter_map(|(_, its)| its.recorded));
        used.extend(self.objects.executables.iter().filter_map(|(_, its)| its.last));
        for (_, context) in self.objects.contexts.iter() {
            used.extend(context.after);
            used.extend(context.given.values());
        }
        if let Some(order) = &mut self.runs.executor.order {
            order.remove_unused_clocks(&used);
        }
    }
}
