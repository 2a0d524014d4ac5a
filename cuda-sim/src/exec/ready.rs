//! The streams whose first operation can run now. A stream's state changes only when an operation that
//! its first operation depends on is complete, so no step has to scan all streams.

use super::joint::Waiting;
use super::{Call, Executor, Work, random};
use crate::account::misuse;
use crate::memory::Memory;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Streams whose first operation depends on no incomplete operation.
#[derive(Default)]
pub(super) struct Ready {
    streams: Choices,
    /// Streams whose first operation waits for a value in memory, by the condition. Any operation, and the
    /// host, may write that value, so each step checks all conditions.
    for_values: BTreeMap<Condition, BTreeSet<usize>>,
    /// Streams whose first operation waits for other streams. Work of another process may be what it waits for, so
    /// each step checks all of them.
    joint: Waiting,
    /// The late callbacks that can run now.
    pub(super) late: BTreeSet<u64>,
    /// The streams in `streams` whose first operation is a free.
    frees: BTreeSet<usize>,
    /// The streams in `streams` whose first operation is a kernel of a green context, by the id of the
    /// green context.
    partitions: BTreeMap<u64, BTreeSet<usize>>,
}

/// The condition of a wait for a value in memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Condition {
    at: u64,
    size: usize,
    value: u64,
    condition: u32,
}

impl Condition {
    fn of(work: &Work) -> Option<Self> {
        match *work {
            Work::WaitValue { at, value, size, condition } => {
                Some(Self { at, size, value, condition })
            }
            _ => None,
        }
    }

    /// Returns whether memory does not have the value yet. A word that was freed is reported when the wait
    /// runs.
    fn is_awaited(&self, memory: &Memory) -> bool {
        let word = memory.word(self.at, self.size);
        word.is_some_and(|word| !super::run::holds(self.condition, word, self.value, self.size))
    }
}

/// A set of streams with consecutive indices, from which a random number selects. The indices depend
/// only on the insertions and removals so far.
#[derive(Default)]
struct Choices {
    streams: Vec<usize>,
    places: HashMap<usize, usize>,
}

impl Choices {
    fn insert(&mut self, stream: usize) {
        let next = self.streams.len();
        if *self.places.entry(stream).or_insert(next) == next {
            self.streams.push(stream);
        }
    }

    fn remove(&mut self, stream: usize) {
        let Some(place) = self.places.remove(&stream) else {
            return;
        };
        self.streams.swap_remove(place);
        if let Some(moved) = self.streams.get(place) {
            self.places.insert(*moved, place);
        }
    }
}

impl Ready {
    fn insert(&mut self, stream: usize, work: &Work) {
        if let Some(condition) = Condition::of(work) {
            self.for_values.entry(condition).or_default().insert(stream);
            return;
        }
        match work {
            Work::Leave(joint) => {
                self.joint.insert(stream, joint);
                return;
            }
            Work::Free(_) => {
                self.frees.insert(stream);
            }
            Work::Kernel(call) => {
                if let Some((id, _)) = &call.partition {
                    self.partitions.entry(*id).or_default().insert(stream);
                }
            }
            _ => {}
        }
        self.streams.insert(stream);
    }

    fn remove(&mut self, stream: usize, work: &Work) {
        if let Some(condition) = Condition::of(work) {
            if let Some(streams) = self.for_values.get_mut(&condition) {
                streams.remove(&stream);
                if streams.is_empty() {
                    self.for_values.remove(&condition);
                }
            }
            return;
        }
        if let Work::Leave(_) = work {
            self.joint.remove(stream);
            return;
        }
        self.streams.remove(stream);
        self.frees.remove(&stream);
        if let Work::Kernel(call) = work {
            let id = call.partition.as_ref().map(|(id, _)| *id);
            let Some(streams) = id.and_then(|id| self.partitions.get_mut(&id)) else {
                return;
            };
            streams.remove(&stream);
            if streams.is_empty() {
                id.and_then(|id| self.partitions.remove(&id));
            }
        }
    }
}

impl Executor {
    /// Returns the first operation of a stream.
    fn first(&self, stream: usize) -> Option<u64> {
        self.queues.get(&stream)?.front().copied()
    }

    /// Makes a stream ready if its first operation is ready.
    pub(super) fn note_first(&mut self, stream: usize) {
        let Some(id) = self.first(stream) else {
            return;
        };
        if let Some(its) = self.operations.get(&id) {
            if its.missing == 0 && !self.running.contains_key(&id) {
                self.ready.insert(stream, &its.work);
                if self.late.contains(&id) {
                    self.ready.late.insert(id);
                }
            }
        }
    }

    /// Called before the first operation of a stream runs.
    pub(super) fn begin(&mut self, stream: usize) {
        let Some(id) = self.first(stream) else {
            return;
        };
        if let Some(its) = self.operations.get(&id) {
            self.ready.remove(stream, &its.work);
        }
        self.ready.late.remove(&id);
    }

