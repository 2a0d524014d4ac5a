//! The executor: operations with an order, run when somebody needs them.
//!
//! Each stream is a queue; an operation may also have to come after operations of other streams
//! (a wait for an event, the legacy default stream). When something waits, operations run until
//! what it waits for is done, the next one always chosen by the seed among the streams whose first
//! operation is ready. Nothing else runs: work is as late as its order allows.

mod callback;
mod ready;

pub(crate) use callback::{Callback, HostFunction, Progress};

use crate::kernel::{self, Launch};
use crate::memory::{Attached, Kind, Memory};
use crate::objects::Runnable;
use crate::thread;
use core::ffi::c_void;
use cuda_sys::CUresult;
use ready::Ready;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::ThreadId;

/// What an operation does.
#[derive(Clone)]
pub(crate) enum Work {
    Kernel(Box<Call>),
    /// Bytes that were staged when the copy was given.
    CopyIn {
        to: u64,
        bytes: Vec<u8>,
    },
    /// From pinned memory, read when the copy runs.
    CopyInPinned {
        to: u64,
        from: usize,
        len: usize,
    },
    /// To pinned memory.
    CopyOut {
        from: u64,
        to: usize,
        len: usize,
    },
    /// From pageable memory, of a graph: read when that runs.
    CopyInHost {
        to: u64,
        from: usize,
        len: usize,
    },
    /// To pageable memory, of a graph.
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
    Fill {
        at: u64,
        pattern: Vec<u8>,
        count: usize,
    },
    /// Managed memory gets another stream, or the host.
    Attach(usize, Attached),
    /// One word, of the device's or pinned memory.
    WriteValue {
        at: u64,
        bytes: Vec<u8>,
    },
    /// Only an order: not before a word is as the condition says, by its number in C.
    WaitValue {
        at: u64,
        value: u64,
        size: usize,
        condition: u32,
    },
    Allocate(u64),
    Free(u64),
    Record {
        event: usize,
    },
    /// For what an event has recorded when a graph is launched.
    WaitFor {
        event: usize,
    },
    /// Runs on the host, outside of the driver's lock.
    HostFn {
        function: HostFunction,
        data: *mut c_void,
    },
    /// Several things as one.
    All(Vec<Self>),
    /// Only an order.
    Nothing,
}

// SAFETY: the pointer of a callback is passed on, never followed, and cuLaunchHostFunc's rule is
// that any thread may run it.
unsafe impl Send for Work {}

/// A kernel to run.
#[derive(Clone)]
pub(crate) struct Call {
    pub(crate) kernel: Runnable,
    /// Whose memory it may use, and the device that it runs on.
    pub(crate) context: usize,
    pub(crate) device: usize,
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) cluster: [u32; 3],
    pub(crate) cooperative: bool,
    pub(crate) arguments: Vec<Vec<u8>>,
    /// The SMs that it may run on.
    pub(crate) sms: Vec<u32>,
    /// The green context that it runs in, by its id, and what that is a part of.
    pub(crate) partition: Option<(u64, Vec<u64>)>,
}

impl Call {
    /// Whether both run in partitions that have the same SMs by accident: neither is a part of the
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
    /// How many operations that it comes after are not done, beside those of its stream.
    missing: usize,
    /// The operations for which it is one of those.
    followers: Vec<u64>,
}

/// What came of an operation.
pub(crate) enum Done {
    Well,
    /// An event was recorded: at this tick.
    Recorded(usize, u64),
    /// Something for the host to run.
    Host(Callback),
    /// The device met something it may not do, in words: the end of the process's use of it.
    Illegal(String),
}

#[derive(Default)]
pub(crate) struct Executor {
    next: u64,
    ticks: u64,
    random: u64,
    /// Operations that are not done.
    operations: BTreeMap<u64, Operation>,
    /// Those of each stream that has any.
    queues: BTreeMap<usize, VecDeque<u64>>,
    ready: Ready,
    /// Callbacks under way, with the thread that runs each, outside of the lock.
    running: BTreeMap<u64, ThreadId>,
    /// Callbacks that have not begun and are called even if work fails.
    failing: BTreeSet<u64>,
    /// Queues that are no stream's, so far.
    asides: usize,
    /// Threads that wait for the end of a callback.
    blocked: HashSet<ThreadId>,
    /// What the host has to run next.
    pub(crate) callback: Option<Callback>,
}

