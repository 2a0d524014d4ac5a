//! Captures and graphs.

use super::{expect, invalid, primary, raw};
use crate::trace::Trace;
use cuda_safe::{CaptureMode, CaptureStatus, DeviceBuffer, Error, Invalid, Result};

pub(super) fn run(trace: &mut Trace) -> Result<()> {
    let context = primary()?;
    let (stream, other) = (context.stream()?, context.stream()?);
    let (forks, joins) = (context.event()?, context.event()?);
    let outside = context.event()?;
    let mut a = DeviceBuffer::<u32>::zeroed(&stream, 4)?;
    let mut b = DeviceBuffer::<u32>::zeroed(&other, 4)?;
    stream.synchronize()?;
    other.synchronize()?;
    assert_eq!(stream.capture_id()?, None);

    raw::may_stay_captured(&stream);
    let graph = stream.capture(CaptureMode::ThreadLocal, |stream| {
        forks.record(stream)?;
        other.wait_event(&forks)?;
        a.fill(1)?;
        b.fill(2)?;
        joins.record(&other)?;
        stream.wait_event(&joins)?;
        stream.wait_external(&outside)?;
        outside.record_external(stream)?;
        assert_eq!(stream.capture_status()?, CaptureStatus::Active);
        assert_eq!(stream.capture_id()?, other.capture_id()?);
        expect(DeviceBuffer::<u8>::uninit(stream, 4), captured())?;
        expect(a.copy_from_slice(&[0; 4]), captured())?;
        expect(a.to_vec(), captured())?;
        expect(stream.launch_host_function(|| {}), captured())
    })?;
    let executable = graph.instantiate()?;
    trace.drop(graph);
    // From here on the memory is freed after the launch, even if a later call fails.
    b.rebind(&stream)?;
    // SAFETY: the buffers are alive and bound to this stream.
    unsafe { executable.launch(&stream) }?;
    stream.synchronize()?;
    assert_eq!(a.to_vec()?, [1; 4]);
    assert_eq!(b.to_vec()?, [2; 4]);
    trace.drop(executable);

    let capture = stream.begin_capture(CaptureMode::Relaxed)?;
    trace.drop(capture);
    CaptureMode::Relaxed.with(|| stream.capture_status())??;
    stream.synchronize()?;
    trace.drops_from_here();
    Ok(())
}

fn captured() -> impl Fn(&Error) -> bool {
    invalid(|why| *why == Invalid::StreamIsCaptured)
}
