//! What is current on a thread: contexts, and the stream of new arrays, by `with` blocks.
//!
//! A guard of `cuda-safe` stays on its thread, and objects of Python do not: so the guards of the blocks
//! that are open lie here, each with the object whose block it is.

use crate::device::default_stream;
use crate::ending::{calling, detached, let_go};
use crate::error::{Failure, Result};
use crate::lane::Lane;
use crate::stream::PyStream;
use cuda_safe::green::{CurrentGreenContext, GreenContext};
use cuda_safe::sys::{self, CUcontext, CUresult};
use cuda_safe::{Context, CurrentContext, Stream};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, Ordering};

struct Open {
    /// The address of the object, which its block keeps alive.
    of: usize,
    stream: Option<Lane>,
    made: Made,
    /// Whether its block has ended, before one that began later, and could not be taken out.
    has_ended: bool,
}

/// A context that was made current.
struct Made {
    /// Not dropped where a thread ends in the middle of a block: nothing is current there any more, and
    /// the driver may be gone by then.
    guard: ManuallyDrop<Guard>,
    /// What was current before, and is with it.
    before: CUcontext,
    now: CUcontext,
}

enum Guard {
    Context(CurrentContext),
    /// With one that is kept until the guard is gone, which stays on its thread.
    Green(CurrentGreenContext, GreenContext),
    /// What was to be current again, and could not.
    None,
}

/// What a guard makes current.
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
        Ok(Made {
            guard: ManuallyDrop::new(guard),
            before,
            now: current(),
        })
    }
}

impl Made {
    /// Whether its context was current already: then there is nothing to pop.
    fn is_empty(&self) -> bool {
        self.before == self.now && matches!(*self.guard, Guard::Context(_))
    }

    fn finish(self) -> (Wanted, Result<()>) {
        match ManuallyDrop::into_inner(self.guard) {
            Guard::Context(guard) => {
                let context = guard.context().clone();
                (Wanted::Context(context), guard.finish().map_err(Into::into))
            }
            Guard::Green(guard, green) => {
                (Wanted::Green(green), guard.finish().map_err(Into::into))
            }
            Guard::None => (Wanted::None, Ok(())),
        }
    }
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

/// The current context of this thread, or null.
fn current() -> CUcontext {
    // The crate knows whether this process is a fork.
    if cuda_safe::init().is_err() {
        return std::ptr::null_mut();
    }
    let mut context = std::ptr::null_mut();
    // SAFETY: the pointer is to a local.
    match unsafe { sys::cuCtxGetCurrent(&raw mut context) } {
        CUresult::CUDA_SUCCESS => context,
        _ => std::ptr::null_mut(),
    }
}

fn enter(object: &Bound<'_, PyAny>, wanted: Wanted, stream: Option<Lane>) -> Result<()> {
    let open = Open {
        of: object.as_ptr().addr(),
        stream,
        made: wanted.make_current()?,
        has_ended: false,
    };
    OPEN.with_borrow_mut(|blocks| blocks.push(open));
    Ok(())
}

/// Begins the block of something with a context.
pub(crate) fn enter_context(object: &Bound<'_, PyAny>, context: &Context) -> Result<()> {
    enter(object, Wanted::Context(context.clone()), None)
}

/// Begins the block of a green context.
pub(crate) fn enter_green(object: &Bound<'_, PyAny>, green: &GreenContext) -> Result<()> {
    enter(object, Wanted::Green(green.clone()), None)
}

/// Begins the block of a stream, on which new arrays are from now on.
pub(crate) fn enter_stream(object: &Bound<'_, PyAny>, lane: &Lane) -> Result<()> {
    let wanted = Wanted::Context(lane.context().clone());
    enter(object, wanted, Some(lane.clone()))
}

/// Ends the block of an object, the last of its that this thread began.
///
/// Where one that began later is still open (in a generator, or in another task of asyncio), that stays
/// as it is, with its context current; what was current before this one is so again when that ends too.
/// Nothing of this one is kept until then.
pub(crate) fn leave(object: &Bound<'_, PyAny>) -> Result<()> {
    let (py, address) = (object.py(), object.as_ptr().addr());
    let taken = OPEN.with_borrow_mut(|blocks| {
        let its = |open: &Open| open.of == address && !open.has_ended;
        let place = blocks.iter().rposition(its)?;
        Some(take_out(blocks, place))
    });
    let Some(Taken {
        streams,
        contexts,
        all,
    }) = taken
    else {
        let what = calling(py, || object.repr())?;
        return Err(Failure::invalid(format!(
            "no block of {what} is open on this thread: a with block ends on the thread that began it"
        )));
    };
    // Closed in the block they end here, which may wait.
    let_go(py, move || drop((streams, contexts)));
    all
}

/// What went with a block, and whether all was as it should be.
struct Taken {
    streams: Vec<Lane>,
    contexts: Vec<Wanted>,
    all: Result<()>,
}

/// Ends a block, and those around it that have ended before.
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
        // A guard that has pushed nothing does nothing when it is dropped.
        let Open { made, .. } = blocks.remove(place);
        drop(ManuallyDrop::into_inner(made.guard));
        return taken;
    }
    if !is_last && blocks.last().is_some_and(|open| open.made.now != current()) {
        // Somebody else is in the way. It goes with those above it.
        return taken;
    }
    // The contexts lie on one another: those above are taken off, and put back if they are open.
    let from = match is_last {
        true => last_open.map_or(0, |open| open + 1),
        false => place,
    };
    let mut again = Vec::new();
    for open in blocks.split_off(from).into_iter().rev() {
        let (wanted, finished) = open.made.finish();
        taken.all = taken.all.and(finished);
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
        blocks.extend(made.ok().map(|made| Open {
            of,
            stream,
            made,
            has_ended: false,
        }));
    }
    taken
}

