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
pub mod kernel;
mod late;
mod program;
mod ready;
mod runnable;

pub(crate) use callback::{Callback, HostFunction, Progress};
pub(crate) use decompress::{Decompression, Format};
pub(crate) use fabric::{FabricCopy, FabricSide};
pub(crate) use program::{Conditional, Form, Program};
pub(crate) use runnable::{FunctionSettings, Placed, Runnable};

use crate::account::note_unregistered;
use crate::memory::{Attached, Memory, pinned_byte};
use crate::races::{Access, Operation as RacingOperation, Order};
use crate::thread;
use core::ffi::{c_char, c_void};
use cuda_sys::{CUresult, CUstreamAtomicReductionOpType};
use kernel::Launch;
use ready::Ready;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::ThreadId;

/// The effect of an operation.
#[derive(Clone)]
pub(crate) enum Work {
    Kernel(Box<Call>),
    /// A copy of bytes that were staged when the copy was enqueued.
    CopyIn {
        to: u64,
        bytes: Vec<u8>,
    },
    /// A copy from pinned memory, which is read when the copy runs.
    CopyInPinned {
        to: u64,
        from: usize,
        len: usize,
    },
    /// A copy to pinned memory.
    CopyOut {
        from: u64,
        to: usize,
        len: usize,
    },
    /// A copy from pageable memory. That of a graph is [staged](Work::staged) when the graph is launched,
    /// and that of a batch is read when the copy runs.
    CopyInHost {
        to: u64,
        from: usize,
        len: usize,
    },
    /// A copy to pageable memory. The launch of a graph waits for it, and a batch does not.
    CopyOutHost {
        from: u64,
        to: usize,
        len: usize,
    },
    CopyOnDevice {
        from: u64,
        to: u64,
        len: usize,
    },
    CopyOnHost {
        from: usize,
        to: usize,
        len: usize,
    },
    Fill {
        at: u64,
        pattern: Vec<u8>,
        count: usize,
    },
    /// Attaches managed memory to a stream or to the host.
    Attach(usize, Attached),
    Decompress(Box<Decompression>),
    Fabric(Box<FabricCopy>),
    /// Writes a word of device memory or pinned memory.
    WriteValue {
        at: u64,
        bytes: Vec<u8>,
    },
    /// Changes a word of device memory or pinned memory by an atomic operation.
    ReduceValue {
        at: u64,
        value: u64,
        size: usize,
        reduction: CUstreamAtomicReductionOpType,
    },
    /// Waits until a word of memory fulfills the condition, which is given by its value in C.
    WaitValue {
        at: u64,
        value: u64,
        size: usize,
        condition: u32,
    },
    /// Makes memory usable whose address is already known.
    Allocate(u64),
    Free(u64),
    /// Sets the values of conditional handles at the start of a launch.
    SetConditionals(Vec<(u64, u32)>),
    /// A conditional node of a graph.
    Conditional(Box<Conditional>),
    /// The end of a body of the conditional node that is this operation.
    EndOfBody(u64),
    Record {
        event: usize,
    },
    /// Waits for the operation that the event has recorded when the graph is launched.
    WaitFor {
        event: usize,
    },
    /// Runs on the host without the driver's lock.
    HostFn {
        function: HostFunction,
        data: *mut c_void,
    },
    /// The position in its stream of a copy that the call makes itself after this operation.
    CopyByCall,
    /// Several operations that run as one.
    All(Vec<Self>),
    /// Has no effect, only an order.
    Nothing,
}

// SAFETY: the pointer of a callback is passed on and never dereferenced, and `cuLaunchHostFunc` requires
// that the function may run on any thread.
unsafe impl Send for Work {}
// SAFETY: nothing changes work through a shared reference, and the pointer of a callback is never
// dereferenced. The bodies of conditional nodes are shared.
unsafe impl Sync for Work {}

/// A kernel launch.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) kernel: Runnable,
    /// The context whose memory the kernel may use.
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) cluster: [u32; 3],
    pub(crate) cooperative: bool,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The SMs that the kernel may run on.
    pub(crate) sms: Arc<[u32]>,
    /// The green context that the kernel runs in, by its id, and the green contexts that this one is a
    /// part of.
    pub(crate) partition: Option<(u64, Vec<u64>)>,
    /// The attributes of the launch, by number.
    pub(crate) attributes: BTreeMap<u32, [c_char; 64]>,
    /// The executable graph that the launch is a part of.
    pub(crate) executable: Option<usize>,
}

