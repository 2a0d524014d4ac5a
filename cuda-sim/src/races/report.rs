//! The report of a race.

use super::log::Conflict;
use super::order::Operation;
use crate::account;
use cuda_ptx::check::Site;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// How an operation accesses memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Access {
    /// The operation reads the bytes.
    Read,
    /// The operation writes the bytes, and may read them.
    Write,
    /// A kernel changes the bytes with atomic operations. Two such accesses do not conflict.
    Atomic,
    /// A stream memory operation waits for a word, writes it or changes it. It conflicts only with the
    /// allocation and the free of the memory.
    StreamOperation,
    /// The operation allocates the memory in stream order.
    Allocate,
    /// The operation frees the memory.
    Free,
}

impl Access {
    /// Returns whether two accesses to the same bytes must be ordered.
    pub(super) fn conflicts(self, other: Self) -> bool {
        let ends = |its| matches!(its, Self::Allocate | Self::Free);
        match (self, other) {
            _ if ends(self) || ends(other) => true,
            (Self::Read, Self::Read) | (Self::Atomic, Self::Atomic) => false,
            (Self::StreamOperation, _) | (_, Self::StreamOperation) => false,
            _ => true,
        }
    }

    /// Returns whether an access conflicts with everything that another one conflicts with.
    pub(super) fn covers(self, other: Self) -> bool {
        match self {
            Self::Allocate | Self::Free => true,
            Self::Write => !matches!(other, Self::Allocate | Self::Free),
            Self::Read | Self::Atomic | Self::StreamOperation => self == other,
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::Atomic => "atomically changes",
            Self::StreamOperation => "uses",
            Self::Allocate => "allocates",
            Self::Free => "frees",
        }
    }
}

/// Where an operation runs. The numbers are the ids that `cuStreamGetId` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Place {
    /// On the thread that makes the call.
    Host,
    /// On the legacy default stream of a context.
    LegacyStream(u64),
    /// On the default stream of a thread.
    PerThreadStream(u64),
    /// On another stream.
    Stream(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("the host"),
            Self::LegacyStream(id) => write!(f, "the legacy default stream (id {id})"),
            Self::PerThreadStream(id) => write!(f, "a per-thread default stream (id {id})"),
            Self::Stream(id) => write!(f, "the stream with id {id}"),
        }
    }
}

/// One of the two operations of a [`Race`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RacingOperation {
    /// The driver function that enqueued the operation, or that accesses the memory itself. For a node of a
    /// graph this is the function that launched the graph. Empty if the program itself wrote the memory.
    pub function: &'static str,
    /// The type of the operation, with an article, for example `a copy`.
    pub operation: &'static str,
    /// The name of the kernel, if the operation is one.
    pub kernel: Option<String>,
    /// The stream of the operation.
    pub place: Place,
    /// How the operation accesses the memory.
    pub access: Access,
    /// The addresses of the access that conflicts.
    pub bytes: Range<u64>,
    /// The access of one thread, if the operation is a kernel that runs by its PTX.
    pub thread: Option<ThreadAccess>,
}

/// The access of a thread of a kernel, to bytes that another operation accesses too.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadAccess {
    /// The instruction, with its lines in the PTX and in the source, and the thread.
    pub site: Site,
    /// The addresses of the bytes.
    pub bytes: Range<u64>,
}

impl RacingOperation {
    pub(super) fn new(operation: &Operation, access: Access, bytes: Range<u64>) -> Self {
        let label = &operation.label;
        Self {
            function: label.function,
            operation: label.what,
            kernel: label.kernel.clone(),
            place: label.place,
            access,
            bytes,
            thread: None,
        }
    }

    /// Describes the access to memory that starts at `start`.
    fn describe(&self, start: u64) -> String {
        let what = match &self.kernel {
            Some(name) => format!("kernel \"{name}\" ({})", self.function),
            None if self.function.is_empty() => self.operation.to_owned(),
            None => format!("{} ({})", self.operation, self.function),
        };
        let verb = self.access.verb();
        let bytes = match self.access {
            Access::Allocate | Access::Free => "the memory".to_owned(),
            _ => {
                let place = |address: u64| address.saturating_sub(start);
                format!("bytes {}..{}", place(self.bytes.start), place(self.bytes.end))
            }
        };
        let thread = self.thread.as_ref().map(|ThreadAccess { site, bytes }| {
            let offset = bytes.start.saturating_sub(start);
            let element = element(&site.instruction, offset).map(|its| format!(", {its},"));
            let end = bytes.end.saturating_sub(start);
            format!(" (bytes {offset}..{end}{} by {site})", element.unwrap_or_default())
        });
        format!("{what} {verb} {bytes} on {}{}", self.place, thread.unwrap_or_default())
    }
}

/// The memory of a [`Race`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RacingMemory {
    /// The address of the allocation, or of the part that both operations access if the allocation is not
    /// known.
    pub start: u64,
    /// The size of the allocation in bytes.
    pub size: u64,
    /// The type of the memory, for example `stream-ordered memory`.
    pub kind: &'static str,
}