    /// Called when an operation is complete. Makes operations ready that depend on it.
    pub(super) fn finish(&mut self, id: u64) -> Option<Work> {
        let operation = self.operations.remove(&id)?;
        self.running.remove(&id);
        self.failing.remove(&id);
        self.late.remove(&id);
        self.ready.late.remove(&id);
        if let Some(queue) = self.queues.get_mut(&operation.stream) {
            if queue.front() == Some(&id) {
                queue.pop_front();
                self.ready.remove(operation.stream, &operation.work);
            }
            if queue.is_empty() {
                // Empty queues are removed, because streams are created and destroyed.
                self.queues.remove(&operation.stream);
            }
        }
        self.note_first(operation.stream);
        if let Some(order) = &mut self.order {
            let next = self.queues.get(&operation.stream).and_then(|its| its.front());
            let successors = operation.followers.iter().chain(next).copied();
            order.complete(id, operation.stream, successors);
        }
        for follower in operation.followers {
            let Some(its) = self.operations.get_mut(&follower) else {
                continue;
            };
            its.missing -= 1;
            let (is_free, stream) = (its.missing == 0, its.stream);
            if is_free {
                self.note_first(stream);
            }
        }
        self.reach_marks(&operation.marks);
        Some(operation.work)
    }

    /// Returns a stream that is ready, chosen by the seed.
    pub(super) fn choose(&mut self, memory: &Memory) -> Option<usize> {
        let waiting = self.ready.for_values.iter();
        let complete = self.ready.joint.complete();
        let mut arrived: Vec<&BTreeSet<usize>> = waiting
            .filter(|(condition, _)| !condition.is_awaited(memory))
            .map(|(_, streams)| streams)
            .collect();
        if !complete.is_empty() {
            arrived.push(&complete);
        }
        let ready = self.ready.streams.streams.len();
        let count = ready + arrived.iter().map(|streams| streams.len()).sum::<usize>();
        if count == 0 {
            return None;
        }
        let random = random(&mut self.random, count);
        match random.checked_sub(ready) {
            None => self.ready.streams.streams.get(random).copied(),
            Some(choice) => in_order(&arrived, choice),
        }
    }

    /// Returns a stream whose first operation is a free that can run now.
    pub(super) fn next_free(&self) -> Option<(usize, u64)> {
        let stream = *self.ready.frees.first()?;
        Some((stream, self.first(stream)?))
    }

    /// Returns the address of a value that a stream waits for and memory does not have yet.
    pub(crate) fn awaited_value(&self, memory: &Memory) -> Option<u64> {
        let mut conditions = self.ready.for_values.keys();
        conditions.find(|condition| condition.is_awaited(memory)).map(|condition| condition.at)
    }

    /// Returns whether the first operation of a stream waits for other streams, or did until they arrived.
    pub(crate) fn has_joint(&self) -> bool {
        !self.ready.joint.is_empty()
    }

    /// Returns whether an operation that has not run signals a semaphore with a word at this address, or waits for it.
    pub(crate) fn uses_word(&self, address: u64) -> bool {
        self.operations.values().any(|its| match its.work {
            Work::WriteValue { at, .. } | Work::WaitValue { at, .. } => at == address,
            _ => false,
        })
    }

    /// Reports a misuse if a kernel of another green context that could run now shares SMs with this
    /// kernel's green context. Checks one kernel of each green context.
    pub(super) fn check_partitions(&self, call: &Call) {
        for streams in self.ready.partitions.values() {
            let id = streams.first().and_then(|stream| self.first(*stream));
            let other = id.and_then(|id| self.operations.get(&id));
            if let Some(Work::Kernel(other)) = other.map(|its| &its.work) {
                if call.shares_sms(other) {
                    misuse("kernels of two green contexts that share SMs run at the same time");
                }
            }
        }
    }
}

/// Returns the stream at an index of the union of disjoint sets.
fn in_order(sets: &[&BTreeSet<usize>], index: usize) -> Option<usize> {
    if let [only] = sets {
        return only.iter().nth(index).copied();
    }
    let mut all: Vec<usize> = sets.iter().copied().flatten().copied().collect();
    (index < all.len()).then(|| *all.select_nth_unstable(index).1)
}

#[cfg(test)]
mod tests {
    use super::{Choices, in_order};
    use std::collections::BTreeSet;

    #[test]
    fn sets_of_streams_count_in_one_order() {
        let (one, other) = (BTreeSet::from([1, 5, 7]), BTreeSet::from([2, 6]));
        for (index, stream) in [1, 2, 5, 6, 7].into_iter().enumerate() {
            assert_eq!(in_order(&[&one, &other], index), Some(stream));
        }
        assert_eq!(in_order(&[&one, &other], 5), None);
        assert_eq!(in_order(&[&one], 1), Some(5));
        assert_eq!(in_order(&[], 0), None);
    }

    #[test]
    fn streams_are_chosen_from_until_they_are_removed() {
        let mut choices = Choices::default();
        for stream in [10, 20, 30, 20] {
            choices.insert(stream);
        }
        choices.remove(10);
        choices.remove(10);
        assert_eq!(choices.streams, [30, 20]);
        choices.remove(30);
        assert_eq!(choices.streams, [20]);
        choices.insert(10);
        choices.remove(20);
        assert_eq!(choices.streams, [10]);
    }
}
