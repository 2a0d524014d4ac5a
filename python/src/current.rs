//! The current context and the stream for new arrays of each thread, as set by `with` blocks.
//!
//! A guard of `cuda-safe` must stay on its thread, but a Python object can move. The guards of open
//! blocks are therefore stored here, each with the address of the object of its block.

use crate::error::{Failure, Result};
use crate::lifetime::ending::{calling, detached, let_go};
use crate::primary::{default_stream, is_default_stream, refuse_gone};
use crate::stream_handle::StreamHandle;
use cuda_safe::Context;
use cuda_safe::context::CurrentContext;
use cuda_safe::green::{CurrentGreenContext, GreenContext};
use cuda_safe::sys::{self, CUcontext, CUresult};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};

struct Open {
    /// The address of the object, which its block keeps alive.
    of: usize,
    stream: Option<StreamHandle>,
    made: Made,
    /// Whether the block has ended before a later one and could not be removed yet.
    has_ended: bool,
}

/// A context that was made current.
struct Made {
    /// Not dropped if a thread ends within a block: no context is current there any more, and the
    /// driver may already be unloaded.
    guard: ManuallyDrop<Guard>,
    /// The context that was current before, and that is current again after it.
    before: CUcontext,
    now: CUcontext,
}

enum Guard {
    Context(CurrentContext),
    /// The green context is kept alive as long as the guard, which stays on its thread.
    Green(CurrentGreenContext, GreenContext),
    /// A context that could not be made current again.
    None,
}

/// A context to make current.
enum Wanted {
    Context(Context),
    Green(GreenContext),
    None,
}

impl Wanted {
    fn make_current(self) -> Result<Made> {
        let before = current();
        let guard = match self {
            Self::Context(context) => Guard::Context(context.make_current()?),
            Self::Green(green) => Guard::Green(green.make_current()?, green),
            Self::None => Guard::None,
        };
        Ok(Made { guard: ManuallyDrop::new(guard), before, now: current() })
    }
}

impl Made {
    /// Returns whether the context was already current, so that nothing must be popped.
    fn is_empty(&self) -> bool {
        self.before == self.now && matches!(*self.guard, Guard::Context(_))
    }

