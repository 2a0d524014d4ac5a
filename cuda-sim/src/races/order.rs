//! The happens-before order of operations.
//!
//! Each operation has a vector clock, which is complete when the operation runs: it joins the clocks of the
//! operations that it depends on and that of the host when it was enqueued. The host has one clock for all of
//! its threads, because the driver does not see how threads wait for each other: each driver call is ordered
//! after everything that any thread knows to be complete.
//!
//! A lane exists as long as the log has an access of one of its operations. Clocks may still count operations of
//! a lane that has ended. This has no effect, because the number of a lane is not used again.

use super::report::Place;
use cuda_ptx::clock::Clock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// The lane of accesses that driver calls make on the calling thread.
const HOST: u64 = 0;

/// Clocks of complete operations are kept up to this number before unused ones are removed.
const KEPT: usize = 1024;

/// Lanes are kept up to this number before unused ones are removed.
const KEPT_LANES: usize = 64;

/// An operation that accesses memory, and its place in the order.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(super) label: Label,
    /// Increases in the order in which operations were enqueued.
    pub(super) number: u64,
    lane: u64,
    /// Keeps the lane.
    _keep: Arc<()>,
    /// The number of this operation in its lane, from 1 on.
    count: u64,
    clock: Clock,
}

impl Operation {
    /// Returns an operation that stands for a write by the program. It is reported as the second one.
    pub(super) fn of_program() -> Self {
        Self {
            label: Label { function: "", what: "the program", kernel: None, place: Place::Host },
            number: u64::MAX,
            lane: u64::MAX,
            _keep: Arc::default(),
            count: 1,
            clock: Clock::default(),
        }
    }

    /// Returns whether this operation is ordered before another one.
    pub(super) fn is_before(&self, other: &Self) -> bool {
        other.clock.of(self.lane) >= self.count
    }
}

/// What a report says about an operation.
#[derive(Clone, Debug)]
pub(super) struct Label {
    /// The function that enqueued it.
    pub(super) function: &'static str,
    /// Its type, with an article, unless it is a kernel.
    pub(super) what: &'static str,
    pub(super) kernel: Option<String>,
    pub(super) place: Place,
}

/// What the executor says about work that it enqueues.
#[derive(Debug, Default)]
pub(crate) struct Described {
    /// The type of work, with an article.
    pub(crate) what: &'static str,
    pub(crate) kernel: Option<String>,
    /// The stream-ordered memory that it allocates.
    pub(crate) allocates: Option<u64>,
    /// Whether it accesses memory.
    pub(crate) accesses: bool,
}

/// An operation that is not complete.
#[derive(Debug)]
struct Pending {
    clock: Clock,
    label: Label,
    described: Described,
}

/// An operation that calls wait for.
#[derive(Debug, Default)]
struct Awaited {
    /// Number of calls.
    calls: u32,
    /// The operation, if it has begun and accesses memory.
    operation: Option<Arc<Operation>>,
}

/// The source of work that the host does not enqueue: a conditional node, or a kernel that launches a graph.
#[derive(Debug)]
struct Source {
    clock: Clock,
    place: Place,
}

/// A chain of operations.
#[derive(Debug, Default)]
struct Lane {
    /// The number of its operations so far.
    count: u64,
    /// Shared with each of the operations that still exist.
    operations: Arc<()>,
}

#[derive(Debug, Default)]
pub(crate) struct Order {
    /// Everything that a thread of the host knows to be complete.
    host: Clock,
    /// By number. Lanes of which no operation exists are removed when there are many.
    lanes: BTreeMap<u64, Lane>,
    /// The number of lanes after those were removed.
    kept_lanes: usize,
    /// The number of the newest lane.
    last_lane: u64,
    pending: HashMap<u64, Pending>,
    /// The clocks of complete operations that later ones may depend on.
    complete: HashMap<u64, Arc<Clock>>,
    /// The clock of the last complete operation of each stream.
    tails: HashMap<usize, Arc<Clock>>,
    streams: HashMap<usize, Place>,
    /// What the next work of a legacy default stream comes after: the complete work of destroyed streams.
    retired: HashMap<usize, Clock>,
    /// The operations that enqueued allocations consist of, by address.
    allocations: HashMap<u64, u64>,
    /// Operations that calls wait for.
    awaited: BTreeMap<u64, Awaited>,
    /// The operation that the last call has waited for, if it accesses memory.
    last_awaited: Option<Arc<Operation>>,
    /// The stream on which a graph is being launched.
    launching: Option<Place>,
    source: Option<Source>,
    /// The number of clocks that the last removal has kept.
    kept: usize,
}

