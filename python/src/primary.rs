//! The primary context and the default stream of each device, which live as long as the process.

use crate::error::{Failure, Result};
use crate::lifetime::ending::detached;
use cuda_safe::sys::{self, CUresult};
use cuda_safe::{Context, Device, Stream, StreamOptions};
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::Deref;
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
        Box::new(Self { context, stream: OnceLock::new(), next: OnceLock::new() })
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

/// Returns the latest known life of a device.
#[inline]
fn life(ordinal: u32) -> Option<&'static Life> {
    let mut life = FIRST.get(ordinal as usize)?.get()?;
    while let Some(next) = life.next.get() {
        life = next;
    }
    Some(life)
}

/// Returns the life of a device, unless the driver says that it has ended.
#[inline]
fn current_life(ordinal: u32) -> Option<&'static Life> {
    life(ordinal).filter(|life| !life.has_ended())
}

impl Life {
    /// Asks the driver whether other code has reset the context. Drivers before CUDA 12.0 do not report
    /// a reset.
    #[inline]
    fn has_ended(&self) -> bool {
        let Some(id) = self.context.id() else {
            return false;
        };
        // `init` detects a forked process, in which the next call reports the error.
        if cuda_safe::init().is_err() {
            return false;
        }
        let mut now = 0;
        // SAFETY: the pointer refers to a local variable. The context is retained, and the handle of a
        // primary context remains valid when the context is reset.
        match unsafe { sys::cuCtxGetId(self.context.as_raw(), &raw mut now) } {
            CUresult::CUDA_SUCCESS => now != id,
            code => code == CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED,
        }
    }
}

/// Returns the primary context of a device. If the context was reset, this is the new one. The first
/// call may take some time.
#[inline]
pub(crate) fn primary(py: Python<'_>, ordinal: u32) -> Result<Context> {
    match current_life(ordinal) {
        Some(life) => Ok(life.context.clone()),
        None => detached(py, || primary_now(ordinal)),
    }
}

/// Returns the primary context like [`primary`], for callers that may block: without the GIL, or
/// where it is unknown whether the thread holds it.
pub(crate) fn primary_now(ordinal: u32) -> Result<Context> {
    let slot = match life(ordinal) {
        Some(life) if !life.has_ended() => return Ok(life.context.clone()),
        Some(ended) => &ended.next,
        None => {
            if let Some(prepare) = BEFORE_FIRST_USE.get() {
                prepare()?;
            }
            slot(ordinal)?
        }
    };
    let context = Context::primary(&Device::get(ordinal)?)?;
    Ok(slot.get_or_init(|| Life::of(context)).context.clone())
}

/// Returns whether other code has reset the primary context, which invalidates everything that was
/// created in it: nothing in it may be used, or released.
#[inline]
pub(crate) fn is_gone(context: &Context) -> bool {
    life(context.device().ordinal())
        .is_some_and(|life| life.context != *context || life.has_ended())
}

/// Refuses to use an object of a context that other code has reset.
#[inline]
pub(crate) fn refuse_gone(context: &Context, what: &str) -> Result<()> {
    match is_gone(context) {
        false => Ok(()),
        true => Err(gone(context, what)),
    }
}

#[cold]
fn gone(context: &Context, what: &str) -> Failure {
    Failure::invalid(format!(
        "the primary context of device {} was reset (by numba.cuda.close() or cudaDeviceReset), which \
         destroyed this {what}: create a new one",
        context.device().ordinal()
    ))
}

/// An object of the driver that is released on drop, unless other code has reset its context. The reset has
/// destroyed the object, and its address or handle may be in use again.
pub(crate) struct UntilReset<T: OfContext>(ManuallyDrop<T>);

/// An object of a context.
pub(crate) trait OfContext {
    fn context(&self) -> &Context;
}

impl<T: OfContext> UntilReset<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T: OfContext> Deref for UntilReset<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: OfContext> Drop for UntilReset<T> {
    fn drop(&mut self) {
        if !is_gone(self.0.context()) {
            // SAFETY: the value is dropped only here and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// Returns the devices in use, each with its primary context.
pub(crate) fn used() -> impl Iterator<Item = (usize, &'static Context)> {
    (0..DEVICES).filter_map(|ordinal| Some((ordinal, &life(ordinal as u32)?.context)))
}

/// Returns the stream of arrays for which no stream was chosen. It is a blocking stream, so it is
/// in order with the legacy default stream, which libraries use that ignore streams.
pub(crate) fn default_stream(py: Python<'_>, ordinal: u32) -> Result<Stream> {
    if let Some(stream) = current_life(ordinal).and_then(|life| life.stream.get()) {
        return Ok(stream.clone());
    }
    let context = primary(py, ordinal)?;
    let options = StreamOptions { blocking: true, ..StreamOptions::default() };
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
