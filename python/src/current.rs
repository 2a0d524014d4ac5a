//! What is current on a thread: contexts, and the stream of new arrays, by `with` blocks.
//!
//! A guard of `cuda-safe` stays on its thread, and objects of Python do not: so the guards of the blocks
//! that are open lie here, each with the object whose block it is.

use crate::device::default_stream;
use crate::ending::detached;
use crate::error::{Failure, Result};
use crate::lane::Lane;
use crate::stream::PyStream;
use cuda_safe::green::{CurrentGreenContext, GreenContext};
use cuda_safe::sys::{self, CUresult};
use cuda_safe::{Context, CurrentContext, Stream};
use pyo3::prelude::*;
use std::cell::RefCell;
use std::mem::ManuallyDrop;

struct Open {
    /// The address of the object, which its block keeps alive.
    of: usize,
    /// Not dropped where a thread ends in the middle of a block: nothing is current there any more, and
    /// the driver may be gone by then.
    guard: ManuallyDrop<Guard>,
    stream: Option<Lane>,
}

#[allow(dead_code, reason = "held, not read")]
enum Guard {
    Context(CurrentContext),
    /// With one that is kept until the guard is gone, which stays on its thread.
    Green(CurrentGreenContext, GreenContext),
}

thread_local! {
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

fn push(object: &Bound<'_, PyAny>, guard: Guard, stream: Option<Lane>) {
    let open = Open {
        of: object.as_ptr().addr(),
        guard: ManuallyDrop::new(guard),
        stream,
    };
    OPEN.with_borrow_mut(|blocks| blocks.push(open));
}

/// Begins the block of something with a context.
pub(crate) fn enter_context(object: &Bound<'_, PyAny>, context: &Context) -> Result<()> {
    push(object, Guard::Context(context.make_current()?), None);
    Ok(())
}

/// Begins the block of a green context.
pub(crate) fn enter_green(object: &Bound<'_, PyAny>, green: &GreenContext) -> Result<()> {
    push(
        object,
        Guard::Green(green.make_current()?, green.clone()),
        None,
    );
    Ok(())
}

/// Begins the block of a stream, on which new arrays are from now on.
pub(crate) fn enter_stream(object: &Bound<'_, PyAny>, lane: &Lane) -> Result<()> {
    let guard = Guard::Context(lane.context().make_current()?);
    push(object, guard, Some(lane.clone()));
    Ok(())
}

/// Ends the block of an object, which is the last that this thread began.
pub(crate) fn leave(object: &Bound<'_, PyAny>) -> Result<()> {
    let address = object.as_ptr().addr();
    let last = OPEN.with_borrow_mut(|blocks| match blocks.last() {
        Some(open) if open.of == address => blocks.pop(),
        _ => None,
    });
    let open = last.ok_or_else(|| {
        Failure::invalid("with blocks end in reverse order, on the thread that began them")
    })?;
    let Open { guard, stream, .. } = open;
    let (ended, green) = match ManuallyDrop::into_inner(guard) {
        Guard::Context(guard) => (guard.finish(), None),
        Guard::Green(guard, green) => (guard.finish(), Some(green)),
    };
    if stream.is_some() || green.is_some() {
        // Closed in the block they end here, which may wait.
        detached(object.py(), move || drop((stream, green)));
    }
    Ok(ended?)
}

/// The stream of the innermost block of one.
pub(crate) fn lane_of_blocks() -> Option<Lane> {
    OPEN.with_borrow(|blocks| blocks.iter().rev().find_map(|open| open.stream.clone()))
}

/// The number of the current device: that of the current context, or else the first.
pub(crate) fn device(py: Python<'_>) -> Result<u32> {
    detached(py, cuda_safe::init)?;
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