/// The stream of the innermost block of one.
pub(crate) fn lane_of_blocks() -> Option<Lane> {
    OPEN.with_borrow(|blocks| {
        let open = blocks.iter().rev().filter(|open| !open.has_ended);
        open.filter_map(|open| open.stream.as_ref()).next().cloned()
    })
}

/// Starts the driver, if it is not. The first time may take a while.
#[inline]
pub(crate) fn start(py: Python<'_>) -> Result<()> {
    static STARTED: AtomicBool = AtomicBool::new(false);
    if STARTED.load(Ordering::Relaxed) {
        // It knows whether this process is a fork.
        return Ok(cuda_safe::init()?);
    }
    detached(py, cuda_safe::init)?;
    STARTED.store(true, Ordering::Relaxed);
    Ok(())
}

/// The number of the current device: that of the current context, or else the first.
pub(crate) fn device(py: Python<'_>) -> Result<u32> {
    start(py)?;
    let mut device = 0;
    // SAFETY: the pointer is to a local.
    match unsafe { sys::cuCtxGetDevice(&raw mut device) } {
        CUresult::CUDA_SUCCESS => Ok(u32::try_from(device).unwrap_or(0)),
        _ => Ok(0),
    }
}

/// The stream for new arrays on this thread.
pub(crate) fn lane(py: Python<'_>) -> Result<Lane> {
    match lane_of_blocks() {
        Some(lane) => Ok(lane),
        None => Ok(Lane::Stream(default_stream(py, device(py)?)?)),
    }
}

/// Likewise, if it can be allocated on.
pub(crate) fn stream(py: Python<'_>, given: Option<&PyStream>) -> Result<Stream> {
    let lane = match given {
        Some(stream) => stream.lane()?,
        None => lane(py)?,
    };
    match lane {
        Lane::Stream(stream) => Ok(stream),
        _ => Err(Failure::invalid(
            "arrays are not allocated on default streams: give another, or none, which is one that \
             is in order with the legacy default stream",
        )),
    }
}
