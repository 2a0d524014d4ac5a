//! The executor: it runs enqueued operations when a caller waits for them.
//!
//! Each stream is a queue. An operation may also depend on operations of other streams (a wait for an
//! event, the legacy default stream). When a call waits, operations run until the one that it waits for
//! is complete. The seed chooses the next one among the streams whose first operation is ready. Nothing
//! else runs: work runs as late as its order allows.

mod callback;
mod decompress;
mod describe;
mod fabric;
mod interpret;
mod joint;
pub mod kernel;
mod late;
mod mark;
mod program;
mod ready;
mod run;
mod runnable;
mod work;

pub(crate) use callback::{Callback, HostFunction, Progress, note_freed, note_given};
pub(crate) use decompress::{Decompression, Format};
pub(crate) use fabric::{FabricCopy, FabricSide};
pub(crate) use joint::Joint;
pub(crate) use program::{Conditional, Form, Program};
pub(crate) use runnable::{FunctionSettings, Placed, Runnable};
pub(crate) use work::{Call, Work};

use crate::memory::Memory;
use crate::races::{Operation as RacingOperation, Order};
use crate::thread;
use cuda_sys::CUresult;
use mark::Marks;
use ready::Ready;
use run::run;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::thread::ThreadId;
use work::is_told_of_failures;

struct Operation {
    work: Work,
    stream: usize,
    /// The driver function that enqueued it.
    function: &'static str,
    /// Number of incomplete operations of other streams that it depends on.
    missing: usize,
    /// The operations that depend on it in this way.
    followers: Vec<u64>,
    /// The marks that follow it.
    marks: Vec<u64>,
}

/// The result of running an operation.
pub(crate) enum Done {
    Well,
    /// An event was recorded, at this tick.
    Recorded(usize, u64),
    /// The host must run a callback.
    Host(Callback),
    /// The device stopped with an error. The process cannot use the device afterwards.
    Fatal(Failure),
}

/// An error of the device: its code, and a text that describes it.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: CUresult,
    pub(crate) text: String,
}

/// An illegal access.
impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self { code: CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, text }
    }
}

#[derive(Default)]
pub(crate) struct Executor {
    next: u64,
    ticks: u64,
    random: u64,
    /// Operations that are not complete.
    operations: BTreeMap<u64, Operation>,
    /// The incomplete operations of each stream that has any.
    queues: BTreeMap<usize, VecDeque<u64>>,
    ready: Ready,
    marks: Marks,
    /// Callbacks that are running, without the lock, with the thread that runs each.
    running: BTreeMap<u64, ThreadId>,
    /// Callbacks that have not started and that run even after a failure.
    failing: BTreeSet<u64>,
    /// Number of queues created so far that belong to no stream.
    asides: usize,
    /// Callbacks on the driver's thread that no call waits for.
    late: BTreeSet<u64>,
    /// Threads that wait for a callback to end.
    blocked: Vec<ThreadId>,
    /// The callback that the host must run next.
    pub(crate) callback: Option<Callback>,
    /// The name of the current call, without the suffix of the variant for the per-thread default stream.
    pub(crate) calling: &'static str,
    /// The function that enqueued the work whose followers are enqueued now: a conditional node, or a kernel that
    /// launches a graph.
    source: Option<&'static str>,
    /// The function that enqueued the operation that ran last.
    last_function: &'static str,
    /// The happens-before order, if races are detected.
    pub(crate) order: Option<Box<Order>>,
    /// Copies from pinned memory that were enqueued and whose sources were not noted, if races are detected.
    unnoted: Vec<u64>,
    /// The last operation that accessed memory, if races are detected.
    last_racing: Option<Arc<RacingOperation>>,
}