    fn end(self) -> (Wanted, Result<()>) {
        match ManuallyDrop::into_inner(self.guard) {
            Guard::Context(guard) => {
                let context = guard.context().clone();
                (Wanted::Context(context), guard.end().map_err(Into::into))
            }
            Guard::Green(guard, green) => (Wanted::Green(green), guard.end().map_err(Into::into)),
            Guard::None => (Wanted::None, Ok(())),
        }
    }
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// Returns the current context of this thread, or null.
fn current() -> CUcontext {
    // `init` detects a forked process.
    if cuda_safe::init().is_err() {
        return std::ptr::null_mut();
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer refers to a local variable.
    match unsafe { sys::cuCtxGetCurrent(&raw mut context) } {
        CUresult::CUDA_SUCCESS => context,
        _ => std::ptr::null_mut(),
    }
}

fn enter(object: &Bound<'_, PyAny>, wanted: Wanted, stream: Option<StreamHandle>) -> Result<()> {
    let open =
        Open { of: object.as_ptr().addr(), stream, made: wanted.make_current()?, has_ended: false };
    OPEN.with_borrow_mut(|blocks| blocks.push(open));
    Ok(())
}

/// Begins a `with` block of an object with a context.
pub(crate) fn enter_context(object: &Bound<'_, PyAny>, context: &Context) -> Result<()> {
    enter(object, Wanted::Context(context.clone()), None)
}

/// Begins a `with` block of a green context.
pub(crate) fn enter_green(object: &Bound<'_, PyAny>, green: &GreenContext) -> Result<()> {
    enter(object, Wanted::Green(green.clone()), None)
}

/// Begins a `with` block of a stream, which new arrays use from now on.
pub(crate) fn enter_stream(object: &Bound<'_, PyAny>, lane: &StreamHandle) -> Result<()> {
    let wanted = Wanted::Context(lane.context().clone());
    enter(object, wanted, Some(lane.clone()))
}

/// Ends the most recent open block of an object on this thread.
///
/// If a later block is still open (in a generator or another asyncio task), it stays open with its
/// context current. The context from before this block becomes current again when the later block
/// ends too. Nothing else of this block is kept until then.
pub(crate) fn leave(object: &Bound<'_, PyAny>) -> Result<()> {
    let (py, address) = (object.py(), object.as_ptr().addr());
    let taken = OPEN.with_borrow_mut(|blocks| {
        let its = |open: &Open| open.of == address && !open.has_ended;
        let place = blocks.iter().rposition(its)?;
        Some(take_out(blocks, place))
    });
    let Some(Taken { streams, contexts, all }) = taken else {
        let what = calling(py, || object.repr())?;
        return Err(Failure::invalid(format!(
            "no block of {what} is open on this thread: a with block ends on the thread that began it"
        )));
    };
    // These are the last references if the objects were closed within the block; dropping them may
    // block.
    let_go(py, move || drop((streams, contexts)));
    all
}

/// The references of blocks that were removed, and whether all contexts could be restored.
struct Taken {
    streams: Vec<StreamHandle>,
    contexts: Vec<Wanted>,
    all: Result<()>,
}

/// Ends a block, and the blocks around it that ended before.
fn take_out(blocks: &mut Vec<Open>, place: usize) -> Taken {
    let mut taken = Taken {
        streams: Vec::from_iter(blocks[place].stream.take()),
        contexts: Vec::new(),
        all: Ok(()),
    };
    blocks[place].has_ended = true;
    let last_open = blocks.iter().rposition(|open| !open.has_ended);
    let is_last = last_open.is_none_or(|open| open < place);
    if !is_last && blocks[place].made.is_empty() {
        // A guard that has pushed nothing does nothing when dropped.
        let Open { made, .. } = blocks.remove(place);
        drop(ManuallyDrop::into_inner(made.guard));
        return taken;
    }
    if !is_last && blocks.last().is_some_and(|open| open.made.now != current()) {
        // Other code has made another context current. This block is removed with the blocks above
        // it.
        return taken;
    }
    // Contexts form a stack: those above are popped, and pushed again if their blocks are open.
    let from = match is_last {
        true => last_open.map_or(0, |open| open + 1),
        false => place,
    };
    let mut again = Vec::new();
    for open in blocks.split_off(from).into_iter().rev() {
        let (wanted, ended) = open.made.end();
        taken.all = taken.all.and(ended);
        match open.has_ended {
            true => taken.contexts.push(wanted),
            false => again.push((open.of, open.stream, wanted)),
        }
    }
    for (of, stream, wanted) in again.into_iter().rev() {
        let made = wanted.make_current().or_else(|why| {
            taken.all = Err(why);
            Wanted::None.make_current()
        });
        blocks.extend(made.ok().map(|made| Open { of, stream, made, has_ended: false }));
    }
    taken
}

/// Returns the stream of the innermost `with stream:` block.
pub(crate) fn lane_of_blocks() -> Option<StreamHandle> {
    OPEN.with_borrow(|blocks| {
        let open = blocks.iter().rev().filter(|open| !open.has_ended);
        open.filter_map(|open| open.stream.as_ref()).next().cloned()
    })
}

/// Returns whether `lane` is the stream for new work of this thread on its device: that of the
/// innermost `with stream:` block, or else the default stream of the device.
pub(crate) fn is_lane(lane: &StreamHandle) -> bool {
    OPEN.with_borrow(|blocks| {
        let open = blocks.iter().rev().filter(|open| !open.has_ended);
        match open.filter_map(|open| open.stream.as_ref()).next() {
            Some(other) if other.context().device() == lane.context().device() => {
                lane.is_same(other)
            }
            _ => matches!(lane, StreamHandle::Stream(stream) if is_default_stream(stream)),
        }
    })
}

/// Initializes the driver on the first call, which may take some time.
#[inline]
pub(crate) fn start(py: Python<'_>) -> Result<()> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.load(Ordering::Relaxed) {
        // `init` detects a forked process.
        return Ok(cuda_safe::init()?);
    }
    detached(py, cuda_safe::init)?;
    STARTED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Returns the number of the current context's device, or else of the first device.
pub(crate) fn device(py: Python<'_>) -> Result<u32> {
    start(py)?;
    let mut device = 0;
    // SAFETY: the pointer refers to a local variable.
    match unsafe { sys::cuCtxGetDevice(&raw mut device) } {
        CUresult::CUDA_SUCCESS => Ok(u32::try_from(device).unwrap_or(0)),
        _ => Ok(0),
    }
}

/// Returns the stream for new arrays on this thread.
pub(crate) fn lane(py: Python<'_>) -> Result<StreamHandle> {
    match lane_of_blocks() {
        Some(lane) => refuse_gone(lane.context(), "stream").map(|()| lane),
        None => Ok(StreamHandle::Stream(default_stream(py, device(py)?)?)),
    }
}
