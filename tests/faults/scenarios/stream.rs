//! Streams.

use super::{expect, if_there_is, invalid, primary};
use crate::trace::Trace;
use cuda_safe::{Invalid, Result, Stream, StreamOptions};

pub(super) fn run(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let first = context.stream()?;
    let blocking = context.stream_with(StreamOptions {
        blocking: true,
        ..Default::default()
    })?;
    let high = context.stream_with(StreamOptions {
        priority: -1,
        ..Default::default()
    })?;
    assert_eq!(first.priority()?, 0);
    assert_eq!(high.priority()?, -1);
    if_there_is(first.id())?;
    let event = context.event()?;
    event.record(&first)?;
    high.wait(&event)?;
    blocking.wait(&event)?;
    high.is_idle()?;
    // SAFETY: it is refused.
    let default = unsafe { Stream::borrow_raw(std::ptr::null_mut(), &context) };
    expect(
        default,
        invalid(|why| matches!(why, Invalid::Handle { .. })),
    )?;
    let clone = first.clone();
    trace.drop(first);
    clone.synchronize()?;
    trace.drop(context);
    high.synchronize()?;
    blocking.synchronize()?;
    high.launch_host_function(|| {})?;
    high.synchronize()?;
    trace.drops_from_here();
    Ok(())
}
