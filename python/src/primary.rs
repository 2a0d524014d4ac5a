//! The primary context and the default stream of each device, which live as long as the process.

use crate::ending::detached;
use crate::error::{Failure, Result};
use cuda_safe::{Context, Device, Stream, StreamOptions};
use pyo3::prelude::*;
use std::sync::OnceLock;

/// More devices than any machine has.
const DEVICES: usize = 64;

/// The function that is called before the first use of a device.
static BEFORE_FIRST_USE: OnceLock<fn() -> Result<()>> = OnceLock::new();

/// The primary context and the default stream of each device, from its first use to the end of the
/// process.
static FIRST: [OnceLock<Box<Life>>; DEVICES] = [const { OnceLock::new() }; DEVICES];

/// A device's primary context until other code resets it, as `numba.cuda.close()` does. The reset
/// invalidates everything that was created in the context, so nothing is released. A `Life` is
/// therefore never freed; `next` is the one after the reset.
struct Life {
    context: Context,
    stream: OnceLock<Stream>,
    next: OnceLock<Box<Self>>,
}

impl Life {
    fn of(context: Context) -> Box<Self> {
        Box::new(Self {
            context,
            stream: OnceLock::new(),
            next: OnceLock::new(),
        })
    }
}

/// Sets the function that is called before the first use of a device. A failure is returned to the caller of
/// [`primary`], and the next call tries again.
pub(crate) fn before_first_use(prepare: fn() -> Result<()>) {
    let _ = BEFORE_FIRST_USE.set(prepare);
}

fn slot(ordinal: u32) -> Result<&'static OnceLock<Box<Life>>> {
    let slot = FIRST.get(ordinal as usize);
    slot.ok_or_else(|| Failure::invalid(format!("there is no device {ordinal}")))
}

/// Returns the current life of a device.
#[inline]
fn life(ordinal: u32) -> Option<&'static Life> {
    let mut life = FIRST.get(ordinal as usize)?.get()?;
    while let Some(next) = life.next.get() {
        life = next;
    }
    Some(life)
}

/// Returns the primary context of a device. The first call may take some time.
#[inline]
pub(crate) fn primary(py: Python<'_>, ordinal: u32) -> Result<Context> {
    match life(ordinal) {
        Some(life) => Ok(life.context.clone()),
        None => detached(py, || primary_now(ordinal)),
    }
}

/// Returns the primary context like [`primary`], for callers that may block: without the GIL, or
/// where it is unknown whether the thread holds it.
pub(crate) fn primary_now(ordinal: u32) -> Result<Context> {
    if let Some(life) = life(ordinal) {
        return Ok(life.context.clone());
    }
    let slot = slot(ordinal)?;
    if let Some(prepare) = BEFORE_FIRST_USE.get() {
        prepare()?;
    }
    let context = Context::primary(&Device::get(ordinal)?)?;
    Ok(slot.get_or_init(|| Life::of(context)).context.clone())
}

/// Returns the primary context after asking the driver whether it was reset. If it was, the new
/// context is used from now on. Drivers before CUDA 12.0 do not report a reset.
pub(crate) fn primary_asked(ordinal: u32) -> Result<Context> {
    let Some(life) = life(ordinal) else {
        return primary_now(ordinal);
    };
    let Some(id) = life.context.id() else {
        return Ok(life.context.clone());
    };
    let now = Context::primary(&life.context.device())?;
    match now.id() == Some(id) {
        true => Ok(life.context.clone()),
        false => Ok(life.next.get_or_init(|| Life::of(now)).context.clone()),
    }
}

/// Returns whether the primary context was found to have been reset, which invalidates everything
/// created in it.
#[inline]
pub(crate) fn is_gone(context: &Context) -> bool {
    life(context.device().ordinal()).is_some_and(|life| life.context != *context)
}

/// Returns the devices in use, each with its primary context.
pub(crate) fn used() -> impl Iterator<Item = (usize, &'static Context)> {
    (0..DEVICES).filter_map(|ordinal| Some((ordinal, &life(ordinal as u32)?.context)))
}

/// Returns the stream of arrays for which no stream was chosen. It is a blocking stream, so it is
/// in order with the legacy default stream, which libraries use that ignore streams.
pub(crate) fn default_stream(py: Python<'_>, ordinal: u32) -> Result<Stream> {
    if let Some(stream) = life(ordinal).and_then(|life| life.stream.get()) {
        return Ok(stream.clone());
    }
    let context = primary(py, ordinal)?;
    let options = StreamOptions {
        blocking: true,
        ..StreamOptions::default()
    };
    let stream = detached(py, || context.stream_with(options))?;
    match life(ordinal).filter(|life| life.context == context) {
        Some(life) => Ok(life.stream.get_or_init(|| stream).clone()),
        // The context was reset in the meantime.
        None => Ok(stream),
    }
}

/// Returns whether the stream came from [`default_stream`].
pub(crate) fn is_default_stream(stream: &Stream) -> bool {
    let life = life(stream.context().device().ordinal());
    life.and_then(|life| life.stream.get()) == Some(stream)
}