/// Two operations that access the same bytes and that no order connects. At least one of them writes,
/// allocates or frees the bytes.
///
/// The display form names both operations, their streams, the memory, and how to order them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Race {
    /// The operation that was enqueued first.
    pub first: RacingOperation,
    /// The operation that was enqueued second.
    pub second: RacingOperation,
    /// The memory that both access.
    pub memory: RacingMemory,
    /// The first addresses that both access, without a gap.
    pub overlap: Range<u64>,
}

impl Race {
    pub(crate) fn new(conflict: &Conflict, memory: RacingMemory) -> Self {
        let Conflict { earlier, later, overlap } = conflict.clone();
        Self {
            first: RacingOperation::new(&earlier.operation, earlier.access, earlier.bytes),
            second: RacingOperation::new(&later.operation, later.access, later.bytes),
            memory,
            overlap,
        }
    }

    /// Says how the operations can be ordered.
    fn remedy(&self) -> String {
        let (first, second) = (&self.first, &self.second);
        if first.place == Place::Host {
            return format!(
                "Wait on the host for the work of {} before {} is called",
                second.place, first.function
            );
        }
        if second.function.is_empty() {
            return format!(
                "Wait on the host for the work of {} (cuStreamSynchronize, cuEventSynchronize) before the \
                 program writes these bytes",
                first.place
            );
        }
        if second.place == Place::Host {
            return format!(
                "Wait on the host for the work of {} (cuStreamSynchronize, cuEventSynchronize) before {} \
                 is called",
                first.place, second.function
            );
        }
        if first.place == second.place {
            return "Add a dependency between the two nodes of the graph".to_owned();
        }
        let (before, after) = match (first.access, second.access) {
            // The memory must be used before its free, whatever was called first. The next launch of a graph
            // allocates it again.
            (Access::Free, access) if access != Access::Allocate => (second, first),
            _ => (first, second),
        };
        format!(
            "Record an event after the operation on {} (cuEventRecord), and let {} wait for it \
             (cuStreamWaitEvent) before the other operation",
            before.place, after.place
        )
    }

    /// Returns what reports of the same race have in common.
    fn key(&self) -> Key {
        let operation =
            |its: &RacingOperation| (its.function, its.kernel.clone(), its.place, its.access);
        (operation(&self.first), operation(&self.second), self.memory.start)
    }
}

impl fmt::Display for Race {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RacingMemory { start, size, kind } = &self.memory;
        write!(
            f,
            "race on {size} bytes of {kind} at {start:#x}: {}, and {}; nothing orders the two. {}.",
            self.first.describe(*start),
            self.second.describe(*start),
            self.remedy()
        )
    }
}

/// Names the element at an offset, for an instruction whose type has a size.
pub(crate) fn element(instruction: &str, offset: u64) -> Option<String> {
    let bits = instruction.rsplit('.').find_map(|word| {
        let size = ["bf", "b", "f", "s", "u"].iter().find_map(|kind| word.strip_prefix(kind))?;
        let (bits, count) = size.split_once('x').unwrap_or((size, "1"));
        Some(bits.parse::<u64>().ok()? * count.parse::<u64>().ok()?)
    });
    let size = bits.map(|bits| bits / 8).filter(|size| *size != 0)?;
    Some(format!("element {} of size {size}", offset / size))
}

type KeyOfOperation = (&'static str, Option<String>, Place, Access);
type Key = (KeyOfOperation, KeyOfOperation, u64);

/// Maximum number of races that are reported.
const KEPT: usize = 1000;

#[derive(Default)]
struct Races {
    list: Vec<Race>,
    keys: HashSet<Key>,
}

static RACES: Mutex<Option<Races>> = Mutex::new(None);

/// Reports a race, unless the same operations on the same streams already raced on the same memory. `threads` returns
/// the accesses of threads of both operations.
pub(crate) fn report(mut race: Race, threads: impl FnOnce() -> [Option<ThreadAccess>; 2]) {
    let mut races = RACES.lock().unwrap_or_else(PoisonError::into_inner);
    let races = races.get_or_insert_default();
    if races.list.len() == KEPT || !races.keys.insert(race.key()) {
        return;
    }
    [race.first.thread, race.second.thread] = threads();
    let text = race.to_string();
    eprintln!("cuda-sim: {text}");
    account::note_misuse(text);
    races.list.push(race);
    if races.list.len() == KEPT {
        eprintln!("cuda-sim: {KEPT} races were reported; more are not");
    }
}

/// Returns the races that were detected so far, if
/// [`Profile::with_race_detection`](crate::Profile::with_race_detection) is on. Two operations are listed once
/// for each allocation and each pair of streams, and at most 1000 races are listed.
///
/// Each race is also a [misuse](crate::misuses). The [page](mod@crate::races) explains what is detected.
pub fn races() -> Vec<Race> {
    let races = RACES.lock().unwrap_or_else(PoisonError::into_inner);
    races.as_ref().map(|its| its.list.clone()).unwrap_or_default()
}

/// Forgets all races.
pub(crate) fn clear() {
    *RACES.lock().unwrap_or_else(PoisonError::into_inner) = None;
}