impl Call {
    /// Returns whether both kernels run in partitions that overlap although neither is a part of the
    /// other.
    fn shares_sms(&self, other: &Self) -> bool {
        let (Some((its, wholes)), Some((others, other_wholes))) =
            (&self.partition, &other.partition)
        else {
            return false;
        };
        let is_one = its == others || wholes.contains(others) || other_wholes.contains(its);
        let same_device = self.device == other.device;
        same_device && !is_one && self.sms.iter().any(|sm| other.sms.contains(sm))
    }
}

struct Operation {
    work: Work,
    stream: usize,
    /// Number of incomplete operations of other streams that it depends on.
    missing: usize,
    /// The operations that depend on it in this way.
    followers: Vec<u64>,
}

/// The result of running an operation.
pub(crate) enum Done {
    Well,
    /// An event was recorded, at this tick.
    Recorded(usize, u64),
    /// The host must run a callback.
    Host(Callback),
    /// The device made an illegal access, which the text describes. The process cannot use the device
    /// afterwards.
    Illegal(String),
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
    /// Callbacks that are running, without the lock, with the thread that runs each.
    running: BTreeMap<u64, ThreadId>,
    /// Callbacks that have not started and that run even after a failure.
    failing: BTreeSet<u64>,
    /// Number of queues created so far that belong to no stream.
    asides: usize,
    /// Callbacks on the driver's thread that no call waits for.
    late: BTreeSet<u64>,
    /// Threads that wait for a callback to end.
    blocked: HashSet<ThreadId>,
    /// The callback that the host must run next.
    pub(crate) callback: Option<Callback>,
    /// The happens-before order, if races are detected.
    pub(crate) order: Option<Box<Order>>,
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
        if let Some(order) = &mut self.order {
            let is_first = !self.queues.contains_key(&stream);
            order.enqueue(id, (stream, is_first), &after, work.described());
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
        let operation = Operation {
            work,
            stream,
            missing,
            followers: Vec::new(),
        };
        self.operations.insert(id, operation);
        self.queues.entry(stream).or_default().push_back(id);
        self.note_first(stream);
        id
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

impl Work {
    /// Reads the pageable memory of a copy now (measured: a launch reads it before it returns).
    pub(crate) fn staged(self) -> Self {
        match self {
            Self::CopyInHost { to, from, len } => {
                let mut bytes = vec![0; len];
                let source = core::ptr::with_exposed_provenance(from);
                // SAFETY: the caller that launches the graph guarantees that the copy's `len` bytes are
                // readable. The target has the same length and does not overlap the source.
                unsafe { core::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), len) };
                Self::CopyIn { to, bytes }
            }
            Self::All(parts) => Self::All(parts.into_iter().map(Self::staged).collect()),
            other => other,
        }
    }

    /// Returns whether a call that enqueues the work waits for it (measured): a copy to pageable memory, and one
    /// within host memory, even if it is pinned.
    pub(crate) fn is_awaited(&self) -> bool {
        match self {
            Self::CopyOutHost { .. } | Self::CopyOnHost { .. } => true,
            Self::All(parts) => parts.iter().any(Self::is_awaited),
            _ => false,
        }
    }
}

/// Returns whether an operation runs on the host even after a failure.
fn is_told_of_failures(work: &Work) -> bool {
    let Work::HostFn { function, .. } = work else {
        return false;
    };
    matches!(function, HostFunction::WithResult(..))
}