impl Executor {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            // Splitmix64 accepts any seed.
            random: seed,
            ..Self::default()
        }
    }

    /// Begins the sequence of random choices again.
    pub(crate) fn restart(&mut self, seed: u64) {
        self.random = seed;
    }

    /// Enqueues an operation on a stream.
    pub(crate) fn give(&mut self, stream: usize, work: Work, after: Vec<u64>) -> u64 {
        let id = self.next;
        self.next += 1;
        let function = self.source.unwrap_or(self.calling);
        if let Some(order) = &mut self.order {
            let is_first = !self.queues.contains_key(&stream);
            order.enqueue(id, (stream, is_first), &after, function, work.described());
        }
        if self.order.is_some() && !work.pinned_sources().is_empty() {
            self.unnoted.push(id);
        }
        let mut missing = 0;
        for before in after {
            if let Some(its) = self.operations.get_mut(&before) {
                its.followers.push(id);
                missing += 1;
            }
        }
        if is_told_of_failures(&work) {
            self.failing.insert(id);
        }
        let operation =
            Operation { work, stream, function, missing, followers: Vec::new(), marks: Vec::new() };
        self.operations.insert(id, operation);
        self.queues.entry(stream).or_default().push_back(id);
        self.note_first(stream);
        id
    }

    /// Notes that a source has enqueued all of its work.
    fn end_source(&mut self) {
        self.source = None;
        if let Some(order) = &mut self.order {
            order.end_source();
        }
    }

    /// Enqueues an operation that belongs to no stream and is ordered only after `after`.
    pub(crate) fn give_aside(&mut self, work: Work, after: Vec<u64>) -> u64 {
        // No stream handle is that large.
        self.asides += 1;
        self.give(usize::MAX - self.asides, work, after)
    }

    /// Returns the number of the next operation.
    pub(crate) fn next_operation(&self) -> u64 {
        self.next
    }

    pub(crate) fn is_done(&self, operation: u64) -> bool {
        !self.operations.contains_key(&operation)
    }

    /// Returns the last incomplete operation of a stream, if any.
    pub(crate) fn last(&self, stream: usize) -> Option<u64> {
        self.queues.get(&stream)?.back().copied()
    }

    pub(crate) fn is_idle(&self, stream: usize) -> bool {
        !self.queues.contains_key(&stream)
    }

    /// Returns the streams that have work.
    pub(crate) fn busy_streams(&self) -> impl Iterator<Item = usize> {
        self.queues.keys().copied()
    }

    /// Returns whether no stream has work. Late callbacks are not work of a stream.
    pub(crate) fn is_all_idle(&self) -> bool {
        // Each late callback has a queue of its own.
        self.queues.len() == self.late.len()
    }

    /// Returns the number of operations that are not complete.
    pub(crate) fn pending(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether there is no work, and no late callback.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Returns the stream of an operation that is not complete.
    pub(crate) fn stream_of(&self, operation: u64) -> Option<usize> {
        self.operations.get(&operation).map(|its| its.stream)
    }

    /// Runs one operation, if one is ready.
    pub(crate) fn step(&mut self, memory: &mut Memory) -> Option<Done> {
        let stream = self.choose(memory)?;
        let id = *self.queues.get(&stream)?.front()?;
        self.ticks += 1;
        self.begin(stream);
        match &self.operations.get(&id)?.work {
            Work::HostFn { function, data } => {
                let (function, data) = (*function, *data);
                self.failing.remove(&id);
                self.running.insert(id, thread::id());
                if let Some(order) = &mut self.order {
                    order.begin_host_function(id);
                }
                return Some(Done::Host(Callback {
                    operation: id,
                    function,
                    result: CUresult::CUDA_SUCCESS,
                    data,
                }));
            }
            Work::Conditional(its) => {
                let its = its.clone();
                self.enter(id, &its, memory);
                return Some(Done::Well);
            }
            Work::Kernel(call) => self.check_partitions(call),
            _ => {}
        }
        self.last_function = self.operations.get(&id)?.function;
        let racing = self.begin_observed(id, memory);
        let work = self.finish(id)?;
        if let Work::EndOfBody(conditional) = work {
            if let Some(order) = &mut self.order {
                order.order_after(conditional, id);
            }
            self.end_body(conditional, memory);
            return Some(Done::Well);
        }
        memory.running = stream;
        memory.running_operation = Some(id);
        memory.running_function = self.last_function;
        let done = run(work, memory, self.ticks);
        memory.running_operation = None;
        self.end_observed(racing, memory);
        Some(done)
    }

    /// Runs all frees that are ready. A driver reclaims this memory before it reports that it is out of
    /// memory.
    pub(crate) fn free_what_is_next(&mut self, memory: &mut Memory) {
        while let Some((stream, id)) = self.next_free() {
            let racing = self.begin_observed(id, memory);
            if let Some(work) = self.finish(id) {
                memory.running = stream;
                run(work, memory, self.ticks);
            }
            self.end_observed(racing, memory);
            self.apply_marks(memory);
        }
    }

    /// Discards the work of a stream whose context is destroyed.
    pub(crate) fn forget(&mut self, stream: usize) {
        self.begin(stream);
        for id in self.queues.remove(&stream).unwrap_or_default() {
            self.finish(id);
        }
    }
}

/// Returns the next number less than `below` of a sequence, with splitmix64.
fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) % below as u64) as usize
}