impl Order {
    pub(crate) fn add_stream(&mut self, stream: usize, place: Place) {
        self.streams.insert(stream, place);
    }

    /// Forgets a stream that was destroyed. Work that is still enqueued keeps its own label.
    pub(crate) fn remove_stream(&mut self, stream: usize) {
        self.streams.remove(&stream);
        self.tails.remove(&stream);
        self.retired.remove(&stream);
    }

    /// Orders the next work of a legacy default stream after the last work of a destroyed stream, which is
    /// complete.
    pub(crate) fn retire(&mut self, legacy: usize, last: u64) {
        if let Some(clock) = self.complete.get(&last) {
            self.retired.entry(legacy).or_default().join(clock);
        }
    }

    /// Orders an operation of a legacy default stream after the work of destroyed streams.
    pub(crate) fn order_after_retired(&mut self, id: u64, legacy: usize) {
        if let (Some(its), Some(clock)) = (self.pending.get_mut(&id), self.retired.remove(&legacy))
        {
            its.clock.join(&clock);
        }
    }

    /// Attributes the work that is enqueued next, which is that of a graph, to the stream of the launch.
    pub(crate) fn begin_launch(&mut self, stream: usize) {
        self.launching = self.streams.get(&stream).copied();
    }

    pub(crate) fn end_launch(&mut self) {
        self.launching = None;
    }

    /// Orders the work that is enqueued next after the work before the operation `id`, and not after what
    /// the host knows.
    pub(crate) fn begin_source(&mut self, id: u64) {
        let pending = self.pending.get(&id);
        self.source =
            pending.map(|its| Source { clock: its.clock.clone(), place: its.label.place });
    }

    /// The same after a kernel that has run.
    pub(crate) fn begin_source_after(&mut self, operation: &Operation) {
        let (clock, place) = (operation.clock.clone(), operation.label.place);
        self.source = Some(Source { clock, place });
    }

    pub(crate) fn end_source(&mut self) {
        self.source = None;
    }

    /// Called when a driver function enqueues an operation. `is_first` says whether its stream has no other work.
    pub(crate) fn enqueue(
        &mut self,
        id: u64,
        (stream, is_first): (usize, bool),
        after: &[u64],
        function: &'static str,
        described: Described,
    ) {
        let mut clock = match &self.source {
            Some(source) => source.clock.clone(),
            None => self.host.clone(),
        };
        for before in after {
            if let Some(its) = self.complete.get(before) {
                clock.join(its);
            }
        }
        if let Some(tail) = self.tails.get(&stream).filter(|_| is_first) {
            clock.join(tail);
        }
        if let Some(address) = described.allocates {
            self.allocations.insert(address, id);
        }
        let own = self.streams.get(&stream).copied();
        let source = self.source.as_ref();
        let label = Label {
            function,
            what: described.what,
            kernel: described.kernel.clone(),
            place: own.or(self.launching).or(source.map(|its| its.place)).unwrap_or(Place::Host),
        };
        let pending = Pending { clock, label, described };
        self.pending.insert(id, pending);
    }

