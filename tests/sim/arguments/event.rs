//! Events: creation, records and waits.

use super::{On, Row, Stage, value};
use crate::prelude::*;
use cuda_safe::event::EventIpcHandle;

/// Creates an event for ordering only, unless the options say otherwise.
const DISABLE_TIMING: u32 = 2;

const INTERPROCESS: EventOptions =
    EventOptions { blocking_sync: false, timing: false, interprocess: true, _non_exhaustive: () };

fn made(options: EventOptions) -> impl Fn(&Stage) -> Result<()> {
    move |s| s.context.event_with(options).map(drop)
}

fn captured(s: &Stage, body: impl FnOnce(&Stream) -> Result<()>) -> Result<()> {
    s.stream.capture(CaptureMode::Relaxed, body).map(drop)
}

fn flags() -> Vec<Row> {
    let row = |name, options, flags: u32| {
        let name = format!("CUevent_flags::CU_EVENT_{name}");
        Row::new(&name, made(options), "cuEventCreate", value("flags"), flags)
    };
    let timing = EventOptions { timing: true, ..Default::default() };
    let blocking = EventOptions { blocking_sync: true, ..Default::default() };
    vec![
        row("DEFAULT", timing, 0),
        row("DISABLE_TIMING", EventOptions::default(), DISABLE_TIMING),
        row("BLOCKING_SYNC", blocking, 1 | DISABLE_TIMING),
        row("INTERPROCESS", INTERPROCESS, 4 | DISABLE_TIMING),
    ]
}

fn timed(s: &Stage) -> Result<()> {
    let options = EventOptions { timing: true, ..Default::default() };
    let (start, end) = (s.context.event_with(options)?, s.context.event_with(options)?);
    start.record(&s.stream)?;
    end.record(&s.stream)?;
    end.synchronize()?;
    end.elapsed_since(&start).map(drop)
}

pub(super) fn rows() -> Vec<Row> {
    let mut rows = flags();
    rows.extend([
        Row::of("CUevent_record_flags::CU_EVENT_RECORD_EXTERNAL", |s| {
            let event = s.context.event()?;
            captured(s, |stream| event.record_external(stream))
        })
        .calls("cuEventRecordWithFlags")
        .with(value("flags"), 1_u32),
        Row::of("CUevent_wait_flags::CU_EVENT_WAIT_EXTERNAL", |s| {
            let event = s.context.event()?;
            captured(s, |stream| stream.wait_external(&event))
        })
        .calls("cuStreamWaitEvent")
        .with(value("flags"), 1_u32),
        Row::of("CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT", |s| {
            s.stream.wait_event(&s.context.event()?)
        })
        .calls("cuStreamWaitEvent")
        .with(value("flags"), 0_u32),
        Row::of("cuEventRecord", |s| {
            let event = s.context.event()?;
            event.record(&s.stream)?;
            Ok((event.as_raw(), s.stream.as_raw()))
        })
        .calls("cuEventRecord")
        .with_told(|call| Some((value("event")(call)?, value("stream")(call)?))),
        Row::of("cuIpcGetEventHandle", |s| {
            let event = s.context.event_with(INTERPROCESS)?;
            event.ipc_handle()?;
            Ok(event.as_raw())
        })
        .calls("cuIpcGetEventHandle")
        .with_told(value("event")),
        Row::call("cuIpcOpenEventHandle", |s| {
            let handle = EventIpcHandle::from_bytes(cuda_sim::event_shared_by_another());
            // SAFETY: the software driver acts as the other process.
            unsafe { s.context.open_event(&handle) }
        }),
        Row::call("cuEventDestroy_v2", |s| s.context.event()),
        Row::call("cuEventQuery", |s| s.context.event()?.is_complete()),
        Row::call("cuEventSynchronize", |s| s.context.event()?.synchronize()),
        Row::call("cuEventElapsedTime_v2", timed),
        Row::call("cuEventElapsedTime", timed).on(On::Oldest),
        // A buffer that is rebound to another stream is ordered by an event.
        Row::call("cuStreamWaitEvent", |s| {
            DeviceBuffer::<u8>::uninit(&s.context.stream()?, 8)?.rebind(&s.stream)
        }),
    ]);
    rows
}
