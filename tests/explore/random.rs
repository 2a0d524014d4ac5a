//! Random programs over the safe interface: three threads that share streams, events, buffers,
//! pools, graphs and captures. Run by `cargo xtask explore random`.
//!
//! Errors of the interface are allowed. Misuses of the driver, losses, deadlocks, panics and wrong
//! contents are violations. A program that violates a rule is shrunk by removing steps as long as
//! it still does.

mod interpret;
mod search;

pub(crate) use interpret::run;
pub(crate) use search::{explore_batch, search};

use arbitrary::{Arbitrary, Unstructured};
use cuda_safe::CaptureMode;
use std::fmt;

pub(crate) const THREADS: usize = 3;

/// The number of steps of one program, over all threads.
const STEPS: usize = 24;

/// The memory manager in the contexts of a program.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Manager {
    None,
    Driver,
    Ordered,
    Caching,
}

/// An index into a table of objects, modulo the size of the table.
#[derive(Clone, Copy)]
pub(crate) struct Place(pub(crate) u8);

impl Arbitrary<'_> for Place {
    fn arbitrary(source: &mut Unstructured<'_>) -> arbitrary::Result<Self> {
        // The range is a multiple of the sizes of all tables.
        source.int_in_range(0..=59).map(Self)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One step of a thread. Objects are in tables that all threads share. A step whose object does not
/// exist does nothing.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Step {
    NewStream(Place, StreamKind),
    DropStream(Place),
    NewEvent(Place),
    DropEvent(Place),
    NewBuffer(Place, Place, BufferKind),
    DropBuffer(Place),
    NewPool,
    DropPool,
    Fill(Place, u8),
    CopyFromSlice(Place, u8),
    CopyBuffer(Place, Place),
    Read(Place),
    Launch(Place),
    Probe(Place),
    Rebind(Place, Place),
    Share(Place, Place),
    ReadShared(Place, Place),
    ReadPeer(Place, Place),
    DropShared(Place),
    Record(Place, Place),
    RecordExternal(Place, Place),
    Wait(Place, Place),
    WaitExternal(Place, Place),
    Begin(Place, Mode),
    End(Place),
    Abandon,
    Instantiate(Place),
    DropGraph(Place),
    /// A host function that drops a buffer.
    DropInHostFunction(Place, Place),
    /// A thread that exits with objects of its own.
    DropOnAnotherThread(Place, Place),
    Synchronize(Place),
    SynchronizeContext,
    Trim,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum StreamKind {
    Plain,
    Blocking,
    /// A stream of a lease of a pool of partitions.
    Leased,
    /// A stream of the second device.
    Peer,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum BufferKind {
    Zeroed,
    FromSlice(u8),
    Synchronous,
    OfPool,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Mode {
    Global,
    ThreadLocal,
    Relaxed,
}

impl Mode {
    pub(crate) fn of(self) -> CaptureMode {
        match self {
            Self::Global => CaptureMode::Global,
            Self::ThreadLocal => CaptureMode::ThreadLocal,
            Self::Relaxed => CaptureMode::Relaxed,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) manager: Manager,
    /// The steps, each with the number of its thread.
    pub(crate) steps: Vec<(usize, Step)>,
}

impl Program {
    /// Returns the program of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut state = seed;
        let bytes: Vec<u8> = (0..STEPS * 2)
            .flat_map(|_| next(&mut state).to_le_bytes())
            .collect();
        let mut source = Unstructured::new(&bytes);
        let mut steps = Vec::new();
        let manager = Manager::arbitrary(&mut source).unwrap_or(Manager::None);
        while steps.len() < STEPS {
            let thread = source.int_in_range(0..=THREADS - 1);
            let (Ok(thread), Ok(step)) = (thread, step(&mut source)) else {
                break;
            };
            steps.push((thread, step));
        }
        Self { manager, steps }
    }

    /// Returns the program with only some of its steps.
    pub(crate) fn keeping(mut self, kept: &[usize]) -> Self {
        let steps = self.steps.into_iter().enumerate();
        let steps = steps.filter(|(place, _)| kept.contains(place));
        self.steps = steps.map(|(_, step)| step).collect();
        self
    }

    /// Describes the program, thread by thread.
    pub(crate) fn describe(&self) -> String {
        let mut text = format!("    memory manager: {:?}\n", self.manager);
        for thread in 0..THREADS {
            let its = self.steps.iter().filter(|(its, _)| *its == thread);
            let its: Vec<String> = its.map(|(_, step)| format!("{step:?}")).collect();
            text += &format!("    thread {thread}: {}\n", its.join(", "));
        }
        text
    }
}

/// Returns one step. Captures are more frequent than the other kinds of steps.
fn step(source: &mut Unstructured<'_>) -> arbitrary::Result<Step> {
    if !source.ratio(1, 4)? {
        return Step::arbitrary(source);
    }
    let (place, other) = (Place::arbitrary(source)?, Place::arbitrary(source)?);
    Ok(match source.int_in_range(0..=4)? {
        0 | 1 => Step::Begin(place, Mode::arbitrary(source)?),
        2 => Step::End(place),
        3 => Step::Record(place, other),
        _ => Step::Wait(place, other),
    })
}

/// The Splitmix64 generator.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