fn run(work: Work, memory: &mut Memory, tick: u64) -> Done {
    let done = match work {
        Work::Kernel(call) => run_kernel(*call, memory),
        Work::CopyIn { to, bytes } => memory
            .target(to, bytes.len())
            .map(|target| target.copy_from_slice(&bytes)),
        Work::CopyInPinned { to, from, len } => copy_in(memory, to, from, len),
        Work::CopyOut { from, to, len } => copy_out(memory, from, to, len),
        Work::CopyOutHost { from, to, len } => {
            memory.note_host_access(to, len, Access::Write);
            memory.bytes(from, len).map(|source| {
                let target = core::ptr::with_exposed_provenance_mut(to);
                // SAFETY: the caller of the function that enqueued the copy guarantees that `len` bytes
                // are writable until the copy is complete. The source has the same length and does not
                // overlap the target.
                unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), target, len) };
            })
        }
        Work::CopyInHost { to, from, len } => {
            memory.note_host_access(from, len, Access::Read);
            memory.target(to, len).map(|target| {
                let source = core::ptr::with_exposed_provenance(from);
                // SAFETY: the caller of the function that enqueued the copy guarantees that `len` bytes
                // are readable until the copy is complete. The target has the same length and does not
                // overlap the source.
                unsafe { core::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), len) };
            })
        }
        Work::CopyOnHost { from, to, len } => {
            memory.note_host_access(from, len, Access::Read);
            memory.note_host_access(to, len, Access::Write);
            let source = core::ptr::with_exposed_provenance::<u8>(from);
            let target = core::ptr::with_exposed_provenance_mut(to);
            // SAFETY: the caller of the function that enqueued the copy guarantees that both ranges can
            // be accessed until the copy is complete.
            unsafe { core::ptr::copy(source, target, len) };
            Ok(())
        }
        Work::CopyOnDevice { from, to, len } => copy_on_device(memory, from, to, len),
        Work::Fill { at, pattern, count } => memory
            .target(at, pattern.len() * count)
            .map(|target| fill(target, &pattern)),
        Work::Decompress(its) => its.run(memory),
        Work::Fabric(its) => its.run(memory),
        Work::WriteValue { at, bytes } => write_value(memory, at, &bytes),
        Work::ReduceValue {
            at,
            value,
            size,
            reduction,
        } => reduce_value(memory, at, value, size, reduction),
        Work::WaitValue { at, size, .. } => match memory.word(at, size) {
            Some(_) => Ok(()),
            None => Err(format!(
                "a wait for a value at {at:#x}, which is not allocated when the wait runs"
            )),
        },
        Work::Allocate(address) => {
            memory.note_lifetime(address, Access::Allocate);
            memory.make_ready(address)
        }
        Work::Attach(address, attached) => {
            memory.attach(address, attached);
            Ok(())
        }
        Work::Free(address) => {
            memory.note_lifetime(address, Access::Free);
            memory.free_in_order(address);
            Ok(())
        }
        Work::SetConditionals(values) => {
            for (handle, value) in values {
                memory.reset_conditional(handle, value);
            }
            Ok(())
        }
        Work::All(parts) => {
            for part in parts {
                match run(part, memory, tick) {
                    Done::Well => {}
                    other => return other,
                }
            }
            return Done::Well;
        }
        Work::Record { event } => return Done::Recorded(event, tick),
        // Callbacks and conditional nodes do not run here.
        Work::HostFn { .. }
        | Work::WaitFor { .. }
        | Work::Conditional(_)
        | Work::EndOfBody(_)
        | Work::CopyByCall
        | Work::Nothing => Ok(()),
    };
    match done {
        Ok(()) => Done::Well,
        Err(what) => Done::Illegal(what),
    }
}

/// The number of bytes that fills and copies read at once, so that they stay in the processor's cache. A
/// multiple of the size of each pattern.
const PART: usize = 128 << 10;

/// Copies within device memory, in parts, so that a copy needs little memory of the host.
fn copy_on_device(memory: &mut Memory, from: u64, to: u64, len: usize) -> Result<(), String> {
    memory.bytes(from, len)?;
    memory.target(to, len)?;
    let mut part = vec![0; len.min(PART)];
    // Backwards if the target is after the source, which it may overlap.
    let parts = len.div_ceil(PART);
    for number in 0..parts {
        let number = if to > from {
            parts - 1 - number
        } else {
            number
        };
        let at = number * PART;
        let part = &mut part[..PART.min(len - at)];
        part.copy_from_slice(memory.bytes(from + at as u64, part.len())?);
        memory
            .target(to + at as u64, part.len())?
            .copy_from_slice(part);
    }
    Ok(())
}

/// Writes a pattern repeatedly, with calls that the C library makes at memory speed in every build.
fn fill(target: &mut [u8], pattern: &[u8]) {
    if let [byte] = pattern {
        target.fill(*byte);
        return;
    }
    let Some(start) = target.get_mut(..pattern.len()) else {
        return;
    };
    start.copy_from_slice(pattern);
    let mut written = pattern.len();
    while written < target.len() {
        let more = written.min(target.len() - written).min(PART);
        target.copy_within(..more, written);
        written += more;
    }
}

