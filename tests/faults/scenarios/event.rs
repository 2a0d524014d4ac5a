//! Events.

use super::{expect, invalid, primary_and_streams};
use crate::trace::Trace;
use cuda_safe::event::EventIpcHandle;
use cuda_safe::{CUresult, Context, ContextFlags, DeviceBuffer, EventOptions, Invalid, Result};

pub(super) fn run(trace: &mut Trace) -> Result<()> {
    let (context, [stream]) = primary_and_streams()?;
    let event = context.event()?;
    assert!(event.is_complete()?, "an event that was never recorded is complete");
    event.synchronize()?;
    let timing = EventOptions { timing: true, blocking_sync: true, ..Default::default() };
    let (start, end) = (context.event_with(timing)?, context.event_with(timing)?);
    start.record(&stream)?;
    let work = DeviceBuffer::<u8>::zeroed(&stream, 64)?;
    end.record(&stream)?;
    end.is_complete()?;
    end.synchronize()?;
    assert!(!end.elapsed_since(&start)?.is_zero());

    let timed = EventOptions { interprocess: true, ..timing };
    expect(context.event_with(timed), invalid(|why| *why == Invalid::InterprocessTiming))?;
    let shared = context.event_with(EventOptions { interprocess: true, ..Default::default() })?;
    let own = shared.ipc_handle()?;
    let forged = EventIpcHandle::from_bytes([7; 64]);
    for (handle, code) in
        [(own, CUresult::CUDA_ERROR_INVALID_CONTEXT), (forged, CUresult::CUDA_ERROR_MAP_FAILED)]
    {
        // SAFETY: the call is refused and accesses nothing.
        let opened = unsafe { context.open_event(&handle) };
        expect(opened, |error| error.code() == Some(code))?;
    }
    let handle = EventIpcHandle::from_bytes(cuda_sim::event_shared_by_another());
    // SAFETY: the software driver acts as the other process.
    let opened = unsafe { context.open_event(&handle) }?;
    stream.wait_event(&opened)?;
    trace.drop((shared, opened));

    // The dropped event is reused, and so is the one that the record fails for.
    trace.drop(context.event()?);
    context.event()?.record(&stream)?;
    let reused = context.event()?;
    assert!(reused.is_complete()?, "it was not recorded");
    reused.synchronize()?;
    stream.wait_event(&reused)?;
    trace.drop(reused);

    let other = Context::new(&context.device(), ContextFlags::empty())?;
    let elsewhere = other.stream()?;
    expect(event.record(&elsewhere), invalid(|why| matches!(why, Invalid::OtherContext { .. })))?;
    // Events may be waited for across contexts.
    elsewhere.wait_event(&end)?;
    elsewhere.synchronize()?;
    event.record(&stream)?;
    trace.drop((stream, event.clone()));
    event.synchronize()?;
    trace.drop(work);
    trace.drops_from_here()
}