impl Executor {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            // Splitmix64 is content with any start.
            random: seed,
            ..Self::default()
        }
    }

    /// Gives an operation to a stream.
    pub(crate) fn give(&mut self, stream: usize, work: Work, after: Vec<u64>) -> u64 {
        let id = self.next;
        self.next += 1;
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

    /// Gives an operation to nobody's stream: it is in order with what it comes after alone.
    pub(crate) fn give_aside(&mut self, work: Work, after: Vec<u64>) -> u64 {
        // No handle is so large.
        self.asides += 1;
        self.give(usize::MAX - self.asides, work, after)
    }

    pub(crate) fn is_done(&self, operation: u64) -> bool {
        !self.operations.contains_key(&operation)
    }

    /// What a stream has to do last, if anything.
    pub(crate) fn last(&self, stream: usize) -> Option<u64> {
        self.queues.get(&stream)?.back().copied()
    }

    pub(crate) fn is_idle(&self, stream: usize) -> bool {
        !self.queues.contains_key(&stream)
    }

    /// Whether no stream has work.
    pub(crate) fn is_all_idle(&self) -> bool {
        self.queues.is_empty()
    }

    /// The stream that an operation was given to, if it is not done.
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
                return Some(Done::Host(Callback {
                    operation: id,
                    function,
                    result: CUresult::CUDA_SUCCESS,
                    data,
                }));
            }
            Work::Kernel(call) => self.check_partitions(call),
            _ => {}
        }
        let work = self.finish(id)?;
        memory.running = stream;
        Some(run(work, memory, self.ticks))
    }

    /// Runs the frees whose turn it is: what a driver takes back before it is out of memory.
    pub(crate) fn free_what_is_next(&mut self, memory: &mut Memory) {
        while let Some((stream, id)) = self.next_free() {
            if let Some(work) = self.finish(id) {
                memory.running = stream;
                run(work, memory, self.ticks);
            }
        }
    }

    /// Splitmix64.
    fn random(&mut self, below: usize) -> usize {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % below as u64) as usize
    }

    /// Forgets a stream's work, which its context takes along.
    pub(crate) fn forget(&mut self, stream: usize) {
        self.begin(stream);
        for id in self.queues.remove(&stream).unwrap_or_default() {
            self.finish(id);
        }
    }
}

/// Whether the host is to hear of it if work fails.
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
            .bytes(to, bytes.len())
            .map(|target| target.copy_from_slice(&bytes)),
        Work::CopyInPinned { to, from, len } => copy_in(memory, to, from, len),
        Work::CopyOut { from, to, len } => copy_out(memory, from, to, len),
        Work::CopyInHost { to, from, len } => memory.bytes(to, len).map(|target| {
            let source = core::ptr::with_exposed_provenance(from);
            // SAFETY: who captured the copy gave `len` bytes there, and who launched the graph
            // promised that they still are; the target is as long, and elsewhere.
            unsafe { core::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), len) };
        }),
        Work::CopyOutHost { from, to, len } => memory.bytes(from, len).map(|source| {
            let target = core::ptr::with_exposed_provenance_mut(to);
            // SAFETY: as above, the other way.
            unsafe { core::ptr::copy_nonoverlapping(source.as_ptr(), target, len) };
        }),
        Work::CopyOnDevice { from, to, len } => memory
            .bytes(from, len)
            .map(|source| source.to_vec())
            .and_then(|source| {
                memory.bytes(to, len)?.copy_from_slice(&source);
                Ok(())
            }),
        Work::Fill { at, pattern, count } => {
            memory.bytes(at, pattern.len() * count).map(|target| {
                for element in target.chunks_exact_mut(pattern.len()) {
                    element.copy_from_slice(&pattern);
                }
            })
        }
        Work::WriteValue { at, bytes } => write_value(memory, at, &bytes),
        Work::WaitValue { at, size, .. } => match memory.word(at, size) {
            Some(_) => Ok(()),
            None => Err(format!(
                "a wait for a value at {at:#x}, which is not allocated then"
            )),
        },
        Work::Allocate(address) => {
            if let Some(allocation) = memory.starts_at(address) {
                if let Kind::Ordered { ready, .. } = &mut allocation.kind {
                    *ready = true;
                }
            }
            Ok(())
        }
        Work::Attach(address, attached) => {
            memory.attach(address, attached);
            Ok(())
        }
        Work::Free(address) => {
            memory.free(address);
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
        // A callback is not run here.
        Work::HostFn { .. } | Work::WaitFor { .. } | Work::Nothing => Ok(()),
    };
    match done {
        Ok(()) => Done::Well,
        Err(what) => Done::Illegal(what),
    }
}