    /// Called before an operation runs, after everything that it depends on. Returns the operation if it
    /// accesses memory.
    pub(crate) fn begin(&mut self, id: u64) -> Option<Arc<Operation>> {
        let pending = self.pending.get_mut(&id)?;
        if let Some(address) = pending.described.allocates {
            self.allocations.remove(&address);
        }
        if !pending.described.accesses {
            return None;
        }
        // A lane continues with an operation that is ordered after all others of the lane.
        let is_last = |(lane, count): &(u64, u64)| {
            *lane != HOST && self.lanes.get(lane).is_some_and(|its| its.count == *count)
        };
        let continued = pending.clock.lanes().find(is_last);
        let number = continued.map_or(self.last_lane + 1, |(lane, _)| lane);
        self.last_lane = self.last_lane.max(number);
        let lane = self.lanes.entry(number).or_default();
        lane.count += 1;
        let (count, keep) = (lane.count, Arc::clone(&lane.operations));
        if pending.clock.lanes().len() > self.lanes.len() {
            pending.clock.retain(|lane, _| self.lanes.contains_key(&lane));
        }
        pending.clock.set(number, count);
        let operation = Arc::new(Operation {
            label: pending.label.clone(),
            number: id,
            lane: number,
            _keep: keep,
            count,
            clock: pending.clock.clone(),
        });
        if let Some(its) = self.awaited.get_mut(&id) {
            its.operation = Some(Arc::clone(&operation));
        }
        if self.lanes.len() > 2 * self.kept_lanes + KEPT_LANES {
            self.remove_unused_lanes();
        }
        Some(operation)
    }

    /// Removes the lanes of which no operation exists: no later operation is compared with one of these.
    pub(crate) fn remove_unused_lanes(&mut self) {
        let is_used = |lane: &Lane| Arc::strong_count(&lane.operations) > 1;
        self.lanes.retain(|number, its| *number == HOST || is_used(its));
        self.host.retain(|lane, _| self.lanes.contains_key(&lane));
        self.retired.retain(|_, clock| {
            clock.retain(|lane, _| self.lanes.contains_key(&lane));
            clock.lanes().len() != 0
        });
        self.kept_lanes = self.lanes.len();
    }

    /// Called when an operation is complete, or is discarded. `successors` are the operations that depend
    /// on it.
    pub(crate) fn complete(
        &mut self,
        id: u64,
        stream: usize,
        successors: impl IntoIterator<Item = u64>,
    ) {
        let Some(pending) = self.pending.remove(&id) else {
            return;
        };
        let clock = Arc::new(pending.clock);
        for successor in successors {
            if let Some(its) = self.pending.get_mut(&successor) {
                its.clock.join(&clock);
            }
        }
        if self.streams.contains_key(&stream) {
            self.tails.insert(stream, Arc::clone(&clock));
        }
        self.complete.insert(id, clock);
    }

    /// Makes an operation that is not complete ordered after a complete one.
    pub(crate) fn order_after(&mut self, id: u64, before: u64) {
        if let (Some(its), Some(before)) = (self.pending.get_mut(&id), self.complete.get(&before)) {
            its.clock.join(before);
        }
    }

    /// Makes an operation that has not run ordered after those that wrote the word that it waits for. The
    /// host may have written the word if it is in host memory.
    pub(crate) fn order_after_writers(
        &mut self,
        id: u64,
        writers: &[Arc<Operation>],
        is_of_host: bool,
    ) {
        if let Some(its) = self.pending.get_mut(&id) {
            for writer in writers {
                its.clock.join(&writer.clock);
            }
            if is_of_host {
                its.clock.join(&self.host);
            }
        }
    }

    /// Called when a host function starts: the host can know from it that the work before it is complete.
    pub(crate) fn begin_host_function(&mut self, id: u64) {
        if let Some(its) = self.pending.get(&id) {
            self.host.join(&its.clock);
        }
    }

    /// Called when a host function returns. It may have waited for anything that the host knows.
    pub(crate) fn end_host_function(&mut self, id: u64) {
        if let Some(its) = self.pending.get_mut(&id) {
            its.clock.join(&self.host);
        }
    }

    /// Called when the host knows that an operation is complete.
    pub(crate) fn host_learns(&mut self, id: u64) {
        if let Some(clock) = self.complete.get(&id) {
            self.host.join(clock);
        }
    }