/// Returns whether a word fulfills the condition of a wait.
fn holds(condition: u32, word: u64, value: u64, size: usize) -> bool {
    use cuda_sys::CUstreamWaitValue_flags as Wait;
    let all = if size == 4 {
        u64::from(u32::MAX)
    } else {
        u64::MAX
    };
    match Wait(condition) {
        // The difference, as a signed number, is not negative.
        Wait::CU_STREAM_WAIT_VALUE_GEQ => word.wrapping_sub(value) & all <= all >> 1,
        Wait::CU_STREAM_WAIT_VALUE_EQ => word == value,
        Wait::CU_STREAM_WAIT_VALUE_AND => word & value != 0,
        _ => !(word | value) & all != 0,
    }
}

fn write_value(memory: &mut Memory, at: u64, bytes: &[u8]) -> Result<(), String> {
    let Some(host) = memory.host_reached(at, bytes.len()) else {
        memory.target(at, bytes.len())?.copy_from_slice(bytes);
        return Ok(());
    };
    memory.note_host_access(host, bytes.len(), Access::Write);
    for (offset, byte) in bytes.iter().enumerate() {
        // SAFETY: the byte is in pinned memory, as checked above, and the lock is held.
        let target = unsafe { pinned_byte(host + offset) };
        target.store(*byte, Ordering::Relaxed);
    }
    Ok(())
}

/// Changes a word. All work runs under one lock, so this is atomic.
fn reduce_value(
    memory: &mut Memory,
    at: u64,
    value: u64,
    size: usize,
    reduction: CUstreamAtomicReductionOpType,
) -> Result<(), String> {
    let Some(word) = memory.word(at, size) else {
        return Err(format!(
            "an atomic operation on a value at {at:#x}, which is not allocated when the operation runs"
        ));
    };
    let changed = match reduction {
        CUstreamAtomicReductionOpType::CU_STREAM_ATOMIC_REDUCTION_OP_AND => word & value,
        CUstreamAtomicReductionOpType::CU_STREAM_ATOMIC_REDUCTION_OP_OR => word | value,
        _ => word.wrapping_add(value),
    };
    write_value(memory, at, &changed.to_le_bytes()[..size])
}

fn run_kernel(call: Call, memory: &mut Memory) -> Result<(), String> {
    let name = &call.kernel.info.name;
    let Some(body) = &call.kernel.body else {
        note_unregistered(name);
        return Err(format!(
            "kernel \"{name}\" is not registered, so it cannot run: register it with \
             cuda_sim::kernel::register, or cuSimRegisterKernel from C and Python; or let unregistered \
             kernels do nothing with Profile::ignoring_unregistered_kernels, or CUDA_SIM_KERNELS=ignore"
        ));
    };
    let mut launch = Launch::new(memory, &call);
    kernel::run(body, &mut launch).map_err(|what| format!("kernel \"{name}\": {what}"))
}

fn copy_in(memory: &mut Memory, to: u64, from: usize, len: usize) -> Result<(), String> {
    if !memory.is_pinned(from, len) {
        return Err(format!(
            "the pinned source of a copy, {len} bytes, was freed"
        ));
    }
    memory.note_host_access(from, len, Access::Read);
    let target = memory.target(to, len)?;
    let source = core::ptr::with_exposed_provenance(from);
    // SAFETY: the source is alive and `len` bytes long, as checked above, and the lock is held, under which
    // it is freed. The program must not write it on the host while a device reads it. The target has the
    // same length.
    unsafe { core::ptr::copy(source, target.as_mut_ptr(), len) };
    Ok(())
}

fn copy_out(memory: &mut Memory, from: u64, to: usize, len: usize) -> Result<(), String> {
    if !memory.is_pinned(to, len) {
        return Err(format!(
            "the pinned target of a copy, {len} bytes, was freed"
        ));
    }
    memory.note_host_access(to, len, Access::Write);
    let source = memory.bytes(from, len)?;
    let target = core::ptr::with_exposed_provenance_mut(to);
    // SAFETY: the target is alive and `len` bytes long, as checked above, and the lock is held, under which
    // it is freed. The program must not access it on the host while a device writes it. The source has the
    // same length.
    unsafe { core::ptr::copy(source.as_ptr(), target, len) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{PART, fill};

    #[test]
    fn a_fill_repeats_its_pattern() {
        for count in (0..40).chain([PART, PART + 5]) {
            for pattern in [&[7][..], &[1, 2], &[1, 2, 3, 4]] {
                let mut target = vec![0; count * pattern.len()];
                fill(&mut target, pattern);
                assert_eq!(target, pattern.repeat(count));
            }
        }
    }
}