/// Whether a word is as a wait wants it.
fn holds(condition: u32, word: u64, value: u64, size: usize) -> bool {
    use cuda_sys::CUstreamWaitValue_flags as Wait;
    let all = if size == 4 {
        u64::from(u32::MAX)
    } else {
        u64::MAX
    };
    match Wait(condition) {
        // As a signed difference: not negative.
        Wait::CU_STREAM_WAIT_VALUE_GEQ => word.wrapping_sub(value) & all <= all >> 1,
        Wait::CU_STREAM_WAIT_VALUE_EQ => word == value,
        Wait::CU_STREAM_WAIT_VALUE_AND => word & value != 0,
        _ => !(word | value) & all != 0,
    }
}

fn write_value(memory: &mut Memory, at: u64, bytes: &[u8]) -> Result<(), String> {
    let Some(host) = memory.host_reached(at, bytes.len()) else {
        memory.bytes(at, bytes.len())?.copy_from_slice(bytes);
        return Ok(());
    };
    for (offset, byte) in bytes.iter().enumerate() {
        // SAFETY: it is pinned memory, as was just checked; the lock is held.
        let target = unsafe { pinned_byte(host + offset) };
        target.store(*byte, Ordering::Relaxed);
    }
    Ok(())
}

fn run_kernel(call: Call, memory: &mut Memory) -> Result<(), String> {
    let name = &call.kernel.info.name;
    let Some(body) = &call.kernel.body else {
        return Err(format!(
            "kernel \"{name}\" is not registered with cuda_sim::kernel::register"
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
    for (offset, byte) in memory.bytes(to, len)?.iter_mut().enumerate() {
        // SAFETY: the source is alive, as was just checked, and `len` long; the lock is held.
        let source = unsafe { pinned_byte(from + offset) };
        *byte = source.load(Ordering::Relaxed);
    }
    Ok(())
}

fn copy_out(memory: &mut Memory, from: u64, to: usize, len: usize) -> Result<(), String> {
    if !memory.is_pinned(to, len) {
        return Err(format!(
            "the pinned target of a copy, {len} bytes, was freed"
        ));
    }
    for (offset, byte) in memory.bytes(from, len)?.iter().enumerate() {
        // SAFETY: as above, the other way.
        let target = unsafe { pinned_byte(to + offset) };
        target.store(*byte, Ordering::Relaxed);
    }
    Ok(())
}

/// A byte of pinned memory, as a device sees it: the host may use it meanwhile, after a wait that
/// failed, and then each byte is what was there before or after. (The host's uses are plain ones, so by
/// the letter of Rust's rules such a program has a race here, as it has with a real device: this crate
/// can only keep its own side of it defined.)
///
/// # Safety
/// It is in an allocation of the map of pinned memory, and the driver's lock, under which those are
/// freed, is held as long as the byte is used.
pub(crate) unsafe fn pinned_byte<'a>(address: usize) -> &'a AtomicU8 {
    let byte = core::ptr::with_exposed_provenance_mut(address);
    // SAFETY: the caller's promise; a byte has no alignment.
    unsafe { AtomicU8::from_ptr(byte) }
}
