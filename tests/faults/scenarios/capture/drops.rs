//! Drops during a capture and in a host function, where objects cannot be released at once. The
//! releases are deferred.

use crate::scenarios::{VECTOR, primary_and_streams, raw};
use crate::trace::Trace;
use core::ffi::c_void;
use cuda_safe::capture::CaptureMode;
use cuda_safe::{DeviceBuffer, Error, Module, PinnedBuffer, Result};
use std::any::Any;
use std::sync::{Mutex, PoisonError};

pub(crate) fn drops_while_capturing(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let ordered = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let plain = DeviceBuffer::<u32>::zeroed_sync(&stream, 4)?;
    let mut used = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let pinned = PinnedBuffer::<u32>::zeroed(&context, 4)?;
    let module = Module::from_ptx(&context, VECTOR)?;
    let (event, other) = (context.event()?, context.stream()?);
    let graph = other.capture::<Error>(CaptureMode::Relaxed, |_| Ok(()))?;
    let executable = graph.instantiate()?;
    stream.synchronize()?;

    let capturing = raw::Capturing::begin(&stream)?;
    used.fill(1)?;
    // A release now would be captured or could invalidate the capture, so all of these are deferred.
    trace.drop((ordered, plain, pinned, module, event, other, graph, executable));
    capturing.end()?;

    // This call releases the deferred objects.
    trace.drops_before(|| stream.synchronize())?;
    let after = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    assert_eq!(after.to_vec()?, [0; 4]);
    trace.drops_from_here()
}

/// The objects that the host function [`drop_things`] drops.
static THINGS: Mutex<Vec<Box<dyn Any + Send>>> = Mutex::new(Vec::new());

fn take() -> Vec<Box<dyn Any + Send>> {
    let mut things = THINGS.lock().unwrap_or_else(PoisonError::into_inner);
    std::mem::take(&mut *things)
}

unsafe extern "C" fn drop_things(_: *mut c_void) {
    drop(take());
}

/// A guard that drops the objects if the scenario fails before the host function runs.
struct Rest;

impl Drop for Rest {
    fn drop(&mut self) {
        drop(take());
    }
}

pub(crate) fn drops_in_a_callback(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let things: Vec<Box<dyn Any + Send>> = vec![
        Box::new(DeviceBuffer::<u32>::zeroed(&stream, 4)?),
        Box::new(DeviceBuffer::<u32>::zeroed_sync(&stream, 4)?),
        Box::new(PinnedBuffer::<u32>::zeroed(&context, 4)?),
        Box::new(Module::from_ptx(&context, VECTOR)?),
        Box::new(context.stream()?),
        Box::new(context.event()?),
        Box::new(context.clone()),
    ];
    let _rest = Rest;
    *THINGS.lock().unwrap_or_else(PoisonError::into_inner) = things;
    raw::callback(&stream, Some(drop_things))?;
    trace.drops_before(|| stream.synchronize())?;
    // This call releases the deferred objects.
    trace.drops_before(|| stream.synchronize())?;
    trace.drops_from_here()
}