    /// Called when the host knows that all work of a stream is complete.
    pub(crate) fn host_learns_stream(&mut self, stream: usize) {
        if let Some(clock) = self.tails.get(&stream) {
            self.host.join(clock);
        }
    }

    /// Called when the host can know from an operation, which writes host memory to signal it, that the work
    /// before is complete.
    pub(crate) fn host_learns_from(&mut self, operation: &Operation) {
        self.host.join(&operation.clock);
    }

    /// Called when the host knows that all work is complete.
    pub(crate) fn host_learns_all(&mut self) {
        let lanes = self.lanes.iter();
        self.host.join(&lanes.map(|(lane, its)| (*lane, its.count)).collect());
    }

    /// Returns whether the host knows that everything that ran is complete.
    pub(super) fn host_knows_all(&self) -> bool {
        let mut lanes = self.lanes.iter();
        lanes.all(|(lane, its)| self.host.of(*lane) >= its.count)
    }

    /// Returns whether the host knows that an operation is complete.
    pub(super) fn host_knows(&self, operation: &Operation) -> bool {
        self.host.of(operation.lane) >= operation.count
    }

    /// Returns an operation for the accesses that a call of `function` makes on its thread. `number` is that of
    /// the next operation.
    pub(crate) fn host_access(&mut self, number: u64, function: &'static str) -> Arc<Operation> {
        let lane = self.lanes.entry(HOST).or_default();
        lane.count += 1;
        let (count, keep) = (lane.count, Arc::clone(&lane.operations));
        self.host.set(HOST, count);
        let label = Label { function, what: "the call", kernel: None, place: Place::Host };
        Arc::new(Operation {
            label,
            number,
            lane: HOST,
            _keep: keep,
            count,
            clock: self.host.clone(),
        })
    }

    /// Returns an operation that stands for an allocation that was enqueued and has not run. It is ordered
    /// before nothing.
    pub(crate) fn pending_allocation(&self, address: u64) -> Option<Operation> {
        let id = *self.allocations.get(&address)?;
        let pending = self.pending.get(&id)?;
        Some(Operation {
            label: pending.label.clone(),
            number: id,
            lane: u64::MAX,
            _keep: Arc::default(),
            count: 1,
            clock: Clock::default(),
        })
    }

    /// Keeps the clock of an operation until the call that waits for it is over.
    pub(crate) fn begin_wait(&mut self, id: u64) {
        self.awaited.entry(id).or_default().calls += 1;
    }

    pub(crate) fn end_wait(&mut self, id: u64) {
        self.last_awaited = None;
        if let Some(its) = self.awaited.get_mut(&id) {
            its.calls -= 1;
            self.last_awaited.clone_from(&its.operation);
            if its.calls == 0 {
                self.awaited.remove(&id);
            }
        }
    }

    /// Returns the number of operations that calls wait for.
    #[cfg(test)]
    pub(crate) fn awaited(&self) -> usize {
        self.awaited.len()
    }

    /// Returns the operation that the current call has waited for, if it accesses memory.
    pub(crate) fn take_awaited(&mut self) -> Option<Arc<Operation>> {
        self.last_awaited.take()
    }

    /// Returns whether unused clocks should be removed.
    pub(crate) fn has_unused_clocks(&self) -> bool {
        self.complete.len() > 2 * self.kept + KEPT
    }

    /// Removes the clocks of complete operations that no object refers to, and those that count nothing that
    /// the host does not know.
    pub(crate) fn remove_unused_clocks(&mut self, used: &BTreeSet<u64>) {
        let (host, awaited) = (&self.host, &self.awaited);
        self.complete.retain(|id, clock| {
            (used.contains(id) || awaited.contains_key(id)) && !host.covers(clock)
        });
        self.tails.retain(|_, clock| !host.covers(clock));
        self.retired.retain(|_, clock| !host.covers(clock));
        self.kept = self.complete.len();
    }
}
